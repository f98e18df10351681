//! Convolutions of ResNet-50 and of a few other networks against cuDNN, NHWC f16.
//!
//! `cargo bench --bench convolution`. cuDNN comes through PyTorch in a child process (`python3`, or the one that `PYTHON`
//! names), which this program asks over a pipe for one slice after another. So both take turns on one GPU: in every round
//! each contender has a slice of milliseconds, in shuffled order. Both run CUDA graphs that turn through sets of images
//! which are more than the level-2 cache holds together; cuDNN's algorithms are timed by PyTorch (benchmark mode), its
//! tensors are `channels_last`. A figure is the median over the rounds of the ratio of times inside a round: above 1
//! Postlude is faster. `-- --batch 32` selects, `-- --tiles 4` also times the tiles that are estimated to come next, and those of
//! the transposed product, `-- --tune` runs the fastest of all that fit, `-- --layers "3x3 7x7|1x1 "` selects layers by parts of
//! their names, `-- --epilogues 2` takes the first two. `-- --gradients` measures the gradients of the images and of the filters
//! instead, and `-- --of filters` the latter alone.
//!
//! Without a GPU it says why it does nothing; without PyTorch it times Postlude alone.
#![allow(missing_docs, reason = "a benchmark")]

#[path = "../peer/mod.rs"]
mod peer;
#[path = "../gemm/statistics.rs"]
#[allow(dead_code, reason = "the other benchmark uses the rest")]
mod statistics;
#[path = "../support/mod.rs"]
#[allow(dead_code, reason = "other benchmarks use the rest")]
mod support;

use peer::Peer;
use postlude::GradientOf;
use postlude::build::recipes;
use postlude::cudarc::driver::{CudaGraph, CudaSlice, CudaStream};
use postlude::half::f16;
use postlude::prelude::*;
use postlude::tune::Autotune;
use statistics::{Shuffle, Spread, median};
use std::fmt;
use std::sync::Arc;
use support::Result;

/// How the peer prepares a layer.
const SCRIPT: &str = include_str!("peer.py");

/// Seconds of a slice, and rounds.
const SLICE: f64 = 4e-3;
const ROUNDS: usize = 11;
/// Launches of a graph, at least, unless so many floating-point operations a second make fewer of them a slice.
const LAUNCHES: usize = 24;
const RATE: f64 = 4e14;
/// Bytes that the sets come to together.
const BEYOND_CACHE: usize = 200 << 20;
/// The most elements of images or results that are measured: several sets of both contenders fit a GPU's memory.
const MOST_ELEMENTS: usize = 2 << 30;

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
    pub groups: usize,
}

impl fmt::Display for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Layer { images, size, channels, filters, window, stride, groups, .. } = *self;
        let step = if stride == 1 { String::new() } else { format!(" s{stride}") };
        let depth = if groups > 1 { "depthwise " } else { "" };
        write!(f, "{depth}{window}x{window}{step} {size}x{size} {channels} -> {filters}, batch {images}")
    }
}

impl Layer {
    /// The layer or its gradients for the peer, with graphs of so many launches that turn through so many sets of images. `names`
    /// are those of what is asked of it.
    fn case(&self, gradients: bool, names: &[&str], sets: usize, launches: usize) -> serde_json::Value {
        let Layer { images: n, size, channels: c, filters: k, window: r, stride, padding, groups } = *self;
        serde_json::json!({ "n": n, "h": size, "w": size, "c": c, "k": k, "r": r, "s": r, "stride": stride, "padding": padding,
            "groups": groups, "sets": sets, "launches": launches, "gradients": gradients, "names": names })
    }

    fn shape(&self) -> ConvShape {
        let Layer { images, size, channels, filters, window, stride, padding, groups } = *self;
        let shape = ConvShape::new(images, [size, size, channels], [filters, window, window]);
        shape.stride([stride; 2]).padding([padding; 2]).groups(groups)
    }
}

/// Size, channels, filters, window, stride, padding: the layers of ResNet-50 (the first comes last), of VGG, MobileNet and U-Net.
const LAYERS: [[usize; 6]; 23] = [
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
    [224, 64, 64, 3, 1, 1],
    [28, 512, 512, 3, 1, 1],
    [512, 64, 64, 3, 1, 1],
    [112, 32, 64, 1, 1, 0],
    [56, 128, 128, 1, 1, 0],
    [7, 1024, 1024, 1, 1, 0],
    [224, 3, 64, 7, 2, 3],
    [224, 3, 32, 3, 2, 1],
    [224, 3, 64, 3, 1, 1],
    [224, 4, 64, 7, 2, 3],
];

/// Size, channels, window, stride, padding of depthwise layers: of MobileNet, EfficientNet and ConvNeXt.
const DEPTHWISE: [[usize; 5]; 11] = [
    [112, 32, 3, 1, 1],
    [112, 64, 3, 2, 1],
    [56, 128, 3, 1, 1],
    [28, 256, 3, 2, 1],
    [14, 512, 3, 1, 1],
    [7, 960, 3, 1, 1],
    [28, 240, 5, 1, 2],
    [56, 96, 7, 1, 3],
    [56, 144, 3, 1, 1],
    [56, 144, 5, 2, 2],
    [14, 672, 5, 1, 2],
];

/// An epilogue, and what cuDNN is asked for beside it: the same, and what a framework makes of it.
struct Does {
    name: &'static str,
    peers: &'static [&'static str],
    epilogue: Epilogue,
    /// The gradient, if it is one.
    of: Option<GradientOf>,
}

impl Does {
    fn conv(&self, convolution: postlude::Convolution) -> Conv {
        match self.of {
            None => Conv::of(F16, convolution, &self.epilogue),
            Some(of) => Conv::gradient(F16, convolution, of, &self.epilogue),
        }
    }
}

/// The gradients: as they are, and that of the images behind the relu of the layer before, with its bias gradient.
fn gradients() -> Result<Vec<Does>> {
    let plain = recipes::identity(F16)?;
    let before = Epilogue::build(|e| {
        let dz = e.load("saved", F16).gt(0.0).select(e.acc(), 0.0);
        e.store("d", dz, F16);
        e.reduce("sums", dz, Monoid::Sum, F32.over(N));
    })?;
    let does = |name, peers, epilogue, of| Does { name, peers, epilogue, of: Some(of) };
    Ok(vec![
        does("of images: plain", &["of images"], plain.clone(), GradientOf::Images),
        does("of images: relu, sum", &["of images, relu, sum in passes"], before, GradientOf::Images),
        does("of filters: plain", &["of filters"], plain, GradientOf::Filters),
    ])
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
    let does = |name, peers, epilogue| Does { name, peers, epilogue, of: None };
    Ok(vec![
        does("bias, relu", &["bias, relu"], bias),
        does("bias, add, relu", &["bias, add, relu"], residual),
        does("bn, add, relu", &["bias, add, relu", "bn, add, relu in passes"], normed),
        does("plain", &[], plain),
        does("bias, silu", &[], silu),
        does("bias, two regions", &[], regions),
    ])
}

/// What a launch reads and writes; those of all turns but the vectors.
struct Operands {
    sets: Vec<[CudaSlice<f16>; 4]>,
    filters: CudaSlice<f16>,
    filters_gradient: CudaSlice<f16>,
    sums: CudaSlice<f32>,
    bias: CudaSlice<f16>,
    vectors: CudaSlice<f32>,
}

impl Operands {
    fn new(stream: &Arc<CudaStream>, conv: &postlude::Convolution) -> Result<Operands> {
        let (Shape { m, n, k, .. }, pixels) = (conv.shape(), conv.pixels() * conv.measures().channels);
        let count = BEYOND_CACHE.div_ceil(2 * (pixels + m * n + pixels.min(m * n))).clamp(2, 12);
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
        let sets =
            (0..count).map(|_| Ok([noise(pixels)?, noise(m * n)?, stream.alloc_zeros(m * n)?, stream.alloc_zeros(pixels)?]));
        let sets = sets.collect::<Result<Vec<_>>>()?;
        let (filters, bias) = (noise(n * k)?, noise(n)?);
        let (filters_gradient, sums) = (stream.alloc_zeros(n * k)?, stream.alloc_zeros(conv.measures().channels)?);
        let vectors = stream.clone_htod(&vec![0.01f32; n])?;
        Ok(Operands { sets, filters, filters_gradient, sums, bias, vectors })
    }
}

/// The arguments of a turn.
fn args<'a>(operands: &'a mut Operands, does: &Does, turn: usize) -> DeviceArgs<'a> {
    let Operands { sets, filters, filters_gradient, sums, bias, vectors } = operands;
    let turn = turn % sets.len();
    let [a, residual, d, dx] = &mut sets[turn];
    match does.of {
        Some(GradientOf::Images) => {
            let args = DeviceArgs::new().input("a", &*residual).input("b", &*filters).input("saved", &*a);
            return args.output("d", dx).output("sums", sums).used_by(does.epilogue.checked());
        }
        Some(GradientOf::Filters) => {
            return DeviceArgs::new().input("a", &*residual).input("b", &*a).output("d", filters_gradient);
        }
        None => {}
    }
    let args = DeviceArgs::new().input("a", &*a).input("b", &*filters).input("bias", &*bias).input("residual", &*residual);
    let args = args.input("scale", &*vectors).input("shift", &*vectors).scalar("top", 5).scalar("left", 3);
    args.output("d", d).used_by(does.epilogue.checked())
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
    /// A copy of as many bytes as the layer reads and writes together.
    Copy(CudaGraph),
}

impl Contender {
    fn slice(&self, stream: &Arc<CudaStream>, peer: &mut Option<Peer>, launches: usize) -> Result<f64> {
        let graph = match (&self.runs, peer) {
            (Runs::Ours(graph) | Runs::Copy(graph), _) => graph,
            (Runs::Theirs(name), Some(peer)) => return peer.slice(name, self.repeats),
            (Runs::Theirs(_), None) => return Err("no peer".into()),
        };
        support::timed(stream, graph, self.repeats, launches)
    }
}

/// A graph of a plan's launches, which turn through the sets.
fn capture(stream: &Arc<CudaStream>, plan: &Plan, does: &Does, operands: &mut Operands, launches: usize) -> Result<CudaGraph> {
    support::captured(stream, launches, |turn| Ok(plan.execute(stream, &mut args(operands, does, turn))?))
}

/// Copies between the sets' outputs, of half the bytes that a launch reads and writes: each byte is read and written.
fn capture_copies(stream: &Arc<CudaStream>, operands: &mut Operands, launches: usize) -> Result<CudaGraph> {
    support::captured(stream, launches, |turn| {
        let count = operands.sets.len();
        let [a, from, to, _] = &mut operands.sets[turn % count];
        let len = (a.len() + to.len()) / 2;
        let whole = len.min(to.len());
        stream.memcpy_dtod(&from.slice(..whole), &mut to.slice_mut(..whole))?;
        if len > whole {
            let half = a.len() / 2;
            let (low, mut high) = a.split_at_mut(half);
            stream.memcpy_dtod(&low.slice(..len - whole), &mut high.slice_mut(..len - whole))?;
        }
        Ok(())
    })
}

struct Options<'a> {
    of: &'a str,
    tiles: usize,
    tune: bool,
    rounds: usize,
    epilogues: usize,
    gradients: bool,
}

impl Options<'_> {
    /// What is measured of a layer.
    fn does(&self, layer: &Layer) -> Result<Vec<Does>> {
        let mut does = if self.gradients { gradients()? } else { epilogues(layer)? };
        does.retain(|does| does.name.contains(self.of));
        does.truncate(self.epilogues);
        Ok(does)
    }

    /// A convolution on the tiles that are estimated to come next, and on the best of the transposed product, if it is one.
    fn others(&self, device: &Device, conv: &Conv) -> Result<Vec<Conv>> {
        let plan = conv.kernel_plan(device.target(), device.gpu())?;
        if plan.split.is_some() {
            return Ok(Vec::new()); // a split has the tiles of its sums
        }
        let own: Vec<_> = plan.choice.candidates().skip(1).take(self.tiles).map(|tile| (conv.clone(), tile)).collect();
        let turned = conv.clone().prefer(|gemm| gemm.transposed(!plan.transposed));
        let other = turned.kernel_plan(device.target(), device.gpu())?;
        let tiles = if other.transposed == plan.transposed { 0 } else { self.tiles };
        let turned: Vec<_> = other.choice.candidates().take(tiles).map(|tile| (turned.clone(), tile)).collect();
        let all = own.into_iter().chain(turned);
        Ok(all.map(|(conv, (tile, raster))| conv.prefer(|gemm| gemm.tile(tile).raster_group(raster))).collect())
    }

    /// Compiles the chosen kernels of all layers, on all cores. A layer's own plans then take them from the cache.
    fn compile(&self, device: &Device, layers: &[Layer]) -> Result<()> {
        let mut convs = Vec::new();
        for layer in layers {
            let convolution = postlude::Convolution::new(layer.shape())?;
            for (at, does) in self.does(layer)?.iter().enumerate() {
                let conv = does.conv(convolution);
                if at == 0 || self.gradients {
                    convs.extend(self.others(device, &conv)?);
                }
                convs.push(conv);
            }
        }
        support::at_once(&convs, |conv| drop(conv.compile(postlude::jit::Cache::global(), device.target(), device.gpu())));
        Ok(())
    }
}

fn run(device: &Device, stream: &Arc<CudaStream>, peer: &mut Option<Peer>, layer: &Layer, options: &Options<'_>) -> Result<()> {
    let convolution = postlude::Convolution::new(layer.shape())?;
    let mut operands = Operands::new(stream, &convolution)?;
    let sets = operands.sets.len();
    let Shape { m, n, k, .. } = convolution.shape();
    let few = (SLICE * RATE / (2.0 * m as f64 * n as f64 * k as f64)).ceil() as usize;
    let launches = sets * LAUNCHES.min(few).div_ceil(sets);
    let does = options.does(layer)?;
    let mut names: Vec<&'static str> = does.iter().flat_map(|does| does.peers).copied().collect();
    names.sort_unstable();
    names.dedup();
    if let Some(peer) = peer {
        peer.prepare(&layer.case(options.gradients, &names, sets, launches))?;
    }
    let (mut contenders, mut plans, mut firsts) = (Vec::new(), Vec::new(), Vec::new());
    for does in &does {
        let conv = does.conv(convolution);
        let mut plan = conv.plan(device)?;
        if options.tune {
            plan.autotune(stream, &mut args(&mut operands, does, 0), Autotune::new())?;
        }
        firsts.push(contenders.len());
        let product = |plan: &Plan| match &plan.kernel().plan.split {
            Some(split) => format!("{} in {} parts", split.product.tile, split.parts),
            None => format!("{}{}", plan.kernel().plan.tile, if plan.kernel().plan.transposed { ", transposed" } else { "" }),
        };
        // Only of the first epilogue, where tiles are the same for all.
        let others = if plans.is_empty() || options.gradients { options.others(device, &conv)? } else { Vec::new() };
        let own =
            std::iter::once(Ok(plan)).chain(others.iter().map(|conv| Ok(conv.plan(device)?))).collect::<Result<Vec<_>>>()?;
        for plan in own {
            let graph = capture(stream, &plan, does, &mut operands, launches)?;
            contenders.push(Contender { name: product(&plan), runs: Runs::Ours(graph), repeats: 1 });
            plans.push(plan);
        }
    }
    let copy = contenders.len();
    contenders.push(Contender {
        name: "copy".into(),
        runs: Runs::Copy(capture_copies(stream, &mut operands, launches)?),
        repeats: 1,
    });
    let theirs = contenders.len();
    for name in names.iter().filter(|_| peer.is_some()) {
        contenders.push(Contender { name: (*name).to_owned(), runs: Runs::Theirs(name), repeats: 1 });
    }
    for contender in &mut contenders {
        let once = contender.slice(stream, peer, launches)?;
        contender.repeats = ((SLICE / (once * launches as f64)).ceil() as usize).max(1);
    }
    let (mut seconds, mut shuffle) = (vec![Vec::new(); contenders.len()], Shuffle::new(7));
    for _ in 0..options.rounds {
        for i in shuffle.order(contenders.len()) {
            seconds[i].push(contenders[i].slice(stream, peer, launches)?);
        }
    }
    println!("{layer}");
    let does_all = &does;
    for (does, first) in does.iter().zip(&firsts) {
        let time = median(&seconds[*first]);
        let rate = 2.0 * (m * n) as f64 * k as f64 / time / 1e12;
        let plain = does_all.iter().position(|other| other.of == does.of && other.name.ends_with("plain")).unwrap_or(0);
        let over = Spread::of_ratios(&seconds[*first], &seconds[firsts[plain]]).median;
        let copied = Spread::of_ratios(&seconds[copy], &seconds[*first]).median;
        print!("  {:24} {:7.1} us {rate:4.0} TFLOP/s, {over:.3} of plain, {copied:.3} of a copy's speed", does.name, time * 1e6);
        for at in (theirs..contenders.len()).filter(|at| does.peers.contains(&contenders[*at].name.as_str())) {
            let Spread { median: ratio, low, high } = Spread::of_ratios(&seconds[at], &seconds[*first]);
            print!(", cuDNN ({}) {:.1} us: {ratio:.3} [{low:.3}, {high:.3}]", contenders[at].name, median(&seconds[at]) * 1e6);
        }
        println!("  {}", contenders[*first].name);
    }
    for (at, first) in firsts.iter().enumerate() {
        for i in first + 1..firsts.get(at + 1).copied().unwrap_or(copy) {
            let Spread { median: ratio, .. } = Spread::of_ratios(&seconds[i], &seconds[*first]);
            println!("    {ratio:.3} times the chosen one's time: {}", contenders[i].name);
        }
    }
    Ok(())
}

fn main() {
    support::on_gpu(all);
}

/// Every layer that was asked for.
fn all(device: &Device, args: &[String]) -> Result<()> {
    let number = |name: &str| support::number(args, name);
    let tune = support::has(args, "--tune");
    let gradients = support::has(args, "--gradients");
    let [tiles, rounds, epilogues] = [("--tiles", 0), ("--rounds", ROUNDS), ("--epilogues", usize::MAX)]
        .map(|(name, default)| number(name).unwrap_or(default));
    let rounds = support::rounds(args, rounds);
    let of = support::value(args, "--of").map_or("", String::as_str);
    let options = Options { of, tiles, tune, rounds, epilogues, gradients };
    let peer = Peer::start(SCRIPT).and_then(|mut peer| peer.versions().map(|versions| (peer, versions)));
    match &peer {
        Ok((_, versions)) => println!("{device:?}, {versions}"),
        Err(error) => println!("{device:?}, without a peer: {error}"),
    }
    let mut peer = peer.ok().map(|(peer, _)| peer);
    // SAFETY: there is one stream, so nothing has to be ordered between streams.
    unsafe { device.context().disable_event_tracking() };
    let batches = number("--batch").map_or(vec![32, 256], |batch| vec![batch]);
    let only = support::value(args, "--layers").map_or("", String::as_str);
    let stream = device.context().new_stream()?;
    let mut layers = Vec::new();
    for images in batches {
        let dense = LAYERS.map(|[size, channels, filters, window, stride, padding]| Layer {
            images,
            size,
            channels,
            filters,
            window,
            stride,
            padding,
            groups: 1,
        });
        let depthwise = DEPTHWISE.map(|[size, channels, window, stride, padding]| Layer {
            images,
            size,
            channels,
            filters: channels,
            window,
            stride,
            padding,
            groups: channels,
        });
        let fits = |layer: &Layer| images * layer.size.pow(2) * layer.channels.max(layer.filters) <= MOST_ELEMENTS;
        layers.extend(
            dense
                .into_iter()
                .chain(depthwise)
                .filter(|layer| fits(layer) && only.split('|').any(|part| layer.to_string().contains(part))),
        );
    }
    options.compile(device, &layers)?;
    for layer in &layers {
        run(device, &stream, &mut peer, layer, &options)?;
    }
    Ok(())
}
