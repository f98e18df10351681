//! Inline: every call becomes its function's body.
//!
//! Needs nothing. Leaves no [`Node::Call`].

use super::rebuild;
use crate::check::Checked;
use crate::dtype::ValueType;
use crate::ir::Function;
use crate::ir::function::expand;
use crate::ir::graph::{Node, NodeId};

/// Replaces each call by the body of its function, recursively.
pub fn inline(checked: &Checked) -> Checked {
    rebuild(checked, |graph, node, built_at| expand(graph, node, built_at, &mut |_, _, _| {}))
}

/// Whether a function's value is one of its arguments, for every call.
pub(crate) fn is_argument(function: &'static Function) -> bool {
    let (mut graph, _) = function.apart(ValueType::F32);
    let args: Vec<NodeId> = graph.nodes().take(function.parameters.len()).map(|(id, _)| id).collect();
    let result = expand(&mut graph, Node::Call { function, args }, None, &mut |_, _, _| {});
    result.index() < function.parameters.len()
}
