//! Reasons why there is no plan.

use crate::args::{ArgumentErrors, Misfit};
use crate::plan::{Choice, PARAMETER_LIMIT};
use crate::problem::Shape;
use crate::target::Target;

/// Why an operation cannot be planned.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// The epilogue does not fit the operation.
    #[error(transparent)]
    Misfit(#[from] Misfit),
    /// The problem states a layout of an argument that no launch could take.
    #[error(transparent)]
    Arguments(#[from] ArgumentErrors),
    /// Too many arguments for any candidate's parameter block.
    #[error(
        "the epilogue's arguments take {size} bytes of kernel parameters; {LIMIT} are available: use fewer arguments",
        LIMIT = PARAMETER_LIMIT
    )]
    Parameters {
        /// Bytes needed.
        size: usize,
    },
    /// K cannot be split as the caller asked.
    #[error(
        "K cannot be split in {parts} parts: {why}; `Gemm::split_k(1)` leaves it whole, and `explain()` says which splits \
         would pay"
    )]
    Split {
        /// The number of parts that the caller asked for.
        parts: usize,
        /// The reason against it.
        why: String,
    },
    /// A reduction inside the graph that no kernel computes.
    #[error(
        "no kernel reduces inside the graph as this epilogue asks: {why}; store the result with `Builder::reduce`, and load \
         it in a second epilogue"
    )]
    Reduction {
        /// The reason against it.
        why: String,
    },
    /// A device without multiprocessors.
    #[error(
        "a device of {0} with 0 multiprocessors runs nothing: give the count of the device that you plan for, as in \
         `Device::multiprocessors`"
    )]
    NoMultiprocessors(Target),
    /// An extent that kernels cannot count.
    #[error("{0} is too large: {limit}", limit = Shape::LIMIT)]
    TooLarge(Shape),
    /// No configuration fits.
    #[error("no kernel can run this problem:\n{0}")]
    NoTile(Box<Choice>),
}
