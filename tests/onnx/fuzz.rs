//! Files from anywhere: a network or an error, never a panic, and nothing larger than the file accounts for.

use postlude::network::{Network, Operators, Tensor};
use proptest::prelude::*;
use proptest::sample::Index;

/// A field of protobuf's: its number with bytes.
fn bytes(field: u8, content: &[u8]) -> Vec<u8> {
    [vec![field << 3 | 2], varint(content.len() as u64), content.to_vec()].concat()
}

fn number(field: u8, x: u64) -> Vec<u8> {
    [vec![field << 3], varint(x)].concat()
}

fn varint(mut x: u64) -> Vec<u8> {
    let mut out = Vec::new();
    while x >= 128 {
        out.push(x as u8 | 128);
        x >>= 7;
    }
    out.push(x as u8);
    out
}

fn node(operator: &str, inputs: &[&str], output: &str, attributes: &[Vec<u8>]) -> Vec<u8> {
    let inputs = inputs.iter().flat_map(|name| bytes(1, name.as_bytes()));
    let attributes = attributes.iter().flat_map(|attribute| bytes(5, attribute));
    let name = bytes(4, operator.as_bytes());
    bytes(1, &inputs.chain(bytes(2, output.as_bytes())).chain(name).chain(attributes).collect::<Vec<u8>>())
}

/// The attribute of a list of integers.
fn ints(name: &str, list: &[u64]) -> Vec<u8> {
    [bytes(1, name.as_bytes()), list.iter().flat_map(|x| number(8, *x)).collect(), vec![0xa0, 1, 7]].concat()
}

/// A tensor of one axis.
fn vector(name: &str, format: u64, content: &[u8], count: u64) -> Vec<u8> {
    [number(1, count), number(2, format), bytes(8, name.as_bytes()), bytes(9, content)].concat()
}

fn value(field: u8, name: &str, dims: &[u64]) -> Vec<u8> {
    let dims: Vec<u8> = dims.iter().flat_map(|extent| bytes(1, &number(1, *extent))).collect();
    let tensor = [number(1, 1), bytes(2, &dims)].concat();
    bytes(field, &[bytes(1, name.as_bytes()), bytes(2, &bytes(1, &tensor))].concat())
}

/// A small network with most kinds of nodes.
pub fn seed() -> Vec<u8> {
    let graph = [
        node("Conv", &["x", "w"], "c", &[ints("pads", &[1, 1, 1, 1]), ints("strides", &[2, 2])]),
        node("MaxPool", &["c"], "p", &[ints("kernel_shape", &[2, 2])]),
        node("Relu", &["p"], "r", &[]),
        node("Shape", &["r"], "s", &[]),
        node("Gather", &["s", "zero"], "n", &[]),
        node("Reshape", &["r", "shape"], "f", &[]),
        node("ReduceSum", &["f", "zero"], "q", &[]),
        node("Pad", &["f", "pads"], "y", &[]),
        bytes(5, &[number(1, 2), vector("w", 1, &[0; 72], 1), number(1, 3), number(1, 3)].concat()),
        bytes(5, &vector("zero", 7, &[0; 8], 1)),
        bytes(5, &vector("pads", 7, &[0; 32], 4)),
        bytes(5, &vector("shape", 7, &[[0xff; 8], [1, 0, 0, 0, 0, 0, 0, 0]].concat(), 2)),
        value(11, "x", &[1, 1, 8, 8]),
        value(12, "y", &[]),
    ];
    [bytes(7, &graph.concat()), bytes(8, &number(2, 17))].concat()
}

fn sound(file: &[u8]) -> Result<(), TestCaseError> {
    match Network::from_onnx(file, &Operators::new()) {
        Ok(network) => {
            let constants = network.graph().edges().filter_map(|(edge, _)| network.graph().constant(edge));
            let held: usize = constants.map(|tensor| tensor.bytes().len()).sum();
            prop_assert!(held <= 8 * file.len(), "{held} bytes of constants in {} bytes", file.len());
            prop_assert!(network.to_string().len() < 1000 * file.len().max(1));
        }
        Err(error) => prop_assert!(!error.to_string().is_empty() && error.to_string().len() < 100_000),
    }
    let _ = Tensor::from_onnx(file);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn fuzz_bytes(file in prop::collection::vec(any::<u8>(), 0..200)) {
        sound(&file)?;
    }

    #[test]
    fn fuzz_files_with_other_bytes_in_them(
        edits in prop::collection::vec((any::<Index>(), any::<Index>(), prop::collection::vec(any::<u8>(), 0..4)), 0..5),
    ) {
        let mut file = seed();
        for (from, length, new) in edits {
            let from = from.index(file.len().max(1)).min(file.len());
            let to = (from + length.index(6)).min(file.len());
            file.splice(from..to, new);
        }
        sound(&file)?;
    }
}
