//! Convolutions and pools as kernels compute them: images with their channels side by side, whatever order the network
//! names their axes in.

use super::product::{Matrix, Obstacle, Product, operand};
use super::space::{Space, matrix};
use super::view::{View, channels_last, collapsed};
use crate::dtype::DType;
use crate::ir::{Monoid, Order};
use crate::network::graph::{EdgeId, Node};
use crate::network::meaning::{convolve::Extents, pool::window, window::Window};
use crate::network::network::Network;
use crate::network::operator::{Kind, Pools, Reduction};
use crate::problem::{ConvShape, Convolution, GradientOf, Operation, PoolKind, Pooling};
use std::collections::HashMap;

/// The axes of images without those of batch and channels: one or two of them, as height and width.
fn spatial<T: Copy>(of: &[T], one: T) -> Result<[T; 2], Obstacle> {
    match of {
        [width] => Ok([one, *width]),
        [height, width] => Ok([*height, *width]),
        _ => Err("kernels have convolutions and pools over one axis or two".into()),
    }
}

/// Images as a matrix of pixels and channels.
fn images(view: View, input: usize) -> Result<Matrix, Obstacle> {
    let order = channels_last(view.dims.len());
    let dims: Vec<(usize, usize)> = order.iter().map(|axis| view.dims[*axis]).collect();
    let (channels, pixels) = dims.split_last().ok_or(Obstacle::Layout(input))?;
    let count = pixels.iter().map(|(extent, _)| extent).product();
    let strides = collapsed(pixels).zip(collapsed(&[*channels])).ok_or(Obstacle::Layout(input))?;
    match matrix(count, channels.0, strides.into()) {
        Some((Order::RowMajor, ld)) => Ok(Matrix { view, ld, batch_stride: 0 }),
        _ => Err(Obstacle::Layout(input)),
    }
}

/// Filters as a matrix whose rows are filters: taps, and in each its channels.
fn filters(view: View, input: usize) -> Result<Matrix, Obstacle> {
    let order = channels_last(view.dims.len());
    let dims: Vec<(usize, usize)> = order.iter().map(|axis| view.dims[*axis]).collect();
    let terms = dims[1..].iter().map(|(extent, _)| extent).product();
    let strides = collapsed(&dims[..1]).zip(collapsed(&dims[1..])).ok_or(Obstacle::Layout(input))?;
    match matrix(dims[0].0, terms, strides.into()) {
        Some((Order::RowMajor, ld)) => Ok(Matrix { view, ld, batch_stride: 0 }),
        _ => Err(Obstacle::Layout(input)),
    }
}

/// What images, filters and windows measure.
fn measures(shape: &[usize], filters: usize, groups: usize, window: &Window) -> Result<ConvShape, Obstacle> {
    let [height, width] = spatial(&shape[2..], 1)?;
    let [above, left] = spatial(&window.pads, [0; 2])?;
    Ok(ConvShape {
        window: spatial(&window.kernel, 1)?,
        stride: spatial(&window.strides, 1)?,
        padding: [above[0], above[1], left[0], left[1]],
        dilation: spatial(&window.dilations, 1)?,
        ..ConvShape::new(shape[0], [height, width, shape[1]], [filters, 1, 1]).groups(groups)
    })
}

/// The kernel's space over images: pixels are rows, channels are columns.
fn space(shape: &[usize]) -> Space {
    Space::ordered(shape, channels_last(shape.len()), 0, shape.len() - 1)
}

/// A `Conv` or `WideConv`.
///
/// # Errors
/// If no kernel serves it: why.
pub(super) fn convolution(network: &Network, node: &Node, views: &HashMap<EdgeId, View>) -> Result<Product, Obstacle> {
    let ((x, dtype), (w, other)) = (operand(network, node, views, 0)?, operand(network, node, views, 1)?);
    if dtype != other || matches!(dtype, DType::Bool) {
        return Err(format!("kernels have no convolution of {dtype} and {other}").into());
    }
    let e = Extents::new(&node.attributes, &x.shape(), &w.shape()).map_err(|fault| fault.to_string())?;
    let measures = measures(&x.shape(), e.groups * e.filters, e.groups, &e.window)?;
    let convolution = Convolution::new(measures).map_err(|fault| fault.to_string())?;
    let operands = vec![images(x, 0)?, filters(w, 1)?];
    let (operation, shape) = (Operation::Convolution { dtype, convolution }, convolution.shape());
    Ok(Product { operation, space: space(&e.shape()), shape, operands, further: Vec::new() })
}

/// A gradient of a `Conv`: of its images, or of its filters.
///
/// # Errors
/// If no kernel serves it: why.
pub(super) fn gradient(
    network: &Network,
    node: &Node,
    of: GradientOf,
    views: &HashMap<EdgeId, View>,
) -> Result<Product, Obstacle> {
    let ((dy, dtype), (b, other)) = (operand(network, node, views, 0)?, operand(network, node, views, 1)?);
    if dtype != other || matches!(dtype, DType::Bool) {
        return Err(format!("kernels have no convolution of {dtype} and {other}").into());
    }
    let found = network.type_of(node.outputs[0]).shape().ok_or("its shape is not known")?;
    let (x, w) = match of {
        GradientOf::Images => (found.clone(), b.shape()),
        GradientOf::Filters => (b.shape(), found.clone()),
    };
    let e = Extents::new(&node.attributes, &x, &w).map_err(|fault| fault.to_string())?;
    if of == GradientOf::Filters && e.groups > 1 {
        return Err("kernels write the gradient of filters in groups as a batch, which is not a tensor of filters".into());
    }
    let convolution = Convolution::new(measures(&x, e.groups * e.filters, e.groups, &e.window)?);
    let convolution = convolution.map_err(|fault| fault.to_string())?;
    let operation = Operation::ConvolutionGradient { dtype, convolution, of };
    let shape = operation.patches().map(|patches| patches.shape()).ok_or("it reads no images")?;
    let (space, b) = match of {
        GradientOf::Images => (space(&found), filters(b, 1)?),
        // Rows are filters, columns are their elements.
        GradientOf::Filters => (Space::ordered(&found, channels_last(found.len()), 0, 1), images(b, 1)?),
    };
    Ok(Product { operation, space, shape, operands: vec![images(dy, 0)?, b], further: Vec::new() })
}

/// The axes that a reduction goes over, if they are all of an image's and the channels' are not among them.
fn goes_over_images(network: &Network, node: &Node) -> bool {
    let rank = node.inputs[0].and_then(|edge| network.type_of(edge).shape()).map_or(0, |shape| shape.len());
    let axes = node.inputs.get(1).copied().flatten().and_then(|edge| network.value_of(edge));
    let axes = axes.and_then(|axes| crate::network::meaning::axes(&axes.sizes(), rank).ok());
    rank > 2 && axes.is_some_and(|axes| axes.into_iter().eq(2..rank))
}

/// Whether images lie with their channels side by side.
pub(super) fn lie_last(view: &View) -> bool {
    view.dims.len() > 2 && images(view.clone(), 0).is_ok()
}

/// Whether a node is a pool that kernels have.
pub(super) fn pools(network: &Network, node: &Node) -> bool {
    match node.kind() {
        Kind::Pooling(window) => window.of != Reduction::Other,
        Kind::Reduction(of) if [Monoid::Mean, Monoid::Max].map(Reduction::Of).contains(&of) => goes_over_images(network, node),
        _ => false,
    }
}

/// A pool.
///
/// # Errors
/// If no kernel serves it: why.
pub(super) fn pool(network: &Network, node: &Node, views: &HashMap<EdgeId, View>) -> Result<Product, Obstacle> {
    let (x, dtype) = operand(network, node, views, 0)?;
    if !matches!(dtype, DType::F32 | DType::F16 | DType::BF16) {
        return Err(format!("kernels have no pools of {dtype}").into());
    }
    if node.outputs.len() > 1 {
        return Err("kernels do not say where the largest elements were".into());
    }
    let shape = x.shape();
    let Pools { of, whole } = match node.kind() {
        Kind::Pooling(window) => window,
        Kind::Reduction(of) => Pools { of, whole: true },
        _ => return Err("it is not a pool".into()),
    };
    let largest = of == Reduction::Of(Monoid::Max);
    let (windows, kind) = if !whole {
        let mut window = window(&node.attributes, &shape).map_err(|fault| fault.to_string())?;
        let counts = !largest && node.attributes.flag("count_include_pad");
        for axis in 0..window.out.len() {
            // The last window may reach behind the padding, where nothing counts.
            let reach = (window.out[axis] - 1) * window.strides[axis] + (window.kernel[axis] - 1) * window.dilations[axis] + 1;
            let behind = reach.saturating_sub(shape[2 + axis] + window.pads[axis][0]);
            if counts && behind > window.pads[axis][1] {
                return Err("kernels have no means of windows that reach behind the padding".into());
            }
            window.pads[axis][1] = window.pads[axis][1].max(behind);
        }
        let mean = if counts { PoolKind::AverageOfTaps } else { PoolKind::Average };
        (measures(&shape, shape[1], 1, &window)?, if largest { PoolKind::Max } else { mean })
    } else {
        let [height, width] = spatial(&shape[2..], 1)?;
        let windows = ConvShape::windows(shape[0], [height, width, shape[1]], [height, width]);
        (windows, if largest { PoolKind::Max } else { PoolKind::Average })
    };
    let pooling = Pooling::new(kind, windows).map_err(|fault| fault.to_string())?;
    let operands = vec![images(x, 0)?];
    let [p, q] = pooling.windows().output();
    let pixels = if shape.len() == 3 { vec![q] } else { vec![p, q] };
    let pooled: Vec<usize> = shape[..2].iter().copied().chain(pixels).collect();
    // A reduction may drop the axes that it went over.
    let kept = network.type_of(node.outputs[0]).shape().is_some_and(|shape| shape == pooled);
    let space = if kept { space(&pooled) } else { Space::new(&pooled[..2], 0, 1) };
    Ok(Product { operation: Operation::Pool { dtype, pooling }, space, shape: pooling.shape(), operands, further: Vec::new() })
}
