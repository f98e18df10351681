//! Sums of an operand's elements over K, beside the product, which reads the elements anyway.
//!
//! All tiles in a column of tiles read the same lines of B. The first of these tiles, at most [`MOST_PARTS`], share the
//! work: each sums one of every so many blocks of K, so none of them falls far behind the others. Each leaves its
//! partial sums as a *slice* in the workspace. The last tile to arrive adds up the slices in their order. A tile
//! without partners writes the result itself. The tiles in a row share the sums of A in the same way.

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
    /// How the result lies in memory. If it does not vary along L, the batch is summed, too.
    pub operand: Operand,
    /// The operand whose elements are summed, as the kernel sees it.
    pub side: Side,
    /// The type of the sum.
    pub value: ValueType,
    /// Whether the sum is added to the values already in memory.
    pub accumulate: bool,
}

/// The most tiles that share a sum. One warp can still add up this many slices, and each tile sums few enough blocks of
/// K that the other multiplications hide it.
pub(crate) const MOST_PARTS: usize = 16;

impl OperandSum {
    /// Lines of the operand in a tile.
    pub(crate) fn extent(&self, tile: &Tile) -> usize {
        extent(self.side, tile)
    }

    /// The number of blocks of the result, each with a counter of arrivals, and the bytes of all their slices. `None`
    /// if every tile works alone in every problem of this shape, as the kernel sees it.
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

/// Lines of A and of B that a tile sums: all of its own, or none.
pub(crate) fn lines(sums: &[OperandSum], tile: &Tile) -> [usize; 2] {
    Side::ALL.map(|side| if sums.iter().any(|sum| sum.side == side) { extent(side, tile) } else { 0 })
}
