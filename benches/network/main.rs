//! Whole networks against PyTorch: eager and compiled, f16, CUDA graphs on both sides.
//!
//! `cargo bench --bench network`. PyTorch runs in a child process (`python3`, or the one that `PYTHON` names), and both take
//! turns on one GPU: in every round each contender has a slice of milliseconds, in shuffled order. Graphs turn through four
//! sets of inputs. A figure is the median over the rounds of the ratio of times inside a round: above 1 Postlude is faster.
//! `-- --only TEXT` selects networks by name, `-- --compile default,max-autotune` says how the peer compiles (nothing:
//! eager alone), `-- --limit SECONDS` how long it may take. `-- --kernels` times each kernel by itself, `-- --host` the host,
//! and `-- --tune SECONDS` tunes the network first. `-- --numbers` times nothing: PyTorch computes networks node by node, with
//! the same weights, and results are compared. `-- --plan` plans twice and is done.
//!
//! Without a GPU it says why it does nothing; without PyTorch it times Postlude alone.
#![allow(missing_docs, reason = "a benchmark")]

#[path = "../../examples/support/networks.rs"]
#[allow(dead_code, reason = "tests and examples use the rest")]
mod networks;
mod numbers;
#[path = "../peer/mod.rs"]
mod peer;
#[path = "../gemm/statistics.rs"]
#[allow(dead_code, reason = "another benchmark uses the rest")]
mod statistics;
#[path = "../support/mod.rs"]
#[allow(dead_code, reason = "other benchmarks use the rest")]
mod support;

use networks::{Encoder, Images, encoder, mlp, noise, resnet};
use peer::Peer;
use postlude::cudarc::driver::{CudaGraph, CudaSlice, CudaStream};
use postlude::network::{Network, NetworkPlan, Tensor};
use postlude::plan::{Tile, TileShape};
use postlude::prelude::*;
use postlude::tune::Autotune;
use serde_json::{Value, json};
use statistics::{Shuffle, Spread, median};
use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};
use support::{Result, captured, timed};

/// How the peer prepares a network, and how it computes one.
const SCRIPT: &str = concat!(include_str!("peer.py"), "\n\n", include_str!("graph.py"));

/// Seconds of a slice, rounds, sets of inputs, launches of a graph.
const SLICE: f64 = 8e-3;
const ROUNDS: usize = 11;
const SETS: usize = 4;
const LAUNCHES: usize = 4;

/// Tiles that tuning compares of each kernel: as many as the choices of `max-autotune`.
const CANDIDATES: usize = 16;

/// A network, and the peer's word for the same.
struct Case {
    name: String,
    build: Box<dyn Fn() -> Result<Network>>,
    peer: Value,
}

fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for batch in [1, 32, 256] {
        let images = Images { format: F16, batch, size: 224, narrow: 1, channels_last: true };
        cases.push(Case {
            name: format!("ResNet-50, batch {batch}"),
            build: Box::new(move || Ok(resnet(images, [3, 4, 6, 3], true, 1000)?)),
            peer: json!({ "kind": "resnet50", "batch": batch, "of": {} }),
        });
    }
    for rows in [1, 64, 4096] {
        cases.push(Case {
            name: format!("MLP 4 x 4096, {rows} rows"),
            build: Box::new(move || Ok(mlp(F16, rows, 4096, 4)?)),
            peer: json!({ "kind": "mlp", "batch": rows, "of": { "wide": 4096, "layers": 4 } }),
        });
    }
    for (batch, length) in [(1, 128), (8, 512), (32, 512)] {
        let of = Encoder { format: F16, batch, length, heads: 12, head: 64, layers: 1 };
        cases.push(Case {
            name: format!("encoder layer 768, {batch} x {length}"),
            build: Box::new(move || Ok(encoder(of)?)),
            peer: json!({ "kind": "encoder", "batch": batch,
                "of": { "wide": 768, "heads": 12, "length": length, "layers": 1 } }),
        });
    }
    cases
}

/// One contender: its graph, or the peer's name for it.
enum Runs {
    Ours(CudaGraph),
    Theirs(String),
}

struct Contender {
    runs: Runs,
    repeats: usize,
}

impl Contender {
    fn slice(&self, stream: &Arc<CudaStream>, peer: &mut Option<Peer>) -> Result<f64> {
        match (&self.runs, peer) {
            (Runs::Ours(graph), _) => timed(stream, graph, self.repeats, LAUNCHES),
            (Runs::Theirs(name), Some(peer)) => peer.slice(name, self.repeats),
            (Runs::Theirs(_), None) => Err("no peer".into()),
        }
    }
}

/// Each kernel by itself, the longest first.
fn kernels(stream: &Arc<CudaStream>, plan: &mut NetworkPlan, x: &CudaSlice<u8>) -> Result<()> {
    let mut rows = Vec::new();
    for at in 0..plan.kernels().len() {
        let graph = captured(stream, 10, |_| Ok(plan.execute_kernels(stream, &[("x", x)], at..at + 1)?))?;
        let kernel = plan.fused().kernels().nth(at).ok_or("a kernel is lost")?;
        let tile = &plan.kernels()[at].kernel().plan;
        let product = tile.split.as_ref().map(|split| format!(", {} in {} parts", split.product.tile, split.parts));
        let what = format!("{} {}", kernel.gemm.operation(), kernel.shape);
        rows.push((timed(stream, &graph, 5, 10)?, format!("{at}: {what}, {}{}", tile.tile, product.unwrap_or_default())));
    }
    let sum: f64 = rows.iter().map(|(time, _)| time).sum();
    println!("    each kernel by itself: {:.1} us together", sum * 1e6);
    rows.sort_by(|a, b| b.0.total_cmp(&a.0));
    rows.iter().for_each(|(time, what)| println!("    {:8.1} us {what}", time * 1e6));
    Ok(())
}

/// Planes to pixels and back, with the tile that is chosen and others.
fn layouts(device: &Device, stream: &Arc<CudaStream>) -> Result<()> {
    let tiles = [(64, 32, 128), (64, 64, 128), (128, 32, 128), (32, 32, 128), (128, 64, 256), (64, 128, 256)];
    let tiles: Vec<Tile> =
        tiles.into_iter().map(|(bm, bn, threads)| Tile { bm, bn, shape: TileShape::Pointwise, threads, min_blocks: 1 }).collect();
    for [n, c, pixels] in [[32, 64, 56 * 56], [32, 256, 56 * 56], [32, 3, 224 * 224], [32, 2048, 49]] {
        let count = n * c * pixels;
        let (x, mut y) = (stream.alloc_zeros::<postlude::half::f16>(count)?, stream.alloc_zeros::<postlude::half::f16>(count)?);
        for last in [true, false] {
            let [from, to] = if last { [F16.column_major(), F16.into()] } else { [F16.into(), F16.column_major()] };
            let epilogue = Epilogue::build(|e| e.store("y", e.load("x", from), to))?;
            let shape = Shape::matrix(pixels, c).batched(n);
            for tile in std::iter::once(None).chain(tiles.iter().map(Some)) {
                let gemm = Gemm::pointwise(F16, Order::RowMajor, &epilogue);
                let gemm = if let Some(tile) = tile { gemm.tile(*tile) } else { gemm };
                let plan = match gemm.plan(device, shape) {
                    Ok(plan) => plan,
                    Err(error) => {
                        println!("    {error}");
                        continue;
                    }
                };
                let mut run = |_| Ok(plan.execute(stream, &mut DeviceArgs::new().input("x", &x).output("y", &mut y))?);
                let graph = captured(stream, 10, &mut run)?;
                let time = timed(stream, &graph, 5, 10)?;
                let (what, rate) = (if last { "to pixels" } else { "to planes" }, 4e-9 * count as f64 / time);
                println!("    {n} x {c} x {pixels} {what}: {:.1} us, {rate:.0} GB/s, {}", time * 1e6, plan.kernel().plan.tile);
            }
        }
    }
    Ok(())
}

struct Options {
    rounds: usize,
    compiled: Vec<String>,
    limit: usize,
    kernels: bool,
    host: bool,
    /// Whether planning is all.
    plan: bool,
    tune: Option<usize>,
}

/// The host's time of a run, and that of the GPU behind it: kernel by kernel, and as the graph that repeated runs become.
fn host(stream: &Arc<CudaStream>, plan: &mut NetworkPlan, inputs: &[(&str, &CudaSlice<u8>)]) -> Result<()> {
    const RUNS: u32 = 200;
    for graph in [false, true] {
        plan.replay(graph);
        for _ in 0..4 {
            plan.execute(stream, inputs)?;
        }
        let mut times = [Vec::new(), Vec::new()];
        for _ in 0..RUNS {
            stream.synchronize()?;
            let start = Instant::now();
            plan.execute(stream, inputs)?;
            times[0].push(start.elapsed().as_secs_f64());
            stream.synchronize()?;
            times[1].push(start.elapsed().as_secs_f64());
        }
        let [launched, done] = times.map(|times| median(&times) * 1e6);
        let how = if plan.recorded() > 0 { "as a graph" } else { "kernel by kernel" };
        println!("    {how}: the host is done in {launched:.1} us, the GPU in {done:.1} us");
    }
    Ok(())
}

fn run(device: &Device, stream: &Arc<CudaStream>, peer: &mut Option<Peer>, case: &Case, options: &Options) -> Result<()> {
    let network = (case.build)()?;
    let mut times = Vec::new();
    let mut plan = None;
    for _ in 0..2 {
        drop(plan.take());
        let start = Instant::now();
        plan = Some(network.plan(device, &[])?);
        times.push(start.elapsed().as_secs_f64());
    }
    let mut plan = plan.ok_or("no plan")?;
    let (name, of) = network.inputs().next().ok_or("no input")?;
    let shape = of.shape().ok_or("no shape")?;
    let some = Tensor::of_numbers(F16, &[1 << 16], &noise(1 << 16, 3))?;
    let mut sets = Vec::new();
    for _ in 0..SETS {
        let bytes = 2 * shape.iter().product::<usize>();
        let repeated: Vec<u8> = some.bytes().iter().copied().cycle().take(bytes).collect();
        sets.push(stream.clone_htod(&repeated)?);
    }
    let memory = plan.fused().memory().clone();
    println!(
        "{}: {} kernels, planned in {:.3} s, again in {:.3} s; arena {:.1} MB, {:.3} of what is alive at a time",
        case.name,
        plan.kernels().len(),
        times[0],
        times[1],
        memory.peak as f64 / 1e6,
        memory.peak as f64 / memory.bound as f64
    );
    if options.plan {
        return Ok(());
    }
    if let Some(seconds) = options.tune {
        let budget = Autotune::new().candidates(CANDIDATES).budget(Duration::from_secs(seconds as u64));
        let tuning = plan.autotune(stream, &[(name, &sets[0])], budget, |_| ())?;
        tuning.to_string().lines().for_each(|line| println!("    {line}"));
    }
    if options.kernels {
        kernels(stream, &mut plan, &sets[0])?;
    }
    let graph = captured(stream, LAUNCHES, |turn| Ok(plan.execute(stream, &[(name, &sets[turn % SETS])])?))?;
    // Kernels that follow each other closely compute what they compute one by one.
    for at in 0..plan.kernels().len() {
        plan.execute_kernels(stream, &[(name, &sets[(LAUNCHES - 1) % SETS])], at..at + 1)?;
        stream.synchronize()?;
    }
    let output = |plan: &NetworkPlan| Ok::<_, Box<dyn Error>>(stream.clone_dtoh(&plan.output("y").ok_or("no output")?)?);
    let expected = output(&plan)?;
    for _ in 0..20 {
        graph.launch()?;
    }
    if output(&plan)? != expected {
        return Err("the graph computes something else than its kernels one by one".into());
    }
    if options.host {
        host(stream, &mut plan, &[(name, &sets[0])])?;
    }
    let mut contenders = vec![Contender { runs: Runs::Ours(graph), repeats: 1 }];
    if let Some(peer) = peer {
        let mut request = case.peer.clone();
        for (key, value) in [("sets", json!(SETS)), ("launches", json!(LAUNCHES)), ("compiled", json!(options.compiled))] {
            request[key] = value;
        }
        request["limit"] = json!(options.limit);
        let told = peer.prepare(&request)?;
        println!("    the peer's seconds of compiling: {}", told["seconds"]);
        let names = told["graphs"].as_array().into_iter().flatten().filter_map(Value::as_str);
        contenders.extend(names.map(|name| Contender { runs: Runs::Theirs(name.to_owned()), repeats: 1 }));
    }
    for contender in &mut contenders {
        let once = contender.slice(stream, peer)?;
        contender.repeats = ((SLICE / (once * LAUNCHES as f64)).ceil() as usize).clamp(1, 100);
    }
    let (mut seconds, mut shuffle) = (vec![Vec::new(); contenders.len()], Shuffle::new(7));
    for _ in 0..options.rounds {
        for i in shuffle.order(contenders.len()) {
            seconds[i].push(contenders[i].slice(stream, peer)?);
        }
    }
    println!("    {:9.1} us", median(&seconds[0]) * 1e6);
    for (contender, own) in contenders.iter().zip(&seconds).skip(1) {
        let Runs::Theirs(name) = &contender.runs else { continue };
        let Spread { median: ratio, low, high } = Spread::of_ratios(own, &seconds[0]);
        println!("    {:9.1} us {name}: {ratio:.3} [{low:.3}, {high:.3}]", median(own) * 1e6);
    }
    Ok(())
}

fn main() {
    support::on_gpu(all);
}

/// Every network that was asked for.
fn all(device: &Device, args: &[String]) -> Result<()> {
    let number = |name: &str| support::number(args, name);
    let value = |name: &str| support::value(args, name);
    let options = Options {
        rounds: support::rounds(args, number("--rounds").unwrap_or(ROUNDS)),
        compiled: value("--compile")
            .map_or(Vec::new(), |modes| modes.split(',').filter(|mode| !mode.is_empty()).map(str::to_owned).collect()),
        limit: number("--limit").unwrap_or(300),
        kernels: support::has(args, "--kernels"),
        host: support::has(args, "--host"),
        plan: support::has(args, "--plan"),
        tune: number("--tune"),
    };
    let alone = options.plan || support::has(args, "--alone");
    let peer = if alone { Err("it was not asked for".into()) } else { Peer::start(SCRIPT) };
    let peer = peer.and_then(|mut peer| peer.versions().map(|versions| (peer, versions)));
    match &peer {
        Ok((_, versions)) => println!("{device:?}, {versions}"),
        Err(error) => println!("{device:?}, without a peer: {error}"),
    }
    let mut peer = peer.ok().map(|(peer, _)| peer);
    // SAFETY: there is one stream, so nothing has to be ordered between streams.
    unsafe { device.context().disable_event_tracking() };
    let only = value("--only").map_or("", String::as_str);
    let turns = support::has(args, "--layouts");
    let stream = device.context().new_stream()?;
    if turns {
        return layouts(device, &stream);
    }
    if support::has(args, "--numbers") {
        return numbers::compare(device, &stream, &mut peer.ok_or("numbers need a peer")?, only);
    }
    for case in cases().iter().filter(|case| case.name.contains(only)) {
        // One network's failure, for want of memory say, leaves the others.
        if let Err(error) = run(device, &stream, &mut peer, case, &options) {
            println!("{}: {error}", case.name);
        }
    }
    Ok(())
}
