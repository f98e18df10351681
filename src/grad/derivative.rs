//! The derivative of a value by one of the arguments that it is computed from, as a graph of its own.
//!
//! An epilogue's [backward](crate::Epilogue::backward) epilogue saves values and sums gradients up. A network keeps its
//! tensors and sums them up with operators of its own, so it needs the expression alone.

use super::error::GradError;
use super::joint::Joint;
use super::sweep;
use crate::build::Epilogue;
use crate::dtype::DType;
use crate::ir::graph::{Graph, Node, NodeId};
use crate::ir::{Sink, SinkKind};

/// The gradient of the argument `leaf` of an epilogue, from the gradient of its first output, which is loaded as `incoming`.
/// The graph loads what it needs, and its only sink is the gradient. `None` if no gradient reaches the argument. If the output is
/// `kept`, the value is loaded under that name where the derivative follows from it, as those of sigmoid and ReLU do.
///
/// # Errors
/// If something on the way has no derivative.
pub(crate) fn derivative(
    forward: &Epilogue,
    leaf: &str,
    incoming: (&str, DType),
    kept: Option<&str>,
) -> Result<Option<Graph>, GradError> {
    let checked = forward.checked();
    let mut joint = Joint::new(checked)?;
    let is_leaf = |node: &Node| matches!(node, Node::Load { name, .. } if **name == *leaf);
    let value = |id: NodeId| joint.of_user[id.index()];
    let leaf = checked.graph().nodes().find(|(_, node)| is_leaf(node)).map(|(id, _)| value(id));
    let output = checked.graph().sinks().first().map(|sink| value(sink.value()));
    let (Some(leaf), Some(output)) = (leaf, output) else { return Ok(None) };
    // The sweep hands on only what comes through floating-point values.
    if !joint.types[output.index()].value.is_float() {
        return Ok(None);
    }
    let upstream = joint.graph.push(Node::load(incoming.0, incoming.1), None);
    let found = sweep::sweep(&mut joint, &[(output, upstream)], &[leaf], false)?;
    let Some(gradient) = found.into_iter().next().flatten() else { return Ok(None) };
    let mut gradient = gradient;
    if let Some(kept) = kept {
        let loaded = Node::load(kept, joint.types[output.index()].value.storage());
        (joint.graph, gradient) = with_load(&joint.graph, gradient, output, loaded);
    }
    let sink = Sink::new("gradient", gradient, SinkKind::Store(incoming.1.into()));
    let folded = joint.fold(vec![sink], &[incoming.0.into()]);
    Ok(Some(folded.checked.graph().pruned(&mut [])))
}

/// The graph with a load in place of a value, and the place of another value in it.
fn with_load(graph: &Graph, value: NodeId, replaced: NodeId, load: Node) -> (Graph, NodeId) {
    let (mut out, mut ids) = (Graph::new(), Vec::new());
    for (id, node) in graph.nodes() {
        let node = if id == replaced { load.clone() } else { node.map_args(|a| ids[a.index()]) };
        ids.push(out.push(node, graph.built_at(id)));
    }
    (out, ids[value.index()])
}
