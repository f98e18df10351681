//! Why there is no such layer, or no such step of it.

use crate::check::Diagnostics;
use crate::dtype::DType;
use crate::grad::GradError;
use crate::ir::{Order, name::word};

/// Why a layer or one of its steps cannot be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LinearError {
    /// The epilogue breaks a rule.
    #[error(transparent)]
    Check(#[from] Diagnostics),
    /// The epilogue has no derivative.
    #[error(transparent)]
    Grad(#[from] GradError),
    /// A format that no layer has.
    #[error("a layer multiplies matrices of f32, f16 or bf16, and not of {0}")]
    Operands(DType),
    /// A format that no gradient has.
    #[error("a layer's gradients are f32, f16 or bf16, and not {0}: ask for one of these with `Linear::gradients`")]
    Gradients(DType),
    /// An argument of the epilogue has a name of the layer's own tensors.
    #[error("the epilogue has an argument `{name}`, which is what the layer calls a tensor of its own: rename it")]
    Name {
        /// The name.
        name: &'static str,
    },
    /// A name for something new that is in use.
    #[error("the step has a tensor or an argument `{}`: choose another name", word(.name))]
    Taken {
        /// The name.
        name: String,
    },
    /// A matrix to be added to a product that the epilogue does not look at.
    #[error("the epilogue does not read its product, so nothing can be added to it: load `{}` in the epilogue", word(.name))]
    NoProduct {
        /// The matrix.
        name: String,
    },
    /// The gradient of the product was not asked for.
    #[error("a layer's gradients follow from that of its product: use `Wrt::all()` or `Wrt::accumulator()`")]
    NoGradient,
    /// A bias gradient that is not the sum of dZ.
    #[error(
        "no gradient of the layer is the sum of dZ over its rows: add a bias over N to the product, as `Linear::new` does, and ask for its \
         gradient, or use `wgrad`"
    )]
    NoBias,
    /// A tensor of the wrong format.
    #[error("{what} is {got}, and it is multiplied with a matrix of {needs}: {cure}")]
    Format {
        /// The tensor.
        what: String,
        /// Its format.
        got: DType,
        /// What it should be.
        needs: DType,
        /// What to do.
        cure: &'static str,
    },
    /// Two layers that do not fit behind each other.
    #[error("the layer before makes {makes} {what}, and this one takes {takes}: chain layers whose extents agree")]
    Chain {
        /// Of what.
        what: &'static str,
        /// Made.
        makes: usize,
        /// Taken.
        takes: usize,
    },
    /// Two layers of which one writes in an order that the other does not read.
    #[error(
        "the layer before stores its output {}, and this one reads X {}: {}",
        makes.name(),
        takes.name(),
        if *takes == Order::RowMajor { "use `trans_x(true)`" } else { "use `trans_x(false)`" }
    )]
    Order {
        /// Written.
        makes: Order,
        /// Read.
        takes: Order,
    },
    /// An output that cannot be added to.
    #[error("the step cannot add to `{}`: {why}", word(.name))]
    Accumulate {
        /// The output.
        name: String,
        /// Why, and what to do.
        why: &'static str,
    },
    /// A name that is no output of a step.
    #[error("the step writes no `{}`; it writes {}", word(.name), .known.join(", "))]
    Output {
        /// The name.
        name: String,
        /// What it writes.
        known: Vec<String>,
    },
}
