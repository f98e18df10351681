//! Tiles: the output in pieces, each computed by one thread and written at once.
//!
//! A thread takes the next tile, computes it into memory of its own, already rounded and in the order of the output, and
//! copies it into place run by run. Tiles never share an element, so which thread computes which tile, and when, cannot be
//! observed.

use super::eval::{Frame, Program};
use super::gemm::{Accumulators, Product};
use super::memory::{Arguments, Format, Strides};
use super::{Operation, Precision, Shape};
use crate::check::Checked;
use crate::ir::NodeId;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Rows and columns of a tile: its panels fit a core's cache, and the widening of a panel is small beside its product.
const TILE: [usize; 2] = [128, 256];

/// Element operations that are worth a thread.
const WORTH_A_THREAD: usize = 1 << 20;

/// A piece of one batch entry of the output.
pub(super) struct Tile {
    pub batch: usize,
    pub rows: Range<usize>,
    pub columns: Range<usize>,
}

/// What an output is made of.
#[derive(Clone, Copy)]
pub(super) enum Source {
    /// A node.
    Value(NodeId),
    /// The magnitude of the product.
    Magnitude,
}

/// A matrix that is written.
pub(super) struct Output {
    pub source: Source,
    pub memory: usize,
    pub format: Format,
    pub strides: Strides,
    /// Whether the batch shares it: it is written once.
    pub shared: bool,
}

/// Everything a thread needs.
pub(super) struct Job<'a> {
    shape: Shape,
    arguments: Arguments<'a>,
    program: Program,
    product: Option<Product>,
    precision: Precision,
    outputs: Vec<Output>,
}

/// What a thread has of its own.
struct Worker {
    frame: Frame,
    accumulators: Option<Box<dyn Accumulators>>,
    magnitudes: Option<Box<dyn Accumulators>>,
    magnitude: Vec<f64>,
    staged: Vec<Vec<u8>>,
}

impl<'a> Job<'a> {
    /// A job for a graph without calls and arguments that fit it.
    pub fn new(
        operation: Operation,
        epilogue: &Checked,
        shape: Shape,
        arguments: Arguments<'a>,
        precision: Precision,
        outputs: Vec<Output>,
    ) -> Job<'a> {
        let program = Program::new(operation, epilogue, &arguments, precision);
        let product = Product::new(operation, shape.k, &arguments);
        Job { shape, arguments, program, product, precision, outputs }
    }

    /// Computes and writes every output.
    pub fn run(&self) {
        if self.shape.is_empty() {
            return;
        }
        let entries = if self.outputs.iter().all(|o| o.shared) { 1 } else { self.shape.batch };
        let [rows, columns] = [self.shape.m.div_ceil(TILE[0]), self.shape.n.div_ceil(TILE[1])];
        let count = rows * columns * entries;
        let next = AtomicUsize::new(0);
        let work = || {
            let mut worker = self.worker();
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                if index >= count {
                    break;
                }
                let (entry, row, column) = (index / (rows * columns), index / columns % rows, index % columns);
                let tile =
                    Tile { batch: entry, rows: part(row, TILE[0], self.shape.m), columns: part(column, TILE[1], self.shape.n) };
                self.tile(&mut worker, &tile);
            }
        };
        let terms = if self.program.multiplies() { self.shape.k } else { 0 };
        let operations = [self.shape.m, self.shape.n, entries, terms / 8 + self.program.len()];
        let operations = operations.into_iter().fold(1usize, usize::saturating_mul);
        let cores = thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let threads = cores.min(count).min(operations / WORTH_A_THREAD + 1);
        thread::scope(|scope| {
            for _ in 1..threads {
                scope.spawn(work);
            }
            work();
        });
    }

    fn worker(&self) -> Worker {
        let magnitude = self.outputs.iter().any(|o| matches!(o.source, Source::Magnitude));
        let product = self.product.as_ref();
        Worker {
            frame: self.program.frame(),
            accumulators: product.filter(|_| self.program.multiplies()).map(|p| p.accumulators(self.precision)),
            magnitudes: product.filter(|_| magnitude).map(|_| Product::magnitudes()),
            magnitude: Vec::new(),
            staged: vec![Vec::new(); self.outputs.len()],
        }
    }

    fn tile(&self, worker: &mut Worker, tile: &Tile) {
        let Worker { frame, accumulators, magnitudes, magnitude, staged } = worker;
        for accumulators in [&mut *accumulators, &mut *magnitudes].into_iter().flatten() {
            if let Some(product) = &self.product {
                accumulators.compute(product, &self.arguments, tile);
            }
        }
        let [rows, columns] = [tile.rows.len(), tile.columns.len()];
        for (bytes, output) in staged.iter_mut().zip(&self.outputs) {
            bytes.resize(rows * columns * output.format.size(), 0);
        }
        magnitude.resize(columns, 0.0);
        self.program.begin(frame, &self.arguments, tile);
        for row in 0..rows {
            let accumulator = |out: &mut [f64]| {
                if let Some(accumulators) = accumulators.as_deref() {
                    accumulators.row(row, out);
                }
            };
            self.program.row(frame, &self.arguments, tile, tile.rows.start + row, &accumulator);
            if let Some(magnitudes) = magnitudes.as_deref() {
                magnitudes.row(row, magnitude);
            }
            for (bytes, output) in staged.iter_mut().zip(&self.outputs) {
                let values = match output.source {
                    Source::Value(id) => frame.value(id),
                    Source::Magnitude => magnitude,
                };
                let (start, step) = if output.row_major() { (row * columns, 1) } else { (row, rows) };
                for column in 0..columns {
                    output.format.write(bytes, start + column * step, values[column.min(values.len() - 1)]);
                }
            }
        }
        for (bytes, output) in staged.iter().zip(&self.outputs) {
            if !output.shared || tile.batch == 0 {
                self.commit(bytes, output, tile);
            }
        }
    }

    /// Copies a tile into place, run by run.
    fn commit(&self, staged: &[u8], output: &Output, tile: &Tile) {
        let size = output.format.size();
        let row_major = output.row_major();
        let run = if row_major { tile.columns.len() } else { tile.rows.len() };
        let runs = staged.chunks_exact(run * size).enumerate().map(|(i, bytes)| {
            let (row, column) = if row_major { (i, 0) } else { (0, i) };
            let index = output.strides.index(tile.rows.start + row, tile.columns.start + column, tile.batch);
            (index * size, bytes)
        });
        self.arguments.write(output.memory, runs);
    }
}

impl Output {
    /// Whether a row lies in one run; a column does otherwise.
    fn row_major(&self) -> bool {
        self.strides.column == 1
    }
}

/// The part of an axis that a tile covers.
fn part(index: usize, size: usize, extent: usize) -> Range<usize> {
    index * size..extent.min((index + 1) * size)
}
