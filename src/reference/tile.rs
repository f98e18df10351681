//! Tiles: the output in pieces. One thread computes each tile and writes it at once.
//!
//! A thread takes the next tile, computes it in its own memory, already rounded and in the order of the output, and
//! copies it into place run by run. Tiles never share an element, so the result does not depend on which thread
//! computes which tile, or when.

use super::eval::{EvalProgram, Frame, Results};
use super::gemm::{Accumulators, Product};
use super::memory::{Arguments, Format, Strides};
use super::piece::{EvalTile, Source};
use super::reduce::Reducer;
use super::{Operation, Precision, Shape};
use crate::check::Checked;
use crate::ir::NodeId;
use crate::ir::axes::{Axes, L, M, N};
use crate::parallel;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Rows and columns of a tile: its panels fit a core's cache, and the widening of a panel is small beside its product.
const TILE: [usize; 2] = [128, 256];

/// The fewest element operations that are worth a thread.
const WORTH_A_THREAD: usize = 1 << 20;

/// A matrix that is written.
pub(super) struct Output {
    pub source: Source,
    pub memory: usize,
    pub format: Format,
    pub strides: Strides,
    /// The axes that it varies along. Along other axes it is written once.
    pub axes: Axes,
}

/// A table of counts.
pub(super) struct Counter {
    /// The index of the entry that an element counts in.
    pub value: NodeId,
    pub memory: usize,
    pub format: Format,
    /// Entries of the table.
    pub length: usize,
}

/// All that a job writes.
#[derive(Default)]
pub(super) struct Targets {
    pub outputs: Vec<Output>,
    pub reducers: Vec<Reducer>,
    pub counters: Vec<Counter>,
}

/// The evaluation: the epilogue, the problem and the precision.
#[derive(Clone, Copy)]
pub(super) struct Task<'t> {
    pub operation: Operation,
    /// A graph without calls.
    pub epilogue: &'t Checked,
    pub shape: Shape,
    pub precision: Precision,
}

/// The state that all threads share.
pub(super) struct Job<'j, 'a> {
    shape: Shape,
    arguments: &'j Arguments<'a>,
    program: EvalProgram,
    product: Option<Product>,
    precision: Precision,
    outputs: Vec<Output>,
    reducers: Vec<Reducer>,
    counters: Vec<Counter>,
}

/// The state of one thread.
struct Worker {
    frame: Frame,
    accumulators: Option<Box<dyn Accumulators>>,
    magnitudes: Option<Box<dyn Accumulators>>,
    magnitude: Vec<f64>,
    staged: Vec<Vec<u8>>,
}

impl<'j, 'a> Job<'j, 'a> {
    /// A job for a graph without calls and arguments that fit it. The reductions inside the graph that it needs are
    /// finished.
    pub fn new(
        Task { operation, epilogue, shape, precision }: Task<'_>,
        arguments: &'j Arguments<'a>,
        Targets { outputs, reducers, counters }: Targets,
        done: &Results,
    ) -> Job<'j, 'a> {
        let values = outputs.iter().map(|o| o.source).chain(reducers.iter().map(|r| r.source)).flat_map(Source::values);
        let values = values.chain(reducers.iter().flat_map(|r| r.others.iter().copied()));
        let values = values.chain(counters.iter().map(|counter| counter.value));
        let program = EvalProgram::new(operation, epilogue, arguments, precision, values, done);
        let product = Product::new(operation, shape, arguments, precision);
        let mut job = Job { shape, arguments, program, product, precision, outputs, reducers, counters };
        let count = job.count();
        job.reducers.iter_mut().for_each(|r| r.partials.resize_with(count, Default::default));
        job
    }

    /// Batch entries that are visited: one if the batch shares every output.
    fn entries(&self) -> usize {
        if self.reducers.is_empty() && self.counters.is_empty() && self.outputs.iter().all(|o| !o.axes.contains(L)) {
            self.shape.batch.min(1)
        } else {
            self.shape.batch
        }
    }

    /// Tiles along M and N.
    fn tiles(&self) -> [usize; 2] {
        [self.shape.m.div_ceil(TILE[0]), self.shape.n.div_ceil(TILE[1])]
    }

    fn count(&self) -> usize {
        let [rows, columns] = self.tiles();
        rows * columns * self.entries()
    }

    fn tile_at(&self, index: usize) -> EvalTile {
        let [rows, columns] = self.tiles();
        let (batch, row, column) = (index / (rows * columns), index / columns % rows, index % columns);
        EvalTile { batch, sequence: None, rows: part(row, TILE[0], self.shape.m), columns: part(column, TILE[1], self.shape.n) }
    }

    /// Computes and writes every output.
    pub fn run(&self) {
        if !self.shape.is_empty() {
            self.visit();
        }
        for reducer in &self.reducers {
            reducer.finish(self.arguments, self.product.as_ref(), self.shape, (0..self.count()).map(|index| self.tile_at(index)));
        }
    }

    fn visit(&self) {
        let (entries, count) = (self.entries(), self.count());
        let next = AtomicUsize::new(0);
        let work = || {
            let mut worker = self.worker();
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                if index >= count {
                    break;
                }
                self.tile(&mut worker, index);
            }
        };
        let terms = if self.program.multiplies() { self.shape.k } else { 0 };
        let operations = [self.shape.m, self.shape.n, entries, terms / 8 + self.program.len()];
        let operations = operations.into_iter().fold(1usize, usize::saturating_mul);
        let cores = parallel::cores();
        let threads = cores.min(count).min(operations / WORTH_A_THREAD + 1);
        parallel::side_by_side(threads, work);
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

    fn tile(&self, worker: &mut Worker, index: usize) {
        let tile = &self.tile_at(index);
        let Worker { frame, accumulators, magnitudes, magnitude, staged } = worker;
        for accumulators in [&mut *accumulators, &mut *magnitudes].into_iter().flatten() {
            if let Some(product) = &self.product {
                accumulators.compute(product, self.arguments, tile);
            }
        }
        let [rows, columns] = [tile.rows.len(), tile.columns.len()];
        for (bytes, output) in staged.iter_mut().zip(&self.outputs) {
            let [rows, columns] = output.extents(rows, columns);
            let (runs, run) = if output.row_major() { (rows, columns) } else { (columns, rows) };
            bytes.clear();
            bytes.resize(runs * output.format.bytes(run), 0);
        }
        let mut partials: Vec<Vec<f64>> = self.reducers.iter().map(|r| r.begin(tile)).collect();
        let mut counted: Vec<Vec<usize>> = vec![Vec::new(); self.counters.len()];
        magnitude.resize(columns, 0.0);
        self.program.begin(frame, self.arguments, tile);
        for row in 0..rows {
            let accumulator = |out: &mut [f64]| {
                if let Some(accumulators) = accumulators.as_deref() {
                    accumulators.row(row, out);
                }
            };
            self.program.row(frame, self.arguments, tile, tile.rows.start + row, &accumulator);
            if let Some(magnitudes) = magnitudes.as_deref() {
                magnitudes.row(row, magnitude);
            }
            for (bytes, output) in staged.iter_mut().zip(&self.outputs) {
                let values = match output.source {
                    Source::Value(id) => frame.value(id),
                    Source::Product(_) | Source::Element(_) => unreachable!("only a reduction takes a product apart"),
                    Source::Magnitude => magnitude,
                };
                let [rows, columns] = output.extents(rows, columns);
                if row >= rows {
                    continue;
                }
                let run = |elements| output.format.run(elements);
                let (start, step) = if output.row_major() { (row * run(columns), 1) } else { (row, run(rows)) };
                for column in 0..columns {
                    output.format.write(bytes, start + column * step, values[column.min(values.len() - 1)]);
                }
            }
            for (partial, reducer) in partials.iter_mut().zip(&self.reducers) {
                reducer.row(partial, frame, row, columns);
            }
            for (indices, counter) in counted.iter_mut().zip(&self.counters) {
                let values = frame.value(counter.value);
                let index = |column: usize| values[column.min(values.len() - 1)];
                let inside = |index: &f64| *index >= 0.0 && *index < counter.length as f64;
                indices.extend((0..columns).map(index).filter(inside).map(|index| index as usize));
            }
        }
        for (reducer, partial) in self.reducers.iter().zip(partials) {
            // Only one thread takes a tile, so the place is empty.
            let _ = reducer.partials[index].set(partial);
        }
        for (indices, counter) in counted.iter().zip(&self.counters) {
            self.arguments.count(counter.memory, counter.format, indices);
        }
        for (bytes, output) in staged.iter().zip(&self.outputs) {
            if output.is_written_by(tile) {
                self.commit(bytes, output, tile);
            }
        }
    }

    /// Copies a tile into place, run by run.
    fn commit(&self, staged: &[u8], output: &Output, tile: &EvalTile) {
        let row_major = output.row_major();
        let [rows, columns] = output.extents(tile.rows.len(), tile.columns.len());
        let run = if row_major { columns } else { rows };
        let runs = staged.chunks_exact(output.format.bytes(run)).enumerate().map(|(i, bytes)| {
            let (row, column) = if row_major { (i, 0) } else { (0, i) };
            let index = output.strides.index(tile.rows.start + row, tile.columns.start + column, tile.batch);
            (output.format.bytes(index), bytes)
        });
        self.arguments.write(output.memory, runs);
    }
}

impl Output {
    /// Whether a run is a row; otherwise it is a column.
    fn row_major(&self) -> bool {
        self.strides.column == 1
    }

    /// The rows and columns of a tile for which it has elements.
    fn extents(&self, rows: usize, columns: usize) -> [usize; 2] {
        let along = |axis, extent: usize| if self.axes.contains(axis) { extent } else { extent.min(1) };
        [along(M, rows), along(N, columns)]
    }

    /// Whether a tile writes its part: the first of the tiles that share it does.
    fn is_written_by(&self, tile: &EvalTile) -> bool {
        let firsts = [(M, tile.rows.start), (N, tile.columns.start), (L, tile.batch)];
        firsts.into_iter().all(|(axis, first)| self.axes.contains(axis) || first == 0)
    }
}

/// The part of an axis that a tile covers.
fn part(index: usize, size: usize, extent: usize) -> Range<usize> {
    index * size..extent.min((index + 1) * size)
}
