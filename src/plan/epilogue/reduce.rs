//! Reductions: from the elements of a strip to the result.
//!
//! ```text
//! thread   takes elements in as it visits them            registers
//! unit     combines what its threads came to              shared memory
//! slices   what each unit came to, beside the others'     workspace
//! result   written by the last unit of a block to arrive
//! ```
//!
//! A *unit* is the threads that share a part of a tile: a block, or a consumer warpgroup on Hopper. Units that differ
//! only along the axes that are reduced over share a *block* of the result, and each leaves a *slice* for it in the
//! workspace; the last one to arrive combines the slices in their order, so that the result does not depend on who it
//! was. The counters of arrivals wrap, so that what is zeroed once serves every launch. A unit without company writes its
//! block itself.
//!
//! On Hopper a result with a single element is a *total*: a consumer combines all of its tiles in shared memory, and
//! publishes once, when it has no further tile. Its slices are counted by consumer, not by tile.
//!
//! On Hopper, whose blocks of threads go through tiles in turns, a block of the result waits for one arrival more, which
//! a consumer without further tiles makes: else whoever is late would be the last again and again, and the later for it.

use crate::dtype::ValueType;
use crate::ir::axes::{Axes, L, M, N};
use crate::ir::{Monoid, Operand};
use crate::plan::{KernelPlan, Tile, TileShape};
use crate::problem::Shape;
use serde::Serialize;

/// One reduction.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PlannedReduction {
    /// Which argument.
    pub argument: usize,
    /// How the result lies in memory; what it does not vary along is reduced over.
    pub operand: Operand,
    /// The values of an element: one, the two factors of a product that is summed without being rounded, or as many as
    /// the monoid takes.
    pub terms: Vec<usize>,
    /// The type of what is reduced: of the first of its values.
    pub value: ValueType,
    /// What combines.
    pub monoid: Monoid,
    /// Whether units may be combined in any order.
    pub atomic: bool,
    /// Whether what the result's memory holds takes part: whoever writes an element takes it in before.
    pub accumulate: bool,
}

/// How the threads of a unit share its rows and columns. Lanes side by side cover a row, the other lanes of a warp further
/// rows, and so do warps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Unit {
    /// Rows of a unit; its columns are the tile's.
    pub rows: usize,
    /// Threads of a unit.
    pub threads: usize,
    /// Lanes that share a row.
    pub row_lanes: usize,
    /// Warps that share a row.
    pub row_sharers: usize,
}

/// Bytes of the count of tiles that blocks in step have begun. It is ahead of everything else, so that its address is 0
/// where there is no memory.
const PROGRESS_BYTES: usize = 256;

/// Bytes ahead of the parts, in which a unit notes what it takes part in and which blocks are complete.
pub(crate) const NOTE_BYTES: usize = 16;

/// Where the parts of a unit's threads lie in shared memory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Parts {
    /// Where each reduction's begin, behind the unit's own notes.
    pub at: Vec<usize>,
    /// Bytes of a unit, a multiple of 16.
    pub bytes: usize,
}

/// Memory of a plan in which units leave what they came to, and count who has: zero before the first launch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Workspace {
    /// Where each reduction's slices begin, then those of each sum of an operand.
    pub partials: Vec<usize>,
    /// Where the counters of each set of axes begin, then those of each sum of an operand.
    pub arrivals: Vec<usize>,
    /// Bytes of all of it; 0 where every unit writes its block itself and nobody counts tiles.
    pub bytes: usize,
}

impl PlannedReduction {
    /// Whether a tile's kernel adds slices up as they arrive. The other monoids have no such instruction for every type, nor
    /// is there one that takes an `f64` out of memory; they combine in a fixed order also where they need not.
    pub fn adds_as_they_arrive(&self, tile: &Tile) -> bool {
        self.atomic && !self.is_total(tile) && self.monoid.adds() && self.value != ValueType::F64
    }

    /// Whether a consumer combines its tiles itself and publishes once: see the module's page.
    pub(crate) fn is_total(&self, tile: &Tile) -> bool {
        matches!(tile.shape, TileShape::Sm90a { .. }) && self.operand.axes == Axes::NONE
    }

    /// Bytes of what some elements have come to.
    fn state_bytes(&self) -> usize {
        4 * self.monoid.words(self.value)
    }
}

/// The sets of axes that results vary along, each once: units arrive for all of a set together.
pub(crate) fn sets(reductions: &[PlannedReduction]) -> Vec<Axes> {
    let mut sets: Vec<Axes> = Vec::new();
    for reduction in reductions {
        if !sets.contains(&reduction.operand.axes) {
            sets.push(reduction.operand.axes);
        }
    }
    sets
}

impl Tile {
    /// The units of a tile that is visited in strips of `strip` columns.
    pub(crate) fn unit(&self, strip: usize) -> Unit {
        let strips = match self.shape {
            // Of eight consecutive columns a lane holds two.
            TileShape::Sm90a { .. } => return Unit { rows: self.consumer_rows(), threads: 128, row_lanes: 4, row_sharers: 1 },
            TileShape::Sm80 { warps_n, .. } => {
                let lanes = (self.bn / warps_n / strip).clamp(1, 32);
                return Unit { rows: self.bm, threads: self.threads, row_lanes: lanes, row_sharers: warps_n };
            }
            TileShape::Rows { group, .. } => group,
            _ => (self.bn / strip).max(1),
        };
        let row_lanes = strips.min(32);
        Unit { rows: self.bm, threads: self.threads, row_lanes, row_sharers: strips / row_lanes }
    }
}

impl Parts {
    /// Places the parts of a unit's threads.
    pub(in crate::plan) fn of(reductions: &[PlannedReduction], tile: &Tile, strip: usize) -> Parts {
        if reductions.is_empty() {
            return Parts::default();
        }
        let Unit { rows, threads, row_lanes, row_sharers } = tile.unit(strip);
        let column_sharers = (threads / 32 / row_sharers).max(1);
        let mut bytes = NOTE_BYTES;
        let at = reductions.iter().map(|reduction| {
            let axes = reduction.operand.axes;
            let parts = match (axes.contains(M), axes.contains(N)) {
                _ if reduction.is_total(tile) => threads,
                // An element of a matrix is one thread's.
                (true, true) => 0,
                (true, false) => row_sharers * rows,
                (false, true) => column_sharers * tile.bn,
                (false, false) => column_sharers * tile.bn.div_ceil(row_lanes * strip),
            };
            let at = bytes;
            bytes += (parts * reduction.state_bytes()).next_multiple_of(16);
            at
        });
        Parts { at: at.collect(), bytes }
    }
}

impl Workspace {
    /// The workspace of a plan's launches on a shape.
    pub(crate) fn of(plan: &KernelPlan, shape: Shape) -> Workspace {
        let blocks_launched = plan.grid(shape).map_or(usize::MAX, |[blocks, ..]| blocks as usize);
        let shape = plan.seen(shape);
        let reductions = &plan.program.reductions;
        let rows = plan.tile.unit(plan.strip).rows;
        let units = [(M, shape.m.div_ceil(rows), rows), (N, shape.n.div_ceil(plan.tile.bn), plan.tile.bn), (L, shape.batch, 1)];
        let product = |of: &dyn Fn(&(Axes, usize, usize)) -> usize| units.iter().map(of).fold(1usize, usize::saturating_mul);
        let blocks = |axes: Axes| product(&|(axis, count, _)| if axes.contains(*axis) { *count } else { 1 });
        let slices = |axes: Axes| match plan.tile.shape {
            // Each consumer of a launch publishes a total.
            TileShape::Sm90a { consumers, .. } if axes == Axes::NONE => blocks_launched.saturating_mul(consumers),
            _ => product(&|(axis, count, _)| if axes.contains(*axis) { 1 } else { *count }),
        };
        let elements = |axes: Axes| product(&|(axis, _, extent)| if axes.contains(*axis) { *extent } else { 1 });
        let mut end = if plan.lockstep { PROGRESS_BYTES } else { 0 };
        // A unit without company writes its block itself, but a total.
        let totals =
            |axes: Axes| reductions.iter().any(|reduction| reduction.operand.axes == axes && reduction.is_total(&plan.tile));
        let mut place = |axes: Axes, bytes: usize| {
            let at = end;
            if slices(axes) > 1 || totals(axes) {
                end = end.saturating_add(bytes.checked_next_multiple_of(256).unwrap_or(usize::MAX));
            }
            at
        };
        let arrivals: Vec<usize> = sets(reductions).into_iter().map(|axes| place(axes, blocks(axes).saturating_mul(4))).collect();
        let partials = reductions.iter().map(|reduction| {
            let axes = reduction.operand.axes;
            let slices = if reduction.adds_as_they_arrive(&plan.tile) { 1 } else { slices(axes) };
            let states = slices.saturating_mul(blocks(axes)).saturating_mul(elements(axes));
            place(axes, states.saturating_mul(reduction.state_bytes()))
        });
        let (mut partials, mut arrivals) = (partials.collect::<Vec<usize>>(), arrivals);
        for sum in &plan.program.sums {
            let [blocks, bytes] = sum.workspace(&plan.tile, shape).unwrap_or_default();
            for (list, bytes) in [(&mut arrivals, blocks.saturating_mul(4)), (&mut partials, bytes)] {
                list.push(end);
                end = end.saturating_add(bytes.checked_next_multiple_of(256).unwrap_or(usize::MAX));
            }
        }
        Workspace { partials, arrivals, bytes: end }
    }
}
