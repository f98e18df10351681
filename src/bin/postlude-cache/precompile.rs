//! Filling a cache from documents.

use crate::Result;
use crate::args::Args;
use postlude::gemm::{Wanted, precompile};
use postlude::ir::Order;
use postlude::jit::{Cache, Origin, compiler};
use postlude::prelude::*;
use postlude::target::{Gpu, Target};
use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

/// Targets with one common device, and its multiprocessors.
const USUAL: [(&str, usize); 3] = [("sm_80", 108), ("sm_90", 132), ("sm_90a", 132)];

fn target(text: &str) -> Result<(Target, Gpu)> {
    let (name, count) = text.split_once(':').map_or((text, None), |(name, count)| (name, Some(count)));
    let target = name.parse()?;
    let usual = USUAL.iter().find(|(usual, _)| *usual == name).map(|(_, count)| *count);
    let count = match count {
        Some(count) => Some(count.parse()?),
        None => usual.map(Gpu::from),
    };
    Ok((target, count.ok_or_else(|| format!("`{text}`: say how many multiprocessors the device has, as in `{name}:80`"))?))
}

/// The warning for a target that no device requests.
fn unasked(target: Target) -> Option<String> {
    let (major, minor) = target.compute_capability();
    let asked = Target::of_device((major, minor));
    (asked != target).then(|| format!("devices of capability {major}.{minor} ask for {asked}, and never for {target}"))
}

fn shape(text: &str) -> Result<Shape> {
    let extents: Vec<usize> = text.split(',').map(str::parse).collect::<std::result::Result<_, _>>().unwrap_or_default();
    match extents[..] {
        [m, n, k] => Ok(Shape::new(m, n, k)),
        [m, n, k, l] => Ok(Shape::new(m, n, k).batched(l)),
        _ => Err(format!("`{text}` is not a shape; write M,N,K or M,N,K,L").into()),
    }
}

/// An epilogue in either form: JSON is an object, and no line of the text form begins with a brace.
fn epilogue(text: &str) -> Result<Epilogue> {
    // Some editors mark the encoding at the beginning.
    let (text, registry) = (text.trim_start_matches('\u{feff}'), postlude::build::registry());
    if text.trim_start().starts_with('{') {
        return Epilogue::from_json(text, &registry)
            .map_err(|error| format!("as JSON, because it begins with `{{`: {error}").into());
    }
    let both = "an epilogue is what `Epilogue::to_json` writes, or the text form that printing it shows";
    Epilogue::from_text(text, &registry).map_err(|error| format!("as text: {error}\n{both}").into())
}

/// The operation that computes the accumulator.
enum Makes {
    Product(DType, DType, Layout),
    Pointwise(DType, Order),
}

fn makes(text: &str, product: bool) -> Result<Makes> {
    let wrong = || {
        format!(
            "`{text}` is not {}",
            if product { "a product; write f16,TN, or e4m3,e5m2,TN" } else { "an operation; write f16,row" }
        )
    };
    let (dtype, lies) = text.split_once(',').ok_or_else(wrong)?;
    let dtype = DType::from_name(dtype).ok_or_else(wrong)?;
    if product {
        let (b, lies) = lies.split_once(',').map_or((Some(dtype), lies), |(b, lies)| (DType::from_name(b), lies));
        let layout = Layout::from_name(lies).ok_or_else(wrong)?;
        return Ok(Makes::Product(dtype, b.ok_or_else(wrong)?, layout));
    }
    match lies {
        "row" => Ok(Makes::Pointwise(dtype, Order::RowMajor)),
        "column" => Ok(Makes::Pointwise(dtype, Order::ColumnMajor)),
        _ => Err(wrong().into()),
    }
}

impl Makes {
    fn with(&self, epilogue: &Epilogue) -> Gemm {
        match *self {
            Makes::Product(a, b, layout) => Gemm::mixed(a, b, layout, epilogue),
            Makes::Pointwise(dtype, order) => Gemm::pointwise(dtype, order, epilogue),
        }
    }
}

pub fn run(cache: &Cache, mut args: Args) -> Result<ExitCode> {
    let targets = args.values("--target")?.iter().map(|text| target(text)).collect::<Result<Vec<_>>>()?;
    for warning in targets.iter().filter_map(|&(target, _)| unasked(target)) {
        eprintln!("warning: {warning}");
    }
    let shapes = args.values("--shape")?.iter().map(|text| shape(text)).collect::<Result<Vec<_>>>()?;
    let products = args.values("--product")?;
    let pointwise = args.values("--pointwise")?;
    let threads = args
        .value("--threads")?
        .map_or(Ok(0), |text| text.parse().map_err(|_| format!("`{text}` is not a number of threads")))?;
    let files = args.rest()?;
    for (what, missing) in [("--target", targets.is_empty()), ("--shape", shapes.is_empty()), ("EPILOGUE", files.is_empty())] {
        if missing {
            return Err(format!("{what} is missing; see `postlude-cache help`").into());
        }
    }
    let mut operations = products.iter().map(|text| makes(text, true)).collect::<Result<Vec<_>>>()?;
    operations.extend(pointwise.iter().map(|text| makes(text, false)).collect::<Result<Vec<_>>>()?);
    if operations.is_empty() {
        operations.push(Makes::Product(F16, F16, TN));
    }
    let mut epilogues = Vec::new();
    for file in &files {
        let text = std::fs::read_to_string(file).map_err(|error| format!("{file}: {error}"))?;
        epilogues.push((file, epilogue(&text).map_err(|error| format!("{file}: {error}"))?));
    }
    say!("{}", compiler()?.identity);

    let (mut wanted, mut names) = (Vec::new(), Vec::new());
    for (file, epilogue) in &epilogues {
        for operation in &operations {
            for &(target, gpu) in &targets {
                for &shape in &shapes {
                    wanted.push(Wanted { gemm: operation.with(epilogue), target, gpu, problem: shape.into() });
                    names.push(format!("{file} for {target}, {shape}"));
                }
            }
        }
    }
    let (start, done, bar) = (Instant::now(), AtomicUsize::new(0), std::io::stderr().is_terminal());
    if bar {
        progress(0, wanted.len(), "");
    }
    let outcomes = precompile(cache, &wanted, threads, |at, kernel| {
        let done = done.fetch_add(1, Ordering::Relaxed) + 1;
        if bar {
            progress(done, wanted.len(), &names[at]);
        } else if let Ok(kernel) = kernel {
            let info = &kernel.cubin.info;
            let ms = info
                .compile_ms
                .filter(|_| info.origin == Origin::Compiled)
                .map_or_else(String::new, |ms| format!(", {ms:.0} ms"));
            say!("{done}/{}  {}: {}{ms}, {} registers", wanted.len(), names[at], info.origin, info.registers);
        }
    });
    if bar {
        eprintln!();
    }
    let failed: Vec<_> =
        outcomes.iter().zip(&names).filter_map(|(outcome, name)| Some((name, outcome.as_ref().err()?))).collect();
    for (name, error) in &failed {
        eprintln!("error: {name}: {error}");
    }
    let stats = cache.stats();
    say!(
        "{} kernels compiled in {:.1} s ({:.1} s of NVRTC), {} were there, {} requests failed",
        stats.compiles,
        start.elapsed().as_secs_f64(),
        stats.compile_us as f64 / 1e6,
        stats.disk_hits,
        failed.len(),
    );
    if stats.unsaved > 0 {
        return Err(format!("{} kernels could not be written to {}", stats.unsaved, cache.directory()?.display()).into());
    }
    Ok(if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// One line that is overwritten again and again.
fn progress(done: usize, all: usize, name: &str) {
    // Printed in one piece, because several threads print.
    let _ = std::io::stderr().write_all(line(done, all, name).as_bytes());
}

/// A bar that is full at the end, and the name of the last kernel, padded so that it overwrites the previous line.
fn line(done: usize, all: usize, name: &str) -> String {
    const WIDTH: usize = 30;
    let filled = WIDTH * done.min(all) / all.max(1);
    let name: String = name.chars().take(60).collect();
    format!("\r[{}{}] {done:>3}/{all} {name:<60}", "#".repeat(filled), "-".repeat(WIDTH - filled))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_fills() {
        let bar = |done, all, name: &str| line(done, all, name).trim_end().to_owned();
        assert_eq!(bar(0, 4, ""), format!("\r[{}]   0/4", "-".repeat(30)));
        assert_eq!(bar(2, 4, "a.json"), format!("\r[{}{}]   2/4 a.json", "#".repeat(15), "-".repeat(15)));
        assert_eq!(bar(4, 4, "b"), format!("\r[{}]   4/4 b", "#".repeat(30)));
        assert_eq!(bar(0, 0, ""), format!("\r[{}]   0/0", "-".repeat(30)), "nothing to do");
        let (short, long) = (line(1, 200, "a"), line(200, 200, &"\u{e9}".repeat(99)));
        assert_eq!(short.chars().count(), long.chars().count(), "what was there is overwritten");
    }

    #[test]
    fn either_form_is_an_epilogue() {
        let relu = postlude::build::recipes::bias_activation(F16, F16, |z| z.relu()).unwrap();
        for form in [relu.to_json(), relu.to_string(), format!("\u{feff}\n {}", relu.to_json()), format!("\n; relu\n{relu}")] {
            assert_eq!(epilogue(&form).unwrap().to_string(), relu.to_string(), "{form}");
        }
        let error = |text: &str| epilogue(text).unwrap_err().to_string();
        assert!(error("{\"nodes\": []}").starts_with("as JSON, "));
        for neither in ["hello", "[1, 2]", ""] {
            let text = error(neither);
            assert!(text.starts_with("as text: ") && text.contains("`Epilogue::to_json`"), "{text}");
        }
    }

    #[test]
    fn words_are_read() {
        assert_eq!(target("sm_90a").unwrap(), (Target::SM_90A, 132.into()));
        assert_eq!(target("sm_86:84").unwrap(), (Target::SM_86, 84.into()));
        assert_eq!(target("sm_90a:132@h100").unwrap().1, "132@h100".parse().unwrap());
        assert!(target("sm_90a:132@b200").is_err() && target("sm_90a:@h100").is_err());
        assert_eq!(shape("1,2,3").unwrap(), Shape::new(1, 2, 3));
        assert_eq!(shape("1,2,3,4").unwrap(), Shape::new(1, 2, 3).batched(4));
        for wrong in ["sm_86", "sm_86:0", "sm_86:x", "90a"] {
            assert!(target(wrong).is_err(), "{wrong}");
        }
        let asked = [Target::SM_80, Target::SM_90A, Target::new(10, 0)].map(unasked);
        assert_eq!(asked, [None, None, None]);
        assert!(unasked(Target::SM_90).unwrap().contains("devices of capability 9.0 ask for sm_90a"));
        for wrong in ["", "1,2", "1,2,x", "1,2,3,4,5", "-1,2,3"] {
            assert!(shape(wrong).is_err(), "{wrong}");
        }
        assert!(matches!(makes("bf16,NT", true), Ok(Makes::Product(BF16, BF16, Layout::NT))));
        assert!(matches!(makes("f32,column", false), Ok(Makes::Pointwise(F32, Order::ColumnMajor))));
        for wrong in ["f16", "e4m3,f17,TN", "f17,TN", "f16,tn", "f16,row"] {
            assert!(makes(wrong, true).is_err(), "{wrong}");
        }
    }
}
