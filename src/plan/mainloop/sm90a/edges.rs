//! Shifted edge tiles: the last tiles end where the output does.
//!
//! A last tile that would reach beyond the output begins earlier instead, and computes some elements of the tile before
//! it again. That costs no extra work, because a tile takes the same time wherever it lies. Both tiles write the same
//! bits. Tiles that lie mostly outside of the output measured slower than whole ones: shifting makes 4096 x 4104 x 4096
//! 6 % faster (`docs/measurements/0024-shifted-edges.md`).

use crate::check::{Argument, Role};
use crate::plan::{KernelPlan, Program};
use crate::problem::Shape;

/// Bytes of the widest access. In every matrix, a tile's first row and column are multiples of it.
const WIDEST: usize = 16;

/// Whether elements may be computed twice. They may if nothing adds them up, nothing has overwritten their inputs, and
/// no byte holds elements of several tiles. The borrow checker makes sure that no other argument overwrites an input.
/// A total takes them from any tile, and a largest one is the same if an element comes twice.
pub(in crate::plan) fn allows(program: &Program, arguments: &[Argument]) -> bool {
    let mut matrices = arguments.iter().filter_map(|argument| argument.role.operand()).filter(|operand| operand.axes.is_matrix());
    program.counts.is_empty()
        && program.sums.is_empty()
        && program.reductions.iter().all(|reduce| reduce.only_totals && reduce.monoid.is_idempotent())
        && !arguments.iter().any(|argument| matches!(argument.role, Role::Update(_)))
        && !matrices.any(|operand| operand.dtype.is_packed())
}

impl KernelPlan {
    /// Where the last tiles begin if edge tiles are [shifted](KernelPlan::shifted_edges): a row and a column, as the
    /// kernel sees them. A tile there ends where the output does, or as little beyond as alignment requires. Blocks
    /// that share K are one tile.
    pub fn edge_tiles(&self, shape: Shape) -> [usize; 2] {
        self.edges_within(self.seen(shape))
    }

    /// Whether no tile reaches beyond the output, on the extents that the plan was made for. Then reductions take all elements of
    /// a tile, without a comparison for each.
    pub(crate) fn tiles_lie_inside(&self) -> bool {
        let Shape { m, n, .. } = self.extents;
        let plain = self.staging.is_some() && self.operation.patches().is_none() && self.operation.extents().is_none();
        let [row, column] = self.edges_within(self.extents);
        // Each block of a cluster has a tile, even beyond the output.
        let [rows, columns] = self.tile.rules().rastered(&self.tile);
        plain
            && if self.shifted_edges {
                row.saturating_add(self.tile.bm) <= m && column.saturating_add(self.tile.multiplied_columns()) <= n
            } else {
                m.is_multiple_of(rows) && n.is_multiple_of(columns)
            }
    }

    fn edges_within(&self, Shape { m, n, .. }: Shape) -> [usize; 2] {
        let operands = self.arguments.iter().filter_map(|argument| argument.role.operand());
        let matrices = operands.filter(|operand| operand.axes.is_matrix()).map(|operand| operand.dtype.size());
        let narrowest = matrices.fold(self.operation.multiplied().size(), usize::min);
        let aligned = |at: usize| at.checked_next_multiple_of(WIDEST / narrowest).unwrap_or(usize::MAX);
        let last = |extent: usize, tile: usize| aligned(extent.saturating_sub(tile));
        [last(m, self.tile.bm), last(n, self.tile.multiplied_columns())]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::{Epilogue, recipes};
    use crate::dtype::DType::{Bits8, Bool, F16, F32};
    use crate::gemm::Gemm;
    use crate::ir::{Monoid, axes::N};
    use crate::plan::Tile;
    use crate::problem::Layout::TN;
    use crate::target::Target;

    fn plan(epilogue: &Epilogue, tile: Tile, shape: Shape) -> KernelPlan {
        Gemm::new(F16, TN, epilogue).tile(tile).kernel_plan(Target::SM_90A, 132, shape).unwrap()
    }

    #[test]
    fn the_last_tiles_end_where_the_output_does() {
        let identity = recipes::identity(F16).unwrap();
        let wide = Epilogue::build(|e| e.store("d", e.acc(), F32)).unwrap();
        let signs = Epilogue::build(|e| e.store("d", e.acc().gt(0.0), Bool)).unwrap();
        let tile = Tile::ping_pong(128, 128, 4);
        let of = |epilogue: &Epilogue, m, n| {
            let shape = Shape::new(m, n, 512);
            let plan = plan(epilogue, tile, shape);
            assert!(plan.shifted_edges && plan.explain().contains("shifted: the last") && !plan.transposed, "{}", plan.explain());
            plan.edge_tiles(shape)
        };
        assert_eq!(of(&identity, 4096, 4104), [3968, 3976], "whole tiles begin where they always do");
        assert_eq!(of(&identity, 4095, 4097), [3968, 3976], "to eight elements of 16 bits");
        assert_eq!(of(&signs, 4104, 4104), [3984, 3984], "to sixteen of a byte");
        assert_eq!(of(&wide, 4104, 4092), [3976, 3968], "the operands are narrower than the output");
        assert_eq!(of(&identity, 200, 136), [72, 8]);
        assert_eq!(of(&identity, 129, 128), [8, 0]);
        let beyond = plan(&identity, tile, Shape::new(128, 128, 128)).edge_tiles(Shape::new(usize::MAX, 0, 1));
        assert!(beyond[0] >= usize::MAX - 128 && beyond[1] == 0, "an extent that nothing can be planned for is no panic");
    }

    #[test]
    fn a_largest_element_may_be_computed_twice_and_a_total_may_not() {
        let of = |monoid, tile, m, n| {
            let epilogue = Epilogue::build(|e| {
                e.reduce("total", e.acc(), monoid, F32.pointer());
                e.store("d", e.acc(), F16);
            });
            let plan = plan(&epilogue.unwrap(), tile, Shape::new(m, n, 512));
            (plan.shifted_edges, plan.tiles_lie_inside())
        };
        let tile = Tile::ping_pong(128, 192, 3);
        for monoid in [Monoid::Max, Monoid::Min, Monoid::AbsMax] {
            assert_eq!(of(monoid, tile, 256, 384), (true, true), "whole tiles");
            assert_eq!(of(monoid, tile, 200, 256), (true, true), "tiles that overlap");
            assert_eq!(of(monoid, tile, 200, 250), (true, false), "columns end between two that a tile may begin at");
            assert_eq!(of(monoid, tile, 250, 256), (true, false), "rows do");
            assert_eq!(of(monoid, tile, 120, 256), (true, false), "a tile is higher than the output");
            assert_eq!(of(monoid, tile, 256, 184), (true, false), "a tile is wider");
        }
        assert_eq!(of(Monoid::Sum, tile, 256, 384), (false, true));
        assert_eq!(of(Monoid::Sum, tile, 256, 256), (false, false));
        assert_eq!(of(Monoid::Sum, tile.clustered(2, 1), 256, 384), (false, true));
        assert_eq!(of(Monoid::Sum, tile.clustered(2, 1), 384, 384), (false, false), "the last cluster has a tile beyond");
        assert_eq!(of(Monoid::Max, tile.clustered(2, 1), 384, 384), (true, true), "it begins where the one before does");
    }

    #[test]
    fn what_may_not_be_computed_twice() {
        let in_place = Epilogue::build(|e| e.store("d", e.acc() + e.load("d", F16), F16));
        let summed = Epilogue::build(|e| {
            e.reduce("sum", e.acc(), Monoid::Sum, F32.over(N));
            e.store("d", e.acc(), F16);
        });
        let masked = Epilogue::build(|e| {
            e.store("positive", e.acc().gt(0.0), Bits8);
            e.store("d", e.acc(), F16);
        });
        let unmasked = Epilogue::build(|e| e.store("d", e.load("mask", Bits8).select(e.acc(), 0.0), F16));
        for epilogue in [in_place, summed, masked, unmasked] {
            let epilogue = epilogue.unwrap();
            let plan = plan(&epilogue, Tile::ping_pong(128, 128, 3), Shape::new(4104, 4104, 256));
            assert!(!plan.shifted_edges && !plan.explain().contains("shifted: the last"), "{}", plan.explain());
        }
        let sm80 =
            Gemm::new(F16, TN, &recipes::identity(F16).unwrap()).kernel_plan(Target::SM_80, 108, Shape::new(4104, 4104, 256));
        assert!(!sm80.unwrap().shifted_edges, "nothing fills in what does not exist");
    }
}
