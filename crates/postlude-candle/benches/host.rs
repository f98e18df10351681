//! The host's cost of a call on candle tensors: layers and fused products, the launch inside of them, and candle's own
//! operations.
//!
//! `cargo bench -p postlude-candle --features cuda --bench host`. Calls go back to back in bursts that the GPU's queue takes
//! without waiting, contenders alternate, and each figure is the median over the bursts with the tenth and ninetieth
//! percentile.
//!
//! Without a GPU it says why it does nothing.
#![allow(missing_docs, reason = "a benchmark")]

use candle_core::{DType as Theirs, Device, Module, Result, Tensor};
use postlude::build::activation;
use postlude::cudarc::driver::CudaSlice;
use postlude::half::f16;
use postlude::prelude::*;
use postlude_candle::{Arguments, Fused, Linear, postlude};
use std::time::Instant;

const EXTENT: usize = 128;
/// Calls of a burst, of which candle's have three launches each, and bursts of a contender.
const BURST: usize = 200;
const ROUNDS: usize = 101;

fn main() {
    let device = match Device::new_cuda(0) {
        Ok(device) => device,
        Err(error) if std::env::var_os("POSTLUDE_REQUIRE_GPU").is_some() => fail(&error),
        Err(error) => return println!("skipped: no GPU ({error})"),
    };
    // Without `--bench` (as under `cargo test`) everything runs once, and nothing is measured.
    let rounds = if std::env::args().any(|arg| arg == "--bench") { ROUNDS } else { 1 };
    if let Err(error) = all(&device, rounds) {
        fail(&error);
    }
}

fn fail(error: &candle_core::Error) -> ! {
    eprintln!("error: {error}");
    std::process::exit(1);
}

fn all(device: &Device, rounds: usize) -> Result<()> {
    contest("candle's device", device, rounds)?;
    contest("with a stream of its own, ordered by events", &Device::new_cuda_with_stream(0)?, rounds)?;
    #[allow(unsafe_code, reason = "candle's switch for its events")]
    // SAFETY: all work from here on is on one stream.
    unsafe {
        device.as_cuda_device()?.disable_event_tracking();
    }
    contest("candle's device without events", device, rounds)
}

/// The arguments of a launch on memory of the benchmark.
fn arguments<'a>([a, b, bias]: &'a [CudaSlice<f16>; 3], d: &'a mut CudaSlice<f16>) -> DeviceArgs<'a> {
    DeviceArgs::new().input("a", a).input("b", b).input("bias", bias).output("d", d)
}

/// A contender: its name, and a call of it.
type Contender<'a> = (&'static str, Box<dyn FnMut() -> Result<()> + 'a>);

fn contest(title: &str, device: &Device, rounds: usize) -> Result<()> {
    let cuda = device.as_cuda_device()?;
    let stream = cuda.cuda_stream();
    let drawn = |rows: usize, columns: usize| Tensor::randn(0f32, 1.0, (rows, columns), device)?.to_dtype(Theirs::F16);
    let (x, w, bias) = (drawn(EXTENT, EXTENT)?, drawn(EXTENT, EXTENT)?, drawn(1, EXTENT)?.flatten_all()?);
    let epilogue =
        postlude::build::recipes::bias_activation(F16, F16, activation::gelu_tanh).map_err(candle_core::Error::wrap)?;

    // What the library alone does: on memory of its own, with the same plan as the adapter's.
    let wrap = |error: postlude::Error| candle_core::Error::wrap(error);
    let ours = postlude::Device::of(stream.context()).map_err(candle_core::Error::wrap)?;
    let shape = Shape::new(EXTENT, EXTENT, EXTENT);
    let plan = Gemm::new(F16, TN, &epilogue).plan(&ours, shape).map_err(wrap)?;
    let zeros = |elements: usize| cuda.alloc_zeros::<f16>(elements);
    let memory = [zeros(EXTENT * EXTENT)?, zeros(EXTENT * EXTENT)?, zeros(EXTENT)?];
    let [mut kept, mut other] = [zeros(EXTENT * EXTENT)?, zeros(EXTENT * EXTENT)?];
    let mut prepared = arguments(&memory, &mut kept);
    #[allow(unsafe_code, reason = "candle's allocator leaves the elements as they are")]
    // SAFETY: nothing reads what no launch has written.
    let allocate = || -> Result<CudaSlice<f16>> { unsafe { cuda.alloc(EXTENT * EXTENT) } };

    let layer = Linear::new(w.clone(), Some(bias.clone()), activation::gelu_tanh)?;
    let fused = Fused::new(&epilogue);
    let (transposed, weight) = (w.t()?, w.clone());
    let mut contenders: Vec<Contender<'_>> = vec![
        ("Plan::execute", Box::new(|| plan.execute(&stream, &mut prepared).map_err(wrap))),
        ("its arguments made anew", Box::new(|| plan.execute(&stream, &mut arguments(&memory, &mut other)).map_err(wrap))),
        ("candle's allocation of the output, alone", Box::new(|| allocate().map(drop))),
        (
            "Plan::execute, its output by candle's allocation",
            Box::new(|| {
                let mut made = allocate()?;
                plan.execute(&stream, &mut arguments(&memory, &mut made)).map_err(wrap)
            }),
        ),
        ("Linear::forward", Box::new(|| layer.forward(&x).map(drop))),
        ("Fused::apply", Box::new(|| fused.apply(&x, &transposed, Arguments::new().tensor("bias", &bias)).map(drop))),
        ("candle's product alone", Box::new(|| x.matmul(&weight.t()?).map(drop))),
        ("candle's product, bias and gelu", Box::new(|| x.matmul(&weight.t()?)?.broadcast_add(&bias)?.gelu().map(drop))),
    ];
    let mut times = vec![Vec::new(); contenders.len()];
    for round in 0..rounds + 1 {
        for ((_, call), times) in contenders.iter_mut().zip(&mut times) {
            stream.synchronize().map_err(candle_core::Error::wrap)?;
            let start = Instant::now();
            for _ in 0..BURST {
                call()?;
            }
            let time = start.elapsed().as_secs_f64() * 1e6 / BURST as f64;
            // The first one compiles and plans.
            if round > 0 {
                times.push(time);
            }
        }
    }
    stream.synchronize().map_err(candle_core::Error::wrap)?;
    println!("{title}: {EXTENT}^3 in f16, bias and gelu (tanh), microseconds of the host a call, {}", plan.kernel().plan.tile);
    for ((name, _), times) in contenders.iter().zip(&times) {
        show(name, times);
    }
    let over = |a: usize, b: usize| times[a].iter().zip(&times[b]).map(|(a, b)| a - b).collect::<Vec<f64>>();
    show("Linear::forward over Plan::execute", &over(4, 0));
    show("Linear::forward over that with the allocation", &over(4, 3));
    show("Fused::apply over Plan::execute", &over(5, 0));
    Ok(())
}

/// Prints the median, the tenth percentile and the ninetieth.
fn show(name: &str, times: &[f64]) {
    let mut sorted = times.to_vec();
    sorted.sort_by(f64::total_cmp);
    if let Some(last) = sorted.len().checked_sub(1) {
        let [low, median, high] = [1, 5, 9].map(|tenths| sorted[last * tenths / 10]);
        println!("  {name:48} {median:6.2} [{low:.2}, {high:.2}]");
    }
}
