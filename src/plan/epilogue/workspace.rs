//! The workspace: device memory in which units leave partial results.

use super::fixup::{COUNTERS, shares_fixup};
use super::reduce::{Extents, sets};
use crate::ir::axes::Axes;
use crate::plan::{Program, Tile};
use crate::problem::Shape;
use serde::Serialize;

/// Bytes of the count of tiles that blocks in lockstep have begun. The count is ahead of everything else, so its
/// address is 0 where there is no memory.
const PROGRESS_BYTES: usize = 256;

/// What a workspace depends on, as the kernel sees it.
pub(in crate::plan) struct Publishing<'p> {
    pub program: &'p Program,
    pub tile: &'p Tile,
    pub strip: usize,
    pub shape: Shape,
    /// Blocks of the first dimension of the grid.
    pub blocks: usize,
    /// Whether blocks count the tiles that they have begun.
    pub lockstep: bool,
    /// Bytes of counters and sums, if blocks share K.
    pub shared_sums: Option<[usize; 2]>,
    /// Units that wait to share a fix-up.
    pub helpers: usize,
}

/// Device memory of a plan, in which units leave partial results and count arrivals. It is zero before the first
/// launch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Workspace {
    /// Where the slices of each reduction begin, then those of each sum of an operand, then the sums of blocks that share K.
    pub partials: Vec<usize>,
    /// Where the counters of each set of axes begin, then those of each sum of an operand, then those of blocks that share K.
    pub arrivals: Vec<usize>,
    /// Bytes of all of it; 0 if every unit writes its block itself, and blocks neither are in lockstep nor share K.
    pub bytes: usize,
}

impl Workspace {
    /// The workspace of launches.
    pub(in crate::plan) fn of(of: &Publishing<'_>) -> Workspace {
        let &Publishing { program, tile, strip, shape, blocks: blocks_launched, lockstep, shared_sums, helpers } = of;
        let (reductions, extents) = (&program.reductions, Extents::of(tile, strip, shape));
        let totals = |axes: Axes| reductions.iter().any(|reduction| reduction.operand.axes == axes && reduction.is_total(tile));
        let slices = |axes: Axes| match tile.rules().publishers(tile) {
            // Each consumer of a launch publishes a total.
            Some(consumers) if totals(axes) => blocks_launched.saturating_mul(consumers),
            _ => extents.slices(axes),
        };
        let mut end = if lockstep { PROGRESS_BYTES } else { 0 };
        // A unit without company writes its block itself, but a total.
        let mut place = |axes: Axes, bytes: usize| {
            let at = end;
            if slices(axes) > 1 || totals(axes) {
                end = end.saturating_add(bytes.checked_next_multiple_of(256).unwrap_or(usize::MAX));
            }
            at
        };
        let counters =
            |axes: Axes| extents.blocks(axes).saturating_mul(if shares_fixup(axes, helpers) { 4 * COUNTERS } else { 4 });
        let arrivals: Vec<usize> = sets(reductions).into_iter().map(|axes| place(axes, counters(axes))).collect();
        let partials = reductions.iter().map(|reduction| {
            let axes = reduction.operand.axes;
            let slices = if reduction.adds_as_they_arrive(tile) { 1 } else { slices(axes) };
            let states = slices.saturating_mul(extents.blocks(axes)).saturating_mul(extents.elements(axes));
            place(axes, states.saturating_mul(reduction.state_bytes()))
        });
        let (mut partials, mut arrivals) = (partials.collect::<Vec<usize>>(), arrivals);
        let sums = program.sums.iter().map(|sum| {
            let [blocks, bytes] = sum.workspace(tile, shape).unwrap_or_default();
            [blocks.saturating_mul(4), bytes]
        });
        for [counters, bytes] in sums.chain(shared_sums) {
            for (list, bytes) in [(&mut arrivals, counters), (&mut partials, bytes)] {
                list.push(end);
                end = end.saturating_add(bytes.checked_next_multiple_of(256).unwrap_or(usize::MAX));
            }
        }
        Workspace { partials, arrivals, bytes: end }
    }
}
