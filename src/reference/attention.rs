//! Attention: the weights of keys, which take the place of a product's left operand.

use super::Precision;
use super::eval::{EvalProgram, Results};
use super::memory::{Arguments, OperandView, product_operand};
use super::piece::EvalTile;
use crate::ir::{NodeId, Order};
use crate::problem::{Attention, Operation, Shape};
use std::ops::Range;

/// The scores of an attention: its keys, and how many queries and keys a sequence has.
pub(super) struct AttentionScores {
    attention: Attention,
    keys: OperandView,
    lengths: [usize; 2],
    precision: Precision,
    /// What a score becomes, and the node that is it.
    function: Option<(EvalProgram, NodeId)>,
}

/// Elements of a line of queries or keys.
fn line(arguments: &Arguments, from: &OperandView, row: usize, batch: usize, out: &mut [f64]) {
    arguments.with_bytes(from, |bytes| from.dtype.read_wide(bytes, from.strides.index(row, 0, batch), out));
}

impl AttentionScores {
    /// Those of an operation, if it is an attention.
    pub fn of(operation: Operation, shape: Shape, arguments: &Arguments, precision: Precision) -> Option<AttentionScores> {
        let attention = operation.attention()?;
        let keys = arguments.tensor(Attention::KEYS, product_operand(operation.dtype(), Order::RowMajor));
        let function = attention.function().map(|scores| {
            let (inlined, result) = (scores.inlined(), scores.result());
            (EvalProgram::new(operation, inlined, arguments, precision, [result], &Results::new()), result)
        });
        Some(AttentionScores { attention, keys, lengths: attention.lengths(shape), precision, function })
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
        let (of_sequence, sequence) = (self.lengths[0], rows.start / self.lengths[0].max(1));
        let positions = rows.start - sequence * of_sequence..rows.end - sequence * of_sequence;
        let tile = EvalTile { batch, sequence: Some(sequence), rows: positions.clone(), columns: 0..keys.len() };
        let mut function = self.function.as_ref().map(|(program, result)| (program, *result, program.frame()));
        if let Some((program, _, frame)) = &mut function {
            program.begin(frame, arguments, &tile);
        }
        for (row, position) in rows.zip(positions) {
            line(arguments, queries, row, batch, &mut query);
            let seen = if self.attention.is_causal() { keys.len().min(position + 1) } else { keys.len() };
            let score = |key: &[f64]| key.iter().zip(&query).map(|(x, y)| x * y).sum::<f64>() * scale;
            let mut scores: Vec<f64> = lines.chunks_exact(width).map(score).collect();
            if let Some((program, result, frame)) = &mut function {
                let accumulators = |out: &mut [f64]| {
                    out.copy_from_slice(&scores);
                    if self.precision == Precision::F32 {
                        out.iter_mut().for_each(|score| *score = f64::from(*score as f32));
                    }
                };
                program.row(frame, arguments, &tile, position, &accumulators);
                let values = frame.value(*result);
                scores = (0..keys.len()).map(|key| values[key.min(values.len() - 1)]).collect();
            }
            scores.truncate(seen);
            let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            // All keys are hidden, or there is none.
            let hidden = largest == f64::NEG_INFINITY && scores.iter().all(|score| !score.is_nan());
            let power = |score: &f64| if hidden { 0.0 } else { (score - largest).exp() };
            let powers: Vec<f64> = scores.iter().map(power).collect();
            let sum: f64 = if hidden { 1.0 } else { powers.iter().sum() };
            let weight = |key: usize| powers.get(key - keys.start).map_or(0.0, |power| power / sum);
            out.extend(wanted.clone().map(weight));
        }
        out
    }
}
