//! Functions of scores: every kind of argument, every tile, every way to multiply.

use crate::attention::run_all;
use crate::case::Case;
use crate::rig::gpu;
use postlude::build::recipes;
use postlude::prelude::*;
use postlude::{Attention, Scores};

fn plain() -> Epilogue {
    recipes::identity(F32).unwrap()
}

fn scores(build: impl for<'g> FnOnce(&'g Builder) -> Expr<'g>) -> Scores {
    Scores::build(build).unwrap()
}

/// The functions that users of FlexAttention write, with the arguments of each.
fn functions() -> Vec<Scores> {
    vec![
        scores(|s| s.acc() + s.load("slopes", F32.over(L)) * (s.column() - s.row()).cast(F32) * 0.125),
        scores(|s| (s.acc() / 4.0).tanh() * 4.0),
        scores(|s| {
            let back = s.row() - s.column();
            (back.ge(0) & back.lt(50)).select(s.acc(), f32::NEG_INFINITY)
        }),
        scores(|s| s.load("seen", Bool.over(N | S)).select(s.acc(), f32::NEG_INFINITY)),
        scores(|s| s.acc() + s.load("mask", F16.over(N | S)) * 100.0),
        scores(|s| s.acc() + s.load("bias", F16) + s.load("both", F32.over(M | N | L | S))),
        scores(|s| s.acc() * s.load("turned", BF16.over(M | N | S).column_major()) + s.load("rows", F32.over(M | L))),
        scores(|s| s.load("bits", Bits8.over(M | N)).select(s.acc(), f32::NEG_INFINITY)),
        scores(|s| {
            let same = (s.load("of_query", F32.over(M | S)) * 2.0).floor().eq((s.load("of_key", F32.over(N | S)) * 2.0).floor());
            same.select(s.acc(), f32::NEG_INFINITY)
        }),
        scores(|s| s.acc() + s.gather("table", F32, (s.column() - s.row()).max(-40).min(40) + 40)),
        scores(|s| s.acc().region(s.row().lt(30), |z| z.sigmoid() * 3.0).otherwise(|z| z.tanh().exp())),
        scores(|s| s.acc() + s.load_or("left", F32, 0.5) * s.scalar("by", F32)),
        scores(|s| s.column().lt(9).select(f32::MIN, s.acc() - 1e9)),
    ]
}

/// A case whose launch has only the scalars and tables that the function takes.
fn with(of: Attention, dtype: DType, shape: Shape) -> Case {
    let gemm = Gemm::attention(dtype, of, &plain());
    let names: Vec<&str> = of.function().iter().flat_map(|scores| scores.arguments()).map(|argument| &*argument.name).collect();
    let mut case = Case::new(&gemm, shape).slack(8.0);
    if names.contains(&"by") {
        case = case.scalar("by", 0.25f32);
    }
    if names.contains(&"table") {
        case = case.length("table", 81);
    }
    case
}

#[test]
fn functions_of_scores() {
    let mut cases = Vec::new();
    for (i, function) in functions().iter().enumerate() {
        let (width, dtype) = ([64, 32, 128][i % 3], [F16, BF16][i % 2]);
        for (of, sequences) in [(Attention::new(width), 1), (Attention::new(width).sequences(3), 3)] {
            let shape = Shape::new(sequences * 150, width, sequences * 210).batched(2);
            cases.push(with(of.scores(function), dtype, shape));
        }
        cases.push(with(Attention::new(width).causal().scores(function), dtype, Shape::new(77, width, 130)));
    }
    run_all(&cases);
}

#[test]
fn functions_of_scores_on_every_tile() {
    let Some(device) = gpu() else { return };
    let function = scores(|s| {
        let score = s.acc() + s.load("bias", F16.over(M | N)) * 0.5 + s.load("slopes", F32.over(L)) * s.row().cast(F32) * 0.01;
        (s.load("seen", Bool.over(N | S)) | s.column().eq(0)).select(score, f32::NEG_INFINITY)
    });
    let mut cases = Vec::new();
    for (width, n) in [(64, 64), (128, 128), (32, 64)] {
        let of = Attention::new(width).sequences(2).scores(&function);
        let (gemm, shape) = (Gemm::attention(F16, of, &plain()), Shape::new(2 * 150, n, 2 * 210).batched(2));
        let plan = gemm.kernel_plan(device.target(), device.gpu(), shape).unwrap();
        cases.extend(plan.choice.candidates().map(|(tile, _)| case_of(&gemm.clone().tile(tile), shape)));
    }
    assert!(cases.len() > 6);
    run_all(&cases);
}

fn case_of(gemm: &Gemm, shape: Shape) -> Case {
    Case::new(gemm, shape).slack(8.0)
}

/// Masks that lie anywhere, and entries that are apart.
#[test]
fn arguments_of_scores_with_strides() {
    let function = scores(|s| s.acc() + s.load("bias", F16) + s.load("padding", F32.over(N | S)));
    let of = Attention::new(64).sequences(2).scores(&function);
    let gemm = Gemm::attention(F16, of, &plain());
    let shape = Shape::new(2 * 90, 64, 2 * 71).batched(3);
    let apart = case_of(&gemm, shape).ld("bias", 75).batch_stride("bias", 7001).offset("bias", 3);
    let apart = apart.batch_stride("padding", 73).offset("padding", 1);
    let shared = case_of(&gemm, shape).ld("bias", 80).batch_stride("bias", 0).batch_stride("padding", 0);
    run_all(&[apart, shared]);
}

/// A function of scores in a product whose rows are reduced behind it: its arguments reach the first of two kernels.
#[test]
fn functions_of_scores_before_a_norm() {
    let function = scores(|s| s.acc() + s.load("bias", F32) + s.load("padding", F32.over(N)) + s.load("rows", F32.over(M)));
    let norm = recipes::rms_norm(recipes::Norm { weights: Some(F16), residual: None }, F16).unwrap();
    let gemm = Gemm::attention(F16, Attention::new(64).scores(&function), &norm);
    run_all(&[case_of(&gemm, Shape::new(150, 64, 90)).scalar("epsilon", 0.125f32).slack(40.0)]);
}
