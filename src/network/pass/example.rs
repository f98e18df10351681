//! Casts by example.
//!
//! Contract: a `CastLike` becomes a `Cast` into the format of the example, whose elements nobody reads. So a kernel does not load
//! them, and the example may have any shape.

use super::{Rewriter, Simplified};
use crate::network::graph::{Applied, Node};
use crate::network::network::Network;
use crate::network::operator::Operator;

pub(super) fn name(network: &Network, _: &mut Simplified) -> Network {
    let graph = network.graph();
    let is_like = |node: &Node| matches!(node.operator, Applied::Row(_)) && node.operator_name() == "CastLike";
    let Some(cast) = Operator::named("Cast").filter(|_| graph.nodes.iter().any(is_like)) else { return network.clone() };
    let mut rewriter = Rewriter::new(network);
    for node in &graph.nodes {
        let mut new = rewriter.renamed(node);
        if is_like(node) {
            new.attributes = new.attributes.with("to", network.type_of(node.outputs[0]).format.name());
            new.operator = Applied::Row(cast);
            new.inputs.truncate(1);
        }
        rewriter.add(new, &node.outputs);
    }
    rewriter.finish()
}
