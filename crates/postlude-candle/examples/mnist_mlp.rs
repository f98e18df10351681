//! A network of MNIST's size, 784 to 128 to 10, trained with candle's optimiser. Its layers are fused products.
//!
//! The data is made here, so that nothing is downloaded: ten random prototypes with noise.
//!
//! ```sh
//! cargo run --release -p postlude-candle --example mnist_mlp
//! ```
//!
//! With `--features cuda` it runs on a GPU.

use candle_core::{DType, Device, Module, Result, Tensor, Var};
use candle_nn::{AdamW, Optimizer, ParamsAdamW, loss};
use postlude::build::activation;
use postlude_candle::{Linear, identity};

const PIXELS: usize = 784;
const CLASSES: usize = 10;

fn main() -> Result<()> {
    let device = Device::cuda_if_available(0)?;
    let (first, last, right) = train(&device, 60)?;
    println!("on {:?}: loss {first:.3} -> {last:.3}, {:.0} % of new images right", device.location(), 100.0 * right);
    Ok(())
}

/// The loss before and after some steps, and the part of new images that the network tells apart.
pub fn train(device: &Device, steps: usize) -> Result<(f32, f32, f32)> {
    let prototypes = Tensor::randn(0f32, 1.0, (CLASSES, PIXELS), device)?;
    let labels = Tensor::from_vec((0..128u32).map(|i| i % CLASSES as u32).collect(), 128, device)?;
    let images = || prototypes.index_select(&labels, 0)? + Tensor::randn(0f32, 2.0, (128, PIXELS), device)?;
    let weights = |rows: usize, columns: usize| {
        Var::from_tensor(&(Tensor::randn(0f32, 1.0, (rows, columns), device)? / (columns as f64).sqrt())?)
    };
    let (w1, w2) = (weights(128, PIXELS)?, weights(CLASSES, 128)?);
    let (b1, b2) = (Var::zeros(128, DType::F32, device)?, Var::zeros(CLASSES, DType::F32, device)?);
    let hidden = Linear::new(w1.as_tensor().clone(), Some(b1.as_tensor().clone()), activation::relu)?;
    let output = Linear::new(w2.as_tensor().clone(), Some(b2.as_tensor().clone()), identity)?;
    let logits = |x: &Tensor| output.forward(&hidden.forward(x)?);
    let mut optimiser = AdamW::new(vec![w1, w2, b1, b2], ParamsAdamW { lr: 2e-3, ..ParamsAdamW::default() })?;
    let mut losses = Vec::new();
    for _ in 0..steps {
        let loss = loss::cross_entropy(&logits(&images()?)?, &labels)?;
        losses.push(loss.to_scalar::<f32>()?);
        optimiser.backward_step(&loss)?;
    }
    let found = logits(&images()?)?.argmax(1)?;
    let right = found.eq(&labels)?.to_dtype(DType::F32)?.mean_all()?.to_scalar::<f32>()?;
    Ok((losses.first().copied().unwrap_or_default(), losses.last().copied().unwrap_or_default(), right))
}
