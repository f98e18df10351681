//! Reductions: from the elements of a strip to the result.
//!
//! ```text
//! thread   takes in elements as it visits them              registers
//! unit     combines the states of its threads               shared memory
//! slices   each unit's state, beside those of other units   workspace
//! result   written by the last unit of a block to arrive
//! ```
//!
//! A *unit* is the threads that share a part of a tile: a block, or a consumer warpgroup on Hopper. Units that differ
//! only along the reduced axes share a *block* of the result. Each unit leaves a *slice* of its own in the workspace.
//! The last unit to arrive combines the slices in their order, so the result does not depend on which unit was last.
//! The counters of arrivals wrap, so memory that is zeroed once serves every launch. A unit that shares its block with
//! no other writes the block itself.
//!
//! Where many units leave a slice for every column, the last ones to arrive share the fix-up: see `fixup`.
//!
//! On Hopper a result with a single element is a *total*: a consumer combines all of its tiles in shared memory, and
//! publishes once, when it has no further tile. Its slices are counted by consumer, not by tile. Beside results that are
//! published tile by tile it is published like them, since both would use the same notes in shared memory.
//!
//! On Hopper, blocks of threads go from tile to tile. There a block of the result waits for one more arrival, which
//! comes from a consumer without further tiles. Otherwise the slowest unit would always be the last to arrive, and
//! would have the fix-up to do as well.

use crate::dtype::ValueType;
use crate::ir::axes::{Axes, L, M, N};
use crate::ir::{Monoid, Operand};
use crate::plan::Tile;
use crate::problem::Shape;
use serde::Serialize;

/// One reduction.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PlannedReduction {
    /// Which argument.
    pub argument: usize,
    /// How the result lies in memory. Axes that it does not vary along are reduced over.
    pub operand: Operand,
    /// The values of an element: one, the two factors of a product that is summed without being rounded, or as many as
    /// the monoid takes.
    pub terms: Vec<usize>,
    /// The type of the reduced value: that of the first one.
    pub value: ValueType,
    /// The monoid that combines values.
    pub monoid: Monoid,
    /// Whether units may be combined in any order.
    pub atomic: bool,
    /// Whether the result is combined with the values already in memory. The unit that writes an element reads it
    /// first.
    pub accumulate: bool,
    /// Whether the program publishes nothing but results with a single element.
    pub only_totals: bool,
}

/// How the threads of a unit share its rows and columns. Consecutive lanes cover a row, the other lanes of a warp
/// further rows, and warps still further ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Unit {
    /// Rows of a unit, and columns: the tile's, or those of one of the blocks that share it.
    pub rows: usize,
    /// Its columns.
    pub columns: usize,
    /// Threads of a unit.
    pub threads: usize,
    /// Lanes that share a row.
    pub row_lanes: usize,
    /// Warps that share a row.
    pub row_sharers: usize,
}

/// Bytes ahead of the parts, in which a unit notes its blocks and which of them are complete.
pub(crate) const NOTE_BYTES: usize = 16;

/// The places of the parts of a unit's threads in shared memory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Parts {
    /// Where the parts of each reduction begin, behind the unit's notes.
    pub at: Vec<usize>,
    /// Bytes of a unit, a multiple of 16.
    pub bytes: usize,
}

/// One count: an entry of a table grows by 1 for every element.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PlannedCount {
    /// Which argument.
    pub argument: usize,
    /// The index of the entry.
    pub value: usize,
}

impl PlannedCount {
    /// Issue slots of one element: two comparisons, an address and an atomic addition.
    pub(in crate::plan) const COST: u32 = 6;
}

impl PlannedReduction {
    /// Whether a tile's kernel adds slices up as they arrive, in any order. Other monoids do not have an atomic instruction
    /// for every type, and `f64` does not have one either. They combine in a fixed order even if any order is allowed.
    pub fn adds_as_they_arrive(&self, tile: &Tile) -> bool {
        self.atomic && !self.is_total(tile) && self.monoid.adds() && self.value != ValueType::F64
    }

    /// Whether a consumer combines its tiles itself and publishes once: see the module's page.
    pub(crate) fn is_total(&self, tile: &Tile) -> bool {
        tile.rules().publishers(tile).is_some() && self.only_totals
    }

    /// Bytes of the state of a reduction.
    pub(super) fn state_bytes(&self) -> usize {
        4 * self.monoid.words(self.value)
    }
}

/// The distinct sets of axes that results vary along. Units arrive once for all results of a set.
pub(crate) fn sets(reductions: &[PlannedReduction]) -> Vec<Axes> {
    let mut sets: Vec<Axes> = Vec::new();
    for reduction in reductions {
        if !sets.contains(&reduction.operand.axes) {
            sets.push(reduction.operand.axes);
        }
    }
    sets
}

/// Whether no result varies along M: a block may combine what several tiles of its columns come to, and publish once.
pub(in crate::plan) fn span_rows(reductions: &[PlannedReduction]) -> bool {
    !reductions.iter().any(|reduction| reduction.operand.axes.contains(M))
}

/// The units of a problem along each axis, and how far one extends.
pub(in crate::plan) struct Extents([(Axes, usize, usize); 3]);

impl Extents {
    /// Those of a tile's units.
    pub fn of(tile: &Tile, strip: usize, shape: Shape) -> Extents {
        let Unit { rows, columns, .. } = tile.unit(strip);
        Extents([(M, shape.m.div_ceil(rows), rows), (N, shape.n.div_ceil(columns), columns), (L, shape.batch, 1)])
    }

    /// Blocks of a result that varies along some axes.
    pub fn blocks(&self, axes: Axes) -> usize {
        self.product(|(axis, count, _)| if axes.contains(axis) { count } else { 1 })
    }

    /// Units that share one of them.
    pub fn slices(&self, axes: Axes) -> usize {
        self.product(|(axis, count, _)| if axes.contains(axis) { 1 } else { count })
    }

    /// Elements of one of them.
    pub fn elements(&self, axes: Axes) -> usize {
        self.product(|(axis, _, extent)| if axes.contains(axis) { extent } else { 1 })
    }

    fn product(&self, of: impl Fn((Axes, usize, usize)) -> usize) -> usize {
        self.0.into_iter().map(of).fold(1, usize::saturating_mul)
    }
}

impl Unit {
    /// The block, if so many strips are side by side in a row, or so many threads share one.
    pub(in crate::plan) fn of_strips(tile: &Tile, strips: usize) -> Unit {
        let row_lanes = strips.min(32);
        Unit { rows: tile.bm, columns: tile.bn, threads: tile.threads, row_lanes, row_sharers: strips / row_lanes }
    }

    /// The block, if so many warps share a row.
    pub(in crate::plan) fn of_warps(tile: &Tile, warps_n: usize, strip: usize) -> Unit {
        let row_lanes = (tile.bn / warps_n / strip).clamp(1, 32);
        Unit { rows: tile.bm, columns: tile.bn, threads: tile.threads, row_lanes, row_sharers: warps_n }
    }
}

impl Parts {
    /// Places the parts of a unit's threads.
    pub(in crate::plan) fn of(reductions: &[PlannedReduction], tile: &Tile, strip: usize) -> Parts {
        if reductions.is_empty() {
            return Parts::default();
        }
        let Unit { rows, columns, threads, row_lanes, row_sharers } = tile.unit(strip);
        let column_sharers = (threads / 32 / row_sharers).max(1);
        let mut bytes = NOTE_BYTES;
        let at = reductions.iter().map(|reduction| {
            let axes = reduction.operand.axes;
            let parts = match (axes.contains(M), axes.contains(N)) {
                _ if reduction.is_total(tile) => threads,
                // One thread owns an element of a matrix.
                (true, true) => 0,
                (true, false) => row_sharers * rows,
                (false, true) => column_sharers * columns,
                (false, false) => column_sharers * columns.div_ceil(row_lanes * strip),
            };
            let at = bytes;
            bytes += (parts * reduction.state_bytes()).next_multiple_of(16);
            at
        });
        Parts { at: at.collect(), bytes }
    }
}
