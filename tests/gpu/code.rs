//! Epilogues too long to be inlined: functions that are called, strips in a loop, values along N in a loop, on every mainloop.

use crate::case::Case;
use crate::monoids::mean;
use crate::rig::rig;
use postlude::ir::Order;
use postlude::plan::{KernelPlan, Mainloop, Math};
use postlude::prelude::*;
use postlude::target::Target;
use postlude::{Epilogue, Gemm, Op};

fn gemms(epilogue: &Epilogue) -> Vec<Gemm> {
    vec![
        Gemm::new(F16, TN, epilogue),
        Gemm::new(F16, TN, epilogue).mainloop(Mainloop::Sm80),
        Gemm::new(F32, TT, epilogue),
        Gemm::pointwise(F16, Order::RowMajor, epilogue),
        Gemm::pointwise(F32, Order::ColumnMajor, epilogue),
    ]
}

const SHAPES: [Shape; 3] = [Shape::new(300, 140, 24), Shape::new(1, 136, 40), Shape::new(65, 129, 8)];

fn plan(gemm: &Gemm, shape: Shape) -> KernelPlan {
    gemm.kernel_plan(Target::SM_90A, 132, shape).unwrap()
}

#[test]
fn long_functions_are_called() {
    let epilogue = Epilogue::build(|e| {
        // The remainder takes a loaded value: an accumulator, summed in another order, may lie across a multiple of the period.
        let (z, x, period) = (e.acc(), e.load("x", F32), e.load("period", F32.over(N)).abs() + 0.5);
        e.store("d", x % period + (z * 3.0).sin() - z.cos() + (x.abs() + 0.5).pow(1.5), F32);
    })
    .unwrap();
    for gemm in gemms(&epilogue) {
        for shape in SHAPES {
            assert_eq!(plan(&gemm, shape).code.calls.len(), 4, "{}", plan(&gemm, shape).explain());
            Case::new(&gemm, shape).run();
        }
    }
}

/// Where a Hopper kernel has many functions that fork, it calls them: in strips of every width, in regions and in a monoid.
#[test]
fn functions_that_fork_are_called() {
    let epilogue = Epilogue::build(|e| {
        let (x, scale) = (e.load("x", F16).abs() + 0.5, e.load("scale", F32.over(M)).abs() + 0.25);
        let z = e.acc() / x + scale.sqrt() / (x + scale);
        let y = z.region(e.row().lt(70), |z| z / (scale + 1.0)).otherwise(|z| z.abs().log1p() - (x * 2.0).recip());
        e.store("d", y, F32);
        e.store("z", z, F16.column_major());
        e.reduce("mean", z, mean(), F32.over(N));
    })
    .unwrap();
    let mut called = 0;
    for gemm in [Gemm::new(F16, TN, &epilogue), Gemm::new(BF16, NN, &epilogue), Gemm::new(F32, TN, &epilogue)] {
        let plan = plan(&gemm, Shape::new(1000, 1024, 64));
        for (tile, raster) in plan.choice.candidates() {
            if plan.with_tile(tile, raster, "").is_some_and(|plan| plan.code.calls.contains(&Op::Div)) && called < 12 {
                called += 1;
                for shape in [Shape::new(300, 140, 24), Shape::new(129, 520, 40)] {
                    Case::new(&gemm.clone().tile(tile), shape).slack(4.0).run();
                }
            }
        }
    }
    assert!(called == 12 || rig().is_none_or(|rig| rig.target().0 != Target::SM_90A), "{called} tiles call a division");
}

/// A chain that neither grows nor forgets its argument.
fn chain(z: Expr<'_>, links: usize) -> Expr<'_> {
    (0..links).fold(z, |z, i| (z * 0.75).gelu() * 0.5 + (z + i as f32 * 0.01).tanh() * 0.5)
}

#[test]
fn long_epilogues_loop_over_a_strip() {
    let epilogue = Epilogue::build(|e| {
        let (z, c) = (e.acc() * 0.25, e.load("c", F16));
        // Two elements side by side would be more code than a strip may have.
        let y = chain(z + c, 80);
        e.store("kept", y.gt(0.0), Bits8);
        e.store("d", y, F16);
        e.reduce("sum", y, Monoid::Sum, F32.over(N));
        e.reduce("largest", c, Monoid::AbsMax, F32.over(M));
    })
    .unwrap();
    for gemm in gemms(&epilogue).into_iter().map(|gemm| gemm.math(Math::Exact)) {
        for shape in SHAPES {
            let plan = plan(&gemm, shape);
            let rolled = plan.code.visit_unroll < plan.strip;
            assert!(rolled || plan.mainloop() == Mainloop::Sm90a || plan.strip == 1, "{}", plan.explain());
            Case::new(&gemm, shape).slack(64.0).steep().run();
        }
    }
}

#[test]
fn regions_of_long_arms_branch_for_each_element() {
    let epilogue = Epilogue::build(|e| {
        let (z, boundary) = (e.acc() * 0.25, e.scalar("boundary", I32));
        let by_row = z.region(e.row().lt(boundary), |z| chain(z, 30)).otherwise(|z| chain(-z, 30));
        let y = by_row.region(e.column().lt(boundary), |z| chain(z * 0.5, 20)).otherwise(|z| z * 2.0);
        e.store("d", y, F32);
    })
    .unwrap();
    for gemm in gemms(&epilogue) {
        for boundary in [0, 7, 64, 1000] {
            Case::new(&gemm, SHAPES[0]).scalar("boundary", boundary).slack(64.0).run();
        }
    }
}

#[test]
fn long_values_along_one_axis() {
    let epilogue = Epilogue::build(|e| {
        let column = chain(e.load("bias", F32.over(N)), 80);
        let row = chain(e.load("scale", F32.over(M)), 40);
        e.store("d", e.acc() * row + column, F32);
    })
    .unwrap();
    for gemm in gemms(&epilogue) {
        for shape in SHAPES {
            let plan = plan(&gemm, shape);
            let rolled = plan.code.column_unroll < plan.strip;
            assert!(rolled || plan.mainloop() == Mainloop::Sm90a || plan.strip == 1, "{}", plan.explain());
            Case::new(&gemm, shape).slack(64.0).run();
        }
    }
}
