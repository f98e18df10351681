//! Copies into other orders: where a kernel cannot read a tensor as it lies, or a caller gets one that does not lie in order.
//!
//! In a simplified network an `Identity` hands on nothing: the pass of common subexpressions has removed those of the caller.
//! So an `Identity` says *copy*: images whose channels lie in planes to images whose channels lie side by side, anything else
//! to the network's own order. A constant is turned once and for all, and its reader sees it through a transposition.

use super::view::channels_last;
use crate::network::attribute::Attributes;
use crate::network::graph::{Applied, EdgeId, Node, NodeId, Source};
use crate::network::meaning::layout;
use crate::network::network::Network;
use crate::network::operator::Operator;
use crate::network::pass::Rewriter;
use crate::network::tensor::Tensor;
use std::collections::{BTreeSet, HashMap, HashSet};

/// What a grouping found in the wrong order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Wish {
    /// An input of a node, with its channels side by side.
    ChannelsLast(NodeId, usize),
    /// An input of a node, as a copy that may lie elsewhere.
    Copied(NodeId, usize),
    /// An edge that a caller gets, in the order of its axes.
    InOrder(EdgeId),
}

fn node(operator: &'static Operator, attributes: Attributes, name: String, input: EdgeId) -> Node {
    let (operator, inputs) = (Applied::Row(operator), vec![Some(input)]);
    Node { name: name.into(), operator, attributes, inputs, outputs: Vec::new(), built_at: None }
}

/// A transposition's axes as an attribute.
fn order(axes: &[usize]) -> Attributes {
    Attributes::new().with("perm", axes.iter().map(|axis| *axis as i64).collect::<Vec<_>>())
}

/// Writes the copies into the network that were wished for. Edges of `forced` keep their meaning.
pub(super) fn granted(network: &Network, wishes: &BTreeSet<Wish>, forced: &mut HashSet<EdgeId>) -> Network {
    let graph = network.graph();
    let (Some(identity), Some(transpose)) = (Operator::named("Identity"), Operator::named("Transpose")) else {
        return network.clone();
    };
    let mut rewriter = Rewriter::new(network);
    let mut copies: HashMap<EdgeId, EdgeId> = HashMap::new();
    for (id, old) in graph.nodes() {
        let mut new = rewriter.renamed(old);
        for (index, edge) in old.inputs.iter().enumerate() {
            let moved = wishes.contains(&Wish::Copied(id, index));
            let wished = moved || wishes.contains(&Wish::ChannelsLast(id, index));
            let Some(edge) = edge.filter(|_| wished) else { continue };
            // A part that lies in a place of its own is nobody else's copy.
            let copy = match copies.get(&edge) {
                Some(copy) if !moved => *copy,
                _ => {
                    let of = &graph.edge(edge).name;
                    let rank = network.type_of(edge).shape().map_or(0, |shape| shape.len());
                    let back = layout::inverse(&channels_last(rank));
                    let added = match graph.constant(edge).filter(|_| !moved).and_then(Tensor::channels_last) {
                        Some(tensor) => {
                            let root = rewriter.graph.add_edge(format!("{of}.channels_last"), Source::Constant(tensor));
                            node(transpose, order(&back), format!("{of}.turned"), root)
                        }
                        None => node(identity, Attributes::new(), format!("{of}.copied"), rewriter.edge(edge)),
                    };
                    let name = format!("{}.out", added.name).into();
                    let copy = rewriter.graph.add_node(added, vec![name])[0];
                    if !moved {
                        copies.insert(edge, copy);
                    }
                    copy
                }
            };
            new.inputs[index] = Some(copy);
        }
        rewriter.add(new, &old.outputs);
    }
    *forced = forced.iter().map(|edge| rewriter.edge(*edge)).collect();
    for wish in wishes {
        let Wish::InOrder(edge) = wish else { continue };
        let (new, of) = (rewriter.edge(*edge), &graph.edge(*edge).name);
        let copy = node(identity, Attributes::new(), format!("{of}.copied"), new);
        let copy = rewriter.graph.add_node(copy, vec![format!("{of}.in_order").into()])[0];
        rewriter.stand_for(*edge, copy);
        forced.remove(&new);
        forced.insert(copy);
    }
    rewriter.finish()
}
