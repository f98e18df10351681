//! The graph of a network as it is written: nodes, edges, inputs, outputs. [`Network`](super::Network) is a checked one.

use super::attribute::Attributes;
use super::custom::{CustomOperator, Operators};
use super::fault::Fault;
use super::meaning::attention;
use super::operator::{Anchor, Call, Derivative, Kind, Operands, Operator, Pointwise, Scored, Site, miscounted};
use super::tensor::Tensor;
use super::types::Type;
use crate::build::Expr;
use std::panic::Location;
use std::sync::Arc;

/// An edge, by its place in the graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EdgeId(u32);

/// A node, by its place in the graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(u32);

impl EdgeId {
    pub(crate) fn new(index: usize) -> EdgeId {
        EdgeId(u32::try_from(index).unwrap_or(u32::MAX))
    }

    /// The place.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl NodeId {
    pub(crate) fn new(index: usize) -> NodeId {
        NodeId(u32::try_from(index).unwrap_or(u32::MAX))
    }

    /// The place.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// Where the tensor of an edge comes from.
#[derive(Clone, Debug, PartialEq)]
pub enum Source {
    /// The caller passes it.
    Input(Type),
    /// It is part of the network: a weight.
    Constant(Tensor),
    /// This output of a node.
    Node(NodeId, usize),
}

/// A tensor on its way from one node to any number of others.
#[derive(Clone, Debug, PartialEq)]
pub struct Edge {
    /// Its name in listings; that of an input is the caller's name for it.
    pub name: Arc<str>,
    /// Where it comes from.
    pub source: Source,
}

/// The operator of a node: a row of the table, or one that a program registered.
#[derive(Clone, Debug, PartialEq)]
pub enum Applied {
    /// A row of the table.
    Row(&'static Operator),
    /// An operator of the program.
    Custom(Arc<CustomOperator>),
    /// The derivative of a pointwise operator.
    Derivative(Arc<Derivative>),
    /// An attention with a function of its scores. Fusion makes it of several nodes.
    Scored(Arc<Scored>),
}

/// The expression of a gradient, from an operator's inputs and the gradient of its output.
pub(crate) type GradientBody<'a> = Box<dyn for<'g> Fn(&Operands<'g, '_>, Expr<'g>) -> Expr<'g> + 'a>;

impl Applied {
    /// The operator of that name: a row of the table, one of the program's, or a derivative of either.
    pub(crate) fn named(name: &str, operators: &Operators) -> Option<Applied> {
        let row = Operator::named(name).map(Applied::Row);
        let own = || operators.get(name).cloned().map(Applied::Custom);
        row.or_else(own).or_else(|| {
            let (of, input) = Derivative::parsed(name)?;
            Some(Applied::Derivative(Derivative::new(&Applied::named(of, operators)?, input)))
        })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        match self {
            Applied::Row(row) => row.name,
            Applied::Custom(custom) => custom.name(),
            Applied::Derivative(derivative) => derivative.name(),
            Applied::Scored(_) => Scored::row().map_or("", |row| row.name),
        }
    }

    /// What fusion may do with it.
    pub fn kind(&self) -> Kind<'_> {
        match (self, self.expression()) {
            (Applied::Row(row), _) => row.kind,
            (Applied::Scored(_), _) => Kind::Anchor(Anchor::Attention),
            (_, Some(pointwise)) => Kind::Pointwise(pointwise),
            (_, None) => Kind::Opaque,
        }
    }

    /// Its expression, if it is pointwise.
    pub fn expression(&self) -> Option<Pointwise<'_>> {
        match self {
            Applied::Row(row) => row.expression(),
            Applied::Custom(custom) => custom.expression(),
            Applied::Derivative(derivative) => derivative.expression(),
            Applied::Scored(_) => None,
        }
    }

    /// The expression of the gradient of an input, if the program gave one.
    pub(crate) fn gradient_body(&self, input: usize) -> Option<GradientBody<'_>> {
        if let Applied::Custom(custom) = self { custom.gradient_body(input) } else { None }
    }

    /// How many inputs it takes, at least and at most.
    pub(crate) fn arity(&self) -> (usize, usize) {
        match self {
            Applied::Row(row) => row.inputs,
            Applied::Custom(custom) => (custom.arity(), custom.arity()),
            Applied::Derivative(derivative) => derivative.arity(),
            Applied::Scored(scored) => (3 + scored.inputs, 3 + scored.inputs),
        }
    }

    /// Whether it takes such attributes: every fault.
    pub(crate) fn admits_attributes(&self, attributes: &Attributes) -> Vec<Fault> {
        match self {
            Applied::Row(row) => row.admits_attributes(attributes),
            // A program's own operator may read any.
            Applied::Custom(_) => Vec::new(),
            Applied::Derivative(derivative) => derivative.of().admits_attributes(attributes),
            Applied::Scored(_) => Scored::row().map_or_else(Vec::new, |row| row.admits_attributes(attributes)),
        }
    }
}

/// An operator applied to tensors.
#[derive(Clone, Debug)]
pub struct Node {
    /// Its name in listings and errors.
    pub name: Arc<str>,
    /// The operator.
    pub operator: Applied,
    /// Its attributes.
    pub attributes: Attributes,
    /// Its inputs; `None` for one that is left out.
    pub inputs: Vec<Option<EdgeId>>,
    /// Its outputs.
    pub outputs: Vec<EdgeId>,
    /// The line of Rust that built it.
    pub built_at: Option<&'static Location<'static>>,
}

/// Where a node was built does not matter.
impl PartialEq for Node {
    fn eq(&self, other: &Node) -> bool {
        let same = self.name == other.name && self.operator == other.operator && self.attributes == other.attributes;
        same && self.inputs == other.inputs && self.outputs == other.outputs
    }
}

impl Node {
    /// The operator's name.
    pub fn operator_name(&self) -> &str {
        self.operator.name()
    }

    /// What fusion may do with it.
    pub fn kind(&self) -> Kind<'_> {
        self.operator.kind()
    }

    /// Its expression, if it is pointwise.
    pub fn expression(&self) -> Option<Pointwise<'_>> {
        self.operator.expression()
    }

    /// Every way in which inputs, outputs and attributes are not the operator's.
    pub(crate) fn misfits(&self) -> Vec<Fault> {
        let (least, mut faults) = match &self.operator {
            Applied::Row(row) => (row.inputs.0, row.admits(self.inputs.len(), self.outputs.len(), &self.attributes)),
            Applied::Custom(custom) => (custom.arity(), custom.admits(self.inputs.len(), self.outputs.len())),
            Applied::Derivative(derivative) => {
                let given: Vec<bool> = self.inputs.iter().map(Option::is_some).collect();
                (0, derivative.admits(&given, self.outputs.len(), &self.attributes))
            }
            Applied::Scored(_) => {
                let (least, most) = self.operator.arity();
                let counted = [("inputs", self.inputs.len(), (least, most)), ("outputs", self.outputs.len(), (1, 1))];
                let faults =
                    counted.into_iter().filter_map(|(what, given, of)| miscounted(self.operator_name(), what, given, of));
                (least, faults.chain(self.operator.admits_attributes(&self.attributes)).collect())
            }
        };
        if faults.is_empty() && self.inputs.iter().take(least).any(Option::is_none) {
            faults.push(Fault::Shape(format!("{} needs its first {least} inputs", self.operator_name())));
        }
        faults
    }

    /// The types of its outputs.
    pub(crate) fn types(&self, inputs: &[Option<&Type>], constants: &[Option<&Tensor>]) -> Result<Vec<Type>, Fault> {
        let (name, attributes, outputs) = (self.operator_name(), &self.attributes, self.outputs.len());
        let site = Site { name, attributes, inputs, constants, outputs };
        match (&self.operator, self.expression()) {
            (Applied::Row(row), _) => row.types(&site),
            (_, Some(pointwise)) => pointwise.types(&site),
            (Applied::Scored(_), _) => attention::types(&site),
            (Applied::Custom(custom), None) => custom.types(inputs),
            (Applied::Derivative(_), None) => Err(Fault::Unsupported(format!("{name}, whose operator is not an expression,"))),
        }
    }

    /// Its outputs on the CPU.
    pub(crate) fn evaluate(&self, inputs: &[Option<&Tensor>]) -> Result<Vec<Tensor>, Fault> {
        let (name, attributes, outputs) = (self.operator_name(), &self.attributes, self.outputs.len());
        let call = Call { name, attributes, inputs, outputs };
        match (&self.operator, self.expression()) {
            (Applied::Row(row), _) => row.evaluate(&call),
            (_, Some(pointwise)) => pointwise.evaluate(&call),
            (Applied::Scored(scored), _) => attention::scored(&call, scored),
            (Applied::Custom(custom), None) => custom.evaluate(inputs),
            (Applied::Derivative(_), None) => Err(Fault::Unsupported(format!("{name}, whose operator is not an expression,"))),
        }
    }
}

/// A graph: nodes in an order in which each comes behind those it depends on.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Graph {
    pub(crate) nodes: Vec<Node>,
    pub(crate) edges: Vec<Edge>,
    pub(crate) inputs: Vec<EdgeId>,
    pub(crate) outputs: Vec<(Arc<str>, EdgeId)>,
}

impl Graph {
    /// Its nodes, with their places.
    pub fn nodes(&self) -> impl Iterator<Item = (NodeId, &Node)> {
        self.nodes.iter().enumerate().map(|(i, node)| (NodeId::new(i), node))
    }

    /// Its edges, with their places.
    pub fn edges(&self) -> impl Iterator<Item = (EdgeId, &Edge)> {
        self.edges.iter().enumerate().map(|(i, edge)| (EdgeId::new(i), edge))
    }

    /// A node.
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.index()]
    }

    /// An edge.
    pub fn edge(&self, id: EdgeId) -> &Edge {
        &self.edges[id.index()]
    }

    /// The edges that a caller passes, in order.
    pub fn inputs(&self) -> &[EdgeId] {
        &self.inputs
    }

    /// The edges that a caller gets, each under its name.
    pub fn outputs(&self) -> &[(Arc<str>, EdgeId)] {
        &self.outputs
    }

    /// The node that computes an edge.
    pub fn producer(&self, id: EdgeId) -> Option<NodeId> {
        if let Source::Node(node, _) = self.edge(id).source { Some(node) } else { None }
    }

    /// The tensor of a constant edge.
    pub fn constant(&self, id: EdgeId) -> Option<&Tensor> {
        if let Source::Constant(tensor) = &self.edge(id).source { Some(tensor) } else { None }
    }

    /// For each edge the nodes that read it, once for each input.
    pub fn users(&self) -> Vec<Vec<NodeId>> {
        let mut users = vec![Vec::new(); self.edges.len()];
        for (id, node) in self.nodes() {
            node.inputs.iter().flatten().for_each(|edge| users[edge.index()].push(id));
        }
        users
    }

    /// Adds an edge.
    pub(crate) fn add_edge(&mut self, name: impl Into<Arc<str>>, source: Source) -> EdgeId {
        let id = EdgeId::new(self.edges.len());
        if let Source::Input(_) = source {
            self.inputs.push(id);
        }
        self.edges.push(Edge { name: name.into(), source });
        id
    }

    /// Adds a node with as many outputs as names are given for them.
    pub(crate) fn add_node(&mut self, node: Node, outputs: Vec<Arc<str>>) -> Vec<EdgeId> {
        let id = NodeId::new(self.nodes.len());
        let add = |(output, name): (usize, Arc<str>)| self.add_edge(name, Source::Node(id, output));
        let outputs: Vec<EdgeId> = outputs.into_iter().enumerate().map(add).collect();
        self.nodes.push(Node { outputs: outputs.clone(), ..node });
        outputs
    }
}
