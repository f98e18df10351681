//! Everything there is to see of an epilogue, for any target and without a GPU: listing, JSON, DOT, plan, CUDA; and registers and
//! spills, if NVRTC is there.
//!
//! ```text
//! $ cargo run --release --example inspect -- sm_90a
//! %0: f32[M,N,L] = acc f32
//! %1: f32[N] = load "bias" f16[N]
//! ...
//! store "d" f16[M,N,L], %8
//!
//! kernel        ... for sm_90a
//! ...
//! candidates
//! ...
//!
//! DEVICE void epilogue_visit(...) {
//! ...
//!     if (r.v5) { // %12 select
//! ...
//!
//! Compiled by NVRTC ...: ... registers a thread, 0 bytes spilled (compiled)
//! In full: target/inspect/epilogue.json, epilogue.dot, kernel.cu
//! ```

use postlude::prelude::*;
use postlude::target::Target;
use std::fs;
use std::io::Write;
use std::path::Path;

type Result<T, E = Box<dyn std::error::Error>> = std::result::Result<T, E>;

/// Multiprocessors to plan for: an H200's. With a GPU at hand, `Device::multiprocessors` tells.
const MULTIPROCESSORS: usize = 132;

/// Shows one epilogue for the target of that name.
pub fn run(out: &mut dyn Write, target: &str) -> Result<()> {
    let epilogue = Epilogue::build(|e| {
        let z = e.acc() + e.load("bias", F16.over(N));
        let y = z.region(e.row().lt(e.scalar("boundary", I32)), |z| z.sigmoid()).otherwise(|z| z.tanh());
        e.store("d", y, F16);
    })?;
    writeln!(out, "{epilogue}")?;

    let target: Target = target.parse()?;
    let gemm = Gemm::new(F16, TN, &epilogue);
    let shape = Shape::new(8192, 8192, 8192);
    let plan = gemm.kernel_plan(target, MULTIPROCESSORS, shape)?;
    let source = plan.source()?;
    writeln!(out, "{}", plan.explain())?;
    writeln!(out, "{}", function(source.text(), "epilogue_visit"))?;
    writeln!(out, "{}", compiled(&gemm, target, shape))?;

    let folder = Path::new("target").join("inspect");
    fs::create_dir_all(&folder)?;
    fs::write(folder.join("epilogue.json"), epilogue.to_json())?;
    fs::write(folder.join("epilogue.dot"), epilogue.to_dot())?;
    fs::write(folder.join("kernel.cu"), source.text())?;
    writeln!(out, "In full: {}/epilogue.json, epilogue.dot, kernel.cu", folder.display())?;
    Ok(())
}

/// One function out of a source text, from its name to its closing brace.
fn function(text: &str, name: &str) -> String {
    let lines = text.lines().skip_while(|line| !line.contains(&format!(" {name}(")));
    let mut ended = false;
    let lines = lines.take_while(|line| !std::mem::replace(&mut ended, *line == "}"));
    lines.filter(|line| !line.starts_with("#line")).map(|line| format!("{line}\n")).collect()
}

/// What the compiler says of the kernel, or why it cannot be asked.
#[cfg(feature = "jit")]
fn compiled(gemm: &Gemm, target: Target, shape: Shape) -> String {
    match gemm.compile(postlude::jit::Cache::global(), target, MULTIPROCESSORS, shape) {
        Ok(kernel) => {
            let info = &kernel.cubin.info;
            let spilled = info.spill_store_bytes + info.spill_load_bytes;
            format!(
                "Compiled by {}: {} registers a thread, {spilled} bytes spilled ({})",
                info.compiler, info.registers, info.origin
            )
        }
        Err(why) => format!("Not compiled: {why}"),
    }
}

#[cfg(not(feature = "jit"))]
fn compiled(_: &Gemm, _: Target, _: Shape) -> String {
    "Not compiled: this program was built without the `jit` feature".into()
}

fn main() {
    let target = std::env::args().nth(1).unwrap_or_else(|| "sm_90a".into());
    if let Err(error) = run(&mut std::io::stdout(), &target) {
        eprintln!("error: {error}");
        std::process::exit(1);
    }
}
