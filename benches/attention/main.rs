//! Attention against PyTorch's, f16: softmax of scores times values, without scores in memory.
//!
//! `cargo bench --bench attention`. PyTorch runs in a child process (`python3`, or the one that `PYTHON` names), with each of
//! its backends: flash attention, cuDNN's, and the one that it chooses itself. Both sides run CUDA graphs that turn through
//! sets of inputs, in slices of milliseconds in shuffled order. Heads lie as a projection leaves them: beside each other. A
//! figure is the median over the rounds of the ratio of times inside a round: above 1 Postlude is faster. `-- --tiles`
//! also times every tile that fits. `-- --functions` times functions of scores alone: a padding mask, ALiBi, a soft cap and a
//! sliding window, against masks in memory and against compiled FlexAttention, beside our attention without a function.
//!
//! Without a GPU it says why it does nothing; without PyTorch it times Postlude alone.
#![allow(missing_docs, reason = "a benchmark")]

mod functions;
#[path = "../peer/mod.rs"]
mod peer;
#[path = "../gemm/statistics.rs"]
#[allow(dead_code, reason = "the other benchmark uses the rest")]
mod statistics;
#[path = "../support/mod.rs"]
#[allow(dead_code, reason = "other benchmarks use the rest")]
mod support;

use functions::{Function, Prepared};
use peer::Peer;
use postlude::Attention;
use postlude::args::IntoTensor;
use postlude::build::recipes;
use postlude::cudarc::driver::{CudaGraph, CudaSlice, CudaStream};
use postlude::half::f16;
use postlude::plan::{Problem, Tile};
use postlude::prelude::*;
use statistics::{Shuffle, Spread, median};
use std::sync::Arc;
use support::Result;

const SCRIPT: &str = include_str!("peer.py");
/// Seconds of a slice, and rounds.
const SLICE: f64 = 3e-3;
const ROUNDS: usize = 9;
/// Launches of a graph, and sets of inputs that they turn through.
const LAUNCHES: usize = 12;
const SETS: usize = 4;

/// Sequences, heads, queries, keys, elements of a query, and whether it is causal.
const CASES: [(usize, usize, usize, usize, usize, bool); 9] = [
    (1, 12, 128, 128, 64, false),
    (8, 12, 512, 512, 64, false),
    (32, 12, 512, 512, 64, false),
    (8, 12, 512, 512, 64, true),
    (2, 32, 2048, 2048, 128, true),
    (2, 32, 2048, 2048, 128, false),
    (4, 16, 1000, 1000, 64, false),
    (1, 16, 4096, 4096, 64, false),
    (32, 8, 197, 197, 64, false),
];

/// Those that functions of scores are timed on.
const WITH_FUNCTIONS: [(usize, usize, usize, usize, usize, bool); 2] =
    [(8, 12, 512, 512, 64, false), (2, 16, 4096, 4096, 128, false)];

type Inputs = [CudaSlice<f16>; 3];

fn noise(stream: &Arc<CudaStream>, len: usize, seed: u64) -> Result<CudaSlice<f16>> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        f16::from_f32(((state >> 40) as f32 / (1u64 << 23) as f32 - 1.0) * 1.7)
    };
    Ok(stream.clone_htod(&(0..len).map(|_| next()).collect::<Vec<_>>())?)
}

/// A plan's launches as a graph.
fn capture(
    stream: &Arc<CudaStream>,
    plan: &Plan,
    sets: &[Inputs],
    d: &mut CudaSlice<f16>,
    lines: [usize; 2],
    function: Option<&Prepared>,
) -> Result<CudaGraph> {
    let [wide, width] = lines;
    support::captured(stream, LAUNCHES, |turn| {
        let [q, k, v] = &sets[turn % sets.len()];
        let args = function.map_or_else(DeviceArgs::new, Prepared::arguments);
        let mut args = args
            .input("a", q.into_tensor().ld(wide).batch_stride(width))
            .input("keys", k.into_tensor().ld(wide).batch_stride(width))
            .input("b", v.into_tensor().ld(wide).batch_stride(width))
            .output("d", (&mut *d).into_tensor().ld(wide).batch_stride(width));
        Ok(plan.execute(stream, &mut args)?)
    })
}

fn run(device: &Device, args: &[String]) -> Result<()> {
    let rounds = support::rounds(args, ROUNDS);
    let stream = device.context().new_stream()?;
    let epilogue = recipes::identity(F16)?;
    let mut peer = Peer::start(SCRIPT).and_then(|mut peer| peer.versions().map(|versions| (peer, versions)));
    match &peer {
        Ok((_, versions)) => println!("{versions}"),
        Err(error) => println!("Postlude alone: {error}"),
    }
    let cases = if rounds > 1 { &CASES[..] } else { &CASES[..1] };
    let plain = cases.iter().map(|case| (*case, None));
    let with_functions =
        WITH_FUNCTIONS.iter().flat_map(|case| Function::ALL.into_iter().map(move |function| (*case, Some(function))));
    let cases: Vec<_> = if support::has(args, "--functions") { with_functions.collect() } else { plain.collect() };
    for ((sequences, heads, queries, keys, width, causal), function) in cases {
        let prepared = function.map(|function| Prepared::new(function, &stream, sequences, heads, keys)).transpose()?;
        let (wide, of) = (heads * width, Attention::new(width).sequences(sequences));
        let of = if causal { of.causal() } else { of };
        let shape = Shape::new(sequences * queries, width, sequences * keys).batched(heads);
        let problem = ["a", "keys", "b", "d"]
            .iter()
            .fold(Problem::from(shape), |problem, name| problem.ld(name, wide).batch_stride(name, width));
        let mut sets = Vec::new();
        for seed in 0..SETS as u64 {
            let (q, k) = (sequences * queries * wide, sequences * keys * wide);
            sets.push([noise(&stream, q, seed * 3 + 1)?, noise(&stream, k, seed * 3 + 2)?, noise(&stream, k, seed * 3 + 3)?]);
        }
        let mut d: CudaSlice<f16> = stream.alloc_zeros(sequences * queries * wide)?;
        let without = Gemm::attention(F16, of, &epilogue);
        let of = prepared.as_ref().map_or(of, |prepared| of.scores(&prepared.scores));
        let gemm = Gemm::attention(F16, of, &epilogue);
        let chosen = gemm.plan(device, problem.clone())?;
        let mut plans = vec![("chosen".to_owned(), chosen)];
        // What the function itself costs.
        if prepared.is_some() {
            plans.push(("without the function".to_owned(), without.plan(device, problem.clone())?));
        }
        if support::has(args, "--tiles") {
            let tiles: Vec<Tile> = plans[0].1.kernel().plan.choice.candidates().map(|(tile, _)| tile).skip(1).collect();
            for tile in tiles {
                plans.push((tile.to_string(), gemm.clone().tile(tile).plan(device, problem.clone())?));
            }
        }
        let mut graphs = Vec::new();
        for (_, plan) in &plans {
            let function = prepared.as_ref().filter(|_| plan.kernel().plan.scores.is_some());
            graphs.push(capture(&stream, plan, &sets, &mut d, [wide, width], function)?);
        }
        let case = serde_json::json!({ "sequences": sequences, "heads": heads, "queries": queries, "keys": keys, "width": width,
            "causal": causal, "sets": SETS, "launches": LAUNCHES, "function": function.map(Function::name) });
        let mut names: Vec<String> = Vec::new();
        if let Ok((peer, _)) = &mut peer {
            let answer = peer.prepare(&case)?;
            names.extend(answer["graphs"].as_array().into_iter().flatten().filter_map(|name| Some(name.as_str()?.to_owned())));
            if answer["faults"].as_object().is_some_and(|faults| !faults.is_empty()) {
                println!("  not run: {}", answer["faults"]);
            }
        }
        let own = graphs.len();
        let repeats = |seconds: f64| (SLICE / (seconds * LAUNCHES as f64)).ceil().max(1.0) as usize;
        let mut each = Vec::new();
        for graph in &graphs {
            each.push(repeats(support::timed(&stream, graph, 1, LAUNCHES)?));
        }
        for name in &names {
            if let Ok((peer, _)) = &mut peer {
                each.push(repeats(peer.slice(name, 1)?));
            }
        }
        let (mut times, mut shuffle) = (vec![Vec::new(); own + names.len()], Shuffle::new(11));
        for _ in 0..rounds {
            for i in shuffle.order(own + names.len()) {
                let seconds = match (i.checked_sub(own), &mut peer) {
                    (Some(name), Ok((peer, _))) => peer.slice(&names[name], each[i])?,
                    _ => support::timed(&stream, &graphs[i], each[i], LAUNCHES)?,
                };
                times[i].push(seconds);
            }
        }
        let seen = if causal { 0.5 } else { 1.0 };
        let flops = seen * 4.0 * (sequences * heads * queries * keys * width) as f64;
        let word = if causal { ", causal" } else { "" };
        let function = function.map_or_else(String::new, |function| format!(", {}", function.name()));
        println!("{sequences} x {queries} queries, {keys} keys, {heads} heads of {width}{word}{function}");
        for (i, (name, plan)) in plans.iter().enumerate() {
            let (time, kernel) = (median(&times[i]), plan.kernel());
            let registers = kernel.cubin.info.registers;
            println!(
                "  {:40} {:8.1} us, {:6.1} TFLOP/s, {registers} registers, {name}",
                kernel.plan.tile.to_string(),
                1e6 * time,
                flops / time / 1e12
            );
        }
        for (i, name) in names.iter().enumerate() {
            let Spread { median: middle, low, high } = Spread::of_ratios(&times[own + i], &times[0]);
            println!(
                "  PyTorch, {name:10} {:8.1} us, over ours {middle:.2} [{low:.2}, {high:.2}]",
                1e6 * median(&times[own + i])
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
        run(device, args)
    });
}
