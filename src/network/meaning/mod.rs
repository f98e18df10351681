//! What operators compute on the CPU, where that does not follow from an expression: plain loops over whole tensors,
//! and products by the [reference](crate::reference).
//!
//! A network is defined here, as an epilogue is by the reference. Floating-point sums are taken in `f64`, but for
//! products, which accumulate as the reference's do. Every result is rounded once to its format.

pub(crate) mod attention;
pub(crate) mod convert;
pub(crate) mod convolve;
pub(crate) mod index;
pub(crate) mod layout;
pub(crate) mod loss;
pub(crate) mod normal;
pub(crate) mod pool;
pub(crate) mod product;
pub(crate) mod reduce;
pub(crate) mod window;

use super::fault::Fault;
use super::operator::pointwise::wrapped_axis;

/// An axis of a tensor, counted from the end if it is negative.
///
/// # Errors
/// If the tensor has no such axis.
pub(crate) fn axis(axis: i64, rank: usize) -> Result<usize, Fault> {
    let wrapped = wrapped_axis(axis, rank);
    if wrapped < rank { Ok(wrapped) } else { Err(Fault::Shape(format!("a tensor of {rank} axes has no axis {axis}"))) }
}

/// Axes of a tensor, in order and without repetition.
///
/// # Errors
/// If the tensor lacks one.
pub(crate) fn axes(list: &[i64], rank: usize) -> Result<Vec<usize>, Fault> {
    let mut out: Vec<usize> = list.iter().map(|a| axis(*a, rank)).collect::<Result<_, _>>()?;
    out.sort_unstable();
    out.dedup();
    Ok(out)
}

/// A shape in three parts: what is before some axis, its extent, and what is behind.
pub(crate) fn around(shape: &[usize], axis: usize) -> [usize; 3] {
    [shape[..axis].iter().product(), shape[axis], shape[axis + 1..].iter().product()]
}
