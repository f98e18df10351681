//! The product: the accumulators of one tile of the output.
//!
//! K is walked in chunks. Each chunk of A and B is widened into a small panel that stays in the cache, and the panels
//! are multiplied into the tile: by `matrixmultiply` in `f32` or `f64` (`f64` operands always in `f64`), or by a plain
//! loop in wrapping `i32`. No allocation has the size of the problem. Panels of a convolution and of its gradients are gathered
//! from the images and filters, group by group of the tile's columns. Those of an attention's weights are computed.

use super::Precision;
use super::attention::AttentionScores;
use super::memory::{Arguments, OperandView, product_operand};
use super::piece::EvalTile;
use crate::dtype::{DType, ValueType};
use crate::ir::{Order, Side};
use crate::problem::{Blocks, GradientOf, Operation, Patches, ScaleField, Shape};
use std::ops::Range;

/// K elements of a product in a chunk.
const CHUNK: usize = 512;

/// The two operands of a product.
pub(super) struct Product {
    a: OperandView,
    b: OperandView,
    k: usize,
    accumulator: ValueType,
    /// How an operand is made of images, if one is.
    patches: Option<Patches>,
    /// The scales of A and of B along K.
    scales: [Option<BlockScales>; 2],
    /// What makes A's elements of queries and keys, if they are weights.
    scores: Option<AttentionScores>,
}

impl Product {
    /// The operands, if the operation is a product.
    pub fn new(operation: Operation, shape: Shape, arguments: &Arguments, precision: Precision) -> Option<Product> {
        let layout = operation.layout()?;
        let operand = |name, dtype, order| arguments.tensor(name, product_operand(dtype, order));
        let [a, b] = operation.dtypes();
        let (mut a, b) = (operand("a", a, layout.a()), operand("b", b, layout.b()));
        let patches = operation.patches();
        if let Some(patches) = patches.filter(|patches| !patches.are_rows()) {
            a.strides.batch = patches.lines_of_group(); // a batch entry is a group, whose filters lie beside each other
        }
        let scales = [0, 1].map(|i| BlockScales::of(operation, i, arguments));
        let scores = AttentionScores::of(operation, shape, arguments, precision);
        Some(Product { a, b, k: shape.k, accumulator: operation.accumulator(), patches, scales, scores })
    }

    /// The columns of a tile in runs of one group, each with its number.
    fn groups(&self, columns: Range<usize>, batch: usize) -> Vec<(Range<usize>, usize)> {
        let Some(patches) = self.patches.filter(Patches::are_rows) else { return vec![(columns, batch)] };
        let lines = patches.lines_of_group().max(1);
        let groups = columns.start / lines..columns.end.div_ceil(lines);
        groups.map(|group| (columns.start.max(group * lines)..columns.end.min((group + 1) * lines), group)).collect()
    }

    /// One of the operands, and the distance from one K element to the next.
    pub fn operand(&self, side: Side) -> (&OperandView, usize) {
        match side {
            Side::A => (&self.a, self.a.strides.column),
            Side::B => (&self.b, self.b.strides.row),
        }
    }

    /// Memory for the accumulators of a tile.
    pub fn accumulators(&self, precision: Precision) -> Box<dyn Accumulators> {
        match (self.accumulator, precision) {
            (ValueType::F32, Precision::F32) => Box::new(Panels::<f32>::default()),
            (ValueType::F32, Precision::F64) | (ValueType::F64, _) => Box::new(Panels::<f64>::default()),
            (ValueType::I32 | ValueType::Bool, _) => Box::new(Panels::<i32>::default()),
        }
    }

    /// Memory for the sums of absolute values of a tile.
    pub fn magnitudes() -> Box<dyn Accumulators> {
        Box::new(Panels { map: Some(f64::abs), ..Panels::default() })
    }
}

/// The scales and zero points of one operand.
struct BlockScales {
    blocks: Blocks,
    scale: OperandView,
    zero: Option<OperandView>,
}

impl BlockScales {
    /// Those of `a` (0) or `b` (1), if it has blocks.
    fn of(operation: Operation, operand: usize, arguments: &Arguments) -> Option<BlockScales> {
        let blocks = operation.scales()[operand]?;
        let view = |field: ScaleField| {
            arguments.tensor(field.name(), product_operand(field.format(operation), blocks.order(operand == 0)))
        };
        let zero = blocks.zero_points.then(|| view(ScaleField { operand, zero: true }));
        Some(BlockScales { blocks, scale: view(ScaleField { operand, zero: false }), zero })
    }

    /// Scale and zero point of an element.
    fn at(&self, arguments: &Arguments, line: usize, term: usize, batch: usize, of_a: bool) -> [f64; 2] {
        let (line, term) = (line / self.blocks.lines, term / self.blocks.terms);
        let (row, column) = if of_a { (line, term) } else { (term, line) };
        let read = |view: &OperandView| {
            let mut x = [0.0];
            arguments.read(view, view.strides.index(row, column, batch), 1, &mut x);
            x[0]
        };
        [read(&self.scale), self.zero.as_ref().map_or(0.0, read)]
    }
}

/// The accumulators of one tile.
pub(super) trait Accumulators {
    /// Computes them.
    fn compute(&mut self, product: &Product, arguments: &Arguments, tile: &EvalTile);

    /// Copies one row of the tile.
    fn row(&self, row: usize, out: &mut [f64]);
}

/// The elements of panels.
trait Term: Copy + Default {
    /// Reads consecutive elements.
    fn read(dtype: DType, bytes: &[u8], index: usize, out: &mut [Self]);

    fn value(self) -> f64;

    /// The nearest number.
    fn of(x: f64) -> Self;

    /// `(self - zero) * scale`, rounded once.
    fn dequantised(self, zero: f64, scale: f64) -> Self;

    /// `c += a * b`, where `c` is row-major, and its rows begin `ld` elements apart.
    fn accumulate(a: &Panel<Self>, b: &Panel<Self>, c: &mut [Self], ld: usize);
}

/// A contiguous matrix.
#[derive(Default)]
struct Panel<T> {
    values: Vec<T>,
    rows: usize,
    columns: usize,
    order: Order,
}

#[derive(Default)]
struct Panels<T> {
    a: Panel<T>,
    b: Panel<T>,
    c: Vec<T>,
    columns: usize,
    /// The function that is applied to each element.
    map: Option<fn(T) -> T>,
}

impl<T: Term> Accumulators for Panels<T> {
    fn compute(&mut self, product: &Product, arguments: &Arguments, tile: &EvalTile) {
        self.columns = tile.columns.len();
        self.c.clear();
        self.c.resize(tile.rows.len() * tile.columns.len(), T::default());
        if let Some(scores) = &product.scores {
            return self.attend(scores, product, arguments, tile);
        }
        for start in (0..product.k).step_by(CHUNK) {
            let terms = start..product.k.min(start + CHUNK);
            for (columns, group) in product.groups(tile.columns.clone(), tile.batch) {
                let (rows, of_terms, terms) = (tile.rows.clone(), terms.clone(), terms.clone());
                match &product.patches {
                    Some(of) if of.are_rows() => self.a.gather(arguments, &product.a, of, rows, terms.clone(), group),
                    _ => self.a.load(arguments, &product.a, tile.batch, rows, terms.clone()),
                }
                match &product.patches {
                    Some(of) if of.gradient == Some(GradientOf::Images) => {
                        self.b.turn(arguments, &product.b, of, terms, columns.clone(), group);
                    }
                    Some(of) if !of.are_rows() => {
                        self.b.gather(arguments, &product.b, of, terms, columns.clone(), group);
                    }
                    _ => self.b.load(arguments, &product.b, tile.batch, terms, columns.clone()),
                }
                let [of_a, of_b] = &product.scales;
                if let Some(scales) = of_a {
                    self.a.scale(arguments, scales, tile.batch, tile.rows.clone(), of_terms.clone(), true);
                }
                if let Some(scales) = of_b {
                    self.b.scale(arguments, scales, tile.batch, columns.clone(), of_terms.clone(), false);
                }
                if let Some(map) = self.map {
                    self.a.values.iter_mut().chain(&mut self.b.values).for_each(|x| *x = map(*x));
                }
                T::accumulate(&self.a, &self.b, &mut self.c[columns.start - tile.columns.start..], self.columns);
            }
        }
    }

    fn row(&self, row: usize, out: &mut [f64]) {
        for (x, c) in out.iter_mut().zip(&self.c[row * self.columns..]) {
            *x = c.value();
        }
    }
}

impl<T: Term> Panels<T> {
    /// The accumulators of an attention, sequence by sequence.
    fn attend(&mut self, scores: &AttentionScores, product: &Product, arguments: &Arguments, tile: &EvalTile) {
        for (rows, keys) in scores.sequences(tile.rows.clone()) {
            for start in keys.clone().step_by(CHUNK) {
                let terms = start..keys.end.min(start + CHUNK);
                let weights = scores.weights(arguments, &product.a, tile.batch, rows.clone(), keys.clone(), terms.clone());
                self.a = Panel { rows: rows.len(), columns: terms.len(), order: Order::RowMajor, values: Vec::new() };
                self.a.values.extend(weights.into_iter().map(T::of));
                self.b.load(arguments, &product.b, tile.batch, terms, tile.columns.clone());
                if let Some(map) = self.map {
                    self.b.values.iter_mut().for_each(|x| *x = map(*x));
                }
                T::accumulate(&self.a, &self.b, &mut self.c[(rows.start - tile.rows.start) * self.columns..], self.columns);
            }
        }
    }
}

/// Elements from line to line of images or filters.
fn leading(operand: &OperandView) -> usize {
    operand.strides.row.max(operand.strides.column)
}

impl<T: Term> Panel<T> {
    /// Copies a part of an operand, run by run in the order of memory.
    fn load(&mut self, arguments: &Arguments, from: &OperandView, batch: usize, rows: Range<usize>, columns: Range<usize>) {
        (self.rows, self.columns) = (rows.len(), columns.len());
        self.order = if from.strides.column == 1 { Order::RowMajor } else { Order::ColumnMajor };
        self.values.resize(self.rows * self.columns, T::default());
        let (runs, run) = match self.order {
            Order::RowMajor => (rows.len(), columns.len()),
            Order::ColumnMajor => (columns.len(), rows.len()),
        };
        for (i, out) in self.values.chunks_exact_mut(run).take(runs).enumerate() {
            let start = match self.order {
                Order::RowMajor => from.strides.index(rows.start + i, columns.start, batch),
                Order::ColumnMajor => from.strides.index(rows.start, columns.start + i, batch),
            };
            arguments.with_bytes(from, |bytes| T::read(from.dtype, bytes, start, out));
        }
    }

    /// Multiplies each element by the scale of its block, minus the zero point. The panel has `lines` of A or B, and `terms`
    /// of K.
    fn scale(
        &mut self,
        arguments: &Arguments,
        scales: &BlockScales,
        batch: usize,
        lines: Range<usize>,
        terms: Range<usize>,
        of_a: bool,
    ) {
        let (rows, columns) = self.strides();
        let (across, along) = if of_a { (rows, columns) } else { (columns, rows) };
        let mut block = terms.start;
        while block < terms.end {
            let end = terms.end.min((block / scales.blocks.terms + 1) * scales.blocks.terms);
            for line in lines.clone() {
                let [scale, zero] = scales.at(arguments, line, block, batch, of_a);
                let first = (line - lines.start) * across;
                for term in block..end {
                    let x = &mut self.values[first + (term - terms.start) * along];
                    *x = x.dequantised(zero, scale);
                }
            }
            block = end;
        }
    }

    /// Gathers the pixels under some windows, for some taps and channels of a group; zeros beyond the images.
    fn gather(
        &mut self,
        arguments: &Arguments,
        images: &OperandView,
        patches: &Patches,
        rows: Range<usize>,
        terms: Range<usize>,
        group: usize,
    ) {
        (self.rows, self.columns, self.order) = (rows.len(), terms.len(), Order::RowMajor);
        self.values.clear();
        self.values.resize(self.rows * self.columns, T::default());
        let channels = patches.channels_of_group();
        arguments.with_bytes(images, |bytes| {
            for (out, row) in self.values.chunks_exact_mut(terms.len()).zip(rows) {
                let window = patches.window_at(row);
                let mut term = terms.start;
                while term < terms.end {
                    let (tap, inside) = (term / channels, term % channels);
                    let run = (channels - inside).min(terms.end - term);
                    if let Some(pixel) = patches.pixel_under(window, tap) {
                        let start = pixel * leading(images) + group * channels + inside;
                        T::read(images.dtype, bytes, start, &mut out[term - terms.start..][..run]);
                    }
                    term += run;
                }
            }
        });
    }

    /// Gathers filters of a group for the gradient of the images: rows are taps of the turned window and filters, columns are
    /// channels.
    fn turn(
        &mut self,
        arguments: &Arguments,
        filters: &OperandView,
        patches: &Patches,
        rows: Range<usize>,
        columns: Range<usize>,
        group: usize,
    ) {
        (self.rows, self.columns, self.order) = (rows.len(), columns.len(), Order::RowMajor);
        self.values.clear();
        self.values.resize(self.rows * self.columns, T::default());
        let (of_group, channels) = (patches.channels_of_group(), patches.lines_of_group());
        let first = columns.start - group * channels;
        arguments.with_bytes(filters, |bytes| {
            for (out, row) in self.values.chunks_exact_mut(columns.len()).zip(rows) {
                let (tap, filter) = (patches.tap_of_filter(row / of_group), group * of_group + row % of_group);
                T::read(filters.dtype, bytes, filter * leading(filters) + tap * channels + first, out);
            }
        });
    }

    /// Distances between rows and between columns.
    fn strides(&self) -> (usize, usize) {
        match self.order {
            Order::RowMajor => (self.columns, 1),
            Order::ColumnMajor => (1, self.rows),
        }
    }
}

macro_rules! floating {
    ($t:ident, $gemm:ident, $read:item) => {
        impl Term for $t {
            $read

            fn value(self) -> f64 {
                f64::from(self)
            }

            fn of(x: f64) -> $t {
                x as $t
            }

            fn dequantised(self, zero: f64, scale: f64) -> $t {
                $t::of((f64::from(self) - zero) * scale)
            }

            fn accumulate(a: &Panel<$t>, b: &Panel<$t>, c: &mut [$t], ld: usize) {
                let (m, k, n) = (a.rows, a.columns, b.columns);
                assert!(m > 0 && a.values.len() == m * k && b.rows == k && b.values.len() == k * n);
                assert!(n <= ld && c.len() >= (m - 1) * ld + n);
                // Extents of tiles and chunks are far below `isize::MAX`.
                let ((rsa, csa), (rsb, csb)) = (a.strides(), b.strides());
                // SAFETY: `a` and `b` are m x k and k x n contiguous matrices with the strides of their orders, and `c` has
                // room for m rows of n elements that begin `ld` apart, as the assertions above say. `c` is borrowed mutably,
                // so it does not overlap them.
                unsafe {
                    matrixmultiply::$gemm(
                        m,
                        k,
                        n,
                        1.0,
                        a.values.as_ptr(),
                        rsa as isize,
                        csa as isize,
                        b.values.as_ptr(),
                        rsb as isize,
                        csb as isize,
                        1.0,
                        c.as_mut_ptr(),
                        ld as isize,
                        1,
                    );
                }
            }
        }
    };
}

floating!(
    f32,
    sgemm,
    fn read(dtype: DType, bytes: &[u8], index: usize, out: &mut [f32]) {
        dtype.read_run(bytes, index, out);
    }
);

floating!(
    f64,
    dgemm,
    fn read(dtype: DType, bytes: &[u8], index: usize, out: &mut [f64]) {
        dtype.read_wide(bytes, index, out);
    }
);

impl Term for i32 {
    fn read(dtype: DType, bytes: &[u8], index: usize, out: &mut [i32]) {
        out.iter_mut().enumerate().for_each(|(i, x)| *x = dtype.read(bytes, index + i) as i32);
    }

    fn value(self) -> f64 {
        f64::from(self)
    }

    fn of(x: f64) -> i32 {
        x as i32
    }

    fn dequantised(self, zero: f64, scale: f64) -> i32 {
        i32::of((f64::from(self) - zero) * scale)
    }

    fn accumulate(a: &Panel<i32>, b: &Panel<i32>, c: &mut [i32], ld: usize) {
        let ((rsa, csa), (rsb, csb)) = (a.strides(), b.strides());
        let mut row_of_b = vec![0; b.columns];
        for k in 0..b.rows {
            for (j, x) in row_of_b.iter_mut().enumerate() {
                *x = b.values[k * rsb + j * csb];
            }
            for (i, sums) in c.chunks_mut(ld).enumerate() {
                let factor = a.values[i * rsa + k * csa];
                for (sum, x) in sums.iter_mut().zip(&row_of_b) {
                    *sum = sum.wrapping_add(factor.wrapping_mul(*x));
                }
            }
        }
    }
}
