//! What every benchmark on a GPU begins with and ends with, and what several of them measure with.

use postlude::cudarc::driver::sys::{CUevent_flags, CUgraphInstantiate_flags, CUstreamCaptureMode};
use postlude::cudarc::driver::{CudaGraph, CudaStream};
use postlude::device::Device;
use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

pub type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Runs a benchmark on the first GPU, with the program's arguments. Without a GPU or NVRTC it says so and does nothing.
pub fn on_gpu(run: impl FnOnce(&Device, &[String]) -> Result<()>) {
    let device = match Device::new(0) {
        Ok(device) => device,
        Err(error) => return println!("skipped: no GPU ({error})"),
    };
    if let Err(error) = postlude::jit::compiler() {
        return println!("skipped: NVRTC not found ({error})");
    }
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let Err(error) = run(&device, &args) {
        eprintln!("error: {error}");
        std::process::exit(1);
    }
}

/// Does all jobs, as many at once as there are processors: kernels are compiled so, that plans find them in the cache. A failure
/// shows where a kernel is needed.
pub fn at_once<T: Sync>(jobs: &[T], does: impl Fn(&T) + Sync) {
    let next = AtomicUsize::new(0);
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(jobs.len());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(job) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    does(job);
                }
            });
        }
    });
}

/// Rounds of a benchmark. Without `--bench` (as under `cargo test`) everything runs once, and nothing is measured.
pub fn rounds(args: &[String], rounds: usize) -> usize {
    if has(args, "--bench") { rounds } else { 1 }
}

/// Whether a word is among the arguments.
pub fn has(args: &[String], name: &str) -> bool {
    args.iter().any(|arg| arg == name)
}

/// The value of an option.
pub fn value<'a>(args: &'a [String], name: &str) -> Option<&'a String> {
    args.iter().position(|arg| arg == name).and_then(|at| args.get(at + 1))
}

/// The number that an option has.
pub fn number(args: &[String], name: &str) -> Option<usize> {
    value(args, name).and_then(|value| value.parse().ok())
}

/// A graph of so many launches. `run` enqueues the launch of a turn, and runs once before the capture.
pub fn captured(stream: &Arc<CudaStream>, launches: usize, mut run: impl FnMut(usize) -> Result<()>) -> Result<CudaGraph> {
    run(0)?;
    stream.synchronize()?;
    stream.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)?;
    let ran = (0..launches).try_for_each(run);
    let graph = stream.end_capture(CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH)?;
    ran?;
    graph.ok_or_else(|| "nothing was captured".into())
}

/// Seconds of one launch of a graph that has so many, over some repetitions behind one that is not counted.
pub fn timed(stream: &Arc<CudaStream>, graph: &CudaGraph, repeats: usize, launches: usize) -> Result<f64> {
    graph.launch()?;
    let start = stream.record_event(Some(CUevent_flags::CU_EVENT_DEFAULT))?;
    (0..repeats).try_for_each(|_| graph.launch())?;
    let end = stream.record_event(Some(CUevent_flags::CU_EVENT_DEFAULT))?;
    end.synchronize()?;
    Ok(f64::from(start.elapsed_ms(&end)?) / 1e3 / (repeats * launches) as f64)
}
