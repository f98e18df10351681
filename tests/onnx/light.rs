//! Whole networks, without their weights: these are constant, so the outputs test the structure.

use crate::{agrees, data, tensor};
use postlude::network::{Network, Operators, Tensor};
use postlude::prelude::*;
use std::fs;

/// Runs one of them: ONNX's runner passes the input that its name asks for.
fn light(name: &str) {
    let Some(data) = data() else { return };
    let network = Network::from_onnx_file(data.join(format!("light/light_{name}.onnx")), &Operators::new()).expect(name);
    let (input, of) = network.inputs().next().map(|(name, of)| (name.to_owned(), of.clone())).expect("an input");
    let shape = of.shape().expect("a shape");
    let count: usize = shape.iter().product();
    let x = Tensor::of_numbers(F32, &shape, &vec![1.0; count]).expect("a tensor");
    let outputs = network.run(&[(&input, x)]).expect(name);
    let expected = tensor(&data.join(format!("light/light_{name}_output_0.pb"))).expect("a tensor");
    agrees(&outputs[0].1, &expected).expect(name);
}

#[test]
fn every_network_is_read() {
    let Some(data) = data() else { return };
    let mut count = 0;
    for entry in fs::read_dir(data.join("light")).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.extension().is_some_and(|extension| extension == "onnx") {
            let network = Network::from_onnx_file(&path, &Operators::new()).unwrap_or_else(|error| panic!("{path:?}: {error}"));
            assert!(network.outputs().all(|(_, of)| of.shape().is_some()), "{path:?} has an output without a shape");
            count += 1;
        }
    }
    assert_eq!(count, 9);
}

#[test]
fn squeezenet() {
    light("squeezenet");
}

#[test]
fn shufflenet() {
    light("shufflenet");
}
