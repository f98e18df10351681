//! JSON: round trips, and documents from anywhere.

use crate::graphs::{encoder, tensor};
use postlude::network::json::NetworkReadError;
use postlude::network::{Attributes, Network, Operators, Tensor};
use postlude::prelude::*;
use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::Value;
use std::sync::LazyLock;

fn sample() -> Network {
    Network::build(|g| {
        let (x, w) = (g.input("x", F16, ("batch", 4)), g.constant("w", tensor(F16, &[4, 4], 1)));
        let elu = g.apply("Elu", &[x.matmul(w)], Attributes::new().with("alpha", f32::INFINITY));
        let padded = g.apply("Pad", &[elu, g.indices(&[0, 1, 0, 1])], Attributes::new().with("mode", "edge"));
        let full = g.apply("ConstantOfShape", &[g.indices(&[4])], Attributes::new().with("value", Tensor::scalar(F16, 2.0)));
        let parts = g.apply_all("Split", &[Some(padded), Some(g.indices(&[2, 4]))], Attributes::new().with("axis", 1i64), 2);
        g.output("y", parts[1] + full);
    })
    .unwrap()
}

/// A network with gradients of many kinds.
fn trained() -> Network {
    let network = Network::build(|g| {
        let (x, w, b) = (g.input("x", F32, (2, 2, 4, 4)), g.input("w", F32, (3, 2, 3, 3)), g.input("b", F32, (3,)));
        let place = Attributes::new().with("kernel_shape", vec![2, 2]);
        let y = g.apply("MaxPool", &[g.apply("Conv", &[x, w, b], Attributes::new()).tanh()], place).reshape(&[2, 3]);
        let power = g.apply("Pow", &[y * y + y.exp(), g.indices(&[3])], Attributes::new());
        let class = g.constant("class", Tensor::indices(&[2, 0]));
        g.output("loss", g.apply("SoftmaxCrossEntropyLoss", &[power.softmax(-1), class], Attributes::new()));
    });
    network.unwrap().backward("loss", &["x", "w", "b"]).unwrap()
}

#[test]
fn networks_survive() {
    for network in [sample(), trained(), encoder(F32, 1, 4, 2, 4)] {
        let json = network.to_json();
        let read = Network::from_json(&json, &Operators::new()).unwrap();
        assert_eq!(read, network);
        assert_eq!((read.to_json(), read.to_string()), (json, network.to_string()));
    }
}

#[test]
fn faults_are_named() {
    let read = |json: String| Network::from_json(&json, &Operators::new()).unwrap_err();
    let json = sample().to_json();
    assert!(matches!(read(json.replace("\"network\": 1", "\"network\": 7")), NetworkReadError::Version(7)));
    assert!(read(json.replace("\"MatMul\"", "\"MatMil\"")).to_string().contains("did you mean `MatMul`?"));
    assert!(matches!(read("{}".to_owned()), NetworkReadError::Json(_)));
    let empty = r#"{"network": 1, "edges": [{"name": "x"}], "nodes": [], "outputs": [["y", 0]]}"#;
    assert!(matches!(read(empty.to_owned()), NetworkReadError::Edge { edge: 0, .. }));
}

/// The value at a random place.
fn place(mut value: &mut Value, path: Vec<Index>) -> &mut Value {
    for index in path {
        let inside = match value {
            Value::Array(list) => !list.is_empty(),
            Value::Object(fields) => !fields.is_empty(),
            _ => false,
        };
        if !inside {
            break;
        }
        value = match value {
            Value::Array(list) => index.get_mut(list),
            Value::Object(fields) => {
                let at = index.index(fields.len());
                fields.values_mut().nth(at).expect("a field")
            }
            other => other,
        };
    }
    value
}

const NAMES: &[&str] = &[
    "f32",
    "i64",
    "Relu",
    "Reshape",
    "Concat",
    "",
    "00",
    "x",
    "Tanh'0",
    "Pow'1",
    "Clip'2",
    "Where'1",
    "Sum'3",
    "Mul'0'1",
    "Cast'0",
    "BatchNormalization'4",
    "QuantizeLinear'0",
    "ConvFilterGradient",
    "ConvImageGradient",
    "MaxPoolGradient",
    "ReduceSum",
];

fn json_value() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<i64>().prop_map(Value::from),
        (-3i64..20).prop_map(Value::from),
        prop::sample::select(NAMES).prop_map(Value::from),
        prop::collection::vec((0i64..6).prop_map(Value::from), 0..4).prop_map(Value::from),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// A network or an error, never a panic; and what is read can be fused, or says why not.
    #[test]
    fn json_of_networks_with_other_values_in_it(
        edits in prop::collection::vec((prop::collection::vec(any::<Index>(), 1..6), json_value()), 0..4),
        with_gradients in any::<bool>(),
    ) {
        // Made once: most of a case's time otherwise.
        static WHOLE: LazyLock<[Value; 2]> =
            LazyLock::new(|| [sample(), trained()].map(|network| serde_json::from_str(&network.to_json()).unwrap()));
        let mut document = WHOLE[usize::from(with_gradients)].clone();
        for (path, new) in edits {
            *place(&mut document, path) = new;
        }
        match Network::from_json(&document.to_string(), &Operators::new()) {
            Ok(network) => {
                prop_assert_eq!(&Network::from_json(&network.to_json(), &Operators::new()).unwrap(), &network);
                let bound = network.bind(&network.symbols().iter().map(|symbol| (&**symbol, 2)).collect::<Vec<_>>());
                if let Ok(bound) = bound {
                    let _ = bound.fuse().map(|fused| fused.explain());
                    let names = |all: Vec<&str>| all.into_iter().map(str::to_owned).collect::<Vec<_>>();
                    let outputs = names(bound.outputs().map(|(name, _)| name).collect());
                    let inputs = names(bound.inputs().map(|(name, _)| name).collect());
                    for (output, input) in outputs.iter().zip(&inputs) {
                        let backward = bound.backward_through(&[output], &[input]);
                        let _ = backward.map(|backward| backward.fuse().map(|fused| fused.explain()));
                    }
                }
            }
            Err(error) => prop_assert!(!error.to_string().is_empty() && error.to_string().len() < 100_000),
        }
    }
}
