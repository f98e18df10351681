//! One error for every stage between an epilogue and its results, one variant a stage. Other work has its own errors:
//! custom primitives, targets, moving caches, Paddle's operator.

mod layer;

pub use layer::LinearError;

use crate::args::ArgumentErrors;
use crate::build::ReadError;
use crate::check::Diagnostics;
use crate::emit::RenderError;
use crate::grad::{GradError, ReserveError};
use crate::plan::PlanError;
use crate::problem::ConvFault;

/// An error, by stage.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The epilogue breaks a rule.
    #[error(transparent)]
    Check(#[from] Diagnostics),
    /// A document could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The epilogue has no backward epilogue.
    #[error(transparent)]
    Grad(#[from] GradError),
    /// Buffers do not form a reserve.
    #[error(transparent)]
    Reserve(#[from] ReserveError),
    /// The layer, or its step, does not exist.
    #[error(transparent)]
    Linear(#[from] LinearError),
    /// The numbers of a convolution do not fit together.
    #[error(transparent)]
    Convolution(#[from] ConvFault),
    /// The planner found no kernel for the problem.
    #[error(transparent)]
    Plan(PlanError),
    /// A template is wrong.
    #[error(transparent)]
    Render(#[from] RenderError),
    /// Arguments do not fit; nothing ran.
    #[error(transparent)]
    Arguments(#[from] ArgumentErrors),
    /// A custom primitive's CUDA expression does not compile.
    #[cfg(feature = "jit")]
    #[error("{0}")]
    Custom(CustomFailure),
    /// The kernel could not be compiled.
    #[cfg(feature = "jit")]
    #[error(transparent)]
    Jit(#[from] crate::jit::JitError),
    /// The device failed; nothing ran.
    #[cfg(feature = "cuda")]
    #[error(transparent)]
    Device(#[from] crate::device::DeviceError),
}

impl From<PlanError> for Error {
    /// An argument that does not fit is the same error in planning and in a launch.
    fn from(error: PlanError) -> Error {
        match error {
            PlanError::Arguments(faults) => Error::Arguments(faults),
            other => Error::Plan(other),
        }
    }
}

/// A custom primitive that the compiler rejected: the primitive, its use, and the compiler's errors.
#[cfg(feature = "jit")]
#[derive(Clone, Debug)]
pub struct CustomFailure {
    /// The primitive's name.
    pub primitive: String,
    /// Its spelling.
    pub cuda: String,
    /// `file:line:column` of the Rust code that used it, if a program did.
    pub built_at: Option<String>,
    /// The compiler's errors.
    pub messages: Vec<String>,
}

#[cfg(feature = "jit")]
impl std::error::Error for CustomFailure {}

#[cfg(feature = "jit")]
impl std::fmt::Display for CustomFailure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "error: the CUDA expression of custom primitive `{}` does not compile", self.primitive)?;
        if let Some(at) = &self.built_at {
            write!(f, "\n  --> {at}")?;
        }
        write!(f, "\n   |\n   | {}", self.cuda)?;
        for message in &self.messages {
            write!(f, "\n   = {message}")?;
        }
        write!(f, "\n   = help: use `$0`, `$1`, ... and functions that CUDA device code has without headers")
    }
}
