//! Rows: kernels that use the results of reductions along their rows.
//!
//! Each value has a *stage*: the number of reductions along the row behind it, one behind the other. Threads that share
//! a row read it once and hold it in registers, in the formats of memory. Each stage computes the terms of its
//! reductions from there, and combines them over the row. So memory is read once, and values that stages share are
//! computed again. A row that is too long to be held is read again for each stage, mostly from the L2 cache.
//!
//! Behind a product, one kernel does both if a tile of Hopper's mainloop has whole rows: four lanes then hold a row as
//! accumulators. Otherwise several tiles share a row. There the product stores its accumulators, and a second kernel computes
//! the rows, like the kernel that adds up parts of K.

use super::choice::TileRequest;
use super::split_k::PlanRequest;
use super::{InstrKind, Item, KernelPlan, Phase, PlanError, Program, Tile, TileShape};
use crate::check::Checked;
use crate::dtype::ValueType;
use crate::ir::axes::{Axes, M, N};
use crate::ir::name::word;
use crate::ir::{Monoid, Node, SinkKind};
use serde::Serialize;

/// The reductions along rows of one stage.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Stage {
    /// The values that the visit of a strip computes for it.
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

/// A reduction along the row whose result the same kernel uses.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RowReduce {
    /// The step that is its result.
    pub step: usize,
    /// The values of an element: one, the two factors of a product that is summed without being rounded, or as many as
    /// the monoid takes.
    pub terms: Vec<usize>,
    /// The type of the first of them.
    pub value: ValueType,
    /// The monoid that combines values.
    pub monoid: Monoid,
}

/// Whether an epilogue uses the results of its own reductions.
pub(super) fn reduces(epilogue: &Checked) -> bool {
    epilogue.graph().nodes().any(|(_, node)| matches!(node, Node::Reduce { .. }))
}

/// Whether the kernel computes the transposed problem, because reductions go over M.
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

/// The most columns of a tile of Hopper's mainloop.
const WIDEST: usize = 256;

/// The plan of one kernel for a product and the rows behind it, or why there is none.
pub(super) fn in_one(request: &PlanRequest<'_>) -> Result<KernelPlan, String> {
    let transposed = is_transposed(request.epilogue).map_err(|error| error.to_string())?;
    let shape = request.problem.shape;
    let row = if transposed { shape.m } else { shape.n };
    if transposed && request.operation.convolution().is_some() {
        return Err("the images of a convolution are rows, and its reductions go over M".into());
    }
    if row > WIDEST {
        return Err(format!("a row lies in several tiles: it has {row} elements, and a tile up to {WIDEST}"));
    }
    KernelPlan::whole(request).map_err(|error| match error {
        PlanError::NoTile(choice) => choice.reason(|tile| tile.bn >= row).unwrap_or_else(|| "no tile fits".into()),
        other => other.to_string(),
    })
}

/// Whether the accumulators of a tile of Hopper's mainloop are whole rows, and all that the stages need.
pub(super) fn fits_accumulators(tile: &Tile, request: &TileRequest<'_>) -> Result<(), String> {
    if tile.parts() > 1 {
        return Err("its blocks share K, and finish parts of rows".into());
    }
    if request.shape.n > tile.bn {
        return Err(format!("has rows of {} columns, and the problem's have {}", tile.bn, request.shape.n));
    }
    match request.program.stages_read() {
        true => Err("what is reduced along rows is read from a matrix, which arrives in parts of rows".into()),
        false => Ok(()),
    }
}

impl Program {
    /// Whether a term of a stage needs a matrix from memory.
    fn stages_read(&self) -> bool {
        let mut needed: Vec<usize> = self.stages.iter().flat_map(Stage::terms).copied().collect();
        let mut seen = vec![false; self.steps.len()];
        while let Some(step) = needed.pop() {
            if std::mem::replace(&mut seen[step], true) {
                continue;
            }
            if self.steps[step].phase == Phase::Visit && matches!(self.steps[step].kind, InstrKind::Load { .. }) {
                return true;
            }
            needed.extend(self.args(step));
        }
        false
    }
}

/// Bytes of a row of one matrix that a thread holds, if few threads share the row and if many do. Fewer threads combine
/// sooner.
const HELD: usize = 64;
const HELD_OF_MANY: usize = 2 * HELD;
const MANY: usize = 256;
/// The most bytes that it holds of all matrices.
const MOST_HELD: usize = 256;
/// The most strips of a row that a thread has at a time.
const MOST_VISITS: usize = 8;
/// The fewest threads that share a row, if it has as many strips: a warp's load fetches whole sectors.
const LEAST_GROUP: usize = 4;
/// Columns whose lanes assemble a byte of a mask.
const BYTE: usize = 8;
/// Threads of a block.
const LEAST_THREADS: usize = 128;
const MOST_THREADS: usize = 1024;
/// The most rows of which one thread has parts at a time.
const MOST_TOGETHER: usize = 4;
/// Registers of a thread beside the row that it holds, roughly, and registers of a multiprocessor.
const BESIDE: usize = 44;
const REGISTERS: usize = 65_536;
/// The most threads of a multiprocessor.
const RESIDENT: usize = 2048;
/// The most batches of rows of a tile.
const MOST_BATCHES: usize = 1024;

/// A row as its kernel sees it: strips, and bytes of a strip.
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
        // Sums over M need registers of their own.
        (_, _) => [HELD / 2, HELD, HELD_OF_MANY],
    };
    let mut tiles: Vec<Tile> = order.into_iter().filter_map(|bytes| row.held(bytes)).collect();
    // If registers run out, the plan falls back to the next tile that holds less. With sums over M, each row that is
    // read again would leave a slice for every column, which takes longer than spills.
    if tiles.is_empty() || row.states() == 0 {
        tiles.push(row.again());
    }
    tiles.dedup();
    tiles
}

impl Row<'_> {
    /// Strips that a thread has at a time, if it holds this many bytes of a matrix.
    fn visits(&self, bytes: usize) -> usize {
        (bytes / self.widest).clamp(1, MOST_VISITS)
    }

    /// Threads that then share the row.
    fn group(&self, bytes: usize) -> usize {
        let least = LEAST_GROUP.max(BYTE / self.request.strip).min(self.strips.next_power_of_two());
        self.strips.div_ceil(self.visits(bytes)).next_power_of_two().max(least)
    }

    /// Words of the sums over M that a thread holds, for each of its columns.
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
        // Sums over M cost a tile less, the more rows it has: take as many rows as leave a tile for every block.
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
        // More than one span, because a single span would be held.
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
