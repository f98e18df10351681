//! The split: a folded joint graph and a selection become two epilogues.

use super::joint::{FORWARD, Folded};
use super::select::Selected;
use crate::check::Checked;
use crate::dtype::ValueType;
use crate::ir::graph::{Graph, Node, NodeId};
use crate::ir::{Op, Sink, SinkKind};
use std::collections::HashMap;
use std::sync::Arc;

/// The forward epilogue with the stores of saved values, and the places of these values. `names` are those of the
/// selection.
pub(super) fn forward(user: &Checked, folded: &Folded, selected: &[Selected], names: &[Arc<str>]) -> (Graph, Vec<NodeId>) {
    let mut graph = user.graph().clone();
    let accumulator = user.accumulator().unwrap_or(ValueType::F32);
    // A value that the user's own graph has is taken from there.
    let mut placed: HashMap<NodeId, NodeId> = HashMap::new();
    let live = user.graph().live();
    for (id, _) in user.graph().nodes().filter(|(id, _)| live[id.index()]) {
        if let Some(here) = folded.of_user[id.index()] {
            placed.entry(here).or_insert(id);
        }
    }
    let from = folded.checked.graph();
    let mut values = Vec::new();
    for (value, name) in selected.iter().zip(names) {
        // An output that the caller keeps is already stored.
        if let Some(sink) = user.graph().sinks().iter().find(|sink| value.output.as_ref() == Some(&sink.name)) {
            values.push(sink.value());
            continue;
        }
        let needed = from.needed_by([value.value]);
        for (id, node) in from.nodes().filter(|(id, _)| needed[id.index()]) {
            if !placed.contains_key(&id) {
                let node = match node {
                    Node::Load { name, .. } if **name == *FORWARD => Node::Accumulator(accumulator),
                    other => other.map_args(|a| placed[&a]),
                };
                let copy = graph.push(node, from.built_at(id));
                placed.insert(id, copy);
            }
        }
        let saved = placed[&value.value];
        values.push(saved);
        graph.sink(Sink::new(name.clone(), saved, SinkKind::Store(value.operand)), None);
    }
    (graph.pruned(&mut values), values)
}

/// The backward epilogue. It loads the selected values. A product that is only added to something is not rounded first.
pub(super) fn backward(folded: &Folded, selected: &[Selected], names: &[Arc<str>]) -> Graph {
    let from = folded.checked.graph();
    let mut graph = Graph::new();
    let loaded: HashMap<NodeId, usize> = selected.iter().enumerate().map(|(i, s)| (s.value, i)).collect();
    // Values behind a loaded value are no longer needed.
    let mut needed = vec![false; from.len()];
    from.sinks().iter().flat_map(|s| &s.values).for_each(|value| needed[value.index()] = true);
    for (id, node) in from.nodes().rev().filter(|(id, _)| !loaded.contains_key(id)) {
        if needed[id.index()] {
            node.args().iter().for_each(|a| needed[a.index()] = true);
        }
    }
    let uses = uses(from, |id| needed[id.index()] && !loaded.contains_key(&id));
    let addend = |id: NodeId| uses[id.index()] == 1 && !loaded.contains_key(&id);
    let mut placed: HashMap<NodeId, NodeId> = HashMap::new();
    for (id, node) in from.nodes().filter(|(id, _)| needed[id.index()]) {
        let place = match loaded.get(&id) {
            Some(&i) => graph.push(Node::load(names[i].clone(), selected[i].operand), from.built_at(id)),
            None => match fused(&folded.checked, node, addend) {
                Some(Fused { mut terms, negated }) => {
                    terms = terms.map(|a| placed[&a]);
                    if let Some(negated) = negated {
                        terms[negated] = graph.apply(Op::Neg, &[terms[negated]]);
                    }
                    graph.push(Node::Apply { op: Op::Fma, args: terms.to_vec() }, from.built_at(id))
                }
                None => graph.push(node.map_args(|a| placed[&a]), from.built_at(id)),
            },
        };
        placed.insert(id, place);
    }
    for sink in from.sinks() {
        graph.sink(sink.map(|value| placed[&value]), None);
    }
    graph.pruned(&mut [])
}

/// How often each value is an operand or consumed by a sink, as far as its users are `needed`.
fn uses(graph: &Graph, needed: impl Fn(NodeId) -> bool) -> Vec<usize> {
    let mut uses = vec![0; graph.len()];
    let users = graph.nodes().filter(|(id, _)| needed(*id)).flat_map(|(_, node)| node.args());
    users.chain(graph.sinks().iter().flat_map(|sink| &sink.values)).for_each(|a| uses[a.index()] += 1);
    uses
}

/// A product and its addend. One of the terms may be negated.
struct Fused {
    terms: [NodeId; 3],
    negated: Option<usize>,
}

/// A sum or difference of floating-point values, one of which is a product without other users that varies like the
/// sum.
fn fused(checked: &Checked, node: &Node, addend: impl Fn(NodeId) -> bool) -> Option<Fused> {
    let ([x, y], is_difference) = node.addends()?;
    let axes = checked.type_of(x).axes.union(checked.type_of(y).axes);
    let fits = |id: NodeId| addend(id) && checked.type_of(id).value.is_float() && checked.type_of(id).axes == axes;
    let factors = |id: NodeId| checked.graph().node(id).factors().filter(|_| fits(id));
    match (factors(x), factors(y)) {
        (_, Some([a, b])) => Some(Fused { terms: [a, b, x], negated: is_difference.then_some(0) }),
        (Some([a, b]), None) => Some(Fused { terms: [a, b, y], negated: is_difference.then_some(2) }),
        (None, None) => None,
    }
}
