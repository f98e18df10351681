//! The reader: what it lists, and what it refuses.

use postlude::network::onnx::OnnxError;
use postlude::network::{Attributes, Network, Operators, Tensor};
use postlude::prelude::*;

#[test]
fn bytes_that_are_no_model() {
    assert!(matches!(Network::from_onnx(b"hello", &Operators::new()), Err(OnnxError::Decode(_))));
    assert!(matches!(Network::from_onnx(b"", &Operators::new()), Err(OnnxError::Decode(_))));
    assert!(Tensor::from_onnx(&[0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f, 0x10, 0x01]).is_err());
}

#[test]
fn a_network_survives_as_a_file() {
    let network = Network::build(|g| {
        let (x, w) = (g.input("x", F16, ("batch", 2, 6, 6)), g.input("t3", F16, (4, 2, 3, 3)));
        let y = g.apply("Conv", &[x, w], Attributes::new().with("pads", vec![1, 1, 1, 1]).with("auto_pad", "NOTSET"));
        let y = g.apply("Cast", &[y], Attributes::new().with("to", "f32"));
        let low = g.number(F32, -1.0);
        let y = g.apply_all("Clip", &[Some(y), None, Some(low)], Attributes::new(), 1)[0];
        let parts = g.apply_all("Split", &[Some(y)], Attributes::new().with("axis", 1), 2);
        g.output("y", parts[1].softmax(-1));
        g.output("z", parts[0]);
        g.output("x_again", x);
    })
    .unwrap();
    let read = Network::from_onnx(&network.to_onnx().unwrap(), &Operators::new()).unwrap();
    assert!(read.inputs().eq(network.inputs()) && read.outputs().eq(network.outputs()));
    let numbers = |count: usize| (0..count).map(|i| (i * 37 % 23) as f64 / 11.0 - 1.0).collect::<Vec<_>>();
    let tensor = |shape: &[usize]| Tensor::of_numbers(F16, shape, &numbers(shape.iter().product())).unwrap();
    let inputs = [("x", tensor(&[3, 2, 6, 6])), ("t3", tensor(&[4, 2, 3, 3]))];
    assert_eq!(read.run(&inputs).unwrap(), network.run(&inputs).unwrap());
    // What ONNX cannot say is an error.
    let same = Network::build(|g| g.output("x", g.input("x", F32, [2]).relu())).unwrap();
    assert!(matches!(same.to_onnx(), Err(OnnxError::Input { .. })));
}

/// The readers of what an unknown operator computes are not at fault.
#[test]
fn unknown_operators_are_named_alone() {
    let network = Network::build(|g| {
        let x = g.input("x", F32, (2, 3));
        g.output("y", x.relu().tanh() + x.relu().tanh().relu());
    })
    .unwrap();
    let bytes = network.to_onnx().unwrap();
    // Other letters in operators' names, and in that of the first node.
    let other = |at: usize| match () {
        _ if at > 0 && bytes[at - 1..].starts_with(b"Relu") => b'u',
        _ if bytes[at..].starts_with(b"n0") => b'q',
        _ => bytes[at],
    };
    let renamed: Vec<u8> = (0..bytes.len()).map(other).collect();
    let Err(OnnxError::Unsupported(list)) = Network::from_onnx(&renamed, &Operators::new()) else { panic!("it is read") };
    assert_eq!((list.len(), list[0].operator.as_str()), (1, "Rulu"));
    assert_eq!((list[0].nodes.len(), list[0].nodes[0].as_str()), (3, "q0"));
}
