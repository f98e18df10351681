//! Moments: the mean of squared distances from a mean becomes a variance, which does not wait for that mean. So one pass over
//! memory reduces both.
//!
//! Needs no calls. Only reductions of `f32` that the caller names change. Results differ by roundings.

use super::rebuild;
use crate::check::Checked;
use crate::dtype::ValueType;
use crate::ir::graph::{Graph, Node, NodeId};
use crate::ir::variance::variance;
use crate::ir::{Monoid, Op, Over};

/// Merges the moments of values, where `merges` holds for what they are reduced over.
pub fn moments(checked: &Checked, merges: impl Fn(Over) -> bool) -> Checked {
    rebuild(checked, |graph, node, built_at| {
        let merged = match &node {
            Node::Reduce { monoid: Monoid::Mean, over, args } if merges(*over) => centred(graph, *over, args[0]),
            _ => None,
        };
        match (merged, &node) {
            (Some(x), Node::Reduce { over, .. }) => {
                graph.push(Node::Reduce { monoid: variance(), over: *over, args: vec![x] }, built_at)
            }
            _ => graph.push(node, built_at),
        }
    })
}

/// The value of whose distances from its own mean this is the square.
fn centred(graph: &Graph, over: Over, square: NodeId) -> Option<NodeId> {
    let Node::Apply { op: Op::Mul, args: factors } = graph.node(square) else { return None };
    let Node::Apply { op: Op::Sub, args } = graph.node(factors[0]) else { return None };
    let of_itself = Node::Reduce { monoid: Monoid::Mean, over, args: vec![args[0]] };
    let fits = factors[0] == factors[1] && graph.value_type(square) == ValueType::F32 && *graph.node(args[1]) == of_itself;
    fits.then(|| args[0])
}
