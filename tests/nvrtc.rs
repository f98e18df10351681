//! Kernels through the real compiler, without a GPU: no spills, no performance warnings, registers known, products that
//! wait for no descriptors.
//!
//! Without NVRTC these tests say that they are skipped; with `POSTLUDE_REQUIRE_NVRTC=1` they fail instead.
#![allow(missing_docs, reason = "a test binary")]

#[path = "support/compiler.rs"]
mod compiler;
#[path = "support/monoids.rs"]
mod monoids;
#[path = "support/sass.rs"]
#[allow(dead_code, reason = "each test crate uses its part")]
mod sass;
#[path = "support/softcap.rs"]
mod softcap;

use compiler::nvrtc;
use postlude::build::{activation, recipes};
use postlude::compat::cublaslt;
use postlude::dtype::ValueType;
use postlude::gemm::Kernel;
use postlude::grad::Wrt;
use postlude::ir::{Graph, Node, Operand, Order, Sink, SinkKind};
use postlude::jit::{Cache, JitError, Options, Source};
use postlude::plan::{InstrKind, Mainloop, Math, Problem, Schedule, Tile, TileShape};
use postlude::prelude::*;
use postlude::target::Target;
use postlude::{
    Attention, Blocks, Convolution, CustomOp, Epilogue, Error, Gemm, GradientOf, Operation, PoolKind, Pooling, Scores,
};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A kernel to compile.
struct Job {
    name: String,
    gemm: Gemm,
    problem: Problem,
    target: Target,
}

fn job(name: impl Into<String>, gemm: Gemm, problem: impl Into<Problem>, target: Target) -> Job {
    Job { name: name.into(), gemm, problem: problem.into(), target }
}

/// Extents that make every access as wide as it gets, and as narrow.
const ALIGNED: Shape = Shape::new(4096, 4096, 4096);
const ODD: Shape = Shape::new(4095, 4097, 4099);

/// The fault of a kernel, if any.
fn fault(job: &Job) -> Option<String> {
    let kernel = match job.gemm.compile(Cache::global(), job.target, 132, job.problem.clone()) {
        Ok(kernel) => kernel,
        Err(error) => return Some(format!("{error}")),
    };
    let mut kernels = [&kernel].into_iter().chain(kernel.split.iter().chain(&kernel.before).map(|kernel| &**kernel));
    kernels.find_map(|kernel| wrong(&job.name, kernel))
}

fn wrong(name: &str, kernel: &Kernel) -> Option<String> {
    let Kernel { plan, cubin, .. } = kernel;
    let info = &cubin.info;
    let warnings: Vec<&str> = info.performance_warnings().collect();
    let relaxed = plan.choice.chosen().is_some_and(|(tile, _)| tile.min_blocks != plan.tile.min_blocks);
    let limit = 65536 / plan.tile.threads.max(1);
    let spilled = info.spill_store_bytes + info.spill_load_bytes;
    if spilled > plan.tolerated_spills() || !warnings.is_empty() || info.registers == 0 || info.registers as usize > limit {
        return Some(format!("{warnings:?}\n{}", kernel.explain()));
    }
    // The assembler leaves products out that no epilogue reads.
    let multiplies = plan.program.steps.iter().any(|step| matches!(step.kind, InstrKind::Accumulator));
    if let (TileShape::Sm90a { .. }, true) = (plan.tile.shape, multiplies) {
        match sass::copies_between_products(&cubin.bytes) {
            Some(0) => {}
            Some(copies) => return Some(format!("{copies} registers copied between products\n{}", kernel.explain())),
            None => return Some(format!("no products in the code\n{}", kernel.explain())),
        }
    }
    if relaxed {
        println!("{name}: {} now for {} block(s) a multiprocessor", plan.tile, plan.tile.min_blocks);
    }
    None
}

/// Which kernels are compiled: `2/5` takes the third of every five. All of them if the variable is not set.
const SAMPLE: &str = "POSTLUDE_TEST_KERNELS";

/// The kernels that are compiled.
fn sample(jobs: &[Job]) -> Vec<&Job> {
    let Ok(asked) = std::env::var(SAMPLE) else { return jobs.iter().collect() };
    let numbers = asked.split_once('/').and_then(|(first, of)| Some((first.parse().ok()?, of.parse().ok()?)));
    let Some((first, of)) = numbers.filter(|(first, of)| first < of) else { panic!("{SAMPLE} is `{asked}`, not as `2/5`") };
    let few: Vec<&Job> = jobs.iter().skip(first).step_by(of).collect();
    let few = if few.is_empty() { jobs.iter().take(1).collect() } else { few };
    println!("a sample: {} of {} kernels", few.len(), jobs.len());
    few
}

/// Compiles everything on all cores.
fn run(jobs: &[Job]) {
    if !nvrtc() {
        return;
    }
    let jobs = sample(jobs);
    let next = AtomicUsize::new(0);
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    let failures: Vec<String> = std::thread::scope(|scope| {
        let work = || {
            let mut found = Vec::new();
            while let Some(job) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
                if let Some(fault) = fault(job) {
                    found.push(format!("{} for {}: {fault}", job.name, job.target));
                }
            }
            found
        };
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    assert!(failures.is_empty(), "{} of {} kernels:\n{}", failures.len(), jobs.len(), failures.join("\n"));
}

const TARGETS: [Target; 2] = [Target::SM_80, Target::SM_90A];

#[test]
fn the_struct_lies_as_the_block() {
    if !nvrtc() {
        return;
    }
    // Fields of every width, in an order that leaves gaps.
    let epilogue = Epilogue::build(|e| {
        let on = e.scalar("on", Bool);
        let z = e.acc() * e.scalar("alpha", F32) + e.load("row", F16.over(M)) + e.load("c", F32.over(M | N).batched());
        e.store("d", on.select(z, e.acc()), F16)
    })
    .unwrap();
    for gemm in [Gemm::new(F16, TN, &epilogue), Gemm::new(F32, TT, &epilogue), Gemm::pointwise(F16, Order::RowMajor, &epilogue)] {
        let plan = gemm.kernel_plan(Target::SM_90A, 132, ALIGNED).unwrap();
        let source = plan.source().unwrap();
        let mut text = format!("{}static_assert(sizeof(Params) == {}, \"\");\n", source.text(), plan.params.size);
        // NVRTC has no `offsetof`; a member lies at the next multiple of its alignment behind the one before.
        let mut end = 0;
        for field in &plan.params.fields {
            let (name, offset, size) = (&field.value, field.offset, field.field_type.size());
            text += &format!("static_assert(sizeof(Params::{name}) == {size}, \"\");\n");
            let align = format!("alignof(decltype(Params::{name}))");
            text += &format!("static_assert(({end} + {align} - 1) / {align} * {align} == {offset}, \"\");\n");
            end = offset + size;
        }
        let asserted = Source::new(text, source.entry());
        Cache::global().compile(&asserted, &Target::SM_90A, &Options::new()).unwrap_or_else(|e| panic!("{e}\n{:?}", plan.params));
    }
}

#[test]
fn every_layout_format_and_alignment() {
    let mut jobs = Vec::new();
    for (i, layout) in Layout::ALL.into_iter().enumerate() {
        for (dtype, d, mainloop) in [
            (F16, F16, Mainloop::Sm80),
            (BF16, F32, Mainloop::Sm80),
            (F32, BF16, Mainloop::Sm80),
            (F32, F32, Mainloop::Simt),
            (F16, F32, Mainloop::Simt),
        ] {
            let epilogue = recipes::residual(d, d, |z| z.relu()).unwrap();
            let gemm = Gemm::new(dtype, layout, &epilogue).tf32(true).mainloop(mainloop);
            for (j, bytes) in [16, 8, 4, 2].into_iter().enumerate() {
                let problem = Problem::from(ALIGNED).align("a", bytes).align("b", bytes).align("d", bytes);
                let name = format!("{mainloop} {dtype} {layout} at {bytes}");
                if bytes >= dtype.size() {
                    jobs.push(job(name, gemm.clone(), problem, TARGETS[(i + j) % 2]));
                }
            }
        }
        let integer = Epilogue::build(|e| e.store("d", e.acc_i32() + e.load("bias", I32.over(N)), I32)).unwrap();
        jobs.push(job(format!("i32 {layout}"), Gemm::new(I32, layout, &integer), ALIGNED, TARGETS[i % 2]));
    }
    run(&jobs);
}

#[test]
fn copies_of_unaligned_operands() {
    if !nvrtc() {
        return;
    }
    for dtype in [F16, BF16] {
        let gemm = Gemm::new(dtype, TN, &recipes::identity(dtype).unwrap());
        let kernel = gemm.compile(Cache::global(), Target::SM_90A, 132, ODD).unwrap();
        let (source, cubin) = kernel.repack.as_ref().expect("nothing of it is aligned");
        assert!(source.text().contains(source.entry()));
        assert!(!cubin.info.spills() && cubin.info.stack_bytes == 0 && cubin.info.registers > 0, "{:?}", cubin.info);
        assert!(!kernel.cubin.info.spills(), "{}", kernel.explain());
    }
}

#[test]
fn parts_of_k() {
    let mut jobs = Vec::new();
    for (i, (dtype, d)) in [(F16, F16), (BF16, F32), (F32, F32)].into_iter().enumerate() {
        let epilogue = recipes::residual(d, d, |z| z.gelu()).unwrap();
        for (j, parts) in [2, 5, 16, 64].into_iter().enumerate() {
            let gemm = Gemm::new(dtype, Layout::ALL[(i + j) % 4], &epilogue).split_k(parts);
            for bytes in [16, dtype.size()] {
                let problem = Problem::new(264, 392, 5120).align("a", bytes).align("d", bytes);
                jobs.push(job(format!("{dtype} in {parts} parts at {bytes}"), gemm.clone(), problem, TARGETS[(i + j) % 2]));
            }
        }
    }
    run(&jobs);
}

/// Images that come through maps, in pieces of every width, and in groups that share a tile, behind plain and long epilogues.
/// An epilogue behind a gradient, with a sum down the columns or one of dY.
fn silu_of_sum(of: GradientOf) -> Epilogue {
    let epilogue = Epilogue::build(|e| {
        let z = e.acc() * e.load("saved", F16).silu();
        e.store("d", z, F16);
        match of {
            GradientOf::Images => e.reduce("sums", z, Monoid::Sum, F32.over(N)),
            GradientOf::Filters => e.reduce("sums", e.a(), Monoid::Sum, F32.over(M | L)),
        }
    });
    epilogue.unwrap()
}

#[test]
fn convolutions() {
    let mut jobs = Vec::new();
    let base = ConvShape::new(32, [28, 28, 128], [128, 3, 3]).padding([1, 1]);
    for (name, shape) in [
        ("aligned", base),
        ("64 channels", ConvShape { channels: 64, filters: 64, ..base }),
        ("short wave", ConvShape { images: 8, filters: 512, ..base }),
        ("strided", base.stride([2, 2])),
        ("few channels", ConvShape { channels: 3, ..base }.stride([2, 2])),
        ("even channels", ConvShape { channels: 20, ..base }),
        ("groups", base.groups(2)),
        ("depthwise", base.groups(128)),
    ] {
        let residual = recipes::conv_bn_add_relu(1e-5, F16).unwrap();
        let silu = recipes::bias_activation(F16, F16, |z| z.silu()).unwrap();
        for (target, mainloop) in [
            (Target::SM_80, None),
            (Target::SM_90A, None),
            (Target::SM_90A, Some(Mainloop::Sm80)),
            (Target::SM_80, Some(Mainloop::Simt)),
        ] {
            for epilogue in [&residual, &silu] {
                let conv = Conv::new(F16, shape, epilogue).unwrap();
                let conv = conv.prefer(|gemm| mainloop.map_or(gemm.clone(), |mainloop| gemm.mainloop(mainloop)));
                jobs.push(job(format!("convolution, {name}"), conv.gemm().clone(), conv.shape(), target));
            }
            for of in [GradientOf::Images, GradientOf::Filters] {
                let conv = Conv::gradient(F16, Convolution::new(shape).unwrap(), of, &silu_of_sum(of));
                let conv = conv.prefer(|gemm| mainloop.map_or(gemm.clone(), |mainloop| gemm.mainloop(mainloop)));
                jobs.push(job(format!("gradient of {of}, {name}"), conv.gemm().clone(), conv.shape(), target));
            }
        }
    }
    run(&jobs);
}

/// A filter for each channel, windows in the middle.
fn depthwise(size: usize, channels: usize, window: usize) -> ConvShape {
    let shape = ConvShape::new(32, [size, size, channels], [channels, window, window]);
    shape.padding([window / 2; 2]).groups(channels)
}

/// Filters of one channel, on lines in shared memory, in every sixth tile that was considered.
#[test]
fn filters_of_one_channel() {
    let shapes = [
        depthwise(112, 32, 3),
        depthwise(56, 144, 3),
        depthwise(14, 512, 3),
        depthwise(28, 240, 5),
        depthwise(56, 144, 5).stride([2, 2]),
        depthwise(56, 96, 7),
    ];
    let mut jobs = Vec::new();
    for (shape, dtype) in shapes.into_iter().flat_map(|shape| [(shape, F16), (shape, F32)]) {
        let epilogue = recipes::bias_activation(dtype, dtype, |z| z.silu()).unwrap();
        let conv = Conv::new(dtype, shape, &epilogue).unwrap();
        let plan = conv.kernel_plan(Target::SM_90A, 132).unwrap();
        assert_eq!(plan.mainloop(), Mainloop::DepthwiseLines, "{}", plan.explain());
        for (tile, _) in plan.choice.candidates().step_by(6) {
            let conv = conv.clone().prefer(|gemm| gemm.tile(tile));
            jobs.push(job(format!("{tile}, {shape}"), conv.gemm().clone(), conv.shape(), Target::SM_90A));
        }
        let epilogue = silu_of_sum(GradientOf::Images);
        let conv = Conv::gradient(F16, Convolution::new(shape).unwrap(), GradientOf::Images, &epilogue);
        jobs.push(job(format!("gradient of images, {shape}"), conv.gemm().clone(), conv.shape(), Target::SM_90A));
    }
    // A step makes pixels of all residues.
    for (shape, dtype) in [(depthwise(112, 64, 3), F16), (depthwise(28, 256, 3), F32), (depthwise(56, 144, 5), F16)] {
        let convolution = Convolution::new(shape.stride([2, 2])).unwrap();
        for epilogue in [silu_of_sum(GradientOf::Images), recipes::identity(dtype).unwrap()] {
            let conv = Conv::gradient(dtype, convolution, GradientOf::Images, &epilogue);
            let plan = conv.kernel_plan(Target::SM_90A, 132).unwrap();
            for (tile, _) in plan.choice.candidates().step_by(6) {
                let conv = conv.clone().prefer(|gemm| gemm.tile(tile));
                jobs.push(job(format!("{tile}, gradient of {shape} by 2"), conv.gemm().clone(), conv.shape(), Target::SM_90A));
            }
        }
    }
    run(&jobs);
}

/// Gradients of filters of one channel and of few, on the chosen tiles.
#[test]
fn gradients_of_small_filters() {
    let epilogue = recipes::identity(F16).unwrap();
    let few = |channels: usize, filters: usize, window: usize| {
        ConvShape::new(32, [224, 224, channels], [filters, window, window]).padding([window / 2; 2])
    };
    let shapes = [
        depthwise(112, 32, 3),
        depthwise(112, 64, 3).stride([2, 2]),
        depthwise(14, 512, 3),
        depthwise(28, 240, 5),
        depthwise(56, 96, 7),
        few(3, 64, 7).stride([2, 2]),
        few(3, 64, 3),
        few(4, 64, 7).stride([2, 2]),
    ];
    let jobs = shapes.map(|shape| {
        let conv = Conv::filter_gradient(F16, shape, &epilogue).unwrap();
        job(format!("gradient of filters, {shape}"), conv.gemm().clone(), conv.shape(), Target::SM_90A)
    });
    run(&jobs);
}

#[test]
fn pools() {
    let mut jobs = Vec::new();
    for (dtype, channels) in [(F16, 64), (F16, 5), (BF16, 20), (F32, 40), (F32, 3)] {
        let base = ConvShape::windows(3, [14, 14, channels], [3, 3]).stride([2, 2]).padding([1, 1]);
        for windows in [base, ConvShape { window: [14, 14], padding: [0; 4], ..base }] {
            for kind in [PoolKind::Max, PoolKind::Average, PoolKind::AverageOfTaps] {
                let pooling = Pooling::new(kind, windows).unwrap();
                let epilogue = recipes::bias_activation(F32, dtype, |z| z.silu()).unwrap();
                for target in [Target::SM_80, Target::SM_90A] {
                    let name = format!("pool of {dtype}, {pooling}");
                    jobs.push(job(name, Gemm::pool(dtype, pooling, &epilogue), pooling.shape(), target));
                }
            }
        }
    }
    run(&jobs);
}

/// Functions of scores on every tile of both ways to multiply: without a spill.
#[test]
fn functions_of_scores() {
    let functions = [
        Scores::build(|s| s.acc()),
        Scores::build(|s| (s.acc() / 30.0).tanh() * 30.0),
        Scores::build(|s| s.acc() + s.load("slopes", F32.over(L)) * (s.column() - s.row()).cast(F32)),
        Scores::build(|s| {
            let back = s.row() - s.column();
            (back.ge(0) & back.lt(s.scalar("window", I32))).select(s.acc(), f32::NEG_INFINITY)
        }),
        Scores::build(|s| s.load("seen", Bool.over(N | S)).select(s.acc() + s.load("bias", F16), f32::NEG_INFINITY)),
    ];
    let mut jobs = Vec::new();
    for (i, function) in functions.into_iter().enumerate() {
        let function = function.unwrap();
        for (target, width) in TARGETS.into_iter().flat_map(|target| [(target, 64), (target, 128)]) {
            let of = Attention::new(width).sequences(2).scores(&function);
            let gemm = Gemm::attention(F16, of, &recipes::identity(F16).unwrap());
            let shape = Shape::new(2 * 2048, width, 2 * 2048).batched(16);
            let first = gemm.kernel_plan(target, 132, shape).unwrap();
            for (tile, _) in first.choice.candidates() {
                jobs.push(job(format!("{i}, {tile}"), gemm.clone().tile(tile), shape, target));
            }
        }
    }
    run(&jobs);
}

#[test]
fn few_rows() {
    let mut jobs = Vec::new();
    for layout in Layout::ALL {
        for (dtype, d) in [(F16, F16), (BF16, F32), (F32, F32)] {
            let epilogue = recipes::residual(d, d, |z| z.silu()).unwrap();
            let gemm = Gemm::new(dtype, layout, &epilogue);
            for (i, m) in [1, 2, 4].into_iter().enumerate() {
                for n in [4096, 14336] {
                    for (j, bytes) in [16, 2].into_iter().enumerate().filter(|(_, bytes)| *bytes >= dtype.size()) {
                        let problem = Problem::new(m, n, 4096).align("a", bytes).align("b", bytes).align("d", bytes);
                        let name = format!("gemv {dtype} {layout} {m}x{n} at {bytes}");
                        jobs.push(job(name, gemm.clone(), problem, TARGETS[(i + j) % 2]));
                    }
                }
            }
        }
    }
    run(&jobs);
}

#[test]
fn every_tile_that_is_chosen() {
    // Extents from a single tile to a full device: each makes another choice.
    let epilogue = recipes::split_rows(F16, F16, |z| z.sigmoid(), |z| z.tanh()).unwrap();
    let gemms = [
        Gemm::new(F16, TN, &epilogue),
        Gemm::new(F32, NT, &epilogue).tf32(true),
        Gemm::new(F32, TT, &epilogue),
        Gemm::pointwise(F16, Order::RowMajor, &epilogue),
    ];
    let mut jobs = Vec::new();
    for gemm in gemms {
        for extent in [16, 384, 1024, 2048, 8192] {
            let shape = Shape::new(extent, extent, 512);
            for target in TARGETS {
                jobs.push(job(format!("{:?} {extent}", gemm.operation()), gemm.clone(), shape, target));
            }
        }
    }
    run(&jobs);
}

/// Tiles that pass through shared memory in halves, delayed stores, and cluster 1x2, which few of the shapes above
/// take; some of them with blocks in lockstep.
#[test]
fn rare_ways_out_and_pairs_along_n() {
    let mixed = Epilogue::build(|e| {
        let z = e.acc() + e.load("bias", F16.over(N)) + e.load("c", F32) * e.load("aux", BF16.column_major());
        e.store("d", z, F32);
        e.store("t", z.tanh(), F16.column_major());
    });
    let epilogues = [mixed, recipes::identity(F16), recipes::residual(F16, F16, |z| z.gelu_tanh())].map(Result::unwrap);
    let mut jobs = Vec::new();
    for (i, epilogue) in epilogues.iter().enumerate() {
        let first = Gemm::new(F16, TN, epilogue).kernel_plan(Target::SM_90A, 132, ALIGNED).unwrap();
        for (j, (tile, _)) in first.choice.candidates().enumerate() {
            let gemm = Gemm::new([F16, BF16][j % 2], Layout::ALL[(i + j) % 4], epilogue).tile(tile).lockstep(j % 3 == 0);
            let staging = gemm.kernel_plan(Target::SM_90A, 132, ALIGNED).unwrap().staging;
            let rare = staging.is_some_and(|s| s.delayed_store || !s.chunk.is_power_of_two());
            if rare || matches!(tile.shape, TileShape::Sm90a { cluster: [1, 2], .. }) {
                jobs.push(job(format!("{i}, {tile}"), gemm, ALIGNED, Target::SM_90A));
            }
        }
    }
    assert!(
        jobs.len() >= 3 * 10 + 6,
        "of three epilogues four tiles in halves, alone and in pairs, and two in pairs along N; of one three with \
         delayed stores: {}",
        jobs.len()
    );
    run(&jobs);
}

/// Few rows: every kind of tile that is made for such a problem, behind epilogues that stage, reduce, branch and pack.
#[test]
fn few_rows_behind_wide_weights() {
    let mixed = Epilogue::build(|e| {
        let z = e.acc() * e.load("scale", F32.over(M)) + e.load("bias", F16.over(N));
        let banded = z.region(e.row().lt(e.scalar("boundary", I32)), |z| z.sigmoid()).otherwise(|z| z.gelu_tanh());
        e.store("d", banded * e.load("c", F16), F16);
        e.store("z", z, F32.column_major());
    });
    let summed = Epilogue::build(|e| {
        let z = e.acc() + e.load("bias", F16.over(N));
        e.store("positive", z.gt(0.0), Bits8);
        e.store("d", z.relu(), F16);
        e.reduce("sums", z, Monoid::Sum, F32.over(N));
        e.reduce("largest", z, Monoid::Max, F32.over(M));
    });
    let epilogues = [mixed, summed, recipes::identity(F16), recipes::bias_activation(F16, F16, |z| z.relu())].map(Result::unwrap);
    let shapes = [[48, 3584, 18944], [96, 4096, 14336], [192, 8192, 8192], [64, 28672, 8192], [24, 9216, 4608], [8, 4096, 4096]];
    let mut jobs = Vec::new();
    let mut split = 0;
    for (i, [m, n, k]) in shapes.into_iter().enumerate() {
        for (j, epilogue) in epilogues.iter().enumerate() {
            let shape = Shape::new(m, n, k);
            let gemm = Gemm::new([F16, BF16][i % 2], Layout::ALL[(i + j) % 4], epilogue)
                .constant_operands((j % 2 == 0).then_some(Side::B))
                .split_k(1);
            let plan = gemm.kernel_plan(Target::SM_90A, 132, shape).unwrap();
            let parts = plan.choice.candidates().map(|(tile, _)| tile).filter(|tile| tile.parts() > 1);
            let tiles: Vec<Tile> = std::iter::once(plan.tile).chain(parts.skip((i + j) % 4).step_by(4).take(1)).collect();
            for tile in tiles {
                split += usize::from(tile.parts() > 1);
                jobs.push(job(format!("{shape}, {i}, {j}, {tile}"), gemm.clone().tile(tile), shape, Target::SM_90A));
            }
        }
    }
    assert!(split >= 20, "blocks that share K: {split} of {}", jobs.len());
    run(&jobs);
}

/// Weights of fewer bits through registers: all formats, with and without numbers, in tiles of every kind.
#[test]
fn weights_widened_in_registers() {
    let banded = Epilogue::build(|e| {
        let z = e.acc() * e.load("scale", F32.over(M)) + e.load("bias", F16.over(N));
        let z = z.region(e.row().lt(e.scalar("boundary", I32)), |z| z.sigmoid()).otherwise(|z| z.gelu_tanh());
        e.store("d", z * e.load("c", F16), F16);
        e.reduce("sums", z, Monoid::Sum, F32.over(N));
    });
    let epilogues = [banded, recipes::identity(BF16)].map(Result::unwrap);
    let groups = Blocks::groups;
    let formats = [
        (I8, None),
        (U8, Some(groups(128).with_zero_points())),
        (E4M3, None),
        (E5M2, Some(groups(64))),
        (I4, Some(groups(128).scales_as(F16))),
        (U4, Some(groups(64).scales_as(BF16).with_zero_points())),
        (I4, None),
    ];
    let mut jobs = Vec::new();
    for (i, (b, blocks)) in formats.into_iter().enumerate() {
        for (j, rows) in [8, 24, 64, 160, 512].into_iter().enumerate() {
            let operation = Operation::Product { a: [F16, BF16][(i + j) % 2], b, layout: Layout::TN, scales: [None, blocks] };
            let gemm = Gemm::of(operation, &epilogues[(i + j / 2) % 2]).mainloop(Mainloop::Sm90a);
            let shape = Shape::new(rows, 4096, 8192);
            let plan = gemm.kernel_plan(Target::SM_90A, 132, shape).unwrap();
            for (tile, _) in plan.choice.candidates().step_by(5) {
                jobs.push(job(format!("{rows}, {b}, {tile}"), gemm.clone().tile(tile), shape, Target::SM_90A));
            }
        }
    }
    assert!(jobs.len() >= 60, "{}", jobs.len());
    run(&jobs);
}

/// Lanes that move pieces of 16 bytes: the widest and the narrowest lines, and formats of every size.
#[test]
fn pieces_of_every_size() {
    let signs = Epilogue::build(|e| e.store("d", e.acc().gt(e.constant(0.0)), Bool)).unwrap();
    let [halves, floats] = [F16, F32].map(|dtype| recipes::identity(dtype).unwrap());
    let mut jobs = Vec::new();
    for (epilogue, widths) in [(&signs, [16, 96]), (&halves, [8, 144]), (&floats, [8, 144])] {
        let gemm = Gemm::new(F16, TN, epilogue);
        let first = gemm.kernel_plan(Target::SM_90A, 132, ALIGNED).unwrap();
        for (tile, _) in first.choice.candidates().filter(|(tile, _)| widths.contains(&tile.bn) && tile.cluster() == 1) {
            let gemm = gemm.clone().tile(tile);
            assert!(gemm.kernel_plan(Target::SM_90A, 132, ALIGNED).unwrap().staging.unwrap().direct_store, "{tile}");
            jobs.push(job(tile.to_string(), gemm, ALIGNED, Target::SM_90A));
        }
    }
    assert_eq!(jobs.len(), 6);
    run(&jobs);
}

#[test]
fn every_activation_in_both_modes() {
    let mut jobs = Vec::new();
    for (i, function) in activation::ALL.iter().enumerate() {
        let mut graph = Graph::new();
        let acc = graph.push(Node::Accumulator(ValueType::F32), None);
        let bias = graph.push(Node::load("bias", F16.over(N)), None);
        let z = graph.apply(postlude::Op::Add, &[acc, bias]);
        let mut args = vec![z];
        args.extend((1..function.parameters.len()).map(|i| graph.constant_f32(i as f32 * 0.5)));
        let value = graph.push(Node::Call { function, args }, None);
        graph.sink(Sink::new("d", value, SinkKind::Store(Operand::from(F16))), None);
        let epilogue = Epilogue::from_graph(graph).unwrap();
        for (j, math) in [Math::Exact, Math::Fast].into_iter().enumerate() {
            let gemms =
                [Gemm::new(F16, TN, &epilogue), Gemm::new(F32, NN, &epilogue), Gemm::pointwise(BF16, Order::RowMajor, &epilogue)];
            // Exact on the first and one of the others, fast on the rest.
            for (k, gemm) in gemms.into_iter().enumerate().filter(|(k, _)| *k == 0 || (i + k + j) % 2 == 0) {
                jobs.push(job(format!("{} {math:?}", function.name), gemm.math(math), ALIGNED, TARGETS[(i + j + k) % 2]));
            }
        }
    }
    run(&jobs);
}

#[test]
fn every_recipe() {
    let recipes = [
        ("identity", recipes::identity(BF16)),
        ("linear_combination", recipes::linear_combination(F32, F16)),
        ("linear_combination, columns", recipes::linear_combination(F16.column_major(), F16)),
        ("bias_activation", recipes::bias_activation(F32, F16, |z| z.gelu())),
        ("residual", recipes::residual(F16, F16, |z| z.silu())),
        ("scaled", recipes::scaled(BF16)),
        ("split_rows", recipes::split_rows(F16, F16, |z| z.gelu_tanh(), |z| z.mish())),
    ];
    let mut jobs = Vec::new();
    for (i, (name, epilogue)) in recipes.into_iter().enumerate() {
        let epilogue = epilogue.unwrap();
        for (j, shape) in [ALIGNED, ODD].into_iter().enumerate() {
            jobs.push(job(format!("{name}, sm80"), Gemm::new(F16, TN, &epilogue), shape, TARGETS[(i + j) % 2]));
            jobs.push(job(format!("{name}, simt"), Gemm::new(F32, NN, &epilogue), shape, TARGETS[(i + j) % 2]));
            let pointwise = Gemm::pointwise(F16, Order::RowMajor, &epilogue);
            jobs.push(job(format!("{name}, pointwise"), pointwise, shape, TARGETS[(i + j) % 2]));
        }
    }
    run(&jobs);
}

#[test]
fn every_file() {
    let root = Path::new(&std::env::var("CARGO_MANIFEST_DIR").unwrap_or_else(|_| ".".into())).join("tests/epilogues");
    let registry = postlude::build::registry().with(softcap::softcap()).with_monoids(monoids::every());
    let mut paths: Vec<_> = std::fs::read_dir(&root).into_iter().flatten().flatten().map(|e| e.path()).collect();
    paths.retain(|p| p.extension().is_some_and(|e| e == "evt"));
    paths.sort();
    assert!(!paths.is_empty(), "no epilogues under {}", root.display());
    let mut jobs = Vec::new();
    for (i, path) in paths.iter().enumerate() {
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let epilogue = Epilogue::from_text(&std::fs::read_to_string(path).unwrap(), &registry).unwrap();
        let gemms = match epilogue.checked().accumulator() {
            Some(ValueType::I32) => vec![Gemm::new(I32, TN, &epilogue), Gemm::pointwise(I32, Order::RowMajor, &epilogue)],
            Some(ValueType::F64) => vec![Gemm::new(F64, TN, &epilogue), Gemm::pointwise(F64, Order::RowMajor, &epilogue)],
            _ => vec![
                Gemm::new(F16, TN, &epilogue),
                Gemm::new(F32, NN, &epilogue),
                Gemm::pointwise(F16, Order::RowMajor, &epilogue),
                Gemm::new(F32, NT, &epilogue).tf32(true),
            ],
        };
        for (j, gemm) in gemms.into_iter().enumerate() {
            let shape = if (i + j) % 2 == 0 { ALIGNED } else { ODD };
            jobs.push(job(format!("{name}, {:?}", gemm.operation()), gemm, shape, TARGETS[(i / 2 + j) % 2]));
        }
    }
    run(&jobs);
}

/// Doubles on every generation: products in every layout, a few rows, parts of K, reductions, and epilogues of other products.
#[test]
fn doubles() {
    let plain = Epilogue::build(|e| {
        let z = e.acc_f64() * e.load("rows", F64.over(M)) + e.load("columns", F64.over(N)) * e.scalar("alpha", F64);
        e.store("d", z.max(e.load("c", F64)) * 0.1, F64);
        e.store("turned", z, F64.column_major());
    });
    let sums = Epilogue::build(|e| {
        let z = e.acc_f64();
        e.reduce("sums", z, Monoid::Sum.atomic(), F64.over(N));
        e.reduce("lse", z, Monoid::LogSumExp, F64.over(M));
        e.reduce("mean", z, Monoid::Mean, F64.pointer());
        e.reduce("best", z, Monoid::ArgMax, I32.over(M));
    });
    let beside = Epilogue::build(|e| {
        let z = e.acc().cast(F64) + e.load("residual", F64);
        e.store("residual", z, F64);
        e.store("d", z.cast(BF16), BF16);
        e.reduce("sums", z, Monoid::Sum, F64.over(N));
    });
    let [plain, sums, beside] = [plain, sums, beside].map(Result::unwrap);
    let mut jobs = Vec::new();
    for (i, target) in [Target::SM_75, Target::SM_80, Target::SM_90A].into_iter().enumerate() {
        for (j, layout) in Layout::ALL.into_iter().enumerate() {
            let shape = if (i + j) % 2 == 0 { ALIGNED } else { ODD };
            let gemm = Gemm::new(F64, layout, &plain);
            jobs.push(job(format!("{layout}"), gemm.clone(), shape, target));
            jobs.push(job(format!("small, {layout}"), gemm.clone(), Shape::new(100, 140, 300), target));
            for rows in [1, 3] {
                jobs.push(job(format!("{rows} rows, {layout}"), gemm.clone(), Shape::new(rows, 4096, 4096), target));
            }
        }
        jobs.push(job("parts", Gemm::new(F64, TN, &plain).split_k(8), Shape::new(256, 256, 65536), target));
        jobs.push(job("sums", Gemm::new(F64, TN, &sums), ALIGNED, target));
        jobs.push(job("sums of a matrix", Gemm::pointwise(F64, Order::RowMajor, &sums), ODD, target));
        jobs.push(job("beside f16", Gemm::new(F16, TN, &beside), ALIGNED, target));
        jobs.push(job("beside f32", Gemm::new(F32, NT, &beside), ODD, target));
    }
    run(&jobs);
}

/// The generations differ in their instructions, and so in the code of a spelling.
#[test]
fn every_primitive_on_every_generation() {
    let files = [
        include_str!("epilogues/primitives.evt"),
        include_str!("epilogues/primitives_functions.evt"),
        include_str!("epilogues/primitives_special.evt"),
        include_str!("epilogues/primitives_fast.evt"),
        include_str!("epilogues/f64_primitives.evt"),
    ];
    let mut jobs = Vec::new();
    for (i, text) in files.into_iter().enumerate() {
        let epilogue = Epilogue::from_text(text, &postlude::build::registry()).unwrap();
        let matrix = epilogue.checked().accumulator().unwrap_or(ValueType::F32).storage();
        for target in [Target::SM_75, Target::SM_80, Target::SM_90A] {
            jobs.push(job(format!("file {i} on {target}"), Gemm::pointwise(matrix, Order::RowMajor, &epilogue), ALIGNED, target));
        }
    }
    run(&jobs);
}

#[test]
fn every_derivative() {
    let mut epilogues = Vec::new();
    for function in activation::ALL {
        let mut graph = Graph::new();
        let acc = graph.push(Node::Accumulator(ValueType::F32), None);
        let parameters = (1..function.parameters.len()).map(|i| graph.constant_f32(i as f32 / 2.0));
        let args = std::iter::once(acc).chain(parameters).collect();
        let value = graph.push(Node::Call { function, args }, None);
        graph.sink(Sink::new("d", value, SinkKind::Store(F16.into())), None);
        epilogues.push((function.name, Epilogue::from_graph(graph).unwrap()));
    }
    epilogues.push(("regions", recipes::split_rows(F16, F16, |z| z.gelu(), |z| z.mish()).unwrap()));
    let capped = Epilogue::build(|e| e.store("d", e.custom(&softcap::softcap(), [e.acc(), e.constant(2.0)]), F16));
    epilogues.push(("softcap", capped.unwrap()));
    let mut jobs = Vec::new();
    for (i, (name, epilogue)) in epilogues.iter().enumerate() {
        let pair = epilogue.backward(Wrt::accumulator()).unwrap();
        jobs.push(job(*name, Gemm::pointwise(F16, Order::RowMajor, pair.backward()), ALIGNED, TARGETS[i % 2]));
        if matches!(*name, "regions" | "softcap" | "gelu") {
            jobs.push(job(*name, Gemm::new(F16, TN, pair.backward()), ODD, TARGETS[i % 2]));
        }
    }
    run(&jobs);
}

/// A masked gradient and its sum over M, the mask the sign of a stored matrix.
fn drelu_with_bias_gradient() -> Epilogue {
    Epilogue::build(|e| {
        let dz = e.load("y", F16).gt(0.0).select(e.acc(), e.constant(0.0));
        e.store("dx", dz, F16);
        e.reduce("dbias", dz, Monoid::Sum, F32.over(N));
    })
    .unwrap()
}

#[test]
fn gradients_of_biases() {
    let epilogue = drelu_with_bias_gradient();
    let mut jobs = Vec::new();
    let first = Gemm::new(F16, TN, &epilogue).kernel_plan(Target::SM_90A, 132, ALIGNED).unwrap();
    // Every tile that may be chosen, not only the one that is.
    for (i, (tile, _)) in first.choice.candidates().enumerate() {
        let layout = Layout::ALL[i % 4];
        jobs.push(job(format!("{tile}"), Gemm::new(F16, layout, &epilogue).tile(tile), ALIGNED, Target::SM_90A));
    }
    for extent in [512, 2048, 8192] {
        jobs.push(job(format!("{extent}"), Gemm::new(F16, NN, &epilogue), Shape::new(extent, extent, 1024), Target::SM_90A));
    }
    // From bits: of all that stage matrices, their loaders need the most registers.
    let bits = cublaslt::drelu_bgrad(cublaslt::Formats { bias: F32, ..cublaslt::Formats::of(F16) }).unwrap();
    let first = Gemm::new(F16, TN, &bits).kernel_plan(Target::SM_90A, 132, ALIGNED).unwrap();
    for (tile, _) in first.choice.candidates().take(8) {
        jobs.push(job(format!("bits, {tile}"), Gemm::new(F16, TN, &bits).tile(tile), ALIGNED, Target::SM_90A));
    }
    run(&jobs);
}

#[test]
fn reductions() {
    let text = include_str!("epilogues/sinks/reductions.evt");
    let epilogue: Epilogue = text.parse().unwrap();
    let mut jobs = Vec::new();
    for (i, shape) in [ALIGNED, ODD, Shape::new(300, 200, 64), Shape::new(2, 4096, 4096)].into_iter().enumerate() {
        let gemms = [
            Gemm::new(F16, TN, &epilogue),
            Gemm::new(F32, NN, &epilogue),
            Gemm::new(F32, NT, &epilogue).tf32(true),
            Gemm::new(F16, TT, &epilogue).mainloop(Mainloop::Gemv),
            Gemm::pointwise(F16, Order::RowMajor, &epilogue),
        ];
        for (j, gemm) in gemms.into_iter().enumerate() {
            jobs.push(job(format!("{:?} {shape}", gemm.operation()), gemm, shape, TARGETS[(i + j) % 2]));
        }
    }
    run(&jobs);
}

#[test]
fn sums_of_operands() {
    let formats = cublaslt::Formats { bias: F32, c: Some(F16), ..cublaslt::Formats::of(F16) };
    let both = Epilogue::build(|e| {
        let z = e.acc() + e.load("bias", F16.over(N));
        e.store("d", z, F16);
        e.reduce("columns", z, Monoid::Sum, F32.over(N));
        e.reduce("of_a", e.a(), Monoid::Sum.accumulate(), BF16.over(M).batched());
        e.reduce("of_b", e.b(), Monoid::Sum, F32.over(N));
    });
    let masked = Epilogue::build(|e| {
        e.store("d", e.load("mask", Bits128).select(e.acc(), 0.0), F16);
        e.reduce("of_b", e.b(), Monoid::Sum, F32.over(N));
    });
    let epilogues = [cublaslt::bgrada(formats), cublaslt::bgradb(formats), both, masked].map(Result::unwrap);
    let mut jobs = Vec::new();
    for (i, epilogue) in epilogues.iter().enumerate() {
        // Every tile that may be chosen; with longer epilogues, those that leave consumers registers.
        let first = Gemm::new(F16, TN, epilogue).kernel_plan(Target::SM_90A, 132, Shape::new(4096, 4096, 4096)).unwrap();
        let held = |tile: &Tile| match tile.shape {
            TileShape::Sm90a { consumers, schedule: Schedule::Cooperative, .. } => tile.bm * tile.bn / (128 * consumers),
            _ => tile.bm * tile.bn / 128,
        };
        let few = |tile: &Tile| i < 2 || held(tile) <= 128;
        for (j, (tile, _)) in first.choice.candidates().enumerate().filter(|(_, (tile, _))| few(tile)) {
            let gemm = Gemm::new([F16, BF16][j % 2], Layout::ALL[(i + j) % 4], epilogue).tile(tile);
            jobs.push(job(format!("{i}, {tile}"), gemm, ALIGNED, Target::SM_90A));
        }
        for (j, shape) in [ALIGNED, ODD, Shape::new(300, 200, 64)].into_iter().enumerate() {
            let target = TARGETS[(i + j) % 2];
            jobs.push(job(
                format!("{i}, sm80"),
                Gemm::new(F16, Layout::ALL[j], epilogue).mainloop(Mainloop::Sm80),
                shape,
                target,
            ));
            jobs.push(job(format!("{i}, simt"), Gemm::new(F32, Layout::ALL[j + 1], epilogue), shape, target));
            jobs.push(job(format!("{i}, tf32"), Gemm::new(F32, Layout::ALL[j], epilogue).tf32(true), shape, target));
        }
    }
    run(&jobs);
}

#[test]
fn bit_masks() {
    let formats = cublaslt::Formats::of(F16);
    let update = Epilogue::build(|e| {
        let mask = e.load("mask", Bits8.column_major());
        e.store("d", mask.select(e.acc(), e.load("bias", F32.over(N))), F32);
        e.store("mask", mask & e.acc().gt(0.0), Bits8.column_major());
    });
    let epilogues = [
        ("relu", cublaslt::relu_aux_bias(formats)),
        ("drelu", cublaslt::drelu(formats)),
        ("drelu, sums", cublaslt::drelu_bgrad(cublaslt::Formats { bias: F32, ..formats })),
        ("update across", update),
        ("nothing else", Epilogue::build(|e| e.store("mask", e.acc().gt(0.0), Bits8))),
    ];
    let mut jobs = Vec::new();
    for (i, (name, epilogue)) in epilogues.into_iter().enumerate() {
        let epilogue = epilogue.unwrap();
        for (j, (dtype, layout, mainloop)) in [
            (F16, TN, Some(Mainloop::Sm90a)),
            (BF16, NT, Some(Mainloop::Sm90a)),
            (F16, NN, Some(Mainloop::Sm80)),
            (F32, TT, Some(Mainloop::Simt)),
            (F16, TN, Some(Mainloop::Gemv)),
            (F16, TN, None),
        ]
        .into_iter()
        .enumerate()
        {
            let (gemm, target) = match mainloop {
                Some(mainloop) => (Gemm::new(dtype, layout, &epilogue).mainloop(mainloop), Target::SM_90A),
                None => (Gemm::pointwise(dtype, Order::RowMajor, &epilogue), TARGETS[i % 2]),
            };
            for shape in [ALIGNED, Shape::new(8192, 8192, 1024), ODD, Shape::new(4, 4096, 4096)] {
                if shape == ODD || (shape.m == 4) == (mainloop == Some(Mainloop::Gemv)) || (i + j) % 3 == 0 {
                    jobs.push(job(format!("{name}, {:?} {shape}", gemm.operation()), gemm.clone(), shape, target));
                }
            }
        }
    }
    // A mask that is written takes registers that the largest tiles hardly have.
    let stored = cublaslt::relu_aux_bias(formats).unwrap();
    let first = Gemm::new(F16, TN, &stored).kernel_plan(Target::SM_90A, 132, Shape::new(8192, 8192, 1024)).unwrap();
    for (tile, _) in first.choice.candidates() {
        jobs.push(job(
            format!("relu, {tile}"),
            Gemm::new(F16, TN, &stored).tile(tile),
            Shape::new(8192, 8192, 1024),
            Target::SM_90A,
        ));
    }
    run(&jobs);
}

/// Tables by row, by column, by element and by data, where there are neither asynchronous copies nor bf16, and where
/// values are staged.
#[test]
fn gathers() {
    let epilogue = |d: Operand| {
        let built = Epilogue::build(|e| {
            let index = e.load("index", I32);
            let by_row = e.gather("slope", F16, e.load("expert", I32.over(M)));
            let by_column = e.gather("shift", BF16, e.column() / 3);
            let smooth = e.gather("smooth", Bool, e.load("expert", I32.over(M)));
            let z = e.acc() * by_row + by_column + e.gather("head", F32, e.batch()) + e.gather("level", F32, index);
            e.store("d", z.region(smooth, |z| z.gelu()).otherwise(|z| z.tanh()), d);
            e.store("counts", e.gather("count", I32, index), I32);
        });
        built.unwrap()
    };
    let mut jobs = Vec::new();
    for target in [Target::new(7, 5), Target::SM_80, Target::SM_90A] {
        for (d, shape) in [(F16.into(), ALIGNED), (F32.column_major(), ODD)] {
            let epilogue = epilogue(d);
            jobs.push(job("product", Gemm::new(F16, TN, &epilogue), shape, target));
            jobs.push(job("pointwise", Gemm::pointwise(F16, Order::RowMajor, &epilogue), shape, target));
            jobs.push(job("f32", Gemm::new(F32, NN, &epilogue), shape, target));
        }
        jobs.push(job("few rows", Gemm::new(F16, TN, &epilogue(F16.into())), Shape::new(2, 4096, 4096), target));
    }
    run(&jobs);
}

/// Operands of every phase, order and width that a launch may leave out, where values are staged and where they are not.
#[test]
fn operands_that_are_left_out() {
    let epilogue = |c: DType, d: Operand| {
        let built = Epilogue::build(|e| {
            let z = e.acc() * e.load_or("scale", F32.pointer(), 1.0) * e.load_or("rows", F32.over(M), 1.0);
            let z = z + e.load_or("columns", F16.over(N).batched(), 0.1) + e.load_or("level", I32.over(N), -3).cast(F32);
            let z = z + e.load_or("c", c, -2.0) - e.load_or("turned", F16.column_major(), 0.75) + e.load("other", F16);
            let kept = e.load_or("keep", Bits8, true).select(z, 0.0) + e.load_or("masked", Bits8.over(N), true).cast(F32);
            e.store("d", e.load_or("lit", Bool.over(M), false).select(kept, -kept), d);
        });
        built.unwrap()
    };
    let mut jobs = Vec::new();
    for target in [Target::new(7, 5), Target::SM_80, Target::SM_90A] {
        for (c, d, shape) in [(F16, F16.into(), ALIGNED), (BF16, F32.column_major(), ODD)] {
            let epilogue = epilogue(c, d);
            jobs.push(job("product", Gemm::new(F16, TN, &epilogue), shape, target));
            jobs.push(job("pointwise", Gemm::pointwise(F16, Order::RowMajor, &epilogue), shape, target));
            jobs.push(job("f32", Gemm::new(F32, NN, &epilogue), shape, target));
        }
        jobs.push(job("few rows", Gemm::new(F16, TN, &epilogue(F16, F16.into())), Shape::new(2, 4096, 4096), target));
    }
    run(&jobs);
}

/// The operand's way around costs no register that a kernel would spill, and the bias of a plain linear layer next to none.
#[test]
fn a_bias_that_may_be_left_out_costs_few_registers() {
    if !nvrtc() {
        return;
    }
    let registers = |optional: bool| {
        let epilogue = Epilogue::build(|e| {
            let bias = if optional { e.load_or("bias", F16.over(N), 0.0) } else { e.load("bias", F16.over(N)) };
            e.store("d", (e.acc() + bias).relu(), F16);
        });
        let gemm = Gemm::new(F16, TN, &epilogue.unwrap());
        TARGETS.map(|target| gemm.compile(Cache::global(), target, 132, ALIGNED).unwrap().cubin.info.registers)
    };
    let (given, optional) = (registers(false), registers(true));
    assert!(given.iter().zip(optional).all(|(given, optional)| optional <= given + 8), "{given:?} {optional:?}");
}

#[test]
fn many_regions_cost_few_registers() {
    // Two dozen nested arms. While they began undefined, each held registers from the start of the kernel: 255, with
    // spills, and at last a wrong result, which the assembler's optimiser made of them.
    if !nvrtc() {
        return;
    }
    let text = include_str!("epilogues/activations.evt");
    let gemm = Gemm::new(F32, NN, &text.parse::<Epilogue>().unwrap());
    let kernel = gemm.compile(Cache::global(), Target::SM_90A, 132, Shape::new(67, 129, 33)).unwrap();
    assert!(kernel.cubin.info.registers <= 168 && !kernel.cubin.info.spills(), "{}", kernel.explain());
}

#[test]
fn every_target_takes_the_kernels() {
    // Before sm_80 there are neither asynchronous copies nor bf16.
    let epilogue = recipes::bias_activation(F16, F16, |z| z.gelu_tanh()).unwrap();
    let targets =
        [Target::new(7, 5), Target::new(8, 6), Target::new(8, 9), Target::new(9, 0), Target::new(10, 0), Target::new(12, 0)];
    let known = postlude::jit::compiler().map(|c| c.architectures).unwrap_or_default();
    let mut jobs = Vec::new();
    for target in targets {
        let number = target.to_string().trim_start_matches("sm_").parse::<u32>().unwrap_or(0);
        if known.iter().any(|k| u64::from(*k) == u64::from(number)) {
            jobs.push(job("product", Gemm::new(F16, TN, &epilogue), ALIGNED, target));
            jobs.push(job("pointwise", Gemm::pointwise(F16, Order::RowMajor, &epilogue), ODD, target));
        }
    }
    run(&jobs);
}

#[test]
fn a_broken_custom_primitive_is_blamed() {
    if !nvrtc() {
        return;
    }
    let broken = Arc::new(CustomOp::new("wobble", 1, "wobblef($0)", |x| x[0]).unwrap());
    let sound = softcap::softcap();
    let line = line!() + 2;
    let epilogue = Epilogue::build(|e| {
        let z = e.custom(&broken, [e.acc()]);
        e.store("d", e.custom(&sound, [z, e.constant(2.0)]).region(e.row().lt(3), |z| z.tanh()).otherwise(|z| z.exp()), F16);
    });
    let gemm = Gemm::new(F16, TN, &epilogue.unwrap());
    for gemm in [gemm.clone(), gemm.clone().mainloop(Mainloop::Simt), Gemm::pointwise(F16, Order::RowMajor, gemm.epilogue())] {
        let error = gemm.compile(&Cache::in_memory(), Target::SM_90A, 132, ALIGNED).unwrap_err();
        let Error::Custom(failure) = &error else { panic!("{error:?}") };
        assert_eq!((failure.primitive.as_str(), failure.cuda.as_str()), ("wobble", "wobblef($0)"));
        let at = failure.built_at.clone().unwrap();
        assert!(at.contains(&format!("nvrtc.rs:{line}:")), "{at}");
        assert!(failure.messages.iter().any(|m| m.contains("wobblef")), "{failure:?}");
        let text = error.to_string();
        assert!(text.contains("`wobble`") && text.contains(&at) && text.contains("wobblef($0)"), "{text}");
    }
}

#[test]
fn a_custom_primitive_of_the_wrong_type_is_blamed() {
    if !nvrtc() {
        return;
    }
    let text = Arc::new(CustomOp::new("pointer", 1, "&$0", |x| x[0]).unwrap());
    let epilogue = Epilogue::build(|e| e.store("d", e.custom(&text, [e.acc()]), F16)).unwrap();
    let error = Gemm::new(F16, TN, &epilogue).compile(&Cache::in_memory(), Target::SM_80, 108, ALIGNED).unwrap_err();
    assert!(matches!(&error, Error::Custom(failure) if failure.primitive == "pointer"), "{error:?}");
}

#[test]
fn an_unknown_target_is_an_error_of_the_compiler() {
    if !nvrtc() {
        return;
    }
    let gemm = Gemm::pointwise(F32, Order::RowMajor, &recipes::identity(F32).unwrap());
    let error = gemm.compile(&Cache::in_memory(), Target::new(30, 0), 1, ALIGNED).unwrap_err();
    assert!(matches!(error, Error::Jit(JitError::UnsupportedTarget { .. })), "{error:?}");
}

/// Epilogues of products of eight bits: none, scales with a bias and an activation, and the same quantised beside its
/// largest value.
fn of_eight_bits(a: DType) -> Vec<(&'static str, Epilogue)> {
    let floats = a.value_type().is_float();
    let plain = Epilogue::build(|e| match floats {
        true => e.store("d", e.acc(), BF16),
        false => e.store("d", e.acc_i32(), I32),
    });
    let built = |quantised: bool| {
        Epilogue::build(|e| {
            let z = if floats { e.acc() } else { e.acc_i32().cast(F32) };
            let z = (z * e.load("rows", F32.over(M)) * e.load("columns", F32.over(N)) + e.load("bias", BF16.over(N))).relu();
            if !quantised {
                return e.store("d", z, BF16);
            }
            e.reduce("amax", z, Monoid::AbsMax, F32.pointer());
            e.store("d", z * e.load("scale", F32.pointer()), a);
        })
    };
    let both = Epilogue::build(|e| {
        let c = e.load("c", a);
        let c = if floats { c } else { c.cast(F32) };
        let z = if floats { e.acc() } else { e.acc_i32().cast(F32) };
        e.store("d", z + c, a);
        let b = if floats { e.b() } else { e.b_i32() };
        e.reduce("sums", b, Monoid::Sum, a.value_type().storage().over(N));
    });
    let turned = Epilogue::build(|e| {
        let z = if floats { e.acc() } else { e.acc_i32().cast(F32) };
        e.store("d", z * e.load("by", F32.pointer()), a.column_major());
        e.store("e", z, E5M2);
    });
    let all = [("plain", plain), ("scaled", built(false)), ("quantised", built(true)), ("both", both), ("turned", turned)];
    all.into_iter().map(|(name, epilogue)| (name, epilogue.unwrap())).collect()
}

/// Operands of eight bits on every mainloop, and on every kind of Hopper's tiles.
#[test]
fn products_of_eight_bits() {
    let mut jobs = Vec::new();
    for (a, b) in [(E4M3, E4M3), (E4M3, E5M2), (I8, I8), (U8, I8)] {
        for (name, epilogue) in of_eight_bits(a) {
            let gemm = |layout| Gemm::mixed(a, b, layout, &epilogue);
            let mut add = |what: &str, gemm: Gemm, shape: Shape, target| {
                jobs.push(job(format!("{name} of {a} and {b}, {what}"), gemm, shape, target));
            };
            add("odd", gemm(TN), ODD, Target::SM_90A);
            add("narrow", gemm(TN), Shape::new(16, 4096, 4096), Target::SM_90A);
            add("simt", gemm(NN).mainloop(Mainloop::Simt), ODD, Target::SM_80);
            for target in TARGETS {
                add("sm80", gemm(TN).mainloop(Mainloop::Sm80), ALIGNED, target);
            }
            if name != "both" {
                add("gemv", gemm(TT).mainloop(Mainloop::Gemv), Shape::new(1, 4096, 4096), Target::SM_90A);
            }
            // A second format changes a word of an instruction, and integers have one way to add up.
            let ways: &[bool] = if a != b {
                &[]
            } else if a == E4M3 {
                &[false, true]
            } else {
                &[true]
            };
            for &fast in ways {
                let gemm = gemm(TN).fast_accumulation(fast);
                let plan = gemm.kernel_plan(Target::SM_90A, 132, ALIGNED).unwrap();
                let mut kinds = Vec::new();
                for (tile, _) in plan.choice.candidates() {
                    let TileShape::Sm90a { consumers, schedule, cluster, .. } = tile.shape else { continue };
                    if !kinds.contains(&(consumers, schedule, cluster)) {
                        kinds.push((consumers, schedule, cluster));
                        add(&format!("{tile}"), gemm.clone().tile(tile), ALIGNED, Target::SM_90A);
                    }
                }
            }
        }
    }
    run(&jobs);
}

/// The same of tf32, with matrices of 32 bits that are read and written.
#[test]
fn products_of_tf32() {
    let turned = Epilogue::build(|e| {
        let z = e.acc() * e.load("scale", F32.over(M)) + e.load("c", F32);
        e.store("d", z.relu(), F32.column_major());
        e.store("half", z, F16);
        e.reduce("sums", z, Monoid::Sum, F32.over(N));
    });
    let mut jobs = Vec::new();
    let bias = recipes::bias_activation(F32, F32, |z| z.relu());
    for (name, epilogue) in [("identity", recipes::identity(F32)), ("bias", bias), ("turned", turned)] {
        let epilogue = epilogue.unwrap();
        for (i, layout) in Layout::ALL.into_iter().enumerate() {
            let gemm = Gemm::new(F32, layout, &epilogue).tf32(true).mainloop(Mainloop::Sm90a);
            let shape = [ALIGNED, ODD, Shape::new(16, 4096, 4096), Shape::new(300, 200, 100)][i];
            jobs.push(job(format!("{name} of tf32, {layout}"), gemm, shape, Target::SM_90A));
        }
        let gemm = Gemm::new(F32, TN, &epilogue).tf32(true);
        let plan = gemm.kernel_plan(Target::SM_90A, 132, ALIGNED).unwrap();
        let mut kinds = Vec::new();
        for (tile, _) in plan.choice.candidates() {
            let TileShape::Sm90a { consumers, schedule, cluster, .. } = tile.shape else { panic!("{tile}") };
            let kind = (tile.bm, consumers, schedule, cluster);
            // A heavy epilogue spills in 192 rows of ping-pong, which a caller who names the tile gets.
            if !kinds.contains(&kind) && (name != "turned" || tile.bm != 192) {
                kinds.push(kind);
                jobs.push(job(format!("{name} of tf32, {tile}"), gemm.clone().tile(tile), ALIGNED, Target::SM_90A));
            }
        }
    }
    run(&jobs);
}

/// Softmax and norms with their derivatives, over rows that a warp holds, a block holds, and nobody holds; and behind products.
#[test]
fn rows_that_are_reduced_first() {
    let mut jobs = Vec::new();
    let norm = recipes::Norm { weights: Some(F16), residual: None };
    let all = |d: DType| {
        let with_residual = recipes::Norm { weights: Some(d), residual: Some(d) };
        [
            ("softmax", recipes::softmax(recipes::Mask::Causal, d), vec![]),
            ("log_softmax", recipes::log_softmax(recipes::Mask::Loaded(Bits8), d), vec![]),
            ("layer_norm", recipes::layer_norm(norm, d), vec!["mean", "rstd"]),
            ("rms_norm", recipes::rms_norm(with_residual, d), vec!["rstd"]),
            ("l2_normalize", recipes::l2_normalize(d), vec![]),
            ("quantize_rows", recipes::quantize_rows(d), vec!["row_scale"]),
            ("top_k_softmax", recipes::top_k_softmax(8, d), vec![]),
        ]
    };
    for (i, d) in [F16, BF16, F32].into_iter().enumerate() {
        for (j, (name, epilogue, vectors)) in all(d).into_iter().enumerate() {
            let epilogue = epilogue.unwrap();
            // Sums over M take registers and shared memory for each column of a row.
            let backward = |wrt: Wrt| epilogue.backward(vectors.iter().fold(wrt, |wrt, name| wrt.detached(name))).ok();
            let (all, input) = (backward(Wrt::all()), backward(Wrt::accumulator()));
            for (k, n) in [40, 1000, 4096, 16384, 70000].into_iter().enumerate() {
                let pair = if n < 10_000 { &all } else { &input };
                let (target, order) = (TARGETS[(i + j + k) % 2], [Order::RowMajor, Order::ColumnMajor][usize::from(k == 1)]);
                jobs.push(job(
                    format!("{name} {d} of {n}"),
                    Gemm::pointwise(d, order, &epilogue),
                    Problem::new(512, n, 0),
                    target,
                ));
                if let Some(pair) = pair {
                    let gemm = Gemm::pointwise(d, Order::RowMajor, pair.backward());
                    jobs.push(job(format!("{name} backward {d} of {n}"), gemm, Problem::new(512, n, 0), target));
                }
            }
            let product = Gemm::new(d, Layout::ALL[(i + j) % 4], &epilogue);
            jobs.push(job(format!("{name} {d} behind a product"), product, Problem::new(264, 392, 128), TARGETS[(i + j) % 2]));
        }
    }
    run(&jobs);
}

/// Sums over M of many rows, whose fix-up blocks share, in states of one word to three, and without a spill.
#[test]
fn sums_over_many_rows() {
    let mut jobs = Vec::new();
    for d in [F16, BF16, F32] {
        let norm = recipes::layer_norm(recipes::Norm { weights: Some(d), residual: None }, d).unwrap();
        let wrt = Wrt::accumulator().and("weight").and("bias").detached("mean").detached("rstd");
        let gradients = norm.backward(wrt).unwrap().backward().clone();
        let sums = Epilogue::build(|e| {
            let y = e.acc() - e.acc().mean_over(N);
            e.store("d", y, d);
            e.reduce("exponentials", y, Monoid::LogSumExp, F32.over(N));
            e.reduce("variance", y, monoids::variance(), F32.over(N).batched());
            e.reduce("onto", y, Monoid::Sum.accumulate(), F32.over(N));
            e.reduce("any", y, Monoid::Sum.atomic(), F32.over(N).batched());
            e.reduce("all", y, Monoid::AbsMax, F32.pointer());
        });
        // The longest rows keep their sums in shared memory.
        let all = [("gradients", gradients, [128, 1024, 4096, 16_384]), ("sums", sums.unwrap(), [120, 500, 800, 1000])];
        for (name, epilogue, lengths) in all {
            for n in lengths.into_iter().filter(|n| d != F32 || *n < 10_000) {
                let (gemm, shape) = (Gemm::pointwise(d, Order::RowMajor, &epilogue), Shape::matrix((1 << 24) / n, n));
                for target in TARGETS {
                    let plan = gemm.kernel_plan(target, 132, shape).unwrap();
                    assert!(plan.helpers > 1, "{}", plan.explain());
                    jobs.push(job(format!("{name} {d} of {n}"), gemm.clone(), shape, target));
                }
            }
        }
    }
    run(&jobs);
}

/// Where ptxas finds no registers for the elements of a strip side by side, they are computed one after the other.
#[test]
fn what_ptxas_gives_up_on_is_computed_in_a_loop() {
    if !nvrtc() {
        return;
    }
    let text = include_str!("epilogues/predicates.evt");
    let epilogue = Epilogue::from_text(text, &postlude::build::registry()).unwrap();
    let gemm = Gemm::pointwise(I32, Order::RowMajor, &epilogue);
    for target in TARGETS {
        let kernel = gemm.compile(&Cache::in_memory(), target, 108, Shape::matrix(48, 4608)).unwrap();
        let explained = kernel.explain();
        assert!(explained.contains("registers ran out; compiled again with a strip's elements in a loop"), "{explained}");
    }
}

/// Whatever the number of a region's select, no name of its kernel hides a type: conditions and bits are stored behind it.
#[test]
fn regions_of_any_number_store_conditions() {
    if !nvrtc() {
        return;
    }
    for before in 0..10 {
        let epilogue = Epilogue::build(|e| {
            let left = e.column().lt(e.scalar("boundary", I32));
            let z = (0..before).fold(e.acc(), |z, _| z * 0.5);
            let z = z.region(left, |z| z.tanh().exp()).otherwise(|z| z.sin());
            e.store("d", z, F16);
            e.store("bits", z.gt(0.0), Bits8);
            e.store("flags", z.gt(1.0), Bool);
        });
        let gemm = Gemm::pointwise(F16, Order::RowMajor, &epilogue.unwrap());
        let kernel = gemm.compile(&Cache::in_memory(), Target::SM_80, 108, Shape::matrix(48, 4608));
        assert!(kernel.is_ok(), "{}", kernel.err().unwrap());
    }
}
