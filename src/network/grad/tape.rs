//! The tape: the network under construction, which rules add nodes to.

use crate::network::attribute::Attributes;
use crate::network::check;
use crate::network::fault::Fault;
use crate::network::format::Format;
use crate::network::graph::{Applied, EdgeId, Graph, Node, Source};
use crate::network::network::Network;
use crate::network::operator::Operator;
use crate::network::tensor::Tensor;
use crate::network::types::{Dim, Type};
use std::panic::Location;
use std::sync::Arc;

/// A node whose inputs get gradients.
pub(crate) struct Step<'a> {
    /// The node.
    pub node: &'a Node,
    /// The gradients of its outputs; `None` for one that has none.
    pub incoming: &'a [Option<EdgeId>],
    /// The inputs whose gradients are asked for.
    pub wanted: &'a [bool],
}

impl Step<'_> {
    /// An input that the operator needs.
    pub fn input(&self, index: usize) -> Result<EdgeId, Fault> {
        self.given(index).ok_or_else(|| Fault::Shape(format!("{} needs its input {index}", self.node.operator_name())))
    }

    /// An input that may be left out.
    pub fn given(&self, index: usize) -> Option<EdgeId> {
        self.node.inputs.get(index).copied().flatten()
    }

    /// The gradient of the first output.
    pub fn gradient(&self) -> Result<EdgeId, Fault> {
        self.incoming.first().copied().flatten().ok_or_else(|| self.lacks("without a gradient of its first output"))
    }

    /// Whether the gradient of an input is asked for.
    pub fn wants(&self, index: usize) -> bool {
        self.wanted.get(index) == Some(&true)
    }

    /// A fault, if a gradient of an input from this one on is asked for.
    pub fn only(&self, before: usize) -> Result<(), Fault> {
        match (before..self.wanted.len()).find(|index| self.wants(*index)) {
            Some(index) => Err(self.lacks(&format!("by input {index}"))),
            None => Ok(()),
        }
    }

    /// What has no gradient.
    pub fn lacks(&self, what: &str) -> Fault {
        Fault::Unsupported(format!("the gradient of {} {what}", self.node.operator_name()))
    }
}

/// The gradients of a node's inputs: `None` for one that is not asked for.
pub(crate) type Found = Result<Vec<Option<EdgeId>>, Fault>;
/// How the gradients of inputs follow from those of outputs.
pub(crate) type Rule = fn(&mut Tape, &Step<'_>) -> Found;

/// The forward network, to which nodes are added. Edges of the forward network keep their places.
pub(crate) struct Tape {
    graph: Graph,
    types: Vec<Option<Type>>,
    values: Vec<Option<Tensor>>,
    /// The name and the line of the forward node whose rule is at work.
    of: Arc<str>,
    built_at: Option<&'static Location<'static>>,
}

impl Tape {
    pub fn new(network: &Network) -> Tape {
        let graph = network.graph().clone();
        let edges: Vec<EdgeId> = graph.edges().map(|(edge, _)| edge).collect();
        let types = edges.iter().map(|edge| Some(network.type_of(*edge).clone())).collect();
        let values = edges.iter().map(|edge| network.value_of(*edge).cloned()).collect();
        Tape { graph, types, values, of: "seed".into(), built_at: None }
    }

    pub fn finish(self) -> Graph {
        self.graph
    }

    /// Names the nodes that are added from here on after a node.
    pub fn work_on(&mut self, node: &Node) {
        (self.of, self.built_at) = (node.name.clone(), node.built_at);
    }

    fn edge(&mut self, name: String, source: Source, of: Type, value: Option<Tensor>) -> EdgeId {
        let edge = self.graph.add_edge(name, source);
        self.types.push(Some(of));
        self.values.push(value);
        edge
    }

    /// A further input.
    pub fn input(&mut self, name: &str, of: Type) -> EdgeId {
        self.edge(name.to_owned(), Source::Input(of.clone()), of, None)
    }

    /// A constant.
    pub fn constant(&mut self, tensor: Tensor) -> EdgeId {
        let (name, of) = (format!("g{}", self.graph.edges.len()), Type::of(&tensor));
        self.edge(name, Source::Constant(tensor.clone()), of, Some(tensor))
    }

    /// A constant of indices.
    pub fn indices(&mut self, values: &[i64]) -> EdgeId {
        self.constant(Tensor::indices(values))
    }

    /// One number in the format of an edge.
    pub fn number_like(&mut self, edge: EdgeId, x: f64) -> Result<EdgeId, Fault> {
        let format = self.format(edge)?;
        Ok(self.constant(Tensor::scalar(format, x)))
    }

    /// Ones in the type of a loss.
    pub fn ones(&mut self, of: &Type) -> EdgeId {
        let one = Tensor::scalar(of.format, 1.0);
        let shape = of.shape().unwrap_or_default();
        let one = one.reshaped(&shape).unwrap_or(one);
        self.constant(one)
    }

    /// The type of an edge.
    pub fn type_of(&self, edge: EdgeId) -> Result<&Type, Fault> {
        let of = self.types.get(edge.index()).and_then(Option::as_ref);
        of.ok_or_else(|| Fault::Value("an edge has no type".to_owned()))
    }

    pub fn format(&self, edge: EdgeId) -> Result<Format, Fault> {
        Ok(self.type_of(edge)?.format)
    }

    /// The extents of an edge, which a rule needs as far as axes go.
    pub fn dims(&self, edge: EdgeId) -> Result<Vec<Dim>, Fault> {
        let dims = self.type_of(edge)?.dims.clone();
        dims.ok_or_else(|| {
            Fault::Unsupported("the gradient of a node whose axes are not known before the network runs".to_owned())
        })
    }

    pub fn rank(&self, edge: EdgeId) -> Result<usize, Fault> {
        Ok(self.dims(edge)?.len())
    }

    /// The extents of an edge as numbers.
    pub fn shape(&self, edge: EdgeId) -> Result<Vec<usize>, Fault> {
        let shape = self.type_of(edge)?.shape();
        shape.ok_or_else(|| {
            Fault::Unsupported("the gradient of a node whose extents are not numbers (bind them with `Network::bind`)".to_owned())
        })
    }

    /// The tensor of an edge that is known before the network runs.
    pub fn value(&self, edge: EdgeId) -> Option<&Tensor> {
        self.values.get(edge.index()).and_then(Option::as_ref)
    }

    /// The integers of an edge that has to be a constant.
    pub fn sizes(&self, edge: EdgeId) -> Result<Vec<i64>, Fault> {
        let unknown = || Fault::Unsupported("the gradient of a node whose axes or extents the network computes".to_owned());
        self.value(edge).map(Tensor::sizes).ok_or_else(unknown)
    }

    /// Applies an operator to inputs of which some are left out, with so many outputs.
    pub fn push(
        &mut self,
        operator: Applied,
        inputs: Vec<Option<EdgeId>>,
        attributes: Attributes,
        outputs: usize,
    ) -> Result<Vec<EdgeId>, Fault> {
        let index = self.graph.nodes.len();
        let name: Arc<str> = format!("{}.grad{index}", self.of).into();
        let names = (0..outputs).map(|i| if i == 0 { format!("d{index}") } else { format!("d{index}.{i}") });
        let names: Vec<Arc<str>> = names.map(Arc::from).collect();
        let node = Node { name, operator, attributes, inputs, outputs: Vec::new(), built_at: self.built_at };
        let found = {
            let given: Vec<Option<&Type>> =
                node.inputs.iter().map(|edge| edge.and_then(|edge| self.types.get(edge.index())?.as_ref())).collect();
            let constants: Vec<Option<&Tensor>> = node.inputs.iter().map(|edge| edge.and_then(|edge| self.value(edge))).collect();
            let counted = Node { outputs: vec![EdgeId::new(0); outputs], ..node.clone() };
            if let Some(fault) = counted.misfits().into_iter().next() {
                return Err(fault);
            }
            counted.types(&given, &constants)?
        };
        let edges = self.graph.add_node(node, names);
        self.types.extend(found.into_iter().take(outputs).map(Some));
        self.types.resize(self.graph.edges.len(), None);
        self.values.resize(self.graph.edges.len(), None);
        let node = &self.graph.nodes[index];
        check::propagate(node, &mut self.types, &mut self.values);
        Ok(edges)
    }

    /// Applies a row of the table that has one output.
    pub fn apply(&mut self, operator: &str, inputs: &[EdgeId], attributes: Attributes) -> Result<EdgeId, Fault> {
        let row = Operator::named(operator).ok_or_else(|| Fault::Unsupported(operator.to_owned()))?;
        let inputs = inputs.iter().copied().map(Some).collect();
        Ok(self.push(Applied::Row(row), inputs, attributes, 1)?[0])
    }

    pub fn unary(&mut self, operator: &str, x: EdgeId) -> Result<EdgeId, Fault> {
        self.apply(operator, &[x], Attributes::new())
    }

    pub fn binary(&mut self, operator: &str, x: EdgeId, y: EdgeId) -> Result<EdgeId, Fault> {
        self.apply(operator, &[x, y], Attributes::new())
    }

    pub fn mul(&mut self, x: EdgeId, y: EdgeId) -> Result<EdgeId, Fault> {
        self.binary("Mul", x, y)
    }

    /// Times a number; itself where that is 1.
    pub fn scaled(&mut self, x: EdgeId, factor: f64) -> Result<EdgeId, Fault> {
        if factor == 1.0 {
            return Ok(x);
        }
        let factor = self.number_like(x, factor)?;
        self.mul(x, factor)
    }

    /// In another format; itself where it has that.
    pub fn cast(&mut self, x: EdgeId, to: Format) -> Result<EdgeId, Fault> {
        if self.format(x)? == to { Ok(x) } else { self.apply("Cast", &[x], Attributes::new().with("to", to.name())) }
    }

    /// In a format whose sums and quotients are as good as those of a kernel: `f32` for what has fewer bits.
    pub fn wide(&mut self, x: EdgeId) -> Result<EdgeId, Fault> {
        let to = if self.format(x)? == Format::F64 { Format::F64 } else { Format::F32 };
        self.cast(x, to)
    }

    /// A sum or mean along axes, which stay with an extent of 1.
    pub fn reduced(&mut self, operator: &str, x: EdgeId, axes: &[usize]) -> Result<EdgeId, Fault> {
        if axes.is_empty() {
            return Ok(x);
        }
        let axes = self.indices(&extents(axes));
        self.apply(operator, &[x, axes], Attributes::new().with("keepdims", 1i64))
    }

    /// The same elements in the shape of an edge.
    pub fn shaped(&mut self, x: EdgeId, like: EdgeId) -> Result<EdgeId, Fault> {
        let (from, to) = (self.type_of(x)?.dims.clone(), self.type_of(like)?.dims.clone());
        if from.is_some() && from == to && !from.iter().flatten().any(|dim| *dim == Dim::Unknown) {
            return Ok(x);
        }
        let open = to.iter().flatten().filter(|dim| dim.known().is_none()).count();
        let nothing = to.iter().flatten().any(|dim| *dim == Dim::Known(0));
        let shape = match to {
            Some(dims) if open <= 1 && !nothing => {
                let extents: Vec<i64> = dims.iter().map(|dim| dim.known().map_or(-1, |extent| extent as i64)).collect();
                self.indices(&extents)
            }
            _ => self.unary("Shape", like)?,
        };
        self.apply("Reshape", &[x, shape], Attributes::new().with("allowzero", i64::from(nothing)))
    }

    /// Stretched to the shape of an edge.
    pub fn stretched(&mut self, x: EdgeId, like: EdgeId) -> Result<EdgeId, Fault> {
        let to = self.type_of(like)?.clone();
        if to.dims.is_some() && self.type_of(x)?.dims == to.dims {
            return Ok(x);
        }
        match to.shape() {
            Some(shape) => {
                let shape = self.indices(&extents(&shape));
                self.binary("Expand", x, shape)
            }
            None => self.chosen(x, like),
        }
    }

    /// Stretched to the shape of an edge that holds floating-point numbers and has extents that are not numbers: a choice between
    /// a value and itself. A shape that the network computes would leave the extents open, and this does not.
    fn chosen(&mut self, x: EdgeId, like: EdgeId) -> Result<EdgeId, Fault> {
        let any = self.unary("IsNaN", like)?;
        self.apply("Where", &[any, x, x], Attributes::new())
    }

    /// The sum over what an operand of these extents was stretched along by NumPy's rules, in its extents.
    pub fn sum_to(&mut self, x: EdgeId, to: &[Dim]) -> Result<EdgeId, Fault> {
        let from = self.dims(x)?;
        let lacking = from.len().saturating_sub(to.len());
        let mut axes: Vec<usize> = (0..lacking).collect();
        let mut kept = false;
        for (axis, dim) in to.iter().enumerate() {
            let own = &from[lacking + axis];
            match (own, dim) {
                (Dim::Known(1), Dim::Known(1)) => {}
                (_, Dim::Known(1)) => {
                    axes.push(lacking + axis);
                    kept = true;
                }
                (own, dim) if own == dim && *own != Dim::Unknown => {}
                (Dim::Known(_) | Dim::Symbol(_), Dim::Known(_)) | (Dim::Unknown, Dim::Known(_)) => {}
                _ => {
                    let why = format!("the sum of a gradient over extents that are not numbers: {own} and {dim}");
                    return Err(Fault::Unsupported(why));
                }
            }
        }
        if axes.is_empty() {
            return Ok(x);
        }
        let list = self.indices(&extents(&axes));
        if !kept {
            return self.apply("ReduceSum", &[x, list], Attributes::new().with("keepdims", 0i64));
        }
        let sum = self.apply("ReduceSum", &[x, list], Attributes::new().with("keepdims", 1i64))?;
        let leading: Vec<i64> = (0..lacking as i64).collect();
        if leading.is_empty() {
            return Ok(sum);
        }
        let leading = self.indices(&leading);
        self.binary("Squeeze", sum, leading)
    }

    /// The sum over what an operand was stretched along, in its shape.
    pub fn sum_like(&mut self, x: EdgeId, like: EdgeId) -> Result<EdgeId, Fault> {
        let to = self.dims(like)?;
        self.sum_to(x, &to)
    }

    /// Zeros in the type of an edge.
    pub fn zeros(&mut self, like: EdgeId) -> Result<EdgeId, Fault> {
        let of = self.type_of(like)?.clone();
        let Some(shape) = of.shape() else {
            let zero = self.number_like(like, 0.0)?;
            return self.chosen(zero, like);
        };
        let shape = self.indices(&extents(&shape));
        let zero = Tensor::scalar(of.format, 0.0).reshaped(&[1])?;
        self.apply("ConstantOfShape", &[shape], Attributes::new().with("value", zero))
    }

    /// Axes in another order.
    pub fn turned(&mut self, x: EdgeId, order: &[usize]) -> Result<EdgeId, Fault> {
        self.apply("Transpose", &[x], Attributes::new().with("perm", extents(order)))
    }

    /// Each matrix of the last two axes with its axes exchanged.
    pub fn transposed(&mut self, x: EdgeId) -> Result<EdgeId, Fault> {
        let rank = self.rank(x)?;
        let mut order: Vec<usize> = (0..rank).collect();
        order.swap(rank - 2, rank - 1);
        self.turned(x, &order)
    }

    /// In a shape of numbers; -1 is what is left.
    pub fn reshaped(&mut self, x: EdgeId, shape: &[i64]) -> Result<EdgeId, Fault> {
        let shape = self.indices(shape);
        self.binary("Reshape", x, shape)
    }
}

/// Extents as numbers of an attribute or a constant.
pub(super) fn extents(shape: &[usize]) -> Vec<i64> {
    shape.iter().map(|extent| i64::try_from(*extent).unwrap_or(i64::MAX)).collect()
}
