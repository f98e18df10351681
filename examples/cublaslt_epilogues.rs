//! cuBLASLt's epilogues in the steps of nvmath-python: plan, autotune, execute. Then two of them train a layer.
//!
//! | nvmath-python | here |
//! | --- | --- |
//! | `mm = Matmul(x, w.T, alpha=0.5)` | `Gemm::new(F16, TN, &epilogue)` and the scalar `alpha` |
//! | `mm.plan(epilog=RELU_BIAS, epilog_inputs={"bias": b})` | `cublaslt::relu_bias`, `Gemm::plan` |
//! | `mm.autotune()`, `mm.execute()` | `Plan::autotune`, `Plan::execute` |
//!
//! It runs on the GPU if there is one, on the CPU if not, and says which:
//!
//! ```text
//! $ cargo run --release --example cublaslt_epilogues
//! RELU_BIAS: relu(0.5 x w1^T + b1)
//!     0.3516   0.5469   0.0000   0.9375   0.0000   1.0625   0.0000   0.0000
//! ...
//! RELU_AUX_BIAS, aux: 1 where the value before relu is not negative
//!     1.0000   1.0000   0.0000   1.0000   0.0000   1.0000   0.0000   0.0000
//! ...
//! DRELU_BGRAD, d: dy w2 where aux holds
//! ...
//! DRELU_BGRAD, bgrad: its sum over the rows, the gradient of b1
//! ...
//! CPU: no CUDA driver: libcuda.so.1: cannot open shared object file ...
//! ```

#[path = "support/matrix.rs"]
mod matrix;

use matrix::{eighths, show};
use postlude::compat::cublaslt::{self, Formats};
use postlude::half::f16;
use postlude::prelude::*;
use postlude::tune::Autotune;
use std::io::Write;

type Result<T, E = Box<dyn std::error::Error>> = std::result::Result<T, E>;

/// The layer has 16 inputs and 8 outputs, and there are 4 rows. The next layer has 8 outputs.
const ROWS: usize = 4;
const INPUTS: usize = 16;
const HIDDEN: usize = 8;
const OUTPUTS: usize = 8;

/// Runs both parts.
pub fn run(out: &mut dyn Write) -> Result<()> {
    let half = |count, seed| eighths(count, seed).into_iter().map(f16::from_f32).collect::<Vec<f16>>();
    let (x, w1, b1) = (half(ROWS * INPUTS, 1), half(HIDDEN * INPUTS, 2), half(HIDDEN, 3));
    let (dy, w2) = (half(ROWS * OUTPUTS, 4), half(OUTPUTS * HIDDEN, 5));
    let formats = Formats::of(F16);

    // Inference. A row of x and a row of w1 have K elements side by side: layout TN, PyTorch's `x @ w1.T`.
    let gemm = Gemm::new(F16, TN, &cublaslt::relu_bias(formats)?);
    let shape = Shape::new(ROWS, HIDDEN, INPUTS);
    let mut d = vec![f16::ZERO; ROWS * HIDDEN];
    match Device::find() {
        Ok(device) => plan_autotune_execute(&device, &gemm, shape, [&x, &w1, &b1], &mut d)?,
        Err(_) => {
            let args = HostArgs::new().input("a", &x).input("b", &w1).input("bias", &b1);
            gemm.reference(shape, args.scalar("alpha", 0.5).output("d", &mut d))?;
        }
    }
    show(out, "RELU_BIAS: relu(0.5 x w1^T + b1)", HIDDEN, d)?;

    // Training, forward: the mask has cuBLASLt's layout, a bit an element, and a row begins at a multiple of 128 bits.
    let gemm = Gemm::new(F16, TN, &cublaslt::relu_aux_bias(formats)?);
    let mut aux = vec![0u8; ROWS * Bits128.bytes(HIDDEN.next_multiple_of(Bits128.run()))];
    let mut d = vec![f16::ZERO; ROWS * HIDDEN];
    let args = HostArgs::new().input("a", &x).input("b", &w1).input("bias", &b1).scalar("alpha", 0.5);
    gemm.run(shape, args.output("d", &mut d).output("aux", Tensor::of_bytes_mut(Bits128, &mut aux)))?;
    let bits = aux.chunks(aux.len() / ROWS).flat_map(|row| (0..HIDDEN).map(|j| f32::from(row[j / 8] >> (j % 8) & 1)));
    show(out, "RELU_AUX_BIAS, aux: 1 where the value before relu is not negative", HIDDEN, bits)?;

    // Training, backward: behind the product that computes the gradient of the layer's output.
    let gemm = Gemm::new(F16, TT, &cublaslt::drelu_bgrad(formats)?);
    let (mut dz, mut bgrad) = (vec![f16::ZERO; ROWS * HIDDEN], vec![f16::ZERO; HIDDEN]);
    let args = HostArgs::new().input("a", &dy).input("b", &w2).scalar("alpha", 1.0);
    let args = args.input("aux", Tensor::of_bytes(Bits128, &aux)).output("d", &mut dz).output("bgrad", &mut bgrad);
    let ran_on = gemm.run(Shape::new(ROWS, HIDDEN, OUTPUTS), args)?;
    show(out, "DRELU_BGRAD, d: dy w2 where aux holds", HIDDEN, dz)?;
    show(out, "DRELU_BGRAD, bgrad: its sum over the rows, the gradient of b1", HIDDEN, bgrad)?;

    writeln!(out, "{ran_on}")?;
    Ok(())
}

/// The code of a program that keeps its matrices on the GPU. Later plans of this kind use the tuning record.
fn plan_autotune_execute(device: &Device, gemm: &Gemm, shape: Shape, [x, w, b]: [&[f16]; 3], d: &mut [f16]) -> Result<()> {
    let stream = device.context().default_stream();
    let (x, w, b) = (stream.clone_htod(x)?, stream.clone_htod(w)?, stream.clone_htod(b)?);
    let mut on_device = stream.alloc_zeros::<f16>(d.len())?;
    let args = DeviceArgs::new().input("a", &x).input("b", &w).input("bias", &b).scalar("alpha", 0.5);
    let mut args = args.output("d", &mut on_device);

    let mut plan = gemm.plan(device, shape)?;
    plan.autotune(&stream, &mut args, Autotune::new())?;
    plan.execute(&stream, &mut args)?;
    Ok(stream.memcpy_dtoh(&on_device, d)?)
}

fn main() {
    if let Err(error) = run(&mut std::io::stdout()) {
        eprintln!("error: {error}");
        std::process::exit(1);
    }
}
