//! Batch norms of inference, folded into the weights before them.
//!
//! Contract: where a `Conv` or a `Gemm` with constant weights feeds a `BatchNormalization` with constant statistics and
//! nothing else, the norm's scale multiplies the weights of each output channel, and what it adds becomes a bias. Both are
//! computed in `f64` and rounded once to the weights' format. That is one rounding more than without the pass: it is the
//! only pass that does not keep the bits.

use super::{Rewriter, Simplified};
use crate::network::graph::{Node, Source};
use crate::network::network::Network;
use crate::network::operator::{Anchor, Kind};
use crate::network::tensor::Tensor;

/// The weights of a product and its bias, with a norm inside.
fn folded(network: &Network, product: &Node, norm: &Node) -> Option<[Tensor; 2]> {
    let constant = |node: &Node, input: usize| network.graph().constant(node.inputs.get(input).copied().flatten()?);
    let weights = constant(product, 1)?;
    let channel = match product.kind() {
        Kind::Anchor(Anchor::Conv) => 0,
        // Columns of B, a matrix, are the channels.
        Kind::Anchor(Anchor::Gemm) => usize::from(!product.attributes.flag("transB")),
        _ => return None,
    };
    let plain = product.attributes.float_or("alpha", 1.0) == 1.0 && product.attributes.float_or("beta", 1.0) == 1.0;
    let given_bias = product.inputs.get(2).copied().flatten().is_some();
    let bias = if given_bias { Some(constant(product, 2)?) } else { None };
    let channels = *weights.shape().get(channel)?;
    let [scale, shift, mean, variance] = [1, 2, 3, 4].map(|input| constant(norm, input));
    let [scale, shift, mean, variance] = [scale?, shift?, mean?, variance?].map(Tensor::numbers);
    let fits =
        bias.is_none_or(|bias| bias.len() == channels) && [&scale, &shift, &mean, &variance].iter().all(|v| v.len() == channels);
    if !plain || !fits || norm.attributes.flag("training_mode") || !weights.format().is_float() {
        return None;
    }
    let epsilon = norm.attributes.float_or("epsilon", 1e-5);
    let factor: Vec<f64> = scale.iter().zip(&variance).map(|(s, v)| s / (v + epsilon).sqrt()).collect();
    let before = bias.map_or_else(|| vec![0.0; channels], Tensor::numbers);
    let added: Vec<f64> = (0..channels).map(|c| (before[c] - mean[c]) * factor[c] + shift[c]).collect();
    let bias = Tensor::of_numbers(weights.format(), &[channels], &added).ok()?;
    Some([weights.scaled(channel, factor).ok()?, bias])
}

pub(super) fn fold(network: &Network, did: &mut Simplified) -> Network {
    let graph = network.graph();
    let users = graph.users();
    let is_output = |edge| graph.outputs().iter().any(|(_, output)| *output == edge);
    let mut rewriter = Rewriter::new(network);
    for (_, node) in graph.nodes() {
        let found = (node.operator_name() == "BatchNormalization").then(|| {
            let edge = node.inputs.first().copied().flatten()?;
            let alone = users[edge.index()].len() == 1 && !is_output(edge);
            let product = graph.node(graph.producer(edge).filter(|_| alone)?);
            Some((product, folded(network, product, node)?))
        });
        let Some((product, [weights, bias])) = found.flatten() else {
            rewriter.keep(node);
            continue;
        };
        did.batch_norms += 1;
        let name = |what: &str| format!("{}.{what}", product.name);
        let x = product.inputs[0].map(|edge| rewriter.edge(edge));
        let w = rewriter.graph.add_edge(name("weights"), Source::Constant(weights));
        let b = rewriter.graph.add_edge(name("bias"), Source::Constant(bias));
        // The product without the norm stays, and is dead.
        let inputs = vec![x, Some(w), Some(b)];
        rewriter.add(Node { inputs, outputs: Vec::new(), ..product.clone() }, &node.outputs[..1]);
    }
    rewriter.finish()
}
