//! The wire form: a versioned array of nodes for serde.
//!
//! Reading pushes every node through the arena again, so a document cannot contain a dangling or forward reference, and
//! the resulting graph is canonical. Custom primitives are serialised as a name and a fingerprint, never as source.

use super::custom::Registry;
use super::graph::{Constant, Coordinate, Graph, Node, NodeId, Side};
use super::name;
use super::op::Op;
use super::operand::Operand;
use super::over::Over;
use super::sink::{Reduction, Sink, SinkKind};
use super::text::{self, MAX_NODES};
use crate::dtype::{DType, ValueType};
use serde::ser::SerializeStruct;
use serde::{Deserialize, Serialize, Serializer};

/// The version of the format that this library writes, and the only one it reads.
pub const VERSION: u32 = 1;

/// A graph in its serialised form.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Document {
    postlude: u32,
    nodes: Vec<WireNode>,
    sinks: Vec<WireSink>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum WireNode {
    Acc(ValueType),
    Element(Side, ValueType),
    Const(WireConstant),
    Coordinate(Coordinate),
    Scalar { name: String, value_type: ValueType },
    Load { name: String, operand: Operand },
    Gather { name: String, dtype: DType, args: Vec<u32> },
    Apply(Op, Vec<u32>),
    Call(String, Vec<u32>),
    Custom { name: String, fingerprint: String, args: Vec<u32> },
    // Arguments that may be left out. They are separate kinds at the end, so binary documents without them read as
    // before.
    ScalarOr { name: String, value_type: ValueType, default: WireConstant },
    LoadOr { name: String, operand: Operand, default: WireConstant },
    Reduce { monoid: String, over: Over, args: Vec<u32> },
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum WireConstant {
    F32(String),
    F64(String),
    I32(i32),
    Bool(bool),
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WireSink {
    name: String,
    value: u32,
    kind: WireKind,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum WireKind {
    Store(Operand),
    Reduce(WireReduction),
    Bincount(Operand),
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WireReduction {
    monoid: String,
    #[serde(default)]
    atomic: bool,
    #[serde(default)]
    accumulate: bool,
    /// The other values of an element.
    #[serde(default)]
    with: Vec<u32>,
    operand: Operand,
}

impl From<Constant> for WireConstant {
    fn from(constant: Constant) -> WireConstant {
        match constant {
            Constant::F32(bits) => WireConstant::F32(text::format_f32(bits)),
            Constant::F64(bits) => WireConstant::F64(text::format_f64(bits)),
            Constant::I32(x) => WireConstant::I32(x),
            Constant::Bool(b) => WireConstant::Bool(b),
        }
    }
}

impl WireConstant {
    fn read(self) -> Result<Constant, String> {
        Ok(match self {
            WireConstant::F32(text) => Constant::F32(text::parse_f32(&text).ok_or("its constant is not an f32")?),
            WireConstant::F64(text) => Constant::F64(text::parse_f64(&text).ok_or("its constant is not an f64")?),
            WireConstant::I32(x) => Constant::I32(x),
            WireConstant::Bool(b) => Constant::Bool(b),
        })
    }
}

/// Text omits the fields that have their default, because older documents and cache keys lack these fields. A binary
/// format writes every field: it has no field names, and would misread a reduction without one.
impl Serialize for WireReduction {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let WireReduction { monoid, atomic, accumulate, with, operand } = self;
        let all = !serializer.is_human_readable();
        let (accumulates, has_more) = (*accumulate || all, !with.is_empty() || all);
        let mut fields = serializer.serialize_struct("Reduction", 3 + usize::from(accumulates) + usize::from(has_more))?;
        fields.serialize_field("monoid", monoid)?;
        fields.serialize_field("atomic", atomic)?;
        if accumulates {
            fields.serialize_field("accumulate", accumulate)?;
        }
        if has_more {
            fields.serialize_field("with", with)?;
        }
        fields.serialize_field("operand", operand)?;
        fields.end()
    }
}

/// The reason why a document is not an epilogue graph.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// Not JSON, or not of this shape.
    #[error(
        "not an epilogue document: {}{}",
        name::shown(&.0.to_string(), name::SHOWN_MESSAGE),
        name::meant_by_document(&.0.to_string())
    )]
    Json(#[from] serde_json::Error),
    /// Written by another version.
    #[error("the document has format version {0}; this library reads version {VERSION}")]
    Version(u32),
    /// Too large to be an epilogue.
    #[error("the document has {0} nodes and sinks; at most {MAX_NODES} are read")]
    TooLarge(usize),
    /// A node cannot be what the document says.
    #[error("node {index}: {message}")]
    Node {
        /// The node's place in the array.
        index: usize,
        /// The fault.
        message: String,
    },
    /// A sink reduces with an unknown monoid.
    #[error("sink {index}: {message}")]
    Monoid {
        /// The sink's place in the array.
        index: usize,
        /// The fault.
        message: String,
    },
    /// A sink stores a node that does not exist.
    #[error("sink {index} stores node {value}, which does not exist")]
    Sink {
        /// The sink's place in the array.
        index: usize,
        /// The node it names.
        value: u32,
    },
}

impl Document {
    /// A graph's wire form.
    pub fn of(graph: &Graph) -> Document {
        let ids = |args: &[NodeId]| args.iter().map(|a| a.0).collect();
        let nodes = graph.nodes().map(|(_, node)| match node {
            Node::Accumulator(v) => WireNode::Acc(*v),
            Node::Element(side, v) => WireNode::Element(*side, *v),
            Node::Constant(constant) => WireNode::Const((*constant).into()),
            Node::Coordinate(c) => WireNode::Coordinate(*c),
            Node::Scalar { name, value_type, default } => {
                let (name, value_type) = (name.to_string(), *value_type);
                match *default {
                    None => WireNode::Scalar { name, value_type },
                    Some(default) => WireNode::ScalarOr { name, value_type, default: default.into() },
                }
            }
            Node::Load { name, operand, default } => {
                let (name, operand) = (name.to_string(), *operand);
                match *default {
                    None => WireNode::Load { name, operand },
                    Some(default) => WireNode::LoadOr { name, operand, default: default.into() },
                }
            }
            Node::Gather { name, dtype, args } => WireNode::Gather { name: name.to_string(), dtype: *dtype, args: ids(args) },
            Node::Apply { op, args } => WireNode::Apply(*op, ids(args)),
            Node::Reduce { monoid, over, args } => {
                WireNode::Reduce { monoid: monoid.word().into(), over: *over, args: ids(args) }
            }
            Node::Call { function, args } => WireNode::Call(function.name.into(), ids(args)),
            Node::Custom { op, args } => {
                WireNode::Custom { name: op.name().into(), fingerprint: format!("{:016x}", op.fingerprint()), args: ids(args) }
            }
        });
        let sinks = graph.sinks().iter().map(|s| WireSink {
            name: s.name.to_string(),
            value: s.value().0,
            kind: match s.kind {
                SinkKind::Store(operand) => WireKind::Store(operand),
                SinkKind::Bincount(operand) => WireKind::Bincount(operand),
                SinkKind::Reduce(Reduction { monoid, atomic, accumulate, operand }) => {
                    let with = ids(&s.values[1..]);
                    WireKind::Reduce(WireReduction { monoid: monoid.word().into(), atomic, accumulate, with, operand })
                }
            },
        });
        Document { postlude: VERSION, nodes: nodes.collect(), sinks: sinks.collect() }
    }

    /// The graph, not checked yet.
    ///
    /// # Errors
    /// If the version differs, a node is unknown or refers forward, or the document is unreasonably large.
    pub fn into_graph(self, registry: &Registry) -> Result<Graph, WireError> {
        if self.postlude != VERSION {
            return Err(WireError::Version(self.postlude));
        }
        let size = self.nodes.len() + self.sinks.len();
        if size > MAX_NODES {
            return Err(WireError::TooLarge(size));
        }
        let mut graph = Graph::new();
        // Equal nodes of a document become one, so places in the array are mapped to ids.
        let mut ids: Vec<NodeId> = Vec::with_capacity(self.nodes.len());
        for (index, wire) in self.nodes.into_iter().enumerate() {
            let node = read_node(wire, &ids, registry).map_err(|message| WireError::Node { index, message })?;
            ids.push(graph.push(node, None));
        }
        for (index, sink) in self.sinks.into_iter().enumerate() {
            let (kind, with) = match sink.kind {
                WireKind::Store(operand) => (SinkKind::Store(operand), Vec::new()),
                WireKind::Bincount(operand) => (SinkKind::Bincount(operand), Vec::new()),
                WireKind::Reduce(WireReduction { monoid, atomic, accumulate, with, operand }) => {
                    let monoid = registry.monoid(&monoid).map_err(|message| WireError::Monoid { index, message })?;
                    (SinkKind::Reduce(Reduction { monoid, atomic, accumulate, operand }), with)
                }
            };
            let find = |value: u32| ids.get(value as usize).copied().ok_or(WireError::Sink { index, value });
            let values = std::iter::once(sink.value).chain(with).map(find).collect::<Result<_, _>>()?;
            graph.sink(Sink { name: sink.name.into(), values, kind }, None);
        }
        Ok(graph)
    }
}

fn read_node(wire: WireNode, ids: &[NodeId], registry: &Registry) -> Result<Node, String> {
    let refer = |args: Vec<u32>| -> Result<Vec<NodeId>, String> {
        let find = |a: u32| ids.get(a as usize).copied().ok_or_else(|| format!("it uses node {a}, which is not before it"));
        args.into_iter().map(find).collect()
    };
    Ok(match wire {
        WireNode::Acc(v) => Node::Accumulator(v),
        WireNode::Element(side, v) => Node::Element(side, v),
        WireNode::Const(constant) => Node::Constant(constant.read()?),
        WireNode::Coordinate(c) => Node::Coordinate(c),
        WireNode::Scalar { name, value_type } => Node::scalar(name, value_type),
        WireNode::ScalarOr { name, value_type, default } => {
            Node::Scalar { name: name.into(), value_type, default: Some(default.read()?) }
        }
        WireNode::Load { name, operand } => Node::load(name, operand),
        WireNode::LoadOr { name, operand, default } => Node::Load { name: name.into(), operand, default: Some(default.read()?) },
        WireNode::Gather { name, dtype, args } => Node::Gather { name: name.into(), dtype, args: refer(args)? },
        WireNode::Apply(op, args) => Node::Apply { op, args: refer(args)? },
        WireNode::Reduce { monoid, over, args } => Node::Reduce { monoid: registry.monoid(&monoid)?, over, args: refer(args)? },
        WireNode::Call(name, args) => {
            let unknown = || match Op::from_name(&name) {
                Some(_) => format!("`{name}` is a primitive: apply it instead of calling it"),
                None => text::unknown(registry, &name),
            };
            let function = registry.function(&name).ok_or_else(unknown)?;
            Node::Call { function, args: refer(args)? }
        }
        WireNode::Custom { name, fingerprint, args } => {
            Node::Custom { op: text::custom(registry, &name, &fingerprint)?, args: refer(args)? }
        }
    })
}
