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
        let centred = match &node {
            Node::Reduce { over, args, .. } if merges(*over) && node == mean(*over, args[0]) => {
                centred(graph, *over, args[0]).map(|x| Node::Reduce { monoid: variance(), over: *over, args: vec![x] })
            }
            _ => None,
        };
        graph.push(centred.unwrap_or(node), built_at)
    })
}

fn mean(over: Over, x: NodeId) -> Node {
    Node::Reduce { monoid: Monoid::Mean, over, args: vec![x] }
}

/// The value of whose distances from its own mean this is the square.
fn centred(graph: &Graph, over: Over, square: NodeId) -> Option<NodeId> {
    let distance = *graph.node(square).args().first()?;
    let &[x, from] = graph.node(distance).args() else { return None };
    let is = |id, op, args: [NodeId; 2]| *graph.node(id) == Node::Apply { op, args: args.to_vec() };
    let fits = graph.value_type(square) == ValueType::F32
        && is(square, Op::Mul, [distance; 2])
        && is(distance, Op::Sub, [x, from])
        && *graph.node(from) == mean(over, x);
    fits.then_some(x)
}
