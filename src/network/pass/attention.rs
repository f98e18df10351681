//! Attention: two products with a softmax between them as one node, whose scores are never in memory.
//!
//! Contract: a `MatMul`, a `Mul` or `Div` by a positive number, a `Softmax` over the last axis and another `MatMul` become one
//! `ScaledDotProductAttention`, if nobody else reads what lies between, the formats are f16 or bf16, and heads are as wide as
//! kernels take them. Scores and their softmax are no longer rounded to 16 bits.

use super::{Rewriter, Simplified};
use crate::dtype::DType;
use crate::network::attribute::Attributes;
use crate::network::graph::{Applied, EdgeId, Node, NodeId};
use crate::network::network::Network;
use crate::network::operator::{Anchor, Kind, Normalisation, Operator};
use crate::network::types::{Dim, Type};
use std::collections::{HashMap, HashSet};

/// The most elements of a query and of a value: those of a kernel's tile.
const WIDEST: usize = 128;
/// Elements that a kernel moves at a time, 16 bytes of them.
const RUN: usize = 8;

/// The nodes of an attention.
struct Found {
    /// Those that go: all but the last one.
    nodes: Vec<NodeId>,
    queries: EdgeId,
    /// The keys as the first product reads them: turned.
    turned_keys: EdgeId,
    values: EdgeId,
    scale: f64,
}

fn is_matmul(node: &Node) -> bool {
    matches!(node.kind(), Kind::Anchor(Anchor::MatMul))
}

/// The factor by which a node multiplies an edge, which is the other input.
fn factor(network: &Network, node: &Node) -> Option<(EdgeId, f64)> {
    let (first, second) = (node.inputs.first().copied().flatten()?, node.inputs.get(1).copied().flatten()?);
    let number = |edge: EdgeId| network.value_of(edge).and_then(|tensor| tensor.only());
    match (node.operator_name(), number(first), number(second)) {
        ("Mul", None, Some(x)) => Some((first, x)),
        ("Mul", Some(x), None) => Some((second, x)),
        ("Div", None, Some(x)) => Some((first, 1.0 / x)),
        _ => None,
    }
}

/// The attention that ends with a product.
fn found(network: &Network, users: &[Vec<NodeId>], last: &Node) -> Option<Found> {
    let graph = network.graph();
    let is_output = |edge: EdgeId| graph.outputs().iter().any(|(_, output)| *output == edge);
    // What nobody else reads.
    let before = |edge: EdgeId| -> Option<(NodeId, &Node)> {
        let id = graph.producer(edge).filter(|_| users[edge.index()].len() == 1 && !is_output(edge))?;
        Some((id, graph.node(id)))
    };
    let (softmax, node) = before(last.inputs[0]?)?;
    let scores = node.inputs.first().copied().flatten()?;
    let rank = network.type_of(scores).dims.as_ref()?.len();
    let along = crate::network::meaning::axis(node.attributes.int_or("axis", -1), rank).ok()?;
    if !matches!(node.kind(), Kind::Normalisation(Normalisation::Softmax)) || along + 1 != rank {
        return None;
    }
    let (mut nodes, mut scale, mut edge) = (vec![softmax], 1.0, scores);
    let (mut id, mut node) = before(edge)?;
    if let Some((scaled, by)) = factor(network, node) {
        nodes.push(id);
        (scale, edge) = (by, scaled);
        (id, node) = before(edge)?;
    }
    nodes.push(id);
    let (queries, turned_keys) = (node.inputs.first().copied().flatten()?, node.inputs.get(1).copied().flatten()?);
    let found = Found { nodes, queries, turned_keys, values: last.inputs[1]?, scale };
    (is_matmul(node) && scale > 0.0 && scale.is_finite() && fits(network, &found)).then_some(found)
}

/// Whether kernels take such queries, keys and values.
fn fits(network: &Network, found: &Found) -> bool {
    let types = [found.queries, found.turned_keys, found.values].map(|edge| network.type_of(edge));
    let dims: Option<Vec<&Vec<Dim>>> = types.iter().map(|of| of.dims.as_ref()).collect();
    let Some(&[q, k, v]) = dims.as_deref() else { return false };
    let rank = q.len();
    let sixteen = |of: &&Type| matches!(of.format.dtype(), Some(DType::F16 | DType::BF16)) && of.format == types[0].format;
    let width = |dim: Option<&Dim>| matches!(dim, Some(Dim::Known(x)) if *x % RUN == 0 && (RUN..=WIDEST).contains(x));
    rank >= 3
        && k.len() == rank
        && v.len() == rank
        && types.iter().all(sixteen)
        && q[..rank - 2] == k[..rank - 2]
        && q[..rank - 2] == v[..rank - 2]
        && width(q.last())
        && width(v.last())
}

/// The network with attentions as single nodes.
pub(in crate::network) fn lower(network: &Network, did: &mut Simplified) -> Network {
    let graph = network.graph();
    let users = graph.users();
    let (Some(attention), Some(transpose)) = (Operator::named("ScaledDotProductAttention"), Operator::named("Transpose")) else {
        return network.clone();
    };
    let matmuls = graph.nodes().filter(|(_, node)| is_matmul(node));
    let all: HashMap<NodeId, Found> = matmuls.filter_map(|(id, node)| Some((id, found(network, &users, node)?))).collect();
    if all.is_empty() {
        return network.clone();
    }
    let gone: HashSet<NodeId> = all.values().flat_map(|found| found.nodes.iter().copied()).collect();
    let mut rewriter = Rewriter::new(network);
    for (id, node) in graph.nodes() {
        if let Some(found) = all.get(&id) {
            let rank = network.type_of(found.queries).dims.as_ref().map_or(2, Vec::len) as i64;
            let order: Vec<i64> = (0..rank - 2).chain([rank - 1, rank - 2]).collect();
            let made = |operator, name: String, attributes, inputs: &[EdgeId]| {
                let (operator, inputs) = (Applied::Row(operator), inputs.iter().copied().map(Some).collect());
                Node { name: name.into(), operator, attributes, inputs, outputs: Vec::new(), built_at: node.built_at }
            };
            let name = format!("{}.keys", node.name);
            let turned = rewriter.edge(found.turned_keys);
            let turn = made(transpose, name.clone(), Attributes::new().with("perm", order), &[turned]);
            let keys = rewriter.graph.add_node(turn, vec![format!("{name}.out").into()])[0];
            let (queries, values) = (rewriter.edge(found.queries), rewriter.edge(found.values));
            let attributes = Attributes::new().with("scale", found.scale as f32);
            rewriter.add(made(attention, node.name.to_string(), attributes, &[queries, keys, values]), &node.outputs);
            did.attentions += 1;
        } else if !gone.contains(&id) {
            rewriter.keep(node);
        }
    }
    rewriter.finish()
}
