//! Attention as a kernel computes it: its queries, keys and values as matrices with strides.

use super::kernel::Access;
use super::product::{Matrix, Obstacle, Product, operand};
use super::space::{Space, operand_of};
use super::view::{View, collapsed};
use crate::build::{Builder, Expr};
use crate::dtype::DType;
use crate::ir::Operand as IrOperand;
use crate::ir::axes::{Axes, L, S};
use crate::network::graph::{Applied, EdgeId, Node};
use crate::network::meaning::attention::measures;
use crate::network::network::Network;
use crate::network::operator::Scored;
use crate::problem::{Operation, Scores, Shape};
use std::collections::HashMap;

/// Elements of 16 bits that a kernel moves at a time, and that lines therefore begin at multiples of.
const RUN: usize = 8;

/// The leading dimension and the batch stride of an operand whose first `outer` axes are further lines, and whose other axes
/// before the lines are a batch.
fn matrix(view: &View, outer: usize) -> Option<Matrix> {
    let rank = view.dims.len();
    let (lines, batch) = (&view.dims[..outer], &view.dims[outer..rank - 2]);
    let lines: Vec<(usize, usize)> = lines.iter().copied().chain([view.dims[rank - 2]]).collect();
    let (ld, batch_stride) = (collapsed(&lines)?, collapsed(batch)?);
    let (extent, stride) = view.dims[rank - 1];
    let ld = if lines.iter().map(|(extent, _)| extent).product::<usize>() <= 1 { extent.next_multiple_of(RUN) } else { ld };
    let aligned = [view.offset, ld, batch_stride].iter().all(|x| x % RUN == 0);
    (aligned && ld >= extent && (stride == 1 || extent <= 1)).then(|| Matrix { view: view.clone(), ld, batch_stride })
}

/// The attention of a node.
///
/// # Errors
/// If its operands are not matrices with strides that a kernel takes: why.
pub(super) fn attention(network: &Network, node: &Node, views: &HashMap<EdgeId, View>) -> Result<Product, Obstacle> {
    let ((q, dtype), (k, _), (v, _)) =
        (operand(network, node, views, 0)?, operand(network, node, views, 1)?, operand(network, node, views, 2)?);
    let output = network.type_of(node.outputs[0]).shape().ok_or("its shape is not known")?;
    let rank = output.len();
    // Heads beside each other are a batch, whose sequences follow each other line by line; otherwise everything is a batch.
    let inner = rank.saturating_sub(3);
    let ways = if q.is_contiguous() { [0, inner] } else { [inner, 0] };
    let found = ways.into_iter().find_map(|outer| Some((outer, [matrix(&q, outer)?, matrix(&v, outer)?, matrix(&k, outer)?])));
    let (outer, operands) = found.ok_or("its queries, keys or values do not lie in lines that begin at multiples of 16 bytes")?;
    let sequences: usize = output[..outer].iter().product();
    let space = match outer {
        0 => Space::new(&output, rank - 2, rank - 1),
        _ => Space::ordered(
            &output,
            (outer..rank - 2).chain(0..outer).chain([rank - 2, rank - 1]).collect(),
            rank - 2 - outer,
            rank - 1,
        ),
    };
    let (width, keys) = (q.dims[rank - 1].0, k.dims[rank - 2].0);
    let mut attention = measures(&node.attributes, width).sequences(sequences.max(1));
    let mut further = Vec::new();
    if let Applied::Scored(scored) = &node.operator {
        let shape = [&output[..rank - 1], &[keys]].concat();
        let (function, accesses) = function(network, node, views, scored, &ScoreSpace { shape, outer })?;
        (attention, further) = (attention.scores(&function), accesses);
    }
    let shape = Shape { k: sequences.max(1) * keys, ..space.extents() };
    Ok(Product { operation: Operation::Attention { dtype, attention }, space, shape, operands: operands.into(), further })
}

/// The scores of an attention: their shape, of which the first axes are sequences, the last two queries and keys, and those
/// between heads.
struct ScoreSpace {
    shape: Vec<usize>,
    outer: usize,
}

/// How a function of scores reads a tensor: as an operand with a stride of entries, or at an index of a table.
enum Read {
    Operand { operand: IrOperand, ld: Option<usize>, batch_stride: Option<usize> },
    Table { view: View, of_sequence: usize },
}

impl ScoreSpace {
    /// How a tensor, stretched to the scores, is read. `None` if its sequences have several strides.
    fn read(&self, view: &View, dtype: DType) -> Option<Read> {
        let (rank, dims) = (self.shape.len(), &view.dims);
        let sequence = collapsed(&dims[..self.outer])?;
        let heads: usize = self.shape[self.outer..rank - 2].iter().product();
        let extents = [self.shape[rank - 2], self.shape[rank - 1]];
        let strides = [dims[rank - 2], dims[rank - 1]].map(|dim| collapsed(&[dim]).unwrap_or(0));
        let operand = operand_of(extents[0], extents[1], strides);
        // Entries lie at one distance from each other.
        let entries = match (sequence, collapsed(&dims[self.outer..rank - 2])) {
            (0, Some(0)) => Some((Axes::NONE, None)),
            (0, Some(head)) => Some((L, Some(head))),
            (sequence, Some(0)) => Some((S, Some(sequence))),
            (sequence, Some(head)) if sequence == heads * head => Some((L.union(S), Some(head))),
            _ => None,
        };
        if let (Some((axes, order, ld)), Some((along, batch_stride))) = (operand, entries) {
            return Some(Read::Operand { operand: IrOperand { dtype, axes: axes.union(along), order }, ld, batch_stride });
        }
        let inner = View { dims: dims[self.outer..].to_vec(), ..view.clone() };
        Some(Read::Table { view: inner, of_sequence: sequence })
    }

    /// A place in the memory of a tensor, from the coordinates of the score.
    fn index<'g>(&self, s: &'g Builder, view: &View, of_sequence: usize) -> Expr<'g> {
        let inner = &self.shape[self.outer..];
        let index = Space::new(inner, inner.len() - 2, inner.len() - 1).index(s, view);
        if of_sequence == 0 { index } else { index + s.sequence() * of_sequence as i32 }
    }
}

/// The function of scores of a node, and what it reads.
fn function(
    network: &Network,
    node: &Node,
    views: &HashMap<EdgeId, View>,
    scored: &Scored,
    space: &ScoreSpace,
) -> Result<(Scores, Vec<Access>), Obstacle> {
    let (mut reads, mut accesses) = (Vec::new(), Vec::new());
    for index in 0..scored.inputs {
        let (view, dtype) = operand(network, node, views, 3 + index)?;
        let view = view.stretched(&space.shape).ok_or("a mask does not fit the scores")?;
        let read = space.read(&view, dtype);
        let read = read.ok_or("sequences of a mask do not lie at one distance from each other")?;
        let (offset, ld, batch_stride) = match &read {
            Read::Operand { ld, batch_stride, .. } => (view.offset, *ld, *batch_stride),
            Read::Table { .. } => (0, None, None),
        };
        let name = format!("s{index}");
        accesses.push(Access { name, edge: view.root, dtype, offset, ld, batch_stride, written: false });
        reads.push((read, dtype));
    }
    let function = scored.function(|s, index| {
        let name = format!("s{index}");
        Some(match &reads[index] {
            (Read::Operand { operand, .. }, _) => s.load(&name, *operand),
            (Read::Table { view, of_sequence }, dtype) => s.gather(&name, *dtype, space.index(s, view, *of_sequence)),
        })
    });
    Ok((function.map_err(|fault| fault.to_string())?, accesses))
}
