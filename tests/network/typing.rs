//! Types of outputs as they follow from types of inputs, where an extent is a symbol.

use postlude::network::{Attributes, Network, Tensor, Value};
use postlude::prelude::*;

fn none() -> Attributes {
    Attributes::new()
}

/// The types of an operator's outputs, for inputs of these extents and further ones that are constants. A first extent of 0
/// stands for the symbol `n`.
fn types(operator: &str, attributes: Attributes, inputs: &[&[usize]], constants: &[Tensor], outputs: usize) -> String {
    let network = Network::build(|g| {
        let input = |(at, extents): (usize, &&[usize])| match **extents {
            [0, a] => g.input(&format!("x{at}"), F32, ("n", a)),
            [0, a, b] => g.input(&format!("x{at}"), F32, ("n", a, b)),
            [0, a, b, c] => g.input(&format!("x{at}"), F32, ("n", a, b, c)),
            _ => g.input(&format!("x{at}"), F32, *extents),
        };
        let constants = constants.iter().enumerate().map(|(at, tensor)| g.constant(&format!("c{at}"), tensor.clone()));
        let values: Vec<Option<Value<'_>>> = inputs.iter().enumerate().map(input).chain(constants).map(Some).collect();
        for (at, y) in g.apply_all(operator, &values, attributes, outputs).into_iter().enumerate() {
            g.output(&format!("y{at}"), y);
        }
    });
    let network = network.unwrap_or_else(|faults| panic!("{operator}: {faults}"));
    network.outputs().map(|(_, of)| of.to_string()).collect::<Vec<_>>().join(" ")
}

#[test]
fn extents_that_are_known_stay_known_beside_a_symbol() {
    const X: &[usize] = &[0, 4, 6];
    const IMAGES: &[usize] = &[0, 3, 8, 9];
    let i = |list: &[i64]| Tensor::indices(list);
    let one = |operator: &str, attributes: Attributes, constants: &[Tensor]| types(operator, attributes, &[X], constants, 1);
    let axis = |axis: i64| none().with("axis", axis);
    for (at, expected) in [(0, "f32[1,?]"), (1, "f32[n,24]"), (2, "f32[?,6]"), (3, "f32[?,1]")] {
        assert_eq!(one("Flatten", axis(at), &[]), expected);
    }
    for (to, expected) in [
        (&[0, -1][..], "f32[n,24]"),
        (&[-1, 24], "f32[n,24]"),
        (&[-1, 6, 4], "f32[n,6,4]"),
        (&[2, -1], "f32[2,?]"),
        (&[-1, 0, 3], "f32[?,4,3]"),
        (&[0, 2, -1, 3], "f32[n,2,4,3]"),
    ] {
        assert_eq!(one("Reshape", none(), &[i(to)]), expected, "{to:?}");
    }
    assert_eq!(types("Squeeze", none(), &[&[0, 1, 6]], &[i(&[1])], 1), "f32[n,6]");
    assert_eq!(types("Squeeze", none(), &[&[3, 1, 6, 1]], &[], 1), "f32[3,6]");
    assert_eq!(one("Unsqueeze", none(), &[i(&[0, -1])]), "f32[1,n,4,6,1]");
    assert_eq!(one("Transpose", none(), &[]), "f32[6,4,n]");
    assert_eq!(one("Transpose", none().with("perm", vec![2, 0, 1]), &[]), "f32[6,n,4]");
    for (keep, [some, all]) in [(1, ["f32[n,1,6]", "f32[1,1,1]"]), (0, ["f32[n,6]", "f32[]"])] {
        assert_eq!(one("ReduceSum", none().with("keepdims", keep), &[i(&[1])]), some);
        assert_eq!(one("ReduceSum", none().with("keepdims", keep), &[]), all);
    }
    assert_eq!(one("ReduceSum", none().with("noop_with_empty_axes", 1), &[]), "f32[n,4,6]");
    assert_eq!(one("ArgMax", axis(2), &[]), "i64[n,4,1]");
    assert_eq!(one("ArgMax", axis(1).with("keepdims", 0), &[]), "i64[n,6]");
    assert_eq!(types("Split", axis(1), &[X], &[], 2), "f32[n,2,6] f32[n,2,6]");
    assert_eq!(types("Split", axis(1), &[X], &[i(&[1, 3])], 2), "f32[n,1,6] f32[n,3,6]");
    assert_eq!(types("Split", axis(0), &[X], &[], 2), "f32[?,4,6] f32[?,4,6]");
    assert_eq!(one("Slice", none(), &[i(&[1]), i(&[3]), i(&[1])]), "f32[n,2,6]");
    assert_eq!(one("Slice", none(), &[i(&[1]), i(&[3]), i(&[0])]), "f32[?,4,6]");
    assert_eq!(one("Slice", none(), &[i(&[-1]), i(&[-100]), i(&[2]), i(&[-2])]), "f32[n,4,3]");
    assert_eq!(types("Concat", axis(1), &[X, X], &[], 1), "f32[n,8,6]");
    assert_eq!(types("Concat", axis(0), &[X, X], &[], 1), "f32[?,4,6]");
    assert_eq!(one("Expand", none(), &[i(&[5, 1, 1, 6])]), "f32[5,n,4,6]");
    assert_eq!(one("Gather", axis(1), &[i(&[0, 1, 2, 3, 0, 1]).reshaped(&[2, 3]).unwrap()]), "f32[n,2,3,6]");
    assert_eq!((one("Shape", none(), &[]), one("Size", none(), &[])), ("i64[3]".into(), "i64[]".into()));
    assert_eq!(one("Shape", none().with("start", 1).with("end", -1i64), &[]), "i64[1]");
    assert_eq!(types("GlobalAveragePool", none(), &[IMAGES], &[], 1), "f32[n,3,1,1]");
    let window = none().with("kernel_shape", vec![3, 2]).with("strides", vec![2, 1]);
    assert_eq!(types("MaxPool", window.clone(), &[IMAGES], &[], 2), "f32[n,3,3,8] i64[n,3,3,8]");
    assert_eq!(types("Conv", none(), &[IMAGES, &[5, 3, 3, 2]], &[], 1), "f32[n,5,6,8]");
    assert_eq!(types("Conv", none().with("pads", vec![1, 0, 1, 1]), &[IMAGES, &[5, 3, 3, 2]], &[], 1), "f32[n,5,8,9]");
    assert_eq!(types("ConvTranspose", none().with("group", 3), &[&[2, 3, 4, 5], &[3, 2, 3, 3]], &[], 1), "f32[2,6,6,7]");
    assert_eq!(types("MatMul", none(), &[X, &[6, 5]], &[], 1), "f32[n,4,5]");
    assert_eq!(types("MatMul", none(), &[X, &[6]], &[], 1), "f32[n,4]");
    assert_eq!(types("MatMul", none(), &[&[4], X], &[], 1), "f32[n,6]");
    assert_eq!(types("MatMul", none(), &[X, &[2, 1, 6, 5]], &[], 1), "f32[2,n,4,5]");
    assert_eq!(types("Gemm", none(), &[&[0, 6], &[6, 5]], &[], 1), "f32[n,5]");
    assert_eq!(types("Gemm", none().with("transB", 1), &[&[0, 6], &[5, 6]], &[], 1), "f32[n,5]");
    assert_eq!(types("Gemm", none().with("transA", 1), &[&[6, 7], &[6, 5]], &[], 1), "f32[7,5]");
    assert_eq!(types("LayerNormalization", axis(1), &[X, &[4, 6]], &[], 3), "f32[n,4,6] f32[n,1,1] f32[n,1,1]");
    assert_eq!(one("Pad", none(), &[i(&[0, 1, 0, 0, 2, 0])]), "f32[n,7,6]");
    assert_eq!(one("Pad", none(), &[i(&[1, 0, 0, 0, 0, 0])]), "f32[?,?,?]");
    assert_eq!(types("DepthToSpace", none().with("blocksize", 2), &[&[0, 8, 3, 5]], &[], 1), "f32[n,2,6,10]");
    assert_eq!(types("SpaceToDepth", none().with("blocksize", 2), &[&[2, 3, 4, 6]], &[], 1), "f32[2,12,2,3]");
    assert_eq!(one("Cast", none().with("to", "f16"), &[]), "f16[n,4,6]");
    assert_eq!(types("QuantizeLinear", none(), &[X, &[1]], &[], 1), "u8[n,4,6]");
}

#[test]
fn what_does_not_fit_is_named() {
    let fault = |operator: &str, attributes: Attributes, inputs: &[&[usize]]| {
        let network = Network::build(|g| {
            let values: Vec<Value<'_>> =
                inputs.iter().enumerate().map(|(at, extents)| g.input(&format!("x{at}"), F32, *extents)).collect();
            g.output("y", g.apply(operator, &values, attributes));
        });
        network.map_err(|faults| faults.to_string()).err().unwrap_or_default()
    };
    assert!(fault("MatMul", none(), &[&[2, 3], &[4, 5]]).contains("K is 3 and 4"));
    assert!(fault("MatMul", none(), &[&[2, 3], &[]]).contains("tensors of one axis or more"));
    assert!(fault("Gemm", none(), &[&[2, 3], &[4, 5]]).contains("K is 3 and 4"));
    assert!(fault("Gemm", none().with("transA", 1), &[&[2, 3], &[3, 5]]).contains("K is 2 and 3"));
    assert!(fault("Gemm", none(), &[&[2, 3, 1], &[3, 5]]).contains("Gemm takes two matrices"));
    assert!(!fault("Gemm", none(), &[&[2, 3], &[3, 5], &[4]]).is_empty());
    assert!(fault("Squeeze", none(), &[&[2, 3]]).is_empty());
    assert!(fault("Concat", none(), &[&[2, 3], &[2, 3, 1]]).contains("as many axes, not 2 and 3"));
    assert!(!fault("Flatten", none().with("axis", 3i64), &[&[2, 3]]).is_empty());
    assert!(!fault("ConvTranspose", none(), &[&[2, 3, 4, 5], &[3, 2, 3]]).is_empty());
    assert!(!fault("Transpose", none().with("perm", vec![0, 0]), &[&[2, 3]]).is_empty());
}

/// Sequences are as many as their lengths, and none is longer than its axis.
#[test]
fn lengths_of_sequences_fit() {
    let reversed = |lengths: &[i64]| {
        let network = Network::build(|g| {
            let x = g.input("x", F32, (4, 2));
            g.output("y", x.apply("ReverseSequence", &[g.indices(lengths)], none()));
        });
        let x = Tensor::of_numbers(F32, &[4, 2], &[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]).unwrap();
        network.unwrap().run(&[("x", x)]).map(|values| values[0].1.numbers()).map_err(|error| error.to_string())
    };
    assert_eq!(reversed(&[4, 2]), Ok(vec![6.0, 3.0, 4.0, 1.0, 2.0, 5.0, 0.0, 7.0]));
    assert_eq!(reversed(&[0, 1]), Ok(vec![0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]));
    for lengths in [&[3][..], &[3, 5], &[3, -1], &[1, 2, 3]] {
        assert!(reversed(lengths).is_err_and(|error| error.contains("do not fit")), "{lengths:?}");
    }
}
