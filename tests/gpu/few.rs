//! Few rows behind wide weights: blocks that share K, tiles as wide as the rows, and both ways round.

use crate::case::Case;
use crate::rig::rig;
use postlude::build::recipes;
use postlude::plan::{Schedule, Tile, TileShape};
use postlude::prelude::*;
use postlude::target::Target;
use postlude::{Epilogue, Gemm};

fn is_hopper() -> bool {
    rig().is_some_and(|rig| rig.target().0 == Target::SM_90A)
}

/// Runs everything on threads of their own, since compiling takes the time.
fn run_all(cases: &[Case]) {
    let failures = std::thread::scope(|scope| {
        let runs: Vec<_> = cases.iter().map(|case| scope.spawn(|| case.run())).collect();
        runs.into_iter().filter_map(|run| run.join().err()).count()
    });
    assert_eq!(failures, 0, "of {} cases", cases.len());
}

/// Blocks that share K, each of which finishes `bn` columns.
fn shared(bm: usize, bn: usize, bk: usize, consumers: usize, parts: usize) -> Tile {
    let (schedule, splits_k) = (Schedule::Cooperative, true);
    let shape = TileShape::Sm90a { bk, stages: 16, consumers, schedule, cluster: [1, parts], splits_k };
    Tile { bm, bn, shape, threads: 128 * (1 + consumers), min_blocks: 1 }
}

/// What stages, branches, packs and reduces, with results in both orders.
fn epilogues() -> [Epilogue; 4] {
    let mixed = Epilogue::build(|e| {
        let z = e.acc() * e.load("scale", F32.over(M)) + e.load("bias", F16.over(N));
        let banded = z.region(e.row().lt(e.scalar("boundary", I32)), |z| z.sigmoid()).otherwise(|z| z.tanh());
        e.store("d", banded * e.load("c", BF16) + (e.column() % 3).cast(F32), F16);
        e.store("z", z, F32.column_major());
    });
    let summed = Epilogue::build(|e| {
        let z = e.load("x", F16) * 0.5 + e.acc() * e.scalar("alpha", F32);
        e.store("x", z, F16);
        e.store("positive", z.gt(0.0), Bits8);
        e.reduce("sums", z, Monoid::Sum, F32.over(N));
        e.reduce("largest", e.acc(), Monoid::Max, F32.over(M));
        e.reduce("norm", z, Monoid::Norm2, F32.pointer());
    });
    let masked = Epilogue::build(|e| e.store("d", e.load("mask", Bits8).select(e.acc(), 0.0), F32));
    [mixed, summed, masked, recipes::residual(BF16, BF16, |z| z.relu())].map(Result::unwrap)
}

fn case(gemm: &Gemm, shape: Shape) -> Case {
    let named = |name: &str| gemm.epilogue().checked().argument(name).is_some();
    let case = Case::new(gemm, shape).origin(7, -3, 0).slack(2.0);
    let case = if named("boundary") { case.scalar("boundary", 30) } else { case };
    if named("alpha") { case.scalar("alpha", 0.25f32) } else { case }
}

/// Ragged either way, several tiles of a cluster, more clusters than run at once, a batch, parts without a block of K,
/// and no terms.
const SHAPES: [Shape; 7] = [
    Shape::new(520, 200, 1160),
    Shape::new(257, 131, 520),
    Shape::new(4104, 392, 328),
    Shape::new(328, 72, 264).batched(40),
    Shape::new(130, 16, 8),
    Shape::new(64, 8, 136),
    Shape::new(72, 40, 0),
];

#[test]
fn blocks_that_share_k() {
    if !is_hopper() {
        return;
    }
    let tiles = [
        shared(64, 24, 128, 1, 2),
        shared(64, 8, 256, 1, 2),
        shared(64, 96, 64, 1, 2),
        shared(64, 16, 64, 1, 4),
        shared(64, 8, 128, 1, 8),
        shared(128, 16, 64, 2, 8),
        shared(128, 40, 64, 2, 3),
        shared(128, 24, 64, 2, 4),
        shared(128, 48, 64, 2, 2),
        shared(192, 32, 64, 1, 2),
        shared(256, 32, 64, 2, 4),
    ];
    let mut cases = Vec::new();
    for (i, tile) in tiles.into_iter().enumerate() {
        for (j, epilogue) in epilogues().iter().enumerate() {
            let gemm = Gemm::new([F16, BF16][(i + j) % 2], Layout::ALL[(i + j) % 4], epilogue).tile(tile);
            let gemm = gemm
                .constant_operands(Side::ALL.into_iter().filter(|side| if *side == Side::A { i % 3 == 0 } else { j % 2 == 0 }));
            for shape in SHAPES.into_iter().skip((i + j) % 2).step_by(2) {
                cases.push(case(&gemm, shape));
            }
        }
    }
    run_all(&cases);
}

/// What is chosen for layers of models, in every layout and both ways round: rows are few of A, or of B.
#[test]
fn what_is_chosen() {
    if !is_hopper() {
        return;
    }
    let shapes = [
        [48, 3584, 18944],
        [96, 4096, 14336],
        [192, 6144, 4096],
        [64, 18944, 3584],
        [24, 9216, 4608],
        [8, 4096, 4096],
        [100, 12288, 4096],
        [161, 4096, 4096],
        [40, 5120, 13824],
        [250, 4608, 3584],
    ];
    let mut cases = Vec::new();
    for (i, [m, n, k]) in shapes.into_iter().enumerate() {
        for (j, epilogue) in epilogues().iter().enumerate().skip(i % 2).step_by(2) {
            let gemm = Gemm::new([F16, BF16][j % 2], Layout::ALL[(i + j / 2) % 4], epilogue)
                .constant_operands((j % 2 == 0).then_some(Side::B));
            let shape = if (i + j) % 3 == 0 { Shape::new(n, m, k) } else { Shape::new(m, n, k) };
            cases.push(case(&gemm, shape));
        }
    }
    for cases in cases.chunks(4) {
        run_all(cases);
    }
}
