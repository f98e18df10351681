//! Inline: every call becomes its function's body.
//!
//! Needs nothing. Leaves no [`Node::Call`].

use super::rebuild;
use crate::check::Checked;
use crate::dtype::ValueType;
use crate::ir::Function;
use crate::ir::graph::{BuiltAt, Graph, Node, NodeId};

/// Puts the body of every called function in the call's place, recursively.
pub fn inline(checked: &Checked) -> Checked {
    rebuild(checked, |graph, node, built_at| expand(graph, node, built_at, &mut |_, _, _| {}))
}

/// Adds a node, or in a call's place the function's body. `called` is told of every call: the function, its arguments and
/// its result.
pub(crate) fn expand(
    graph: &mut Graph,
    node: Node,
    built_at: BuiltAt,
    called: &mut dyn FnMut(&'static Function, &[NodeId], NodeId),
) -> NodeId {
    let Node::Call { function, args } = node else { return graph.push(node, built_at) };
    // The body goes into a graph of its own, whose first nodes stand for the arguments, and from there node by node:
    // it may call other functions.
    let (body, result) = function.apart(args.first().map_or(ValueType::F32, |a| graph.value_type(*a)));
    let mut ids: Vec<NodeId> = args.clone();
    for (_, inner) in body.nodes().skip(args.len()) {
        let inner = inner.map_args(|a| ids[a.index()]);
        let id = expand(graph, inner, built_at, called);
        ids.push(id);
    }
    let result = ids[result.index()];
    called(function, &args, result);
    result
}

/// Whether a function's value is one of its arguments, whatever it is called with.
pub(crate) fn is_argument(function: &'static Function) -> bool {
    let (mut graph, _) = function.apart(ValueType::F32);
    let args: Vec<NodeId> = graph.nodes().take(function.parameters.len()).map(|(id, _)| id).collect();
    let result = expand(&mut graph, Node::Call { function, args }, None, &mut |_, _, _| {});
    result.index() < function.parameters.len()
}
