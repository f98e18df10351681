//! What a kernel costs from the graph to the binary, at every level of the cache. Needs no GPU.
//!
//! `cargo xtask bench-cache` runs this and makes the table and the chart of `docs/jit_cache.md`; `cargo bench --bench jit_cache -- TEXT`
//! runs what has TEXT in its name. Without NVRTC the compiler's part is left out, and says so.
#![allow(missing_docs, reason = "a benchmark")]

use criterion::{Criterion, SamplingMode};
use postlude::build::recipes;
use postlude::gemm::{Wanted, precompile};
use postlude::ir::Order;
use postlude::jit::{Cache, CacheStats, Options, compiler};
use postlude::plan::Mainloop;
use postlude::prelude::*;
use postlude::target::Target;
use std::hint::black_box;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const SHAPE: Shape = Shape::new(4096, 4096, 4096);
const TARGET: Target = Target::SM_90A;
const MULTIPROCESSORS: usize = 132;

/// Set in the processes that this one starts: the cache directory they use.
const CHILD: &str = "POSTLUDE_BENCH_CACHE";

/// Set in them as well: the mainloop of the kernel that they want.
const KERNEL: &str = "POSTLUDE_BENCH_KERNEL";

/// An epilogue of twenty nodes with two regions; each number gives another kernel.
fn twenty(number: usize) -> Epilogue {
    let epilogue = Epilogue::build(|e| {
        let z = e.acc() * e.scalar("alpha", F32) + e.load("bias", F16.over(N));
        let z = z + e.load("residual", F16) * (0.5 + number as f32);
        let first = e.row().lt(e.scalar("boundary", I32));
        let z = z.region(first, |z| z.sigmoid()).otherwise(|z| z.tanh());
        let z = z * e.load("scale", F32.over(M));
        e.store("d", z.abs().min(6.0), F16);
    });
    let epilogue = epilogue.expect("a sound epilogue");
    assert_eq!(epilogue.graph().len(), 20, "{epilogue}");
    epilogue
}

const MAINLOOPS: [&str; 5] = ["simt", "sm80", "sm90a", "pointwise", "gemv"];

/// The problem of a mainloop: one is for few rows or columns only.
fn shape(mainloop: &str) -> Shape {
    if mainloop == "gemv" { Shape { n: 4, ..SHAPE } } else { SHAPE }
}

fn mainloops(epilogue: &Epilogue) -> [(&'static str, Gemm); 5] {
    MAINLOOPS.map(|name| (name, mainloop(name, epilogue)))
}

fn mainloop(name: &str, epilogue: &Epilogue) -> Gemm {
    match name {
        "simt" => Gemm::new(F32, TT, epilogue).mainloop(Mainloop::Simt),
        "sm80" => Gemm::new(F16, TN, epilogue).mainloop(Mainloop::Sm80),
        "sm90a" => Gemm::new(F16, TN, epilogue).mainloop(Mainloop::Sm90a),
        "gemv" => Gemm::new(F16, TN, epilogue).mainloop(Mainloop::Gemv),
        _ => pointwise(epilogue),
    }
}

fn pointwise(epilogue: &Epilogue) -> Gemm {
    Gemm::pointwise(F16, Order::RowMajor, epilogue)
}

/// From the graph to the text.
fn front(c: &mut Criterion) {
    c.benchmark_group("build and check").bench_function("all", |b| b.iter(|| twenty(black_box(0))));
    let epilogue = twenty(0);
    let graph = epilogue.graph().clone();
    c.benchmark_group("check").bench_function("all", |b| b.iter(|| postlude::check::check(black_box(graph.clone()))));
    for (name, gemm) in mainloops(&epilogue) {
        let plan = || gemm.kernel_plan(TARGET, MULTIPROCESSORS, black_box(shape(name))).expect("a plan");
        c.benchmark_group("plan").bench_function(name, |b| b.iter(plan));
        let planned = plan();
        c.benchmark_group("render").bench_function(name, |b| b.iter(|| black_box(&planned).source()));
    }
}

/// The text, hashed and found.
fn hits(c: &mut Criterion, directory: &Path) {
    let options = Options::new();
    for (name, gemm) in mainloops(&twenty(0)) {
        let root = directory.join(name);
        let kernel = gemm.compile(&Cache::at(&root), TARGET, MULTIPROCESSORS, shape(name)).expect("a kernel");
        let info = &kernel.cubin.info;
        println!(
            "{name}: {} registers, {} bytes of source, {} bytes of binary",
            info.registers,
            kernel.source.text().len(),
            kernel.cubin.bytes.len()
        );
        let cache = Cache::in_memory();
        c.benchmark_group("key").bench_function(name, |b| b.iter(|| cache.key(black_box(&kernel.source), &TARGET, &options)));
        c.benchmark_group("graph to key").bench_function(name, |b| {
            b.iter(|| {
                let gemm = mainloop(name, &twenty(black_box(0)));
                let source = gemm.kernel_plan(TARGET, MULTIPROCESSORS, shape(name)).expect("a plan").source().expect("a source");
                cache.key(&source, &TARGET, &options)
            });
        });
        c.benchmark_group("disk hit").bench_function(name, |b| {
            b.iter_with_setup(|| Cache::at(&root), |cache| cache.compile(&kernel.source, &TARGET, &options));
        });
        let cache = Cache::at(&root);
        let ask = || gemm.compile(&cache, TARGET, MULTIPROCESSORS, black_box(shape(name))).expect("a kernel");
        assert!(std::sync::Arc::ptr_eq(&ask().plan, &ask().plan));
        c.benchmark_group("memory hit").bench_function(name, |b| b.iter(ask));
        c.benchmark_group("memory hit by source").bench_function(name, |b| {
            b.iter(|| cache.compile(black_box(&kernel.source), &TARGET, &options));
        });
    }
}

/// Bias, exact gelu above a row and tanh below it, times a matrix: the recipe that takes the compiler longest.
fn heavy() -> Epilogue {
    let epilogue = Epilogue::build(|e| {
        let z = e.acc() + e.load("bias", F16.over(N));
        let first = e.row().lt(e.scalar("boundary", I32));
        let z = z.region(first, |z| z.gelu_erf()).otherwise(|z| z.tanh());
        e.store("d", z * e.load("aux", F16), F16);
    });
    epilogue.expect("a sound epilogue")
}

/// NVRTC: each mainloop, and many epilogues on several threads.
fn cold(c: &mut Criterion) {
    let slow = |c: &mut Criterion, name: &str, gemms: &[(&str, Gemm)]| {
        let mut group = c.benchmark_group(name);
        group.sampling_mode(SamplingMode::Flat).sample_size(10).warm_up_time(Duration::from_millis(1));
        for (name, gemm) in gemms {
            group.bench_function(*name, |b| {
                b.iter(|| gemm.compile(&Cache::in_memory(), TARGET, MULTIPROCESSORS, shape(name)).expect("a kernel"));
            });
        }
        group.finish();
    };
    slow(c, "cold compile", &mainloops(&twenty(0)));
    slow(c, "cold, bias and relu", &mainloops(&bias_and_relu()));
    slow(c, "cold, heavy", &[("sm90a", mainloop("sm90a", &heavy()))]);
    let mut group = c.benchmark_group("cold compile");
    group.sampling_mode(SamplingMode::Flat).sample_size(10).warm_up_time(Duration::from_millis(1));
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let mut threads = vec![1, 2, cores];
    threads.sort_unstable();
    threads.dedup();
    for count in [1, 8, 64] {
        let wanted: Vec<Wanted> = (0..count)
            .map(|number| Wanted {
                gemm: pointwise(&twenty(number)),
                target: TARGET,
                gpu: MULTIPROCESSORS.into(),
                problem: SHAPE.into(),
            })
            .collect();
        for &threads in threads.iter().filter(|&&threads| threads <= count) {
            group.bench_function(format!("{count} epilogues, {threads} threads"), |b| {
                b.iter(|| {
                    let cache = Cache::in_memory();
                    let kernels = precompile(&cache, &wanted, threads, |_, _| ());
                    assert!(kernels.iter().all(Result::is_ok));
                    let CacheStats { compiles, .. } = cache.stats();
                    assert_eq!(compiles, count as u64, "each is another kernel");
                });
            });
        }
    }
    group.finish();
}

fn bias_and_relu() -> Epilogue {
    recipes::bias_activation(F16, F16, |z| z.relu()).expect("a sound epilogue")
}

/// The body of the processes below: one kernel, from the environment's directory.
fn child(directory: &Path, kernel: &str) {
    let epilogue = if kernel == "pointwise" { twenty(0) } else { bias_and_relu() };
    let gemm = mainloop(kernel, &epilogue);
    gemm.compile(&Cache::at(directory), TARGET, MULTIPROCESSORS, shape(kernel)).expect("a kernel");
}

fn run(count: usize, directory: &Path, kernel: &str) -> Duration {
    let program = std::env::current_exe().expect("this program");
    let start = Instant::now();
    let process = |_| Command::new(&program).env(CHILD, directory).env(KERNEL, kernel).stdout(Stdio::null()).spawn();
    let children: Vec<_> = (0..count).map(|number| process(number).expect("a process")).collect();
    for mut child in children {
        assert!(child.wait().expect("its end").success());
    }
    start.elapsed()
}

/// From the start of one process, or of eight, until the last one has its kernel and ends.
fn processes(c: &mut Criterion, directory: &Path) {
    for (name, processes, kernel) in [("one process", 1, "sm90a"), ("eight processes", 8, "pointwise")] {
        let mut group = c.benchmark_group(name);
        group.sampling_mode(SamplingMode::Flat).sample_size(10).warm_up_time(Duration::from_millis(1));
        group.bench_function("cold", |b| {
            b.iter_custom(|count| {
                let one = |_| {
                    let fresh = tempfile::tempdir_in(directory).expect("a scratch folder");
                    run(processes, &fresh.path().join("cache"), kernel)
                };
                (0..count).map(one).sum()
            });
        });
        let warm = directory.join("warm").join(kernel);
        run(1, &warm, kernel);
        group.bench_function("warm", |b| b.iter_custom(|count| (0..count).map(|_| run(processes, &warm, kernel)).sum()));
        group.finish();
    }
}

fn main() {
    if let Some(directory) = std::env::var_os(CHILD) {
        let kernel = std::env::var(KERNEL).expect("a kernel's mainloop");
        return child(Path::new(&directory), &kernel);
    }
    let mut c = Criterion::default()
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1))
        .configure_from_args();
    front(&mut c);
    match compiler() {
        Ok(compiler) => {
            println!("compiler: {}", compiler.identity);
            let directory = tempfile::tempdir().expect("a scratch folder");
            hits(&mut c, directory.path());
            cold(&mut c);
            processes(&mut c, directory.path());
        }
        Err(error) => println!("skipped: NVRTC not found ({error})"),
    }
    c.final_summary();
}
