//! Rows: softmax and norms, forward and backward, as a share of what a copy of device memory moves.
//!
//! `cargo bench --bench rows`. A matrix has 64 million elements, so that it passes by the caches. Counted are the bytes
//! that have to be read and written once; the copy is the driver's, of as many bytes. Contenders take turns, and each
//! figure is the median of its rounds. With `-- --tiles` every tile that fits is measured. `--rows`, `--matrices`,
//! `--format f16` and `--only softmax` leave the others out, `--n 16384` takes rows of that length alone, and
//! `--elements 536870912` matrices of so many elements.
//!
//! With `--peers` PyTorch takes turns with the kernels of rows, in a child process (`python3`, or the one that `PYTHON` names):
//! compiled functions, its own kernels where one does all, and kernels in Triton. Times over ours are medians of the rounds.
//!
//! Without a GPU it says why it does nothing.
#![allow(missing_docs, reason = "a benchmark")]

#[path = "../peer/mod.rs"]
mod peer;
#[path = "../support/mod.rs"]
#[allow(dead_code, reason = "other benchmarks use the rest")]
mod support;

use peer::Peer;
use postlude::Tensor;
use postlude::build::recipes::{self, Mask, Norm};
use postlude::cudarc::driver::sys::CUevent_flags;
use postlude::cudarc::driver::{CudaSlice, CudaStream};
use postlude::device::{Device, DeviceArgs};
use postlude::prelude::*;
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;
use support::Result;

const ELEMENTS: usize = 1 << 26;
const ROWS: [usize; 5] = [128, 1024, 4096, 16384, 65536];
const ROUNDS: usize = 9;
/// Launches of a round.
const LAUNCHES: usize = 5;

fn main() {
    support::on_gpu(|device, args| {
        println!("{device:?}");
        run(device, args, support::rounds(args, ROUNDS))
    });
}

/// An epilogue over a matrix, and the matrices that it has to move once.
struct Case {
    name: &'static str,
    epilogue: Epilogue,
    reads: usize,
    writes: usize,
}

fn cases(d: DType) -> Result<Vec<Case>> {
    let norm = Norm { weights: Some(d), residual: None };
    let (softmax, layer_norm, rms_norm) =
        (recipes::softmax(Mask::None, d)?, recipes::layer_norm(norm, d)?, recipes::rms_norm(norm, d)?);
    let of_softmax = softmax.backward(Wrt::accumulator().keeps("d"))?.backward().clone();
    let of_layer = |wrt: Wrt| layer_norm.backward(wrt.detached("mean").detached("rstd")).map(|pair| pair.backward().clone());
    let of_rms = rms_norm.backward(Wrt::accumulator().detached("rstd"))?.backward().clone();
    let case = |name, epilogue, reads| Case { name, epilogue, reads, writes: 1 };
    // The sum of the input and a residual is stored beside its norm.
    let residual = Norm { residual: Some(d), ..norm };
    let both = |name, epilogue| Case { name, epilogue, reads: 2, writes: 2 };
    Ok(vec![
        both("layer norm of a sum", recipes::layer_norm(residual, d)?),
        both("rms norm of a sum", recipes::rms_norm(residual, d)?),
        case("layer norm, input", of_layer(Wrt::accumulator())?, 2),
        case("layer norm, all", of_layer(Wrt::accumulator().and("weight").and("bias"))?, 2),
        case("rms norm, input", of_rms, 2),
        case("softmax, input", of_softmax, 2),
        case("softmax", softmax, 1),
        case("layer norm", layer_norm, 1),
        case("rms norm", rms_norm, 1),
        case("cross-entropy", recipes::cross_entropy(d)?, 1),
    ])
}

/// Norms of images, whose groups of channels are bands of columns, and one scale for a matrix, with their shapes.
fn matrices(d: DType) -> Result<Vec<(Case, Shape)>> {
    let norm = Norm { weights: Some(d), residual: None };
    let case = |name, epilogue| Case { name, epilogue, reads: 1, writes: 1 };
    let group = |name, columns, side: usize, channels| -> Result<(Case, Shape)> {
        let shape = Shape::matrix(side * side, channels).batched(ELEMENTS / (side * side * channels));
        Ok((case(name, recipes::group_norm(columns, norm, d)?), shape))
    };
    let scaled = Epilogue::build(|e| {
        let scale = e.acc().absmax_over(M | N) / 448.0;
        e.store("d", e.acc() / scale, d);
        e.store("scale", scale, F32.pointer().batched());
    })?;
    let columns = Epilogue::build(|e| e.store("d", e.acc() - e.acc().mean_over(M), d))?;
    Ok(vec![
        group("group norm, 64^2", 10, 64, 320)?,
        group("group norm, 32^2", 20, 32, 640)?,
        group("group norm, 16^2", 40, 16, 1280)?,
        group("group norm, 512^2", 4, 512, 128)?,
        group("instance norm, 56^2", 1, 56, 64)?,
        (case("scale of a matrix", scaled), Shape::matrix(8192, 8192)),
        (case("columns", columns), Shape::matrix(65_536, 1024)),
    ])
}

/// What is measured: a case, its shape, and its kernel.
struct Job {
    case: Arc<Case>,
    d: DType,
    shape: Shape,
    gemm: Gemm,
}

fn run(device: &Device, args: &[String], rounds: usize) -> Result<()> {
    let stream = device.context().new_stream()?;
    println!("{:<20} {:>5} {:>6} {:>9} {:>9} {:>6}  tile", "", "", "N", "copy", "kernel", "share");
    let jobs = jobs(device, args)?;
    support::at_once(&jobs, |job| drop(job.gemm.plan(device, job.shape)));
    let mut peer = support::has(args, "--peers").then(start).transpose()?;
    let mut ratios: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for job in &jobs {
        for (contender, ratio) in measure(device, &stream, job, rounds, peer.as_mut())? {
            ratios.entry(contender).or_default().push(ratio);
        }
    }
    for (contender, ratios) in ratios {
        let mean = (ratios.iter().map(|ratio| ratio.ln()).sum::<f64>() / ratios.len() as f64).exp();
        let least = ratios.iter().copied().fold(f64::INFINITY, f64::min);
        println!("{contender} over ours: geometric mean {mean:.3}, least {least:.3}, of {} cases", ratios.len());
    }
    Ok(())
}

/// PyTorch, with the sources of kernels in Triton.
fn start() -> Result<Peer> {
    let mut peer = Peer::start(&format!("KERNELS = {}\n{}", json!(include_str!("kernels.py")), include_str!("peer.py")))?;
    println!("{}", peer.versions()?);
    Ok(peer)
}

/// All that is asked for.
fn jobs(device: &Device, args: &[String]) -> Result<Vec<Job>> {
    let [tiles, of_rows, of_matrices] = ["--tiles", "--rows", "--matrices"].map(|name| support::has(args, name));
    let [format, only] = ["--format", "--only"].map(|name| support::value(args, name));
    let lengths = support::number(args, "--n").map_or(ROWS.to_vec(), |n| vec![n]);
    let elements = support::number(args, "--elements").unwrap_or(ELEMENTS);
    let mut jobs = Vec::new();
    for d in [F16, BF16].into_iter().filter(|d| format.is_none_or(|format| *format == d.to_string())) {
        for case in cases(d)?.into_iter().filter(|_| !of_matrices).map(Arc::new) {
            for &n in lengths.iter().filter(|_| only.is_none_or(|only| only == case.name)) {
                jobs.extend(kernels(device, &case, d, Shape::matrix(elements / n, n), tiles)?);
            }
        }
        let matrices = matrices(d)?.into_iter().filter(|_| !of_rows);
        for (case, shape) in matrices.filter(|(case, _)| only.is_none_or(|only| case.name.starts_with(&**only))) {
            jobs.extend(kernels(device, &Arc::new(case), d, shape, tiles)?);
        }
    }
    Ok(jobs)
}

/// The kernel of the plan, or one for each tile that fits.
fn kernels(device: &Device, case: &Arc<Case>, d: DType, shape: Shape, tiles: bool) -> Result<Vec<Job>> {
    let gemm = Gemm::pointwise(d, Order::RowMajor, &case.epilogue);
    let job = |gemm: Gemm| Job { case: case.clone(), d, shape, gemm };
    if !tiles {
        return Ok(vec![job(gemm)]);
    }
    let plan = gemm.kernel_plan(device.target(), device.multiprocessors(), shape)?;
    Ok(plan.choice.candidates().map(|(tile, _)| job(gemm.clone().tile(tile))).collect())
}

/// Measures a kernel. The result is the time of each peer over its time.
fn measure(
    device: &Device,
    stream: &Arc<CudaStream>,
    job: &Job,
    rounds: usize,
    mut peer: Option<&mut Peer>,
) -> Result<Vec<(String, f64)>> {
    let Job { case, d, shape, gemm } = job;
    let plan = gemm.plan(device, *shape)?;
    let elements = shape.m * shape.n * shape.batch;
    let mut memory: Vec<(String, DType, bool, CudaSlice<u8>)> = Vec::new();
    for argument in case.epilogue.arguments() {
        if let Some(operand) = argument.role.operand() {
            let along = |axis, extent| if operand.axes.contains(axis) { extent } else { 1 };
            let bytes = operand.dtype.bytes(along(M, shape.m) * along(N, shape.n) * along(L, shape.batch));
            memory.push((argument.name.to_string(), operand.dtype, argument.role.is_written(), stream.alloc_zeros(bytes)?));
        }
    }
    let (a, mut b) = (stream.alloc_zeros::<u8>(2 * elements)?, stream.alloc_zeros::<u8>(2 * elements)?);
    let reads = memory.iter().filter(|(_, _, written, bytes)| !written && bytes.len() == 2 * elements).count() + 1;
    assert_eq!(reads, case.reads, "{}", case.epilogue);
    let mut launch = || -> Result<()> {
        let mut args = DeviceArgs::new().input("a", Tensor::of_device_bytes(*d, &a));
        for (name, dtype, written, bytes) in &mut memory {
            args = match written {
                true => args.output(name, Tensor::of_device_bytes(*dtype, bytes)),
                false => args.input(name, Tensor::of_device_bytes(*dtype, &*bytes)),
            };
        }
        Ok(plan.execute(stream, &mut args)?)
    };
    let bytes = (2 * elements * (case.reads + case.writes)) as f64;
    let (mut kernel, mut copy) = (Vec::new(), Vec::new());
    let mut peers: Vec<(String, Vec<f64>)> = Vec::new();
    if let Some(peer) = &mut peer {
        let case = json!({ "name": case.name, "m": shape.m, "n": shape.n, "dtype": d.to_string(), "launches": LAUNCHES });
        let answer = peer.prepare(&case)?;
        let names = answer["graphs"].as_array().into_iter().flatten().filter_map(|name| name.as_str());
        peers = names.map(|name| (name.to_owned(), Vec::new())).collect();
        for (name, fault) in answer["faults"].as_object().into_iter().flatten() {
            println!("  {name}: {fault}");
        }
    }
    for _ in 0..rounds {
        let ours = seconds(stream, &mut launch)?;
        kernel.push(bytes / ours / 1e9);
        for (name, ratios) in &mut peers {
            if let Some(peer) = &mut peer {
                ratios.push(peer.slice(name, 1)? / ours);
            }
        }
        let both = (4 * elements) as f64;
        copy.push(both / seconds(stream, &mut || Ok(stream.memcpy_dtod(&a, &mut b)?))? / 1e9);
    }
    let median = |figures: &mut Vec<f64>| {
        figures.sort_by(f64::total_cmp);
        figures[figures.len() / 2]
    };
    let (kernel, copy) = (median(&mut kernel), median(&mut copy));
    let peers: Vec<(String, f64)> = peers.into_iter().map(|(name, mut ratios)| (name, median(&mut ratios))).collect();
    let (name, tile, info) = (case.name, plan.kernel().plan.tile, &plan.kernel().cubin.info);
    println!(
        "{name:<20} {d:>5} {:>6} {copy:>9.0} {kernel:>9.0} {:>6.3}  {}{tile}, {} registers, {} kernel(s)",
        shape.n,
        kernel / copy,
        peers.iter().map(|(name, ratio)| format!("{name} {ratio:.3}, ")).collect::<String>(),
        info.registers,
        plan.kernel().before.len() + 1
    );
    Ok(peers)
}

/// What one of a round of launches takes.
fn seconds(stream: &Arc<CudaStream>, launch: &mut dyn FnMut() -> Result<()>) -> Result<f64> {
    launch()?;
    let start = stream.record_event(Some(CUevent_flags::CU_EVENT_DEFAULT))?;
    for _ in 0..LAUNCHES {
        launch()?;
    }
    let end = stream.record_event(Some(CUevent_flags::CU_EVENT_DEFAULT))?;
    Ok(f64::from(start.elapsed_ms(&end)?) / 1e3 / LAUNCHES as f64)
}
