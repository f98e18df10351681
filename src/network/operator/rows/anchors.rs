//! Products.

use super::super::{ANY, Anchor, Kind, Operator, gradients, typing, wide};
use crate::network::attribute::AttributeType::*;
use crate::network::grad::rules;
use crate::network::meaning::{attention, convolve, product};
use crate::problem::GradientOf;

const CONV: &[(&str, crate::network::attribute::AttributeType)] =
    &[("auto_pad", Text), ("dilations", Ints), ("group", Int), ("kernel_shape", Ints), ("pads", Ints), ("strides", Ints)];

/// Those of a convolution, and the extents of its images, which strides do not say.
const CONV_GRADIENT: &[(&str, crate::network::attribute::AttributeType)] = &[
    ("auto_pad", Text),
    ("dilations", Ints),
    ("group", Int),
    ("image_shape", Ints),
    ("kernel_shape", Ints),
    ("pads", Ints),
    ("strides", Ints),
];

const fn row(
    name: &'static str,
    doc: &'static str,
    inputs: (usize, usize),
    anchor: Anchor,
    rules: (super::super::Typing, super::super::Meaning),
) -> Operator {
    Operator::new(name, doc, inputs, Kind::Anchor(anchor), rules.0, rules.1)
}

pub(super) static ROWS: &[Operator] = &[
    row("MatMul", "The matrix product, as NumPy's matmul.", (2, 2), Anchor::MatMul, (typing::matmul, product::matmul))
        .gradient_by(rules::matmul),
    row("Gemm", "alpha A' B' + beta C, where a mark transposes on demand.", (2, 3), Anchor::Gemm, (typing::gemm, product::gemm))
        .with(&[("alpha", Float), ("beta", Float), ("transA", Int), ("transB", Int)])
        .gradient_by(rules::gemm),
    row("Conv", "A convolution, in groups, with a bias of each channel.", (2, 3), Anchor::Conv, (typing::conv, convolve::conv))
        .with(CONV)
        .gradient_by(rules::conv),
    row(
        "ConvImageGradient",
        "The gradient of a convolution's images, from that of the result and the filters.",
        (2, 2),
        Anchor::ConvGradient(GradientOf::Images),
        (gradients::images, convolve::image_gradient),
    )
    .with(CONV_GRADIENT)
    .own(),
    row(
        "ConvFilterGradient",
        "The gradient of a convolution's filters, from that of the result and the images.",
        (2, 2),
        Anchor::ConvGradient(GradientOf::Filters),
        (gradients::filters, convolve::filter_gradient),
    )
    .with(CONV)
    .own(),
    row(
        "ConvTranspose",
        "The convolution whose derivative is a convolution.",
        (2, 3),
        Anchor::Other,
        (typing::conv_transpose, convolve::conv_transpose),
    )
    .with(&[
        ("auto_pad", Text),
        ("dilations", Ints),
        ("group", Int),
        ("kernel_shape", Ints),
        ("output_padding", Ints),
        ("output_shape", Ints),
        ("pads", Ints),
        ("strides", Ints),
    ])
    .gradient_by(rules::conv_transpose),
    row(
        "MatMulInteger",
        "The product of integers less zero points, in `i32`.",
        (2, 4),
        Anchor::Other,
        (typing::matmul_integer, product::matmul_integer),
    ),
    row(
        "ConvInteger",
        "The convolution of integers less zero points, in `i32`.",
        (2, 4),
        Anchor::Other,
        (typing::conv_integer, convolve::conv_integer),
    )
    .with(CONV),
    row(
        "QLinearMatMul",
        "The product of quantised numbers, quantised.",
        (8, 8),
        Anchor::Other,
        (typing::qlinear_matmul, product::qlinear_matmul),
    ),
    row(
        "QLinearConv",
        "The convolution of quantised numbers, quantised.",
        (8, 9),
        Anchor::Other,
        (typing::qlinear_conv, convolve::qlinear_conv),
    )
    .with(CONV),
    row(
        "WideMatMul",
        "The matrix product of numbers of eight bits, in `i32`, or `f32` for e4m3 and e5m2. A mark transposes on demand.",
        (2, 2),
        Anchor::WideMatMul,
        (wide::matmul, product::wide_matmul),
    )
    .with(&[("transA", Int), ("transB", Int)])
    .own(),
    row(
        "WideConv",
        "The convolution of numbers of eight bits, in `i32`, or `f32` for e4m3 and e5m2.",
        (2, 2),
        Anchor::WideConv,
        (wide::conv, convolve::wide_conv),
    )
    .with(CONV)
    .own(),
    row(
        "ScaledDotProductAttention",
        "softmax(scale q k') v over the last two axes: PyTorch's attention. The scale is 1 / sqrt(width of q) by default.",
        (3, 3),
        Anchor::Attention,
        (wide::attention, attention::attention),
    )
    .with(&[("is_causal", Int), ("scale", Float)])
    .own(),
    row(
        "Einsum",
        "Sums of products over indices that letters name.",
        (1, ANY),
        Anchor::Other,
        (typing::first_format, product::einsum),
    )
    .with(&[("equation", Text)])
    .gradient_by(rules::einsum),
];
