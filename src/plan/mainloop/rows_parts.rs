//! The parts of a row that threads of `rows` have, and what sums over M ask of a tile: room for them, and for the next rows on
//! their way.
//!
//! With sums over M blocks stay, and take one batch of rows after the other. So a thread can copy its part of the next batches to
//! shared memory while it reduces one, without registers (docs/measurements/0087-rows-on-their-way.md).

use super::tile::Tile;
use crate::ir::Order;
use crate::ir::axes::{Axes, L, M};
use crate::plan::epilogue::reduce::Parts;
use crate::plan::request::TileRequest;
use crate::plan::{InstrKind, Program};
use crate::problem::Operation;

/// Registers of a thread beside the row that it holds, roughly, and registers of a multiprocessor.
pub(super) const BESIDE: usize = 44;
pub(super) const REGISTERS: usize = 65_536;
/// The most batches of rows that are on their way.
const MOST_COPIES: usize = 2;
/// Bytes of shared memory that a block takes for itself.
const OF_BLOCK: usize = 1 << 10;

/// The most strips of a row that a thread has at a time.
const MOST_VISITS: usize = 8;
/// The fewest threads that share a row, if it has as many strips: a warp's load fetches whole sectors.
const LEAST_GROUP: usize = 4;
/// Columns whose lanes assemble a byte of a mask.
pub(super) const BYTE: usize = 8;

/// A row as its kernel sees it: strips, and bytes of a strip.
pub(super) struct Row<'r> {
    pub(super) request: &'r TileRequest<'r>,
    pub(super) strips: usize,
    /// Bytes of all matrices that are read, and of the widest one.
    pub(super) bytes: usize,
    pub(super) widest: usize,
}

impl Row<'_> {
    /// Strips that a thread has at a time, if it holds this many bytes of a matrix.
    pub(super) fn visits(&self, bytes: usize) -> usize {
        (bytes / self.widest).clamp(1, MOST_VISITS)
    }

    /// Threads that then share the row. A byte of a mask is one row's.
    pub(super) fn group(&self, bytes: usize) -> usize {
        let TileRequest { program, operation, strip, .. } = *self.request;
        let of_byte = if has_masks(program, operation) { BYTE / strip } else { 1 };
        let least = LEAST_GROUP.max(BYTE / strip).min(self.strips.next_power_of_two()).max(of_byte);
        let group = self.strips.div_ceil(self.visits(bytes)).next_power_of_two().max(least);
        if self.request.program.band.is_some() { self.dividing(group) } else { group }
    }

    /// The most threads, at most so many, that share a band's strips equally.
    pub(super) fn dividing(&self, most: usize) -> usize {
        most.min(1 << self.strips.trailing_zeros())
    }

    /// Columns of so many strips of so many threads: whole bytes of a mask, unless bands end elsewhere.
    pub(super) fn span(&self, group: usize, visits: usize) -> usize {
        let strip = self.request.strip;
        let whole = if self.request.program.band.is_some() { 1 } else { BYTE.max(group * strip) };
        (group * visits * strip).next_multiple_of(whole)
    }
}

/// Words of the sums over M of a column.
pub(super) fn states(program: &Program) -> usize {
    let down = program.reductions.iter().filter(|reduce| !reduce.operand.axes.contains(M));
    down.map(|reduce| reduce.monoid.words(reduce.value)).sum()
}

/// Whether all that is reduced behind what rows come to goes over M: blocks that share a row have columns of their own.
pub(super) fn reduces_down(program: &Program) -> bool {
    let reductions = &program.reductions;
    !reductions.is_empty() && reductions.iter().all(|reduce| !reduce.operand.axes.contains(M))
}

/// Whether sums over M lie in shared memory: registers have no room for those of so many columns beside the rows that they hold,
/// and each column is one thread's.
pub(super) fn keeps_sums(program: &Program, [group, threads]: [usize; 2], columns: usize, held: usize) -> bool {
    let of_lines = program.reductions.iter().all(|reduce| reduce.operand.axes.without(L) != Axes::NONE);
    let states = states(program);
    states > 0 && of_lines && group == threads && (BESIDE + held + columns * states) * threads > REGISTERS
}

/// Whether any matrix has elements of one bit.
pub(super) fn has_masks(program: &Program, operation: Operation) -> bool {
    let loaded =
        program.steps.iter().any(|step| matches!(step.kind, InstrKind::Load { operand, .. } if operand.dtype.is_packed()));
    loaded || operation.dtype().is_packed() || program.stores.iter().any(|store| store.operand.dtype.is_packed())
}

/// Bytes of an element of each matrix that is read.
pub(super) fn held(program: &Program, accumulator: usize) -> Vec<usize> {
    let bytes = |kind: &InstrKind| match kind {
        InstrKind::Accumulator => Some(accumulator),
        InstrKind::Load { operand, .. } if operand.axes.contains(Axes::MN) => Some(operand.dtype.size()),
        _ => None,
    };
    program.steps.iter().filter_map(|step| bytes(&step.kind)).collect()
}

/// Bytes of an element of all matrices that are read, if they can be copied: not where the target has no `cp.async`, or strips
/// do not lie in memory as a thread reads them.
fn copied(request: &TileRequest<'_>) -> Option<usize> {
    let TileRequest { program, operation, strip, target, .. } = *request;
    let along = matches!(operation, Operation::Pointwise { order: Order::RowMajor, .. });
    let bytes = held(program, operation.dtype().size());
    let whole = |bytes: &usize| (bytes * strip).is_multiple_of(16);
    let reads = |what: fn(&InstrKind) -> bool| program.steps.iter().any(|step| what(&step.kind));
    let is_packed = operation.dtype().is_packed()
        || reads(|kind| matches!(kind, InstrKind::Load { operand, .. } if operand.dtype.is_packed()));
    let is_copied = target.has_cp_async_and_mma16()
        && along
        && reads(|kind| matches!(kind, InstrKind::Accumulator))
        && !is_packed
        && request.parts == 1
        && !request.has_turned_matrices()
        && bytes.iter().all(whole);
    is_copied.then(|| bytes.iter().sum())
}

/// Whether a tile with so many bytes of an element on their way suits a problem.
pub(super) fn can_copy(request: &TileRequest<'_>, bytes: usize) -> bool {
    states(request.program) > 0 && copied(request) == Some(bytes)
}

/// Batches of rows on their way to shared memory beside a tile that holds one of so many elements, and bytes of an element. The
/// tile takes so many bytes for the states of rows.
pub(super) fn copies(request: &TileRequest<'_>, tile: &Tile, places: usize, elements: usize) -> [usize; 2] {
    let (Some(bytes), &TileRequest { program, strip, target, .. }) = (copied(request), request) else { return [0; 2] };
    let taken = places + Parts::of(&program.reductions, tile, strip).bytes + OF_BLOCK;
    let room = (target.shared_memory_per_block_opt_in() as usize + OF_BLOCK) / tile.min_blocks;
    match (room.saturating_sub(taken) / (elements * bytes)).min(MOST_COPIES) {
        0 => [0; 2],
        depth => [depth, bytes],
    }
}
