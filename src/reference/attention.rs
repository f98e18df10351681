//! Attention: the weights of keys, which take the place of a product's left operand.

use super::memory::{Arguments, OperandView, product_operand};
use crate::ir::Order;
use crate::problem::{Attention, Operation, Shape};
use std::ops::Range;

/// The scores of an attention: its keys, and how many queries and keys a sequence has.
pub(super) struct Scores {
    attention: Attention,
    keys: OperandView,
    lengths: [usize; 2],
}

/// Elements of a line of queries or keys.
fn line(arguments: &Arguments, from: &OperandView, row: usize, batch: usize, out: &mut [f64]) {
    arguments.with_bytes(from, |bytes| from.dtype.read_wide(bytes, from.strides.index(row, 0, batch), out));
}

impl Scores {
    /// Those of an operation, if it is an attention.
    pub fn of(operation: Operation, shape: Shape, arguments: &Arguments) -> Option<Scores> {
        let attention = operation.attention()?;
        let keys = arguments.tensor(Attention::KEYS, product_operand(operation.dtype(), Order::RowMajor));
        Some(Scores { attention, keys, lengths: attention.lengths(shape) })
    }

    /// Rows in runs of one sequence, each with the keys of the sequence.
    pub fn sequences(&self, rows: Range<usize>) -> Vec<(Range<usize>, Range<usize>)> {
        let [queries, keys] = self.lengths;
        let numbers = if rows.is_empty() { 0..0 } else { rows.start / queries..(rows.end - 1) / queries + 1 };
        let run = |number: usize| {
            let own = rows.start.max(number * queries)..rows.end.min((number + 1) * queries);
            (own, number * keys..(number + 1) * keys)
        };
        numbers.map(run).collect()
    }

    /// The weights of some keys for rows of one sequence, a row after the other: the softmax over all keys that a query sees.
    pub fn weights(
        &self,
        arguments: &Arguments,
        queries: &OperandView,
        batch: usize,
        rows: Range<usize>,
        keys: Range<usize>,
        wanted: Range<usize>,
    ) -> Vec<f64> {
        let (width, scale) = (self.attention.width(), f64::from(self.attention.scale()));
        let mut lines = vec![0.0; keys.len() * width];
        lines.chunks_exact_mut(width).zip(keys.clone()).for_each(|(out, key)| line(arguments, &self.keys, key, batch, out));
        let (mut query, mut out) = (vec![0.0; width], Vec::with_capacity(rows.len() * wanted.len()));
        for row in rows {
            line(arguments, queries, row, batch, &mut query);
            let position = row % self.lengths[0];
            let seen = if self.attention.is_causal() { keys.len().min(position + 1) } else { keys.len() };
            let score = |key: &[f64]| key.iter().zip(&query).map(|(x, y)| x * y).sum::<f64>() * scale;
            let scores: Vec<f64> = lines.chunks_exact(width).take(seen).map(score).collect();
            let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let powers: Vec<f64> = scores.iter().map(|score| (score - largest).exp()).collect();
            let sum: f64 = powers.iter().sum();
            let weight = |key: usize| powers.get(key - keys.start).map_or(0.0, |power| power / sum);
            out.extend(wanted.clone().map(weight));
        }
        out
    }
}
