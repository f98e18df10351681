//! The order of the tiles: in groups that share operands in the L2 cache.

use crate::plan::Tile;
use crate::plan::request::TileRequest;
use std::num::NonZeroI32;
#[cfg(any(feature = "cuda", test))]
use {crate::plan::KernelPlan, crate::problem::Shape};

/// The default where the order makes no difference: times were flat from 2 to 64 on an H200 with `sm80` (8192^3) and
/// `simt` (16384 x 16384 x 512).
const DEFAULT: i32 = 8;

/// The group height of a tile: see [`Gemm::raster_group`](crate::Gemm::raster_group).
pub(in crate::plan) fn group(tile: &Tile, request: &TileRequest<'_>) -> i32 {
    let own = || tile.rules().raster(tile, request).unwrap_or(DEFAULT);
    request.preferences.raster_group.map_or_else(own, NonZeroI32::get)
}

#[cfg(any(feature = "cuda", test))]
impl KernelPlan {
    /// The groups that a tuner times beside a tile's own: half and twice as high, as long as that changes the order.
    /// The list is empty if tiles share no operands.
    pub(crate) fn rasters(&self, tile: &Tile, group: i32, shape: Shape) -> Vec<i32> {
        if !tile.rules().shares_operands() {
            return Vec::new();
        }
        let lines = self.lines(tile, group, shape);
        let own = group.saturating_abs().min(lines);
        let others = [own / 2, own.saturating_mul(2).min(lines)];
        others.into_iter().filter(|other| *other > 0 && *other != own).map(|other| other * group.signum()).collect()
    }

    /// The plan's group as a kernel takes it, no higher than the grid, because kernels count the tiles of a group in 32
    /// bits.
    pub(crate) fn group_within(&self, shape: Shape) -> i32 {
        self.raster.saturating_abs().min(self.lines(&self.tile, self.raster, shape)).max(1) * self.raster.signum()
    }

    /// The most lines of tiles in a group: rows, or columns if it is negative. A cluster counts as one tile.
    fn lines(&self, tile: &Tile, group: i32, shape: Shape) -> i32 {
        let shape = self.seen(shape);
        let [across, down] = tile.rules().rastered(tile);
        let lines = if group > 0 { shape.m.div_ceil(across) } else { shape.n.div_ceil(down) };
        i32::try_from(lines).unwrap_or(i32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::{Epilogue, recipes};
    use crate::dtype::DType::F16;
    use crate::gemm::Gemm;
    use crate::ir::Order;
    use crate::ir::axes::N;
    use crate::plan::Mainloop;
    use crate::problem::Layout::TN;
    use crate::target::Target;

    #[test]
    fn groups_that_are_another_order() {
        let epilogue = recipes::identity(F16).unwrap();
        let tile = Tile::sm80(128, 64, 64, 4, [2, 2], 2);
        let shape = Shape::new(1000, 300, 64); // 8 rows of 5 tiles
        let plan = Gemm::new(F16, TN, &epilogue).kernel_plan(Target::SM_80, 108, shape).unwrap();
        let rasters = |group| plan.rasters(&tile, group, shape);
        assert_eq!([8, 4, 2, 1].map(rasters), [vec![4], vec![2, 8], vec![1, 4], vec![2]]);
        assert_eq!((rasters(i32::MAX), rasters(6)), (vec![4], vec![3, 8]));
        assert_eq!((rasters(-5), rasters(-2), rasters(-100)), (vec![-2], vec![-1, -4], vec![-2]));
        let within = |group| KernelPlan { raster: group, tile, ..plan.clone() }.group_within(shape);
        assert_eq!([3, 8, 1 << 30, i32::MAX, -2, -100].map(within), [3, 8, 8, 8, -2, -5], "no higher than the grid");
        let row = Shape::new(1, 300, 64);
        assert!(plan.rasters(&tile, 8, row).is_empty(), "one row of tiles has one order");
        assert_eq!(plan.rasters(&tile, -2, row), [-1, -4]);
    }

    #[test]
    fn clusters_are_one_and_what_shares_nothing_has_no_order() {
        let epilogue = recipes::identity(F16).unwrap();
        let shape = Shape::new(4096, 4096, 4096);
        let plan = Gemm::new(F16, TN, &epilogue).kernel_plan(Target::SM_90A, 132, shape).unwrap();
        let pairs = plan.choice.candidates().map(|(tile, _)| tile).find(|tile| tile.bm == 128 && tile.cluster() == 2).unwrap();
        assert_eq!(plan.rasters(&pairs, 16, shape), [8]);
        let pointwise = Gemm::pointwise(F16, Order::RowMajor, &epilogue).kernel_plan(Target::SM_90A, 132, shape).unwrap();
        assert!(pointwise.rasters(&pointwise.tile, 8, shape).is_empty());
        let few = Shape::new(4, 4096, 4096);
        let gemv = Gemm::new(F16, TN, &epilogue).kernel_plan(Target::SM_80, 108, few).unwrap();
        assert_eq!(gemv.mainloop(), Mainloop::Gemv);
        assert!(gemv.rasters(&Tile { bm: 1, ..gemv.tile }, 2, few).is_empty(), "weights are read once");
        let softmax = Epilogue::build(|e| e.store("d", e.acc().softmax_over(N), F16)).unwrap();
        let rows = Gemm::pointwise(F16, Order::RowMajor, &softmax).kernel_plan(Target::SM_80, 108, shape).unwrap();
        assert_eq!(rows.mainloop(), Mainloop::Rows);
        assert!(rows.rasters(&rows.tile, 8, shape).is_empty());
    }
}
