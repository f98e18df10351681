//! Products of `f32` as tf32 on Hopper's mainloop. Operands of all bits have the bound of one rounding each, half of what cutting
//! off may come to. Others need no rounding, and their sums are as exact as those of 16 bits.

use crate::case::Case;
use crate::hopper::is_hopper;
use crate::layout::Rng;
use postlude::build::recipes;
use postlude::plan::{Mainloop, TileShape};
use postlude::prelude::*;
use postlude::target::Target;
use postlude::{DType, Gemm};

/// Aligned, ragged, one element beyond a block of K, no element of K, and one.
const SHAPES: [Shape; 6] = [
    Shape::new(256, 384, 512),
    Shape::new(130, 260, 36),
    Shape::new(129, 77, 201),
    Shape::new(33, 18, 5),
    Shape::new(72, 80, 0),
    Shape::new(520, 264, 1),
];

fn full(rng: &mut Rng, _: DType) -> f64 {
    rng.unit()
}

/// From 0.5 to 1: what is cut off then has one sign.
fn positive(rng: &mut Rng, _: DType) -> f64 {
    0.75 + 0.25 * rng.unit()
}

/// A matrix and vectors read, three matrices written, one of them turned; reductions along both axes; and a gradient's mask.
fn epilogues() -> [Epilogue; 3] {
    let several = Epilogue::build(|e| {
        let z = e.acc() * e.load("scale", F32.over(M)) + e.load("bias", F32.over(N));
        e.store("d", z + e.load("c", F32), F32.column_major());
        e.store("half", z.relu(), F16);
        e.store("brain", z.tanh(), BF16);
    });
    let reduced = Epilogue::build(|e| {
        let z = e.acc() + e.load("c", F32);
        e.store("d", z, F32);
        e.store("mask", z.gt(0.0), Bits8);
        e.reduce("columns", z, Monoid::Sum, F32.over(N));
        e.reduce("rows", z, Monoid::Max, F32.over(M));
        e.reduce("amax", z, Monoid::AbsMax, F32.pointer());
    });
    let gradient = Epilogue::build(|e| {
        let z = e.load("mask", Bits8).select(e.acc(), 0.0);
        e.store("d", z, F32);
        e.reduce("bgrad", z, Monoid::Sum, F32.over(N));
    });
    [several, reduced, gradient].map(Result::unwrap)
}

fn gemm(layout: Layout, epilogue: &Epilogue) -> Gemm {
    Gemm::new(F32, layout, epilogue).tf32(true)
}

#[test]
fn operands_are_rounded_to_nearest() {
    if !is_hopper() {
        return;
    }
    let identity = recipes::identity(F32).unwrap();
    // Three quarters of the way to the next number of tf32: cut off, both operands would be further away than rounded.
    let fills: [fn(&mut Rng, DType) -> f64; 3] = [full, positive, |_, _| 1.0 + 0.75 / 1024.0];
    for layout in Layout::ALL {
        let gemm = gemm(layout, &identity).mainloop(Mainloop::Sm90a);
        for fill in fills {
            for shape in [Shape::new(130, 140, 200), Shape::new(256, 128, 4096)] {
                Case::new(&gemm, shape).fill("a", fill).fill("b", fill).run();
            }
        }
    }
}

#[test]
fn every_layout_and_epilogue() {
    if !is_hopper() {
        return;
    }
    for epilogue in &epilogues() {
        for layout in Layout::ALL {
            let gemm = gemm(layout, epilogue).mainloop(Mainloop::Sm90a);
            for shape in SHAPES {
                Case::new(&gemm, shape).run();
            }
            Case::new(&gemm.clone().transposed(true), SHAPES[2]).run();
        }
    }
}

#[test]
fn every_kind_of_tile() {
    let all = epilogues();
    for (epilogue, layout) in all[..2].iter().flat_map(|epilogue| [(epilogue, TN), (epilogue, Layout::NN)]) {
        let gemm = gemm(layout, epilogue);
        let plan = gemm.kernel_plan(Target::SM_90A, 132, Shape::new(1024, 1024, 512)).unwrap();
        assert_eq!(plan.mainloop(), Mainloop::Sm90a, "{}", plan.explain());
        assert!(plan.repack.is_none(), "{}", plan.explain());
        if !is_hopper() {
            return;
        }
        let mut kinds = Vec::new();
        for (tile, _) in plan.choice.candidates() {
            let TileShape::Sm90a { bk, consumers, schedule, cluster, .. } = tile.shape else { panic!("{tile}") };
            // An odd and an even number of blocks of K, of one panel and of two.
            let kind = (consumers, schedule, cluster, tile.bn % 64, bk);
            if !kinds.contains(&kind) {
                kinds.push(kind);
                for k in [332, 364] {
                    let case = Case::new(&gemm.clone().tile(tile), Shape::new(400, 528, k));
                    case.clone().run();
                    case.fill("a", positive).fill("b", positive).run();
                }
            }
        }
        assert!(kinds.len() >= 6, "{kinds:?}");
    }
}

/// Rows that begin anywhere are copied, with K contiguous; a batch may share an operand.
#[test]
fn batches_strides_and_parts_of_k() {
    if !is_hopper() {
        return;
    }
    let [several, reduced, _] = epilogues();
    for layout in Layout::ALL {
        let gemm = gemm(layout, &several).mainloop(Mainloop::Sm90a);
        let case = Case::new(&gemm, Shape::new(70, 130, 90).batched(3)).ld("a", 133).ld("b", 131);
        for at in 0..4 {
            case.clone().offset("a", at).offset("b", 3 - at).run();
        }
        case.clone().batch_stride("a", 0).batch_stride("b", 0).run();
        case.ld("a", 132).ld("b", 136).run();
        Case::new(&gemm.split_k(4), Shape::new(96, 160, 2048)).run();
    }
    let gemm = gemm(TN, &reduced);
    Case::new(&gemm, Shape::new(2048, 1024, 256).batched(2)).run();
    Case::new(&gemm, Shape::new(4096, 4096, 64)).run();
}

/// Operands arrive rounded in shared memory, so sums of them are taken elsewhere.
#[test]
fn sums_of_operands_are_those_of_f32() {
    let summed = Epilogue::build(|e| {
        e.store("d", e.acc(), F32);
        e.reduce("rows", e.a(), Monoid::Sum, F32.over(M));
        e.reduce("columns", e.b(), Monoid::Sum, F32.over(N));
    });
    let gemm = gemm(TN, &summed.unwrap());
    let plan = gemm.kernel_plan(Target::SM_90A, 132, Shape::new(300, 200, 656)).unwrap();
    assert_eq!(plan.mainloop(), Mainloop::Sm80, "{}", plan.explain());
    Case::new(&gemm, Shape::new(300, 200, 656)).fill("a", full).fill("b", positive).run();
}
