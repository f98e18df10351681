//! Typing rules of the operators that gradients need and ONNX has not.

use super::Site;
use crate::network::fault::Fault;
use crate::network::meaning::convolve;
use crate::network::types::{Dim, Type};

type Typed = Result<Vec<Type>, Fault>;

/// A shape of which the first extent may be a symbol.
fn with_images(dims: &[Dim]) -> Option<(Dim, Vec<usize>)> {
    let (images, rest) = dims.split_first()?;
    let rest: Option<Vec<usize>> = rest.iter().map(Dim::known).collect();
    Some((images.clone(), std::iter::once(images.known().unwrap_or(1)).chain(rest?).collect()))
}

/// `ConvImageGradient`: the images of a convolution, in the format of the gradient of its result.
pub(super) fn images(site: &Site<'_>) -> Typed {
    let (dy, w) = (site.input(0)?, site.input(1)?);
    same_format(site, dy, w)?;
    let (Some((images, shape)), Some(w)) = (dy.dims.as_ref().and_then(|dims| with_images(dims)), w.shape()) else {
        return Ok(vec![Type::unshaped(dy.format)]);
    };
    let x = convolve::shape_of_images(site.attributes, &shape, &w)?;
    check(site, &shape, &x, &w)?;
    let dims = std::iter::once(images).chain(x[1..].iter().copied().map(Dim::Known)).collect();
    Ok(vec![Type { format: dy.format, dims: Some(dims) }])
}

/// `ConvFilterGradient`: the filters of a convolution, in the format of the gradient of its result.
pub(super) fn filters(site: &Site<'_>) -> Typed {
    let (dy, x) = (site.input(0)?, site.input(1)?);
    same_format(site, dy, x)?;
    let known = |of: &Type| of.dims.as_ref().and_then(|dims| with_images(dims));
    let (Some((_, dy_shape)), Some((_, x_shape))) = (known(dy), known(x)) else { return Ok(vec![Type::unshaped(dy.format)]) };
    let w = convolve::shape_of_filters(site.attributes, &dy_shape, &x_shape)?;
    check(site, &dy_shape, &x_shape, &w)?;
    Ok(vec![Type::new(dy.format, w.as_slice())])
}

fn same_format(site: &Site<'_>, x: &Type, y: &Type) -> Result<(), Fault> {
    let fault = || Fault::Format(format!("{} takes operands of one format, not {x} and {y}", site.name));
    if x.format == y.format { Ok(()) } else { Err(fault()) }
}

fn check(site: &Site<'_>, dy: &[usize], x: &[usize], w: &[usize]) -> Result<(), Fault> {
    let shape = convolve::Extents::new(site.attributes, x, w)?.shape();
    // A symbol may be any number of images.
    let fits = shape.len() == dy.len() && shape[1..] == dy[1..];
    let fault = || Fault::Shape(format!("{dy:?} is not the gradient of a convolution of {x:?} with filters {w:?}"));
    if fits { Ok(()) } else { Err(fault()) }
}
