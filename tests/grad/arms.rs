//! What an arm that was not picked would have come to never reaches a gradient.

use postlude::grad::Wrt;
use postlude::prelude::*;
use postlude::reference::{Precision, run};
use postlude::{Builder, HostArgs, Operation};

/// The gradients of the accumulator and of `x`, at the given values of both, for incoming gradients of 1.
fn gradients(build: impl FnOnce(&Builder), a: &[f32], x: &[f32]) -> [Vec<f32>; 2] {
    let epilogue = Epilogue::build(build).unwrap_or_else(|e| panic!("{e}"));
    let pair = epilogue.backward(Wrt::all()).unwrap();
    let (shape, operation) = (Shape::new(1, a.len(), 0), Operation::Pointwise { dtype: F32, order: Default::default() });
    let mut reserve = pair.reserve().allocate(shape);
    let mut d = vec![0.0f32; a.len()];
    let args = HostArgs::new().input("a", a).output("d", &mut d).saving(&mut reserve);
    let args = if x.is_empty() { args } else { args.input("x", x) };
    run(operation, pair.forward().checked(), shape, args, Precision::F32).unwrap();
    let ones = vec![1.0f32; a.len()];
    let mut found = [vec![7.0f32; a.len()], vec![7.0f32; x.len()]];
    let [acc, gx] = &mut found;
    let mut args = HostArgs::new().input("a", &ones).output("grad_acc", acc).saved(&reserve);
    if !x.is_empty() {
        args = args.output("grad_x", gx);
        if pair.backward().arguments().iter().any(|a| &*a.name == "x") {
            args = args.input("x", x);
        }
    }
    run(operation, pair.backward().checked(), shape, args, Precision::F32).unwrap();
    found
}

fn of_acc(build: impl FnOnce(&Builder), a: &[f32]) -> Vec<f32> {
    let [found, _] = gradients(build, a, &[]);
    found
}

const EDGES: [f32; 6] = [-4.0, -0.0, 0.0, 4.0, f32::NEG_INFINITY, 1e-40];

#[test]
fn a_square_root_below_zero() {
    let found = of_acc(|e| e.store("d", e.acc().gt(0.0).select(e.acc().sqrt(), 0.0), F32), &EDGES);
    assert_eq!(found[..5], [0.0, 0.0, 0.0, 0.25, 0.0]);
    assert!(found[5].is_finite() && found[5] > 0.0);
}

#[test]
fn a_logarithm_below_zero() {
    let found = of_acc(|e| e.store("d", e.acc().gt(0.0).select(e.acc().log(), e.acc()), F32), &EDGES[..5]);
    assert_eq!(found, [1.0, 1.0, 1.0, 0.25, 1.0]);
}

#[test]
fn the_guarded_arm_may_come_second_and_share_values() {
    // log(x) is used by the arm and by another output as well as in a deeper chain.
    let found = of_acc(
        |e| {
            let x = e.acc();
            let deep = (x.log() * 2.0).exp() + x.log() * x.log();
            e.store("d", x.le(0.0).select(x * 3.0, deep), F32);
        },
        &[-1.0, 0.0, 1.0],
    );
    assert_eq!(found, [3.0, 3.0, 2.0]);
}

#[test]
fn overflow_behind_a_minimum_stays_there() {
    // 0 * e^200 would be no number.
    let found = of_acc(|e| e.store("d", e.acc().exp().min(1.0), F32), &[200.0, -1.0, 0.5]);
    assert_eq!(found, [0.0, (-1.0f32).exp(), 0.0]);
    let found = of_acc(|e| e.store("d", e.acc().recip().max(0.0), F32), &[0.0, -0.0, -2.0]);
    assert_eq!(found[1..], [0.0, -0.0]);
    assert_eq!(found[0], f32::NEG_INFINITY);
}

#[test]
fn nested_arms_and_an_operand_of_both() {
    let build = |e: &Builder| {
        let (z, x) = (e.acc(), e.load("x", F32));
        let inner = x.gt(0.0).select(z / x, z * x);
        e.store("d", z.gt(0.0).select(inner, x.sqrt()), F32);
    };
    let [acc, x] = gradients(build, &[1.0, 1.0, -1.0, -1.0], &[2.0, 0.0, 4.0, -1.0]);
    assert_eq!(acc, [0.5, 0.0, 0.0, 0.0]);
    assert_eq!(x[..3], [-0.25, 1.0, 0.25]);
    assert!(x[3].is_nan(), "the square root of -1 is what was picked there");
}

#[test]
fn a_positional_arm() {
    // Column 0 divides by zero, column 1 does not look.
    let build = |e: &Builder| {
        let (z, x) = (e.acc(), e.load("x", F32));
        e.store("d", e.column().eq(0).select(z * x, z / x), F32);
    };
    let [acc, x] = gradients(build, &[3.0, 3.0], &[0.0, 2.0]);
    assert_eq!((acc, x), (vec![0.0, 0.5], vec![3.0, -0.75]));
}

#[test]
fn a_minimum_sends_ties_and_the_other_operand_where_the_table_says() {
    let build = |e: &Builder| e.store("d", e.acc().min(e.load("x", F32)), F32);
    let [acc, x] = gradients(build, &[1.0, 2.0, 3.0], &[2.0, 2.0, 2.0]);
    assert_eq!((acc, x), (vec![1.0, 0.0, 0.0], vec![0.0, 1.0, 1.0]));
    assert_eq!(of_acc(|e| e.store("d", e.acc().relu(), F32), &[0.0, -0.0, f32::NAN, 1.0]), [0.0, 0.0, 0.0, 1.0]);
}
