//! Convolutions of ResNet-50 and of a few other networks against cuDNN, NHWC f16.
//!
//! `cargo bench --bench convolution`. cuDNN comes through PyTorch in a child process (`python3`, or the one that `PYTHON`
//! names), which this program asks over a pipe for one slice after another. So both take turns on one GPU: in every round
//! each contender has a slice of milliseconds, in shuffled order. Both run CUDA graphs that turn through sets of images
//! which are more than the level-2 cache holds together; cuDNN's algorithms are timed by PyTorch (benchmark mode), its
//! tensors are `channels_last`. A figure is the median over the rounds of the ratio of times inside a round: above 1
//! Postlude is faster. `-- --batch 32` selects, `-- --tiles 4` also times the tiles that are estimated to come next,
//! `-- --tune` runs the fastest of all that fit, `-- --layers TEXT` selects layers by name.
//!
//! Without a GPU it says why it does nothing; without PyTorch it times Postlude alone.
#![allow(missing_docs, reason = "a benchmark")]

#[path = "../peer/mod.rs"]
mod peer;
#[path = "../gemm/statistics.rs"]
#[allow(dead_code, reason = "the other benchmark uses the rest")]
mod statistics;

use peer::Peer;
use postlude::build::recipes;
use postlude::cudarc::driver::sys::{CUevent_flags, CUgraphInstantiate_flags, CUstreamCaptureMode};
use postlude::cudarc::driver::{CudaGraph, CudaSlice, CudaStream};
use postlude::half::f16;
use postlude::prelude::*;
use postlude::tune::Autotune;
use statistics::{Shuffle, Spread, median};
use std::error::Error;
use std::fmt;
use std::sync::Arc;

/// How the peer prepares a layer.
const SCRIPT: &str = include_str!("peer.py");

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Seconds of a slice, and rounds.
const SLICE: f64 = 4e-3;
const ROUNDS: usize = 11;
/// Launches of a graph, at least.
const LAUNCHES: usize = 24;
/// Bytes that the sets come to together.
const BEYOND_CACHE: usize = 200 << 20;

/// A square convolution.
#[derive(Clone, Copy)]
pub struct Layer {
    pub images: usize,
    pub size: usize,
    pub channels: usize,
    pub filters: usize,
    pub window: usize,
    pub stride: usize,
    pub padding: usize,
}

impl fmt::Display for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Layer { images, size, channels, filters, window, stride, .. } = *self;
        let step = if stride == 1 { String::new() } else { format!(" s{stride}") };
        write!(f, "{window}x{window}{step} {size}x{size} {channels} -> {filters}, batch {images}")
    }
}

impl Layer {
    /// The layer for the peer, with graphs of so many launches that turn through so many sets of images.
    fn case(&self, sets: usize, launches: usize) -> serde_json::Value {
        let Layer { images: n, size, channels: c, filters: k, window: r, stride, padding } = *self;
        serde_json::json!({ "n": n, "h": size, "w": size, "c": c, "k": k, "r": r, "s": r, "stride": stride, "padding": padding,
            "sets": sets, "launches": launches })
    }

    fn shape(&self) -> ConvShape {
        let Layer { images, size, channels, filters, window, stride, padding } = *self;
        let shape = ConvShape::new(images, [size, size, channels], [filters, window, window]);
        shape.stride([stride; 2]).padding([padding; 2])
    }
}

/// Size, channels, filters, window, stride, padding: the layers of ResNet-50 (the first comes last), one of VGG, one of
/// MobileNet, one of U-Net.
const LAYERS: [[usize; 6]; 14] = [
    [56, 64, 64, 3, 1, 1],
    [28, 128, 128, 3, 1, 1],
    [14, 256, 256, 3, 1, 1],
    [7, 512, 512, 3, 1, 1],
    [56, 128, 128, 3, 2, 1],
    [56, 64, 256, 1, 1, 0],
    [56, 256, 64, 1, 1, 0],
    [14, 1024, 256, 1, 1, 0],
    [7, 512, 2048, 1, 1, 0],
    [28, 512, 1024, 1, 2, 0],
    [112, 128, 128, 3, 1, 1],
    [14, 512, 512, 1, 1, 0],
    [64, 128, 256, 3, 1, 1],
    [224, 3, 64, 7, 2, 3],
];

/// An epilogue, and cuDNN's word for the same.
struct Does {
    name: &'static str,
    peer: &'static str,
    epilogue: Epilogue,
}

fn epilogues(layer: &Layer) -> Result<Vec<Does>> {
    let convolution = postlude::Convolution::new(layer.shape())?;
    let plain = recipes::identity(F16)?;
    let bias = recipes::bias_activation(F16, F16, |z| z.relu())?;
    let residual =
        Epilogue::build(|e| e.store("d", (e.acc() + e.load("bias", F16.over(N)) + e.load("residual", F16)).relu(), F16))?;
    let normed = Epilogue::build(|e| {
        let z = e.acc() * e.load("scale", F32.over(N)) + e.load("shift", F32.over(N));
        e.store("d", (z + e.load("residual", F16)).relu(), F16);
    })?;
    let silu = recipes::bias_activation(F16, F16, |z| z.silu())?;
    let regions = Epilogue::build(|e| {
        let at = convolution.pixel(e);
        let z = e.acc() + e.load("bias", F16.over(N));
        let inside = at.y.ge(e.scalar("top", I32)).and(at.x.ge(e.scalar("left", I32)));
        e.store("d", z.region(inside, |z| z.tanh()).otherwise(|z| z.relu()), F16);
    })?;
    let does = |name, peer, epilogue| Does { name, peer, epilogue };
    Ok(vec![
        does("bias, relu", "bias, relu", bias),
        does("bias, add, relu", "bias, add, relu", residual),
        does("bn, add, relu", "bn, add, relu in passes", normed),
        does("plain", "", plain),
        does("bias, silu", "", silu),
        does("bias, two regions", "", regions),
    ])
}

/// What a launch reads and writes; those of all turns but the vectors.
struct Operands {
    sets: Vec<[CudaSlice<f16>; 3]>,
    filters: CudaSlice<f16>,
    bias: CudaSlice<f16>,
    vectors: CudaSlice<f32>,
}

impl Operands {
    fn new(stream: &Arc<CudaStream>, conv: &postlude::Convolution) -> Result<Operands> {
        let (Shape { m, n, k, .. }, pixels) = (conv.shape(), conv.pixels() * conv.measures().channels);
        let count = BEYOND_CACHE.div_ceil(2 * (pixels + 2 * m * n)).clamp(2, 12);
        let mut state = 1u64;
        let mut noise = |len: usize| -> Result<CudaSlice<f16>> {
            let mut next = || {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                f16::from_f32((state >> 40) as f32 / (1u64 << 23) as f32 - 1.0)
            };
            let block: Vec<f16> = (0..len.clamp(1, 1 << 20)).map(|_| next()).collect();
            let (mut all, block) = (stream.alloc_zeros::<f16>(len)?, stream.clone_htod(&block)?);
            for start in (0..len).step_by(block.len()) {
                let end = (start + block.len()).min(len);
                stream.memcpy_dtod(&block.slice(..end - start), &mut all.slice_mut(start..end))?;
            }
            Ok(all)
        };
        let sets = (0..count).map(|_| Ok([noise(pixels)?, noise(m * n)?, stream.alloc_zeros(m * n)?]));
        let sets = sets.collect::<Result<Vec<_>>>()?;
        let (filters, bias) = (noise(n * k)?, noise(n)?);
        Ok(Operands { sets, filters, bias, vectors: stream.clone_htod(&vec![0.01f32; n])? })
    }
}

/// The arguments of a turn.
fn args<'a>(operands: &'a mut Operands, turn: usize) -> DeviceArgs<'a> {
    let Operands { sets, filters, bias, vectors } = operands;
    let turn = turn % sets.len();
    let [a, residual, d] = &mut sets[turn];
    let args = DeviceArgs::new().input("a", &*a).input("b", &*filters).input("bias", &*bias).input("residual", &*residual);
    args.input("scale", &*vectors).input("shift", &*vectors).scalar("top", 5).scalar("left", 3).output("d", d)
}

/// One contender: what it is called, and its graph, or the peer's name for it.
struct Contender {
    name: String,
    runs: Runs,
    repeats: usize,
}

enum Runs {
    Ours(CudaGraph),
    Theirs(&'static str),
}

impl Contender {
    fn slice(&self, stream: &Arc<CudaStream>, peer: &mut Option<Peer>, launches: usize) -> Result<f64> {
        let graph = match (&self.runs, peer) {
            (Runs::Ours(graph), _) => graph,
            (Runs::Theirs(name), Some(peer)) => return peer.slice(name, self.repeats),
            (Runs::Theirs(_), None) => return Err("no peer".into()),
        };
        graph.launch()?;
        let start = stream.record_event(Some(CUevent_flags::CU_EVENT_DEFAULT))?;
        (0..self.repeats).try_for_each(|_| graph.launch())?;
        let end = stream.record_event(Some(CUevent_flags::CU_EVENT_DEFAULT))?;
        end.synchronize()?;
        Ok(f64::from(start.elapsed_ms(&end)?) / 1e3 / (self.repeats * launches) as f64)
    }
}

/// A plan as a graph of some launches. The plan has to live as long.
fn capture(stream: &Arc<CudaStream>, plan: &Plan, does: &Does, operands: &mut Operands, launches: usize) -> Result<CudaGraph> {
    let mut launch = |turn| plan.execute(stream, &mut args(operands, turn).used_by(does.epilogue.checked()));
    launch(0)?;
    stream.synchronize()?;
    stream.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)?;
    let captured = (0..launches).try_for_each(&mut launch);
    let flags = CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
    let graph = stream.end_capture(flags)?;
    captured?;
    graph.ok_or_else(|| "nothing was captured".into())
}

struct Options {
    tiles: usize,
    tune: bool,
    rounds: usize,
    measured: bool,
}

fn run(device: &Device, stream: &Arc<CudaStream>, peer: &mut Option<Peer>, layer: &Layer, options: &Options) -> Result<()> {
    let convolution = postlude::Convolution::new(layer.shape())?;
    let mut operands = Operands::new(stream, &convolution)?;
    let sets = operands.sets.len();
    let launches = sets * LAUNCHES.div_ceil(sets);
    if let Some(peer) = peer {
        peer.prepare(&layer.case(sets, launches))?;
    }
    let does = epilogues(layer)?;
    let (mut contenders, mut plans, mut firsts) = (Vec::new(), Vec::new(), Vec::new());
    for does in &does {
        let conv = Conv::of(F16, convolution, &does.epilogue);
        let mut plan = conv.plan(device)?;
        if options.tune {
            plan.autotune(stream, &mut args(&mut operands, 0).used_by(does.epilogue.checked()), Autotune::new())?;
        }
        firsts.push(contenders.len());
        let product = |plan: &Plan| match &plan.kernel().plan.split {
            Some(split) => format!("{} in {} parts", split.product.tile, split.parts),
            None => plan.kernel().plan.tile.to_string(),
        };
        let others: Vec<_> = plan.kernel().plan.choice.candidates().skip(1).take(options.tiles).collect();
        let mut own = vec![plan];
        // Only of the first epilogue: tiles are the same for all.
        for (tile, raster) in others.into_iter().filter(|_| plans.is_empty()) {
            own.push(conv.clone().prefer(|gemm| gemm.tile(tile).raster_group(raster)).plan(device)?);
        }
        for plan in own {
            let graph = capture(stream, &plan, does, &mut operands, launches)?;
            contenders.push(Contender { name: product(&plan), runs: Runs::Ours(graph), repeats: 1 });
            plans.push(plan);
        }
    }
    let mut peers = vec![None; does.len()];
    for (does, at) in does.iter().zip(&mut peers).filter(|(does, _)| peer.is_some() && !does.peer.is_empty()) {
        *at = Some(contenders.len());
        contenders.push(Contender { name: does.peer.to_owned(), runs: Runs::Theirs(does.peer), repeats: 1 });
    }
    for contender in &mut contenders {
        let once = contender.slice(stream, peer, launches)?;
        contender.repeats = ((SLICE / (once * launches as f64)).ceil() as usize).max(1);
    }
    let rounds = if options.measured { options.rounds } else { 1 };
    let (mut seconds, mut shuffle) = (vec![Vec::new(); contenders.len()], Shuffle::new(7));
    for _ in 0..rounds {
        for i in shuffle.order(contenders.len()) {
            seconds[i].push(contenders[i].slice(stream, peer, launches)?);
        }
    }
    let Shape { m, n, k, .. } = convolution.shape();
    let plain = firsts[does.iter().position(|does| does.name == "plain").unwrap_or(0)];
    println!("{layer}");
    for ((does, first), peer) in does.iter().zip(&firsts).zip(&peers) {
        let time = median(&seconds[*first]);
        let rate = 2.0 * (m * n) as f64 * k as f64 / time / 1e12;
        let over = Spread::of_ratios(&seconds[*first], &seconds[plain]).median;
        print!("  {:24} {:7.1} us {rate:4.0} TFLOP/s, {over:.3} of plain", does.name, time * 1e6);
        if let Some(peer) = peer {
            let Spread { median: ratio, low, high } = Spread::of_ratios(&seconds[*peer], &seconds[*first]);
            print!(", cuDNN ({}) {:.1} us: {ratio:.3} [{low:.3}, {high:.3}]", does.peer, median(&seconds[*peer]) * 1e6);
        }
        println!("  {}", contenders[*first].name);
    }
    for i in firsts[0] + 1..firsts[1] {
        let Spread { median: ratio, .. } = Spread::of_ratios(&seconds[i], &seconds[firsts[0]]);
        println!("    {ratio:.3} times the chosen one's time: {}", contenders[i].name);
    }
    Ok(())
}

fn main() {
    let device = match Device::new(0) {
        Ok(device) => device,
        Err(error) => return println!("skipped: no GPU ({error})"),
    };
    if let Err(error) = postlude::jit::compiler() {
        return println!("skipped: NVRTC not found ({error})");
    }
    let args: Vec<String> = std::env::args().skip(1).collect();
    let value = |name: &str| args.get(args.iter().position(|arg| arg == name)? + 1).cloned();
    let number = |name: &str| value(name).and_then(|value| value.parse::<usize>().ok());
    // Without `--bench` (as under `cargo test`) everything runs once, and nothing is measured.
    let measured = args.iter().any(|arg| arg == "--bench");
    let tune = args.iter().any(|arg| arg == "--tune");
    let options = Options { tiles: number("--tiles").unwrap_or(0), tune, rounds: number("--rounds").unwrap_or(ROUNDS), measured };
    let peer = Peer::start(SCRIPT).and_then(|mut peer| peer.versions().map(|versions| (peer, versions)));
    match &peer {
        Ok((_, versions)) => println!("{device:?}, {versions}"),
        Err(error) => println!("{device:?}, without a peer: {error}"),
    }
    let mut peer = peer.ok().map(|(peer, _)| peer);
    // SAFETY: there is one stream, so nothing has to be ordered between streams.
    unsafe { device.context().disable_event_tracking() };
    let batches = number("--batch").map_or(vec![32, 256], |batch| vec![batch]);
    let only = value("--layers").unwrap_or_default();
    let outcome = device.context().new_stream().map_err(Into::into).and_then(|stream| {
        for images in batches {
            for [size, channels, filters, window, stride, padding] in LAYERS {
                let layer = Layer { images, size, channels, filters, window, stride, padding };
                if layer.to_string().contains(&only) {
                    run(&device, &stream, &mut peer, &layer, &options)?;
                }
            }
        }
        Ok::<_, Box<dyn Error>>(())
    });
    if let Err(error) = outcome {
        eprintln!("error: {error}");
        std::process::exit(1);
    }
}
