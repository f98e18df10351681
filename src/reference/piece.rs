//! Pieces of the output, and where the values in them come from.

use crate::ir::{NodeId, Side};
use std::ops::Range;

/// A piece of one batch entry of the output.
pub(super) struct EvalTile {
    pub batch: usize,
    /// The sequence, if it is a piece of the scores of an attention.
    pub sequence: Option<usize>,
    pub rows: Range<usize>,
    pub columns: Range<usize>,
}

/// The source of an output's values.
#[derive(Clone, Copy)]
pub(super) enum Source {
    /// A node.
    Value(NodeId),
    /// The product of two nodes, not rounded.
    Product([NodeId; 2]),
    /// The magnitude of the product.
    Magnitude,
    /// The elements of an operand of the product.
    Element(Side),
}

impl Source {
    /// The nodes that it needs.
    pub fn values(self) -> impl Iterator<Item = NodeId> {
        let [a, b] = match self {
            Source::Value(id) => [Some(id), None],
            Source::Product(factors) => factors.map(Some),
            Source::Magnitude | Source::Element(_) => [None; 2],
        };
        a.into_iter().chain(b)
    }
}
