//! The graph: an append-only, hash-consed arena of nodes, and the sinks that give it effects.
//!
//! A node refers only to nodes before it, so ids are a topological order and the wire format is an array. Pushing an
//! equal node twice gives the same id, so common subexpressions are shared by construction. The place where a node was
//! built is stored beside it, and does not affect equality or serialisation.

use super::axes::{Axes, K, L, M, N};
pub use super::constant::Constant;
pub use super::coordinate::Coordinate;
use super::custom::CustomOp;
use super::function::Function;
use super::monoid::Monoid;
use super::name;
use super::op::{Op, Signature};
use super::operand::Operand;
use super::over::Over;
use super::sink::{Sink, SinkKind};
use crate::dtype::{DType, ValueType};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fmt;
use std::panic::Location;
use std::sync::Arc;

/// A node's place in its graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct NodeId(pub(crate) u32);

impl NodeId {
    /// The place as an index.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "%{}", self.0)
    }
}

/// An operand of the product.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Side {
    /// The left one, M x K.
    A,
    /// The right one, K x N.
    B,
}

impl Side {
    /// Both.
    pub const ALL: [Side; 2] = [Side::A, Side::B];

    /// The name in text and JSON, and of the argument of a launch.
    pub const fn name(self) -> &'static str {
        match self {
            Side::A => "a",
            Side::B => "b",
        }
    }

    /// The axis of the output along which it varies: M or N.
    pub const fn axis(self) -> Axes {
        match self {
            Side::A => M,
            Side::B => N,
        }
    }

    /// The axes along which its elements vary.
    pub const fn axes(self) -> Axes {
        self.axis().union(K).union(L)
    }

    /// The same operand in the transposed problem.
    #[must_use]
    pub const fn transposed(self) -> Side {
        match self {
            Side::A => Side::B,
            Side::B => Side::A,
        }
    }
}

/// A value of the graph.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Node {
    /// The accumulator: the element of the matrix product, or of the matrix that a pointwise kernel reads.
    Accumulator(ValueType),
    /// An element of an operand of the product, A\[m,k\] or B\[k,n\], with the accumulator's type. It exists only
    /// inside the product, and can only be summed over K.
    Element(Side, ValueType),
    /// A constant.
    Constant(Constant),
    /// A coordinate of the output, counted from the run-time origin, or of a score, counted from 0: an `i32`.
    Coordinate(Coordinate),
    /// A scalar passed by value at launch.
    Scalar {
        /// The argument's name.
        name: Arc<str>,
        /// Its type.
        value_type: ValueType,
        /// Its value if a launch leaves the argument out, which is allowed only with a default.
        default: Option<Constant>,
    },
    /// An element of an operand in memory.
    Load {
        /// The argument's name.
        name: Arc<str>,
        /// Its format and the axes it varies along.
        operand: Operand,
        /// The value of every element if a launch leaves the argument out, which is allowed only with a default. It is
        /// rounded to the format, as if memory filled with it had been passed.
        default: Option<Constant>,
    },
    /// An element of a table in memory, at an index that is a value of the graph; 0 if the index is out of range.
    Gather {
        /// The argument's name.
        name: Arc<str>,
        /// The format of the table's elements.
        dtype: DType,
        /// The index, an `i32`: one operand.
        args: Vec<NodeId>,
    },
    /// A primitive.
    Apply {
        /// The primitive.
        op: Op,
        /// Its operands.
        args: Vec<NodeId>,
    },
    /// A named function, defined over primitives.
    Call {
        /// The function.
        function: &'static Function,
        /// Its arguments.
        args: Vec<NodeId>,
    },
    /// A primitive that the user registered.
    Custom {
        /// The primitive.
        op: Arc<CustomOp>,
        /// Its operands.
        args: Vec<NodeId>,
    },
    /// A reduction along some axes whose result the graph uses. It varies along the other axes of its operands. Every
    /// element of the output takes part, even if the operand does not vary from one element to the next.
    Reduce {
        /// The monoid that combines elements.
        monoid: Monoid,
        /// The axes that it goes over: M, N and L, one of them perhaps in bands.
        over: Over,
        /// The values of an element, as many as the monoid takes.
        args: Vec<NodeId>,
    },
}

impl Node {
    /// A load of an argument that every launch must pass.
    pub fn load(name: impl Into<Arc<str>>, operand: impl Into<Operand>) -> Node {
        Node::Load { name: name.into(), operand: operand.into(), default: None }
    }

    /// A scalar that every launch must pass.
    pub fn scalar(name: impl Into<Arc<str>>, value_type: ValueType) -> Node {
        Node::Scalar { name: name.into(), value_type, default: None }
    }

    /// Issue slots of a gather: two comparisons, an address, the access and a conversion.
    pub const GATHER_COST: u32 = 6;

    /// Issue slots for one element, roughly.
    pub fn cost(&self) -> u32 {
        match self {
            Node::Gather { .. } => Node::GATHER_COST,
            Node::Apply { op, .. } => op.row().cost,
            Node::Custom { .. } => CustomOp::COST,
            Node::Reduce { monoid, .. } => monoid.cost(),
            _ => 0,
        }
    }

    /// The nodes it uses, in order.
    pub fn args(&self) -> &[NodeId] {
        match self {
            Node::Gather { args, .. } | Node::Apply { args, .. } | Node::Call { args, .. } | Node::Custom { args, .. } => args,
            Node::Reduce { args, .. } => args,
            _ => &[],
        }
    }

    /// The same node with each argument replaced.
    pub fn map_args(&self, map: impl FnMut(NodeId) -> NodeId) -> Node {
        let mut node = self.clone();
        if let Node::Gather { args, .. }
        | Node::Apply { args, .. }
        | Node::Call { args, .. }
        | Node::Custom { args, .. }
        | Node::Reduce { args, .. } = &mut node
        {
            *args = args.iter().copied().map(map).collect();
        }
        node
    }

    /// The first word of its line in the listing.
    pub fn mnemonic(&self) -> &str {
        match self {
            Node::Accumulator(_) => "acc",
            Node::Element(side, _) => side.name(),
            Node::Constant(_) => "const",
            Node::Coordinate(c) => c.name(),
            Node::Scalar { .. } => "scalar",
            Node::Load { .. } => "load",
            Node::Gather { .. } => "gather",
            Node::Apply { op, .. } => op.name(),
            Node::Call { function, .. } => function.name,
            Node::Custom { op, .. } => op.name(),
            Node::Reduce { .. } => "reduce",
        }
    }
}

/// The place in the user's program where a node was built.
pub type BuiltAt = Option<&'static Location<'static>>;

/// A graph of values and the sinks that store them. It is not checked yet.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    nodes: Vec<Node>,
    /// The type of each node, provided that the nodes behind it keep the rules.
    types: Vec<ValueType>,
    /// The axes that each node varies along.
    axes: Vec<Axes>,
    built_at: Vec<BuiltAt>,
    sinks: Vec<Sink>,
    sinks_built_at: Vec<BuiltAt>,
    ids: HashMap<Node, NodeId>,
}

/// Equality of content. The places where nodes were built do not affect it.
impl PartialEq for Graph {
    fn eq(&self, other: &Graph) -> bool {
        self.nodes == other.nodes && self.sinks == other.sinks
    }
}

impl Graph {
    /// An empty graph.
    pub fn new() -> Graph {
        Graph::default()
    }

    /// Adds a node, or finds the equal one that already exists.
    ///
    /// # Panics
    /// If an argument is not in this graph but in another one. Only a program can make this mistake:
    /// [`Epilogue::build`] reports it as an error, and so do text and JSON.
    ///
    /// [`Epilogue::build`]: crate::Epilogue::build
    #[track_caller]
    pub fn push(&mut self, node: Node, built_at: BuiltAt) -> NodeId {
        assert!(node.args().iter().all(|a| a.index() < self.nodes.len()), "{node:?} uses a node that is not in this graph");
        let node = match node {
            Node::Load { name, operand, default } => Node::Load { name, operand: operand.canonical(), default },
            other => other,
        };
        if let Some(&id) = self.ids.get(&node) {
            return id;
        }
        let id = NodeId(self.nodes.len() as u32);
        self.types.push(self.type_from_args(&node));
        self.axes.push(self.axes_from_args(&node));
        self.ids.insert(node.clone(), id);
        self.nodes.push(node);
        self.built_at.push(built_at);
        id
    }

    /// Adds a primitive.
    pub fn apply(&mut self, op: Op, args: &[NodeId]) -> NodeId {
        self.push(Node::Apply { op, args: args.to_vec() }, None)
    }

    /// Adds an `f32` constant.
    pub fn constant_f32(&mut self, x: f32) -> NodeId {
        self.push(Node::Constant(Constant::F32(x.to_bits())), None)
    }

    /// Adds the constant of a type nearest to a value.
    pub(crate) fn constant_of(&mut self, value_type: ValueType, x: f64) -> NodeId {
        self.push(Node::Constant(Constant::of(value_type, x)), None)
    }

    /// Adds a sink.
    ///
    /// # Panics
    /// If it has no value, or a value that is not in this graph, as with [`push`](Graph::push).
    #[track_caller]
    pub fn sink(&mut self, sink: Sink, built_at: BuiltAt) {
        assert!(
            !sink.values.is_empty() && sink.values.iter().all(|value| value.index() < self.nodes.len()),
            "sink `{}` stores a node that is not in this graph",
            name::word(&sink.name)
        );
        self.sinks.push(Sink { kind: sink.kind.canonical(), ..sink });
        self.sinks_built_at.push(built_at);
    }

    /// The same graph with another kind for every sink.
    #[must_use]
    pub fn map_sinks(&self, kind: impl Fn(SinkKind) -> SinkKind) -> Graph {
        let sinks = self.sinks.iter().map(|sink| Sink { kind: kind(sink.kind).canonical(), ..sink.clone() }).collect();
        Graph { sinks, ..self.clone() }
    }

    /// Moves the reported places: `place` maps the old place to the new one.
    pub(crate) fn relocate(&mut self, place: impl Fn(&'static Location<'static>) -> &'static Location<'static>) {
        for built_at in self.built_at.iter_mut().chain(&mut self.sinks_built_at) {
            *built_at = built_at.map(&place);
        }
    }

    /// How many nodes there are.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether there is no node.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// A node.
    ///
    /// # Panics
    /// If the id belongs to another graph and is out of range here.
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.index()]
    }

    /// The type of a node, from its operands, in a graph that keeps the rules.
    pub fn value_type(&self, id: NodeId) -> ValueType {
        self.types[id.index()]
    }

    fn type_from_args(&self, node: &Node) -> ValueType {
        match node {
            Node::Accumulator(value) | Node::Element(_, value) => *value,
            Node::Constant(constant) => constant.value_type(),
            Node::Coordinate(_) => ValueType::I32,
            Node::Scalar { value_type, .. } => *value_type,
            Node::Load { operand, .. } => operand.dtype.value_type(),
            Node::Gather { dtype, .. } => dtype.value_type(),
            Node::Apply { op, args } => match op.row().signature {
                Signature::Same { gives: Some(to), .. } | Signature::Convert(to) => to,
                Signature::Same { .. } => args.first().map_or(ValueType::F32, |a| self.value_type(*a)),
                Signature::Select => args.get(1).map_or(ValueType::F32, |a| self.value_type(*a)),
            },
            Node::Call { args, .. } => args.first().map_or(ValueType::F32, |a| self.value_type(*a)),
            Node::Custom { .. } => ValueType::F32,
            Node::Reduce { monoid, args, .. } => monoid.gives(args.first().map_or(ValueType::F32, |a| self.value_type(*a))),
        }
    }

    /// The axes that a node varies along, from its operands.
    pub(crate) fn axes(&self, id: NodeId) -> Axes {
        self.axes[id.index()]
    }

    fn axes_from_args(&self, node: &Node) -> Axes {
        let joined = || node.args().iter().fold(Axes::NONE, |axes, a| axes | self.axes(*a));
        match node {
            Node::Accumulator(_) => Axes::MNL,
            Node::Element(side, _) => side.axes(),
            Node::Coordinate(coordinate) => coordinate.axis(),
            Node::Load { operand, .. } => operand.axes,
            Node::Reduce { over, .. } => over.kept(joined()),
            _ => joined(),
        }
    }

    /// The node that equals this one, if it exists.
    pub(crate) fn find(&self, node: &Node) -> Option<NodeId> {
        self.ids.get(node).copied()
    }

    /// Every node with its id, arguments before users.
    pub fn nodes(&self) -> impl DoubleEndedIterator<Item = (NodeId, &Node)> + ExactSizeIterator {
        self.nodes.iter().enumerate().map(|(i, n)| (NodeId(i as u32), n))
    }

    /// The sinks, in the order they were added.
    pub fn sinks(&self) -> &[Sink] {
        &self.sinks
    }

    /// Where a node was built, if it was built by a program.
    pub fn built_at(&self, id: NodeId) -> BuiltAt {
        self.built_at[id.index()]
    }

    /// Where a sink was added, if it was by a program.
    pub fn sink_built_at(&self, index: usize) -> BuiltAt {
        self.sinks_built_at[index]
    }

    /// For each node, the number of reductions inside the graph on the longest path to it, including the node itself. A
    /// node without such reductions is computed at once. Other nodes wait for their results.
    pub(crate) fn stages(&self) -> Vec<usize> {
        let mut stages: Vec<usize> = Vec::with_capacity(self.nodes.len());
        for node in &self.nodes {
            let before = node.args().iter().map(|a| stages[a.index()]).max().unwrap_or_default();
            stages.push(before + usize::from(matches!(node, Node::Reduce { .. })));
        }
        stages
    }

    /// The part of the graph that its sinks and these values need. The values are updated.
    pub(crate) fn pruned(&self, values: &mut [NodeId]) -> Graph {
        let live = self.needed_by(self.sinks.iter().flat_map(|s| s.values.iter().copied()).chain(values.iter().copied()));
        let (mut out, mut ids) = (Graph::new(), Vec::new());
        for (id, node) in self.nodes() {
            ids.push(if live[id.index()] { out.push(node.map_args(|a| ids[a.index()]), self.built_at(id)) } else { id });
        }
        for (index, sink) in self.sinks().iter().enumerate() {
            out.sink(sink.map(|value| ids[value.index()]), self.sink_built_at(index));
        }
        values.iter_mut().for_each(|v| *v = ids[v.index()]);
        out
    }

    /// For each node, whether some sink needs it.
    pub fn live(&self) -> Vec<bool> {
        self.needed_by(self.sinks.iter().flat_map(|s| s.values.iter().copied()))
    }

    /// For each node, whether it is one of the given nodes, or one of them needs it.
    pub(crate) fn needed_by(&self, roots: impl IntoIterator<Item = NodeId>) -> Vec<bool> {
        self.needed_beside(roots, |_| false)
    }

    /// The same if some nodes are given: nodes that only they need do not count.
    pub(crate) fn needed_beside(&self, roots: impl IntoIterator<Item = NodeId>, is_given: impl Fn(NodeId) -> bool) -> Vec<bool> {
        let mut live = vec![false; self.nodes.len()];
        for root in roots {
            live[root.index()] = true;
        }
        for (id, node) in self.nodes().rev() {
            if live[id.index()] && !is_given(id) {
                for arg in node.args() {
                    live[arg.index()] = true;
                }
            }
        }
        live
    }
}
