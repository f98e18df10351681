//! From a graph to the messages of a file, at the opset whose operators the table has.

use super::OnnxError;
use super::messages::{self, Attribute as Message};
use super::tensor::number;
use crate::network::attribute::Attribute;
use crate::network::format::Format;
use crate::network::graph::{Applied, EdgeId, Graph, Node, Source};
use crate::network::network::Network;
use crate::network::tensor::Tensor;
use crate::network::types::{Dim, Type};
use std::collections::HashSet;

/// The versions that a file states.
const OPSET: i64 = 24;
const IR: i64 = 11;

/// Attributes that the table has as the name of a format, and ONNX as its number.
const FORMATS: [&str; 3] = ["to", "dtype", "output_dtype"];

/// Names of edges: a caller's as they are, others by their places.
struct Names<'a> {
    graph: &'a Graph,
    taken: HashSet<&'a str>,
}

impl Names<'_> {
    fn of(&self, edge: EdgeId) -> String {
        if let Source::Input(_) = self.graph.edge(edge).source {
            return self.graph.edge(edge).name.to_string();
        }
        let mut name = format!("t{}", edge.index());
        while self.taken.contains(name.as_str()) {
            name.push('_');
        }
        name
    }
}

/// The model of a network.
///
/// # Errors
/// If a node applies an operator of the program, or an output has the name of an input.
pub(super) fn model(network: &Network) -> Result<messages::Model, OnnxError> {
    let graph = network.graph();
    let inputs = graph.inputs().iter().map(|edge| &*graph.edge(*edge).name);
    let taken = inputs.chain(graph.outputs().iter().map(|(name, _)| &**name)).collect();
    let names = Names { graph, taken };
    let mut out = messages::Graph { name: Some("network".to_owned()), ..messages::Graph::default() };
    for (id, edge) in graph.edges() {
        match &edge.source {
            Source::Input(of) => out.input.push(value(&edge.name, of)),
            Source::Constant(constant) => out.initializer.push(tensor(names.of(id), constant)),
            Source::Node(..) => {}
        }
    }
    for (_, own) in graph.nodes() {
        out.node.push(node(own, &names)?);
    }
    for (name, edge) in graph.outputs() {
        if graph.inputs().iter().any(|input| graph.edge(*input).name == *name) {
            let why = "an output has the same name, which an ONNX file cannot say; give it another one".to_owned();
            return Err(OnnxError::Input { name: name.to_string(), why });
        }
        // An edge may leave under several names, or be an input.
        out.node.push(messages::Node {
            input: vec![names.of(*edge)],
            output: vec![name.to_string()],
            name: Some(format!("{name}.output")),
            op_type: Some("Identity".to_owned()),
            ..messages::Node::default()
        });
        out.output.push(value(name, network.type_of(*edge)));
    }
    let opset_import = vec![messages::OperatorSet { domain: Some(String::new()), version: Some(OPSET) }];
    Ok(messages::Model { ir_version: Some(IR), graph: Some(out), opset_import })
}

fn node(node: &Node, names: &Names<'_>) -> Result<messages::Node, OnnxError> {
    let Some(row) = (if let Applied::Row(row) = &node.operator { Some(row) } else { None }).filter(|row| row.is_onnx) else {
        let list =
            vec![super::UnsupportedOperator { operator: node.operator_name().to_owned(), nodes: vec![node.name.to_string()] }];
        return Err(OnnxError::Unsupported(list));
    };
    Ok(messages::Node {
        input: node.inputs.iter().map(|edge| edge.map(|edge| names.of(edge)).unwrap_or_default()).collect(),
        output: node.outputs.iter().map(|edge| names.of(*edge)).collect(),
        name: Some(node.name.to_string()),
        op_type: Some(row.name.to_owned()),
        attribute: node.attributes.iter().map(|(name, value)| attribute(name, value)).collect(),
        domain: None,
    })
}

fn attribute(name: &str, value: &Attribute) -> Message {
    let of = |kind| Message { name: Some(name.to_owned()), kind: Some(kind), ..Message::default() };
    match value {
        Attribute::Float(x) => Message { f: Some(*x), ..of(1) },
        Attribute::Int(x) => Message { i: Some(*x), ..of(2) },
        Attribute::Text(text) => match Format::ALL.iter().find(|format| FORMATS.contains(&name) && format.name() == text) {
            Some(format) => Message { i: Some(number(*format).into()), ..of(2) },
            None => Message { s: Some(text.clone().into_bytes()), ..of(3) },
        },
        Attribute::Tensor(own) => Message { t: Some(tensor(String::new(), own)), ..of(4) },
        Attribute::Floats(list) => Message { floats: list.clone(), ..of(6) },
        Attribute::Ints(list) => Message { ints: list.clone(), ..of(7) },
    }
}

fn tensor(name: String, tensor: &Tensor) -> messages::Tensor {
    messages::Tensor {
        dims: tensor.shape().iter().map(|extent| *extent as i64).collect(),
        data_type: Some(number(tensor.format())),
        name: Some(name),
        raw_data: Some(tensor.bytes().to_vec()),
        ..messages::Tensor::default()
    }
}

fn value(name: &str, of: &Type) -> messages::ValueInfo {
    let extent = |dim: &Dim| match dim {
        Dim::Known(extent) => messages::Extent { value: Some(*extent as i64), name: None },
        Dim::Symbol(symbol) => messages::Extent { value: None, name: Some(symbol.to_string()) },
        Dim::Unknown => messages::Extent::default(),
    };
    let shape = of.dims.as_ref().map(|dims| messages::ShapeInfo { dim: dims.iter().map(extent).collect() });
    let tensor = messages::TensorType { elem_type: Some(number(of.format)), shape };
    messages::ValueInfo { name: Some(name.to_owned()), kind: Some(messages::TypeInfo { tensor: Some(tensor) }) }
}
