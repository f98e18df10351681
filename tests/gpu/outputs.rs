//! Outputs: orders, formats, several at once, in place.

use crate::case::Case;
use postlude::ir::Order;
use postlude::plan::Mainloop;
use postlude::prelude::*;
use postlude::{Epilogue, Gemm};

const SHAPES: [Shape; 4] = [Shape::new(136, 72, 40), Shape::new(72, 136, 40), Shape::new(131, 67, 45), Shape::new(1, 33, 8)];

fn everywhere(epilogue: &Epilogue, run: impl Fn(Case)) {
    for gemm in [
        Gemm::new(F16, TN, epilogue),
        Gemm::new(F16, NN, epilogue),
        Gemm::new(F32, TT, epilogue),
        Gemm::new(BF16, NT, epilogue).mainloop(Mainloop::Simt),
        Gemm::pointwise(F16, Order::RowMajor, epilogue),
        Gemm::pointwise(F16, Order::ColumnMajor, epilogue),
    ] {
        for shape in SHAPES {
            run(Case::new(&gemm, shape));
            run(Case::new(&gemm, shape.batched(2)));
        }
    }
}

#[test]
fn column_major() {
    let epilogue = Epilogue::build(|e| {
        let z = e.acc() * e.load("scale", F32.over(M)) + e.load("bias", F16.over(N)) + e.row().cast(F32) * 0.25;
        e.store("d", z, F16.column_major());
    })
    .unwrap();
    let plan = Gemm::new(F16, TN, &epilogue).kernel_plan(postlude::target::Target::SM_80, 108, SHAPES[0]).unwrap();
    assert!(plan.transposed, "the plan computes the transposed problem");
    everywhere(&epilogue, |case| {
        case.clone().run();
        case.clone().ld("d", 150).origin(5, -3, 0).run();
        case.offset("d", 1).offset("a", 1).run();
    });
}

#[test]
fn mixed_orders() {
    let epilogue = Epilogue::build(|e| {
        let z = e.acc() + e.load("c", F32.column_major()) + e.load("r", F16);
        e.store("row", z, F16);
        e.store("column", z * 2.0, BF16.column_major());
    })
    .unwrap();
    everywhere(&epilogue, |case| {
        case.clone().run();
        case.ld("row", 141).ld("column", 143).ld("c", 137).run();
    });
}

#[test]
fn in_place() {
    for order in [Order::RowMajor, Order::ColumnMajor] {
        let c = Operand { order, ..Operand::from(F16) };
        let epilogue = Epilogue::build(|e| {
            let (alpha, beta) = (e.scalar("alpha", F32), e.scalar("beta", F32));
            e.store("c", e.acc() * alpha + e.load("c", c) * beta, c);
        })
        .unwrap();
        everywhere(&epilogue, |case| case.scalar("alpha", 0.75f32).scalar("beta", -1.5f32).run());
    }
}

#[test]
fn several_of_different_formats() {
    let epilogue = Epilogue::build(|e| {
        let z = e.acc() + e.load("bias", BF16.over(N));
        e.store("z", z, F32);
        e.store("half", z.relu(), F16);
        e.store("brain", z * 3.0, BF16);
        e.store("positive", z.gt(0.0), Bool);
        e.store("rounded", (z * 8.0).round().cast(I32), I32);
        e.store("columns", e.column() * 3 + e.row(), I32.over(M | N));
    })
    .unwrap();
    everywhere(&epilogue, |case| {
        case.clone().run();
        case.ld("positive", 139).ld("half", 141).offset("brain", 3).offset("positive", 1).run();
    });
}

#[test]
fn truth_values() {
    // Any byte but 0 reads as true; 0 and 1 are written.
    let epilogue = Epilogue::build(|e| {
        let keep = e.load("keep", Bool);
        e.store("d", keep.select(e.acc(), 0.0), F16);
        e.store("kept", keep & !e.load("drop", Bool.over(N)), Bool);
    })
    .unwrap();
    everywhere(&epilogue, |case| {
        case.run();
    });
}

#[test]
fn no_accumulator() {
    let epilogue = Epilogue::build(|e| e.store("d", e.load("x", F16) * 2.0, F16)).unwrap();
    everywhere(&epilogue, |case| case.run());
}

#[test]
fn shared_by_the_batch() {
    let epilogue = Epilogue::build(|e| {
        e.store("d", e.acc() + e.load("shared", F16.over(M | N)), F16);
        e.store("twice", e.load("shared", F16.over(M | N)) * 2.0, F32.over(M | N));
    })
    .unwrap();
    everywhere(&epilogue, |case| case.run());
}

#[test]
fn overflow_and_rounding() {
    // Ties, overflow to infinity, subnormals: the store rounds once, to nearest even.
    let epilogue = Epilogue::build(|e| {
        e.store("half", e.acc(), F16);
        e.store("brain", e.acc(), BF16);
        e.store("twice", e.acc().cast(F16).cast(BF16), F32);
        e.store("integer", e.acc().cast(I32), I32);
    })
    .unwrap();
    let hard = |rng: &mut crate::layout::Rng, _| f64::from(f32::from_bits(rng.bits() as u32));
    let near = |rng: &mut crate::layout::Rng, _| {
        let ties = [2049.0, 2051.0, 65519.9, 65520.0, 257.0, 259.0, 5.9e-8, 2.9e-8, 3.0e-8, 3.39e38, -0.0, 2.147e9, -2.2e9];
        ties[(rng.bits() % 13) as usize]
    };
    for fill in [hard, near] as [crate::case::Fill; 2] {
        Case::new(&Gemm::pointwise(F32, Order::RowMajor, &epilogue), Shape::new(200, 120, 0)).fill("a", fill).run();
    }
}

#[test]
fn matrices_are_updated_without_an_operand() {
    let relu = Epilogue::build(|e| e.store("x", e.load("x", F16).relu(), F16)).unwrap();
    let add_relu = Epilogue::build(|e| {
        let y = (e.load("x", F32) + e.load("y", BF16.column_major()) + e.load("bias", F32.over(N))).relu();
        e.store("x", y, F32);
        e.reduce("sum", y, Monoid::Sum, F32.over(N));
        e.store("active", y.gt(0.0), Bits8);
    })
    .unwrap();
    for epilogue in [relu, add_relu] {
        for order in [Order::RowMajor, Order::ColumnMajor] {
            for shape in [Shape::matrix(300, 140), Shape::matrix(65, 129).batched(3), Shape::matrix(1, 7)] {
                Case::new(&Gemm::pointwise(F16, order, &epilogue), shape).run();
            }
        }
    }
}
