//! Why a layer, or a step of it, cannot be made.

use crate::check::Diagnostics;
use crate::dtype::DType;
use crate::grad::GradError;
use crate::ir::{Order, name::word};
use crate::problem::ConvFault;

/// Why a layer, or a step of it, cannot be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LinearError {
    /// The epilogue breaks a rule.
    #[error(transparent)]
    Check(#[from] Diagnostics),
    /// The epilogue has no derivative.
    #[error(transparent)]
    Grad(#[from] GradError),
    /// The numbers of a convolution do not fit together.
    #[error(transparent)]
    Convolution(#[from] ConvFault),
    /// A convolutional layer whose pixels do not lie one after the other.
    #[error("a convolutional layer reads and writes NHWC images: store Y row-major")]
    Channels,
    /// A format that layers do not support.
    #[error("a layer multiplies matrices of f32, f16 or bf16, not of {0}")]
    Operands(DType),
    /// A format that gradients do not support.
    #[error("a layer's gradients are f32, f16 or bf16, not {0}: ask for one of these with `Linear::gradients`")]
    Gradients(DType),
    /// An argument of the epilogue has the name of one of the layer's tensors.
    #[error("the epilogue has an argument `{name}`, which is the name of one of the layer's tensors: rename it")]
    Name {
        /// The name.
        name: &'static str,
    },
    /// A name for a new tensor that is already in use.
    #[error("the step has a tensor or an argument `{}`: choose another name", word(.name))]
    Taken {
        /// The name.
        name: String,
    },
    /// A matrix to be added to a product that the epilogue does not read.
    #[error("the epilogue does not read its product, so nothing can be added to it: load `{}` in the epilogue", word(.name))]
    NoProduct {
        /// The matrix.
        name: String,
    },
    /// The gradient of the product was not requested.
    #[error("a layer's gradients follow from that of its product: use `Wrt::all()` or `Wrt::accumulator()`")]
    NoGradient,
    /// A bias gradient that is not the sum of dZ.
    #[error(
        "no gradient of the layer is the sum of dZ over its rows: add a bias over N to the product, as `Linear::new` \
         does, and ask for its \
         gradient, or use `wgrad`"
    )]
    NoBias,
    /// A tensor of the wrong format.
    #[error("{what} is {got}, but is multiplied with a matrix of {needs}: {cure}")]
    Format {
        /// The tensor.
        what: String,
        /// Its format.
        got: DType,
        /// The needed format.
        needs: DType,
        /// The cure.
        cure: &'static str,
    },
    /// Two consecutive layers that do not fit.
    #[error("the layer before makes {makes} {what}, and this one takes {takes}: chain layers whose extents agree")]
    Chain {
        /// The quantity.
        what: &'static str,
        /// The value of the layer before.
        makes: usize,
        /// The value that this layer needs.
        takes: usize,
    },
    /// Two layers, one of which writes in an order that the other does not read.
    #[error(
        "the layer before stores its output {}, and this one reads X {}: {}",
        makes.name(),
        takes.name(),
        if *takes == Order::RowMajor { "use `trans_x(true)`" } else { "use `trans_x(false)`" }
    )]
    Order {
        /// The written order.
        makes: Order,
        /// The order that is read.
        takes: Order,
    },
    /// An output that cannot accumulate.
    #[error("the step cannot add to `{}`: {why}", word(.name))]
    Accumulate {
        /// The output.
        name: String,
        /// The reason and the cure.
        why: &'static str,
    },
    /// An output that cannot be stored in eight bits.
    #[error("the step cannot store `{}` in eight bits: {why}", word(.name))]
    Quantize {
        /// The output.
        name: String,
        /// The reason and the cure.
        why: &'static str,
    },
    /// A sum of dZ inside of a product that reads dZ in eight bits.
    #[error(
        "the product reads dZ in eight bits, whose sum is not that of dZ: take the bias gradient from `activation_grad` or \
         `dgrad_into`, which sum dZ before they round it, and dW from `wgrad`"
    )]
    RoundedSum,
    /// A name that is not an output of the step.
    #[error("the step writes no `{}`; it writes {}", word(.name), .known.join(", "))]
    Output {
        /// The name.
        name: String,
        /// The step's outputs.
        known: Vec<String>,
    },
}
