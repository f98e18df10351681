//! Decisions: the backward pass follows the decisions of the forward pass, and does not decide again.
//!
//! A condition, a sign, a rounding to integers and a remainder jump. A saved number is rounded, and near a border the
//! rounded number may lie on the other side. The derivative of a condition on it would then be that of the other arm.
//! So a value that jumps is computed again only from values that the backward pass has to the last bit. Otherwise the
//! forward pass saves it (a condition as one bit), or saves a value behind it.
//!
//! Exact values are conditions and integers, numbers that are saved as `f32`, and the results of primitives without an
//! error on exact values. Other results may be contracted in one of the two kernels, and then differ in the last bit.
//!
//! One exception costs nothing: the comparison with 0 of an output that the caller keeps. Rounding to nearest keeps the
//! sign, and a nonzero value becomes 0 only below half of the format's smallest number: 2^-25 for `f16`. For `bf16`
//! that is less than the smallest normal `f32`. There the output is 0, and the derivative is that at 0, as for every
//! other reader of the output.

use crate::dtype::ValueType;
use crate::ir::graph::{Constant, Graph, Node, NodeId};

/// The properties of a value that decide whether it is saved.
pub(super) struct Fate {
    /// The user wants it recomputed.
    pub pinned: bool,
    /// It is a number with a fraction.
    pub real: bool,
    /// Its format holds every value of its type.
    pub exact: bool,
    /// It is an output that the caller keeps.
    pub kept: bool,
}

/// The values that jump and cannot be recomputed exactly. `saved` says which values depend on the forward pass.
pub(super) fn made_once(graph: &Graph, saved: &[bool], fate: impl Fn(NodeId) -> Fate) -> Vec<NodeId> {
    let mut once = Vec::new();
    // Whether the backward pass has a value to the last bit, wherever the cut is.
    let mut exact = vec![true; graph.len()];
    for (id, node) in graph.nodes().filter(|(id, _)| saved[id.index()]) {
        let Fate { pinned, real, exact: holds, .. } = fate(id);
        let mut follows = node.args().iter().all(|a| exact[a.index()]);
        match node {
            Node::Apply { op, .. } if op.jumps() => {
                follows |= !pinned && of_sign(graph, node).is_some_and(|value| fate(value).kept);
                if !follows && !pinned {
                    once.push(id);
                    follows = true;
                }
            }
            Node::Apply { op, args } => {
                let operands: Vec<_> = args.iter().map(|a| graph.value_type(*a)).collect();
                follows &= !real || op.row().is_exact(&operands);
            }
            Node::Custom { .. } => follows = false,
            // Sums are added up in another order, and the index of the largest element jumps.
            Node::Reduce { .. } if real => follows = false,
            Node::Reduce { .. } if !follows && !pinned => {
                once.push(id);
                follows = true;
            }
            _ => {}
        }
        exact[id.index()] = holds && follows;
    }
    once
}

/// The value that a node compares with 0, if it does that.
fn of_sign(graph: &Graph, node: &Node) -> Option<NodeId> {
    let Node::Apply { op, args } = node else { return None };
    let is_zero =
        |id: NodeId| matches!(graph.node(id), Node::Constant(c @ (Constant::F32(_) | Constant::F64(_))) if c.value() == 0.0);
    match *args.as_slice() {
        _ if op.row().signature.result(&[ValueType::F32; 2]) != Some(ValueType::Bool) => None,
        [value, zero] if is_zero(zero) => Some(value),
        [zero, value] if is_zero(zero) => Some(value),
        _ => None,
    }
}
