//! Common subexpressions.
//!
//! Contract: a node that hands on its input goes, and its readers read the input. Of nodes with the same operator,
//! attributes and inputs the first stands for all. Operators of a program are taken to give the same for the same.
//! Constants with the same elements are one.

use super::{Rewriter, Simplified};
use crate::network::graph::{Applied, EdgeId, Node, Source};
use crate::network::network::Network;
use std::collections::HashMap;

/// A node that was kept, with its outputs in the old graph.
type Kept = (Node, Vec<EdgeId>);

pub(super) fn share(network: &Network, did: &mut Simplified) -> Network {
    let mut rewriter = Rewriter::new(network);
    let mut seen: HashMap<(String, Vec<Option<EdgeId>>), Vec<Kept>> = HashMap::new();
    let mut constants: HashMap<(usize, String), Vec<EdgeId>> = HashMap::new();
    let graph = network.graph();
    for (id, edge) in graph.edges() {
        let Source::Constant(tensor) = &edge.source else { continue };
        let alike = constants.entry((tensor.bytes().len(), tensor.to_string())).or_default();
        match alike.iter().find(|other| graph.constant(**other) == Some(tensor)) {
            Some(first) => {
                let first = rewriter.edge(*first);
                rewriter.stand_for(id, first);
            }
            None => alike.push(id),
        }
    }
    let users = graph.users();
    let unread = |edge: &EdgeId| users[edge.index()].is_empty() && graph.outputs().iter().all(|(_, output)| output != edge);
    for (_, node) in graph.nodes() {
        let hands_on = match node.operator_name() {
            "Identity" => true,
            "Dropout" => node.inputs.get(2).copied().flatten().is_none() && node.outputs[1..].iter().all(unread),
            _ => false,
        };
        if let (true, Some(input)) = (hands_on && matches!(node.operator, Applied::Row(_)), node.inputs[0]) {
            did.shared += 1;
            let input = rewriter.edge(input);
            rewriter.stand_for(node.outputs[0], input);
            continue;
        }
        let new = rewriter.renamed(node);
        let alike = seen.entry((node.operator_name().to_owned(), new.inputs.clone())).or_default();
        let same = |(other, outputs): &&Kept| {
            other.operator == new.operator && other.attributes == new.attributes && outputs.len() == node.outputs.len()
        };
        if let Some((_, outputs)) = alike.iter().find(same) {
            did.shared += 1;
            for (old, first) in node.outputs.iter().zip(outputs) {
                let stands = rewriter.edge(*first);
                rewriter.stand_for(*old, stands);
            }
        } else {
            alike.push((new.clone(), node.outputs.clone()));
            rewriter.add(new, &node.outputs);
        }
    }
    rewriter.finish()
}
