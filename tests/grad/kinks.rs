//! Near kinks a gradient is as near to the true one as elsewhere: the backward pass follows the decisions of the forward pass.

use crate::problem::Numbers;
use postlude::grad::Wrt;
use postlude::prelude::*;
use postlude::reference::{Precision, run};
use postlude::{DType, HostArgs, Operation};

const COUNT: usize = 4000;
const SHAPE: Shape = Shape::new(1, COUNT, 0);
const POINTWISE: Operation = Operation::Pointwise { dtype: F32, order: Order::RowMajor };

/// A function of the accumulator, where it has kinks or jumps, and its derivative, written out.
struct Kinked {
    name: &'static str,
    build: fn(Expr<'_>) -> Expr<'_>,
    kinks: &'static [f32],
    slope: fn(f64) -> f64,
}

const fn kinked(name: &'static str, build: fn(Expr<'_>) -> Expr<'_>, kinks: &'static [f32], slope: fn(f64) -> f64) -> Kinked {
    Kinked { name, build, kinks, slope }
}

fn f(x: f32) -> f64 {
    f64::from(x)
}

fn within(x: f64, low: f32, high: f32) -> f64 {
    f64::from(u8::from(x > f(low) && x < f(high)))
}

const SELU: [f64; 2] = [1.050_701, 1.673_263_2];

const ALL: &[Kinked] = &[
    kinked("relu", |z| z.relu(), &[0.0], |x| if x > 0.0 { 1.0 } else { 0.0 }),
    kinked("relu6", |z| z.relu6(), &[0.0, 6.0], |x| within(x, 0.0, 6.0)),
    kinked("hardtanh", |z| z.hardtanh(), &[-1.0, 1.0], |x| within(x, -1.0, 1.0)),
    kinked("clamp", |z| z.clamp(-0.7, 0.9), &[-0.7, 0.9], |x| if x >= f(-0.7) && x <= f(0.9) { 1.0 } else { 0.0 }),
    kinked("leaky_relu", |z| z.leaky_relu(0.1), &[0.0], |x| if x > 0.0 { 1.0 } else { f(0.1) }),
    kinked("prelu, squared", |z| z.prelu(0.25) * z.prelu(0.25), &[0.0], |x| if x > 0.0 { 2.0 * x } else { x / 8.0 }),
    kinked("elu", |z| z.elu(0.5), &[0.0], |x| if x > 0.0 { 1.0 } else { 0.5 * x.exp() }),
    kinked("selu", |z| z.selu(), &[0.0], |x| SELU[0] * if x > 0.0 { 1.0 } else { SELU[1] * x.exp() }),
    kinked("celu", |z| z.celu(0.7), &[0.0], |x| if x > 0.0 { 1.0 } else { (x / f(0.7)).exp() }),
    kinked("hardsigmoid", |z| z.hardsigmoid(), &[-3.0, 3.0], |x| within(x, -3.0, 3.0) / 6.0),
    kinked(
        "hardswish",
        |z| z.hardswish(),
        &[-3.0, 3.0],
        |x| {
            if x <= -3.0 {
                0.0
            } else if x < 3.0 {
                x / 3.0 + 0.5
            } else {
                1.0
            }
        },
    ),
    kinked(
        "hardswish by hand",
        |z| z * z.hardsigmoid(),
        &[-3.0, 3.0],
        |x| {
            if x <= -3.0 {
                0.0
            } else if x < 3.0 {
                x / 3.0 + 0.5
            } else {
                1.0
            }
        },
    ),
    kinked("relu_squared", |z| z.relu_squared(), &[0.0], |x| 2.0 * x.max(0.0)),
    kinked("softshrink", |z| z.softshrink(0.3), &[-0.3, 0.3], |x| 1.0 - within(x, -0.3, 0.3)),
    kinked("threshold", |z| z.threshold(0.3, -1.0), &[0.3], |x| if x > f(0.3) { 1.0 } else { 0.0 }),
    kinked("softsign", |z| z.softsign(), &[0.0], |x| (1.0 + x.abs()).powi(-2)),
    kinked("abs", |z| z.abs(), &[0.0], |x| x.signum()),
    kinked(
        "abs of a difference, times it",
        |z| (z - 0.3).abs() * z,
        &[0.3],
        |x| {
            let y = x - f(0.3);
            y.abs() + x * y.signum()
        },
    ),
    kinked("the larger of two values", |z| z.max(z * z), &[0.0, 1.0], |x| if x > f(x as f32 * x as f32) { 1.0 } else { 2.0 * x }),
    kinked(
        "the smaller of two values",
        |z| z.min(z * z),
        &[0.0, 1.0],
        |x| if x < f(x as f32 * x as f32) { 1.0 } else { 2.0 * x },
    ),
    kinked("a select", |z| z.gt(0.3).select(z * z, z.exp()), &[0.3], |x| if x > f(0.3) { 2.0 * x } else { x.exp() }),
    kinked(
        "a select by two values",
        |z| (z * z).lt(0.49).select(z * z, z),
        &[-0.7, 0.7],
        |x| {
            if x as f32 * (x as f32) < 0.49 { 2.0 * x } else { 1.0 }
        },
    ),
    kinked("a remainder", |z| (z % 0.7) * z, &[-0.7, 0.7, 1.4], |x| x + x % f(0.7)),
    kinked("a floor", |z| z.floor() * z, &[-1.0, 1.0, 2.0], f64::floor),
    kinked("a ceiling", |z| z.ceil() * z, &[-1.0, 1.0, 2.0], f64::ceil),
    kinked("a rounding", |z| z.round() * z, &[-0.5, 0.5, 1.5], f64::round_ties_even),
    kinked("a truncation", |z| z.cast(I32).cast(F32) * z, &[-1.0, 1.0, 2.0], f64::trunc),
    kinked("a rounding as a condition", |z| z.round().gt(0.0).select(z * 3.0, z), &[0.5], |x| if x > 0.5 { 3.0 } else { 1.0 }),
];

/// Numbers near `kinks`, some a few roundings away and some more, beside 0 down to `2^-(8 + deepest)`; or everywhere else.
fn inputs(kinks: &[f32], near: bool, deepest: u64) -> Vec<f32> {
    let mut numbers = Numbers(7);
    let mut next = || {
        let kink = kinks[numbers.bits() as usize % kinks.len()];
        let sign = if numbers.bits().is_multiple_of(2) { 1.0 } else { -1.0 };
        let digits = 1.0 + (numbers.bits() % 4096) as f32 / 4096.0;
        // Beside 0 a number is rounded to 0 only where it is far below the smallest of f16.
        let (nearest, steps) = if near { (8, if kink == 0.0 { deepest } else { 13 }) } else { (1, 3) };
        kink + sign * digits * 0.5f32.powi(nearest + (numbers.bits() % steps) as i32)
    };
    let far = |x: &f32| near || kinks.iter().all(|k| (x - k).abs() > 0.05);
    std::iter::repeat_with(&mut next).filter(far).take(COUNT).collect()
}

/// How far the gradient of a function is from the true one in the Frobenius norm, as a part of it; values are saved as
/// `wrt` says.
fn error(Kinked { build, slope, .. }: &Kinked, x: &[f32], dtype: DType, wrt: Wrt) -> f64 {
    let pair = Epilogue::build(|e| e.store("d", build(e.acc()), dtype)).unwrap().backward(wrt.format("acc", F32)).unwrap();
    let mut reserve = pair.reserve().allocate(SHAPE);
    let mut stored = vec![0u8; dtype.bytes(COUNT)];
    let args = HostArgs::new().input("a", x).output("d", postlude::Tensor::of_bytes_mut(dtype, &mut stored));
    run(POINTWISE, pair.forward().checked(), SHAPE, args.saving(&mut reserve), Precision::F32).unwrap();
    let upstream: Vec<f32> = (0..COUNT).map(|i| if i % 2 == 0 { 1.0 } else { -0.75 }).collect();
    let mut dz = vec![0.0f32; COUNT];
    let mut args = HostArgs::new().input("a", &upstream).output("grad_acc", &mut dz).saved(&reserve);
    if pair.backward().arguments().iter().any(|a| &*a.name == "d") {
        args = args.input("d", postlude::Tensor::of_bytes(dtype, &stored));
    }
    run(POINTWISE, pair.backward().checked(), SHAPE, args, Precision::F32).unwrap();
    let (mut off, mut whole) = (0.0, 0.0);
    for i in 0..COUNT {
        let exact = f(upstream[i]) * slope(f(x[i]));
        off += (f(dz[i]) - exact).powi(2);
        whole += exact.powi(2);
    }
    (off / whole.max(f64::MIN_POSITIVE)).sqrt()
}

/// Half of a rounding is 2^-12 and 2^-9; a derivative may be made of a few.
fn bar(dtype: DType) -> f64 {
    if dtype == F16 { 0.5f64.powi(10) } else { 0.5f64.powi(7) }
}

#[test]
fn gradients_near_them_are_as_exact_as_elsewhere() {
    let mut faults = Vec::new();
    for function in ALL {
        for dtype in [F16, BF16] {
            for near in [false, true] {
                let off = error(function, &inputs(function.kinks, near, 33), dtype, Wrt::all());
                if off.is_nan() || off > bar(dtype) {
                    faults.push(format!("{} in {dtype}, near kinks: {near}: off by {off:.2e}", function.name));
                }
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn also_where_the_output_is_kept() {
    let mut faults = Vec::new();
    let functions = ALL.iter().filter(|f| ["relu", "relu6", "hardtanh", "elu", "selu", "celu"].contains(&f.name));
    for function in functions {
        for dtype in [F16, BF16] {
            let off = error(function, &inputs(function.kinks, true, 13), dtype, Wrt::all().keeps("d"));
            if off.is_nan() || off > bar(dtype) {
                faults.push(format!("{} in {dtype}: off by {off:.2e}", function.name));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// The bits of the saved number and those of the conditions on it.
#[test]
fn a_condition_takes_a_bit_beside_the_number_that_it_is_of() {
    let bits = |build: fn(Expr<'_>) -> Expr<'_>, wrt: Wrt| {
        Epilogue::build(|e| e.store("d", build(e.acc()), F16)).unwrap().backward(wrt).unwrap().reserve().bits_per_element()
    };
    assert_eq!(bits(|z| z.gt(0.3).select(z * z, z), Wrt::all()), 17);
    assert_eq!(bits(|z| z.abs(), Wrt::all()), 2);
    // In f32 the number tells, unless something is computed in between that may have another last bit.
    assert_eq!(bits(|z| z.gt(0.3).select(z * z, z), Wrt::all().exact()), 32);
    assert_eq!(bits(|z| (z + 1.0).gt(0.3).select(z * z, z), Wrt::all().exact()), 33);
    // An integer and what follows from it are exact.
    let integers = Epilogue::build(|e| {
        let z = e.acc_i32();
        let even = (z % 2).eq(0);
        let x = z.cast(F32) * e.load("scale", F32.over(N));
        e.store("d", even.select(x * x, x), F16);
    });
    assert_eq!(integers.unwrap().backward(Wrt::arguments(["scale"])).unwrap().reserve().bits_per_element(), 32);
    // The user may want it computed again.
    let mut condition = None;
    let epilogue = Epilogue::build(|e| {
        let c = e.acc().gt(0.3);
        condition = Some(c.id());
        e.store("d", c.select(e.acc() * e.acc(), e.acc()), F16);
    });
    let wrt = Wrt::all().pin(condition.unwrap(), postlude::grad::Keep::Recompute);
    assert_eq!(epilogue.unwrap().backward(wrt).unwrap().reserve().bits_per_element(), 16);
}

/// A whole epilogue, and gradients that are sums of what cancels.
#[test]
fn sums_of_gradients_that_cancel_follow_the_decisions() {
    for dtype in [F16, BF16] {
        let epilogue = Epilogue::build(|e| {
            let z = e.acc() * e.scalar("alpha", F32) + e.load("c", F32) * e.scalar("beta", F32);
            e.store("d", z.clamp(-0.5, 0.75) * e.load("row_scale", F32.over(M)), dtype);
        });
        let wrt = Wrt::all().format("acc", F32);
        let pair = epilogue.unwrap().backward(wrt).unwrap();
        assert_eq!(pair.reserve().bits_per_element(), 16 + 1, "{}", pair.reserve().explain(SHAPE));
        let (alpha, beta, scale) = (0.625f32, 0.5f32, [0.875f32]);
        let (a, c) = (inputs(&[-0.8, 1.2], true, 13), inputs(&[0.0], true, 13));
        let upstream: Vec<f32> = (0..COUNT).map(|i| if i % 2 == 0 { 1.0 } else { -1.0 }).collect();
        let inside: Vec<f64> = (0..COUNT)
            .map(|i| {
                let z = a[i] * alpha + c[i] * beta;
                if (-0.5..=0.75).contains(&z) { f(upstream[i]) * f(scale[0]) } else { 0.0 }
            })
            .collect();
        let (mut reserve, mut stored) = (pair.reserve().allocate(SHAPE), vec![0u8; dtype.bytes(COUNT)]);
        let args = HostArgs::new().input("a", &a).input("c", &c).input("row_scale", &scale).scalar("alpha", alpha);
        let args = args.scalar("beta", beta).output("d", postlude::Tensor::of_bytes_mut(dtype, &mut stored)).saving(&mut reserve);
        run(POINTWISE, pair.forward().checked(), SHAPE, args, Precision::F32).unwrap();
        let (mut of_acc, mut of_c) = (vec![0.0f32; COUNT], vec![0.0f32; COUNT]);
        let (mut of_alpha, mut of_beta, mut of_scale) = ([0.0f32], [0.0f32], [0.0f32]);
        let args = HostArgs::new().input("a", &upstream).input("c", &c).input("row_scale", &scale).scalar("alpha", alpha);
        let args = args.scalar("beta", beta).output("grad_acc", &mut of_acc).output("grad_c", &mut of_c).saved(&reserve);
        let args =
            args.output("grad_alpha", &mut of_alpha).output("grad_beta", &mut of_beta).output("grad_row_scale", &mut of_scale);
        run(POINTWISE, pair.backward().checked(), SHAPE, args, Precision::F32).unwrap();
        for i in 0..COUNT {
            assert_eq!(f(of_acc[i]), inside[i] * f(alpha), "{dtype} {i}");
            assert_eq!(f(of_c[i]), inside[i] * f(beta), "{dtype} {i}");
        }
        let exact = inside.iter().zip(&c).map(|(g, c)| g * f(*c));
        let (sum, size) = exact.fold((0.0, 0.0), |(sum, size), x| (sum + x, size + x.abs()));
        assert!((f(of_beta[0]) - sum).abs() <= 1e-5 * size, "{dtype}: {} for {sum} of {size}", of_beta[0]);
    }
}
