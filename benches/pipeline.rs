//! From a closure to a kernel, on the CPU: what each step takes, and what a compile takes cold and from the caches.
//!
//! `cargo bench --bench pipeline`. The cold compiles need NVRTC; without it they are left out, and that is said.

use criterion::{Criterion, criterion_group, criterion_main};
use postlude::build::recipes;
use postlude::check::check;
use postlude::jit::{Cache, Options};
use postlude::prelude::*;
use postlude::target::Target;
use postlude::{Gemm, emit};
use std::hint::black_box;
use std::time::{Duration, Instant};

/// A product with a bias, the sigmoid above a boundary and the tanh below, and a residual.
fn epilogue() -> Epilogue {
    Epilogue::build(|e| {
        let z = e.acc() + e.load("bias", F16.over(N));
        let y = z.region(e.row().lt(e.scalar("boundary", I32)), |z| z.sigmoid()).otherwise(|z| z.tanh());
        e.store("d", y + e.load("residual", F16), F16);
    })
    .expect("the epilogue is valid")
}

const SHAPE: Shape = Shape::new(4096, 4096, 4096);

fn front(criterion: &mut Criterion) {
    let built = epilogue();
    let gemm = Gemm::new(F16, TN, &built);
    let plan = gemm.kernel(Target::SM_90A, 132, SHAPE).expect("there is a plan");
    let json = built.to_json();
    let mut group = criterion.benchmark_group("front");
    group.bench_function("build and check", |b| b.iter(epilogue));
    group.bench_function("check", |b| b.iter(|| check(black_box(built.graph().clone()))));
    group.bench_function("read JSON", |b| b.iter(|| Epilogue::from_json(black_box(&json), &postlude::build::registry())));
    group.bench_function("plan", |b| b.iter(|| gemm.kernel(Target::SM_90A, 132, black_box(SHAPE))));
    group.bench_function("render", |b| b.iter(|| emit::render(black_box(&plan))));
    group.finish();
}

fn compile(criterion: &mut Criterion) {
    if let Err(why) = postlude::jit::compiler() {
        return println!("skipped: the compile benchmarks need NVRTC: {why}");
    }
    let relu = |dtype| recipes::bias_activation(dtype, dtype, |z| z.relu()).expect("a recipe is valid");
    let kernels = [
        ("sm80 f16 TN bias relu", Gemm::new(F16, TN, &relu(F16))),
        ("sm80 f16 TT bias relu", Gemm::new(F16, TT, &relu(F16))),
        ("sm80 f16 TN regions, residual", Gemm::new(F16, TN, &epilogue())),
        ("simt f32 TN bias relu", Gemm::new(F32, TN, &relu(F32))),
        ("pointwise f16 bias relu", Gemm::pointwise(F16, postlude::ir::Order::RowMajor, &relu(F16))),
    ];
    println!("\ncold compiles for sm_90a, milliseconds: least and median of 9");
    for (name, gemm) in &kernels {
        let mut times: Vec<f64> = (0..9)
            .map(|_| {
                let cache = Cache::in_memory();
                let start = Instant::now();
                gemm.compile(&cache, Target::SM_90A, 132, SHAPE).expect("the kernel compiles");
                start.elapsed().as_secs_f64() * 1e3
            })
            .collect();
        times.sort_by(f64::total_cmp);
        println!("  {name:<32} {:>6.0} {:>6.0}", times[0], times[4]);
    }
    let (_, gemm) = &kernels[0];
    let mut group = criterion.benchmark_group("compile");
    group.sample_size(10).measurement_time(Duration::from_secs(3));
    let source = gemm.kernel(Target::SM_90A, 132, SHAPE).expect("there is a plan").source().expect("it renders");
    let memory = Cache::in_memory();
    group.bench_function("key", |b| b.iter(|| memory.key(black_box(&source), &Target::SM_90A, &Options::new())));
    memory.compile(&source, &Target::SM_90A, &Options::new()).expect("the kernel compiles");
    group.bench_function("memory hit", |b| b.iter(|| memory.compile(black_box(&source), &Target::SM_90A, &Options::new())));
    let folder = tempfile::tempdir().expect("there is room for a cache");
    Cache::at(folder.path()).compile(&source, &Target::SM_90A, &Options::new()).expect("the kernel compiles");
    group.bench_function("disk hit", |b| {
        b.iter(|| Cache::at(folder.path()).compile(black_box(&source), &Target::SM_90A, &Options::new()));
    });
    group.finish();
}

criterion_group!(benches, front, compile);
criterion_main!(benches);
