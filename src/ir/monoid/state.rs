//! States of rows of the table on the CPU, and how they are combined.

use crate::dtype::ValueType::{self, Bool, F32, F64, I32};

/// The state of a row on the CPU: up to four numbers.
pub type State = [f64; 4];

/// A state of one number.
pub(super) const fn one(x: f64) -> State {
    two(x, 0.0)
}

/// A state of two numbers.
pub(super) const fn two(x: f64, y: f64) -> State {
    [x, y, 0.0, 0.0]
}

/// The larger, or NaN if either is. +0 is larger than -0, as on a GPU; `f64::max` does not specify that.
pub(in crate::ir) fn larger(a: f64, b: f64) -> f64 {
    if a.is_nan() || b.is_nan() {
        f64::NAN
    } else if a > b || (a == b && b.is_sign_negative()) {
        a
    } else {
        b
    }
}

/// The smaller, or NaN if either is. -0 is smaller than +0.
pub(in crate::ir) fn smaller(a: f64, b: f64) -> f64 {
    -larger(-a, -b)
}

/// The index in the identity state. No element of a tensor has it.
pub(super) const NOWHERE: f64 = i32::MAX as f64;

/// The better of two values with its index. NaN precedes any number, and the smaller index wins among equals.
pub(super) fn ahead(a: State, b: State, before: fn(f64, f64) -> bool) -> State {
    let [x, y] = [a[0], b[0]];
    let equal = x == y || x.is_nan() && y.is_nan();
    let second = if equal { b[1] < a[1] } else { !x.is_nan() && (y.is_nan() || before(y, x)) };
    if second { b } else { a }
}

/// The index in the state, or -1 if there were no elements.
pub(super) fn index(state: State, count: f64) -> f64 {
    if count == 0.0 { -1.0 } else { state[1] }
}

/// The count, the sum, and the squared distances from the mean of two sets of elements (Chan et al. 1979).
pub(super) fn moments(a: State, b: State) -> State {
    let (counts, distance) = (a[0] * b[0], b[1] / b[0] - a[1] / a[0]);
    let between = if counts == 0.0 { 0.0 } else { distance * distance * counts / (a[0] + b[0]) };
    [a[0] + b[0], a[1] + b[1], a[2] + b[2] + between, 0.0]
}

/// The least value of a type.
pub(super) const fn least(value: ValueType) -> f64 {
    match value {
        F32 | F64 => f64::NEG_INFINITY,
        I32 => i32::MIN as f64,
        Bool => 0.0,
    }
}

/// The greatest value of a type.
pub(super) const fn greatest(value: ValueType) -> f64 {
    match value {
        F32 | F64 => f64::INFINITY,
        I32 => i32::MAX as f64,
        Bool => 1.0,
    }
}
