//! The texts of a wide set of kernels, as digests: for changes that are meant to leave every kernel as it is.
//!
//! Kernels of one text have one machine code, so this asks for neither NVRTC nor time. `cargo xtask machine-code COMMIT
//! --texts` runs the ignored test here and at another commit. `POSTLUDE_KERNEL_TEXTS` names the file that the test writes: a
//! line for each kernel, with its name, bytes of text, and digests of text and plan. `tests/machine_code.rs` has the
//! instructions of some.
#![allow(missing_docs, reason = "a test binary")]

#[path = "../benches/gemm/case.rs"]
#[allow(dead_code, reason = "the benchmark uses what the tests do not")]
mod case;
#[path = "support/epilogues.rs"]
mod epilogues;
#[path = "../benches/gemm/fused.rs"]
#[allow(dead_code, reason = "the benchmark uses what the tests do not")]
mod fused;
#[path = "../benches/gemm/sample.rs"]
#[allow(dead_code, reason = "the benchmark uses what the tests do not")]
mod sample;

use case::{Case, Group};
use epilogues::{SHAPES, epilogues};
use postlude::build::recipes;
use postlude::ir::Order;
use postlude::plan::{KernelPlan, Mainloop};
use postlude::prelude::*;
use postlude::problem::{Blocks, PoolKind, Pooling};
use postlude::target::{Gpu, Target};
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;

/// An architecture of each mainloop, with its multiprocessors.
const TARGETS: [(Target, usize); 2] = [(Target::SM_80, 108), (Target::SM_90A, 132)];

/// Convolutions for each mainloop that computes them.
fn convolutions() -> Vec<ConvShape> {
    let base = ConvShape::new(3, [13, 11, 64], [72, 3, 3]).padding([1, 1]);
    let groups = ConvShape { channels: 80, filters: 80, ..base };
    vec![
        base,
        base.stride([2, 2]),
        base.dilation([2, 3]),
        ConvShape { channels: 3, window: [7, 7], height: 40, width: 33, ..base }.stride([2, 2]),
        ConvShape { channels: 8, ..base },
        ConvShape { channels: 72, ..base },
        ConvShape { window: [1, 1], padding: [0; 4], ..base }.stride([2, 2]),
        groups.groups(80),
        groups.groups(4),
        ConvShape { channels: 256, filters: 256, ..base }.groups(2),
        ConvShape { images: 64, channels: 256, filters: 256, height: 14, width: 14, ..base },
    ]
}

fn digest(of: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish()
}

/// The lines that the kernels of a set come to: bytes of text, its digest, and that of the plan in words with its launch.
#[derive(Default)]
struct Texts(BTreeMap<String, String>);

impl Texts {
    fn add(&mut self, name: String, plan: &KernelPlan) {
        if let Some(split) = &plan.split {
            self.add(format!("{name}, product"), &split.product);
        }
        for (number, plan) in plan.before.iter().enumerate() {
            self.add(format!("{name}, before {number}"), plan);
        }
        let source = plan.source().expect("a source");
        let text = digest(source.text());
        let launch = digest((plan.explain(), plan.shared_memory(), plan.grid(SHAPES[2]), plan.params.size));
        self.0.insert(name, format!("{}\t{text:016x}\t{launch:016x}", source.text().len()));
    }

    /// A product's kernel on each architecture.
    fn product(&mut self, name: &str, gemm: &Gemm, shape: Shape) {
        for (target, multiprocessors) in TARGETS {
            if let Ok(plan) = gemm.kernel_plan(target, multiprocessors, shape) {
                self.add(format!("{name} {shape} {target}"), &plan);
            }
        }
    }

    /// Its kernels on every tile that fits, and as it leaves more registers to a thread.
    fn tiles(&mut self, name: &str, gemm: &Gemm, target: Target, gpu: impl Into<Gpu>, shape: Shape) {
        let Ok(plan) = gemm.kernel_plan(target, gpu.into(), shape) else { return };
        for (tile, raster) in plan.choice.candidates() {
            if let Some(plan) = plan.with_tile(tile, raster, "all are tried") {
                self.add(format!("{name} {shape} {target} {tile}"), &plan);
            }
        }
        let mut relaxed = plan;
        for times in 1..4 {
            if relaxed.relax() {
                self.add(format!("{name} {shape} {target} relaxed {times}"), &relaxed);
            }
        }
    }
}

/// The kernels of the file tests, on any mainloop that takes them.
fn of_files(texts: &mut Texts) {
    let mut all = Vec::new();
    epilogues(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/epilogues"), &mut all);
    assert!(all.len() > 40, "{} epilogues", all.len());
    for (name, epilogue) in &all {
        for dtype in [F16, F32, F64, E4M3, I8] {
            texts.product(&format!("{name} {dtype}"), &Gemm::new(dtype, TN, epilogue), SHAPES[1]);
            texts.product(&format!("{name} pointwise {dtype}"), &Gemm::pointwise(dtype, Order::RowMajor, epilogue), SHAPES[1]);
        }
        for layout in [NN, NT, TT] {
            texts.product(&format!("{name} {layout}"), &Gemm::new(F16, layout, epilogue), SHAPES[5]);
        }
        for mainloop in [Mainloop::Simt, Mainloop::Sm80, Mainloop::Gemv] {
            texts.product(&format!("{name} {mainloop}"), &Gemm::new(F16, TN, epilogue).mainloop(mainloop), SHAPES[4]);
        }
        for shape in [Shape::new(3, 4096, 4096), Shape::new(4096, 8, 512), SHAPES[4], SHAPES[6], Shape::new(512, 200, 384)] {
            texts.product(name, &Gemm::new(F16, TN, epilogue), shape);
        }
        for shape in [Shape::new(512, 64, 0), Shape::new(2000, 5000, 0), Shape::new(100, 100_000, 0)] {
            texts.product(&format!("{name} matrix"), &Gemm::pointwise(F16, Order::RowMajor, epilogue), shape);
        }
    }
}

/// Every tile of some products.
fn of_tiles(texts: &mut Texts) {
    let plain = recipes::identity(F16).expect("an epilogue");
    let sums = Epilogue::build(|e| {
        e.store("d", e.acc() + e.load("c", F16) * e.load("bias", F16.over(N)), F16);
        e.reduce("sums", e.acc(), Monoid::Sum, F32.over(N));
        e.reduce("most", e.acc(), Monoid::Max, F32.over(M));
    });
    let sums = sums.expect("an epilogue");
    for (what, epilogue) in [("identity", &plain), ("sums", &sums)] {
        for (target, multiprocessors) in TARGETS {
            for (shape, dtype) in [(SHAPES[0], F16), (SHAPES[4], F16), (SHAPES[1], E4M3), (SHAPES[1], F32), (SHAPES[6], I8)] {
                for gemm in [Gemm::new(dtype, TN, epilogue), Gemm::new(dtype, TN, epilogue).mainloop(Mainloop::Simt)] {
                    texts.tiles(&format!("{what} {dtype}"), &gemm, target, multiprocessors, shape);
                }
            }
            let (few, wide) = (Shape::new(2, 4096, 4096), Shape::new(64, 1000, 0));
            texts.tiles(what, &Gemm::new(F16, NN, epilogue), target, multiprocessors, few);
            texts.tiles(what, &Gemm::new(F16, TN, epilogue), target, multiprocessors, few);
            texts.tiles(what, &Gemm::pointwise(F16, Order::RowMajor, epilogue), target, multiprocessors, wide);
        }
        for layout in [NN, NT, TN, TT] {
            for shape in SHAPES {
                texts.product(&format!("{what} {layout}"), &Gemm::new(F16, layout, epilogue), shape);
                texts.product(&format!("{what} {layout} f32"), &Gemm::new(F32, layout, epilogue).tf32(true), shape);
            }
        }
    }
    let (scaled, blocks) = ([E4M3, E4M3], [Blocks::groups(128), Blocks::squares(128)]);
    for mainloop in [Mainloop::Sm90a, Mainloop::Sm80, Mainloop::Simt] {
        let gemm = Gemm::block_scaled(scaled, TN, blocks, &plain).mainloop(mainloop);
        texts.tiles("scaled", &gemm, Target::SM_90A, 132, Shape::new(1024, 2048, 4096));
    }
    let groups = Blocks::groups(128).scales_as(F16);
    for (b, rows) in [(I4, 8), (U4, 16), (I8, 300), (I4, 2048)] {
        let gemm = Gemm::grouped_weights(F16, b, TN, groups, &plain);
        for (target, multiprocessors) in TARGETS {
            texts.tiles(&format!("weights {b}"), &gemm, target, multiprocessors, Shape::new(rows, 1024, 1024));
        }
    }
}

/// Convolutions, their gradients, and pools.
fn of_images(texts: &mut Texts) {
    let plain = recipes::identity(F16).expect("an epilogue");
    let summed = Epilogue::build(|e| {
        e.store("d", (e.acc() + e.load("bias", F32.over(N))).relu(), F16);
        e.reduce("sums", e.acc(), Monoid::Sum, F32.over(N));
    });
    let summed = summed.expect("an epilogue");
    for (place, shape) in convolutions().into_iter().enumerate() {
        for dtype in [F16, F32] {
            for (what, epilogue) in [("identity", &plain), ("summed", &summed)] {
                let ways = [
                    ("forward", Conv::new(dtype, shape, epilogue)),
                    ("images", Conv::data_gradient(dtype, shape, epilogue)),
                    ("filters", Conv::filter_gradient(dtype, shape, epilogue)),
                ];
                for (way, conv) in ways {
                    let Ok(conv) = conv else { continue };
                    for (target, multiprocessors) in TARGETS {
                        let name = format!("convolution {place} {dtype} {what} {way}");
                        texts.tiles(&name, conv.gemm(), target, multiprocessors, conv.shape());
                        if let Ok(plan) = conv.kernel_plan(target, multiprocessors) {
                            texts.add(format!("{name} {target}"), &plan);
                        }
                    }
                }
            }
        }
    }
    for kind in [PoolKind::Max, PoolKind::AverageOfTaps] {
        for window in [[2, 2], [7, 7]] {
            let windows = ConvShape::windows(8, [14, 14, 64], window).stride([2, 2]);
            let pooling = Pooling::new(kind, windows).expect("a pool");
            texts.product(&format!("{kind:?} {window:?}"), &Gemm::pool(F16, pooling, &plain), pooling.shape());
        }
    }
}

/// The kernels of the benchmark.
fn of_benchmarks(texts: &mut Texts) {
    for case in Group::ALL.into_iter().flat_map(|group| Case::list(group, None, None, &group.shapes())) {
        for fused in &case.epilogues {
            let Ok(epilogue) = fused.epilogue(case.dtype) else { continue };
            let constant = (matches!(case.group, Group::Few) || case.shape.m <= 128).then_some(Side::B);
            let gemm = Gemm::new(case.dtype, case.layout, &epilogue).constant_operands(constant);
            texts.product(&format!("{} {}", case.title(), fused.word()), &gemm, case.shape);
        }
    }
}

#[test]
#[ignore = "prints thousands of kernels; `cargo xtask machine-code COMMIT --texts` runs it"]
fn digests() {
    let parts: [fn(&mut Texts); 4] = [of_files, of_tiles, of_images, of_benchmarks];
    let all: Vec<Texts> = std::thread::scope(|scope| {
        let threads = parts.map(|part| {
            scope.spawn(move || {
                let mut texts = Texts::default();
                part(&mut texts);
                texts
            })
        });
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    let all: BTreeMap<String, String> = all.into_iter().flat_map(|texts| texts.0).collect();
    assert!(all.len() > 1000, "{} kernels", all.len());
    eprintln!("{} kernels", all.len());
    if let Some(file) = std::env::var_os("POSTLUDE_KERNEL_TEXTS") {
        let lines: String = all.iter().map(|(name, text)| format!("{name}\t{text}\n")).collect();
        std::fs::write(file, lines).expect("a file that can be written");
    }
}
