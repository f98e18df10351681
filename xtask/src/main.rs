//! Postlude's own tooling: `cargo xtask`.

/// Prints a line, unless the reader is gone, as behind `| head`.
macro_rules! say {
    ($($text:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stdout(), $($text)*);
    }};
}

mod adapters;
mod bench;
mod bundle;
mod cache;
mod ci;
mod deny;
mod error;
mod fit_tiles;
mod fuzz;
mod machine_code;
mod msrv;
mod mutants;
mod nvrtc;
mod onnx;
mod project;
mod report;
mod svg;
mod test;
mod tools;

use std::process::ExitCode;

use error::{Error, Result};
use project::Project;

const USAGE: &str = "\
Usage: cargo xtask COMMAND

  test [--cold] [--all-kernels] [-- CARGO_TEST_ARGS...]
        Run every test. Fetches the NVRTC library into target/ if the machine has none. Needs no GPU, and uses a present one.
          --cold         empty the tests' kernel cache first
          --all-kernels  compile every kernel of tests/nvrtc.rs, and not a sample; so does a run of that test by name
  ci [STEP...]
        Run every check a change has to pass, or only the named steps. `ci --list` names them.
  deny [CHECK...]
        Check licences, bans, sources and advisories of the dependencies, or only the named checks. Advisories are fetched.
        cargo-deny is installed into target/, which takes minutes.
  nvrtc
        Print the folder of the NVRTC library that the tests use, fetching it when the machine has none.
  onnx
        Print the folder of ONNX's own tests, fetching them into target/ once.
  gpu-bundle [--out DIR] [--only tests|benches|examples] [--filter TEXT] [-- CARGO_ARGS...]
        Build the test, benchmark and example programs, stripped, with a script that runs them on a machine without Rust.
          --out DIR      where to put them (default: target/gpu-bundle)
          --only KIND    only this kind
          --filter TEXT  only programs with TEXT in their name
  bench-gpu [-- FLAGS...]
        Measure the products on the GPU of this machine and write the report; without a GPU make a bundle to measure elsewhere.
        FLAGS are the benchmark's: `-- --help` lists them, `-- --list` what would be measured.
  bench-cache [--report] [-- ARGS...]
        Measure the kernel cache, print a table, and write it with a chart to docs/jit_cache.md and .svg and the README.
        Needs NVRTC, no GPU.
          --report       only write what was measured before
        ARGS are criterion's: a name selects benchmarks.
  bench-report [FILE...] [--out DIR] [--fresh]
        Add records of the benchmark to docs/benchmarks.csv, and make docs/benchmarks.md and .svg of all of them.
          --out DIR      make them there, of the records of before that are there
          --fresh        forget the records of before
  fit-tiles MODEL [--steps N]
        Fit the cost model of Hopper's tiles to tests/choices/tiles_*.csv. Print its numbers, and how near the choice is
        to the best tile. MODEL is h200, h200+across (of rows that do not begin at lines) or h200+short (of a short
        K). The survey of the benchmark writes such files.
  fuzz [--minutes N] [TEXT]
        Repeat the tests with random input, new input every time, for so long each (10), under a limit on their memory.
        TEXT selects one: entry, json, text, network or onnx.
  machine-code COMMIT [--texts]
        Name the kernels whose instructions differ from those of another commit. Needs NVRTC, no GPU; takes ten minutes.
          --texts        compare the texts of 8000 kernels and their plans instead, in a minute and without NVRTC
  mutants [--sample N] [--seed S] [FILE...] [-- ARGS...]
        Put small faults into the library, one at a time, and name those that no test sees. Takes about a minute for each, and
        needs no GPU.
          --sample N     so many of the faults (20)
          --seed S       others of them
        ARGS are those of cargo-mutants, which is installed into target/.
  mutants --templates
        The same with the faults of tests/emulate/mutants.txt, in kernels that run on the processor. Needs a C++ compiler.
  help
        Print this.
";

fn main() -> ExitCode {
    let words = std::env::args_os()
        .skip(1)
        .map(|word| word.into_string().map_err(|word| Error::new(format!("`{}` is not UTF-8", word.display()))));
    match words.collect::<Result<Vec<_>>>().and_then(|args| dispatch(&args)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn dispatch(args: &[String]) -> Result {
    let Some((command, args)) = args.split_first() else {
        return Err(Error::new(format!("no command given\n\n{USAGE}")));
    };
    match command.as_str() {
        "test" => test::run(&Project::open()?, args),
        "ci" => ci::run(&Project::open()?, args),
        "deny" => deny::run(&Project::open()?, args),
        "nvrtc" => nvrtc::print(&Project::open()?, args),
        "onnx" => onnx::print(&Project::open()?, args),
        "bench-gpu" => bench::run(&Project::open()?, args),
        "bench-cache" => cache::run(&Project::open()?, args),
        "bench-report" => report::run(&Project::open()?, args),
        "fit-tiles" => fit_tiles::run(&Project::open()?, args),
        "fuzz" => fuzz::run(&Project::open()?, args),
        "machine-code" => machine_code::run(&Project::open()?, args),
        "mutants" => mutants::run(&Project::open()?, args),
        "gpu-bundle" => bundle::run(&Project::open()?, args),
        "help" | "--help" | "-h" => {
            say!("{}", USAGE.trim_end());
            Ok(())
        }
        other => Err(Error::new(format!("unknown command `{other}`\n\n{USAGE}"))),
    }
}
