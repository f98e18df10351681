//! Ends: the outputs through which gradients come in, and the arguments that get gradients.

use super::error::GradError;
use super::joint::{FORWARD, Joint};
use super::wrt::Wrt;
use crate::check::Checked;
use crate::dtype::{DType, ValueType};
use crate::ir::axes::Axes;
use crate::ir::graph::{Graph, Node, NodeId};
use crate::ir::monoid::Adjoint;
use crate::ir::name::LONGEST;
use crate::ir::{Op, Operand, Order, Reduction, Sink, SinkKind};
use std::sync::Arc;

/// The prefix of an argument's gradient.
const GRADIENT: &str = "grad_";
/// The prefix of an output's incoming gradient, unless that gradient is the accumulator.
const UPSTREAM: &str = "upstream_";

/// The name of an argument's gradient.
pub(super) fn gradient_of(argument: &str) -> Arc<str> {
    format!("{GRADIENT}{argument}").into()
}

/// The name of an output's incoming gradient.
pub(super) fn upstream(output: &str) -> Arc<str> {
    format!("{UPSTREAM}{output}").into()
}

/// Fails if the prefix makes a name too long.
fn room(prefix: &'static str, name: &str) -> Result<(), GradError> {
    let most = LONGEST - prefix.len();
    if name.chars().count() <= most { Ok(()) } else { Err(GradError::Long { name: name.into(), prefix, most }) }
}

/// Fails if an argument has one of these names.
pub(super) fn taken<'n>(forward: &Checked, mut names: impl Iterator<Item = &'n Arc<str>>) -> Result<(), GradError> {
    match names.find(|name| forward.argument(name).is_some()) {
        Some(name) => Err(GradError::Name { name: name.to_string() }),
        None => Ok(()),
    }
}

/// An output through which a gradient comes in.
pub(super) struct Output {
    pub name: Arc<str>,
    pub value: NodeId,
    pub operand: Operand,
    /// The gradient of an element, if the output is a reduction.
    adjoint: Option<Adjoint>,
}

impl Output {
    /// The gradient of the value, if that of the stored element is `gradient`: the store rounds as a cast does.
    fn rounded(&self, graph: &mut Graph, value: NodeId, gradient: NodeId) -> NodeId {
        let cast = Op::cast(self.operand.dtype);
        let is_cast = matches!(graph.node(value), Node::Apply { op, .. } if *op == cast);
        if is_cast || !self.operand.dtype.is_eight_bits() {
            return gradient;
        }
        let through = cast.row().gradients(graph, &[value], value, gradient);
        through.and_then(|gradients| gradients.into_iter().next().flatten()).unwrap_or(gradient)
    }
}

/// The outputs with gradients.
pub(super) struct Outputs {
    /// The output whose gradient is the accumulator.
    pub through: Output,
    pub others: Vec<Output>,
}

impl Outputs {
    pub fn of(forward: &Checked, wrt: &Wrt) -> Result<Outputs, GradError> {
        let sinks = forward.graph().sinks();
        let names = || sinks.iter().map(|s| s.name.to_string()).collect();
        for name in wrt.through.iter().chain(&wrt.detached) {
            if !sinks.iter().any(|s| *s.name == **name) {
                return Err(GradError::Unknown { name: name.clone(), what: "is an output", known: names() });
            }
        }
        let mut outputs = Vec::new();
        for sink in sinks.iter().filter(|s| !wrt.detached.iter().any(|d| **d == *s.name)) {
            let value = forward.type_of(sink.value()).value;
            let (gives, adjoint) = match sink.kind {
                SinkKind::Store(_) | SinkKind::Bincount(_) => (value, None),
                SinkKind::Reduce(Reduction { monoid, .. }) => (monoid.gives(value), monoid.adjoint()),
            };
            // An integer does not have a gradient, nor does a value that a store rounds to an integer.
            if !gives.is_float() || !sink.kind.operand().dtype.value_type().is_float() {
                continue;
            }
            let why = match sink.kind {
                SinkKind::Store(operand) if !operand.axes.is_matrix() => {
                    Some("it is a vector of results of reductions; leave it out with `Wrt::detached`")
                }
                SinkKind::Store(operand) if !operand.axes.contains(Axes::MNL) => {
                    Some("the batch shares it; let it vary along the batch, or leave it out with `Wrt::detached`")
                }
                _ if matches!(forward.graph().node(sink.value()), Node::Element(..)) => Some(
                    "it sums an operand of the product, whose gradient is a product of its own; leave it out with \
                     `Wrt::detached`",
                ),
                SinkKind::Reduce(_) if adjoint.is_none() => Some(
                    "among reductions only sums, of elements and of their squares, have gradients; leave it out with \
                     `Wrt::detached`",
                ),
                SinkKind::Store(_) | SinkKind::Reduce(_) | SinkKind::Bincount(_) => None,
            };
            if let Some(why) = why {
                return Err(GradError::Output { name: sink.name.to_string(), why });
            }
            outputs.push(Output { name: sink.name.clone(), value: sink.value(), operand: sink.kind.operand(), adjoint });
        }
        let matrix = |o: &Output| o.operand.axes.contains(Axes::MNL);
        let chosen = match &wrt.through {
            Some(name) => outputs.iter().position(|o| *o.name == **name && matrix(o)).ok_or_else(|| {
                let fits = |s: &Sink| s.kind.operand().axes.contains(Axes::MNL) && forward.type_of(s.value()).value.is_float();
                let why = match sinks.iter().any(|s| *s.name == **name && fits(s)) {
                    // An output that fits is missing only if it was left out.
                    true => "it is detached as well; name it in `Wrt::through` or in `Wrt::detached`, not in both",
                    false => "it is not a matrix of floating-point values; choose one that is stored as f32, f64, f16 or bf16",
                };
                GradError::Output { name: name.clone(), why }
            })?,
            None => {
                let d = outputs.iter().position(|o| &*o.name == "d" && matrix(o));
                d.or_else(|| outputs.iter().position(matrix)).ok_or(GradError::NoOutput)?
            }
        };
        let through = outputs.remove(chosen);
        outputs.iter().try_for_each(|output| room(UPSTREAM, &output.name))?;
        Ok(Outputs { through, others: outputs })
    }

    /// Values with their incoming gradients.
    pub fn seeds(&self, forward: &Checked, joint: &mut Joint) -> Vec<(NodeId, NodeId)> {
        let seed = |joint: &mut Joint, output: &Output, node: Node| {
            let built_at = forward.graph().built_at(output.value);
            (joint.of_user[output.value.index()], joint.graph.push(node, built_at))
        };
        let incoming = Node::Accumulator(self.through.operand.dtype.value_type());
        let (value, gradient) = seed(joint, &self.through, incoming);
        let mut seeds = vec![(value, self.through.rounded(&mut joint.graph, value, gradient))];
        for output in &self.others {
            let operand = Operand { dtype: output.operand.dtype.of_gradients(), ..output.operand };
            let load = Node::load(upstream(&output.name), operand);
            let (value, gradient) = seed(joint, output, load);
            let gradient = match output.adjoint {
                Some(adjoint) => adjoint(&mut joint.graph, value, gradient),
                None => output.rounded(&mut joint.graph, value, gradient),
            };
            seeds.push((value, gradient));
        }
        seeds
    }
}

/// A value to differentiate with respect to.
pub(super) struct Leaf {
    pub name: Arc<str>,
    pub id: NodeId,
    /// The layout of its gradient.
    pub operand: Operand,
}

/// The accumulator and the requested arguments.
pub(super) fn leaves(forward: &Checked, joint: &Joint, wrt: &Wrt, output: DType) -> Result<Vec<Leaf>, GradError> {
    let mut leaves = Vec::new();
    let mut known = Vec::new();
    let format = |name: &str, usual: DType, value: ValueType| {
        let dtype = wrt.formats.get(name).copied().unwrap_or(usual);
        let cure = if value == ValueType::F64 { "the gradient of an f64 is f64" } else { "a gradient is f32, f16 or bf16" };
        let fault = || GradError::Format { name: format!("the gradient of {name}"), dtype, cure };
        if dtype.value_type() == value { Ok(dtype) } else { Err(fault()) }
    };
    for (id, node) in joint.graph.nodes() {
        let (name, value, operand) = match node {
            // Present even if no value of the epilogue depends on it.
            Node::Load { name, operand, .. } if **name == *FORWARD => {
                let value = operand.dtype.value_type();
                if wrt.accumulator && value.is_float() {
                    taken(forward, [&Arc::from("acc")].into_iter())?;
                    let usual = if output.value_type() == value { output } else { operand.dtype.of_gradients() };
                    let operand = Operand { order: order(forward), ..format("acc", usual, value)?.into() };
                    leaves.push(Leaf { name: "acc".into(), id, operand });
                }
                continue;
            }
            Node::Load { name, operand, .. } => (name, operand.dtype.value_type(), *operand),
            Node::Gather { name, .. } if wrt.names.iter().any(|n| **n == **name) => {
                return Err(GradError::Table { name: name.to_string() });
            }
            Node::Scalar { name, value_type, .. } => (name, *value_type, value_type.storage().pointer()),
            _ => continue,
        };
        if !value.is_float() {
            if wrt.names.iter().any(|n| **n == **name) {
                return Err(GradError::Discrete { name: name.to_string(), dtype: operand.dtype });
            }
            continue;
        }
        known.push(name.to_string());
        if wrt.wants(name) {
            room(GRADIENT, name)?;
            let dtype = format(name, operand.dtype.of_gradients(), value)?;
            leaves.push(Leaf { name: name.clone(), id, operand: Operand { dtype, ..operand } });
        }
    }
    let missing = wrt.names.iter().find(|name| !known.contains(name));
    if let Some(name) = missing {
        return Err(GradError::Unknown { name: name.clone(), what: "has a gradient", known });
    }
    if let Some(name) = wrt.formats.keys().find(|name| !leaves.iter().any(|l| *l.name == ***name)) {
        let known = leaves.iter().map(|l| l.name.to_string()).collect();
        return Err(GradError::Unknown { name: name.clone(), what: "is differentiated with respect to", known });
    }
    if leaves.is_empty() { Err(GradError::Nothing) } else { Ok(leaves) }
}

/// The order of most matrices that are stored.
fn order(forward: &Checked) -> Order {
    let matrices = forward.graph().sinks().iter().map(|s| s.kind.operand()).filter(|o| o.axes.is_matrix());
    let column = matrices.clone().filter(|o| o.order == Order::ColumnMajor).count();
    if 2 * column > matrices.count() { Order::ColumnMajor } else { Order::RowMajor }
}
