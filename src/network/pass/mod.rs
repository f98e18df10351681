//! Passes: from a network to an equivalent one, each in a file of its own.
//!
//! A pass keeps names and types of inputs and outputs, and what [`Network::run`](super::Network::run) computes: bit for
//! bit, but for two of them. One folds batch norms into weights, which are rounded once more. The other multiplies quantised
//! numbers as they are, so that sums are rounded less often.

pub(super) mod attention;
mod batch_norm;
mod constant;
mod dead;
mod eight_bits;
mod example;
mod parallel;
mod same;

use super::graph::{EdgeId, Graph, Node, Source};
use super::network::Network;
use super::tensor::Tensor;
use std::collections::HashMap;

/// What the passes did to a network.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Simplified {
    /// Nodes before.
    pub before: usize,
    /// Nodes afterwards.
    pub after: usize,
    /// Nodes that were computed once and for all.
    pub folded: usize,
    /// Nodes that computed what another one does.
    pub shared: usize,
    /// Nodes that reached no output.
    pub dead: usize,
    /// Batch norms that became part of weights.
    pub batch_norms: usize,
    /// Products of one input that became one.
    pub merged: usize,
    /// Two products with a softmax between them that became an attention, when the network was fused.
    pub attentions: usize,
    /// Softmaxes between two products that did not become one attention kernel: the node's name, and why.
    pub unattended: Vec<(String, String)>,
    /// Products of quantised numbers that became products of eight bits.
    pub quantised: usize,
    /// Those that did not: the node's name, and why.
    pub unquantised: Vec<(String, &'static str)>,
}

impl Network {
    /// The network without nodes that need not run: those whose inputs are constants, those that compute what another one
    /// does, those that reach no output, and batch norms of inference behind a product with constant weights. Products of one
    /// input with constant weights become one. Products of dequantised numbers multiply the numbers of eight bits.
    ///
    /// ```
    /// use postlude::network::{Network, Tensor};
    /// use postlude::prelude::*;
    /// let network = Network::build(|g| {
    ///     let x = g.input("x", F32, [2]);
    ///     let (two, three) = (g.number(F32, 2.0), g.number(F32, 3.0));
    ///     g.output("y", x * (two + three) + x * (two + three));
    /// })?;
    /// let (simple, did) = network.simplified();
    /// assert_eq!((did.before, did.after), (5, 2)); // x * 5, and its double
    /// # Ok::<(), postlude::network::NetworkDiagnostics>(())
    /// ```
    pub fn simplified(&self) -> (Network, Simplified) {
        let before = self.graph().nodes.len();
        let mut did = Simplified { before, ..Simplified::default() };
        let mut network = self.clone();
        let passes = [
            example::name,
            eight_bits::lower,
            constant::fold,
            same::share,
            batch_norm::fold,
            constant::fold,
            dead::remove,
            parallel::merge,
        ];
        for pass in passes {
            network = pass(&network, &mut did);
        }
        did.after = network.graph().nodes.len();
        (network, did)
    }
}

/// The network without nodes that reach no output.
pub(super) fn alive(network: &Network) -> Network {
    dead::remove(network, &mut Simplified::default())
}

/// A graph that is being rebuilt from another one, node by node.
pub(super) struct Rewriter<'a> {
    from: &'a Network,
    pub graph: Graph,
    /// For each edge of the old graph what stands for it in the new one.
    edges: HashMap<EdgeId, EdgeId>,
}

impl<'a> Rewriter<'a> {
    /// Begins with the inputs. Constants are copied when a node needs them.
    pub fn new(from: &'a Network) -> Rewriter<'a> {
        let mut rewriter = Rewriter { from, graph: Graph::default(), edges: HashMap::new() };
        for edge in from.graph().inputs() {
            rewriter.edge(*edge);
        }
        rewriter
    }

    /// What stands for an edge of the old graph.
    pub fn edge(&mut self, old: EdgeId) -> EdgeId {
        if let Some(new) = self.edges.get(&old) {
            return *new;
        }
        let edge = self.from.graph().edge(old);
        let new = self.graph.add_edge(edge.name.clone(), edge.source.clone());
        self.edges.insert(old, new);
        new
    }

    /// Lets an edge of the new graph stand for one of the old.
    pub fn stand_for(&mut self, old: EdgeId, new: EdgeId) {
        self.edges.insert(old, new);
    }

    /// Lets a tensor stand for an edge.
    pub fn constant(&mut self, old: EdgeId, tensor: Tensor) {
        let new = self.graph.add_edge(self.from.graph().edge(old).name.clone(), Source::Constant(tensor));
        self.stand_for(old, new);
    }

    /// The node with inputs of the new graph.
    pub fn renamed(&mut self, node: &Node) -> Node {
        let inputs = node.inputs.iter().map(|edge| edge.map(|edge| self.edge(edge))).collect();
        Node { inputs, outputs: Vec::new(), ..node.clone() }
    }

    /// Copies a node.
    pub fn keep(&mut self, node: &Node) {
        let renamed = self.renamed(node);
        self.add(renamed, &node.outputs);
    }

    /// Adds a node whose outputs stand for edges of the old graph.
    pub fn add(&mut self, node: Node, outputs: &[EdgeId]) {
        let names = outputs.iter().map(|edge| self.from.graph().edge(*edge).name.clone()).collect();
        let added = self.graph.add_node(node, names);
        for (old, new) in outputs.iter().zip(added) {
            self.stand_for(*old, new);
        }
    }

    /// The new network. If a rule is broken, which would be a fault of the pass, the old one.
    pub fn finish(mut self) -> Network {
        let outputs = self.from.graph().outputs().to_vec();
        self.graph.outputs = outputs.into_iter().map(|(name, edge)| (name, self.edge(edge))).collect();
        let rebuilt = Network::from_graph(self.graph);
        debug_assert!(rebuilt.is_ok(), "a pass broke a network: {rebuilt:?}");
        rebuilt.unwrap_or_else(|_| self.from.clone())
    }
}
