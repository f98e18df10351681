//! Linear layers: a drop-in for candle's, with the activation in the same kernel.

use crate::fused::{Arguments, Fused, dtype};
use candle_core::{Error, Module, Result, Tensor};
use postlude::prelude::*;
use std::sync::Arc;

/// An activation of the library: a function over an expression.
pub type Activation = fn(Expr<'_>) -> Expr<'_>;

/// `activation(x @ w.T + b)` in one kernel: weights of N x K and a bias of N, as candle's `Linear` has them.
///
/// ```
/// use candle_core::{Device, Module, Tensor};
/// use postlude::build::activation;
/// use postlude_candle::Linear;
/// let (w, b) = (Tensor::new(&[[1f32, 2.], [3., -4.]], &Device::Cpu)?, Tensor::new(&[0.5f32, 0.], &Device::Cpu)?);
/// let layer = Linear::new(w, Some(b), activation::relu)?;
/// let y = layer.forward(&Tensor::new(&[[1f32, 1.]], &Device::Cpu)?)?;
/// assert_eq!(y.to_vec2::<f32>()?, [[3.5, 0.0]]);
/// # Ok::<(), candle_core::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Linear {
    weight: Tensor,
    /// The same memory as an operand of the product. It is a node of candle's graph if the weights are a variable.
    transposed: Tensor,
    bias: Option<Tensor>,
    /// The bias, if there is one.
    arguments: Arguments,
    fused: Arc<Fused>,
}

impl Linear {
    /// A layer of these weights. [`identity`] leaves the sum as it is.
    ///
    /// # Errors
    /// If the format of the weights has none in Postlude, or the weights are not a matrix.
    pub fn new(weight: Tensor, bias: Option<Tensor>, activation: Activation) -> Result<Linear> {
        let format = dtype(&weight)?;
        let epilogue = Epilogue::build(|e| {
            e.store("d", activation(summed(e, format, bias.is_some())), format);
        });
        let fused = Arc::new(Fused::new(&epilogue.map_err(Error::wrap)?));
        let arguments = bias.iter().fold(Arguments::new(), |arguments, bias| arguments.tensor("bias", bias));
        Ok(Linear { transposed: weight.t()?, weight, bias, arguments, fused })
    }

    /// The weights, N x K.
    pub fn weight(&self) -> &Tensor {
        &self.weight
    }

    /// The bias.
    pub fn bias(&self) -> Option<&Tensor> {
        self.bias.as_ref()
    }
}

/// The value itself: a layer without an activation.
pub fn identity(z: Expr<'_>) -> Expr<'_> {
    z
}

impl Module for Linear {
    /// Takes any number of axes in front of the last one.
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        behind_rows(x, |x| self.fused.apply_to(x, &self.transposed, &self.arguments))
    }
}

/// The product, with the bias if there is one.
pub(crate) fn summed<'g>(e: &'g Builder, format: DType, has_bias: bool) -> Expr<'g> {
    let product = if format == F64 { e.acc_f64() } else { e.acc() };
    if has_bias { product + e.load("bias", format.over(N)) } else { product }
}

/// Computes with all axes but the last one as rows, and gives the result those axes again.
pub(crate) fn behind_rows(x: &Tensor, layer: impl FnOnce(&Tensor) -> Result<Tensor>) -> Result<Tensor> {
    if x.rank() == 2 {
        return layer(x);
    }
    let Some((columns, in_front)) = x.dims().split_last() else {
        return Err(Error::msg("a layer's input needs at least one axis, and a scalar has none"));
    };
    let y = layer(&x.reshape((in_front.iter().product::<usize>(), *columns))?)?;
    let extents: Vec<usize> = in_front.iter().copied().chain([y.dim(1)?]).collect();
    y.reshape(extents)
}
