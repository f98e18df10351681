//! The kernel behind a call of the Python package against the same behind a Rust launch.
//!
//! `cargo bench --bench python`. Python runs in a child process (`python3`, or the one that `PYTHON` names), which needs
//! PyTorch and the package `postlude`. Both take turns on one GPU: in every round each contender has a slice of a fifth of a
//! second, in shuffled order, so that each reaches the clock that its power allows. A product takes some 200 microseconds of the
//! GPU, so the host is not measured. A figure is the median over the rounds of the time in Python over the Rust launch's.
//! `-- --shape 4096x4096x4096` sets the product, `-- --rounds 21` the rounds.
//!
//! Without a GPU, or without the package, it says why it does nothing.
#![allow(missing_docs, reason = "a benchmark")]

#[path = "../gemm/cublaslt.rs"]
#[allow(dead_code, reason = "other benchmarks use it")]
mod cublaslt;
#[path = "../peer/mod.rs"]
mod peer;
#[path = "../gemm/statistics.rs"]
#[allow(dead_code, reason = "other benchmarks use the rest")]
mod statistics;
#[path = "../support/mod.rs"]
#[allow(dead_code, reason = "other benchmarks use the rest")]
mod support;
#[path = "../gemm/turns.rs"]
#[allow(dead_code, reason = "other benchmarks use the rest")]
mod turns;

use peer::Peer;
use postlude::build::recipes;
use postlude::cudarc::driver::sys::CUevent_flags;
use postlude::cudarc::driver::{CudaGraph, CudaSlice, CudaStream};
use postlude::half::f16;
use postlude::prelude::*;
use serde_json::{Value, json};
use statistics::{Shuffle, Spread, median};
use std::sync::Arc;
use support::Result;

/// How the child prepares a product.
const SCRIPT: &str = include_str!("peer.py");

/// Seconds of a slice, rounds, launches of a repetition.
const SLICE: f64 = 0.2;
const ROUNDS: usize = 21;
const LAUNCHES: usize = 10;

/// What launches read and write.
struct Operands {
    a: CudaSlice<f16>,
    b: CudaSlice<f16>,
    bias: CudaSlice<f16>,
    d: CudaSlice<f16>,
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
        Ok(Operands { a: noise(m * k)?, b: noise(n * k)?, bias: noise(n)?, d: stream.alloc_zeros(m * n)? })
    }

    fn args(&mut self) -> DeviceArgs<'_> {
        DeviceArgs::new().input("a", &self.a).input("b", &self.b).input("bias", &self.bias).output("d", &mut self.d)
    }
}

/// How a contender runs.
enum Runs {
    Launches,
    Graph(CudaGraph),
    /// By the child's name for it.
    Python(String),
}

struct Contest<'d> {
    stream: &'d Arc<CudaStream>,
    plan: Plan,
    operands: Operands,
    peer: Peer,
}

impl Contest<'_> {
    /// Seconds of a launch, in so many repetitions.
    fn slice(&mut self, runs: &Runs, repeats: usize) -> Result<f64> {
        match runs {
            Runs::Python(name) => self.peer.slice(name, repeats),
            Runs::Graph(graph) => support::timed(self.stream, graph, repeats, LAUNCHES),
            Runs::Launches => {
                let mut args = self.operands.args();
                let mut launches = |count: usize| (0..count).try_for_each(|_| self.plan.execute(self.stream, &mut args));
                launches(LAUNCHES)?;
                let start = self.stream.record_event(Some(CUevent_flags::CU_EVENT_DEFAULT))?;
                launches(repeats * LAUNCHES)?;
                let end = self.stream.record_event(Some(CUevent_flags::CU_EVENT_DEFAULT))?;
                end.synchronize()?;
                Ok(f64::from(start.elapsed_ms(&end)?) / 1e3 / (repeats * LAUNCHES) as f64)
            }
        }
    }
}

fn run(device: &Device, args: &[String]) -> Result<()> {
    let shape = support::value(args, "--shape").map_or(Ok(Shape::new(4096, 4096, 4096)), |text| turns::shape(text))?;
    let rounds = support::rounds(args, support::number(args, "--rounds").unwrap_or(ROUNDS));
    let started = Peer::start(SCRIPT).and_then(|mut peer| {
        let versions = peer.versions()?;
        let told = peer.prepare(&json!({ "m": shape.m, "n": shape.n, "k": shape.k, "launches": LAUNCHES }))?;
        Ok((peer, versions, told))
    });
    let (peer, versions, told) = match started {
        Ok(started) => started,
        Err(error) => {
            println!("skipped: no PyTorch with the package `postlude` ({error})");
            return Ok(());
        }
    };
    println!("{device:?}, {versions}");
    // SAFETY: there is one stream, so nothing has to be ordered between streams.
    unsafe { device.context().disable_event_tracking() };
    let stream = &device.context().new_stream()?;
    let plan = Gemm::new(F16, TN, &recipes::bias_activation(F16, F16, |z| z.gelu_tanh())?).plan(device, shape)?;
    let mut operands = Operands::new(stream, shape)?;
    let graph = support::captured(stream, LAUNCHES, |_| Ok(plan.execute(stream, &mut operands.args())?))?;
    println!("{shape}, {} in Rust; {} in Python", plan.kernel().plan.tile, told["kernel"].as_str().unwrap_or_default());
    let mut contenders = vec![("Rust, launches".to_owned(), Runs::Launches), ("Rust, graph".to_owned(), Runs::Graph(graph))];
    let names = told["graphs"].as_array().into_iter().flatten().filter_map(Value::as_str);
    contenders.extend(names.map(|name| (format!("Python, {name}"), Runs::Python(name.to_owned()))));
    let mut contest = Contest { stream, plan, operands, peer };
    let mut repeats = Vec::new();
    for (_, runs) in &contenders {
        let once = contest.slice(runs, 5)?;
        repeats.push(((SLICE / (once * LAUNCHES as f64)).ceil() as usize).max(1));
    }
    let (mut seconds, mut shuffle) = (vec![Vec::new(); contenders.len()], Shuffle::new(7));
    for _ in 0..rounds {
        for i in shuffle.order(contenders.len()) {
            seconds[i].push(contest.slice(&contenders[i].1, repeats[i])?);
        }
    }
    for ((name, _), own) in contenders.iter().zip(&seconds) {
        let Spread { median: ratio, low, high } = Spread::of_ratios(own, &seconds[0]);
        println!("  {name:24} {:7.1} us, {ratio:.3} [{low:.3}, {high:.3}] of the Rust launch", median(own) * 1e6);
    }
    Ok(())
}

fn main() {
    support::on_gpu(run);
}
