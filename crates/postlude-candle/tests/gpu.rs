//! Fused products on a GPU: the tests of the other files there, and tests of what only a GPU has.
//!
//! Results are compared with candle's own, computed in doubles on the CPU. A GPU takes the feature `cuda`. Without one the
//! tests say so and compute on the CPU, and fail with `POSTLUDE_REQUIRE_GPU=1`.
#![allow(missing_docs, reason = "a test binary")]

use candle_core::{DType as Theirs, Device, Module, Result, Tensor, Var};
use candle_nn::{Optimizer, SGD};
use postlude::build::activation;
use postlude::prelude::*;
use postlude_candle::{Arguments, Fused, Gated, Linear, identity};
use std::cell::OnceCell;

#[path = "candle.rs"]
mod candle;
#[path = "examples.rs"]
mod examples;
#[path = "layers.rs"]
mod layers;
mod support;
use support::{close, draw};

/// One device for each thread, and thus for each test: candle's handle of cuBLAS belongs to one thread.
fn device() -> Result<Device> {
    thread_local! { static DEVICE: OnceCell<Device> = const { OnceCell::new() } }
    let open = || match Device::new_cuda(0) {
        Ok(device) => device,
        Err(why) if std::env::var_os("POSTLUDE_REQUIRE_GPU").is_some_and(|v| v == "1") => panic!("{why}"),
        Err(why) => {
            eprintln!("skipped: no GPU ({why}), computing on the CPU");
            Device::Cpu
        }
    };
    Ok(DEVICE.with(|device| device.get_or_init(open).clone()))
}

/// The GPU, for tests that the CPU in its place makes no sense for.
fn gpu() -> Result<Option<Device>> {
    Ok(Some(device()?).filter(Device::is_cuda))
}

/// Formats with the bound of a value, in parts of 1 and the value.
const FORMATS: [(Theirs, f64); 4] = [(Theirs::F32, 2e-5), (Theirs::F64, 1e-6), (Theirs::F16, 4e-3), (Theirs::BF16, 3e-2)];

/// The same numbers in doubles on the CPU.
fn exact(tensor: &Tensor) -> Result<Tensor> {
    let tensor = tensor.to_device(&Device::Cpu)?;
    // Candle's own conversion of eight bits to doubles does not end for some numbers.
    let tensor = if tensor.dtype() == Theirs::F8E4M3 { tensor.to_dtype(Theirs::F32)? } else { tensor };
    tensor.to_dtype(Theirs::F64)
}

/// `x @ w.T + b` of doubles.
fn product(x: &Tensor, w: &Tensor, b: &Tensor) -> Result<Tensor> {
    exact(x)?.broadcast_matmul(&exact(w)?.t()?)?.broadcast_add(&exact(b)?)
}

/// Rows, columns and K: whole tiles, parts of tiles, one row, few columns, odd extents.
const SHAPES: [[usize; 3]; 8] =
    [[128, 128, 128], [256, 384, 512], [77, 50, 200], [1, 264, 136], [300, 129, 72], [5, 7, 9], [130, 8, 1000], [4, 1024, 33]];

fn layers_of_any_shape((format, bound): (Theirs, f64)) -> Result<()> {
    for [m, n, k] in SHAPES {
        // Such weights make sums of the same size for every K, and errors of a factor stay as small as the other factor.
        let weights = |seed| draw(&[n, k], seed, format)? / (k as f64).sqrt();
        let (x, w, b) = (draw(&[m, k], 1, format)?, weights(2)?, draw(&[n], 3, format)?);
        let (up, c) = (weights(4)?, draw(&[n], 5, format)?);
        let plain = Linear::new(w.clone(), None, identity)?.forward(&x)?;
        close(&plain, &exact(&x)?.matmul(&exact(&w)?.t()?)?, bound)?;
        let gelu = Linear::new(w.clone(), Some(b.clone()), activation::gelu)?.forward(&x)?;
        close(&gelu, &product(&x, &w, &b)?.gelu_erf()?, bound)?;
        let gate = Linear::new(w.clone(), Some(b.clone()), activation::silu)?;
        let gated = Gated::new(gate, up.clone(), Some(c.clone()))?.forward(&x)?;
        // The gate's output is rounded to the format before it multiplies.
        let want = (product(&x, &w, &b)?.silu()? * product(&x, &up, &c)?)?;
        close(&gated, &want, 2.0 * bound)?;
    }
    Ok(())
}

// A test for each format: their kernels are compiled at the same time.
#[test]
fn layers_of_any_shape_in_f32() -> Result<()> {
    layers_of_any_shape(FORMATS[0])
}

#[test]
fn layers_of_any_shape_in_f64() -> Result<()> {
    layers_of_any_shape(FORMATS[1])
}

#[test]
fn layers_of_any_shape_in_f16() -> Result<()> {
    layers_of_any_shape(FORMATS[2])
}

#[test]
fn layers_of_any_shape_in_bf16() -> Result<()> {
    layers_of_any_shape(FORMATS[3])
}

#[test]
fn operands_of_eight_bits() -> Result<()> {
    let (x, w) = (draw(&[130, 144], 1, Theirs::F8E4M3)?, draw(&[72, 144], 2, Theirs::F8E4M3)?);
    let epilogue = Epilogue::build(|e| e.store("d", e.acc() * e.scalar("scale", F32), F16)).expect("an epilogue");
    let d = Fused::new(&epilogue).apply(&x, &w.t()?, Arguments::new().scalar("scale", 0.5))?;
    close(&d, &(exact(&x)?.matmul(&exact(&w)?.t()?)? * 0.5)?, 4e-3)
}

#[test]
fn strided_operands_count_as_they_lie() -> Result<()> {
    let epilogue = |dtype: DType| {
        Epilogue::build(|e| {
            let z = if dtype == F64 { e.acc_f64() } else { e.acc() };
            e.store("d", (z + e.load("bias", dtype.over(N)) + e.load("c", dtype)).silu(), dtype);
        })
    };
    for ((theirs, bound), ours) in FORMATS.into_iter().zip([F32, F64, F16, BF16]) {
        let fused = Fused::new(&epilogue(ours).expect("an epilogue"));
        let run = |a: &Tensor, b: &Tensor, bias: &Tensor, c: &Tensor| {
            let got = fused.apply(a, b, Arguments::new().tensor("bias", bias).tensor("c", c))?;
            let sum = exact(a)?.broadcast_matmul(&exact(b)?)?.broadcast_add(&exact(bias)?)?;
            close(&got, &(sum + exact(c)?)?.silu()?, bound)
        };
        let wide = draw(&[96, 200], 1, theirs)?;
        let (b, bias) = (draw(&[80, 64], 2, theirs)?.t()?, draw(&[83], 3, theirs)?);
        let c = draw(&[96, 168], 4, theirs)?;
        // Offsets of 16 bytes and of one element; a bias and a matrix from inside of larger ones.
        for offset in [16, 1] {
            let (bias, c) = (bias.narrow(0, offset.min(3), 80)?, c.narrow(1, offset, 80)?);
            run(&wide.narrow(1, offset, 64)?, &b, &bias, &c)?;
            // Column-major on both sides.
            run(&draw(&[64, 96], 5, theirs)?.t()?, &draw(&[64, 200], 6, theirs)?.narrow(1, offset, 80)?, &bias, &c)?;
        }
        // Batches of views: of one matrix for all entries, and of one each.
        let (batch, bias) = (draw(&[3, 40, 100], 7, theirs)?.narrow(2, 4, 64)?, bias.narrow(0, 2, 80)?);
        let c = draw(&[3, 40, 80], 8, theirs)?;
        run(&batch, &draw(&[3, 80, 64], 9, theirs)?.transpose(1, 2)?, &bias, &c)?;
        run(&batch, &b, &bias, &c)?;
    }
    Ok(())
}

#[test]
fn gradients_go_through_views() -> Result<()> {
    for (format, bound) in FORMATS {
        let value = |extents: &[usize], seed| Var::from_tensor(&draw(extents, seed, format)?);
        let (x, w, b) = (value(&[96, 100], 1)?, value(&[130, 64], 2)?, value(&[130], 3)?);
        let of = |x: &Tensor, upstream: &Tensor| (x * upstream)?.sum_all()?.backward();
        let part = x.narrow(1, 8, 64)?;
        let ours = Linear::new(w.as_tensor().clone(), Some(b.as_tensor().clone()), activation::silu)?.forward(&part)?;
        let upstream = draw(&[96, 130], 4, format)?;
        let mine = of(&ours, &upstream)?;
        let doubles = |v: &Var| Var::from_tensor(&exact(v)?);
        let (dx, dw, db) = (doubles(&x)?, doubles(&w)?, doubles(&b)?);
        let theirs = dx.narrow(1, 8, 64)?.matmul(&dw.t()?)?.broadcast_add(&db)?.silu()?;
        close(&ours, &theirs, bound)?;
        let candles = of(&theirs, &exact(&upstream)?)?;
        for (name, our, their) in [("x", &x, &dx), ("w", &w, &dw), ("b", &b, &db)] {
            let (mine, candles) = (mine.get(our).expect(name), candles.get(their).expect(name));
            assert!(mine.device().same_device(our.device()), "{name}");
            close(mine, candles, 4.0 * bound)?;
        }
    }
    Ok(())
}

/// Candle's operations before and after a layer, without a wait between them.
fn chain(x: &Tensor, layer: &Linear) -> Result<Tensor> {
    let mut x = x.clone();
    for _ in 0..20 {
        let y = layer.forward(&(&x * 0.5)?)?;
        x = ((y * 0.25)? + x.tanh()?)?;
    }
    Ok(x)
}

/// The same by candle in doubles on the CPU.
fn exact_chain(x: &Tensor, w: &Tensor, b: &Tensor) -> Result<Tensor> {
    let mut x = exact(x)?;
    for _ in 0..20 {
        let y = product(&(&x * 0.5)?, w, b)?.relu()?;
        x = ((y * 0.25)? + x.tanh()?)?;
    }
    Ok(x)
}

#[test]
fn layers_run_in_the_order_of_candles_operations() -> Result<()> {
    let (x, w, b) = (draw(&[512, 96], 1, Theirs::F32)?, draw(&[96, 96], 2, Theirs::F32)?, draw(&[96], 3, Theirs::F32)?);
    let w = (w * 0.1)?;
    let layer = Linear::new(w.clone(), Some(b.clone()), activation::relu)?;
    close(&chain(&x, &layer)?, &exact_chain(&x, &w, &b)?, 1e-4)
}

#[test]
fn devices_with_a_stream_of_their_own() -> Result<()> {
    if gpu()?.is_none() {
        return Ok(());
    }
    let (x, w, b) = (draw(&[512, 96], 1, Theirs::F32)?, draw(&[96, 96], 2, Theirs::F32)?, draw(&[96], 3, Theirs::F32)?);
    let w = (w * 0.1)?;
    let want = exact_chain(&x, &w, &b)?;
    // Two streams of the same GPU with plans of their own, whose work alternates.
    let others = [Device::new_cuda_with_stream(0)?, Device::new_cuda_with_stream(0)?];
    let on = |device: &Device| -> Result<(Tensor, Linear)> {
        let there = |t: &Tensor| t.to_device(&Device::Cpu)?.to_device(device);
        Ok((there(&x)?, Linear::new(there(&w)?, Some(there(&b)?), activation::relu)?))
    };
    let [(first, of_first), (second, of_second)] = [on(&others[0])?, on(&others[1])?];
    for _ in 0..3 {
        let (one, other) = (chain(&first, &of_first)?, chain(&second, &of_second)?);
        close(&one, &want, 1e-4)?;
        close(&other, &want, 1e-4)?;
    }
    Ok(())
}

#[test]
fn one_layer_serves_many_threads() -> Result<()> {
    // K is split here, so a plan has memory of its own.
    let (x, w) = (draw(&[16, 4096], 1, Theirs::F32)?, draw(&[64, 4096], 2, Theirs::F32)?);
    let want = exact(&x)?.matmul(&exact(&w)?.t()?)?;
    let layer = Linear::new(w, None, identity)?;
    if let Device::Cuda(_) = x.device() {
        // The threads' streams do not wait for the copies of this one.
        x.device().synchronize()?;
    }
    std::thread::scope(|scope| {
        let run = || -> Result<()> {
            for _ in 0..20 {
                close(&layer.forward(&x)?, &want, 1e-4)?;
            }
            Ok(())
        };
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(run)).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("a thread"))
    })
}

#[test]
fn tensors_of_two_devices_do_not_mix() -> Result<()> {
    if gpu()?.is_none() {
        return Ok(());
    }
    let (x, w) = (draw(&[8, 16], 1, Theirs::F32)?, draw(&[4, 16], 2, Theirs::F32)?.to_device(&Device::Cpu)?);
    let error = Linear::new(w, None, identity)?.forward(&x).expect_err("the weights are elsewhere").to_string();
    assert!(error.contains("argument `b`: is on another device"), "{error}");
    Ok(())
}

#[test]
fn training_goes_as_candles_in_doubles() -> Result<()> {
    let drawn = |extents: &[usize], seed| draw(extents, seed, Theirs::F32);
    let (x, values) = (drawn(&[33, 24], 5)?, [drawn(&[40, 24], 1)?, drawn(&[40], 2)?, drawn(&[9, 40], 3)?, drawn(&[9], 4)?]);
    let ours = values.iter().map(Var::from_tensor).collect::<Result<Vec<_>>>()?;
    let theirs = values.iter().map(|value| Var::from_tensor(&exact(value)?)).collect::<Result<Vec<_>>>()?;
    let tensor = |var: &Var| var.as_tensor().clone();
    let hidden = Linear::new(tensor(&ours[0]), Some(tensor(&ours[1])), activation::tanh)?;
    let output = Linear::new(tensor(&ours[2]), Some(tensor(&ours[3])), identity)?;
    let (mut mine, mut candles) = (SGD::new(ours.clone(), 0.1)?, SGD::new(theirs.clone(), 0.1)?);
    let mut losses = Vec::new();
    for _ in 0..12 {
        let got = output.forward(&hidden.forward(&x)?)?.sqr()?.mean_all()?;
        mine.backward_step(&got)?;
        let inner = product(&x, &theirs[0], &theirs[1])?.tanh()?;
        let want = product(&inner, &theirs[2], &theirs[3])?.sqr()?.mean_all()?;
        candles.backward_step(&want)?;
        close(&got, &want, 1e-4)?;
        losses.push(want.to_scalar::<f64>()?);
    }
    assert!(losses[11] < losses[0] / 2.0, "{losses:?}");
    for (our, their) in ours.iter().zip(&theirs) {
        close(our, their, 1e-4)?;
    }
    Ok(())
}
