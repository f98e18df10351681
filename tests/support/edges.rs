//! Epilogues with an arm whose derivative is not a number where it is not picked, and their gradients there.
//!
//! In a framework of arrays, `where(x > 0, sqrt(x), 0)` has a NaN for a gradient at 0: 0 times the slope of the arm that was not
//! picked. Include this file with `#[path = "../support/edges.rs"] mod edges;`.

use postlude::Builder;
use postlude::prelude::*;

/// An epilogue, values of its accumulator and of `x`, and the gradients of both for incoming gradients of 1.
#[derive(Clone, Copy)]
pub struct Arm {
    pub name: &'static str,
    pub build: fn(&Builder),
    pub a: &'static [f32],
    /// Empty without `x`.
    pub x: &'static [f32],
    pub acc: &'static [f32],
    pub of_x: &'static [f32],
}

const INF: f32 = f32::INFINITY;

/// Every one.
pub const ALL: &[Arm] = &[
    Arm {
        name: "a square root below zero",
        build: |e| e.store("d", e.acc().gt(0.0).select(e.acc().sqrt(), 0.0), F32),
        a: &[-4.0, -0.0, 0.0, 4.0, -INF, 1e-40],
        x: &[],
        acc: &[0.0, 0.0, 0.0, 0.25, 0.0, 5e19],
        of_x: &[],
    },
    Arm {
        name: "a logarithm below zero",
        build: |e| e.store("d", e.acc().gt(0.0).select(e.acc().log(), e.acc()), F32),
        a: &[-4.0, -0.0, 0.0, 4.0, -INF],
        x: &[],
        acc: &[1.0, 1.0, 1.0, 0.25, 1.0],
        of_x: &[],
    },
    Arm {
        name: "a guarded arm that comes second, and shares its logarithm with a deeper chain",
        build: |e| {
            let x = e.acc();
            let deep = (x.log() * 2.0).exp() + x.log() * x.log();
            e.store("d", x.le(0.0).select(x * 3.0, deep), F32);
        },
        a: &[-1.0, 0.0, 1.0],
        x: &[],
        acc: &[3.0, 3.0, 2.0],
        of_x: &[],
    },
    Arm {
        // 0 * e^200 would be no number.
        name: "overflow behind a minimum",
        build: |e| e.store("d", e.acc().exp().min(1.0), F32),
        a: &[200.0, -1.0, 0.5],
        x: &[],
        acc: &[0.0, 0.367_879_44, 0.0],
        of_x: &[],
    },
    Arm {
        name: "a pole behind a maximum",
        build: |e| e.store("d", e.acc().recip().max(0.0), F32),
        a: &[0.0, -0.0, -2.0],
        x: &[],
        acc: &[-INF, 0.0, 0.0],
        of_x: &[],
    },
    Arm {
        // Rules that mask what comes in pick as the primitives do.
        name: "a pole behind a ReLU",
        build: |e| e.store("d", e.acc().recip().relu(), F32),
        a: &[0.0, -0.0, -2.0, 0.5],
        x: &[],
        acc: &[-INF, 0.0, 0.0, -4.0],
        of_x: &[],
    },
    Arm {
        name: "overflow behind activations that clamp, and a square",
        build: |e| {
            let x = e.acc();
            e.store("d", x.exp().relu6() + (x * 2.0).exp().hardtanh() + (-x).exp().hardsigmoid() + x.log().relu_squared(), F32);
        },
        a: &[200.0, -200.0],
        x: &[],
        acc: &[0.052_983_17, 0.0],
        of_x: &[],
    },
    Arm {
        // The square root of -1 is what was picked in the last column.
        name: "nested arms and an operand of both",
        build: |e| {
            let (z, x) = (e.acc(), e.load("x", F32));
            let inner = x.gt(0.0).select(z / x, z * x);
            e.store("d", z.gt(0.0).select(inner, x.sqrt()), F32);
        },
        a: &[1.0, 1.0, -1.0, -1.0],
        x: &[2.0, 0.0, 4.0, -1.0],
        acc: &[0.5, 0.0, 0.0, 0.0],
        of_x: &[-0.25, 1.0, 0.25, f32::NAN],
    },
    Arm {
        // Column 0 would divide by zero, column 1 does.
        name: "a positional arm",
        build: |e| {
            let (z, x) = (e.acc(), e.load("x", F32));
            e.store("d", e.column().eq(0).select(z * x, z / x), F32);
        },
        a: &[3.0, 3.0],
        x: &[0.0, 2.0],
        acc: &[0.0, 0.5],
        of_x: &[3.0, -0.75],
    },
    Arm {
        // The sum of -0 and 0 is 0: a value of the forward pass that is computed again keeps its bits.
        name: "a pole on one side of zero",
        build: |e| e.store("d", e.acc() * (1.0 / (e.load("x", F32) + 0.0)), F32),
        a: &[1.0],
        x: &[-0.0],
        acc: &[INF],
        of_x: &[-INF],
    },
    Arm {
        // The quotient, rounded, lies below 3 in the first column.
        name: "a remainder, whose divisor has a whole number for a slope",
        build: |e| e.store("d", e.acc() % e.load("x", F32), F32),
        a: &[5.929_950_7, 7.0],
        x: &[1.893_317, 2.0],
        acc: &[1.0, 1.0],
        of_x: &[-3.0, -3.0],
    },
    Arm {
        name: "a minimum, which sends ties to its second operand",
        build: |e| e.store("d", e.acc().min(e.load("x", F32)), F32),
        a: &[1.0, 2.0, 3.0],
        x: &[2.0, 2.0, 2.0],
        acc: &[1.0, 0.0, 0.0],
        of_x: &[0.0, 1.0, 1.0],
    },
    Arm {
        name: "ReLU at zeros and at no number",
        build: |e| e.store("d", e.acc().relu(), F32),
        a: &[0.0, -0.0, f32::NAN, 1.0],
        x: &[],
        acc: &[0.0, 0.0, 0.0, 1.0],
        of_x: &[],
    },
];

/// Whether values are the expected ones, except for a few roundings.
pub fn agree(found: &[f32], expected: &[f32]) -> bool {
    let near = |x: f32, y: f32| x == y || x.is_nan() && y.is_nan() || (x - y).abs() <= 2e-5 * y.abs() && y.is_finite();
    found.len() == expected.len() && found.iter().zip(expected).all(|(x, y)| near(*x, *y))
}
