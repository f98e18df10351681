//! The products that begin a kernel: their operands as matrices with strides. Convolutions and pools are in a file of their
//! own.

use super::attention;
use super::kernel::Access;
use super::space::{Space, matrix};
use super::view::{View, collapsed};
use super::windows;
use crate::dtype::DType;
use crate::network::graph::{EdgeId, Node};
use crate::network::network::Network;
use crate::network::operator::{Anchor, Kind};
use crate::problem::{Layout, Operation, Shape};
use std::collections::HashMap;
use std::fmt;

/// An operand with its strides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Matrix {
    pub view: View,
    pub ld: usize,
    pub batch_stride: usize,
}

/// A product, or what else makes an accumulator, as a kernel computes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Product {
    pub operation: Operation,
    pub space: Space,
    pub shape: Shape,
    /// `a`, `b` of a product, and the keys of an attention.
    pub operands: Vec<Matrix>,
    /// What a function of scores reads.
    pub further: Vec<Access>,
}

/// Why no kernel serves a product.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Obstacle {
    /// An input lies in another order than kernels read. A copy in their order has a kernel.
    Layout(usize),
    /// Any other reason.
    Other(String),
}

impl From<String> for Obstacle {
    fn from(why: String) -> Obstacle {
        Obstacle::Other(why)
    }
}

impl From<&str> for Obstacle {
    fn from(why: &str) -> Obstacle {
        Obstacle::Other(why.to_owned())
    }
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Obstacle::Layout(input) => write!(f, "its input {input} lies in an order that kernels do not read"),
            Obstacle::Other(why) => f.write_str(why),
        }
    }
}

/// An input of a node that kernels would read: where it lies, and its format.
pub(super) fn operand(
    network: &Network,
    node: &Node,
    views: &HashMap<EdgeId, View>,
    index: usize,
) -> Result<(View, DType), &'static str> {
    let edge = node.inputs.get(index).copied().flatten().ok_or("it lacks an operand")?;
    let view = views.get(&edge).ok_or("the shape of an operand is not known")?;
    let dtype = network.type_of(edge).format.dtype().ok_or("kernels do not have its format")?;
    Ok((view.clone(), dtype))
}

/// Whether a node begins a kernel with an accumulator.
pub(super) fn begins(network: &Network, node: &Node) -> bool {
    matches!(node.kind(), Kind::Anchor(_)) || windows::pools(network, node)
}

/// What a node that [begins](begins) a kernel computes.
///
/// # Errors
/// If no kernel serves it: why.
pub(super) fn product(network: &Network, node: &Node, views: &HashMap<EdgeId, View>) -> Result<Product, Obstacle> {
    match node.kind() {
        Kind::Anchor(Anchor::Attention) => attention::attention(network, node, views),
        Kind::Anchor(anchor) if anchor.multiplies_matrices() => Ok(matrices(network, node, views)?),
        Kind::Anchor(Anchor::Conv | Anchor::WideConv) => windows::convolution(network, node, views),
        Kind::Anchor(Anchor::ConvGradient(of)) => windows::gradient(network, node, of, views),
        Kind::Anchor(_) => Err("no kernel serves such a product yet".into()),
        _ => windows::pool(network, node, views),
    }
}

/// The product of a `MatMul`, `Gemm` or `WideMatMul`.
///
/// # Errors
/// If its operands are not matrices with strides that a kernel takes: why.
fn matrices(network: &Network, node: &Node, views: &HashMap<EdgeId, View>) -> Result<Product, String> {
    let operand = |index| operand(network, node, views, index);
    let ((mut a, dtype), (mut b, other)) = (operand(0)?, operand(1)?);
    if dtype != other && !dtype.mixes_with(other) || matches!(dtype, DType::Bool) {
        return Err(format!("kernels have no product of {dtype} and {other}"));
    }
    let output = network.type_of(node.outputs[0]).shape().ok_or("its shape is not known")?;
    // Only matrices are transposed on demand.
    let turn = |name: &str, view: &mut View| {
        if node.attributes.flag(name) {
            view.dims.reverse();
        }
    };
    turn("transA", &mut a);
    turn("transB", &mut b);
    if a.dims.len() < 2 || b.dims.len() < 2 {
        return Err("an operand is a vector".to_owned());
    }
    let rank = output.len();
    let stretch = |view: &View| {
        let (batch, inner) = view.dims.split_at(view.dims.len() - 2);
        let outer = View { dims: batch.to_vec(), ..view.clone() };
        outer.stretched(&output[..rank - 2]).map(|outer| (outer.dims, [inner[0], inner[1]]))
    };
    let ((batch_a, [m, k]), (batch_b, [_, n])) =
        (stretch(&a).ok_or("a batch does not fit")?, stretch(&b).ok_or("a batch does not fit")?);
    // Weights that the batch shares: its entries are further rows.
    let rows: Vec<(usize, usize)> = batch_a.iter().copied().chain([m]).collect();
    let shared = batch_b.iter().all(|(extent, stride)| *stride == 0 || *extent == 1) && collapsed(&rows).is_some();
    let (space, batches, row) = if shared {
        (Space::new(&output, 0, rank - 1), [0, 0], collapsed(&rows))
    } else {
        let batches = (collapsed(&batch_a), collapsed(&batch_b));
        let (Some(x), Some(y)) = batches else { return Err("the strides of a batch are more than one".to_owned()) };
        (Space::new(&output, rank - 2, rank - 1), [x, y], collapsed(&[m]))
    };
    let extents = space.extents();
    let strides = [row.unwrap_or(0), collapsed(&[k]).unwrap_or(0)];
    let wrong = "an operand is contiguous along neither of its axes";
    let (order_a, ld_a) = matrix(extents.m, k.0, strides).ok_or(wrong)?;
    let (order_b, ld_b) =
        matrix(k.0, n.0, [collapsed(&[(k.0, b.dims[b.dims.len() - 2].1)]).unwrap_or(0), collapsed(&[n]).unwrap_or(0)])
            .ok_or(wrong)?;
    let operation = Operation::mixed(dtype, other, Layout::of(order_a, order_b));
    let shape = Shape { k: k.0, ..extents };
    let operands =
        vec![Matrix { view: a, ld: ld_a, batch_stride: batches[0] }, Matrix { view: b, ld: ld_b, batch_stride: batches[1] }];
    Ok(Product { operation, space, shape, operands, further: Vec::new() })
}
