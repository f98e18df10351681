//! Few rows, or few columns: the mainloop that reads B once.

use crate::case::Case;
use postlude::build::recipes;
use postlude::plan::{Mainloop, Tile, TileShape};
use postlude::prelude::*;
use postlude::{DType, Epilogue, Gemm};

fn gated(dtype: DType, d: DType) -> Epilogue {
    Epilogue::build(|e| {
        let z = e.acc() * e.load("scale", F32.over(M)) + e.load("bias", dtype.over(N)) + e.load("c", dtype.over(M | N));
        e.store("d", z.relu(), d);
        e.store("z", z, F32);
    })
    .unwrap()
}

fn run(case: &Case) {
    let mut case = case.clone();
    case.gemm = case.gemm.mainloop(Mainloop::Gemv);
    let problem = case.problem(&case.buffers());
    let plan = case.gemm.kernel_plan(postlude::target::Target::SM_90A, 132, problem).unwrap();
    assert_eq!(plan.tile.mainloop(), Mainloop::Gemv, "{}", plan.explain());
    case.run();
}

/// N and K: aligned, ragged within an aligned row, odd, smaller than a tile or a step.
const SIDES: [[usize; 2]; 6] = [[136, 2048], [264, 2056], [133, 2051], [33, 1000], [7, 5], [1000, 1]];

fn few_rows(layout: Layout) {
    for dtype in [F16, BF16, F32] {
        let gemm = Gemm::new(dtype, layout, &gated(dtype, F16));
        for m in 1..=4 {
            for [n, k] in SIDES {
                run(&Case::new(&gemm, Shape::new(m, n, k)));
            }
        }
    }
}

#[test]
fn few_rows_tn() {
    few_rows(TN);
}

#[test]
fn few_rows_nn() {
    few_rows(NN);
}

#[test]
fn few_rows_nt() {
    few_rows(NT);
}

#[test]
fn few_rows_tt() {
    few_rows(TT);
}

#[test]
fn constant_weights_change_nothing() {
    for layout in [TN, TT] {
        let gemm = Gemm::new(F16, layout, &gated(F16, F16)).constant_operands([Side::B]);
        for m in 1..=4 {
            run(&Case::new(&gemm, Shape::new(m, 264, 4104)));
        }
    }
}

#[test]
fn few_columns_in_every_layout() {
    for layout in Layout::ALL {
        let gemm = Gemm::new(F16, layout, &gated(F16, BF16));
        for n in 1..=4 {
            for [m, k] in [[520, 4096], [257, 2051], [33, 72]] {
                run(&Case::new(&gemm, Shape::new(m, n, k)));
            }
        }
    }
}

#[test]
fn every_alignment() {
    for layout in Layout::ALL {
        let gemm = Gemm::new(F16, layout, &gated(F16, F16));
        for (offset, pad) in [(1, 0), (0, 1), (2, 2), (4, 4), (3, 6), (8, 8)] {
            for m in [1, 3] {
                let shape = Shape::new(m, 136, 1032);
                let [a, b] =
                    [if layout == TN || layout == TT { 1032 } else { m }, if layout == TT || layout == NT { 136 } else { 1032 }];
                let case = Case::new(&gemm, shape).offset("a", offset).ld("a", a + pad).offset("b", offset).ld("b", b + pad);
                run(&case);
            }
        }
    }
}

#[test]
fn batches() {
    for layout in Layout::ALL {
        let gemm = Gemm::new(BF16, layout, &gated(BF16, F32));
        for shape in [Shape::new(2, 200, 300).batched(5), Shape::new(4, 72, 2048).batched(3), Shape::new(300, 1, 64).batched(7)] {
            run(&Case::new(&gemm, shape));
        }
    }
}

#[test]
fn regions_and_column_major_outputs() {
    let region = recipes::split_rows(F16, F16, |z| z.sigmoid(), |z| z.tanh()).unwrap();
    for boundary in [0, 1, 3, 4] {
        let case = Case::new(&Gemm::new(F16, TN, &region), Shape::new(4, 333, 500));
        run(&case.scalar("boundary", boundary));
    }
    let columns = Epilogue::build(|e| e.store("d", e.acc() + e.load("bias", F16.over(N)), F16.column_major())).unwrap();
    for shape in [Shape::new(3, 333, 500), Shape::new(333, 3, 500)] {
        run(&Case::new(&Gemm::new(F16, TN, &columns), shape));
    }
}

#[test]
fn tiles_that_are_not_chosen() {
    let gemv = |bm, bn, threads, min_blocks, cluster| {
        let shape = TileShape::Gemv { cluster, stages: 0 };
        Tile { bm, bn, shape, threads, min_blocks }
    };
    let of_k = [gemv(1, 16, 128, 4, 1), gemv(2, 8, 512, 1, 2), gemv(4, 16, 256, 1, 8), gemv(8, 8, 64, 1, 4)];
    let of_n = [gemv(1, 128, 256, 2, 4), gemv(4, 64, 1024, 1, 8), gemv(8, 8, 32, 1, 1)];
    for (layout, tiles) in [(TN, &of_k[..]), (NN, &of_k[..]), (TT, &of_n[..]), (NT, &of_n[..])] {
        for tile in tiles {
            let gemm = Gemm::new(F16, layout, &gated(F16, F16)).tile(*tile);
            for shape in [Shape::new(3, 264, 1032), Shape::new(9, 131, 777), Shape::new(1, 8, 16)] {
                Case::new(&gemm, shape).run();
            }
        }
    }
}
