//! Operators that combine elements: pools, reductions, scans, and functions of whole rows.

use super::super::{Kind, Normalisation, Operator, Pools, Reduction, typing};
use crate::ir::Monoid;
use crate::network::attribute::AttributeType::{self, *};
use crate::network::grad::rules;
use crate::network::meaning::{loss, normal, pool, reduce};

type Rules = (super::super::Typing, super::super::Meaning);

/// A pool of windows, or of whole images.
const fn pooling(name: &'static str, doc: &'static str, of: Reduction, rules: Rules) -> Operator {
    Operator::new(name, doc, (1, 1), Kind::Pooling(Pools { of, whole: false }), rules.0, rules.1)
}

const fn pooling_all(name: &'static str, doc: &'static str, of: Reduction, rules: Rules) -> Operator {
    Operator::new(name, doc, (1, 1), Kind::Pooling(Pools { of, whole: true }), rules.0, rules.1)
}

const MAX_POOL: &[(&str, AttributeType)] = &[
    ("auto_pad", Text),
    ("ceil_mode", Int),
    ("dilations", Ints),
    ("kernel_shape", Ints),
    ("pads", Ints),
    ("storage_order", Int),
    ("strides", Ints),
];
const AVERAGE_POOL: &[(&str, AttributeType)] = &[
    ("auto_pad", Text),
    ("ceil_mode", Int),
    ("count_include_pad", Int),
    ("dilations", Ints),
    ("kernel_shape", Ints),
    ("pads", Ints),
    ("strides", Ints),
];
const LP_POOL: &[(&str, AttributeType)] = &[
    ("auto_pad", Text),
    ("ceil_mode", Int),
    ("dilations", Ints),
    ("kernel_shape", Ints),
    ("p", Int),
    ("pads", Ints),
    ("strides", Ints),
];
const REDUCES: &[(&str, AttributeType)] = &[("keepdims", Int), ("noop_with_empty_axes", Int)];
const ARG: &[(&str, AttributeType)] = &[("axis", Int), ("keepdims", Int), ("select_last_index", Int)];
const SCAN: &[(&str, AttributeType)] = &[("exclusive", Int), ("reverse", Int)];
const LOSS: &[(&str, AttributeType)] = &[("ignore_index", Int), ("reduction", Text)];
const AXIS: &[(&str, AttributeType)] = &[("axis", Int)];

const fn reduces(name: &'static str, doc: &'static str, of: Reduction, meaning: super::super::Meaning) -> Operator {
    Operator::new(name, doc, (1, 2), Kind::Reduction(of), typing::reduction, meaning).with(REDUCES)
}

/// The gradient of an operator that ONNX has none for, in the type of its first input.
const fn gradient(
    name: &'static str,
    doc: &'static str,
    inputs: (usize, usize),
    meaning: super::super::Meaning,
    attributes: &'static [(&'static str, AttributeType)],
) -> Operator {
    Operator::new(name, doc, inputs, Kind::Opaque, typing::same, meaning).with(attributes).own()
}

const fn normalises(name: &'static str, doc: &'static str, of: Normalisation, rules: Rules) -> Operator {
    Operator::new(name, doc, (1, 1), Kind::Normalisation(of), rules.0, rules.1)
}

pub(super) static ROWS: &[Operator] = &[
    pooling(
        "MaxPool",
        "The largest element of each window, with its place on demand.",
        Reduction::Of(Monoid::Max),
        (typing::pool, pool::max),
    )
    .outputs(1, 2)
    .with(MAX_POOL)
    .gradient_by(rules::max_pool),
    pooling("AveragePool", "The mean of each window.", Reduction::Of(Monoid::Mean), (typing::pool, pool::average))
        .with(AVERAGE_POOL)
        .gradient_by(rules::average_pool),
    pooling("LpPool", "The p-norm of each window.", Reduction::Other, (typing::pool, pool::lp))
        .with(LP_POOL)
        .gradient_by(rules::lp_pool),
    pooling_all(
        "GlobalAveragePool",
        "The mean of each channel.",
        Reduction::Of(Monoid::Mean),
        (typing::global_pool, pool::global_average),
    )
    .gradient_by(rules::global_average_pool),
    pooling_all(
        "GlobalMaxPool",
        "The largest element of each channel.",
        Reduction::Of(Monoid::Max),
        (typing::global_pool, pool::global_max),
    )
    .gradient_by(rules::global_max_pool),
    pooling_all("GlobalLpPool", "The p-norm of each channel.", Reduction::Other, (typing::global_pool, pool::global_lp))
        .with(&[("p", Int)])
        .gradient_by(rules::global_lp_pool),
    reduces("ReduceSum", "The sum along axes.", Reduction::Of(Monoid::Sum), reduce::sum).gradient_by(rules::sum),
    reduces("ReduceMean", "The mean along axes.", Reduction::Of(Monoid::Mean), reduce::mean).gradient_by(rules::mean),
    reduces("ReduceMax", "The largest along axes.", Reduction::Of(Monoid::Max), reduce::max).gradient_by(rules::extreme),
    reduces("ReduceMin", "The smallest along axes.", Reduction::Of(Monoid::Min), reduce::min).gradient_by(rules::extreme),
    reduces("ReduceProd", "The product along axes.", Reduction::Of(Monoid::Product), reduce::product).gradient_by(rules::product),
    reduces("ReduceL1", "The sum of absolute values along axes.", Reduction::AbsoluteSum, reduce::l1).gradient_by(rules::l1),
    reduces("ReduceL2", "The Euclidean norm along axes.", Reduction::Of(Monoid::Norm2), reduce::l2).gradient_by(rules::l2),
    reduces("ReduceSumSquare", "The sum of squares along axes.", Reduction::Of(Monoid::SumSquares), reduce::sum_square)
        .gradient_by(rules::sum_square),
    reduces("ReduceLogSum", "The logarithm of the sum along axes.", Reduction::LogSum, reduce::log_sum)
        .gradient_by(rules::log_sum),
    reduces(
        "ReduceLogSumExp",
        "The logarithm of the sum of e^x along axes.",
        Reduction::Of(Monoid::LogSumExp),
        reduce::log_sum_exp,
    )
    .gradient_by(rules::log_sum_exp),
    Operator::new(
        "ArgMax",
        "The index of the largest along an axis.",
        (1, 1),
        Kind::Reduction(Reduction::Other),
        typing::arg,
        reduce::arg_max,
    )
    .with(ARG),
    Operator::new(
        "ArgMin",
        "The index of the smallest along an axis.",
        (1, 1),
        Kind::Reduction(Reduction::Other),
        typing::arg,
        reduce::arg_min,
    )
    .with(ARG),
    Operator::new("CumSum", "The sum along an axis up to each element.", (2, 2), Kind::Opaque, typing::same, reduce::cum_sum)
        .with(SCAN)
        .gradient_by(rules::cum_sum),
    Operator::new(
        "CumProd",
        "The product along an axis up to each element.",
        (2, 2),
        Kind::Opaque,
        typing::same,
        reduce::cum_prod,
    )
    .with(SCAN),
    Operator::new(
        "TopK",
        "The best elements along an axis, with their indices.",
        (2, 2),
        Kind::Opaque,
        typing::top_k,
        reduce::top_k,
    )
    .outputs(2, 2)
    .with(&[("axis", Int), ("largest", Int), ("sorted", Int)])
    .gradient_by(rules::top_k),
    normalises("Softmax", "e^x over the sum of all along an axis.", Normalisation::Softmax, (typing::same, normal::softmax))
        .with(AXIS)
        .gradient_by(rules::softmax),
    normalises("LogSoftmax", "The logarithm of the softmax.", Normalisation::LogSoftmax, (typing::same, normal::log_softmax))
        .with(AXIS)
        .gradient_by(rules::log_softmax),
    normalises(
        "Hardmax",
        "1 at the first largest element along an axis, else 0.",
        Normalisation::Other,
        (typing::same, normal::hardmax),
    )
    .with(AXIS),
    normalises(
        "LayerNormalization",
        "Rows centred, over their deviation, times a scale, plus a bias.",
        Normalisation::LayerNorm,
        (typing::norm, normal::layer_norm),
    )
    .inputs(2, 3)
    .outputs(1, 3)
    .with(&[("axis", Int), ("epsilon", Float), ("stash_type", Int)])
    .gradient_by(rules::layer_norm),
    normalises(
        "RMSNormalization",
        "Rows over the root of their mean square, times a scale.",
        Normalisation::RmsNorm,
        (typing::norm, normal::rms_norm),
    )
    .inputs(2, 2)
    .with(&[("axis", Int), ("epsilon", Float), ("stash_type", Int)])
    .gradient_by(rules::rms_norm),
    normalises(
        "InstanceNormalization",
        "Channels of each image centred, over their deviation.",
        Normalisation::Channels,
        (typing::same, normal::instance_norm),
    )
    .inputs(3, 3)
    .with(&[("epsilon", Float)])
    .gradient_by(rules::instance_norm),
    normalises(
        "GroupNormalization",
        "Groups of channels of each image centred, over their deviation.",
        Normalisation::Channels,
        (typing::same, normal::group_norm),
    )
    .inputs(3, 3)
    .with(&[("epsilon", Float), ("num_groups", Int), ("stash_type", Int)])
    .gradient_by(rules::group_norm),
    normalises(
        "LpNormalization",
        "Elements over the norm along an axis.",
        Normalisation::Other,
        (typing::same, normal::lp_normalization),
    )
    .with(&[("axis", Int), ("p", Int)])
    .gradient_by(rules::lp_normalization),
    normalises(
        "MeanVarianceNormalization",
        "Centred, over the deviation, along axes.",
        Normalisation::Other,
        (typing::same, normal::mean_variance),
    )
    .with(&[("axes", Ints)]),
    normalises(
        "LRN",
        "Over a power of the squares of neighbouring channels.",
        Normalisation::Other,
        (typing::same, normal::local_response),
    )
    .with(&[("alpha", Float), ("beta", Float), ("bias", Float), ("size", Int)]),
    Operator::new(
        "NegativeLogLikelihoodLoss",
        "The negative of each target's score, weighted and reduced.",
        (2, 3),
        Kind::Opaque,
        typing::loss,
        loss::negative_log_likelihood,
    )
    .with(LOSS)
    .gradient_by(rules::negative_log_likelihood),
    Operator::new(
        "SoftmaxCrossEntropyLoss",
        "The same of the softmax's logarithms, which are a second output on demand.",
        (2, 3),
        Kind::Opaque,
        typing::loss,
        loss::softmax_cross_entropy,
    )
    .outputs(1, 2)
    .with(LOSS)
    .gradient_by(rules::softmax_cross_entropy),
    gradient(
        "MaxPoolGradient",
        "The gradient of a pool's images: to the first largest element of each window.",
        (2, 2),
        pool::max_gradient,
        MAX_POOL,
    ),
    gradient(
        "AveragePoolGradient",
        "The gradient of a pool's images: in equal parts to the elements of each window.",
        (2, 2),
        pool::average_gradient,
        AVERAGE_POOL,
    ),
    gradient(
        "LpPoolGradient",
        "The gradient of a pool's images, by their share in the norm.",
        (2, 2),
        pool::lp_gradient,
        LP_POOL,
    ),
    gradient(
        "NegativeLogLikelihoodLossGradient",
        "The gradient of the scores, from that of the loss.",
        (3, 4),
        loss::negative_log_likelihood_gradient,
        LOSS,
    ),
];
