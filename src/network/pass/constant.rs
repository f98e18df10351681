//! Constant folding.
//!
//! Contract: a node whose outputs are known before the network runs becomes constants. It is computed as it would be when
//! the network runs, so the results are the same bits. A node that makes much out of little is left alone, so that a
//! network does not grow: a result is larger than its inputs by at most [`GROWTH`] bytes.

use super::{Rewriter, Simplified};
use crate::network::graph::Applied;
use crate::network::network::Network;
use crate::network::tensor::Tensor;

/// Bytes by which the result of a folded node may exceed its inputs.
const GROWTH: usize = 1 << 20;

pub(super) fn fold(network: &Network, did: &mut Simplified) -> Network {
    let mut rewriter = Rewriter::new(network);
    let graph = network.graph();
    let mut known: Vec<Option<Tensor>> = graph.edges().map(|(edge, _)| network.value_of(edge).cloned()).collect();
    for (_, node) in graph.nodes() {
        let known_already = node.outputs.iter().all(|edge| known[edge.index()].is_some());
        let inputs: Option<Vec<Option<&Tensor>>> =
            node.inputs.iter().map(|edge| edge.map_or(Some(None), |edge| known[edge.index()].as_ref().map(Some))).collect();
        let given: usize = inputs.iter().flatten().flatten().map(|tensor| tensor.bytes().len()).sum();
        let sizes: Option<usize> = node.outputs.iter().map(|edge| network.type_of(*edge).bytes()).sum();
        let small = sizes.is_some_and(|bytes| bytes <= given + GROWTH);
        let row = !matches!(node.operator, Applied::Custom(_));
        let results = match inputs {
            _ if known_already => node.outputs.iter().map(|edge| known[edge.index()].clone()).collect(),
            Some(inputs) if row && small && !node.inputs.is_empty() => node.evaluate(&inputs).ok(),
            _ => None,
        };
        match results {
            Some(results) => {
                did.folded += 1;
                for (edge, tensor) in node.outputs.iter().zip(results) {
                    known[edge.index()] = Some(tensor.clone());
                    rewriter.constant(*edge, tensor);
                }
            }
            None => rewriter.keep(node),
        }
    }
    rewriter.finish()
}
