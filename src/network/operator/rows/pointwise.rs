//! Pointwise operators: an expression of the epilogue language each.

use super::super::pointwise::{Gives, Operands, Spread};
use super::super::{ANY, Operator, typing};
use crate::build::Expr;
use crate::dtype::DType::{self, F32, I32};
use crate::network::attribute::{AttributeType::*, Attributes};
use crate::network::format::Format;
use crate::network::grad::rules;
use crate::network::meaning::convert;

const fn row(name: &'static str, doc: &'static str, inputs: usize, body: super::super::RowBody) -> Operator {
    Operator::pointwise(name, doc, inputs, body)
}

/// The operands' combination from left to right.
fn folded<'g>(s: &Operands<'g, '_>, with: impl Fn(Expr<'g>, Expr<'g>) -> Expr<'g>) -> Expr<'g> {
    s.all().reduce(with).unwrap_or_else(|| s.constant(0.0))
}

fn divided(x: &[i128]) -> Option<i128> {
    Some(x[0].checked_div(x[1]).unwrap_or(0))
}

fn modulo(x: &[i128], attributes: &Attributes) -> Option<i128> {
    if x[1] == 0 {
        return Some(0);
    }
    let rest = x[0] % x[1];
    let moves = !attributes.flag("fmod") && rest != 0 && (rest < 0) != (x[1] < 0);
    Some(if moves { rest + x[1] } else { rest })
}

fn shifted(x: &[i128], attributes: &Attributes) -> Option<i128> {
    let by = u32::try_from(x[1]).ok().filter(|by| *by < 64);
    Some(by.map_or(0, |by| if attributes.text_or("direction", "LEFT") == "RIGHT" { x[0] >> by } else { x[0] << by }))
}

/// x to a whole power, wrapping.
fn power(x: &[i128]) -> Option<i128> {
    let exponent = u32::try_from(x[1]).ok()?;
    Some(x[0].wrapping_pow(exponent))
}

/// The format of the result as a kernel casts to it.
fn target(s: &Operands<'_, '_>) -> DType {
    s.to.dtype().unwrap_or(F32)
}

fn cast<'g>(s: &Operands<'g, '_>) -> Expr<'g> {
    let to = target(s);
    // A condition is a number first.
    let x = if s.from == Format::Bool && !matches!(to, DType::Bool) { s.x(0).cast(I32) } else { s.x(0) };
    x.cast(to)
}

fn pow<'g>(s: &Operands<'g, '_>) -> Expr<'g> {
    let of = if s.from == Format::F64 { DType::F64 } else { F32 };
    let power = s.x(0).cast(of).pow(s.x(1).cast(of));
    if s.from.is_float() { power } else { power.cast(I32) }
}

fn selu<'g>(s: &Operands<'g, '_>) -> Expr<'g> {
    s.x(0).elu(s.float("alpha", 1.673_263_2)) * s.float("gamma", 1.050_701)
}

fn clip<'g>(s: &Operands<'g, '_>) -> Expr<'g> {
    let low = s.get(1).map_or(s.x(0), |low| s.x(0).max(low));
    s.get(2).map_or(low, |high| low.min(high))
}

fn is_infinite<'g>(s: &Operands<'g, '_>) -> Expr<'g> {
    let below = s.attributes.int_or("detect_negative", 1) != 0;
    let above = s.attributes.int_or("detect_positive", 1) != 0;
    let x = s.x(0);
    match (below, above) {
        (true, true) => x.is_infinite(),
        (true, false) => x.is_infinite() & x.lt(0.0),
        (false, true) => x.is_infinite() & x.gt(0.0),
        (false, false) => x.is_infinite() & false,
    }
}

fn gelu<'g>(s: &Operands<'g, '_>) -> Expr<'g> {
    if s.attributes.text_or("approximate", "none") == "tanh" { s.x(0).gelu_tanh() } else { s.x(0).gelu() }
}

fn batch_norm<'g>(s: &Operands<'g, '_>) -> Expr<'g> {
    // In `f32`, unless all of it is `f64`.
    let scale = s.x(1) * (s.x(4) + s.float("epsilon", 1e-5)).rsqrt();
    (s.x(0) - s.x(3)) * scale + s.x(2)
}

/// (x0 with x1) of x of whole numbers as a condition.
macro_rules! compare {
    ($name:literal, $doc:literal, $method:ident, $sign:tt) => {
        row($name, $doc, 2, |s| s.x(0).$method(s.x(1))).gives(Gives::Condition).whole(|x, _, _| Some((x[0] $sign x[1]).into()))
    };
}

pub(super) static ROWS: &[Operator] = &[
    row("Abs", "|x|.", 1, |s| s.x(0).abs()).whole(|x, _, _| Some(x[0].abs())),
    row("Neg", "x with the other sign.", 1, |s| -s.x(0)).whole(|x, _, _| Some(-x[0])),
    row("Sign", "-1, 0 or 1, as x is negative, zero or positive.", 1, |s| s.x(0).sign()).whole(|x, _, _| Some(x[0].signum())),
    row("Floor", "The largest whole number up to x.", 1, |s| s.x(0).floor()),
    row("Ceil", "The smallest whole number from x on.", 1, |s| s.x(0).ceil()),
    row("Round", "The nearest whole number, ties to even.", 1, |s| s.x(0).round()),
    row("Reciprocal", "1 / x.", 1, |s| s.x(0).recip()),
    row("Sqrt", "The square root.", 1, |s| s.x(0).sqrt()),
    row("Exp", "e^x.", 1, |s| s.x(0).exp()),
    row("Log", "The natural logarithm.", 1, |s| s.x(0).log()),
    row("Erf", "The error function.", 1, |s| s.x(0).erf()),
    row("Sin", "Sine.", 1, |s| s.x(0).sin()),
    row("Cos", "Cosine.", 1, |s| s.x(0).cos()),
    row("Tan", "Tangent.", 1, |s| s.x(0).tan()),
    row("Asin", "Arcsine.", 1, |s| s.x(0).asin()),
    row("Acos", "Arccosine.", 1, |s| s.x(0).acos()),
    row("Atan", "Arctangent.", 1, |s| s.x(0).atan()),
    row("Sinh", "Hyperbolic sine.", 1, |s| s.x(0).sinh()),
    row("Cosh", "Hyperbolic cosine.", 1, |s| s.x(0).cosh()),
    row("Tanh", "Hyperbolic tangent.", 1, |s| s.x(0).tanh()),
    row("Asinh", "Inverse hyperbolic sine.", 1, |s| s.x(0).asinh()),
    row("Acosh", "Inverse hyperbolic cosine.", 1, |s| s.x(0).acosh()),
    row("Atanh", "Inverse hyperbolic tangent.", 1, |s| s.x(0).atanh()),
    row("Relu", "max(x, 0).", 1, |s| s.x(0).relu()).whole(|x, _, _| Some(x[0].max(0))),
    row("Sigmoid", "1 / (1 + e^-x).", 1, |s| s.x(0).sigmoid()),
    row("Softplus", "log(1 + e^x).", 1, |s| s.x(0).softplus(1.0)),
    row("Softsign", "x / (1 + |x|).", 1, |s| s.x(0).softsign()),
    row("Mish", "x * tanh(softplus(x)).", 1, |s| s.x(0).mish()),
    row("HardSwish", "x * max(0, min(1, x / 6 + 1 / 2)).", 1, |s| s.x(0).hardswish()),
    row("HardSigmoid", "alpha x + beta within 0 and 1.", 1, |s| {
        s.x(0).hardsigmoid_with(s.float("alpha", 0.2), s.float("beta", 0.5))
    })
    .with(&[("alpha", Float), ("beta", Float)]),
    row("Gelu", "x times the cumulative normal distribution, or its approximation by tanh.", 1, gelu)
        .with(&[("approximate", Text)]),
    row("Elu", "x where x > 0, else alpha (e^x - 1).", 1, |s| s.x(0).elu(s.float("alpha", 1.0))).with(&[("alpha", Float)]),
    row("Selu", "gamma times the ELU.", 1, selu).with(&[("alpha", Float), ("gamma", Float)]),
    row("Celu", "x where x > 0, else alpha (e^(x / alpha) - 1).", 1, |s| s.x(0).celu(s.float("alpha", 1.0)))
        .with(&[("alpha", Float)]),
    row("LeakyRelu", "x where x > 0, else alpha x.", 1, |s| s.x(0).leaky_relu(s.float("alpha", 0.01))).with(&[("alpha", Float)]),
    row("ThresholdedRelu", "x where x > alpha, else 0.", 1, |s| s.x(0).thresholded_relu(s.float("alpha", 1.0)))
        .with(&[("alpha", Float)]),
    row("Shrink", "0 near 0, and nearer to 0 by the bias elsewhere.", 1, |s| {
        s.x(0).shrink(s.float("bias", 0.0), s.float("lambd", 0.5))
    })
    .with(&[("bias", Float), ("lambd", Float)]),
    row("Swish", "x * sigmoid(alpha x).", 1, |s| s.x(0).swish_beta(s.float("alpha", 1.0))).with(&[("alpha", Float)]),
    row("PRelu", "x where x > 0, else slope x.", 2, |s| s.x(0).prelu(s.x(1)))
        .whole(|x, _, _| Some(if x[0] > 0 { x[0] } else { x[0] * x[1] })),
    row("Clip", "x within two bounds, each of which may be left out; the upper one wins.", 1, clip)
        .inputs(1, 3)
        .whole(|_, _, _| None)
        .means(convert::clip),
    row("Not", "Whether x is false.", 1, |s| !s.x(0)),
    row("And", "Whether both are true.", 2, |s| s.x(0) & s.x(1)),
    row("Or", "Whether either is true.", 2, |s| s.x(0) | s.x(1)),
    row("Xor", "Whether one of both is true.", 2, |s| s.x(0) ^ s.x(1)),
    row("BitwiseNot", "Every bit turned over.", 1, |s| !s.x(0)).whole(|x, _, _| Some(!x[0])),
    row("BitwiseAnd", "The bits of both.", 2, |s| s.x(0) & s.x(1)).whole(|x, _, _| Some(x[0] & x[1])),
    row("BitwiseOr", "The bits of either.", 2, |s| s.x(0) | s.x(1)).whole(|x, _, _| Some(x[0] | x[1])),
    row("BitwiseXor", "The bits of one of both.", 2, |s| s.x(0) ^ s.x(1)).whole(|x, _, _| Some(x[0] ^ x[1])),
    row("BitShift", "Bits moved towards the attribute `direction`.", 2, |s| {
        if s.attributes.text_or("direction", "LEFT") == "RIGHT" { s.x(0) >> s.x(1) } else { s.x(0) << s.x(1) }
    })
    .with(&[("direction", Text)])
    .whole(|x, a, _| shifted(x, a)),
    row("IsNaN", "Whether x is not a number.", 1, |s| s.x(0).is_nan()).gives(Gives::Condition),
    row("IsInf", "Whether x is infinite.", 1, is_infinite)
        .with(&[("detect_negative", Int), ("detect_positive", Int)])
        .gives(Gives::Condition),
    row("Add", "a + b.", 2, |s| s.x(0) + s.x(1)).whole(|x, _, _| Some(x[0] + x[1])),
    row("Sub", "a - b.", 2, |s| s.x(0) - s.x(1)).whole(|x, _, _| Some(x[0] - x[1])),
    row("Mul", "a * b.", 2, |s| s.x(0) * s.x(1)).whole(|x, _, _| Some(x[0].wrapping_mul(x[1]))),
    row("Div", "a / b; integers towards zero, and 0 over 0.", 2, |s| s.x(0) / s.x(1)).whole(|x, _, _| divided(x)),
    row("Mod", "The rest of a / b: with the sign of b, or of a where `fmod` is set.", 2, |s| {
        if s.attributes.flag("fmod") || s.from.is_float() { s.x(0) % s.x(1) } else { s.x(0).floor_mod(s.x(1)) }
    })
    .with(&[("fmod", Int)])
    .whole(|x, a, _| modulo(x, a)),
    row("Pow", "a to the power b, in a's format.", 2, pow).gives(Gives::Like(0)).whole(|x, _, _| power(x)).means(convert::pow),
    row("Sum", "The sum of all.", 1, |s| folded(s, |a, b| a + b)).inputs(1, ANY).whole(|x, _, _| Some(x.iter().sum())),
    row("Mean", "The mean of all.", 1, |s| folded(s, |a, b| a + b) * (1.0 / s.all().count() as f64)).inputs(1, ANY),
    row("Max", "The largest of all.", 1, |s| folded(s, |a, b| a.max(b))).inputs(1, ANY).whole(|x, _, _| x.iter().copied().max()),
    row("Min", "The smallest of all.", 1, |s| folded(s, |a, b| a.min(b))).inputs(1, ANY).whole(|x, _, _| x.iter().copied().min()),
    compare!("Less", "Whether a < b.", lt, <),
    compare!("LessOrEqual", "Whether a <= b.", le, <=),
    compare!("Greater", "Whether a > b.", gt, >),
    compare!("GreaterOrEqual", "Whether a >= b.", ge, >=),
    compare!("Equal", "Whether both are equal.", eq, ==),
    row("Where", "The second where the first is true, else the third.", 3, |s| s.x(0).select(s.x(1), s.x(2)))
        .gives(Gives::Shared(1))
        .whole(|x, _, _| Some(if x[0] != 0 { x[1] } else { x[2] })),
    row("Cast", "x in the format `to`.", 1, cast)
        .with(&[("to", Text), ("saturate", Int)])
        .gives(Gives::Named)
        .whole(|x, _, _| Some(x[0]))
        .means(convert::cast)
        .gradient_by(rules::cast),
    row("CastLike", "x in the second's format.", 2, cast)
        .with(&[("saturate", Int)])
        .gives(Gives::Like(1))
        .typed(typing::cast_like)
        .means(convert::cast)
        .gradient_by(rules::cast),
    row("Dropout", "x itself, as in inference, with a mask of ones.", 1, |s| s.x(0))
        .inputs(1, 3)
        .outputs(1, 2)
        .with(&[("seed", Int)])
        .gives(Gives::Like(0))
        .whole(|x, _, _| Some(x[0]))
        .means(convert::dropout)
        .gradient_by(rules::identity),
    row("BatchNormalization", "Centred by the running mean and scaled, for each channel, as in inference.", 5, batch_norm)
        .with(&[("epsilon", Float), ("momentum", Float), ("training_mode", Int)])
        .gives(Gives::Like(0))
        .spread(Spread::Channel)
        .means(convert::batch_norm)
        .gradient_by(rules::batch_norm),
    row("QuantizeLinear", "The nearest of x / scale + zero point in a format of eight bits.", 2, |s| {
        let zero = s.get(2).unwrap_or_else(|| s.builder.constant(0.0));
        s.x(0).quantize(target(s), s.x(1), zero)
    })
    .inputs(2, 3)
    .with(&[("axis", Int), ("saturate", Int), ("block_size", Int), ("output_dtype", Text)])
    .gives(Gives::QuantizedLike(2))
    .spread(Spread::Axis)
    .typed(typing::quantize)
    .means(convert::quantize)
    .gradient_by(rules::quantize),
    row("DequantizeLinear", "(x - zero point) * scale.", 2, |s| {
        let zero = s.get(2).unwrap_or_else(|| s.builder.constant(0.0));
        s.x(0).dequantize(s.x(1), zero)
    })
    .inputs(2, 3)
    .with(&[("axis", Int), ("block_size", Int), ("output_dtype", Text)])
    .gives(Gives::Like(1))
    .spread(Spread::Axis)
    .typed(typing::dequantize)
    .means(convert::dequantize)
    .gradient_by(rules::dequantize),
];
