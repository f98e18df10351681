//! Every primitive on edge inputs, through a graph: against its row, and against the arithmetic of the CPU.

use crate::support::{Points, same};
use postlude::dtype::ValueType::{self, Bool, F32, F64, I32};
use postlude::ir::op::Signature;
use postlude::reference::Precision;
use postlude::{DType, Op};
use std::cmp::Ordering;

const FLOATS: [f64; 21] = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    2.5,
    -1.5,
    3.3f32 as f64,
    -7.0,
    65519.0,
    1.0e-40f32 as f64,
    -1.0e-45f32 as f64,
    1e30f32 as f64,
    -1e30f32 as f64,
    f32::MAX as f64,
    f32::MIN_POSITIVE as f64,
    2147483648.0,
    -3e9,
    f64::INFINITY,
    f64::NEG_INFINITY,
    f64::NAN,
];
/// Numbers that only an `f64` holds, and some at the edge of an `f32`.
const DOUBLES: [f64; 16] = [
    0.0,
    -0.0,
    0.1,
    -1.0 - f64::EPSILON,
    2.5,
    3.0 + 1e-9,
    1e300,
    -1e300,
    5e-324,
    f64::MIN_POSITIVE,
    f64::MAX,
    2147483647.5,
    -2147483649.0,
    f64::INFINITY,
    f64::NEG_INFINITY,
    f64::NAN,
];
const INTEGERS: [f64; 9] = [0.0, 1.0, -1.0, 2.0, -7.0, 16777217.0, -16777219.0, i32::MAX as f64, i32::MIN as f64];

fn edges(value: ValueType) -> &'static [f64] {
    match value {
        F32 => &FLOATS,
        F64 => &DOUBLES,
        I32 => &INTEGERS,
        Bool => &[0.0, 1.0],
    }
}

/// Every combination of edge values, as one list for each operand.
fn combinations(operands: &[ValueType]) -> Vec<Vec<f64>> {
    let count: usize = operands.iter().map(|v| edges(*v).len()).product();
    let mut block = 1;
    let column = |v: &ValueType| {
        let values: Vec<f64> = (0..count).map(|i| edges(*v)[i / block % edges(*v).len()]).collect();
        block *= edges(*v).len();
        values
    };
    operands.iter().map(column).collect()
}

fn through_a_graph(op: Op, operands: &[ValueType], result: ValueType, inputs: &[Vec<f64>], precision: Precision) -> Vec<f64> {
    let mut points = Points::new(inputs[0].len());
    let args: Vec<_> = inputs.iter().enumerate().map(|(i, x)| points.load(&format!("x{i}"), operands[i], x)).collect();
    let y = points.graph.apply(op, &args);
    points.store("y", y, result.storage());
    points.run(precision).remove(0)
}

#[test]
fn every_primitive_has_the_value_of_its_row() {
    for &op in Op::ALL {
        let row = op.row();
        for (operands, result) in row.signature.typings() {
            let inputs = combinations(&operands);
            let results = through_a_graph(op, &operands, result, &inputs, Precision::F32);
            for (i, got) in results.iter().enumerate() {
                let x: Vec<f64> = inputs.iter().map(|x| x[i]).collect();
                let integers = row.on_integers(&operands);
                let expected = if let Some(eval) = integers {
                    let x: Vec<i32> = x.iter().map(|x| *x as i32).collect();
                    f64::from(eval(&x))
                } else {
                    result.storage().round((row.eval)(&x))
                };
                assert!(same(*got, expected), "{}{x:?} of {operands:?} is {got}, not {expected}", op.name());
            }
        }
    }
}

/// The one of two that is so to the other, or NaN; -0 is less than +0.
fn extreme(x: &[f32], so: fn(Ordering) -> bool) -> f32 {
    match x.iter().any(|x| x.is_nan()) {
        true => f32::NAN,
        false => x[usize::from(!so(x[0].total_cmp(&x[1])))],
    }
}

/// The same of those that are numbers.
fn number(x: &[f32], so: fn(Ordering) -> bool) -> f32 {
    match x.iter().copied().filter(|x| !x.is_nan()).collect::<Vec<_>>()[..] {
        [] => f32::NAN,
        [one] => one,
        ref two => extreme(two, so),
    }
}

/// An angle in half turns, which the remainder of an `f64` reduces to one turn exactly. Multiples of a quarter turn are
/// exact, too.
fn half_turns(x: f32, function: fn(f64) -> f64) -> f32 {
    let turn = f64::from(x) % 2.0;
    let exact = (turn * 2.0).fract() == 0.0;
    let value = function(turn * std::f64::consts::PI);
    if exact { value.round() as f32 } else { value as f32 }
}

/// By halving the interval that it is in.
fn inverse_erf(x: f64) -> f64 {
    if x.is_nan() || x.abs() > 1.0 {
        return f64::NAN;
    }
    if x.abs() == 1.0 {
        return x * f64::INFINITY;
    }
    // Near 0 its series, whose next term does not count there.
    if x.abs() < 1e-6 {
        return x * std::f64::consts::PI.sqrt() / 2.0;
    }
    let (mut low, mut high) = (0.0, 6.0);
    for _ in 0..200 {
        let middle = (low + high) / 2.0;
        if libm::erf(middle) < x.abs() { low = middle } else { high = middle }
    }
    low.copysign(x)
}

#[test]
fn inverse_erf_has_every_digit() {
    let eval = Op::Erfinv.row().eval;
    for i in 1..2000 {
        let y = f64::from(i) / 500.0;
        // Beyond 1 the difference from 1 tells more than the value; the row has to work with the value.
        let digits = 4e-15 + 1e-16 / (libm::erfc(y) * y);
        let found = eval(&[libm::erf(y)]);
        assert!((found - y).abs() <= digits * y, "{y}: {found}");
        assert_eq!(eval(&[-libm::erf(y)]), -found);
    }
}

#[test]
fn primitives_agree_with_the_arithmetic_of_the_cpu() {
    type Formula = fn(&[f32]) -> f32;
    let formulas = [
        (Op::Add, (|x| x[0] + x[1]) as Formula),
        (Op::Sub, |x| x[0] - x[1]),
        (Op::Mul, |x| x[0] * x[1]),
        (Op::Div, |x| x[0] / x[1]),
        (Op::Rem, |x| x[0] % x[1]),
        (Op::Neg, |x| -x[0]),
        (Op::Abs, |x| x[0].abs()),
        (Op::Sqrt, |x| x[0].sqrt()),
        (Op::Recip, |x| 1.0 / x[0]),
        (Op::Floor, |x| x[0].floor()),
        (Op::Ceil, |x| x[0].ceil()),
        (Op::Round, |x| x[0].round_ties_even()),
        (Op::Min, |x| extreme(x, Ordering::is_lt)),
        (Op::Max, |x| extreme(x, Ordering::is_gt)),
        (Op::Exp, |x| f64::from(x[0]).exp() as f32),
        (Op::Log, |x| f64::from(x[0]).ln() as f32),
        (Op::Tanh, |x| f64::from(x[0]).tanh() as f32),
        (Op::Pow, |x| f64::from(x[0]).powf(f64::from(x[1])) as f32),
        (Op::RoundF16, |x| half::f16::from_f32(x[0]).to_f32()),
        (Op::RoundBf16, |x| half::bf16::from_f32(x[0]).to_f32()),
        (Op::RoundE4m3, |x| float8::F8E4M3::from_f32(x[0]).to_f32()),
        (Op::RoundE5m2, |x| float8::F8E5M2::from_f32(x[0]).to_f32()),
        (Op::Sign, |x| if x[0].is_nan() { f32::NAN } else { f32::from(i8::from(x[0] > 0.0) - i8::from(x[0] < 0.0)) }),
        (Op::ToF32, |x| x[0]),
        (Op::Tan, |x| f64::from(x[0]).tan() as f32),
        (Op::Asin, |x| f64::from(x[0]).asin() as f32),
        (Op::Acos, |x| f64::from(x[0]).acos() as f32),
        (Op::Atan, |x| f64::from(x[0]).atan() as f32),
        (Op::Atan2, |x| f64::from(x[0]).atan2(f64::from(x[1])) as f32),
        (Op::Sinh, |x| f64::from(x[0]).sinh() as f32),
        (Op::Cosh, |x| f64::from(x[0]).cosh() as f32),
        (Op::Asinh, |x| libm::asinh(f64::from(x[0])) as f32),
        (Op::Acosh, |x| libm::acosh(f64::from(x[0])) as f32),
        (Op::Atanh, |x| libm::atanh(f64::from(x[0])) as f32),
        (Op::Log2, |x| (f64::from(x[0]).ln() / std::f64::consts::LN_2) as f32),
        (Op::Log10, |x| (f64::from(x[0]).ln() / std::f64::consts::LN_10) as f32),
        (Op::Exp10, |x| 10f64.powf(f64::from(x[0])) as f32),
        (Op::Cbrt, |x| f64::from(x[0]).cbrt() as f32),
        (Op::Erfc, |x| libm::erfc(f64::from(x[0])) as f32),
        (Op::Trunc, |x| if x[0].abs() < 1e9 { (x[0] as i64 as f32).copysign(x[0]) } else { x[0] }),
        (Op::Copysign, |x| f32::from_bits(x[0].to_bits() & 0x7fff_ffff | x[1].to_bits() & 0x8000_0000)),
        (Op::Fma, |x| f64::from(x[0]).mul_add(f64::from(x[1]), f64::from(x[2])) as f32),
        (Op::Exp2, |x| 2f64.powf(f64::from(x[0])) as f32),
        (Op::Log1p, |x| libm::log1p(f64::from(x[0])) as f32),
        (Op::Expm1, |x| libm::expm1(f64::from(x[0])) as f32),
        (Op::Rsqrt, |x| f64::from(x[0]).sqrt().recip() as f32),
        (Op::Erf, |x| libm::erf(f64::from(x[0])) as f32),
        (Op::Sin, |x| f64::from(x[0]).sin() as f32),
        (Op::Cos, |x| f64::from(x[0]).cos() as f32),
        (Op::Rcbrt, |x| f64::from(x[0]).cbrt().recip() as f32),
        (Op::Hypot, |x| libm::hypot(f64::from(x[0]), f64::from(x[1])) as f32),
        (Op::Sinpi, |x| half_turns(x[0], f64::sin)),
        (Op::Cospi, |x| half_turns(x[0], f64::cos) + 0.0),
        (Op::Erfinv, |x| inverse_erf(f64::from(x[0])) as f32),
        (Op::Normcdf, |x| (libm::erfc(-f64::from(x[0]) / 2f64.sqrt()) / 2.0) as f32),
        (Op::MinNum, |x| number(x, Ordering::is_lt)),
        (Op::MaxNum, |x| number(x, Ordering::is_gt)),
    ];
    for &op in Op::ALL {
        let signature = op.row().signature;
        let is_float = matches!(signature, Signature::Same { gives: None, takes: [F32, ..], .. });
        assert!(!is_float || formulas.iter().any(|(with, _)| *with == op), "write the formula of `{}` here", op.name());
    }
    for (op, formula) in formulas {
        let operands = vec![F32; op.row().signature.arity()];
        let inputs = combinations(&operands);
        for (i, got) in through_a_graph(op, &operands, F32, &inputs, Precision::F32).into_iter().enumerate() {
            let x: Vec<f32> = inputs.iter().map(|x| x[i] as f32).collect();
            let expected = f64::from(formula(&x));
            assert!(same(got, expected), "{}{x:?} is {got}, not {expected}", op.name());
        }
    }
    type Comparison = fn(f32, f32) -> bool;
    let comparisons: [(Op, Comparison); 6] = [
        (Op::Eq, |a, b| a == b),
        (Op::Ne, |a, b| a != b),
        (Op::Lt, |a, b| a < b),
        (Op::Le, |a, b| a <= b),
        (Op::Gt, |a, b| a > b),
        (Op::Ge, |a, b| a >= b),
    ];
    for (op, compare) in comparisons {
        let inputs = combinations(&[F32; 2]);
        for (i, got) in through_a_graph(op, &[F32; 2], Bool, &inputs, Precision::F32).into_iter().enumerate() {
            let expected = compare(inputs[0][i] as f32, inputs[1][i] as f32);
            assert_eq!(got, f64::from(u8::from(expected)), "{} {} {}", op.name(), inputs[0][i], inputs[1][i]);
        }
    }
}

#[test]
fn integers_wrap_in_either_precision() {
    type Formula = fn(i32, i32) -> i32;
    let formulas = [
        (Op::Add, i32::wrapping_add as Formula),
        (Op::Sub, i32::wrapping_sub),
        (Op::Mul, i32::wrapping_mul),
        (Op::Div, |a, b| if b == 0 { 0 } else { a.wrapping_div(b) }),
        (Op::Rem, |a, b| if b == 0 { 0 } else { a.wrapping_rem(b) }),
        (Op::FloorDiv, |a, b| if b == 0 { 0 } else { (f64::from(a) / f64::from(b)).floor() as i64 as i32 }),
        (Op::FloorMod, |a, b| match b {
            0 => 0,
            b => (i64::from(a) - i64::from(b) * (f64::from(a) / f64::from(b)).floor() as i64) as i32,
        }),
        (Op::And, |a, b| a & b),
        (Op::Or, |a, b| a | b),
        (Op::Xor, |a, b| a ^ b),
        (Op::Shl, |a, b| if b & !31 == 0 { ((i64::from(a) << b) & 0xffff_ffff) as i32 } else { 0 }),
        (Op::Shr, |a, b| if b & !31 == 0 { (i64::from(a) >> b) as i32 } else { -i32::from(a < 0) }),
    ];
    for (op, formula) in formulas {
        let inputs = combinations(&[I32; 2]);
        for precision in [Precision::F32, Precision::F64] {
            for (i, got) in through_a_graph(op, &[I32; 2], I32, &inputs, precision).into_iter().enumerate() {
                let expected = formula(inputs[0][i] as i32, inputs[1][i] as i32);
                assert_eq!(got, f64::from(expected), "{} {} {}", op.name(), inputs[0][i], inputs[1][i]);
            }
        }
    }
}

#[test]
fn values_are_rounded_to_f32_after_every_primitive_and_never_in_the_oracle() {
    let mut points = Points::new(1);
    let (x, big) = (points.load("x", F32, &[1.0]), points.load("big", F32, &[1e8]));
    let sum = points.graph.apply(Op::Add, &[x, big]);
    let back = points.graph.apply(Op::Sub, &[sum, big]);
    let third = points.load("three", F32, &[3.0]);
    let third = points.graph.apply(Op::Recip, &[third]);
    points.store("back", back, DType::F32);
    points.store("third", third, DType::F32);
    assert_eq!(points.run(Precision::F32), [[0.0], [f64::from(1.0f32 / 3.0)]]);
    assert_eq!(points.run(Precision::F64), [[1.0], [f64::from(1.0f32 / 3.0)]]);
    assert_eq!(points.exact(), [[1.0], [1.0 / 3.0]]);
}
