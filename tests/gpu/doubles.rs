//! Doubles: products, rows and matrices of them, and beside products of single precision.

use crate::case::Case;
use crate::layout::{Buffer, Rng};
use postlude::ir::Order;
use postlude::plan::Mainloop;
use postlude::prelude::*;
use postlude::{Epilogue, Gemm};

/// Whole tiles, edges in every direction, single rows and columns, no terms, nothing at all.
const SHAPES: [[usize; 3]; 12] = [
    [128, 128, 64],
    [129, 127, 33],
    [5, 3, 7],
    [1, 1, 1],
    [257, 65, 31],
    [300, 200, 100],
    [64, 64, 0],
    [0, 8, 8],
    [8, 0, 8],
    [1, 2000, 17],
    [700, 1, 40],
    [96, 160, 1030],
];

/// Integers of which products and sums hold every bit, whatever the order: 24 bits each, and sums below 2^53.
fn whole(rng: &mut Rng, _: DType) -> f64 {
    ((rng.unit() * f64::from(1 << 20)).trunc() * 2.0 + 1.0) / f64::from(1 << 10)
}

fn epilogue() -> Epilogue {
    Epilogue::build(|e| {
        let z = e.acc_f64() * e.load("rows", F64.over(M)) + e.load("columns", F64.over(N)) * e.scalar("alpha", F64);
        e.store("d", z.max(e.load("c", F64)) * 0.1, F64);
        e.store("turned", z + e.load("c", F64), F64.column_major());
        e.store("single", z.cast(F32), F32);
        e.store("whole", (z * 100.0).cast(I32), I32);
    })
    .unwrap()
}

fn products(mainloop: Mainloop, layout: Layout) {
    let gemm = Gemm::new(F64, layout, &epilogue()).mainloop(mainloop);
    for [m, n, k] in SHAPES {
        if mainloop == Mainloop::Simt || m.min(n) <= 4 {
            Case::new(&gemm, Shape::new(m, n, k)).scalar("alpha", 0.3).slack(4.0).run();
        }
    }
    Case::new(&gemm, Shape::new(4, 72, 20).batched(3)).scalar("alpha", -1.5).slack(4.0).run();
}

#[test]
fn products_in_every_layout() {
    Layout::ALL.into_iter().for_each(|layout| products(Mainloop::Simt, layout));
}

#[test]
fn a_few_rows_in_every_layout() {
    Layout::ALL.into_iter().for_each(|layout| products(Mainloop::Gemv, layout));
}

/// Nothing is rounded, so that nothing may differ: not by a bit, in the 53 that there are.
#[test]
fn sums_that_are_exact_come_out_exactly() {
    let epilogue = Epilogue::build(|e| e.store("d", e.acc_f64(), F64)).unwrap();
    for layout in Layout::ALL {
        for mainloop in [Mainloop::Simt, Mainloop::Gemv] {
            let gemm = Gemm::new(F64, layout, &epilogue).mainloop(mainloop);
            let case = Case::new(&gemm, Shape::new(3, 130, 260)).fill("a", whole).fill("b", whole);
            let given = case.buffers();
            let Some(got) = case.run_on(&given) else { return };
            let mut expected = given.clone();
            gemm.reference(case.shape, case.host(&mut expected)).unwrap();
            let bytes = |buffers: &[Buffer]| buffers.iter().find(|b| b.written).map(|b| b.bytes.clone());
            assert!(bytes(&got) == bytes(&expected), "{case}");
        }
    }
}

#[test]
fn addresses_and_strides_that_forbid_wide_accesses() {
    let gemm = Gemm::new(F64, TT, &epilogue());
    let case = Case::new(&gemm, Shape::new(67, 45, 31)).scalar("alpha", 0.3).slack(4.0);
    case.offset("a", 1).ld("a", 33).offset("b", 3).ld("b", 47).offset("d", 1).ld("d", 49).ld("c", 51).ld("turned", 71).run();
}

#[test]
fn parts_of_k() {
    let epilogue = Epilogue::build(|e| e.store("d", e.acc_f64() + e.load("bias", F64.over(N)), F64)).unwrap();
    for layout in [TN, NT] {
        let gemm = Gemm::new(F64, layout, &epilogue).split_k(4);
        Case::new(&gemm, Shape::new(64, 96, 4096)).slack(4.0).run();
    }
}

#[test]
fn matrices_in_both_orders() {
    let epilogue = Epilogue::build(|e| {
        let z = e.acc_f64() + e.load("bias", F64.over(N));
        e.store("d", z.gelu() + z.tanh() * z.exp(), F64);
        e.store("half", z.cast(F16), F16);
        e.store("brain", z.cast(BF16), BF16);
        e.store("positive", z.gt(0.0), Bits8);
    })
    .unwrap();
    for order in [Order::RowMajor, Order::ColumnMajor] {
        let gemm = Gemm::pointwise(F64, order, &epilogue);
        for [m, n, _] in SHAPES {
            Case::new(&gemm, Shape::new(m, n, 0)).slack(4.0).run();
        }
    }
}

#[test]
fn reductions_of_every_kind() {
    let epilogue = Epilogue::build(|e| {
        let z = e.acc_f64();
        e.store("d", z, F64);
        e.reduce("sums", z, Monoid::Sum, F64.over(N));
        e.reduce("added", z, Monoid::Sum.atomic(), F64.over(M));
        e.reduce("onto", z, Monoid::Sum.accumulate(), F64.over(N | L));
        e.reduce("largest", z, Monoid::Max, F64.over(M | L));
        e.reduce("smallest", z, Monoid::Min, F64.pointer());
        e.reduce("amax", z, Monoid::AbsMax, F64.over(N));
        e.reduce("lse", z, Monoid::LogSumExp, F64.over(M));
        e.reduce("mean", z, Monoid::Mean, F64.pointer());
        e.reduce("squares", z, Monoid::SumSquares, F64.over(M));
        e.reduce("norm", z, Monoid::Norm2, F64.over(N));
    })
    .unwrap();
    for gemm in [Gemm::new(F64, TN, &epilogue), Gemm::pointwise(F64, Order::RowMajor, &epilogue)] {
        for [m, n, k] in SHAPES {
            Case::new(&gemm, Shape::new(m, n, k)).slack(64.0).run();
        }
        Case::new(&gemm, Shape::new(140, 72, 20).batched(3)).slack(64.0).run();
    }
}

/// Products of the tensor cores, whose epilogues compute with doubles. On Hopper they go to `sm80`.
#[test]
fn epilogues_of_products_of_single_and_half_precision() {
    let epilogue = Epilogue::build(|e| {
        let z = e.acc().cast(F64) * e.load("scale", F64.over(M)) + e.load("residual", F64);
        e.store("residual", z, F64);
        e.store("d", z.cast(F16), F16);
        e.reduce("sums", z, Monoid::Sum, F64.over(N));
    })
    .unwrap();
    for gemm in [Gemm::new(F16, TN, &epilogue), Gemm::new(BF16, NT, &epilogue), Gemm::new(F32, TT, &epilogue)] {
        for [m, n, k] in SHAPES {
            Case::new(&gemm, Shape::new(m, n, k)).slack(4.0).run();
        }
    }
}
