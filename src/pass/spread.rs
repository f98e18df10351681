//! Spread: a logsumexp inside the graph as the largest element and a sum of exponentials less it.
//!
//! Needs no calls. Leaves no reduction inside the graph by `logsumexp`. A kernel that holds a row takes an exponential of
//! each element, where the monoid takes one of each and rescales what it has. What is infinite throughout, or nothing,
//! counts as 0, so that infinities have no difference.

use super::rebuild;
use crate::check::Checked;
use crate::ir::graph::{BuiltAt, Graph, Node, NodeId};
use crate::ir::{Axes, Monoid, Op};

/// Spreads every logsumexp inside the graph.
pub fn spread(checked: &Checked) -> Checked {
    rebuild(checked, |graph, node, built_at| match node {
        Node::Reduce { monoid: Monoid::LogSumExp, over, ref args } => of_logsumexp(graph, over, args[0], built_at),
        other => graph.push(other, built_at),
    })
}

fn of_logsumexp(graph: &mut Graph, over: Axes, x: NodeId, built_at: BuiltAt) -> NodeId {
    let value = graph.value_type(x);
    let [zero, infinity] = [0.0, f64::INFINITY].map(|x| graph.constant_of(value, x));
    let mut push = |node| graph.push(node, built_at);
    let apply = |op, args: &[NodeId]| Node::Apply { op, args: args.to_vec() };
    let reduce = |monoid, x| Node::Reduce { monoid, over, args: vec![x] };
    let largest = push(reduce(Monoid::Max, x));
    let size = push(apply(Op::Abs, &[largest]));
    let is_infinite = push(apply(Op::Eq, &[size, infinity]));
    let offset = push(apply(Op::Select, &[is_infinite, zero, largest]));
    let less = push(apply(Op::Sub, &[x, offset]));
    let power = push(apply(Op::Exp, &[less]));
    let sum = push(reduce(Monoid::Sum, power));
    let log = push(apply(Op::Log, &[sum]));
    push(apply(Op::Add, &[offset, log]))
}
