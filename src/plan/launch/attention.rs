//! Attention as kernels are launched: the numbers of sequences, and the rows of their tiles.

use crate::problem::{Attention, Operation, Shape};
use serde::Serialize;

/// A number of an attention that kernels are launched with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AttentionField {
    /// Queries of a sequence.
    Queries,
    /// The same, filled up to whole tiles.
    TileQueries,
    /// Keys of a sequence.
    Keys,
    /// Elements of a query.
    Width,
    /// Whether a query sees only the keys up to its own position.
    Causal,
}

impl AttentionField {
    /// Every one.
    pub const ALL: [AttentionField; 5] = [
        AttentionField::Queries,
        AttentionField::TileQueries,
        AttentionField::Keys,
        AttentionField::Width,
        AttentionField::Causal,
    ];

    /// Its name in the parameter block.
    pub const fn name(self) -> &'static str {
        match self {
            AttentionField::Queries => "queries",
            AttentionField::TileQueries => "tile_queries",
            AttentionField::Keys => "keys",
            AttentionField::Width => "width",
            AttentionField::Causal => "causal",
        }
    }

    /// Its value for a launch on a shape with a tile of so many rows.
    pub fn value(self, of: &Attention, shape: Shape, rows: usize) -> usize {
        let [queries, keys] = of.lengths(shape);
        match self {
            AttentionField::Queries => queries,
            AttentionField::TileQueries => queries.next_multiple_of(rows).max(rows),
            AttentionField::Keys => keys,
            AttentionField::Width => of.width(),
            AttentionField::Causal => usize::from(of.is_causal()),
        }
    }
}

/// The rows of a kernel's tiles in all sequences.
pub(in crate::plan) fn seen(operation: Operation, shape: Shape, rows: usize) -> Option<Shape> {
    let attention = operation.attention()?;
    Some(Shape { m: attention.padded_rows(shape, rows), ..shape })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_those_of_a_sequence() {
        let values = |of: Attention, shape: Shape, rows: usize| AttentionField::ALL.map(|field| field.value(&of, shape, rows));
        let (one, three) = (Attention::new(40), Attention::new(16).causal().sequences(3));
        assert_eq!(values(one, Shape::new(100, 8, 70), 32), [100, 128, 70, 40, 0]);
        assert_eq!(values(three, Shape::new(3 * 40, 8, 3 * 33), 64), [40, 64, 33, 16, 1]);
        assert_eq!(values(three, Shape::new(3 * 64, 8, 3 * 64), 64), [64, 64, 64, 16, 1], "whole tiles");
        assert_eq!(values(three, Shape::new(0, 8, 3), 64)[..2], [0, 64], "tiles divide, so they are not empty");
    }
}
