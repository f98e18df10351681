//! `pointwise`: no product. The accumulator is a matrix in memory, a sum of several, or a pool
//! (`templates/mainloop/pointwise.cuh`).

use super::candidates::{self, Candidate, candidate};
use super::pool;
use super::rules::{Asked, Number, Rules, Tried, first_broken, visits, visits_whole_rows};
use super::tall;
use super::tile::{Tile, TileShape};
use crate::plan::code::{Copied, Copies, Price, Priced};
use crate::plan::request::TileRequest;
use crate::problem::Operation;

/// Its rules.
pub(super) struct Pointwise;

impl Tile {
    pub(in crate::plan) const fn pointwise(bm: usize, bn: usize, threads: usize) -> Tile {
        Tile { bm, bn, shape: TileShape::Pointwise, threads, min_blocks: 1 }
    }
}

impl Rules for Pointwise {
    fn why_not(&self, asked: &Asked<'_>) -> Option<String> {
        asked.operation.layout().map(|_| "the operation is a product".into())
    }

    fn candidates(&self, request: &TileRequest<'_>) -> Vec<Tried> {
        let shares = pool::shares_taps(request.operation);
        let list: &[Candidate] = match () {
            () if request.parts > 1 => &SUMS,
            () if shares && request.program.reductions.is_empty() => &SHARED,
            // A sum leaves a slice of each tile, so it wants tiles of many rows.
            () if shares || request.wants_narrow_tiles() => &NARROW,
            () => &POINTWISE,
        };
        let mut tried = candidates::tried(list, request);
        if let Some(tile) = tall::tile(request) {
            // A block that goes far down its columns does once what others do again and again. The list knows nothing of that, so
            // it comes behind.
            tried.sort_by(|a, b| a.time.unwrap_or(f64::INFINITY).total_cmp(&b.time.unwrap_or(f64::INFINITY)));
            tried.insert(0, Tried { tile, obstacle: None, time: None });
            (1u8..).zip(&mut tried).for_each(|(rank, tried)| tried.time = Some(f64::from(rank)));
        }
        tried
    }

    fn broken_rule(&self, tile: &Tile, operation: Operation, _: [usize; 2], strip: usize) -> Option<&'static str> {
        let Tile { bm, bn, threads, .. } = *tile;
        let at_once = threads / (bn / strip.max(1)).max(1);
        // Threads without a row share the taps of others.
        let rows = if pool::shares_taps(operation) && bm.is_power_of_two() { bm.max(at_once) } else { bm };
        let visits = rows / at_once.max(1);
        first_broken(&[
            (
                bn >= 8 && strip <= bn && [bn, threads].iter().all(|x| x.is_power_of_two()),
                "columns and threads are powers of two, strips divide the columns, and eight columns share a byte of a mask",
            ),
            (visits_whole_rows(tile, strip, rows), "threads visit whole rows"),
            (visits.is_power_of_two() || visits.is_multiple_of(tall::together(strip)), "a thread's rows are whole passes"),
        ])
    }

    /// Blocks side by side read lines of memory side by side.
    fn raster(&self, tile: &Tile, _: &TileRequest<'_>) -> Option<i32> {
        (tile.bm >= tall::LEAST_ROWS).then_some(1)
    }

    fn numbers(&self, tile: &Tile) -> Vec<usize> {
        vec![tile.bn]
    }

    fn constants(&self, _: &Tile, _: bool) -> Vec<Number> {
        Vec::new()
    }

    fn words(&self, _: &Tile) -> String {
        String::new()
    }

    /// Windows of a pool are read one after the other.
    fn copies(&self, of: &Copied<'_>) -> Copies {
        let Copied { tile, strip, operation, .. } = *of;
        let most = if operation.pooling().is_some() { 1 } else { (32 / strip).min(8) };
        Copies::of_visits(strip, visits(tile, strip, tile.bm).min(most))
    }

    /// Tall tiles have the code of the epilogue twice, with and without edges. A sum of matrices loads some side by side.
    fn price(&self, of: &Priced<'_>) -> Price {
        let Copied { tile, strip, operation, .. } = of.copied;
        let of_pool = if operation.pooling().is_some() { 81.8 } else { 0.0 };
        let of_sum = if of.parts > 1 { 2.2 * (strip * of.parts.min(8)) as f64 } else { 0.0 };
        let [thousand, store, reduction] = if tile.bm >= 64 { [268.0, 41.5, 171.0] } else { [134.0, 29.7, 147.0] };
        Price { kernel: 91.0 + of_pool + of_sum, thousand, load: 34.0, store, reduction, sum: 0.0 }
    }

    fn shares_operands(&self) -> bool {
        false
    }
}

/// Tiles of pointwise operations. These are bound by memory, so a tile costs its area. Smaller tiles are for problems
/// that do not fill the device, and for single-column strips, which need a thread for every column.
static POINTWISE: [Candidate; 3] = [
    candidate(Tile::pointwise(16, 256, 128), 4.0, 4.0, 1.0),
    candidate(Tile::pointwise(8, 256, 128), 2.1, 2.1, 1.0),
    candidate(Tile::pointwise(16, 128, 128), 2.1, 2.1, 1.0),
];

/// The same for outputs of up to 64 columns, of which wider tiles would leave threads without work.
static NARROW: [Candidate; 4] = [
    candidate(Tile::pointwise(32, 64, 128), 2.1, 2.1, 1.0),
    candidate(Tile::pointwise(16, 64, 128), 1.1, 1.1, 1.0),
    candidate(Tile::pointwise(64, 32, 128), 2.1, 2.1, 1.0),
    candidate(Tile::pointwise(32, 32, 128), 1.1, 1.1, 1.0),
];

/// The same for pools of large windows. Threads that have no row of the tile share the taps of the others'.
static SHARED: [Candidate; 5] = [
    candidate(Tile::pointwise(1, 64, 128), 0.3, 0.3, 1.0),
    candidate(Tile::pointwise(2, 64, 128), 0.55, 0.55, 1.0),
    candidate(Tile::pointwise(4, 64, 128), 1.0, 1.0, 1.0),
    candidate(Tile::pointwise(4, 32, 128), 0.8, 0.8, 1.0),
    candidate(Tile::pointwise(16, 64, 128), 6.0, 6.0, 1.0),
];

/// The same for sums of several matrices. A thread reads these one by one, so the tiles have more blocks with fewer
/// threads.
static SUMS: [Candidate; 4] = [
    candidate(Tile::pointwise(16, 256, 128), 4.0, 4.0, 1.0),
    candidate(Tile::pointwise(8, 256, 128), 2.0, 2.0, 1.0),
    candidate(Tile::pointwise(8, 128, 128), 1.1, 1.1, 1.0),
    candidate(Tile::pointwise(4, 128, 64), 0.6, 0.6, 1.0),
];
