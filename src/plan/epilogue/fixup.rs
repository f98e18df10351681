//! Fix-ups that blocks of threads share.
//!
//! A kernel of rows has a tile for every block that the GPU takes at a time, and each tile leaves a state for every column. One
//! block would read all of these slices through one multiprocessor, after the others are done. So the last blocks of the grid,
//! the *helpers*, wait for those that are still at work, for a limited time. When all have arrived, the last of them and the
//! helpers that still wait take pieces of the columns.
//!
//! - The last block to arrive waits for nobody, and takes every piece that no other takes. So a launch ends whether or not
//!   its blocks run at the same time.
//! - The block that takes a piece combines all slices of its columns, in their order. So results do not depend on which it is.

use super::reduce::{Extents, PlannedReduction, sets};
use crate::ir::axes::{Axes, L, N};
use crate::plan::{Program, Tile};
use crate::target::Gpu;

/// Slices of a block of the result, and bytes of all of them, from which on blocks share them. One block reads so many bytes in
/// about two microseconds, which is what blocks take to find each other.
const LEAST_SLICES: usize = 64;
const LEAST_BYTES: usize = 128 << 10;

/// Counters of a block of the result: arrivals, pieces that are taken, and units that will take no more.
pub(super) const COUNTERS: usize = 3;

/// Whether units share the fix-up of results that vary along some axes, in a kernel with so many helpers.
pub(crate) fn shares_fixup(axes: Axes, helpers: usize) -> bool {
    helpers > 0 && axes.without(L) == N
}

/// The units of each block of the result that wait to share its fix-up: one for each multiprocessor. None if it does not pay.
pub(in crate::plan) fn helpers(program: &Program, tile: &Tile, extents: &Extents, gpu: Gpu) -> usize {
    let reductions = &program.reductions;
    let pays = |axes: &Axes| {
        let slices = extents.slices(*axes);
        let has_slices = |reduction: &&PlannedReduction| reduction.operand.axes == *axes && !reduction.adds_as_they_arrive(tile);
        let states: usize = reductions.iter().filter(has_slices).map(PlannedReduction::state_bytes).sum();
        let bytes = slices.saturating_mul(extents.elements(*axes)).saturating_mul(states);
        slices * extents.blocks(N) >= LEAST_SLICES && bytes >= LEAST_BYTES
    };
    let shared = sets(reductions).into_iter().filter(|axes| shares_fixup(*axes, 1) && tile.rules().shares_fixups()).filter(pays);
    // Several blocks of the result have a unit each that is the last.
    let blocks = shared.map(|axes| extents.blocks(axes)).max();
    blocks.map(|blocks| gpu.multiprocessors / blocks.max(1)).filter(|helpers| *helpers > 1).unwrap_or_default()
}
