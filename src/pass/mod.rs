//! Passes: from a checked graph to an equivalent checked graph. Each file states its precondition and its result.
//!
//! Every pass rebuilds the graph through the arena. So nodes that become equal become one node, and each node keeps its
//! source location.

mod apart;
mod distribute;
mod fold;
mod inline;
mod moments;
mod pick;
mod powers;
mod transpose;

pub use apart::{Apart, Interim, Part, apart};
pub(crate) use apart::{unused, with_accumulator};
pub use distribute::distribute;
pub use fold::fold;
pub(crate) use fold::place;
pub use inline::inline;
pub(crate) use inline::is_argument;
pub use moments::moments;
pub use pick::pick;
pub use powers::powers;
pub use transpose::transpose;

use crate::check::Checked;
use crate::ir::graph::{BuiltAt, Graph, Node, NodeId};
use crate::ir::{Monoid, Over};

/// Rebuilds the live part of a graph node by node; `place` adds the new node (its arguments already mapped) or something
/// equivalent. Sinks and arguments stay as they were.
fn rebuild(checked: &Checked, mut place: impl FnMut(&mut Graph, Node, BuiltAt) -> NodeId) -> Checked {
    let old = checked.graph();
    let live = old.live();
    let mut graph = Graph::new();
    let mut ids: Vec<NodeId> = Vec::with_capacity(old.len());
    for (id, node) in old.nodes() {
        // A dead node's slot is never read: all of its users are dead too.
        let new = if live[id.index()] { place(&mut graph, node.map_args(|a| ids[a.index()]), old.built_at(id)) } else { id };
        ids.push(new);
    }
    for (index, sink) in old.sinks().iter().enumerate() {
        graph.sink(sink.map(|value| ids[value.index()]), old.sink_built_at(index));
    }
    Checked::rebuilt(graph, checked.arguments().to_vec())
}

/// Rebuilds a graph with something else in the place of some reductions. `replace` gets how many reductions each node waits for,
/// one behind the other, and what is reduced over which axes by which monoid.
fn rebuild_reductions(
    checked: &Checked,
    asked: impl Fn(Monoid) -> bool,
    replace: impl Fn(&mut Graph, &[usize], (Monoid, Over, NodeId), BuiltAt) -> Option<NodeId>,
) -> Checked {
    let mut levels = Vec::new();
    rebuild(checked, |graph, node, built_at| {
        let replaced = match &node {
            Node::Reduce { monoid, over, args } if asked(*monoid) => {
                count_waiting(graph, &mut levels);
                replace(graph, &levels, (*monoid, *over, args[0]), built_at)
            }
            _ => None,
        };
        replaced.unwrap_or_else(|| graph.push(node, built_at))
    })
}

/// Completes how many reductions each node of a graph waits for, one behind the other.
fn count_waiting(graph: &Graph, levels: &mut Vec<usize>) {
    for (_, node) in graph.nodes().skip(levels.len()) {
        let before = node.args().iter().map(|arg| levels[arg.index()]).max().unwrap_or_default();
        levels.push(before + usize::from(matches!(node, Node::Reduce { .. })));
    }
}
