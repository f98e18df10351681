//! Running a network on the CPU, node by node: this defines what a network computes.

use super::fault::Fault;
use super::graph::Source;
use super::network::Network;
use super::tensor::Tensor;
use super::types::{Dim, Type};
use crate::ir::name::{meant, word};
use std::collections::HashMap;

/// Why a network did not run.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The caller did not pass an input.
    #[error("input {} is missing: it is {expected}", word(name))]
    Missing {
        /// Its name.
        name: String,
        /// Its type.
        expected: String,
    },
    /// The network has no input of that name.
    #[error("the network has no input {}{near}", word(name))]
    Unknown {
        /// The name.
        name: String,
        /// What was probably meant.
        near: String,
    },
    /// An input has another type.
    #[error("input {} is {given}, not {expected}", word(name))]
    Type {
        /// Its name.
        name: String,
        /// What the network takes.
        expected: String,
        /// What was passed.
        given: String,
    },
    /// One symbol stands for two extents.
    #[error("extent `{symbol}` is {first} in one input and {second} in another")]
    Symbol {
        /// The symbol.
        symbol: String,
        /// One extent.
        first: usize,
        /// The other.
        second: usize,
    },
    /// A node could not be computed.
    #[error("node {} ({operator}): {fault}\n  = help: {}", word(node), fault.cure())]
    Node {
        /// The node's name.
        node: String,
        /// Its operator.
        operator: String,
        /// What is wrong.
        fault: Fault,
    },
}

impl Network {
    /// Computes the outputs on the CPU.
    ///
    /// Every node is computed by itself and its result rounded to its format, so this is what a fused plan is measured
    /// against. A tensor lives until its last use.
    ///
    /// # Errors
    /// If an input is missing, unknown or of another type, or a node's tensors have no meaning.
    pub fn run(&self, inputs: &[(&str, Tensor)]) -> Result<Vec<(String, Tensor)>, RunError> {
        let graph = self.graph();
        self.admit(inputs)?;
        let mut tensors: Vec<Option<Tensor>> = vec![None; graph.edges().count()];
        for (id, edge) in graph.edges() {
            tensors[id.index()] = match &edge.source {
                Source::Input(_) => inputs.iter().find(|(name, _)| **name == *edge.name).map(|(_, tensor)| tensor.clone()),
                Source::Constant(tensor) => Some(tensor.clone()),
                Source::Node(..) => None,
            };
        }
        let mut uses = vec![0usize; tensors.len()];
        graph.nodes().flat_map(|(_, node)| node.inputs.iter().flatten()).for_each(|edge| uses[edge.index()] += 1);
        graph.outputs().iter().for_each(|(_, edge)| uses[edge.index()] += 1);
        for (_, node) in graph.nodes() {
            let fail = |fault| RunError::Node { node: node.name.to_string(), operator: node.operator_name().to_owned(), fault };
            let given: Vec<Option<&Tensor>> =
                node.inputs.iter().map(|edge| edge.and_then(|edge| tensors[edge.index()].as_ref())).collect();
            let results = node.evaluate(&given).map_err(fail)?;
            for edge in node.inputs.iter().flatten() {
                uses[edge.index()] -= 1;
                if uses[edge.index()] == 0 {
                    tensors[edge.index()] = None;
                }
            }
            for (edge, tensor) in node.outputs.iter().zip(results) {
                if uses[edge.index()] > 0 {
                    tensors[edge.index()] = Some(tensor);
                }
            }
        }
        let taken = graph.outputs().iter().filter_map(|(name, edge)| Some((name.to_string(), tensors[edge.index()].clone()?)));
        Ok(taken.collect())
    }

    /// Whether the inputs are those of the network.
    pub(crate) fn admit(&self, inputs: &[(&str, Tensor)]) -> Result<(), RunError> {
        let named = |name: &str| inputs.iter().find(|(given, _)| *given == name).map(|(_, tensor)| tensor);
        if let Some((name, _)) = inputs.iter().find(|(name, _)| !self.inputs().any(|(known, _)| known == *name)) {
            let near = meant(name, self.inputs().map(|(name, _)| name));
            return Err(RunError::Unknown { name: (*name).to_owned(), near });
        }
        let mut bound: HashMap<&str, usize> = HashMap::new();
        for (name, expected) in self.inputs() {
            let missing = || RunError::Missing { name: name.to_owned(), expected: expected.to_string() };
            let tensor = named(name).ok_or_else(missing)?;
            if !expected.admits(tensor) {
                let (expected, given) = (expected.to_string(), tensor.to_string());
                return Err(RunError::Type { name: name.to_owned(), expected, given });
            }
            bind(expected, tensor, &mut bound)?;
        }
        Ok(())
    }
}

/// Notes what the symbols of a type are in a tensor.
fn bind<'a>(of: &'a Type, tensor: &Tensor, bound: &mut HashMap<&'a str, usize>) -> Result<(), RunError> {
    for (dim, extent) in of.dims.iter().flatten().zip(tensor.shape()) {
        let Dim::Symbol(symbol) = dim else { continue };
        let first = *bound.entry(symbol).or_insert(*extent);
        if first != *extent {
            return Err(RunError::Symbol { symbol: symbol.to_string(), first, second: *extent });
        }
    }
    Ok(())
}
