//! Dead nodes.
//!
//! Contract: what no output depends on goes. Inputs stay, used or not, so that callers pass what they did.

use super::{Rewriter, Simplified};
use crate::network::network::Network;

pub(super) fn remove(network: &Network, did: &mut Simplified) -> Network {
    let graph = network.graph();
    let mut live = vec![false; graph.edges.len()];
    graph.outputs().iter().for_each(|(_, edge)| live[edge.index()] = true);
    let mut kept = vec![false; graph.nodes.len()];
    for (index, node) in graph.nodes.iter().enumerate().rev() {
        kept[index] = node.outputs.iter().any(|edge| live[edge.index()]);
        if kept[index] {
            node.inputs.iter().flatten().for_each(|edge| live[edge.index()] = true);
        }
    }
    let mut rewriter = Rewriter::new(network);
    for (node, kept) in graph.nodes.iter().zip(&kept) {
        if *kept {
            rewriter.keep(node);
        } else {
            did.dead += 1;
        }
    }
    rewriter.finish()
}
