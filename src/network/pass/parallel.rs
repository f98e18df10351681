//! Parallel products of one input: q, k and v as one product.
//!
//! Contract: `MatMul` nodes that multiply one edge by constant matrices become one product of the matrices side by side, and a
//! split of its result. An addend that is a constant vector goes along. Every element is computed from the same numbers as
//! before. A product whose result a pointwise node reads otherwise is left alone: that node stands in its epilogue, which
//! would have to wait for the others.

use super::{Rewriter, Simplified};
use crate::network::attribute::Attributes;
use crate::network::graph::{Applied, EdgeId, Node, NodeId, Source};
use crate::network::network::Network;
use crate::network::operator::{Anchor, Kind, Operator};
use crate::network::tensor::Tensor;
use std::collections::{BTreeMap, HashMap, HashSet};

/// A product with constant weights, and the constant vector that is added to it.
struct Branch<'a> {
    product: NodeId,
    add: Option<NodeId>,
    weights: &'a Tensor,
    bias: Option<&'a Tensor>,
    /// What readers of the branch read.
    result: EdgeId,
}

/// A product as a branch, if it is one.
fn branch<'a>(network: &'a Network, users: &[Vec<NodeId>], id: NodeId, node: &Node) -> Option<Branch<'a>> {
    let graph = network.graph();
    let is_output = |edge: EdgeId| graph.outputs().iter().any(|(_, output)| *output == edge);
    let weights = graph.constant(node.inputs[1]?).filter(|weights| weights.rank() == 2)?;
    let columns = weights.shape()[1];
    if network.type_of(node.inputs[0]?).dims.as_ref()?.len() < 2 {
        return None;
    }
    let (mut add, mut bias, mut result) = (None, None, node.outputs[0]);
    if let ([reader], false) = (&users[result.index()][..], is_output(result)) {
        let node = graph.node(*reader);
        let addend = node.inputs.iter().flatten().find(|edge| **edge != result).and_then(|edge| graph.constant(*edge));
        if let Some(addend) = addend.filter(|addend| node.operator_name() == "Add" && *addend.shape() == [columns]) {
            (add, bias, result) = (Some(*reader), Some(addend), node.outputs[0]);
        }
    }
    let reads_in_place = |reader: &NodeId| matches!(graph.node(*reader).kind(), Kind::View(_) | Kind::Anchor(_));
    let merges = !is_output(result) && users[result.index()].iter().all(reads_in_place);
    merges.then_some(Branch { product: id, add, weights, bias, result })
}

/// Matrices, or vectors, side by side.
fn beside(tensors: &[&Tensor]) -> Option<Tensor> {
    let columns = |tensor: &Tensor| tensor.shape().last().copied().unwrap_or(1);
    let rows = if tensors[0].rank() == 2 { tensors[0].shape()[0] } else { 1 };
    let size = tensors[0].format().size();
    let mut bytes = Vec::with_capacity(tensors.iter().map(|tensor| tensor.bytes().len()).sum());
    for row in 0..rows {
        for tensor in tensors {
            let run = columns(tensor) * size;
            bytes.extend_from_slice(&tensor.bytes()[row * run..][..run]);
        }
    }
    let mut shape = tensors[0].shape().to_vec();
    *shape.last_mut()? = tensors.iter().map(|tensor| columns(tensor)).sum();
    Tensor::new(tensors[0].format(), &shape, bytes).ok()
}

/// The product of all branches, the addend and the split.
fn merged(rewriter: &mut Rewriter<'_>, network: &Network, branches: &[Branch<'_>]) -> Option<()> {
    let (matmul, add, split) = (Operator::named("MatMul")?, Operator::named("Add")?, Operator::named("Split")?);
    let graph = network.graph();
    let first = graph.node(branches[0].product);
    let weights = beside(&branches.iter().map(|branch| branch.weights).collect::<Vec<_>>())?;
    let biases: Option<Vec<&Tensor>> = branches.iter().map(|branch| branch.bias).collect();
    let name = |what: &str| format!("{}.{what}", first.name);
    let node = |operator, inputs: &[EdgeId], attributes, what: &str| {
        let (operator, inputs) = (Applied::Row(operator), inputs.iter().copied().map(Some).collect());
        Node { name: name(what).into(), operator, attributes, inputs, outputs: Vec::new(), built_at: first.built_at }
    };
    let x = rewriter.edge(first.inputs[0]?);
    let w = rewriter.graph.add_edge(name("side_by_side.w"), Source::Constant(weights));
    let product = node(matmul, &[x, w], Attributes::new(), "side_by_side");
    let mut result = rewriter.graph.add_node(product, vec![name("side_by_side.out").into()])[0];
    if let Some(biases) = biases {
        let b = rewriter.graph.add_edge(name("side_by_side.b"), Source::Constant(beside(&biases)?));
        let sum = node(add, &[result, b], Attributes::new(), "added");
        result = rewriter.graph.add_node(sum, vec![name("added.out").into()])[0];
    }
    let extents: Vec<i64> = branches.iter().map(|branch| branch.weights.shape()[1] as i64).collect();
    let extents = rewriter.graph.add_edge(name("extents"), Source::Constant(Tensor::indices(&extents)));
    let parts = node(split, &[result, extents], Attributes::new().with("axis", -1), "parts");
    let names = branches.iter().map(|branch| graph.edge(branch.result).name.clone()).collect();
    let parts = rewriter.graph.add_node(parts, names);
    branches.iter().zip(parts).for_each(|(branch, part)| rewriter.stand_for(branch.result, part));
    Some(())
}

pub(super) fn merge(network: &Network, did: &mut Simplified) -> Network {
    let graph = network.graph();
    let users = graph.users();
    // Branches that may stand side by side: of one input, with or without an addend, as many rows, one format.
    let mut found: BTreeMap<(EdgeId, bool, usize), Vec<Branch<'_>>> = BTreeMap::new();
    for (id, node) in graph.nodes().filter(|(_, node)| matches!(node.kind(), Kind::Anchor(Anchor::MatMul))) {
        let (Some(x), Some(branch)) = (node.inputs[0], branch(network, &users, id, node)) else { continue };
        let same = found.entry((x, branch.bias.is_some(), branch.weights.shape()[0])).or_default();
        if same.iter().all(|other| other.weights.format() == branch.weights.format()) {
            same.push(branch);
        }
    }
    found.retain(|_, branches| branches.len() > 1);
    let begins: HashMap<NodeId, &Vec<Branch<'_>>> = found.values().map(|branches| (branches[0].product, branches)).collect();
    let gone: HashSet<NodeId> =
        found.values().flatten().flat_map(|branch| [Some(branch.product), branch.add]).flatten().collect();
    let mut rewriter = Rewriter::new(network);
    for (id, node) in graph.nodes() {
        if let Some(branches) = begins.get(&id) {
            if merged(&mut rewriter, network, branches).is_none() {
                return network.clone();
            }
            did.merged += branches.len();
        } else if !gone.contains(&id) {
            rewriter.keep(node);
        }
    }
    rewriter.finish()
}
