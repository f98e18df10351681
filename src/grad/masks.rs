//! Masks and regions of gradients: one mask instead of two, and regions outermost.
//!
//! Both rewrites keep every bit, except for the sign of a zero. A mask of a mask becomes one mask, with one bit to
//! save. A primitive on several regions with one condition becomes one region: if the condition is positional, a kernel
//! runs one arm, and the whole gradient of the region belongs there.

use crate::ir::axes::N;
use crate::ir::graph::{BuiltAt, Constant, Coordinate, Graph, Node, NodeId};
use crate::ir::op::Signature;
use crate::ir::{Op, axes::Axes};
use crate::pass;
use std::collections::HashMap;
use std::sync::Arc;

/// The results of placed regions, because arms of different regions share nodes.
pub(super) type Placed = HashMap<Node, NodeId>;

/// Adds a node over simplified operands, or its simplification. `incoming` are the names of gradients that are loaded.
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

/// Rewrites a primitive of regions with one positional condition, or a mask of such a region, as a region. It rewrites
/// only gradients. Values of the forward pass stay unchanged, so that the saved value is the one computed there.
fn region(graph: &Graph, node: &Node, incoming: &[Arc<str>]) -> Option<(NodeId, [Node; 2])> {
    let Node::Apply { args, .. } = node else { return None };
    let regions = || args.iter().filter_map(|a| parts(graph.node(*a)));
    let [condition, ..] = regions().next()?;
    let same = regions().filter(|[c, ..]| *c == condition).count();
    // A mask: its condition differs from the region's.
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

/// The only nonzero term of a gradient, if there is one: an arm without a gradient counts as 0.
fn only_term(graph: &Graph, node: &Node, incoming: &[Arc<str>]) -> Option<NodeId> {
    let ([x, y], false) = node.addends()? else { return None };
    let nothing = |id: NodeId| is_zero(graph, id);
    let (term, other) = if nothing(x) { (y, x) } else { (x, y) };
    (x != y && nothing(other) && is_gradient(graph, term, incoming)).then_some(term)
}

/// A mask of a mask, as a mask by both conditions. It is not applied if only one of the conditions is positional: that
/// one is a branch for whole strips, and costs nothing to save.
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

/// The value in a graph of the condition `z > 0`, for a node whose operands may be `placed` in the graph: `max(z, 0) >
/// 0`. The two are equal, also if z is NaN. The derivative of a ReLU uses this condition.
pub(super) fn of_relu(graph: &Graph, node: &Node, placed: impl Fn(NodeId) -> Option<NodeId>) -> Option<NodeId> {
    asked_by_relu(graph, node, Op::Gt, placed)
}

/// The same for the condition `z >= 0`, which cuBLASLt keeps for a ReLU. It differs where z is 0, the only place where
/// a ReLU has no derivative.
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

/// Whether a condition follows from coordinates, scalars, and values that are constant along a row.
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

/// Whether a property holds for a value and for everything it is computed from.
fn all_behind(graph: &Graph, value: NodeId, holds: impl Fn(&Node) -> bool) -> bool {
    let needed = graph.needed_by([value]);
    graph.nodes().filter(|(id, _)| needed[id.index()]).all(|(_, node)| holds(node))
}
