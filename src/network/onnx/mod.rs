//! Networks from ONNX files, and to them.
//!
//! A file of any opset is read: where an older version of an operator differs, the reader writes the newer one. What the
//! table does not have is reported at once, every operator with the nodes that use it. A file is untrusted: nothing is
//! allocated that its bytes do not account for, and files that it names lie in its own folder.

mod messages;
mod read;
mod tensor;
mod upgrade;
mod write;

use super::check::NetworkDiagnostics;
use super::custom::Operators;
use super::fault::Fault;
use super::network::Network;
use super::tensor::Tensor;
use crate::ir::name::{shown, word};
use prost::Message;
use std::fmt;
use std::path::Path;

/// Why a file is not a network.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OnnxError {
    /// The bytes are not an ONNX model.
    #[error("the file is not an ONNX model: {0}")]
    Decode(String),
    /// The file could not be read.
    #[error("cannot read the model: {0}")]
    Io(#[from] std::io::Error),
    /// A tensor has a format, shape or size that a network cannot have.
    #[error("tensor {}: {fault}", word(name))]
    Tensor {
        /// Its name.
        name: String,
        /// What is wrong.
        fault: Fault,
    },
    /// A tensor's elements lie in a file that cannot be read.
    #[error("tensor {} lies in another file: {why}", word(name))]
    External {
        /// Its name.
        name: String,
        /// What is wrong.
        why: String,
    },
    /// An input is no tensor of a format that a network has.
    #[error("input {}: {why}", word(name))]
    Input {
        /// Its name.
        name: String,
        /// What is wrong.
        why: String,
    },
    /// A node asks for what a network cannot have.
    #[error("node {}: {fault}", word(node))]
    Node {
        /// The node.
        node: String,
        /// What is wrong.
        fault: Fault,
    },
    /// A node reads a tensor that nothing computes before it.
    #[error("node {} reads {}, which nothing computes before it", word(node), word(tensor))]
    Dangling {
        /// The node, or output.
        node: String,
        /// The tensor.
        tensor: String,
    },
    /// Operators that the table does not have.
    #[error("{}", Missing(.0))]
    Unsupported(Vec<UnsupportedOperator>),
    /// The network breaks a rule.
    #[error(transparent)]
    Check(#[from] NetworkDiagnostics),
}

/// An operator that a file uses and the table does not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnsupportedOperator {
    /// Its name, with its domain if that is not ONNX's.
    pub operator: String,
    /// The nodes that use it.
    pub nodes: Vec<String>,
}

/// Every unsupported operator, in words.
struct Missing<'a>(&'a [UnsupportedOperator]);

impl fmt::Display for Missing<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 5;
        write!(f, "{} operators of the model are not supported:", self.0.len())?;
        for missing in self.0.iter().take(100) {
            let names: Vec<String> = missing.nodes.iter().take(SHOWN).map(|name| shown(name, 80)).collect();
            write!(f, "\n  {} in {}", shown(&missing.operator, 80), names.join(", "))?;
            if missing.nodes.len() > SHOWN {
                write!(f, " and {} more", missing.nodes.len() - SHOWN)?;
            }
        }
        write!(f, "\n  = help: register them as custom operators, or export the model with other operators")
    }
}

impl Network {
    /// Reads an ONNX model from memory.
    ///
    /// # Errors
    /// If it is no model, uses operators that the table and `operators` do not have (all of them), or breaks a rule (each
    /// of them).
    pub fn from_onnx(bytes: &[u8], operators: &Operators) -> Result<Network, OnnxError> {
        read::network(&decode(bytes)?, operators, None)
    }

    /// The network as an ONNX model: what [`from_onnx`](Network::from_onnx) reads back, at opset 24.
    ///
    /// ```
    /// use postlude::network::{Network, Operators};
    /// use postlude::prelude::*;
    /// let network = Network::build(|g| {
    ///     let x = g.input("x", F32, ("batch", 3));
    ///     g.output("y", (x + g.number(F32, 1.0)).relu());
    /// })?;
    /// let read = Network::from_onnx(&network.to_onnx()?, &Operators::new())?;
    /// assert_eq!(read.inputs().next(), network.inputs().next());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// If a node applies an operator of the program, which ONNX does not have, or an output has the name of an input.
    pub fn to_onnx(&self) -> Result<Vec<u8>, OnnxError> {
        Ok(write::model(self)?.encode_to_vec())
    }

    /// Reads an ONNX model from a file. Weights may lie in further files of the same folder.
    ///
    /// # Errors
    /// As [`from_onnx`](Network::from_onnx), or if a file cannot be read.
    pub fn from_onnx_file(path: impl AsRef<Path>, operators: &Operators) -> Result<Network, OnnxError> {
        let path = path.as_ref();
        let bytes = std::fs::read(path)?;
        read::network(&decode(&bytes)?, operators, Some(path.parent().unwrap_or(Path::new("."))))
    }
}

fn decode(bytes: &[u8]) -> Result<messages::Model, OnnxError> {
    messages::Model::decode(bytes).map_err(|error| OnnxError::Decode(error.to_string()))
}

impl Tensor {
    /// Reads a tensor that ONNX wrote by itself, as the inputs and outputs of its tests are, with its name.
    ///
    /// # Errors
    /// If it is none, or of a format that networks do not have.
    pub fn from_onnx(bytes: &[u8]) -> Result<(String, Tensor), OnnxError> {
        let message = messages::Tensor::decode(bytes).map_err(|error| OnnxError::Decode(error.to_string()))?;
        Ok((message.name.clone().unwrap_or_default(), tensor::read(&message, None)?))
    }
}
