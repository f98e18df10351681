//! Every derivative in the table against central differences of the value, in `f64`, away from kinks.

use crate::support::{Numbers, Points};
use postlude::dtype::ValueType;
use postlude::ir::op::Signature;
use postlude::{DType, Op};

const POINTS: usize = 400;
const STEP: f64 = 1e-5;

/// The derivative at `x[operand]`, unless there is none: a kink, a jump, or an operand out of the domain.
fn difference(op: Op, x: &[f64], operand: usize) -> Option<f64> {
    let at = |offset: f64| {
        let mut x = x.to_vec();
        x[operand] += offset;
        (op.row().eval)(&x)
    };
    let y = [-2.0, -1.0, 0.0, 1.0, 2.0].map(|i| at(i * STEP));
    let slopes = [0, 1, 2, 3].map(|i| (y[i + 1] - y[i]) / STEP);
    let smooth = slopes.iter().all(|s| (s - slopes[0]).abs() <= 1e-2 * (1.0 + slopes[0].abs()));
    // Fourth order, so that a steep function is tested as well.
    smooth.then_some((8.0 * (y[3] - y[1]) - (y[4] - y[0])) / (12.0 * STEP))
}

#[test]
fn every_derivative_is_the_limit_of_differences() {
    let mut numbers = Numbers(11);
    for &op in Op::ALL {
        let row = op.row();
        if !row.is_differentiable() {
            continue;
        }
        let arity = row.signature.arity();
        let conditional = row.signature == Signature::Select;
        let is_condition = |operand| conditional && operand == 0;
        let mut points = Points::new(POINTS);
        let (mut inputs, mut types) = (Vec::new(), Vec::new());
        let mut args = Vec::new();
        for i in 0..arity {
            let (value, x): (_, Vec<f64>) = if is_condition(i) {
                (ValueType::Bool, (0..POINTS).map(|_| (numbers.bits() % 2) as f64).collect())
            } else {
                (ValueType::F32, (0..POINTS).map(|_| numbers.between(-3.0, 3.0)).collect())
            };
            args.push(points.load(&format!("x{i}"), value, &x));
            types.push(value);
            inputs.push(x);
        }
        let seeds: Vec<f64> = (0..POINTS).map(|_| numbers.between(0.5, 2.0)).collect();
        let seed = points.load("seed", ValueType::F32, &seeds);
        let y = points.graph.apply(op, &args);
        let gradients = row.gradients(&mut points.graph, &args, y, seed).expect("it is differentiable");
        assert_eq!(gradients.len(), arity, "{}", op.name());
        points.store("y", y, row.signature.result(&types).expect("typed").storage());
        let mut keep = seed;
        for (i, x) in args.iter().enumerate() {
            // Every load has to reach a sink, whether or not a gradient uses it.
            if !is_condition(i) {
                keep = points.graph.apply(Op::Add, &[keep, *x]);
            }
        }
        points.store("keep", keep, DType::F32);
        for (i, gradient) in gradients.iter().enumerate() {
            if let Some(gradient) = gradient {
                points.store(&format!("g{i}"), *gradient, DType::F32);
            }
        }
        let mut found = points.exact().into_iter().skip(2);
        for (operand, gradient) in gradients.iter().enumerate() {
            if gradient.is_none() {
                let slope = |i: usize| difference(op, &inputs.iter().map(|x| x[i]).collect::<Vec<_>>(), operand).unwrap_or(0.0);
                let is_flat = || (0..POINTS).all(|i| slope(i) == 0.0);
                assert!(is_condition(operand) || is_flat(), "{} has no gradient of operand {operand}", op.name());
                continue;
            }
            let found = found.next().unwrap();
            let mut tested = 0;
            for i in 0..POINTS {
                let x: Vec<f64> = inputs.iter().map(|x| x[i]).collect();
                // A rounding passes its gradient straight through, as if it were the identity.
                let straight = matches!(op, Op::RoundF16 | Op::RoundBf16 | Op::RoundE4m3 | Op::RoundE5m2).then_some(1.0);
                let Some(slope) = straight.or_else(|| difference(op, &x, operand)) else { continue };
                let expected = slope * seeds[i];
                let fits = (found[i] - expected).abs() <= 2e-6 * (1.0 + expected.abs());
                assert!(fits, "{}{x:?}: the gradient of operand {operand} is {}, not {expected}", op.name(), found[i]);
                tested += 1;
            }
            assert!(tested >= POINTS / 10, "{}: only {tested} points of operand {operand} are smooth", op.name());
        }
        // The test above must not pass for want of gradients.
        assert!(gradients.iter().any(Option::is_some), "{}", op.name());
    }
}

#[test]
fn what_has_no_derivative_is_locally_constant() {
    let mut numbers = Numbers(12);
    for &op in Op::ALL.iter().filter(|op| !op.row().is_differentiable()) {
        let Signature::Same { arity, takes: [ValueType::F32, ValueType::F64], gives: None } = op.row().signature else {
            continue;
        };
        for operand in 0..arity {
            let x: Vec<f64> = (0..arity).map(|_| numbers.between(-3.0, 3.0)).collect();
            assert_eq!(difference(op, &x, operand).unwrap_or(0.0), 0.0, "{} has a slope", op.name());
        }
    }
}

#[test]
fn kinks_have_the_documented_derivatives() {
    // The gradients of `op` at `x`, for a seed of 1.
    let at = |op: Op, x: &[f64]| {
        let mut points = Points::new(1);
        let args: Vec<_> = x.iter().enumerate().map(|(i, x)| points.load(&format!("x{i}"), ValueType::F32, &[*x])).collect();
        let y = points.graph.apply(op, &args);
        let seed = points.graph.constant_f32(1.0);
        let gradients = op.row().gradients(&mut points.graph, &args, y, seed).expect("it is differentiable");
        for (i, gradient) in gradients.into_iter().flatten().enumerate() {
            points.store(&format!("g{i}"), gradient, DType::F32);
        }
        points.exact().into_iter().map(|g| g[0]).collect::<Vec<_>>()
    };
    assert_eq!(at(Op::Abs, &[0.0]), [0.0]);
    assert_eq!(at(Op::Max, &[0.0, 0.0]), [0.0, 1.0]);
    assert_eq!(at(Op::Min, &[0.0, 0.0]), [0.0, 1.0]);
    assert_eq!(at(Op::Max, &[2.0, f64::INFINITY]), [0.0, 1.0]);
    assert_eq!(at(Op::MinNum, &[0.0, 0.0]), [0.0, 1.0]);
    // The gradient goes to the operand that is the value.
    for op in [Op::MinNum, Op::MaxNum] {
        assert_eq!(at(op, &[f64::NAN, 1.0]), [0.0, 1.0]);
        assert_eq!(at(op, &[1.0, f64::NAN]), [1.0, 0.0]);
    }
    assert_eq!(at(Op::Atan2, &[0.0, 0.0]), [0.0, 0.0]);
    // The squares overflow or vanish.
    for scale in [1e30, 1e-30] {
        let found = at(Op::Atan2, &[3.0 * scale, 4.0 * scale]);
        let near = |found: f64, expected: f64| (found * scale - expected).abs() < 1e-6;
        assert!(near(found[0], 0.16) && near(found[1], -0.12), "{found:?}");
    }
    assert_eq!(at(Op::Copysign, &[0.0, -1.0]), [0.0]);
    assert_eq!(at(Op::Copysign, &[-3.0, -0.0]), [1.0]);
    assert_eq!(at(Op::Copysign, &[-3.0, 2.0]), [-1.0]);
    assert_eq!(at(Op::Cbrt, &[0.0]), [f64::INFINITY]);
    assert_eq!(at(Op::Asin, &[1.0]), [f64::INFINITY]);
    assert_eq!(at(Op::Acos, &[-1.0]), [f64::NEG_INFINITY]);
    assert_eq!(at(Op::Acosh, &[1.0]), [f64::INFINITY]);
    // A power of 0 is constant, also at 0.
    assert_eq!(at(Op::Pow, &[0.0, 0.0])[0], 0.0);
    assert_eq!(at(Op::Pow, &[0.0, 1.0])[0], 1.0);
}
