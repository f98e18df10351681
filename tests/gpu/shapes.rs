//! Every mainloop, format and layout over nasty shapes.

use crate::case::Case;
use postlude::build::recipes;
use postlude::dtype::ValueType;
use postlude::ir::Order;
use postlude::plan::Mainloop;
use postlude::prelude::*;
use postlude::{Epilogue, Gemm};

/// M, N, K: one, around 8 and 128, none a multiple of another; and none at all.
const SHAPES: [[usize; 3]; 30] = [
    [1, 1, 1],
    [1, 7, 8],
    [7, 1, 9],
    [8, 8, 8],
    [8, 9, 7],
    [9, 7, 1],
    [9, 8, 127],
    [7, 129, 128],
    [127, 129, 7],
    [129, 127, 9],
    [127, 8, 65],
    [8, 127, 129],
    [128, 128, 64],
    [128, 9, 129],
    [129, 1, 128],
    [1, 129, 127],
    [65, 257, 33],
    [257, 65, 31],
    [130, 66, 258],
    [300, 200, 100],
    [16, 24, 40],
    [1, 1, 1000],
    [255, 511, 63],
    [512, 384, 512],
    [64, 64, 0],
    [7, 129, 0],
    [0, 8, 8],
    [8, 0, 8],
    [0, 0, 0],
    [1, 2000, 17],
];

fn epilogue(dtype: DType, d: DType) -> Epilogue {
    Epilogue::build(|e| match dtype.value_type() {
        ValueType::F32 => {
            let z = e.acc() * e.load("scale", F32.over(M)) + e.load("bias", d.over(N));
            e.store("d", z.relu(), d);
        }
        _ => {
            let z = e.acc_i32() * 3 + e.load("bias", I32.over(N));
            e.store("d", z, I32);
        }
    })
    .unwrap()
}

fn product(dtype: DType, mainloop: Mainloop, layout: Layout, d: DType) {
    let gemm = Gemm::new(dtype, layout, &epilogue(dtype, d)).mainloop(mainloop).tf32(true);
    for [m, n, k] in SHAPES {
        Case::new(&gemm, Shape::new(m, n, k)).run();
    }
}

fn pointwise(dtype: DType, order: Order, d: DType) {
    let gemm = Gemm::pointwise(dtype, order, &epilogue(dtype, d));
    for [m, n, _] in SHAPES {
        Case::new(&gemm, Shape::new(m, n, 3)).run();
    }
}

macro_rules! products {
    ($($name:ident $dtype:ident $mainloop:ident $d:ident;)*) => { $(mod $name {
        use super::*;
        #[test]
        fn tn() { product($dtype, Mainloop::$mainloop, TN, $d); }
        #[test]
        fn nn() { product($dtype, Mainloop::$mainloop, NN, $d); }
        #[test]
        fn nt() { product($dtype, Mainloop::$mainloop, NT, $d); }
        #[test]
        fn tt() { product($dtype, Mainloop::$mainloop, TT, $d); }
    })* };
}

products! {
    sm80_f16 F16 Sm80 F16;
    sm80_bf16 BF16 Sm80 BF16;
    sm80_tf32 F32 Sm80 F32;
    sm90a_tf32 F32 Sm90a F32;
    simt_f32 F32 Simt F32;
    simt_f16 F16 Simt F32;
    simt_bf16 BF16 Simt F16;
    simt_i32 I32 Simt I32;
    gemv_f16 F16 Gemv F16;
    gemv_bf16 BF16 Gemv F32;
    gemv_f32 F32 Gemv F32;
    gemv_i32 I32 Gemv I32;
}

#[test]
fn pointwise_f16() {
    pointwise(F16, Order::RowMajor, F16);
}

#[test]
fn pointwise_f32_to_bf16() {
    pointwise(F32, Order::RowMajor, BF16);
}

#[test]
fn pointwise_bf16_from_columns() {
    pointwise(BF16, Order::ColumnMajor, F32);
}

#[test]
fn pointwise_i32() {
    pointwise(I32, Order::RowMajor, I32);
}

#[test]
fn pointwise_bool() {
    let count = Epilogue::build(|e| {
        let kept = e.acc_i32();
        e.store("d", kept + e.row(), I32);
    });
    // Truth values have an accumulator type of their own.
    let gemm = Gemm::pointwise(Bool, Order::RowMajor, &count.unwrap());
    assert!(gemm.kernel_plan(postlude::target::Target::SM_90A, 132, Shape::new(8, 8, 0)).is_err());
}

#[test]
fn integers_wrap() {
    let gemm = Gemm::new(I32, TN, &epilogue(I32, I32));
    let large = |rng: &mut crate::layout::Rng, _| f64::from(rng.bits() as i32);
    for [m, n, k] in [[65, 33, 70], [128, 128, 128], [3, 5, 1]] {
        Case::new(&gemm, Shape::new(m, n, k)).fill("a", large).fill("b", large).fill("bias", large).run();
    }
}

#[test]
fn deep_sums_stay_within_their_bound() {
    let identity = recipes::identity(F32).unwrap();
    for gemm in [Gemm::new(F16, TN, &identity), Gemm::new(BF16, NT, &identity), Gemm::new(F32, TT, &identity)] {
        Case::new(&gemm, Shape::new(130, 70, 20_011)).run();
    }
}

#[test]
fn tf32_rounds_its_operands() {
    let full = |rng: &mut crate::layout::Rng, _| rng.unit();
    for layout in Layout::ALL {
        let gemm = Gemm::new(F32, layout, &recipes::identity(F32).unwrap()).tf32(true).mainloop(Mainloop::Sm80);
        Case::new(&gemm, Shape::new(130, 140, 200)).fill("a", full).fill("b", full).run();
        // Three quarters of the way to the next number of tf32: cut off, both operands would be further away than rounded.
        let high = |_: &mut crate::layout::Rng, _| 1.0 + 0.75 / 1024.0;
        Case::new(&gemm, Shape::new(130, 140, 200)).fill("a", high).fill("b", high).run();
    }
}

#[test]
fn f32_operands_keep_full_precision() {
    let full = |rng: &mut crate::layout::Rng, _| rng.unit();
    for layout in Layout::ALL {
        let gemm = Gemm::new(F32, layout, &recipes::identity(F32).unwrap());
        Case::new(&gemm, Shape::new(130, 140, 200)).fill("a", full).fill("b", full).run();
    }
}

#[test]
fn infinities_and_nans_pass_through() {
    let gemm = Gemm::new(F16, TN, &recipes::bias_activation(F16, F16, |z| z.relu()).unwrap());
    let special = |rng: &mut crate::layout::Rng, _| match rng.bits() % 40 {
        0 => f64::NAN,
        1 => f64::INFINITY,
        2 => f64::NEG_INFINITY,
        3 => -0.0,
        4 => 65504.0,
        5 => 6e-8,
        _ => rng.unit(),
    };
    for mainloop in [Mainloop::Sm80, Mainloop::Simt] {
        let gemm = gemm.clone().mainloop(mainloop);
        Case::new(&gemm, Shape::new(140, 130, 3)).fill("a", special).fill("b", special).fill("bias", special).run();
    }
    let gemm = Gemm::pointwise(F32, Order::RowMajor, gemm.epilogue());
    Case::new(&gemm, Shape::new(140, 130, 0)).fill("a", special).fill("bias", special).run();
}
