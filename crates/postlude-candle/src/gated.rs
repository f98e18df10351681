//! Gated layers: the product of two linear layers, as the feed-forward networks of LLaMA and its kin begin.

use crate::fused::{Arguments, Fused};
use crate::linear::{Linear, behind_rows, summed};
use candle_core::{Error, Module, Result, Tensor};
use postlude::prelude::*;
use std::sync::Arc;

/// `gate(x) * (x @ w.T + b)`, in one launch for each product: SwiGLU if the gate's activation is `silu`, GEGLU if it is `gelu`.
///
/// The gate's kernel stores its activated output, and the other product's kernel reads it.
///
/// ```
/// use candle_core::{Device, Module, Tensor};
/// use postlude::build::activation;
/// use postlude_candle::{Gated, Linear};
/// let tensor = |rows: [[f32; 2]; 2]| Tensor::new(&rows, &Device::Cpu);
/// let gate = Linear::new(tensor([[1., 0.], [0., -1.]])?, None, activation::relu)?;
/// let layer = Gated::new(gate, tensor([[1., 1.], [2., 2.]])?, None)?;
/// assert_eq!(layer.forward(&tensor([[3., 1.], [1., -2.]])?)?.to_vec2::<f32>()?, [[12., 0.], [-1., -4.]]);
/// # Ok::<(), candle_core::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Gated {
    gate: Linear,
    /// The weights as an operand of the product.
    transposed: Tensor,
    bias: Option<Tensor>,
    fused: Arc<Fused>,
}

impl Gated {
    /// A layer of this gate, and of the weights (N x K) and the bias (N) of the product beside it.
    ///
    /// # Errors
    /// If the format of the weights has none in Postlude, or the weights are not a matrix.
    pub fn new(gate: Linear, weight: Tensor, bias: Option<Tensor>) -> Result<Gated> {
        let format = crate::fused::dtype(&weight)?;
        let epilogue = Epilogue::build(|e| {
            let z = summed(e, format, bias.is_some());
            e.store("d", z * e.load("gate", format), format);
        });
        let fused = Arc::new(Fused::new(&epilogue.map_err(Error::wrap)?));
        Ok(Gated { gate, transposed: weight.t()?, bias, fused })
    }

    /// The layer whose output multiplies the other product's.
    pub fn gate(&self) -> &Linear {
        &self.gate
    }
}

impl Module for Gated {
    /// Takes any number of axes in front of the last one.
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        behind_rows(x, |x| {
            let arguments = Arguments::new().tensor("gate", &self.gate.forward(x)?);
            let arguments = self.bias.iter().fold(arguments, |arguments, bias| arguments.tensor("bias", bias));
            self.fused.apply_to(x, &self.transposed, &arguments)
        })
    }
}
