//! What a kernel costs before it runs: building, checking, planning, printing, hashing, compiling, and finding it again.
//!
//! `cargo bench --bench pipeline`. No GPU is needed; without NVRTC the compiler's part is left out.
#![allow(missing_docs, reason = "a benchmark")]

use criterion::{Criterion, criterion_group, criterion_main};
use postlude::build::recipes;
use postlude::ir::Order;
use postlude::jit::{Cache, Options, compiler};
use postlude::plan::Mainloop;
use postlude::prelude::*;
use postlude::target::Target;
use postlude::{Epilogue, Gemm};
use std::hint::black_box;
use std::time::Duration;

const SHAPE: Shape = Shape::new(4096, 4096, 4096);
const MULTIPROCESSORS: usize = 132;

fn bias_relu() -> Epilogue {
    recipes::bias_activation(F16, F16, |z| z.relu()).expect("a sound recipe")
}

fn two_regions() -> Epilogue {
    recipes::split_rows(F16, F16, |z| z.sigmoid(), |z| z.tanh()).expect("a sound recipe")
}

fn kernels() -> Vec<(&'static str, Gemm)> {
    let epilogue = bias_relu();
    vec![
        ("sm90a bias+relu", Gemm::new(F16, TN, &epilogue)),
        ("sm80 bias+relu", Gemm::new(F16, TN, &epilogue).mainloop(Mainloop::Sm80)),
        ("simt bias+relu", Gemm::new(F32, TT, &epilogue).mainloop(Mainloop::Simt)),
        ("pointwise bias+relu", Gemm::pointwise(F16, Order::RowMajor, &epilogue)),
        ("sm80 two regions", Gemm::new(F16, TN, &two_regions()).mainloop(Mainloop::Sm80)),
    ]
}

fn front(c: &mut Criterion) {
    c.bench_function("build and check: bias+relu", |b| b.iter(bias_relu));
    c.bench_function("build and check: two regions", |b| b.iter(two_regions));
    let graph = two_regions().graph().clone();
    c.bench_function("check: two regions", |b| b.iter(|| postlude::check::check(black_box(graph.clone()))));
    let text = two_regions().to_string();
    c.bench_function("read the text form: two regions", |b| b.iter(|| black_box(&text).parse::<Epilogue>()));
    for (name, gemm) in kernels() {
        c.bench_function(&format!("plan: {name}"), |b| {
            b.iter(|| gemm.kernel_plan(Target::SM_90A, MULTIPROCESSORS, black_box(SHAPE)))
        });
        let plan = gemm.kernel_plan(Target::SM_90A, MULTIPROCESSORS, SHAPE).expect("a plan");
        c.bench_function(&format!("render: {name}"), |b| b.iter(|| black_box(&plan).source()));
    }
}

fn back(c: &mut Criterion) {
    if let Err(error) = compiler() {
        println!("skipped: NVRTC not found ({error})");
        return;
    }
    let (target, options) = (Target::SM_90A, Options::new());
    let directory = tempfile::tempdir().expect("a scratch folder");
    for (name, gemm) in kernels() {
        let cold = || gemm.compile(&Cache::in_memory(), target, MULTIPROCESSORS, SHAPE).expect("a kernel");
        let kernel = cold();
        let info = &kernel.cubin.info;
        println!(
            "cold compile of {name}: {:.0} ms, {} registers, {} bytes of source, {} bytes of binary ({})",
            info.compile_ms.unwrap_or(f32::NAN),
            info.registers,
            kernel.source.text().len(),
            kernel.cubin.bytes.len(),
            info.compiler,
        );
        let mut slow = c.benchmark_group("cold");
        slow.sample_size(10).warm_up_time(Duration::from_millis(1)).measurement_time(Duration::from_secs(4));
        slow.bench_function(format!("compile: {name}"), |b| b.iter(cold));
        slow.finish();

        let root = directory.path().join(name.replace(' ', "-"));
        Cache::at(&root).compile(&kernel.source, &target, &options).expect("a kernel");
        c.bench_function(&format!("disk hit: {name}"), |b| {
            b.iter_with_setup(|| Cache::at(&root), |cache| cache.compile(&kernel.source, &target, &options));
        });
        let cache = Cache::in_memory();
        cache.compile(&kernel.source, &target, &options).expect("a kernel");
        c.bench_function(&format!("key: {name}"), |b| b.iter(|| cache.key(black_box(&kernel.source), &target, &options)));
        c.bench_function(&format!("memory hit: {name}"), |b| {
            b.iter(|| cache.compile(black_box(&kernel.source), &target, &options))
        });
        c.bench_function(&format!("plan to kernel, in memory: {name}"), |b| {
            b.iter(|| gemm.compile(&cache, target, MULTIPROCESSORS, black_box(SHAPE)));
        });
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default().warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_secs(1));
    targets = front, back
}
criterion_main!(benches);
