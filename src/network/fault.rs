//! What a row of the table of operators finds wrong with a node.

use super::format::Format;

/// What is wrong with a node, or with the tensors it is given.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// Another number of inputs or outputs than the operator takes.
    #[error("{name} takes {takes} {what}, not {given}")]
    Arity {
        /// The operator.
        name: String,
        /// How many it takes, in words.
        takes: String,
        /// `inputs` or `outputs`.
        what: &'static str,
        /// How many the node has.
        given: usize,
    },
    /// An attribute that the operator does not have, or of another type or value than it takes.
    #[error("attribute `{name}` {why}")]
    Attribute {
        /// The attribute.
        name: String,
        /// What is wrong with it.
        why: String,
    },
    /// The format of an input.
    #[error("{0}")]
    Format(String),
    /// The shape of an input.
    #[error("{0}")]
    Shape(String),
    /// An index or a number in a tensor that has no meaning.
    #[error("{0}")]
    Value(String),
    /// A case of the operator that has a meaning in ONNX and none here.
    #[error("{0} is not supported yet")]
    Unsupported(String),
    /// A tensor of more bytes than a network may have.
    #[error("a tensor of shape {shape:?} is larger than the limit of 16 GiB")]
    TooLarge {
        /// Its shape.
        shape: Vec<usize>,
    },
}

impl Fault {
    /// The rule's code, as listed in [`network`](super).
    pub fn code(&self) -> &'static str {
        match self {
            Fault::Arity { .. } => "N0202",
            Fault::Attribute { .. } => "N0203",
            Fault::Format(_) => "N0204",
            Fault::Shape(_) => "N0205",
            Fault::Value(_) => "N0206",
            Fault::Unsupported(_) => "N0207",
            Fault::TooLarge { .. } => "N0208",
        }
    }

    /// What to do about it.
    pub fn cure(&self) -> &'static str {
        match self {
            Fault::Arity { .. } => "give the inputs and outputs that the operator's row names; an optional one may be left out",
            Fault::Attribute { .. } => "use the names and types of the operator's row",
            Fault::Format(_) => "insert a Cast, or use a format that the operator takes",
            Fault::Shape(_) => "make the shapes agree: NumPy's rules stretch only extents of 1",
            Fault::Value(_) => "correct the number; it lies outside what the operator defines",
            Fault::Unsupported(_) => "write it with other operators, or register a custom operator",
            Fault::TooLarge { .. } => "check the shape; it may have been read from a wrong place",
        }
    }

    pub(crate) fn attribute(name: &str, why: impl Into<String>) -> Fault {
        Fault::Attribute { name: name.to_owned(), why: why.into() }
    }

    pub(crate) fn format(operator: &str, format: Format) -> Fault {
        Fault::Format(format!("{operator} has no meaning on {format}"))
    }
}
