//! The machine code of a fixed set of kernels, as digests: for changes that are meant to leave every kernel as it is.
//!
//! `cargo xtask machine-code COMMIT` runs the ignored test here and at another commit, and names the kernels whose
//! instructions differ. `POSTLUDE_MACHINE_CODE` names the file that the test writes: a line for each kernel, with its name,
//! bytes of code and digest.
#![allow(missing_docs, reason = "a test binary")]

#[path = "support/compiler.rs"]
mod compiler;
#[path = "support/epilogues.rs"]
mod epilogues;
#[path = "support/sass.rs"]
#[allow(dead_code, reason = "each test crate uses its part")]
mod sass;

use epilogues::{SHAPES, epilogues};
use postlude::build::recipes;
use postlude::dtype::ValueType;
use postlude::ir::Order;
use postlude::jit::{Cache, Options};
use postlude::plan::KernelPlan;
use postlude::prelude::*;
use postlude::target::Target;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Every kernel of the set with its name.
fn kernels() -> Vec<(String, KernelPlan)> {
    let mut all = Vec::new();
    epilogues(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/epilogues"), &mut all);
    assert!(all.len() > 40, "{} epilogues", all.len());
    let mut out = Vec::new();
    let mut add = |name: String, plan: KernelPlan| {
        if let Some(split) = &plan.split {
            out.push((format!("{name}, product"), KernelPlan::clone(&split.product)));
        }
        out.extend(plan.before.iter().map(|plan| (format!("{name}, before"), plan.clone())));
        out.push((name, plan));
    };
    for (name, epilogue) in &all {
        let dtype = match epilogue.checked().accumulator() {
            Some(value @ (ValueType::I32 | ValueType::F64)) => value.storage(),
            _ => F16,
        };
        let pointwise = Gemm::pointwise(dtype, Order::RowMajor, epilogue);
        let product = Gemm::new(dtype, TN, epilogue);
        for (gemm, target) in [(&product, Target::SM_80), (&product, Target::SM_90A), (&pointwise, Target::SM_80)] {
            if let Ok(plan) = gemm.kernel_plan(target, 132, SHAPES[1]) {
                add(format!("{name} {} {target}", plan.tile.mainloop()), plan);
            }
        }
    }
    let plain = recipes::identity(F16).expect("an epilogue");
    let summed = all.iter().find(|(name, _)| name == "bias_gradient").map_or(&plain, |(_, epilogue)| epilogue);
    for (what, epilogue) in [("identity", &plain), ("bias gradient", summed)] {
        for layout in [NN, NT, TN, TT] {
            for shape in SHAPES {
                if let Ok(plan) = Gemm::new(F16, layout, epilogue).kernel_plan(Target::SM_90A, 132, shape) {
                    add(format!("{what} {layout} {shape}"), plan);
                }
            }
        }
        for (tile, _) in
            Gemm::new(F16, TN, epilogue).kernel_plan(Target::SM_90A, 132, SHAPES[0]).expect("a plan").choice.candidates()
        {
            let plan = Gemm::new(F16, TN, epilogue).tile(tile).kernel_plan(Target::SM_90A, 132, SHAPES[0]);
            add(format!("{what} {tile}"), plan.expect("a plan"));
        }
    }
    out
}

#[test]
#[ignore = "compiles hundreds of kernels; `cargo xtask machine-code` runs it"]
fn digests() {
    if !compiler::nvrtc() {
        return;
    }
    let kernels = kernels();
    let (next, lines) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, Into::into) {
            scope.spawn(|| {
                while let Some((name, plan)) = kernels.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let source = plan.source().expect("a source");
                    let cubin = Cache::in_memory().compile(&source, &plan.target, &Options::new()).expect("a binary");
                    let (bytes, digest) = (sass::code_bytes(&cubin.bytes), sass::digest(&cubin.bytes));
                    let (bytes, digest) = (bytes.expect("machine code"), digest.expect("machine code"));
                    lines.lock().expect("no panic").push(format!("{name}\t{bytes}\t{digest:016x}\n"));
                }
            });
        }
    });
    let mut lines = lines.into_inner().expect("no panic");
    lines.sort();
    assert_eq!(lines.len(), kernels.len());
    if let Some(file) = std::env::var_os("POSTLUDE_MACHINE_CODE") {
        std::fs::write(file, lines.concat()).expect("a file that can be written");
    }
}
