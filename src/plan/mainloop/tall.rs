//! Tall tiles of `pointwise`: where much is done once for each column of a tile, a block goes far down its columns.
//!
//! Sums down the columns leave a slice of each tile in memory, and the last block reads them all. With a tile for 16 rows it
//! would read millions of them by itself. So there are as many tiles as the multiprocessors take at a time, or a few times that.
//! The same holds where values of columns are long to compute, such as the root of each column's variance.

use super::tile::Tile;
use crate::ir::Order;
use crate::ir::axes::M;
use crate::plan::request::TileRequest;
use crate::plan::{InstrKind, Phase};
use crate::problem::Operation;

/// Rows of the shortest tall tile.
pub(super) const LEAST_ROWS: usize = 64;
/// Elements of a thread whose loads are in flight together.
const IN_FLIGHT: usize = 32;
/// Threads of a block, and strips of its rows: whole lines of memory, if a row has as many.
const THREADS: [usize; 2] = [128, 256];
const STRIPS: [usize; 3] = [16, 8, 32];
const FEW_STRIPS: [usize; 2] = [4, 2];
/// Registers of a thread beside what it holds, and registers of a multiprocessor. A kernel that gets fewer blocks than its tiles
/// are made for would need another turn. Many small blocks hide how others begin and end.
const BESIDE: usize = 40;
const REGISTERS: usize = 65_536;
/// The most threads of a multiprocessor.
const RESIDENT: usize = 2048;
/// What a slice costs a block of 128 threads that reads it, as rows of a tile.
const SLICE: usize = 8;
/// Issue slots of a column from which on its values are computed for many rows, and those of a vector that is loaded.
const DEAR: u32 = 16;
const LOAD: u32 = 4;
/// The most tiles of one column of them.
const MOST_TILES: usize = 4096;

/// The tall tile of a problem, if it wants one: that of the least estimate.
pub(super) fn tile(request: &TileRequest<'_>) -> Option<Tile> {
    let TileRequest { shape, strip, .. } = *request;
    let Operation::Pointwise { order: Order::RowMajor, .. } = request.operation else { return None };
    let reductions = &request.program.reductions;
    let sums = !reductions.is_empty() && reductions.iter().all(|reduction| !reduction.operand.axes.contains(M));
    let is_dear = reductions.is_empty() && request.program.cost_of_columns(LOAD) >= DEAR;
    if !(sums || is_dear) || request.parts > 1 || strip < 4 || request.has_turned_matrices() || shape.m < LEAST_ROWS {
        return None;
    }
    let lines = STRIPS.iter().filter(|strips| **strips * strip <= shape.n);
    let few = FEW_STRIPS.iter().filter(|_| shape.n < STRIPS[1] * strip);
    let widths = lines.chain(few).map(|strips| (strips * strip).max(8));
    let all = widths.flat_map(|bn| THREADS.map(|threads| best(request, bn, threads, sums)));
    all.min_by_key(|(time, _)| *time).map(|(_, tile)| tile)
}

/// The most rows whose loads a thread has in flight together, in strips of so many columns.
pub(super) fn together(strip: usize) -> usize {
    if strip >= 4 { IN_FLIGHT / strip } else { 8 }
}

/// The estimate and the tile of so many columns and threads.
fn best(request: &TileRequest<'_>, bn: usize, threads: usize, sums: bool) -> (usize, Tile) {
    let TileRequest { shape, strip, gpu, .. } = *request;
    let resident = (REGISTERS / (registers(request) * threads)).clamp(1, RESIDENT / threads);
    let pass = threads * strip / bn * together(strip);
    let (columns, slots) = (shape.n.div_ceil(bn) * shape.batch.max(1), gpu.multiprocessors * resident);
    let of = |tiles: usize| {
        let rows = shape.m.div_ceil(tiles).next_multiple_of(pass);
        let tiles = shape.m.div_ceil(rows);
        let turns = columns.saturating_mul(tiles).div_ceil(slots);
        let slices = if sums { tiles * SLICE * 128 / threads } else { 0 };
        ((turns.saturating_mul(rows + 2 * pass) + slices).saturating_mul(resident * bn), rows)
    };
    let most = shape.m.div_ceil(pass).clamp(1, MOST_TILES);
    let (time, bm) = (1..=most).map(of).min().unwrap_or((usize::MAX, pass));
    (time, Tile { min_blocks: resident, ..Tile::pointwise(bm, bn, threads) })
}

/// Registers of a thread, roughly: loads in flight, values of columns, and states of sums.
fn registers(request: &TileRequest<'_>) -> usize {
    let TileRequest { program, strip, operation, .. } = *request;
    let matrices = program.steps.iter().filter_map(|step| match step.kind {
        InstrKind::Accumulator => Some(operation.dtype().size()),
        InstrKind::Load { operand, .. } if operand.axes.is_matrix() => Some(operand.dtype.size()),
        _ => None,
    });
    let visited =
        |step: &usize| (0..program.steps.len()).any(|s| program.steps[s].phase == Phase::Visit && program.args(s).contains(step));
    let columns = program.of_phase(Phase::Column).filter(visited).count();
    let states: usize = program.reductions.iter().map(|reduction| reduction.monoid.words(reduction.value)).sum();
    BESIDE + matrices.sum::<usize>() * IN_FLIGHT / 4 + strip * (columns + states)
}
