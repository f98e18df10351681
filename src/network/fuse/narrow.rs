//! Quantised numbers that several kernels read: they stay narrow in memory, and each reader dequantises them.

use crate::network::graph::{EdgeId, Node, NodeId};
use crate::network::network::Network;
use crate::network::operator::Kind;

/// Why such an edge is left in memory.
pub(super) const WHY: &str = "it has fewer bytes than what its reader makes of it";

/// Whether a node dequantises what a product reads as it is, for nodes that add it to something else, as a residual is added.
/// Then it joins them, and not the kernel that quantises, which would write the wide numbers beside the narrow ones.
pub(super) fn dequantises_for_others(network: &Network, users: &[Vec<NodeId>], node: &Node) -> bool {
    let (Some(narrow), [wide]) = (node.inputs.first().copied().flatten(), &node.outputs[..]) else { return false };
    let readers = |edge: EdgeId| users[edge.index()].iter().map(|id| network.graph().node(*id));
    let adds = |reader: &Node| reader.inputs.iter().flatten().any(|edge| edge != wide && network.value_of(*edge).is_none());
    node.operator_name() == "DequantizeLinear"
        && readers(narrow).any(|reader| matches!(reader.kind(), Kind::Anchor(_)))
        && readers(*wide).next().is_some()
        && readers(*wide).all(|reader| matches!(reader.kind(), Kind::Pointwise(_)) && adds(reader))
}
