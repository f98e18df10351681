//! Why there is no plan.

use crate::args::{ArgumentErrors, Misfit};
use crate::plan::{Choice, PARAMETER_LIMIT};
use crate::problem::Shape;
use crate::target::Target;

/// Why there is no plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// The epilogue does not fit the operation.
    #[error(transparent)]
    Misfit(#[from] Misfit),
    /// The problem says of an argument what no launch could take.
    #[error(transparent)]
    Arguments(#[from] ArgumentErrors),
    /// Too many arguments for any candidate's parameter block.
    #[error("the epilogue's arguments take {size} bytes of kernel parameters; {LIMIT} are available: use fewer arguments", LIMIT = PARAMETER_LIMIT)]
    Parameters {
        /// Bytes needed.
        size: usize,
    },
    /// K cannot be split as was asked for.
    #[error(
        "K cannot be split in {parts} parts: {why}; `Gemm::split_k(1)` leaves it whole, and `explain()` says what parts would pay"
    )]
    Split {
        /// How many were asked for.
        parts: usize,
        /// What stands against it.
        why: String,
    },
    /// A reduction inside the graph that no kernel takes.
    #[error(
        "no kernel reduces inside the graph as this epilogue asks: {why}; store the result with `Builder::reduce`, and load \
         it in a second epilogue"
    )]
    Reduction {
        /// What stands against it.
        why: String,
    },
    /// A device without multiprocessors.
    #[error(
        "a device of {0} with 0 multiprocessors runs nothing: give the count of the one that is planned for, as `Device::multiprocessors` has it"
    )]
    NoMultiprocessors(Target),
    /// An extent that kernels cannot count.
    #[error("{0} is too large: {limit}", limit = Shape::LIMIT)]
    TooLarge(Shape),
    /// No configuration fits.
    #[error("no kernel can run this problem:\n{0}")]
    NoTile(Box<Choice>),
}
