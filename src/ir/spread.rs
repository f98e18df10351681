//! Reductions inside a graph by a monoid that other monoids can replace: functions of the table's rows.

use super::graph::{BuiltAt, Graph, Node, NodeId};
use super::monoid::Monoid;
use super::op::Op;
use super::over::Over;

/// Adds the values that replace a reduction over axes of a value, and returns the last.
pub type Spread = fn(&mut Graph, Over, NodeId, BuiltAt) -> NodeId;

/// The largest element, and the logarithm of the sum of exponentials less it. What is infinite throughout, or nothing,
/// counts as 0, so that infinities have no difference.
pub(super) fn of_logsumexp(graph: &mut Graph, over: Over, x: NodeId, built_at: BuiltAt) -> NodeId {
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
