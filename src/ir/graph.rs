//! The graph: an append-only, hash-consed arena of nodes, and the sinks that give it effects.
//!
//! A node refers only to nodes before it, so ids are a topological order and the wire format is an array. Pushing an
//! equal node twice gives the same id: common subexpressions are shared by construction. Where a node was built is kept
//! beside it and takes no part in equality or serialisation.

use super::axes::{Axes, K, L, M, N};
pub use super::constant::Constant;
use super::custom::CustomOp;
use super::function::Function;
use super::monoid::Monoid;
use super::name;
use super::op::{Op, Signature};
use super::operand::Operand;
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

/// Which coordinate of the output element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Coordinate {
    /// Along M.
    Row,
    /// Along N.
    Column,
    /// Along L.
    Batch,
}

impl Coordinate {
    /// Every coordinate.
    pub const ALL: [Coordinate; 3] = [Coordinate::Row, Coordinate::Column, Coordinate::Batch];

    /// The axis that it counts the elements along.
    pub const fn axis(self) -> Axes {
        match self {
            Coordinate::Row => M,
            Coordinate::Column => N,
            Coordinate::Batch => L,
        }
    }

    /// The one that counts the elements along an axis, if that is one axis.
    pub(crate) fn along(axis: Axes) -> Option<Coordinate> {
        Coordinate::ALL.into_iter().find(|coordinate| coordinate.axis() == axis)
    }

    /// The name in text and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Coordinate::Row => "row",
            Coordinate::Column => "column",
            Coordinate::Batch => "batch",
        }
    }
}

/// Which operand of the product.
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

    /// The axis of the output that it varies along: M or N.
    pub const fn axis(self) -> Axes {
        match self {
            Side::A => M,
            Side::B => N,
        }
    }

    /// The axes that its elements vary along.
    pub const fn axes(self) -> Axes {
        self.axis().union(K).union(L)
    }

    /// The same operand as the transposed problem calls it.
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
    /// The accumulator: the element of the matrix product, or of the matrix a pointwise kernel reads.
    Accumulator(ValueType),
    /// An element of an operand of the product, A\[m,k\] or B\[k,n\], of the accumulator's type. It exists only inside
    /// the product: all that can be done with it is a sum over K.
    Element(Side, ValueType),
    /// A constant.
    Constant(Constant),
    /// A coordinate of the output, counted from the run-time origin: an `i32`.
    Coordinate(Coordinate),
    /// A scalar passed by value at launch.
    Scalar {
        /// The argument's name.
        name: Arc<str>,
        /// Its type.
        value_type: ValueType,
        /// Its value where a launch leaves the argument out, which it may if there is one.
        default: Option<Constant>,
    },
    /// An element of an operand in memory.
    Load {
        /// The argument's name.
        name: Arc<str>,
        /// Its format and the axes it varies along.
        operand: Operand,
        /// What every element is where a launch leaves the argument out, which it may if there is one. Rounded to the
        /// format, as though memory full of it had been passed.
        default: Option<Constant>,
    },
    /// An element of a table in memory, at an index that is a value of the graph: 0 where the table has no such element.
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
        /// Which.
        op: Op,
        /// Its operands.
        args: Vec<NodeId>,
    },
    /// A named function, defined over primitives.
    Call {
        /// Which.
        function: &'static Function,
        /// Its arguments.
        args: Vec<NodeId>,
    },
    /// A primitive that the user registered.
    Custom {
        /// Which.
        op: Arc<CustomOp>,
        /// Its operands.
        args: Vec<NodeId>,
    },
    /// What the elements along some axes come to: a reduction whose result the graph uses. It varies along the other axes of its
    /// operands. Every element of the output takes part, whether or not the operand varies from one to the next.
    Reduce {
        /// What combines two elements.
        monoid: Monoid,
        /// The axes that it goes over, of M, N and L.
        over: Axes,
        /// The values of an element, as many as the monoid takes.
        args: Vec<NodeId>,
    },
}

impl Node {
    /// A load that every launch has to be given an argument for.
    pub fn load(name: impl Into<Arc<str>>, operand: impl Into<Operand>) -> Node {
        Node::Load { name: name.into(), operand: operand.into(), default: None }
    }

    /// A scalar that every launch has to be given.
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

    /// The word it begins with in the listing.
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

/// Where in the user's program a node was built.
pub type BuiltAt = Option<&'static Location<'static>>;

/// A graph of values and the sinks that store them. Nothing about it has been checked.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    nodes: Vec<Node>,
    /// The type of each node, as far as what is behind it keeps the rules.
    types: Vec<ValueType>,
    /// The axes that each node varies along.
    axes: Vec<Axes>,
    built_at: Vec<BuiltAt>,
    sinks: Vec<Sink>,
    sinks_built_at: Vec<BuiltAt>,
    ids: HashMap<Node, NodeId>,
}

/// Equality of content: the places where nodes were built do not count.
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

    /// Adds a node, or finds the equal one that is already there.
    ///
    /// # Panics
    /// If an argument is not in this graph but comes from another one, which only a program can get wrong:
    /// [`Epilogue::build`] reports that as an error, and so do text and JSON.
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
    /// If it has no value, or one that is not in this graph, as with [`push`](Graph::push).
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

    /// The same graph, every sink of another kind.
    #[must_use]
    pub fn map_sinks(&self, kind: impl Fn(SinkKind) -> SinkKind) -> Graph {
        let sinks = self.sinks.iter().map(|sink| Sink { kind: kind(sink.kind).canonical(), ..sink.clone() }).collect();
        Graph { sinks, ..self.clone() }
    }

    /// Reports everything elsewhere: `place` says where, of where it was built.
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
    /// If the id is another graph's and lies beyond this one.
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.index()]
    }

    /// The type of a node of a graph that keeps the rules, of this graph.
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

    /// The axes that a node varies along, from what is behind it.
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
            Node::Reduce { over, .. } => joined().without(*over),
            _ => joined(),
        }
    }

    /// The node that is equal to this one, if there is one.
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

    /// For each node, how many reductions inside the graph lie on the longest way to it, the node itself included. What has
    /// none behind it is computed at once; what has some waits for their results.
    pub(crate) fn stages(&self) -> Vec<usize> {
        let mut stages: Vec<usize> = Vec::with_capacity(self.nodes.len());
        for node in &self.nodes {
            let before = node.args().iter().map(|a| stages[a.index()]).max().unwrap_or_default();
            stages.push(before + usize::from(matches!(node, Node::Reduce { .. })));
        }
        stages
    }

    /// The part of it that its sinks and these values need; the values follow.
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

    /// For each node, whether one of the given nodes is it or needs it.
    pub(crate) fn needed_by(&self, roots: impl IntoIterator<Item = NodeId>) -> Vec<bool> {
        self.needed_beside(roots, |_| false)
    }

    /// The same, where some nodes are given: what only they need counts for nothing.
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
