//! Networks as JSON: a versioned document of edges and nodes. Tensors are hexadecimal, so that no bit is lost.

use super::attribute::{Attribute, Attributes};
use super::check::NetworkDiagnostics;
use super::custom::Operators;
use super::fault::Fault;
use super::format::Format;
use super::graph::{Applied, Edge, EdgeId, Graph, Node, NodeId, Source};
use super::network::Network;
use super::operator::Operator;
use super::tensor::Tensor;
use super::types::{Dim, Type};
use crate::ir::name::{meant, word};
use serde::{Deserialize, Serialize};

/// The version of the form.
const VERSION: u32 = 1;

/// Why a document is not a network.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NetworkReadError {
    /// It is not JSON of this form.
    #[error("the document is not a network: {0}")]
    Json(#[from] serde_json::Error),
    /// It has another version.
    #[error("the document has version {0}, and this library reads version {VERSION}")]
    Version(u32),
    /// An edge is named that does not exist, is computed twice, or never.
    #[error("edge {edge} {why}")]
    Edge {
        /// Its place.
        edge: usize,
        /// What is wrong.
        why: &'static str,
    },
    /// There is no such operator.
    #[error("node {} uses {}, which is no operator{near}", word(node), word(operator))]
    Operator {
        /// The node.
        node: String,
        /// The operator.
        operator: String,
        /// What was probably meant.
        near: String,
    },
    /// A tensor's elements do not fit its shape.
    #[error("a tensor: {0}")]
    Tensor(#[from] Fault),
    /// The network breaks a rule.
    #[error(transparent)]
    Check(#[from] NetworkDiagnostics),
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    network: u32,
    edges: Vec<EdgeForm>,
    nodes: Vec<NodeForm>,
    outputs: Vec<(String, usize)>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct EdgeForm {
    name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    input: Option<TypeForm>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    constant: Option<TensorForm>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TypeForm {
    format: Format,
    dims: Option<Vec<DimForm>>,
}

/// A number, a name, or null for an extent that is not known.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum DimForm {
    Known(usize),
    Symbol(String),
    Unknown(()),
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TensorForm {
    format: Format,
    shape: Vec<usize>,
    bytes: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct NodeForm {
    name: String,
    operator: String,
    inputs: Vec<Option<usize>>,
    outputs: Vec<usize>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    attributes: Vec<(String, AttributeForm)>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum AttributeForm {
    Int(i64),
    /// The bits, since JSON has no infinities.
    FloatBits(u32),
    Text(String),
    Ints(Vec<i64>),
    FloatsBits(Vec<u32>),
    Tensor(TensorForm),
}

impl From<&Tensor> for TensorForm {
    fn from(tensor: &Tensor) -> TensorForm {
        let digit = |x: u8| char::from_digit(x.into(), 16).unwrap_or('0');
        let bytes = tensor.bytes().iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect();
        TensorForm { format: tensor.format(), shape: tensor.shape().to_vec(), bytes }
    }
}

impl TensorForm {
    fn tensor(&self) -> Result<Tensor, Fault> {
        let digit = |c: u8| char::from(c).to_digit(16).map(|x| x as u8);
        let byte = |pair: &[u8]| Some(digit(pair[0])? << 4 | digit(*pair.get(1)?)?);
        let bytes: Option<Vec<u8>> = self.bytes.as_bytes().chunks(2).map(byte).collect();
        let bytes = bytes.ok_or_else(|| Fault::Value("its bytes are not pairs of hexadecimal digits".to_owned()))?;
        Tensor::new(self.format, &self.shape, bytes)
    }
}

impl From<&Attribute> for AttributeForm {
    fn from(attribute: &Attribute) -> AttributeForm {
        match attribute {
            Attribute::Int(x) => AttributeForm::Int(*x),
            Attribute::Float(x) => AttributeForm::FloatBits(x.to_bits()),
            Attribute::Text(text) => AttributeForm::Text(text.clone()),
            Attribute::Ints(list) => AttributeForm::Ints(list.clone()),
            Attribute::Floats(list) => AttributeForm::FloatsBits(list.iter().map(|x| x.to_bits()).collect()),
            Attribute::Tensor(tensor) => AttributeForm::Tensor(tensor.into()),
        }
    }
}

impl AttributeForm {
    fn attribute(self) -> Result<Attribute, Fault> {
        Ok(match self {
            AttributeForm::Int(x) => Attribute::Int(x),
            AttributeForm::FloatBits(bits) => Attribute::Float(f32::from_bits(bits)),
            AttributeForm::Text(text) => Attribute::Text(text),
            AttributeForm::Ints(list) => Attribute::Ints(list),
            AttributeForm::FloatsBits(list) => Attribute::Floats(list.into_iter().map(f32::from_bits).collect()),
            AttributeForm::Tensor(form) => Attribute::Tensor(form.tensor()?),
        })
    }
}

impl From<&Type> for TypeForm {
    fn from(of: &Type) -> TypeForm {
        let dim = |dim: &Dim| match dim {
            Dim::Known(extent) => DimForm::Known(*extent),
            Dim::Symbol(name) => DimForm::Symbol(name.to_string()),
            Dim::Unknown => DimForm::Unknown(()),
        };
        TypeForm { format: of.format, dims: of.dims.as_ref().map(|dims| dims.iter().map(dim).collect()) }
    }
}

impl TypeForm {
    fn of(self) -> Type {
        let dim = |dim: DimForm| match dim {
            DimForm::Known(extent) => Dim::Known(extent),
            DimForm::Symbol(name) => Dim::from(name.as_str()),
            DimForm::Unknown(()) => Dim::Unknown,
        };
        Type { format: self.format, dims: self.dims.map(|dims| dims.into_iter().map(dim).collect()) }
    }
}

impl Network {
    /// The network as JSON. Custom operators are named, and a reader has to register them.
    ///
    /// ```
    /// use postlude::network::{Network, Operators};
    /// use postlude::prelude::*;
    /// let network = Network::build(|g| g.output("y", g.input("x", F16, ("batch", 4)).relu()))?;
    /// assert_eq!(Network::from_json(&network.to_json(), &Operators::new())?, network);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn to_json(&self) -> String {
        let graph = self.graph();
        let edge = |(_, Edge { name, source }): (EdgeId, &Edge)| EdgeForm {
            name: name.to_string(),
            input: if let Source::Input(of) = source { Some(of.into()) } else { None },
            constant: if let Source::Constant(tensor) = source { Some(tensor.into()) } else { None },
        };
        let node = |(_, node): (NodeId, &Node)| NodeForm {
            name: node.name.to_string(),
            operator: node.operator_name().to_owned(),
            inputs: node.inputs.iter().map(|edge| edge.map(EdgeId::index)).collect(),
            outputs: node.outputs.iter().map(|edge| edge.index()).collect(),
            attributes: node.attributes.iter().map(|(name, value)| (name.to_owned(), value.into())).collect(),
        };
        let document = Document {
            network: VERSION,
            edges: graph.edges().map(edge).collect(),
            nodes: graph.nodes().map(node).collect(),
            outputs: graph.outputs().iter().map(|(name, edge)| (name.to_string(), edge.index())).collect(),
        };
        serde_json::to_string_pretty(&document).unwrap_or_default()
    }

    /// Reads JSON that [`to_json`](Network::to_json) wrote, and checks it.
    ///
    /// # Errors
    /// If the document is invalid, or the network breaks a rule (each of them).
    pub fn from_json(json: &str, operators: &Operators) -> Result<Network, NetworkReadError> {
        let document: Document = serde_json::from_str(json)?;
        if document.network != VERSION {
            return Err(NetworkReadError::Version(document.network));
        }
        let count = document.edges.len();
        let known = |edge: usize| if edge < count { Ok(EdgeId::new(edge)) } else { Err(wrong(edge, "does not exist")) };
        let mut made: Vec<Option<Source>> = Vec::new();
        let mut graph = Graph::default();
        let mut names = Vec::new();
        for (index, edge) in document.edges.into_iter().enumerate() {
            names.push(edge.name);
            made.push(match (edge.input, edge.constant) {
                (Some(_), Some(_)) => return Err(wrong(index, "is an input and a constant")),
                (Some(of), None) => Some(Source::Input(of.of())),
                (None, Some(form)) => Some(Source::Constant(form.tensor()?)),
                (None, None) => None,
            });
            if let Some(Source::Input(_)) = made[index] {
                graph.inputs.push(EdgeId::new(index));
            }
        }
        for (index, form) in document.nodes.into_iter().enumerate() {
            let operator = Applied::named(&form.operator, operators).ok_or_else(|| NetworkReadError::Operator {
                node: form.name.clone(),
                near: meant(&form.operator, Operator::all().map(|row| row.name)),
                operator: form.operator.clone(),
            })?;
            let mut attributes = Attributes::new();
            for (name, value) in form.attributes {
                attributes.0.insert(name, value.attribute()?);
            }
            let inputs = form.inputs.into_iter().map(|edge| edge.map(known).transpose()).collect::<Result<Vec<_>, _>>()?;
            let mut outputs = Vec::new();
            for (output, edge) in form.outputs.into_iter().enumerate() {
                outputs.push(known(edge)?);
                if made[edge].replace(Source::Node(NodeId::new(index), output)).is_some() {
                    return Err(wrong(edge, "comes from two places"));
                }
            }
            graph.nodes.push(Node { name: form.name.into(), operator, attributes, inputs, outputs, built_at: None });
        }
        for (index, (name, source)) in names.into_iter().zip(made).enumerate() {
            let source = source.ok_or_else(|| wrong(index, "is computed by no node"))?;
            graph.edges.push(Edge { name: name.into(), source });
        }
        for (name, edge) in document.outputs {
            graph.outputs.push((name.into(), known(edge)?));
        }
        Ok(Network::from_graph(graph)?)
    }
}

fn wrong(edge: usize, why: &'static str) -> NetworkReadError {
    NetworkReadError::Edge { edge, why }
}
