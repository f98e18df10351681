//! Rows: kernels that use what their rows come to.
//!
//! Values have a *stage*: how many reductions along the row lie behind them, one behind the other. Threads that share a
//! row read it once and hold it in registers, in the formats of memory; each stage computes from there what its
//! reductions take, and combines it over the row. So memory is read once, and what stages have in common is computed
//! again. A row that is too long to be held is read again for each stage, mostly from the level-2 cache.
//!
//! Behind a product a row is in several tiles. There the product stores its accumulators, and the kernel of rows is a
//! second one, as the one that adds up parts of K is.

use super::choice::TileRequest;
use super::{InstrKind, Item, PlanError, Program, Tile, TileShape};
use crate::check::Checked;
use crate::dtype::ValueType;
use crate::ir::axes::{Axes, M, N};
use crate::ir::name::word;
use crate::ir::{Monoid, Node, SinkKind};
use serde::Serialize;

/// What is reduced along rows at once.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Stage {
    /// What the visit of a strip computes for it.
    pub visit: Vec<Item>,
    /// The reductions.
    pub reductions: Vec<RowReduce>,
}

impl Stage {
    /// The values that its reductions take.
    pub(super) fn terms(&self) -> impl Iterator<Item = &usize> {
        self.reductions.iter().flat_map(|reduction| &reduction.terms)
    }
}

/// A reduction along the row whose result the kernel uses.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RowReduce {
    /// The step that is its result.
    pub step: usize,
    /// The values of an element: one, the two factors of a product that is summed without being rounded, or as many as
    /// the monoid takes.
    pub terms: Vec<usize>,
    /// The type of the first of them.
    pub value: ValueType,
    /// What combines.
    pub monoid: Monoid,
}

/// Whether an epilogue uses what it reduces.
pub(super) fn reduces(epilogue: &Checked) -> bool {
    epilogue.graph().nodes().any(|(_, node)| matches!(node, Node::Reduce { .. }))
}

/// Whether the kernel computes the transposed problem, whose rows are the columns: where reductions go over M.
///
/// # Errors
/// If reductions go over anything else, or a vector is stored along the reduced axis.
pub(super) fn is_transposed(epilogue: &Checked) -> Result<bool, PlanError> {
    let refused = |why: String| PlanError::Reduction { why };
    let mut axes = epilogue.graph().nodes().filter_map(|(_, node)| match node {
        Node::Reduce { over, .. } => Some(*over),
        _ => None,
    });
    let over = axes.next().unwrap_or(N);
    if ![M, N].contains(&over) {
        return Err(refused(format!("one goes over {over}, and kernels have those over N alone or M alone")));
    }
    if let Some(other) = axes.find(|other| *other != over) {
        return Err(refused(format!("one goes over {over} and another over {other}, and a kernel has those over one axis")));
    }
    let vectors = epilogue.graph().sinks().iter().filter(|sink| matches!(sink.kind, SinkKind::Store(_)));
    let mut along = vectors.filter(|sink| {
        let axes = sink.kind.operand().axes;
        !axes.is_matrix() && axes.contains(over)
    });
    match along.next() {
        Some(sink) => Err(refused(format!("`{}` is a vector over {over}, the axis that is reduced over", word(&sink.name)))),
        None => Ok(over == M),
    }
}

/// Bytes that a thread holds of a row of one matrix, where few threads share it and where many do: fewer of them combine sooner.
const HELD: usize = 64;
const HELD_OF_MANY: usize = 2 * HELD;
const MANY: usize = 256;
/// Bytes that it holds of all matrices, at most.
const MOST_HELD: usize = 256;
/// Strips of a row that a thread has at a time, at most.
const MOST_VISITS: usize = 8;
/// Threads that share a row, at least where there is so much of it: a load of a warp has no sector for less.
const LEAST_GROUP: usize = 4;
/// Columns that lanes put a byte of a mask together for.
const BYTE: usize = 8;
/// Threads of a block.
const LEAST_THREADS: usize = 128;
const MOST_THREADS: usize = 1024;
/// Rows that one thread has parts of at a time, at most.
const MOST_TOGETHER: usize = 4;
/// Registers of a thread beside what it holds, about, and those of a multiprocessor.
const BESIDE: usize = 44;
const REGISTERS: usize = 65_536;
/// The most threads of a multiprocessor.
const RESIDENT: usize = 2048;
/// The most batches of rows of a tile.
const MOST_BATCHES: usize = 1024;

/// What a row is for its kernel: strips, and bytes of a strip.
struct Row<'r> {
    request: &'r TileRequest<'r>,
    strips: usize,
    /// Bytes of all matrices that are read, and of the widest one.
    bytes: usize,
    widest: usize,
}

/// The tiles that suit the rows of a problem, the best first.
pub(super) fn tiles(request: &TileRequest<'_>) -> Vec<Tile> {
    let sizes = held(request.program, request.operation.dtype().size());
    let [bytes, widest] = [sizes.iter().sum::<usize>(), sizes.iter().copied().max().unwrap_or_default()];
    let [bytes, widest] = [bytes, widest].map(|bytes| bytes.max(1) * request.strip);
    let row = Row { request, strips: request.shape.n.max(1).div_ceil(request.strip), bytes, widest };
    let is_many = row.group(HELD) > MANY;
    let order = match (row.states(), is_many) {
        (0, false) => [HELD, HELD_OF_MANY, HELD / 2],
        (0, true) => [HELD_OF_MANY, HELD, HELD / 2],
        // Sums over M take registers of their own.
        (_, _) => [HELD / 2, HELD, HELD_OF_MANY],
    };
    let mut tiles: Vec<Tile> = order.into_iter().filter_map(|bytes| row.held(bytes)).collect();
    // Where registers run out the next one is taken that holds less; but with sums over M, each row that is read again
    // leaves some for every column, which takes longer than spills.
    if tiles.is_empty() || row.states() == 0 {
        tiles.push(row.again());
    }
    tiles.dedup();
    tiles
}

impl Row<'_> {
    /// Strips that a thread has at a time, if it holds so many bytes of a matrix.
    fn visits(&self, bytes: usize) -> usize {
        (bytes / self.widest).clamp(1, MOST_VISITS)
    }

    /// Threads that share the row then.
    fn group(&self, bytes: usize) -> usize {
        let least = LEAST_GROUP.max(BYTE / self.request.strip).min(self.strips.next_power_of_two());
        self.strips.div_ceil(self.visits(bytes)).next_power_of_two().max(least)
    }

    /// Words of what a thread has summed over M, for each of its columns.
    fn states(&self) -> usize {
        let down = self.request.program.reductions.iter().filter(|reduce| !reduce.operand.axes.contains(M));
        down.map(|reduce| reduce.monoid.words(reduce.value)).sum()
    }

    /// A tile whose threads hold rows.
    fn held(&self, bytes: usize) -> Option<Tile> {
        let TileRequest { shape, strip, gpu, .. } = *self.request;
        let group = self.group(bytes);
        let visits = self.strips.div_ceil(group);
        if group > MOST_THREADS || visits * self.bytes > MOST_HELD {
            return None;
        }
        let threads = group.max(LEAST_THREADS);
        let mut together = 1;
        while together < MOST_TOGETHER && 2 * together * visits * self.bytes <= HELD {
            together *= 2;
        }
        let (states, held) = (self.states(), together * visits * self.bytes / 4);
        let registers = BESIDE + held + visits * strip * states;
        let ahead = states > 0 && (registers + held) * threads <= REGISTERS;
        let registers = if ahead { registers + held } else { registers };
        let min_blocks = (REGISTERS / (registers * threads)).clamp(1, RESIDENT / threads);
        let at_once = threads / group * together;
        // What they take of a tile is the less, the more rows it has: as many as leave a tile for every block.
        let batches =
            shape.m.saturating_mul(shape.batch).div_ceil((at_once * min_blocks).saturating_mul(gpu.multiprocessors).max(1));
        let batches = if states > 0 { batches.clamp(1, MOST_BATCHES) } else { 1 };
        let span = (group * visits * strip).next_multiple_of(BYTE.max(group * strip));
        let shape = TileShape::Rows { group, span, together, ahead: ahead && batches > 1 };
        Some(Tile { bm: at_once * batches, bn: span, shape, threads, min_blocks })
    }

    /// A tile whose threads read a row again for each stage.
    fn again(&self) -> Tile {
        let group = (MOST_THREADS / 2).min(self.strips.next_power_of_two().max(32));
        let span = group * self.visits(HELD) * self.request.strip;
        // More than one span: else it would be held.
        let columns = self.request.shape.n.max(1).next_multiple_of(span).max(2 * span);
        let shape = TileShape::Rows { group, span, together: 1, ahead: false };
        Tile { bm: 1, bn: columns, shape, threads: group, min_blocks: (MOST_THREADS / group).min(RESIDENT / group) }
    }
}

/// Bytes of an element of each matrix that is read.
fn held(program: &Program, accumulator: usize) -> Vec<usize> {
    let bytes = |kind: &InstrKind| match kind {
        InstrKind::Accumulator => Some(accumulator),
        InstrKind::Load { operand, .. } if operand.axes.contains(Axes::MN) => Some(operand.dtype.size()),
        _ => None,
    };
    program.steps.iter().filter_map(|step| bytes(&step.kind)).collect()
}
