//! Spread: reductions inside the graph by other monoids, for each monoid whose row has a way. A logsumexp becomes the
//! largest element and a sum of exponentials less it.
//!
//! Needs no calls. A kernel that holds a row takes an exponential of each element, where the monoid takes one of each
//! and rescales what it has.

use super::rebuild;
use crate::check::Checked;
use crate::ir::graph::Node;

/// Spreads every reduction inside the graph whose monoid has a [`Spread`](crate::ir::monoid::Row::spread).
pub fn spread(checked: &Checked) -> Checked {
    rebuild(checked, |graph, node, built_at| match node {
        Node::Reduce { monoid, over, ref args } => match monoid.spread() {
            Some(spread) => spread(graph, over, args[0], built_at),
            None => graph.push(node, built_at),
        },
        other => graph.push(other, built_at),
    })
}
