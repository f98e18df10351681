//! PaddlePaddle's `fused_gemm_epilogue` and its gradient, in a network of two layers.
//!
//! Out1 = activation(X Y1 + Bias1) leaves a reserve space, and Out2 = Out1 Y2 + Bias2. In the backward pass the
//! activation's derivative belongs to the *second* operator's gradient: its `activation_grad` names the previous
//! operator's activation, and it reads that operator's reserve space. One product then computes the gradient before the
//! first activation, and DBias1 with it.
//!
//! ```text
//! $ cargo run --release --example paddle_fused_gemm
//! relu: reserve space of [2, 3, 8] bits128, 96 bytes
//! relu, Out2
//! ...
//! relu, DY1
//! ...
//! gelu: reserve space of [2, 3, 8] f32, 192 bytes
//! ...
//! gelu, DBias2
//! ...
//! CPU: no CUDA driver: libcuda.so.1: cannot open shared object file ...
//! ```

#[path = "support/matrix.rs"]
mod matrix;

use matrix::{eighths, show};
use postlude::RanOn;
use postlude::compat::paddle::{Activation, FusedGemmEpilogue};
use postlude::layer::Step;
use postlude::prelude::*;
use std::io::Write;

type Result<T, E = Box<dyn std::error::Error>> = std::result::Result<T, E>;

/// X has three dimensions, and all but the last count as rows. Y1 and Y2 have two.
const X: &[usize] = &[2, 3, 4];
const Y1: &[usize] = &[4, 8];
const OUT1: &[usize] = &[2, 3, 8];
const Y2: &[usize] = &[8, 5];
const OUT2: &[usize] = &[2, 3, 5];

/// Trains one step with either activation.
pub fn run(out: &mut dyn Write) -> Result<()> {
    step(out, "relu")?;
    let ran_on = step(out, "gelu")?;
    writeln!(out, "{ran_on}")?;
    Ok(())
}

fn step(out: &mut dyn Write, name: &str) -> Result<RanOn> {
    let of = |dims: &[usize], seed| eighths(dims.iter().product(), seed);
    let (x, y1, b1) = (of(X, 1), of(Y1, 2), of(&Y1[1..], 3));
    let (y2, b2, dout) = (of(Y2, 4), of(&Y2[1..], 5), of(OUT2, 6));
    let activation = Activation::from_name(name).ok_or("an activation of Paddle's")?;
    let none = FusedGemmEpilogue { trans_x: false, trans_y: false, activation: Activation::None, dtype: F32 };

    // fused_gemm_epilogue(X, Y1, Bias1, activation) also returns reserve_space.
    let first = FusedGemmEpilogue { activation, ..none }.forward(X, Y1, &Y1[1..], true)?;
    let space = first.reserve.clone().ok_or("a reserve space")?;
    writeln!(out, "{name}: reserve space of {:?} {}, {} bytes", space.dims, space.dtype, space.bytes)?;
    let (mut out1, mut reserve) = (of(OUT1, 0), vec![0u8; space.bytes]);
    let args = HostArgs::new().input("x", &x).input("y", &y1).input("bias", &b1).output("d", &mut out1);
    Step::from(first).run(args.output("aux", Tensor::of_bytes_mut(space.dtype, &mut reserve)))?;

    // fused_gemm_epilogue(Out1, Y2, Bias2, "none").
    let mut out2 = of(OUT2, 0);
    let args = HostArgs::new().input("x", &out1).input("y", &y2).input("bias", &b2).output("d", &mut out2);
    Step::from(none.forward(OUT1, Y2, &Y2[1..], false)?).run(args)?;

    // fused_gemm_epilogue_grad(DOut, Out1, Y2, reserve_space, activation_grad): its DX is the gradient before the
    // activation.
    let gradient = Activation::from_gradient_name(&format!("{name}_grad")).ok_or("a gradient of Paddle's")?;
    let second = FusedGemmEpilogue { activation: gradient, ..none }.backward_with_bias(OUT2, OUT1, Y2, true)?;
    let (mut dz, mut dbias1) = (of(OUT1, 0), of(&Y1[1..], 0));
    let args = HostArgs::new().input("dout", &dout).input("y", &y2).input("aux", Tensor::of_bytes(space.dtype, &reserve));
    Step::from(second.dx).run(args.output("d", &mut dz).output("bgrad", &mut dbias1))?;
    let (mut dy2, mut dbias2) = (of(Y2, 0), of(&Y2[1..], 0));
    let args = HostArgs::new().input("dout", &dout).input("x", &out1).output("d", &mut dy2).output("bgrad", &mut dbias2);
    Step::from(second.dy_with_bias).run(args)?;

    // fused_gemm_epilogue_grad(DX, X, Y1, "none"). Its DBias is already there.
    let first = none.backward(OUT1, X, Y1, false)?;
    let (mut dx, mut dy1) = (of(X, 0), of(Y1, 0));
    Step::from(first.dx).run(HostArgs::new().input("dout", &dz).input("y", &y1).output("d", &mut dx))?;
    let ran_on = Step::from(first.dy).run(HostArgs::new().input("dout", &dz).input("x", &x).output("d", &mut dy1))?;

    let results = [("Out2", OUT2, out2), ("DX", X, dx), ("DY1", Y1, dy1), ("DY2", Y2, dy2)];
    for (what, dims, values) in results.into_iter().chain([("DBias1", &Y1[1..], dbias1), ("DBias2", &Y2[1..], dbias2)]) {
        show(out, &format!("{name}, {what}"), dims[dims.len() - 1], values)?;
    }
    Ok(ran_on)
}

fn main() {
    if let Err(error) = run(&mut std::io::stdout()) {
        eprintln!("error: {error}");
        std::process::exit(1);
    }
}
