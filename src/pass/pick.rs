//! Pick: a sum along an axis that selects the element at one coordinate waits for nothing. The sum of `column == label ?
//! x - r : 0`, where `r` comes from another reduction, is `x` at the label, less `r`. A cross-entropy's loss is such a case: its
//! logarithm of a sum of exponentials and its label are then reduced together.
//!
//! Needs no calls. What is picked keeps its bits. Where the coordinate is outside, a second reduction says that nothing was.

use super::rebuild_reductions;
use crate::check::Checked;
use crate::dtype::ValueType;
use crate::ir::graph::{BuiltAt, Graph, Node, NodeId};
use crate::ir::op::Signature;
use crate::ir::{Monoid, Op, Over};

/// Values that are picked for one sum, at the most: each takes a place beside the other reductions.
const MOST: usize = 2;
/// Nodes that are looked at for one sum, at the most.
const MOST_NODES: usize = 64;

/// Picks for all sums that select one element and wait for other reductions.
pub fn pick(checked: &Checked) -> Checked {
    rebuild_reductions(checked, Monoid::is_sum, picked)
}

/// The operands of a select, if its condition holds at one coordinate along an axis at the most, and nothing else counts.
fn selected(graph: &Graph, over: Over, value: NodeId) -> Option<[NodeId; 2]> {
    let Node::Apply { op, args } = graph.node(value) else { return None };
    let [condition, element, other] = args[..] else { return None };
    let is_zero = matches!(graph.node(other), Node::Constant(zero) if zero.value() == 0.0);
    if op.row().signature != Signature::Select || !is_zero {
        return None;
    }
    let Node::Apply { op, args } = graph.node(condition) else { return None };
    let counts = |id: NodeId| matches!(graph.node(id), Node::Coordinate(along) if along.axis() == over.axes);
    let one = op.is_equality() && args.iter().any(|&a| counts(a)) && args.iter().any(|&a| !over.varies(graph.axes(a)));
    one.then_some([condition, element])
}

/// What replaces such a sum.
fn picked(
    graph: &mut Graph,
    levels: &[usize],
    (monoid, over, value): (Monoid, Over, NodeId),
    built_at: BuiltAt,
) -> Option<NodeId> {
    if over.band.is_some() || graph.value_type(value) != ValueType::F32 {
        return None;
    }
    let [condition, element] = selected(graph, over, value)?;
    let waits = |id: NodeId| levels[id.index()] > levels[condition.index()];
    if !waits(element) {
        return None;
    }
    // Whatever varies and waits is computed from what is picked: in the order of the arena.
    let (mut found, mut looked_at) = (vec![element], 0);
    let mut leaves = Vec::new();
    while let Some(&id) = found.get(looked_at) {
        looked_at += 1;
        if !over.varies(graph.axes(id)) {
            continue;
        }
        let Node::Apply { args, .. } = graph.node(id) else {
            leaves.push(id);
            continue;
        };
        if !waits(id) {
            leaves.push(id);
            continue;
        }
        let new: Vec<NodeId> = args.iter().copied().filter(|arg| !found.contains(arg)).collect();
        found.extend(new);
        if found.len() > MOST_NODES {
            return None;
        }
    }
    let can = |id: &NodeId| graph.value_type(*id) == ValueType::F32 && !waits(*id);
    if leaves.len() > MOST || !leaves.iter().all(can) {
        return None;
    }
    found.sort_unstable();
    let zero = graph.constant_f32(0.0);
    let mut places: Vec<(NodeId, NodeId)> = Vec::new();
    for id in found {
        let new = if leaves.contains(&id) {
            let one = graph.apply(Op::Select, &[condition, id, zero]);
            graph.push(Node::Reduce { monoid, over, args: vec![one] }, built_at)
        } else if over.varies(graph.axes(id)) {
            let place = |arg: NodeId| places.iter().find(|(old, _)| *old == arg).map_or(arg, |(_, new)| *new);
            let node = graph.node(id).map_args(place);
            graph.push(node, built_at)
        } else {
            id
        };
        places.push((id, new));
    }
    let (_, result) = *places.last()?;
    let any = graph.push(Node::Reduce { monoid: Monoid::Max, over, args: vec![condition] }, built_at);
    Some(graph.apply(Op::Select, &[any, result, zero]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::check;
    use crate::dtype::DType::{F32, I32};
    use crate::ir::axes::{M, N};
    use crate::ir::{Coordinate, Sink, SinkKind};
    use crate::pass::count_waiting;

    /// The reductions that are live in a graph as the pass leaves it, each with how many it waits for.
    fn left(summed: impl FnOnce(&mut Graph, NodeId, NodeId) -> NodeId) -> Vec<(Monoid, usize)> {
        let mut graph = Graph::new();
        let x = graph.push(Node::Accumulator(ValueType::F32), None);
        let label = graph.push(Node::load("label", I32.over(M)), None);
        let column = graph.push(Node::Coordinate(Coordinate::Column), None);
        let is_label = graph.apply(Op::Eq, &[column, label]);
        let summed = summed(&mut graph, x, is_label);
        let sum = graph.push(Node::Reduce { monoid: Monoid::Sum, over: N.into(), args: vec![summed] }, None);
        graph.sink(Sink::new("d", sum, SinkKind::Store(F32.over(M).batched())), None);
        let after = pick(&check(graph).unwrap());
        let (graph, live) = (after.graph(), after.graph().live());
        let mut levels = Vec::new();
        count_waiting(graph, &mut levels);
        let live = graph.nodes().filter(|(id, _)| live[id.index()]);
        live.filter_map(
            |(id, node)| if let Node::Reduce { monoid, .. } = node { Some((*monoid, levels[id.index()] - 1)) } else { None },
        )
        .collect()
    }

    fn largest(graph: &mut Graph, x: NodeId) -> NodeId {
        graph.push(Node::Reduce { monoid: Monoid::Max, over: N.into(), args: vec![x] }, None)
    }

    #[test]
    fn a_picked_element_waits_for_nothing() {
        let picked = left(|graph, x, is_label| {
            let largest = largest(graph, x);
            let less = graph.apply(Op::Sub, &[x, largest]);
            let power = graph.apply(Op::Exp, &[less]);
            let zero = graph.constant_f32(0.0);
            graph.apply(Op::Select, &[is_label, power, zero])
        });
        assert_eq!(
            picked,
            [(Monoid::Max, 0), (Monoid::Sum, 0), (Monoid::Max, 0)],
            "the largest, x at the label, and whether any"
        );
    }

    #[test]
    fn what_is_more_than_one_element_is_summed() {
        let other = left(|graph, x, is_label| {
            let largest = largest(graph, x);
            let less = graph.apply(Op::Sub, &[x, largest]);
            let one = graph.constant_f32(1.0);
            graph.apply(Op::Select, &[is_label, less, one])
        });
        assert_eq!(other, [(Monoid::Max, 0), (Monoid::Sum, 1)], "1 elsewhere");
        let many = left(|graph, x, is_label| {
            let largest = largest(graph, x);
            let (less, zero) = (graph.apply(Op::Sub, &[x, largest]), graph.constant_f32(0.0));
            let is_negative = graph.apply(Op::Lt, &[x, zero]);
            let either = graph.apply(Op::Or, &[is_label, is_negative]);
            graph.apply(Op::Select, &[either, less, zero])
        });
        assert_eq!(many, [(Monoid::Max, 0), (Monoid::Sum, 1)], "of any number of elements");
    }
}
