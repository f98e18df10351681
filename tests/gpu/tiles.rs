//! Every tile of every mainloop, on shapes that are not multiples of it.

use crate::case::Case;
use postlude::build::recipes;
use postlude::ir::Order;
use postlude::plan::{Mainloop, Tile, TileShape};
use postlude::prelude::*;
use postlude::{DType, Gemm};

fn sm80(bm: usize, bn: usize, bk: usize, stages: usize, [warps_m, warps_n]: [usize; 2], min_blocks: usize) -> Tile {
    Tile { bm, bn, shape: TileShape::Sm80 { bk, stages, warps_m, warps_n }, threads: 32 * warps_m * warps_n, min_blocks }
}

fn simt(bm: usize, bn: usize, bk: usize, tm: usize, tn: usize, min_blocks: usize) -> Tile {
    Tile { bm, bn, shape: TileShape::Simt { bk, tm, tn }, threads: bm * bn / (tm * tn), min_blocks }
}

/// Aligned, unaligned, and smaller than the tile.
const SHAPES: [Shape; 4] = [Shape::new(520, 776, 264), Shape::new(521, 777, 201), Shape::new(40, 24, 72), Shape::new(33, 18, 5)];

fn run(dtype: DType, layouts: &[Layout], tiles: &[Tile], d: DType) {
    let epilogue = recipes::residual(d, d, |z| z.relu()).unwrap();
    for tile in tiles {
        for layout in layouts {
            let gemm = Gemm::new(dtype, *layout, &epilogue).tf32(true).tile(*tile);
            for shape in SHAPES {
                Case::new(&gemm, shape).run();
            }
        }
    }
}

#[test]
fn sm80_f16() {
    let tiles = [sm80(128, 256, 64, 4, [2, 4], 1), sm80(128, 64, 64, 4, [2, 2], 2), sm80(64, 64, 64, 6, [2, 2], 2)];
    run(F16, &[TN, NT], &tiles, F16);
}

#[test]
fn sm80_f16_128() {
    run(F16, &Layout::ALL, &[sm80(128, 128, 64, 3, [2, 2], 2), sm80(128, 128, 32, 5, [2, 2], 2)], F16);
}

#[test]
fn sm80_f16_of_other_proportions() {
    run(F16, &[TN, NN, TT], &[sm80(256, 128, 64, 2, [4, 2], 1), sm80(64, 32, 128, 6, [4, 1], 1)], F32);
    run(F16, &[TN, TT], &[sm80(16, 64, 128, 6, [1, 2], 1)], F32);
}

#[test]
fn sm80_tf32() {
    let tiles = [sm80(128, 128, 16, 5, [2, 2], 2), sm80(128, 128, 32, 3, [2, 4], 1), sm80(64, 64, 32, 4, [2, 2], 2)];
    run(F32, &[TN, NT], &tiles, F32);
}

#[test]
fn simt_f32() {
    let tiles = [
        simt(128, 128, 8, 8, 16, 2),
        simt(128, 64, 8, 8, 8, 3),
        simt(64, 64, 16, 8, 4, 4),
        simt(32, 64, 16, 4, 4, 4),
        simt(32, 32, 16, 4, 4, 6),
    ];
    run(F32, &[TN, NT], &tiles, F32);
}

#[test]
fn pointwise() {
    let epilogue = recipes::residual(F16, F16, |z| z.relu()).unwrap();
    for (bm, bn, threads) in [(16, 256, 128), (8, 256, 128), (32, 256, 256), (64, 32, 64)] {
        let tile = Tile { bm, bn, shape: TileShape::Pointwise, threads, min_blocks: 1 };
        let gemm = Gemm::pointwise(F16, Order::RowMajor, &epilogue).tile(tile);
        for shape in SHAPES {
            Case::new(&gemm, shape).run();
        }
    }
}

#[test]
fn the_choice_covers_every_mainloop() {
    let epilogue = recipes::identity(F16).unwrap();
    let chosen =
        |gemm: &Gemm| gemm.kernel_plan(postlude::target::Target::SM_90A, 132, Shape::new(512, 512, 512)).unwrap().tile.mainloop();
    assert_eq!(chosen(&Gemm::new(F16, TN, &epilogue)), Mainloop::Sm90a);
    assert_eq!(chosen(&Gemm::new(F32, TN, &epilogue)), Mainloop::Simt);
    assert_eq!(chosen(&Gemm::new(F32, TN, &epilogue).tf32(true)), Mainloop::Sm90a);
    assert_eq!(chosen(&Gemm::pointwise(F16, Order::RowMajor, &epilogue)), Mainloop::Pointwise);
}
