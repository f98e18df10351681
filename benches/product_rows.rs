//! Softmax and norms behind a product whose tiles have whole rows: one kernel, against the same product without them, and
//! against the product and a kernel of rows behind it.
//!
//! `cargo bench --bench product_rows`. `-- --m 16384 --n 256 --k 2048` takes such shapes alone, and `--tiles 4` so many tiles,
//! those with the least estimates. Contenders are CUDA graphs of some launches each, and take turns in shuffled order.
//! A figure is the median over the rounds of the ratio of times inside a round.
//!
//! Without a GPU it says why it does nothing.
#![allow(missing_docs, reason = "a benchmark")]

#[path = "gemm/statistics.rs"]
#[allow(dead_code, reason = "the other benchmark uses the rest")]
mod statistics;
#[path = "support/mod.rs"]
#[allow(dead_code, reason = "other benchmarks use the rest")]
mod support;

use postlude::build::recipes::{self, Mask, Norm};
use postlude::cudarc::driver::{CudaGraph, CudaSlice, CudaStream};
use postlude::half::f16;
use postlude::prelude::*;
use statistics::{Shuffle, Spread, median};
use std::sync::Arc;
use support::Result;

/// M, N and K.
const SHAPES: [[usize; 3]; 17] = [
    [16384, 64, 2048],
    [16384, 64, 4096],
    [16384, 64, 8192],
    [65536, 64, 2048],
    [16384, 128, 2048],
    [16384, 128, 4096],
    [16384, 128, 8192],
    [32768, 128, 2048],
    [16384, 192, 2048],
    [16384, 192, 4096],
    [16384, 192, 8192],
    [32768, 200, 2048],
    [16384, 256, 2048],
    [16384, 256, 4096],
    [16384, 256, 8192],
    [8192, 256, 8192],
    [40000, 256, 2048],
];
const ROUNDS: usize = 11;
/// Launches of a graph, and seconds of a slice.
const LAUNCHES: usize = 10;
const SLICE: f64 = 4e-3;

struct Memory {
    a: CudaSlice<f16>,
    b: CudaSlice<f16>,
    d: CudaSlice<f16>,
    wide: CudaSlice<f32>,
    vector: CudaSlice<f16>,
    rows: [CudaSlice<f32>; 2],
}

impl Memory {
    fn new(stream: &Arc<CudaStream>, Shape { m, n, k, .. }: Shape) -> Result<Memory> {
        let mut state = 1u64;
        let mut noise = |len: usize| -> Result<CudaSlice<f16>> {
            let mut next = || {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                f16::from_f32((state >> 40) as f32 / (1u64 << 23) as f32 - 1.0)
            };
            let block: Vec<f16> = (0..len.min(1 << 20)).map(|_| next()).collect();
            let (mut all, block) = (stream.alloc_zeros::<f16>(len)?, stream.clone_htod(&block)?);
            for start in (0..len).step_by(block.len()) {
                let end = (start + block.len()).min(len);
                stream.memcpy_dtod(&block.slice(..end - start), &mut all.slice_mut(start..end))?;
            }
            Ok(all)
        };
        let (a, b, vector) = (noise(m * k)?, noise(n * k)?, noise(n)?);
        Ok(Memory {
            a,
            b,
            d: stream.alloc_zeros(m * n)?,
            wide: stream.alloc_zeros(m * n)?,
            vector,
            rows: [stream.alloc_zeros(m)?, stream.alloc_zeros(m)?],
        })
    }
}

/// A few launches as a graph. The plans have to live as long.
fn capture(stream: &Arc<CudaStream>, plans: &[(&Plan, &Epilogue, bool)], memory: &mut Memory) -> Result<CudaGraph> {
    support::captured(stream, LAUNCHES, |_| {
        for &(plan, epilogue, behind) in plans {
            let Memory { a, b, d, wide, vector, rows } = memory;
            let [mean, rstd] = rows;
            let args = DeviceArgs::new().input("weight", &*vector).input("bias", &*vector).scalar("scale", 0.05f32);
            let args = match (behind, plans.len()) {
                (true, _) => args.input("a", &*wide).output("d", d),
                (false, 1) => args.input("a", &*a).input("b", &*b).output("d", d),
                _ => args.input("a", &*a).input("b", &*b).output("d", wide),
            };
            let args = args.output("mean", mean).output("rstd", rstd);
            plan.execute(stream, &mut args.used_by(epilogue.checked()))?;
        }
        Ok(())
    })
}

/// The epilogues that use what rows come to.
fn ways() -> Result<[(&'static str, Epilogue); 3]> {
    let norm = Norm { weights: Some(F16), residual: None };
    Ok([
        ("softmax", recipes::softmax(Mask::None, F16)?),
        ("layer norm", recipes::layer_norm(norm, F16)?),
        ("rms norm", recipes::rms_norm(norm, F16)?),
    ])
}

/// A kernel of rows behind a product, or one for each of so many tiles that are estimated to be the fastest.
fn of_way(device: &Device, epilogue: &Epilogue, shape: Shape, tiles: Option<usize>) -> Result<Vec<Gemm>> {
    let gemm = Gemm::new(F16, TN, epilogue);
    let Some(tiles) = tiles else { return Ok(vec![gemm]) };
    let plan = gemm.kernel_plan(device.target(), device.multiprocessors(), shape)?;
    Ok(plan.choice.candidates().take(tiles).map(|(tile, _)| gemm.clone().tile(tile)).collect())
}

fn run(device: &Device, args: &[String], rounds: usize) -> Result<()> {
    let stream = device.context().new_stream()?;
    let ways = ways()?;
    let (plain, wide) = (recipes::bias_activation(F16, F16, |z| z)?, recipes::identity(F32)?);
    let [m, n, k] = ["--m", "--n", "--k"].map(|name| support::number(args, name));
    let fits = |shape: &&[usize; 3]| shape.iter().zip([m, n, k]).all(|(x, asked)| asked.is_none_or(|asked| asked == *x));
    let tiles = support::number(args, "--tiles");
    let mut jobs = Vec::new();
    let shapes: Vec<Shape> = SHAPES.iter().filter(fits).map(|&[m, n, k]| Shape::new(m, n, k)).collect();
    for &shape in &shapes {
        jobs.push((Gemm::new(F16, TN, &plain), shape));
        jobs.push((Gemm::new(F16, TN, &wide), shape));
        for (_, epilogue) in &ways {
            jobs.extend(of_way(device, epilogue, shape, tiles)?.into_iter().map(|gemm| (gemm, shape)));
            jobs.push((Gemm::pointwise(F32, Order::RowMajor, epilogue), Shape::matrix(shape.m, shape.n)));
        }
    }
    support::at_once(&jobs, |(gemm, shape)| drop(gemm.plan(device, *shape)));
    for shape in shapes {
        let mut memory = Memory::new(&stream, shape)?;
        let product = Gemm::new(F16, TN, &wide).plan(device, shape)?;
        let alone = Gemm::new(F16, TN, &plain).plan(device, shape)?;
        let mut graphs = vec![capture(&stream, &[(&alone, &plain, false)], &mut memory)?];
        // Each kernel has its name, its plan and its graph here, and a pass behind the product has its graph.
        let (mut ones, mut seconds) = (Vec::new(), Vec::new());
        for (name, epilogue) in &ways {
            for gemm in of_way(device, epilogue, shape, tiles)? {
                let one = gemm.plan(device, shape)?;
                graphs.push(capture(&stream, &[(&one, epilogue, false)], &mut memory)?);
                ones.push((*name, one, graphs.len() - 1));
            }
            let second = Gemm::pointwise(F32, Order::RowMajor, epilogue).plan(device, Shape::matrix(shape.m, shape.n))?;
            graphs.push(capture(&stream, &[(&product, &wide, false), (&second, epilogue, true)], &mut memory)?);
            seconds.push((*name, second, graphs.len() - 1));
        }
        let mut repeats = Vec::new();
        for graph in &graphs {
            repeats.push((SLICE / (support::timed(&stream, graph, 1, LAUNCHES)? * LAUNCHES as f64)).ceil().max(1.0) as usize);
        }
        let (mut times, mut shuffle) = (vec![Vec::new(); graphs.len()], Shuffle::new(7));
        for _ in 0..rounds {
            for i in shuffle.order(graphs.len()) {
                times[i].push(support::timed(&stream, &graphs[i], repeats[i], LAUNCHES)?);
            }
        }
        println!("{shape}: bias alone {:.1} us, {}", 1e6 * median(&times[0]), alone.kernel().plan.tile);
        for (name, one, graph) in &ones {
            let pass = seconds.iter().find(|(other, ..)| other == name).map_or(&times[0], |(.., graph)| &times[*graph]);
            let [over, gain] = [Spread::of_ratios(&times[*graph], &times[0]), Spread::of_ratios(pass, &times[*graph])];
            let plan = &one.kernel().plan;
            let kernels = if plan.split.is_some() { "two kernels" } else { "one kernel" };
            println!(
                "  {name:12} {:7.1} us, {:.3} [{:.3}, {:.3}] of bias alone; product and pass {:7.1} us, {:.3} [{:.3}, {:.3}]  \
                 {kernels}, {}, {} registers",
                1e6 * median(&times[*graph]),
                over.median,
                over.low,
                over.high,
                1e6 * median(pass),
                gain.median,
                gain.low,
                gain.high,
                plan.product().tile,
                one.kernel().cubin.info.registers,
            );
        }
    }
    Ok(())
}

fn main() {
    support::on_gpu(|device, args| {
        println!("{device:?}");
        // SAFETY: there is one stream, so nothing has to be ordered between streams.
        unsafe { device.context().disable_event_tracking() };
        run(device, args, support::rounds(args, ROUNDS))
    });
}
