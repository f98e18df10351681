//! Apart: one epilogue becomes several that run one after the other. The reductions inside the graph that a kernel cannot finish
//! by itself are stored by one of them, and loaded by those after it.
//!
//! Needs no calls. Leaves inside the graphs the reductions that the caller keeps and, in graphs of their own, those of bands
//! along a single row or column. A result is stored in the format of its value, so nothing is rounded between the epilogues.

use super::rebuild;
use crate::check::{Checked, arguments_of};
use crate::dtype::ValueType;
use crate::ir::graph::{Graph, Node, NodeId};
use crate::ir::{Axes, Monoid, Op, Operand, Over, Reduce, Sink, SinkKind};
use serde::Serialize;
use std::collections::HashMap;

/// What an epilogue leaves in memory for those after it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Interim {
    /// The name of the argument, which no argument of the user has.
    pub name: String,
    /// How it lies in memory.
    pub operand: Operand,
}

/// One epilogue of several.
#[derive(Clone, Debug)]
pub struct Part {
    /// The epilogue.
    pub epilogue: Checked,
    /// The axis of which it takes a single element, if it reduces bands along the other.
    pub single: Option<Axes>,
}

/// An epilogue in parts.
#[derive(Clone, Debug)]
pub struct Apart {
    /// In order. The last has the sinks of the whole.
    pub parts: Vec<Part>,
    /// What they leave.
    pub interim: Vec<Interim>,
}

/// Takes the reductions that are not kept out of an epilogue. Those that wait for no others are in the first part, and so on.
///
/// # Errors
/// If bands of every row or of every column are not kept, or bands of both axes come to what no other reduction combines.
pub fn apart(checked: &Checked, keeps: impl Fn(Over) -> bool) -> Result<Apart, String> {
    let checked = &without_areas(checked, &keeps)?;
    let (graph, live) = (checked.graph(), checked.graph().live());
    let taken = |id: NodeId| match graph.node(id) {
        Node::Reduce { over, monoid, args } if live[id.index()] && !keeps(*over) => Some((*monoid, *over, args)),
        _ => None,
    };
    let levels = levels(graph, |id| taken(id).is_some());
    let (mut parts, mut interim): (Vec<Part>, Vec<Interim>) = (Vec::new(), Vec::new());
    let mut loads: HashMap<NodeId, Node> = HashMap::new();
    for level in 1..=levels.iter().copied().max().unwrap_or_default() {
        let now = || graph.nodes().map(|(id, _)| id).filter(|id| levels[id.index()] == level);
        // Sums of whole axes first, then those of bands, each width as one part.
        let mut bands = vec![None];
        for (_, over, _) in now().filter_map(taken) {
            if !bands.contains(&over.band) {
                bands.push(over.band);
            }
        }
        for band in bands {
            let (mut sinks, mut left) = (Vec::new(), Vec::new());
            let other = band.map(|(axis, _)| axis.transposed());
            for id in now() {
                let Some((monoid, over, args)) = taken(id).filter(|(_, over, _)| over.band == band) else { continue };
                if other.is_some_and(|other| args.iter().any(|arg| checked.type_of(*arg).axes.contains(other))) {
                    return Err(format!("one goes over {over}, bands of what is not kept beside the others"));
                }
                let operand = Operand {
                    axes: over.kept(Axes::MNL).without(other.unwrap_or(Axes::NONE)),
                    ..checked.type_of(id).value.storage().into()
                };
                let name = unused(checked, interim.len() + left.len());
                sinks.push(match other {
                    None => Sink { values: args.clone(), ..Sink::new(&*name, args[0], Reduce::from(monoid).to(operand)) },
                    Some(_) => Sink::new(&*name, id, SinkKind::Store(operand)),
                });
                left.push((id, Interim { name, operand }));
            }
            if !sinks.is_empty() {
                parts.push(Part { epilogue: part(checked, &loads, &sinks), single: other });
            }
            for (id, result) in left {
                loads.insert(id, Node::load(&*result.name, result.operand));
                interim.push(result);
            }
        }
    }
    parts.push(Part { epilogue: part(checked, &loads, graph.sinks()), single: None });
    Ok(Apart { parts, interim })
}

/// A reduction over bands of one axis and other axes, which is not kept, becomes one over the other axes, and one of its results
/// over the bands. So does a variance, with the mean of its parts.
fn without_areas(checked: &Checked, keeps: &impl Fn(Over) -> bool) -> Result<Checked, String> {
    let mut refused = None;
    let split = rebuild(checked, |graph, node, built_at| {
        let Node::Reduce { monoid, over, ref args } = node else { return graph.push(node, built_at) };
        let others = over.band.map_or(Axes::NONE, |(axis, _)| over.axes.without(axis));
        if keeps(over) || others == Axes::NONE {
            return graph.push(node, built_at);
        }
        let rest = Over { axes: over.axes.without(others), ..over };
        if let Some(beside) = monoid.beside() {
            // The variance of all is the mean of those of the parts, and the variance of their means.
            let [inner, means] = [monoid, beside]
                .map(|monoid| graph.push(Node::Reduce { monoid, over: others.into(), args: args.clone() }, built_at));
            let [inside, between] = [(Monoid::Mean, inner), (monoid, means)]
                .map(|(monoid, of)| graph.push(Node::Reduce { monoid, over: rest, args: vec![of] }, built_at));
            return graph.push(Node::Apply { op: Op::Add, args: vec![inside, between] }, built_at);
        }
        let Some(then) = monoid.of_results() else {
            refused = Some(format!("`{}` over {over} does not follow from its results over {others}", monoid.name()));
            return graph.push(node, built_at);
        };
        let inner = graph.push(Node::Reduce { monoid, over: others.into(), args: args.clone() }, built_at);
        graph.push(Node::Reduce { monoid: then, over: rest, args: vec![inner] }, built_at)
    });
    refused.map_or(Ok(split), Err)
}

/// For each node, the number of the given nodes on the longest path to it, including the node itself.
fn levels(graph: &Graph, given: impl Fn(NodeId) -> bool) -> Vec<usize> {
    let mut levels: Vec<usize> = Vec::with_capacity(graph.len());
    for (id, node) in graph.nodes() {
        let before = node.args().iter().map(|arg| levels[arg.index()]).max().unwrap_or_default();
        levels.push(before + usize::from(given(id)));
    }
    levels
}

/// A name that no argument has.
pub(crate) fn unused(checked: &Checked, number: usize) -> String {
    let mut name = format!("interim{number}");
    while checked.argument(&name).is_some() {
        name.push('_');
    }
    name
}

/// The epilogue of these sinks, in which nodes stand for what lies in memory.
fn part(checked: &Checked, loads: &HashMap<NodeId, Node>, sinks: &[Sink]) -> Checked {
    let old = checked.graph();
    let roots = sinks.iter().flat_map(|sink| sink.values.iter().copied());
    let needed = old.needed_beside(roots, |id| loads.contains_key(&id));
    let mut graph = Graph::new();
    let mut ids: Vec<NodeId> = Vec::with_capacity(old.len());
    for (id, node) in old.nodes() {
        ids.push(match loads.get(&id) {
            _ if !needed[id.index()] => id,
            Some(load) => graph.push(load.clone(), old.built_at(id)),
            None => graph.push(node.map_args(|arg| ids[arg.index()]), old.built_at(id)),
        });
    }
    for sink in sinks {
        let known = old.sinks().iter().position(|other| other == sink);
        graph.sink(sink.map(|value| ids[value.index()]), known.and_then(|index| old.sink_built_at(index)));
    }
    let arguments = arguments_of(&graph);
    Checked::rebuilt(graph, arguments)
}

/// The epilogue with one more store: that of the accumulator as it is.
pub(crate) fn with_accumulator(checked: Option<&Checked>, value: ValueType, Interim { name, operand }: &Interim) -> Checked {
    let mut graph = checked.map_or_else(Graph::new, |checked| checked.graph().clone());
    let value = graph.push(Node::Accumulator(value), None);
    graph.sink(Sink::new(&**name, value, SinkKind::Store(*operand)), None);
    let arguments = arguments_of(&graph);
    Checked::rebuilt(graph, arguments)
}
