//! Sums of an operand's elements over K, beside the product, which reads them anyway.
//!
//! All tiles in a column of tiles read the same lines of B. The first of them, at most [`MOST_PARTS`], take part in their sums: of
//! so many blocks of K each sums one, so that none of them is long behind the others. What such a tile comes to is a
//! *slice* in the workspace, and the last to arrive adds the slices up in their order; a tile that takes part alone writes the result
//! itself. Of A the same holds for the tiles in a row.

use crate::dtype::ValueType;
use crate::ir::axes::L;
use crate::ir::{Operand, Side};
use crate::plan::Tile;
use crate::problem::Shape;
use serde::Serialize;

/// The sum of an operand's elements over K.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct OperandSum {
    /// Which argument.
    pub argument: usize,
    /// How the result lies in memory; what of the batch it does not vary along is summed over.
    pub operand: Operand,
    /// Whose elements, as the kernel sees it.
    pub side: Side,
    /// The type of the sum.
    pub value: ValueType,
    /// Whether what the result's memory holds takes part.
    pub accumulate: bool,
}

/// The most tiles that share the terms of a sum. Few enough for one warp to add their slices up, and enough for one of so many blocks
/// of K to be summed while the others are multiplied.
pub(crate) const MOST_PARTS: usize = 16;

impl OperandSum {
    /// Lines of the operand in a tile.
    pub(crate) fn extent(&self, tile: &Tile) -> usize {
        extent(self.side, tile)
    }

    /// Blocks of the result, each with a counter of who has arrived, and bytes of the slices of all of them; none of either where a
    /// tile takes part alone in every problem of this shape, as the kernel sees it.
    pub(in crate::plan) fn workspace(&self, tile: &Tile, shape: Shape) -> Option<[usize; 2]> {
        let [along, across] = match self.side {
            Side::A => [shape.m.div_ceil(tile.bm), shape.n.div_ceil(tile.bn)],
            Side::B => [shape.n.div_ceil(tile.bn), shape.m.div_ceil(tile.bm)],
        };
        let batched = self.operand.axes.contains(L);
        let blocks = along.saturating_mul(if batched { shape.batch } else { 1 });
        let slices = across.min(MOST_PARTS).saturating_mul(if batched { 1 } else { shape.batch });
        let bytes = slices.saturating_mul(blocks).saturating_mul(self.extent(tile)).saturating_mul(4);
        (slices > 1).then_some([blocks, bytes])
    }
}

fn extent(side: Side, tile: &Tile) -> usize {
    match side {
        Side::A => tile.bm,
        Side::B => tile.bn,
    }
}

/// Lines that a tile sums of A and of B: all of its own, or none.
pub(crate) fn lines(sums: &[OperandSum], tile: &Tile) -> [usize; 2] {
    Side::ALL.map(|side| if sums.iter().any(|sum| sum.side == side) { extent(side, tile) } else { 0 })
}
