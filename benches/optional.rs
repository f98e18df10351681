//! Optional arguments, given and left out, against an argument that has to be given and against none.
//!
//! `cargo bench --bench optional`. Contenders take turns as in `eight_bits`, over matrices that are more than the cache holds.
//! A figure is the median over the rounds of a contender's time over that of the plain load. `-- --shape 4096x4096x4096` takes
//! one product, `-- --rounds 31` sets the rounds.
//!
//! Without a GPU it says why it does nothing.
#![allow(missing_docs, reason = "a benchmark")]

#[path = "gemm/cublaslt.rs"]
#[allow(dead_code, reason = "other benchmarks use it")]
mod cublaslt;
#[path = "gemm/statistics.rs"]
#[allow(dead_code, reason = "other benchmarks use the rest")]
mod statistics;
#[path = "support/mod.rs"]
#[allow(dead_code, reason = "other benchmarks use the rest")]
mod support;
#[path = "gemm/turns.rs"]
#[allow(dead_code, reason = "other benchmarks use the rest")]
mod turns;

use postlude::cudarc::driver::{CudaSlice, CudaStream};
use postlude::half::f16;
use postlude::ir::Operand;
use postlude::prelude::*;
use statistics::{Spread, median};
use std::sync::Arc;
use turns::{Contender, Result, contest};

const ROUNDS: usize = 31;
/// Bytes that the sets come to together.
const BEYOND_CACHE: usize = 200 << 20;

/// Large and small, and one with few elements of K, where the epilogue is most of the kernel.
const SHAPES: [Shape; 4] =
    [Shape::new(4096, 4096, 4096), Shape::new(1024, 1024, 1024), Shape::new(8192, 8192, 256), Shape::new(16, 4096, 4096)];

/// A product's matrices for each turn. What the epilogue loads is shared or is a matrix of the turn.
struct Operands {
    sets: Vec<[CudaSlice<f16>; 4]>,
    vector: CudaSlice<f16>,
}

impl Operands {
    fn new(stream: &Arc<CudaStream>, Shape { m, n, k, .. }: Shape) -> Result<Operands> {
        let mut state = 1u64;
        let mut noise = |len: usize| -> Result<CudaSlice<f16>> {
            let mut next = || {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                f16::from_f32((state >> 40) as f32 / (1u64 << 23) as f32 - 1.0)
            };
            Ok(stream.clone_htod(&(0..len).map(|_| next()).collect::<Vec<f16>>())?)
        };
        let count = BEYOND_CACHE.div_ceil(2 * (m * k + n * k + 2 * m * n)).clamp(2, 12);
        let sets = (0..count).map(|_| Ok([noise(m * k)?, noise(n * k)?, noise(m * n)?, stream.alloc_zeros(m * n)?]));
        Ok(Operands { sets: sets.collect::<Result<_>>()?, vector: noise(m.max(n))? })
    }
}

/// How the epilogue has its argument.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Has {
    Plain,
    Given,
    LeftOut,
    None,
}

/// A product that adds an operand and takes the relu.
fn contender<'a>(
    device: &Device,
    stream: &'a Arc<CudaStream>,
    shape: Shape,
    operand: Operand,
    has: Has,
) -> Result<Contender<'a, Operands>> {
    let epilogue = Epilogue::build(|e| {
        let z = match has {
            Has::Plain => e.acc() + e.load("c", operand),
            Has::Given | Has::LeftOut => e.acc() + e.load_or("c", operand, 0.0),
            Has::None => e.acc(),
        };
        e.store("d", z.relu(), F16);
    })?;
    let plan = Gemm::new(F16, TN, &epilogue).plan(device, shape)?;
    let what = match has {
        Has::Plain => "plain load",
        Has::Given => "optional, given",
        Has::LeftOut => "optional, left out",
        Has::None => "no argument",
    };
    let name = format!("{what}: {}", plan.kernel().plan.tile);
    let launch = move |operands: &mut Operands, turn: usize| {
        let Operands { sets, vector } = operands;
        let turn = turn % sets.len();
        let [a, b, c, d] = &mut sets[turn];
        let args = DeviceArgs::new().input("a", &*a).input("b", &*b);
        let args = match has {
            Has::LeftOut | Has::None => args,
            Has::Plain | Has::Given if operand.axes.is_matrix() => args.input("c", &*c),
            Has::Plain | Has::Given => args.input("c", &*vector),
        };
        Ok(plan.execute(stream, &mut args.output("d", d))?)
    };
    Ok(Contender { name, launch: Box::new(launch) })
}

fn run(device: &Device, args: &[String]) -> Result<()> {
    // SAFETY: there is one stream, so nothing has to be ordered between streams.
    unsafe { device.context().disable_event_tracking() };
    let stream = device.context().new_stream()?;
    let rounds = support::rounds(args, support::number(args, "--rounds").unwrap_or(ROUNDS));
    let shapes = match support::value(args, "--shape") {
        Some(text) => vec![turns::shape(text)?],
        None => SHAPES.to_vec(),
    };
    println!("{device:?}");
    for shape in shapes {
        let mut operands = Operands::new(&stream, shape)?;
        for (what, operand) in [("vector over N", F16.over(N)), ("vector over M", F16.over(M)), ("matrix", F16.into())] {
            let contenders = [Has::Plain, Has::Given, Has::LeftOut, Has::None]
                .map(|has| contender(device, &stream, shape, operand, has))
                .into_iter()
                .collect::<Result<Vec<_>>>()?;
            let seconds = contest(&stream, &contenders, &mut operands, rounds)?;
            println!("{shape}, {what}");
            for (contender, own) in contenders.iter().zip(&seconds).filter(|(_, own)| !own.is_empty()) {
                let Spread { median: ratio, low, high } = Spread::of_ratios(own, &seconds[0]);
                println!("  {ratio:.3} [{low:.3}, {high:.3}]  {:7.2} us  {}", 1e6 * median(own), contender.name);
            }
        }
    }
    Ok(())
}

fn main() {
    support::on_gpu(run);
}
