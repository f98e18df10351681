//! Attention as a kernel computes it: its queries, keys and values as matrices with strides.

use super::product::{Matrix, Obstacle, Product, operand};
use super::space::Space;
use super::view::{View, collapsed};
use crate::network::graph::{EdgeId, Node};
use crate::network::meaning::attention::measures;
use crate::network::network::Network;
use crate::problem::{Operation, Shape};
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
    let attention = measures(&node.attributes, width).sequences(sequences.max(1));
    let shape = Shape { k: sequences.max(1) * keys, ..space.extents() };
    Ok(Product { operation: Operation::Attention { dtype, attention }, space, shape, operands: operands.into() })
}
