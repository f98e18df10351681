//! Attention: heads that lie anyhow, sequences that end anywhere, every tile, and epilogues behind it.

use crate::case::Case;
use crate::rig::gpu;
use postlude::Attention;
use postlude::build::recipes::{self, Norm};
use postlude::plan::Mainloop;
use postlude::prelude::*;

/// Runs everything on threads of their own, since compiling takes the time.
pub fn run_all(cases: &[Case]) {
    let failures = std::thread::scope(|scope| {
        let runs: Vec<_> = cases.iter().map(|case| scope.spawn(|| case.run())).collect();
        runs.into_iter().filter_map(|run| run.join().err()).count()
    });
    assert_eq!(failures, 0, "of {} cases", cases.len());
}

fn plain() -> Epilogue {
    recipes::identity(F32).unwrap()
}

/// From one query to many, and widths that no kernel is made for.
const SHAPES: [(usize, usize, usize, usize); 10] = [
    (1, 64, 1, 64),
    (128, 64, 128, 64),
    (200, 64, 333, 64),
    (77, 32, 1000, 32),
    (130, 128, 190, 128),
    (65, 40, 65, 24),
    (300, 96, 129, 80),
    (64, 8, 64, 8),
    (512, 64, 0, 64),
    (40, 200, 100, 64),
];

#[test]
fn heads_of_every_width() {
    let mut cases = Vec::new();
    for (i, &(m, n, k, width)) in SHAPES.iter().enumerate() {
        let (of, dtype) = (Attention::new(width), [F16, BF16][i % 2]);
        for of in [of, of.causal().scaled(0.25)] {
            cases.push(Case::new(&Gemm::attention(dtype, of, &plain()), Shape::new(m, n, k).batched(1 + i % 3)));
        }
    }
    run_all(&cases);
}

#[test]
fn every_tile() {
    let Some(device) = gpu() else { return };
    let mut cases = Vec::new();
    for (width, n) in [(64, 64), (128, 128), (32, 64)] {
        for of in [Attention::new(width), Attention::new(width).causal().sequences(2)] {
            let (gemm, shape) = (Gemm::attention(F16, of, &plain()), Shape::new(2 * 150, n, 2 * 210).batched(2));
            let plan = gemm.kernel_plan(device.target(), device.gpu(), shape).unwrap();
            assert_eq!(plan.mainloop(), Mainloop::Attention);
            cases.extend(plan.choice.candidates().map(|(tile, _)| Case::new(&gemm.clone().tile(tile), shape)));
        }
    }
    assert!(cases.len() > 12);
    run_all(&cases);
}

/// Queries, keys and values beside each other, as one projection leaves them: heads are columns, sequences are rows.
#[test]
fn heads_beside_each_other() {
    let (heads, width, queries) = (3, 64, 100);
    let mut cases = Vec::new();
    for sequences in [1, 5] {
        for of in [Attention::new(width), Attention::new(width).causal()] {
            let of = of.sequences(sequences);
            let gemm = Gemm::attention(BF16, of, &recipes::identity(BF16).unwrap());
            let shape = Shape::new(sequences * queries, width, sequences * queries).batched(heads);
            let case = ["a", "keys", "b"]
                .iter()
                .fold(Case::new(&gemm, shape), |case, name| case.ld(name, 3 * heads * width).batch_stride(name, width));
            cases.push(case.ld("d", heads * width).batch_stride("d", width));
        }
    }
    run_all(&cases);
}

#[test]
fn anything_behind_attention() {
    let epilogue = Epilogue::build(|e| {
        let z = e.acc() * e.load("gate", F16.over(M)) + e.load("bias", F32.over(N)) + e.load("residual", F16);
        let z = z.region(e.row().lt(70), |z| z.sigmoid()).otherwise(|z| z.tanh());
        e.store("d", z, F16);
        e.store("mask", z.gt(0.0), Bits8);
        e.reduce("sums", z, Monoid::Sum, F32.over(N));
        e.reduce("largest", z, Monoid::Max, F32.over(M));
        e.reduce("amax", z, Monoid::AbsMax, F32.pointer());
    })
    .unwrap();
    let gemm = Gemm::attention(F16, Attention::new(64), &epilogue);
    // A norm over the columns of a head takes a kernel of rows behind it.
    let norm = recipes::rms_norm(Norm { weights: Some(F16), residual: None }, F16).unwrap();
    let normed = Case::new(&Gemm::attention(F16, Attention::new(64), &norm), Shape::new(150, 64, 90)).scalar("epsilon", 0.125f32);
    run_all(&[Case::new(&gemm, Shape::new(150, 64, 300).batched(2)).slack(4.0), normed.slack(40.0)]);
}

/// Scores that are far apart, and weights that are all but 0 or 1.
#[test]
fn scores_of_every_size() {
    let mut cases = Vec::new();
    for scale in [1e-6, 4.0, 30.0] {
        let gemm = Gemm::attention(F16, Attention::new(64).scaled(scale), &plain());
        cases.push(Case::new(&gemm, Shape::new(130, 64, 257)).fill("b", |rng, dtype| rng.element(dtype).abs() + 1.0));
    }
    run_all(&cases);
}
