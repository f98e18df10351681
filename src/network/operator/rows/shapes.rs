//! Operators that move elements or make them.

use super::super::{ANY, Kind, Moves, Operator, Table, moved, typing};
use crate::network::attribute::AttributeType::*;
use crate::network::grad::rules;
use crate::network::meaning::{convert, index, layout};

type Rules = (super::super::Typing, super::super::Meaning);

/// The same elements in another shape or order.
const fn view(name: &'static str, doc: &'static str, inputs: (usize, usize), moves: Moves, rules: Rules) -> Operator {
    Operator::new(name, doc, inputs, Kind::View(moves), rules.0, rules.1)
}

const fn opaque(name: &'static str, doc: &'static str, inputs: (usize, usize), rules: Rules) -> Operator {
    Operator::new(name, doc, inputs, Kind::Opaque, rules.0, rules.1)
}

/// Elements at places that a kernel can compute.
const fn table(name: &'static str, doc: &'static str, inputs: (usize, usize), of: Table, rules: Rules) -> Operator {
    Operator::new(name, doc, inputs, Kind::Table(of), rules.0, rules.1)
}

pub(super) static ROWS: &[Operator] = &[
    view("Identity", "The input itself.", (1, 1), Moves::Nothing, (typing::same, layout::identity)).gradient_by(rules::identity),
    view("Reshape", "The same elements in another shape.", (2, 2), Moves::Shape, (typing::reshape, layout::reshape))
        .with(&[("allowzero", Int)])
        .gradient_by(rules::reshape),
    view("Flatten", "The same elements as a matrix.", (1, 1), Moves::Shape, (typing::flatten, layout::flatten))
        .with(&[("axis", Int)])
        .gradient_by(rules::reshape),
    view("Squeeze", "Without axes of extent 1.", (1, 2), Moves::Units, (typing::squeeze, layout::squeeze))
        .gradient_by(rules::reshape),
    view("Unsqueeze", "With further axes of extent 1.", (2, 2), Moves::Units, (typing::unsqueeze, layout::unsqueeze))
        .gradient_by(rules::reshape),
    view("Transpose", "Axes in another order.", (1, 1), Moves::Order, (typing::transpose, layout::transpose))
        .with(&[("perm", Ints)])
        .gradient_by(rules::transpose),
    view("Expand", "Stretched to a shape.", (2, 2), Moves::Stretch, (typing::expand, layout::expand)).gradient_by(rules::expand),
    view("Slice", "Elements from starts to ends, by steps.", (3, 5), Moves::Slice, (typing::slice, layout::slice))
        .gradient_by(rules::slice),
    view("Split", "Parts along an axis.", (1, 2), Moves::Split, (typing::split, layout::split))
        .outputs(1, ANY)
        .with(&[("axis", Int), ("num_outputs", Int)])
        .gradient_by(rules::split),
    view("Concat", "Tensors side by side along an axis.", (1, ANY), Moves::Join, (typing::concat, layout::concat))
        .with(&[("axis", Int)])
        .gradient_by(rules::concat),
    view(
        "DepthToSpace",
        "Channels as blocks of pixels.",
        (1, 1),
        Moves::Blocks { gathers: false },
        (moved::depth_to_space, layout::depth_to_space),
    )
    .with(&[("blocksize", Int), ("mode", Text)])
    .gradient_by(rules::blocks),
    view(
        "SpaceToDepth",
        "Blocks of pixels as channels.",
        (1, 1),
        Moves::Blocks { gathers: true },
        (moved::space_to_depth, layout::space_to_depth),
    )
    .with(&[("blocksize", Int)])
    .gradient_by(rules::blocks),
    view("BitCast", "The same bits in another format.", (1, 1), Moves::Bits, (typing::cast_type, convert::bit_cast))
        .with(&[("to", Text)]),
    opaque("Tile", "Copies side by side.", (2, 2), (typing::same_rank, layout::tile)).gradient_by(rules::tile),
    table("Pad", "With elements before and behind.", (2, 4), Table::Border, (moved::pad, layout::pad))
        .with(&[("mode", Text)])
        .gradient_by(rules::pad),
    table("Gather", "Slices that indices name.", (2, 2), Table::Slices, (typing::gather, index::gather))
        .with(&[("axis", Int)])
        .gradient_by(rules::gather),
    opaque("GatherElements", "Elements that indices name.", (2, 2), (typing::gather_elements, index::gather_elements))
        .with(&[("axis", Int)])
        .gradient_by(rules::gather_elements),
    opaque("GatherND", "Slices that rows of indices name.", (2, 2), (typing::first_format, index::gather_nd))
        .with(&[("batch_dims", Int)])
        .gradient_by(rules::gather_nd),
    opaque("ScatterElements", "Updates at elements that indices name.", (3, 3), (typing::same, index::scatter_elements))
        .with(&[("axis", Int), ("reduction", Text)])
        .gradient_by(rules::scatter_elements),
    opaque("ScatterND", "Updates at slices that rows of indices name.", (3, 3), (typing::same, index::scatter_nd))
        .with(&[("reduction", Text)])
        .gradient_by(rules::scatter_nd),
    opaque("Shape", "The extents.", (1, 1), (typing::shape_of, layout::shape_of)).with(&[("start", Int), ("end", Int)]),
    opaque("Size", "The number of elements.", (1, 1), (typing::size_of, layout::size_of)),
    opaque("Constant", "A tensor.", (0, 0), (typing::constant, index::constant)).with(&[
        ("value", Tensor),
        ("value_float", Float),
        ("value_floats", Floats),
        ("value_int", Int),
        ("value_ints", Ints),
    ]),
    opaque("ConstantOfShape", "A shape full of one number.", (1, 1), (typing::constant_of_shape, index::constant_of_shape))
        .with(&[("value", Tensor)]),
    opaque("Range", "Numbers from a start by a step.", (3, 3), (typing::range, index::range)),
    opaque("OneHot", "One value where an index says so, another elsewhere.", (3, 3), (typing::one_hot, index::one_hot))
        .with(&[("axis", Int)]),
    opaque("Trilu", "A triangle of each matrix.", (1, 2), (typing::same, index::trilu))
        .with(&[("upper", Int)])
        .gradient_by(rules::trilu),
    opaque("EyeLike", "Ones along a diagonal.", (1, 1), (typing::eye_like, index::eye_like)).with(&[("dtype", Text), ("k", Int)]),
    opaque("NonZero", "The indices of what is not 0.", (1, 1), (typing::indices, index::non_zero)),
    opaque("Compress", "The slices for which a condition holds.", (2, 2), (typing::first_format, index::compress))
        .with(&[("axis", Int)])
        .gradient_by(rules::compress),
    opaque(
        "ReverseSequence",
        "The first elements of each batch entry in reverse order.",
        (2, 2),
        (typing::same, index::reverse_sequence),
    )
    .with(&[("batch_axis", Int), ("time_axis", Int)])
    .gradient_by(rules::by_places),
    opaque(
        "DynamicQuantizeLinear",
        "To eight bits, by a scale that the elements ask for.",
        (1, 1),
        (typing::dynamic_quantize, convert::dynamic_quantize),
    )
    .outputs(3, 3),
];
