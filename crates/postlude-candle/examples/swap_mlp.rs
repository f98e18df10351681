//! The feed-forward networks of LLaMA and BERT, as candle's models have them, and fused ones in their place.
//!
//! Both read the same weights by the same names. The logits are the same up to rounding.
//!
//! ```sh
//! cargo run --release -p postlude-candle --example swap_mlp
//! ```
//!
//! With `--features cuda` both run on a GPU.

use candle_core::{DType as Theirs, Device, Error, Module, Result, Tensor};
use candle_nn::{LayerNorm, VarBuilder, VarMap, layer_norm, linear, linear_no_bias, ops};
use postlude::build::activation;
use postlude::prelude::*;
use postlude_candle::{Arguments, Fused, Gated, Linear, identity, postlude};
use std::sync::Arc;

const HIDDEN: usize = 64;
const INNER: usize = 172;
const WORDS: usize = 50;

fn main() -> Result<()> {
    let device = Device::cuda_if_available(0)?;
    for (name, difference) in compare(&device)? {
        println!("{name} on {:?}: logits differ by {difference:.1e} of the largest", device.location());
    }
    Ok(())
}

/// `Mlp` of candle-transformers' `llama`: five operations.
struct LlamaMlp {
    gate: candle_nn::Linear,
    up: candle_nn::Linear,
    down: candle_nn::Linear,
}

impl LlamaMlp {
    fn load(vb: VarBuilder) -> Result<Self> {
        let gate = linear_no_bias(HIDDEN, INNER, vb.pp("gate_proj"))?;
        let up = linear_no_bias(HIDDEN, INNER, vb.pp("up_proj"))?;
        Ok(Self { gate, up, down: linear_no_bias(INNER, HIDDEN, vb.pp("down_proj"))? })
    }
}

impl Module for LlamaMlp {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.down.forward(&(ops::silu(&self.gate.forward(x)?)? * self.up.forward(x)?)?)
    }
}

/// The same in three operations: the activation and the gate's product are epilogues.
struct FusedLlamaMlp {
    inner: Gated,
    down: Linear,
}

impl FusedLlamaMlp {
    fn load(vb: VarBuilder) -> Result<Self> {
        let gate = Linear::new(vb.get((INNER, HIDDEN), "gate_proj.weight")?, None, activation::silu)?;
        let inner = Gated::new(gate, vb.get((INNER, HIDDEN), "up_proj.weight")?, None)?;
        Ok(Self { inner, down: Linear::new(vb.get((HIDDEN, INNER), "down_proj.weight")?, None, identity)? })
    }
}

impl Module for FusedLlamaMlp {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.down.forward(&self.inner.forward(x)?)
    }
}

/// `BertIntermediate` and `BertOutput` of candle-transformers' `bert`: six operations and the norm.
struct BertMlp {
    intermediate: candle_nn::Linear,
    output: candle_nn::Linear,
    norm: LayerNorm,
}

impl BertMlp {
    fn load(vb: VarBuilder) -> Result<Self> {
        let intermediate = linear(HIDDEN, INNER, vb.pp("intermediate.dense"))?;
        let output = linear(INNER, HIDDEN, vb.pp("output.dense"))?;
        Ok(Self { intermediate, output, norm: layer_norm(HIDDEN, 1e-12, vb.pp("output.LayerNorm"))? })
    }
}

impl Module for BertMlp {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let inner = self.intermediate.forward(x)?.gelu_erf()?;
        self.norm.forward(&(self.output.forward(&inner)? + x)?)
    }
}

/// The same in two operations and the norm: biases, activation and residual are epilogues.
struct FusedBertMlp {
    intermediate: Linear,
    output: Arc<Fused>,
    weight: Tensor,
    bias: Tensor,
    norm: LayerNorm,
}

impl FusedBertMlp {
    fn load(vb: VarBuilder) -> Result<Self> {
        let dense = |vb: VarBuilder, rows: usize, columns: usize| -> Result<(Tensor, Tensor)> {
            Ok((vb.get((rows, columns), "weight")?, vb.get(rows, "bias")?))
        };
        let (weight, bias) = dense(vb.pp("intermediate.dense"), INNER, HIDDEN)?;
        let intermediate = Linear::new(weight, Some(bias), activation::gelu)?;
        let output = Epilogue::build(|e| {
            e.store("d", e.acc() + e.load("bias", F32.over(N)) + e.load("residual", F32), F32);
        });
        let output = Arc::new(Fused::new(&output.map_err(Error::wrap)?));
        let (weight, bias) = dense(vb.pp("output.dense"), HIDDEN, INNER)?;
        Ok(Self { intermediate, output, weight, bias, norm: layer_norm(HIDDEN, 1e-12, vb.pp("output.LayerNorm"))? })
    }
}

impl Module for FusedBertMlp {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let rows = x.flatten_to(x.rank() - 2)?;
        let arguments = Arguments::new().tensor("bias", &self.bias).tensor("residual", &rows);
        let sum = self.output.apply(&self.intermediate.forward(&rows)?, &self.weight.t()?, arguments)?;
        self.norm.forward(&sum.reshape(x.shape())?)
    }
}

/// The rest of a model: what stays as it is when the network inside is exchanged.
struct Model {
    mlp: Box<dyn Module>,
    head: candle_nn::Linear,
}

impl Module for Model {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.head.forward(&(self.mlp.forward(x)? + x)?)
    }
}

/// By how much the logits differ from those of candle's own networks, in parts of the largest.
pub fn compare(device: &Device) -> Result<[(&'static str, f32); 2]> {
    let weights = VarMap::new();
    let vb = VarBuilder::from_varmap(&weights, Theirs::F32, device);
    let x = Tensor::randn(0f32, 1.0, (2, 7, HIDDEN), device)?;
    let swapped = |candles: Box<dyn Module>, fused: Box<dyn Module>| {
        let mut model = Model { mlp: candles, head: linear_no_bias(HIDDEN, WORDS, vb.pp("lm_head"))? };
        let expected = model.forward(&x)?;
        model.mlp = fused;
        let largest = |t: &Tensor| t.abs()?.flatten_all()?.max(0)?.to_scalar::<f32>();
        Ok::<f32, Error>(largest(&(model.forward(&x)? - &expected)?)? / largest(&expected)?)
    };
    let (llama, bert) = (vb.pp("model.layers.0.mlp"), vb.pp("encoder.layer.0"));
    let of_llama = swapped(Box::new(LlamaMlp::load(llama.clone())?), Box::new(FusedLlamaMlp::load(llama)?))?;
    let of_bert = swapped(Box::new(BertMlp::load(bert.clone())?), Box::new(FusedBertMlp::load(bert)?))?;
    Ok([("LLaMA's", of_llama), ("BERT's", of_bert)])
}
