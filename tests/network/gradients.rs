//! Gradients: every operator with a rule against central differences in `f64`, what has none, and what is asked wrongly.

use crate::graphs::tensor;
use postlude::network::{Attributes, BackwardError, Format, Network, NetworkBuilder, Operator, Tensor, Value};
use postlude::prelude::*;
use std::collections::BTreeSet;

/// An input of a case: its name, its tensor, and whether its gradient is checked.
pub type Given = (&'static str, Tensor, bool);

/// The names of the inputs whose gradients are checked.
fn wanted(given: &[Given]) -> Vec<&'static str> {
    given.iter().filter(|(.., wanted)| *wanted).map(|(name, ..)| *name).collect()
}

fn as_inputs(given: &[Given]) -> Vec<(&'static str, Tensor)> {
    given.iter().map(|(name, tensor, _)| (*name, tensor.clone())).collect()
}

/// A tensor with one element moved.
fn moved(tensor: &Tensor, at: usize, by: f64) -> Tensor {
    let mut numbers = tensor.numbers();
    numbers[at] += by;
    Tensor::of_numbers(tensor.format(), tensor.shape(), &numbers).unwrap()
}

/// Compares gradients of every wanted element with central differences, from random gradients of every output, node by node and
/// fused.
pub fn check(what: &str, network: &Network, given: &[Given]) {
    let outputs: Vec<&str> = network.outputs().filter(|(_, of)| of.format.is_float()).map(|(name, _)| name).collect();
    let backward = network.backward_through(&outputs, &wanted(given)).unwrap_or_else(|error| panic!("{what}: {error}"));
    let mut inputs = as_inputs(given);
    let values = network.run(&inputs).unwrap_or_else(|error| panic!("{what}: {error}"));
    let mut weights = Vec::new();
    for (seed, (name, y)) in values.iter().filter(|(name, _)| outputs.contains(&&**name)).enumerate() {
        let upstream = tensor(F64, y.shape(), 100 + seed as u64);
        weights.push((name.clone(), upstream.numbers()));
        let name: &'static str = Box::leak(format!("upstream_{name}").into_boxed_str());
        inputs.push((name, upstream));
    }
    let loss = |inputs: &[(&str, Tensor)]| -> f64 {
        let values = network.run(inputs).unwrap();
        let of = |(name, weights): &(String, Vec<f64>)| -> f64 {
            let (_, y) = values.iter().find(|(known, _)| known == name).unwrap();
            y.numbers().iter().zip(weights).map(|(y, w)| y * w).sum()
        };
        weights.iter().map(of).sum()
    };
    let found = backward.run(&inputs).unwrap_or_else(|error| panic!("{what}: {error}\n{backward}"));
    // Numbers that kernels compute for the same: tensors without a number of extents cannot be fused.
    let fused = backward.fuse().unwrap_or_else(|error| panic!("{what}: {error}"));
    let kernels = fused.run(&inputs).unwrap_or_else(|error| panic!("{what}: {error}\n{}", fused.explain()));
    for (name, x, _) in given.iter().filter(|(.., wanted)| *wanted) {
        let gradient =
            |all: &[(String, Tensor)]| all.iter().find(|(known, _)| *known == format!("grad_{name}")).unwrap().1.clone();
        let (nodes, kernels) = (gradient(&found), gradient(&kernels));
        assert_eq!((nodes.format(), nodes.shape()), (x.format(), x.shape()), "{what}: {name}");
        for at in 0..x.len() {
            let step = 1e-5;
            let base = as_inputs(given);
            let at_place = |by: f64| {
                let mut inputs = base.clone();
                let place = inputs.iter().position(|(known, _)| known == name).unwrap();
                inputs[place].1 = moved(x, at, by);
                loss(&inputs)
            };
            let difference = (at_place(step) - at_place(-step)) / (2.0 * step);
            let (own, kernel) = (nodes.numbers()[at], kernels.numbers()[at]);
            assert!(
                (own - difference).abs() <= 2e-6 * (1.0 + difference.abs()),
                "{what}: {name}[{at}] is {own}, and the difference {difference}\n{backward}"
            );
            assert!((own - kernel).abs() <= 1e-6 * (1.0 + own.abs()), "{what}: {name}[{at}] is {own}, fused {kernel}");
        }
    }
}

/// Random numbers in `f64`.
fn x(shape: &[usize], seed: u64) -> Tensor {
    tensor(F64, shape, seed)
}

/// Positive ones.
fn positive(shape: &[usize], seed: u64) -> Tensor {
    let numbers: Vec<f64> = x(shape, seed).numbers().iter().map(|x| 0.3 + x.abs()).collect();
    Tensor::of_numbers(F64, shape, &numbers).unwrap()
}

/// Ones between -0.9 and 0.9.
fn small(shape: &[usize], seed: u64) -> Tensor {
    let numbers: Vec<f64> = x(shape, seed).numbers().iter().map(|x| 0.9 * x).collect();
    Tensor::of_numbers(F64, shape, &numbers).unwrap()
}

/// Checks an operator on inputs, of which the first `float` are differentiated by, and notes it.
struct Table(BTreeSet<&'static str>);

impl Table {
    fn case(&mut self, operator: &'static str, attributes: Attributes, tensors: &[Tensor]) {
        let wanted: Vec<bool> = tensors.iter().map(|tensor| tensor.format().is_float()).collect();
        self.case_of(operator, attributes, tensors, &wanted, 1);
    }

    fn case_of(&mut self, operator: &'static str, attributes: Attributes, tensors: &[Tensor], wanted: &[bool], outputs: usize) {
        const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
        self.0.insert(operator);
        // Integers are part of the network: axes, shapes, indices.
        let network = Network::build(|g| {
            let value = |(tensor, name): (&Tensor, &&str)| match tensor.format() {
                Format::F64 => g.input(name, F64, tensor.shape()),
                _ => g.constant(name, tensor.clone()),
            };
            let values: Vec<Option<Value<'_>>> = tensors.iter().zip(&NAMES).map(|pair| Some(value(pair))).collect();
            for (i, y) in g.apply_all(operator, &values, attributes.clone(), outputs).into_iter().enumerate() {
                g.output(&format!("y{i}"), y);
            }
        });
        let network = network.unwrap_or_else(|error| panic!("{operator}: {error}"));
        let given: Vec<Given> = tensors
            .iter()
            .zip(NAMES)
            .zip(wanted)
            .filter(|((tensor, _), _)| tensor.format() == Format::F64)
            .map(|((tensor, name), wanted)| (name, tensor.clone(), *wanted))
            .collect();
        check(operator, &network, &given);
    }
}

fn none() -> Attributes {
    Attributes::new()
}

#[test]
fn every_rule_is_the_derivative() {
    let parts = [pointwise, products, windows, reductions, rows, moves, losses];
    // Each part by itself, on a thread of its own.
    let parts = parts.map(|part| {
        std::thread::spawn(move || {
            let mut table = Table(BTreeSet::new());
            part(&mut table);
            table.0
        })
    });
    let parts: Vec<_> = parts.into_iter().map(std::thread::JoinHandle::join).collect();
    let table = Table(parts.into_iter().flat_map(|part| part.expect("a part failed, and said why")).collect());
    // What the table differentiates and no case above did.
    let silent: Vec<&str> =
        Operator::all().filter(|row| row.has_gradient() && !table.0.contains(row.name)).map(|row| row.name).collect();
    let without = [
        "Floor",
        "Ceil",
        "Round",
        "Sign",
        "Not",
        "And",
        "Or",
        "Xor",
        "BitwiseNot",
        "BitwiseAnd",
        "BitwiseOr",
        "BitwiseXor",
        "BitShift",
        "IsNaN",
        "IsInf",
        "Less",
        "LessOrEqual",
        "Greater",
        "GreaterOrEqual",
        "Equal",
        "QuantizeLinear",
        // In 32 bits alone: below.
        "DequantizeLinear",
    ];
    let missing: Vec<&&str> = silent.iter().filter(|name| !without.contains(*name)).collect();
    assert!(missing.is_empty(), "no case checks {missing:?}");
    let rows = || table.0.iter().filter_map(|name| Operator::named(name));
    assert!(rows().count() > 40 && rows().all(Operator::has_gradient), "what has a gradient says so");
    assert!(Operator::named("NonZero").is_some_and(|row| !row.has_gradient()));
}

fn pointwise(t: &mut Table) {
    for operator in [
        "Abs",
        "Neg",
        "Exp",
        "Erf",
        "Sin",
        "Cos",
        "Tan",
        "Atan",
        "Sinh",
        "Cosh",
        "Tanh",
        "Asinh",
        "Relu",
        "Sigmoid",
        "Softplus",
        "Softsign",
        "Mish",
        "HardSwish",
        "HardSigmoid",
        "Gelu",
        "Elu",
        "Selu",
        "Celu",
        "LeakyRelu",
        "Shrink",
        "Swish",
    ] {
        t.case(operator, none(), &[x(&[2, 3], 1)]);
    }
    t.case("Gelu", none().with("approximate", "tanh"), &[x(&[5], 2)]);
    t.case("ThresholdedRelu", none().with("alpha", 0.3f32), &[x(&[7], 3)]);
    for operator in ["Asin", "Acos", "Atanh"] {
        t.case(operator, none(), &[small(&[5], 4)]);
    }
    for operator in ["Reciprocal", "Sqrt", "Log"] {
        t.case(operator, none(), &[positive(&[5], 5)]);
    }
    let above: Vec<f64> = positive(&[4], 6).numbers().iter().map(|x| x + 1.0).collect();
    t.case("Acosh", none(), &[Tensor::of_numbers(F64, &[4], &above).unwrap()]);
    // Each operand is stretched in turn, along leading axes, along axes of extent 1, and along all.
    for operator in ["Add", "Sub", "Mul", "Max", "Min", "PRelu"] {
        for (a, b) in [
            (&[2, 3][..], &[2, 3][..]),
            (&[2, 3], &[3]),
            (&[2, 3], &[2, 1]),
            (&[2, 1, 3], &[4, 1]),
            (&[3], &[]),
            (&[1, 2], &[2, 2]),
        ] {
            if operator != "PRelu" || a.len() >= b.len() && a != [1, 2] && a != [2, 1, 3] {
                t.case(operator, none(), &[x(a, 7), x(b, 8)]);
            }
        }
    }
    t.case("Div", none(), &[x(&[2, 3], 9), positive(&[3], 10)]);
    t.case("Mod", none().with("fmod", 1), &[x(&[2, 3], 9), positive(&[3], 10)]);
    t.case("Pow", none(), &[positive(&[2, 3], 11), x(&[2, 1], 12)]);
    t.case("Pow", none(), &[x(&[4], 11), Tensor::indices(&[2])]);
    t.case("Pow", none(), &[x(&[4], 11), Tensor::of(&[3i32], &[1]).unwrap()]);
    t.case("Sum", none(), &[x(&[2, 3], 13), x(&[3], 14), x(&[1, 1], 15)]);
    t.case("Mean", none(), &[x(&[2, 3], 13), x(&[3], 14), x(&[], 15)]);
    t.case("Max", none(), &[x(&[2, 3], 13), x(&[3], 14), x(&[2, 1], 15)]);
    t.case("Clip", none(), &[x(&[6], 16), Tensor::scalar(F64, -0.4), Tensor::scalar(F64, 0.5)]);
    t.case("Clip", none(), &[x(&[6], 16)]);
    let condition = Tensor::of_numbers(Format::Bool, &[2, 3], &[1.0, 0.0, 0.0, 1.0, 1.0, 0.0]).unwrap();
    t.case("Where", none(), &[condition, x(&[3], 17), x(&[2, 1], 18)]);
    t.case("Dropout", none(), &[x(&[3], 19)]);
    let off = Tensor::of_numbers(Format::Bool, &[], &[0.0]).unwrap();
    t.case_of("Dropout", none(), &[x(&[3], 19), Tensor::scalar(F64, 0.5), off], &[true, false, false], 1);
    t.case("Cast", none().with("to", "f64"), &[x(&[3], 20)]);
    t.case_of("CastLike", none(), &[x(&[3], 20), Tensor::scalar(F64, 0.0)], &[true, false], 1);
    t.case("BatchNormalization", none(), &[x(&[2, 3, 2], 21), x(&[3], 22), x(&[3], 23), x(&[3], 24), positive(&[3], 25)]);
}

fn products(t: &mut Table) {
    for (a, b) in [
        (&[2, 3][..], &[3, 4][..]),
        (&[3], &[3, 4]),
        (&[2, 3], &[3]),
        (&[3], &[3]),
        (&[2, 2, 3], &[3, 4]),
        (&[2, 2, 3], &[2, 3, 2]),
        (&[2, 1, 2, 3], &[2, 3, 2]),
        (&[2, 3], &[2, 3, 2]),
        (&[1, 2, 3], &[2, 3, 2]),
        (&[3], &[2, 3, 2]),
        (&[2, 2, 3], &[3]),
    ] {
        t.case("MatMul", none(), &[x(a, 1), x(b, 2)]);
    }
    for turns in 0..4i64 {
        let (a, b) = (turns & 1, turns >> 1);
        let of = none().with("transA", a).with("transB", b).with("alpha", 0.5f32).with("beta", -2.0f32);
        let (left, right) = (if a == 1 { [3, 2] } else { [2, 3] }, if b == 1 { [4, 3] } else { [3, 4] });
        for c in [&[2, 4][..], &[4], &[2, 1], &[]] {
            t.case("Gemm", of.clone(), &[x(&left, 1), x(&right, 2), x(c, 3)]);
        }
        t.case("Gemm", of, &[x(&left, 1), x(&right, 2)]);
    }
    t.case("Einsum", none().with("equation", "ij,jk->ik"), &[x(&[2, 3], 1), x(&[3, 2], 2)]);
    t.case("Einsum", none().with("equation", "bij,bj->bi"), &[x(&[2, 2, 3], 1), x(&[2, 3], 2)]);
    t.case("Einsum", none().with("equation", "ij->j"), &[x(&[2, 3], 1)]);
    t.case("Einsum", none().with("equation", "i,j,ij->"), &[x(&[2], 1), x(&[3], 2), x(&[2, 3], 3)]);
}

fn windows(t: &mut Table) {
    for (place, image, filters) in [
        (none(), &[2, 3, 4, 5][..], &[4, 3, 3, 2][..]),
        (none().with("pads", vec![1, 0, 2, 1]).with("strides", vec![2, 1]), &[1, 2, 5, 4], &[3, 2, 3, 3]),
        (none().with("group", 2).with("dilations", vec![2, 1]), &[1, 4, 5, 4], &[2, 2, 2, 2]),
        (none().with("auto_pad", "SAME_UPPER").with("strides", vec![2, 2]), &[1, 1, 5, 5], &[2, 1, 3, 3]),
        (none().with("group", 3), &[2, 3, 6], &[3, 1, 3]),
        (none(), &[1, 1, 2, 3, 3], &[2, 1, 2, 2, 2]),
    ] {
        t.case("Conv", place.clone(), &[x(image, 1), x(filters, 2)]);
        t.case("Conv", place, &[x(image, 1), x(filters, 2), x(&filters[..1], 3)]);
    }
    for place in [
        none(),
        none().with("strides", vec![2, 3]).with("pads", vec![1, 0, 1, 1]),
        none().with("strides", vec![3, 2]).with("output_padding", vec![2, 1]),
        none().with("strides", vec![2, 2]).with("dilations", vec![2, 1]),
        none().with("strides", vec![2, 2]).with("auto_pad", "SAME_UPPER"),
    ] {
        t.case("ConvTranspose", place, &[x(&[1, 2, 3, 2], 1), x(&[2, 3, 2, 2], 2), x(&[3], 3)]);
    }
    // As many elements as windows reach, more, and fewer, along axes that all differ.
    for place in [
        none().with("strides", vec![2, 3]).with("dilations", vec![2, 1]),
        none().with("strides", vec![2, 3]).with("output_padding", vec![1, 2]).with("dilations", vec![1, 2]),
        none().with("strides", vec![3, 2]).with("pads", vec![1, 0, 2, 1]).with("output_padding", vec![2, 1]),
    ] {
        t.case("ConvTranspose", place, &[x(&[1, 2, 3, 4], 1), x(&[2, 5, 3, 2], 2)]);
    }
    t.case("ConvTranspose", none().with("group", 2), &[x(&[2, 4, 3], 1), x(&[4, 1, 2], 2)]);
    for operator in ["MaxPool", "AveragePool", "LpPool"] {
        for place in [
            none().with("kernel_shape", vec![2, 2]),
            none().with("kernel_shape", vec![3, 2]).with("strides", vec![2, 1]).with("pads", vec![1, 1, 1, 0]),
            none().with("kernel_shape", vec![2, 2]).with("strides", vec![3, 2]).with("ceil_mode", 1),
        ] {
            t.case(operator, place, &[x(&[2, 2, 5, 4], 1)]);
        }
    }
    let padded = none().with("kernel_shape", vec![3, 3]).with("pads", vec![1, 1, 1, 1]).with("count_include_pad", 1);
    t.case("AveragePool", padded, &[x(&[1, 2, 4, 3], 1)]);
    for operator in ["GlobalMaxPool", "GlobalAveragePool", "GlobalLpPool"] {
        t.case(operator, none(), &[x(&[2, 3, 3, 2], 1)]);
    }
}

fn reductions(t: &mut Table) {
    for operator in [
        "ReduceSum",
        "ReduceMean",
        "ReduceMax",
        "ReduceMin",
        "ReduceProd",
        "ReduceL1",
        "ReduceL2",
        "ReduceSumSquare",
        "ReduceLogSum",
        "ReduceLogSumExp",
    ] {
        let of = if operator == "ReduceLogSum" { positive } else { x };
        for (axes, keep) in [(&[1][..], 1), (&[-1], 0), (&[0, 2], 1), (&[0, 2], 0), (&[0], 0)] {
            t.case(operator, none().with("keepdims", keep), &[of(&[2, 3, 4], 1), Tensor::indices(axes)]);
        }
        t.case(operator, none(), &[of(&[2, 3], 2)]);
        t.case(operator, none().with("keepdims", 0), &[of(&[2, 3], 2)]);
        t.case(operator, none().with("noop_with_empty_axes", 1), &[of(&[2, 3], 3)]);
    }
    for (exclusive, reverse) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        let of = none().with("exclusive", exclusive).with("reverse", reverse);
        t.case("CumSum", of, &[x(&[2, 4], 1), Tensor::indices(&[1])]);
    }
    t.case_of("TopK", none().with("axis", 1i64), &[x(&[2, 5], 1), Tensor::indices(&[3])], &[true, false], 2);
}

fn rows(t: &mut Table) {
    for axis in [-1i64, 0, 1] {
        for operator in ["Softmax", "LogSoftmax", "LpNormalization"] {
            t.case(operator, none().with("axis", axis), &[x(&[2, 3, 4], 1)]);
        }
    }
    t.case("LpNormalization", none().with("p", 1), &[x(&[2, 3], 1)]);
    for (axis, scale) in [(-1i64, &[4][..]), (1, &[3, 4]), (-1, &[1]), (0, &[2, 3, 4])] {
        let of = none().with("axis", axis);
        t.case("LayerNormalization", of.clone(), &[x(&[2, 3, 4], 1), x(scale, 2), x(scale, 3)]);
        t.case("LayerNormalization", of.clone(), &[x(&[2, 3, 4], 1), x(scale, 2)]);
        t.case("RMSNormalization", of.clone(), &[x(&[2, 3, 4], 1), x(scale, 2)]);
        // Mean and deviation are outputs, and have gradients.
        t.case_of("LayerNormalization", of, &[x(&[2, 3, 4], 1), x(scale, 2), x(scale, 3)], &[true; 3], 3);
    }
    t.case("InstanceNormalization", none(), &[x(&[2, 3, 2, 2], 1), x(&[3], 2), x(&[3], 3)]);
    t.case("GroupNormalization", none().with("num_groups", 2), &[x(&[2, 4, 3], 1), x(&[4], 2), x(&[4], 3)]);
}

fn moves(t: &mut Table) {
    let i = |list: &[i64]| Tensor::indices(list);
    t.case("Identity", none(), &[x(&[3], 1)]);
    t.case("Reshape", none(), &[x(&[2, 6], 1), i(&[3, -1])]);
    t.case("Flatten", none().with("axis", 2i64), &[x(&[2, 3, 2], 1)]);
    t.case("Squeeze", none(), &[x(&[2, 1, 3], 1), i(&[1])]);
    t.case("Unsqueeze", none(), &[x(&[2, 3], 1), i(&[0, -1])]);
    t.case("Transpose", none().with("perm", vec![2, 0, 1]), &[x(&[2, 3, 4], 1)]);
    t.case("Transpose", none(), &[x(&[2, 3, 4], 1)]);
    t.case("Expand", none(), &[x(&[3, 1], 1), i(&[2, 3, 4])]);
    t.case("Slice", none(), &[x(&[4, 5], 1), i(&[1, -3]), i(&[3, 100]), i(&[0, 1])]);
    t.case("Slice", none(), &[x(&[4, 5], 1), i(&[-1]), i(&[-100]), i(&[1]), i(&[-2])]);
    t.case("Split", none().with("axis", 1i64), &[x(&[2, 5], 1), i(&[5])]);
    t.case_of("Split", none().with("axis", 1i64), &[x(&[2, 5], 1), i(&[2, 3])], &[true, false], 2);
    t.case("Concat", none().with("axis", -1i64), &[x(&[2, 1], 1), x(&[2, 3], 2), x(&[2, 2], 3)]);
    t.case("DepthToSpace", none().with("blocksize", 2), &[x(&[1, 8, 2, 3], 1)]);
    t.case("DepthToSpace", none().with("blocksize", 2).with("mode", "CRD"), &[x(&[1, 8, 2, 3], 1)]);
    t.case("SpaceToDepth", none().with("blocksize", 2), &[x(&[1, 2, 4, 6], 1)]);
    t.case("Tile", none(), &[x(&[2, 3], 1), i(&[2, 3])]);
    t.case("Pad", none(), &[x(&[2, 3], 1), i(&[1, 0, 2, -1])]);
    t.case("Pad", none().with("mode", "reflect"), &[x(&[3, 4], 1), i(&[1, 2, 2, 1])]);
    t.case("Pad", none().with("mode", "edge"), &[x(&[2, 3], 1), i(&[1, 0, 0, 2])]);
    t.case("Trilu", none().with("upper", 0), &[x(&[3, 3], 1), Tensor::indices(&[1]).reshaped(&[]).unwrap()]);
    t.case("Gather", none(), &[x(&[4, 3], 1), Tensor::indices(&[2, 0, 2, -1])]);
    t.case("Gather", none().with("axis", 1i64), &[x(&[2, 4, 3], 1), Tensor::indices(&[1, 1, 3, 0]).reshaped(&[2, 2]).unwrap()]);
    t.case("Gather", none().with("axis", -1i64), &[x(&[2, 3], 1), Tensor::indices(&[1]).reshaped(&[]).unwrap()]);
    let places = Tensor::indices(&[1, 0, 1, 1, 2, 0]).reshaped(&[2, 3]).unwrap();
    t.case("GatherElements", none().with("axis", 1i64), &[x(&[2, 3], 1), places.clone()]);
    t.case("GatherND", none(), &[x(&[2, 3, 2], 1), Tensor::indices(&[1, 2, 0, 1, 1, 2]).reshaped(&[3, 2]).unwrap()]);
    t.case("GatherND", none().with("batch_dims", 1), &[x(&[2, 3, 2], 1), Tensor::indices(&[1, 2]).reshaped(&[2, 1]).unwrap()]);
    let distinct = Tensor::indices(&[1, 0, 2, 1]).reshaped(&[2, 2]).unwrap();
    t.case("ScatterElements", none().with("axis", 1i64), &[x(&[2, 3], 1), distinct, x(&[2, 2], 2)]);
    t.case("ScatterElements", none().with("axis", 1i64).with("reduction", "add"), &[x(&[2, 3], 1), places, x(&[2, 3], 2)]);
    t.case("ScatterND", none(), &[x(&[4, 2], 1), Tensor::indices(&[3, 1]).reshaped(&[2, 1]).unwrap(), x(&[2, 2], 2)]);
    let kept = Tensor::of_numbers(Format::Bool, &[3], &[1.0, 0.0, 1.0]).unwrap();
    t.case("Compress", none().with("axis", 1i64), &[x(&[2, 3], 1), kept]);
    t.case("ReverseSequence", none(), &[x(&[4, 2], 1), Tensor::indices(&[3, 2])]);
}

fn losses(t: &mut Table) {
    let target = Tensor::indices(&[2, 0, 1, 2]);
    for reduction in ["none", "sum", "mean"] {
        for operator in ["NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"] {
            let of = none().with("reduction", reduction);
            t.case(operator, of.clone(), &[x(&[4, 3], 1), target.clone()]);
            t.case(operator, of.clone().with("ignore_index", 0), &[x(&[4, 3], 1), target.clone()]);
            t.case_of(operator, of, &[x(&[4, 3], 1), target.clone(), positive(&[3], 2)], &[true, false, false], 1);
        }
    }
    t.case_of("SoftmaxCrossEntropyLoss", none(), &[x(&[4, 3], 1), target], &[true, false], 2);
    let pixels = Tensor::indices(&[2, 0, 1, 2]).reshaped(&[2, 2]).unwrap();
    t.case("SoftmaxCrossEntropyLoss", none(), &[x(&[2, 3, 2], 1), pixels]);
}

fn build(build: impl FnOnce(&NetworkBuilder)) -> Network {
    Network::build(build).unwrap()
}

#[test]
fn what_has_no_gradient_is_an_error() {
    for operator in ["Floor", "Ceil", "Round", "Sign"] {
        let network = build(|g| g.output("y", g.input("x", F32, [2]).apply(operator, &[], none())));
        let error = network.backward_through(&["y"], &["x"]).unwrap_err();
        assert!(matches!(&error, BackwardError::Operator { operator: named, .. } if named == operator), "{error}");
        assert!(error.to_string().contains("which is zero wherever it exists"), "{error}");
    }
    for operator in ["Hardmax", "MeanVarianceNormalization", "LRN"] {
        let network = build(|g| g.output("y", g.input("x", F32, [1, 2, 2, 2]).apply(operator, &[], none())));
        let error = network.backward_through(&["y"], &["x"]).unwrap_err().to_string();
        assert!(error.contains(&format!("({operator}) has no gradient")), "{error}");
    }
    // A rule for half of the way would give a wrong number.
    let network = build(|g| {
        let x = g.input("x", F32, [2]);
        g.output("y", x * x.apply("Floor", &[], none()));
    });
    assert!(network.backward_through(&["y"], &["x"]).is_err());
}

/// Rules name the cases that they leave out.
#[test]
fn rules_say_what_they_do_not_cover() {
    let refused = |why: &str, of: &dyn Fn(&NetworkBuilder)| {
        let error = build(of).backward_through(&["y"], &["x"]).unwrap_err().to_string();
        assert!(error.contains(why), "{why}: {error}");
    };
    for constant in [true, false] {
        refused("in training, which takes random numbers,", &|g| {
            let on = Tensor::of_numbers(Format::Bool, &[], &[1.0]).unwrap();
            let training = if constant { g.constant("on", on) } else { g.input("on", Format::Bool, [0usize; 0]) };
            let ratio = g.constant("ratio", Tensor::scalar(F32, 0.5));
            g.output("y", g.input("x", F32, (2, 3)).apply("Dropout", &[ratio, training], none()));
        });
    }
    refused("by input 1", &|g| {
        g.output("y", g.input("z", F32, (2, 3)).apply("Dropout", &[g.input("x", F32, [0usize; 0])], none()));
    });
    refused("in training", &|g| {
        let each = [1, 2, 3, 4].map(|i| g.input(&format!("c{i}"), F32, (3,)));
        g.output("y", g.input("x", F32, (2, 3)).apply("BatchNormalization", &each, none().with("training_mode", 1)));
    });
    refused("which rounds,", &|g| {
        g.output(
            "y",
            g.input("x", F32, (2, 3)).apply("QuantizeLinear", &[g.number(F32, 0.5), g.number(E4M3, 0.0)], none()).apply(
                "Cast",
                &[],
                none().with("to", "f32"),
            ),
        );
    });
    refused("with a scale for each block", &|g| {
        let numbers = g.input("z", DType::I8, (2, 4));
        g.output("y", numbers.apply("DequantizeLinear", &[g.input("x", F32, (2, 2))], none().with("block_size", 2)));
    });
    for reduction in ["mul", "max"] {
        refused(&format!("with the reduction `{reduction}`"), &|g| {
            let (places, z) = (g.constant("i", Tensor::indices(&[0, 1]).reshaped(&[1, 2]).unwrap()), g.input("z", F32, (1, 2)));
            g.output("y", g.input("x", F32, (2, 2)).apply("ScatterElements", &[places, z], none().with("reduction", reduction)));
        });
    }
    for (equation, why) in
        [("ij", "does not say the result"), ("...j->...j", "an ellipsis or repeats"), ("ii->i", "an ellipsis or repeats")]
    {
        refused(why, &|g| g.output("y", g.input("x", F32, (2, 2)).apply("Einsum", &[], none().with("equation", equation))));
    }
    refused("along an extent that is not a number", &|g| {
        g.output("y", g.input("x", F32, ("rows", 2)).apply("Concat", &[g.input("z", F32, (3, 2))], none().with("axis", 0i64)));
    });
    refused("along an extent that is not a number", &|g| {
        let range = [0, 1, 0].map(|at| g.indices(&[at]));
        g.output("y", g.input("x", F32, ("rows", 2)).apply("Slice", &range, none()));
    });
}

#[test]
fn what_is_asked_wrongly_is_named() {
    let network = build(|g| {
        let (x, i) = (g.input("x", F32, ("batch", 2)), g.input("index", F32, (2,)));
        let chosen = g.input("chosen", Format::I64, (1,));
        g.output("loss", (x * i).apply("ReduceSum", &[], none().with("keepdims", 0)));
        g.output("y", x * i);
        g.output("gathered", i.apply("Gather", &[chosen], none()));
        g.output("class", x.apply("ArgMax", &[], none().with("axis", 1i64)));
    });
    let error = |loss: &str, input: &str| network.backward(loss, &[input]).unwrap_err();
    assert!(error("los", "x").to_string().contains("did you mean `loss`?"));
    assert!(error("loss", "idex").to_string().contains("did you mean `index`?"));
    assert!(matches!(error("y", "x"), BackwardError::NotOne { .. }));
    assert!(matches!(error("loss", "chosen"), BackwardError::NotFloat { what: "input", .. }));
    assert_eq!(network.backward_through(&["gathered"], &["x"]).unwrap_err(), BackwardError::Unreached { name: "x".to_owned() });
    assert!(matches!(network.backward_through(&["class"], &["x"]).unwrap_err(), BackwardError::NotFloat { what: "output", .. }));
}

#[test]
fn a_scale_of_integers_has_a_gradient() {
    let network = build(|g| {
        let (x, scale) = (g.input("x", DType::I8, (2, 3)), g.input("scale", F32, (3,)));
        g.output("y", g.apply("DequantizeLinear", &[x, scale], none()));
    });
    let backward = network.backward_through(&["y"], &["scale"]).unwrap();
    let inputs = [
        ("x", Tensor::of_integers(DType::I8, &[2, 3], &[1, -2, 3, 4, -5, 6]).unwrap()),
        ("scale", Tensor::of(&[0.5f32, 0.25, 2.0], &[3]).unwrap()),
        ("upstream_y", Tensor::of(&[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0], &[2, 3]).unwrap()),
    ];
    assert_eq!(backward.run(&inputs).unwrap()[1].1.numbers(), [17.0, -29.0, 45.0]);
    assert!(matches!(network.backward_through(&["y"], &["x"]).unwrap_err(), BackwardError::NotFloat { .. }));
}
