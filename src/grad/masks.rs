//! Masks and regions of gradients: one mask instead of two, and regions outermost.
//!
//! Both replace values by equal ones, bit for bit, but for the sign of a zero. A mask of a mask is one mask, and one bit to save. What several regions
//! of one condition are combined to is one region: where the condition is positional a kernel runs one arm, and all of
//! its gradient belongs there.

use crate::ir::axes::N;
use crate::ir::graph::{BuiltAt, Constant, Coordinate, Graph, Node, NodeId};
use crate::ir::op::Signature;
use crate::ir::{Op, axes::Axes};
use crate::pass;
use std::collections::HashMap;
use std::sync::Arc;

/// What regions have come to: arms of different regions are made of the same nodes.
pub(super) type Placed = HashMap<Node, NodeId>;

/// Adds a node over operands that are simplified already, or what it comes to. `incoming` are the names of gradients that
/// are loaded.
pub(super) fn place(graph: &mut Graph, node: Node, built_at: BuiltAt, incoming: &[Arc<str>], placed: &mut Placed) -> NodeId {
    if let Some(id) = placed.get(&node) {
        return *id;
    }
    if let Some((condition, arms)) = region(graph, &node, incoming) {
        let [then, otherwise] = arms.map(|arm| place(graph, arm, built_at, incoming, placed));
        let id = pass::place(graph, select(condition, then, otherwise), built_at);
        placed.insert(node, id);
        return id;
    }
    if let Some(term) = only_term(graph, &node, incoming) {
        return term;
    }
    let node = one_mask(graph, &node).unwrap_or(node);
    pass::place(graph, node, built_at)
}

fn select(condition: NodeId, then: NodeId, otherwise: NodeId) -> Node {
    Node::Apply { op: Op::Select, args: vec![condition, then, otherwise] }
}

/// Condition and arms, if a node is a select.
pub(super) fn parts(node: &Node) -> Option<[NodeId; 3]> {
    match node {
        Node::Apply { op, args } if op.row().signature == Signature::Select => Some([args[0], args[1], args[2]]),
        _ => None,
    }
}

/// Whether a value is the number 0, and not -0.
pub(super) fn is_zero(graph: &Graph, id: NodeId) -> bool {
    matches!(graph.node(id), Node::Constant(Constant::F32(0) | Constant::F64(0)))
}

fn is_constant(graph: &Graph, id: NodeId) -> bool {
    matches!(graph.node(id), Node::Constant(_))
}

/// A primitive of regions of one positional condition, as a region of that primitive; a mask of such a region as well.
/// Only of gradients: a value of the forward pass stays as it is, so that what is saved is what is computed there.
fn region(graph: &Graph, node: &Node, incoming: &[Arc<str>]) -> Option<(NodeId, [Node; 2])> {
    let Node::Apply { args, .. } = node else { return None };
    let regions = || args.iter().filter_map(|a| parts(graph.node(*a)));
    let [condition, ..] = regions().next()?;
    let same = regions().filter(|[c, ..]| *c == condition).count();
    // A mask: its own condition is not the region's.
    let masks = parts(node).is_some_and(|[mask, a, b]| {
        mask != condition && !is_positional(graph, mask) && (is_constant(graph, a) || is_constant(graph, b))
    });
    let fits = if parts(node).is_some() { masks } else { same > 1 };
    if !fits || !is_positional(graph, condition) || !args.iter().any(|a| is_gradient(graph, *a, incoming)) {
        return None;
    }
    let arm = |which: usize| {
        node.map_args(|a| match parts(graph.node(a)) {
            Some(parts) if parts[0] == condition => parts[which],
            _ => a,
        })
    };
    Some((condition, [arm(1), arm(2)]))
}

/// What a gradient is a sum of, if nothing else comes in: an arm without one counts as 0.
fn only_term(graph: &Graph, node: &Node, incoming: &[Arc<str>]) -> Option<NodeId> {
    let ([x, y], false) = node.addends()? else { return None };
    let nothing = |id: NodeId| is_zero(graph, id);
    let (term, other) = if nothing(x) { (y, x) } else { (x, y) };
    (x != y && nothing(other) && is_gradient(graph, term, incoming)).then_some(term)
}

/// A mask of a mask as a mask by both conditions. Not where one condition is positional and the other is not: the first is
/// a branch that whole strips take, and costs nothing to save.
fn one_mask(graph: &mut Graph, node: &Node) -> Option<Node> {
    let [outer, then, otherwise] = parts(node)?;
    let (inner, zero, outer_holds) =
        if is_constant(graph, otherwise) { (then, otherwise, true) } else { (otherwise, then, false) };
    let [condition, a, b] = parts(graph.node(inner)).filter(|_| is_constant(graph, zero))?;
    let (value, inner_holds) = if b == zero { (a, true) } else { (b, false) };
    if (a != zero && b != zero) || is_positional(graph, outer) != is_positional(graph, condition) {
        return None;
    }
    let mut holds = |condition: NodeId, holds: bool| {
        let node = Node::Apply { op: Op::Not, args: vec![condition] };
        if holds { condition } else { pass::place(graph, node, None) }
    };
    let (outer, inner) = (holds(outer, outer_holds), holds(condition, inner_holds));
    let both = pass::place(graph, Node::Apply { op: Op::And, args: vec![outer, inner] }, None);
    Some(select(both, value, zero))
}

/// What a graph has of the condition `z > 0`, a node whose operands may be `placed` in it: `max(z, 0) > 0`. That is the same, also
/// where z is no number, and what the derivative of a ReLU asks.
pub(super) fn of_relu(graph: &Graph, node: &Node, placed: impl Fn(NodeId) -> Option<NodeId>) -> Option<NodeId> {
    asked_by_relu(graph, node, Op::Gt, placed)
}

/// The same of the condition `z >= 0`, which cuBLASLt keeps for a ReLU: it differs where z is 0, the one place where a ReLU has no derivative.
pub(super) fn at_relu(graph: &Graph, node: &Node, placed: impl Fn(NodeId) -> Option<NodeId>) -> Option<NodeId> {
    asked_by_relu(graph, node, Op::Ge, placed)
}

fn asked_by_relu(graph: &Graph, node: &Node, by: Op, placed: impl Fn(NodeId) -> Option<NodeId>) -> Option<NodeId> {
    let [z, zero] = *node.args() else { return None };
    let (z, zero) = (placed(z)?, placed(zero)?);
    let apply = |op, x| Node::Apply { op, args: vec![x, zero] };
    let asks = matches!(node, Node::Apply { op, .. } if apply(*op, z) == apply(by, z));
    graph.find(&apply(Op::Gt, graph.find(&apply(Op::Max, z))?)).filter(|_| asks && is_zero(graph, zero))
}

/// Whether a condition follows from coordinates, scalars, and what is constant along a row.
fn is_positional(graph: &Graph, condition: NodeId) -> bool {
    let along_rows = |axes: Axes| !axes.contains(N);
    let along_row = |index: NodeId| all_behind(graph, index, |node| !matches!(node, Node::Coordinate(Coordinate::Column)));
    all_behind(graph, condition, |node| match node {
        Node::Load { operand, .. } => along_rows(operand.axes),
        Node::Gather { args, .. } => args.iter().all(|index| along_row(*index)),
        Node::Accumulator(_) => false,
        _ => true,
    })
}

/// Whether an incoming gradient reaches a value.
fn is_gradient(graph: &Graph, value: NodeId, incoming: &[Arc<str>]) -> bool {
    !all_behind(graph, value, |node| match node {
        Node::Load { name, .. } => !incoming.contains(name),
        Node::Accumulator(_) => false,
        _ => true,
    })
}

/// Whether something holds of a value and of everything it is made of.
fn all_behind(graph: &Graph, value: NodeId, holds: impl Fn(&Node) -> bool) -> bool {
    let needed = graph.needed_by([value]);
    graph.nodes().filter(|(id, _)| needed[id.index()]).all(|(_, node)| holds(node))
}
