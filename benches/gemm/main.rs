//! Kernels on the GPU, against cuBLASLt and against themselves.
//!
//! `cargo bench --bench gemm -- --help` lists the flags, `-- --list` the cases. Contenders alternate in one process
//! (see [`contest`]). The result is the ratio of their times inside a round, because a GPU's clock follows its power,
//! and such ratios do not. Each comparison is a line on standard error and a line of CSV, written as soon as it is
//! known. `cargo xtask bench-report` makes tables and a chart of the CSV.
//!
//! Without a GPU it says why it does nothing.
#![allow(missing_docs, reason = "a benchmark")]

mod bench;
mod case;
mod contest;
mod cublaslt;
mod epilogues;
mod fused;
mod operands;
mod options;
mod peer;
mod rows;
mod sample;
mod sequences;
mod statistics;
#[path = "../support/mod.rs"]
#[allow(dead_code, reason = "other benchmarks use the rest")]
mod support;
mod survey;
mod training;

use case::{Case, Fused, Kind};
use operands::{Besides, Operands};
use options::Options;
use postlude::prelude::*;
use std::error::Error;
use std::time::Instant;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn main() {
    let args: Vec<String> = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    if args.iter().any(|arg| arg == "--help") {
        return say(options::USAGE);
    }
    let options = match Options::parse(&args, |name| std::env::var(name).ok()) {
        Ok(options) => options,
        Err(error) => fail(error),
    };
    let cases = options.cases();
    if cases.is_empty() {
        fail("no case is left: the groups have none of these shapes, formats, epilogues or titles");
    }
    if options.list {
        return list(&options, &cases);
    }
    let device = match Device::find() {
        Ok(device) => device,
        Err(error) if std::env::var_os("POSTLUDE_REQUIRE_GPU").is_some() => fail(error),
        Err(error) => return say(&format!("skipped: {error}")),
    };
    if let Err(error) = run(&device, &options, &cases) {
        fail(error);
    }
}

fn fail(error: impl std::fmt::Display) -> ! {
    eprintln!("error: {error}");
    std::process::exit(1);
}

/// Prints, unless the reader is gone, as behind `| head`.
fn say(text: &str) {
    use std::io::Write as _;
    let _ = writeln!(std::io::stdout(), "{text}");
}

fn seconds(options: &Options, case: &Case) -> f64 {
    case.seconds(&options.slices(case.group), options.rounds)
}

fn list(options: &Options, cases: &[Case]) {
    let lines = cases.iter().map(|case| format!("{:>7.1} s  {}\n", seconds(options, case), case.title()));
    let together: f64 = cases.iter().map(|case| seconds(options, case)).sum();
    say(&format!("{}{together:>7.1} s  together, {} cases", lines.collect::<String>(), cases.len()));
}

fn run(device: &Device, options: &Options, cases: &[Case]) -> Result<()> {
    // SAFETY: there is one stream, so nothing has to be ordered between streams. Captures could not wait for events.
    unsafe { device.context().disable_event_tracking() };
    let stream = device.context().new_stream()?;
    if let Some(path) = options.csv.as_ref().filter(|_| options.measured) {
        // Known before hours of measuring, not after.
        let opened = std::fs::OpenOptions::new().create(true).append(true).open(path);
        opened.map_err(|error| format!("{}: {error}", path.display()))?;
    }
    let bench = bench::Bench::new(device, &stream, options)?;
    let estimate: f64 = cases.iter().map(|case| seconds(options, case)).sum();
    eprintln!("{device:?}: {} cases, about {estimate:.0} s", cases.len());
    let start = Instant::now();
    bench.precompile(cases)?;
    eprintln!("compiled in {:.1} s", start.elapsed().as_secs_f64());
    let (mut kept, mut failed): (Option<Operands>, Vec<String>) = (None, Vec::new());
    for (i, case) in cases.iter().enumerate() {
        let between = matches!(case.kind, Kind::Sequence | Kind::Copy | Kind::Training);
        let besides = Besides { between, training: case.epilogues.iter().any(|fused| Fused::TRAINING.contains(fused)) };
        let fits = |o: &Operands| (o.dtype, o.shape, o.besides) == (case.dtype, case.shape, besides);
        let mut operands = match kept.take().filter(fits) {
            Some(operands) => operands,
            None => Operands::new(bench.noise(), case.dtype, case.shape, besides)?,
        };
        eprintln!("[{}/{}, {:.0} s] {}", i + 1, cases.len(), start.elapsed().as_secs_f64(), case.title());
        if let Err(error) = bench.case(case, &mut operands) {
            eprintln!("  FAILED: {error}");
            failed.push(format!("{}: {error}", case.title()));
        }
        kept = Some(operands);
    }
    eprintln!("{} cases in {:.0} s, {} failed", cases.len(), start.elapsed().as_secs_f64(), failed.len());
    let count = failed.len();
    if count == 0 { Ok(()) } else { Err(format!("{count} of {} cases failed\n  {}", cases.len(), failed.join("\n  ")).into()) }
}
