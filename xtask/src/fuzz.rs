//! `cargo xtask fuzz`: runs the tests with random input repeatedly, each reader for a given time.
//!
//! A round is a run of the test program, which draws new input every time. Its address space is limited, so that a
//! reader with unbounded memory fails like one that panics. The tests themselves keep a case that fails.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::bundle;
use crate::error::{Context, Error, Result};
use crate::project::{Project, capture};

/// A reader of untrusted input: its name, the target with its tests, and the common part of their names.
struct Reader {
    name: &'static str,
    target: &'static str,
    tests: &'static str,
}

const READERS: [Reader; 5] = [
    Reader { name: "entry", target: "postlude", tests: "jit::tests::reader::" },
    Reader { name: "json", target: "fuzz", tests: "json" },
    Reader { name: "text", target: "fuzz", tests: "text" },
    Reader { name: "network", target: "network", tests: "json_of_networks" },
    Reader { name: "onnx", target: "onnx", tests: "fuzz_" },
];

/// The tests of kept input, which is the same every time.
const SEEDS: &str = "the_kept_seeds";

/// KiB of address space for a round, program and stacks included.
const MEMORY: u64 = 512 << 10;

/// The intended time of a round, and the number of cases of each test in the first round.
const ROUND: Duration = Duration::from_secs(15);
const FIRST: u64 = 200;

#[derive(Debug, Default, PartialEq, Eq)]
struct Options {
    minutes: Option<u64>,
    only: Option<String>,
}

/// The work done so far.
#[derive(Debug, Default, PartialEq, Eq)]
struct Tally {
    cases: u64,
    time: Duration,
    /// KiB.
    peak: u64,
}

pub fn run(project: &Project, args: &[String]) -> Result {
    let options = parse(args)?;
    let readers = READERS.iter().filter(|reader| options.only.as_deref().is_none_or(|only| only == reader.name));
    let time = Duration::from_secs(options.minutes.unwrap_or(10).saturating_mul(60));
    let programs = build(project)?;
    for reader in readers {
        let program = programs.iter().find(|(target, _)| target == reader.target);
        let (_, program) = program.ok_or_else(|| Error::new(format!("cargo built no tests of `{}`", reader.target)))?;
        let tally = fuzz(project, reader, program, time)?;
        say!("{}: no fault in {}", reader.name, words(&tally));
    }
    Ok(())
}

fn parse(args: &[String]) -> Result<Options> {
    let mut options = Options::default();
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--minutes" => {
                let minutes = args.next().and_then(|text| text.parse().ok()).filter(|minutes| *minutes > 0);
                options.minutes = Some(minutes.ok_or_else(|| Error::new("`--minutes` needs a number of minutes"))?);
            }
            name if READERS.iter().any(|reader| reader.name == name) => options.only = Some(name.to_owned()),
            other => {
                return Err(Error::new(format!("`fuzz` knows entry, json, text, network, onnx and `--minutes`, not `{other}`")));
            }
        }
    }
    Ok(options)
}

/// The test programs, by the names of their targets. They are copies, so that a build meanwhile does not change them.
fn build(project: &Project) -> Result<Vec<(String, PathBuf)>> {
    let mut cargo = project.cargo();
    cargo.args(["test", "--no-run", "--package", "postlude", "--features", "onnx", "--lib"]);
    cargo.args(["--test", "fuzz", "--test", "network", "--test", "onnx"]);
    let messages = capture(cargo.arg("--message-format=json-render-diagnostics"))?;
    let folder = project.target.join("fuzz");
    fs::create_dir_all(&folder).context(|| format!("cannot create {}", folder.display()))?;
    let copied = messages.lines().filter_map(bundle::program).map(|(target, file)| {
        let own = folder.join(&target.name);
        fs::copy(&file, &own).context(|| format!("cannot copy {}", file.display()))?;
        Ok((target.name, own))
    });
    copied.collect()
}

fn fuzz(project: &Project, reader: &Reader, program: &Path, time: Duration) -> Result<Tally> {
    let (start, mut tally, mut cases) = (Instant::now(), Tally::default(), FIRST);
    while tally.time < time {
        let before = tally.time;
        let (tests, peak) = round(project, reader, program, cases)?;
        tally = Tally { cases: tally.cases + tests * cases, time: start.elapsed(), peak: tally.peak.max(peak) };
        say!("{}: {}", reader.name, words(&tally));
        cases = next(cases, tally.time - before, time.saturating_sub(tally.time));
    }
    Ok(tally)
}

/// The number of cases for a round of the intended time, or of the remaining time, from the speed of the last one.
fn next(cases: u64, took: Duration, left: Duration) -> u64 {
    let wanted = ROUND.min(left).as_secs_f64();
    ((cases as f64 * wanted / took.as_secs_f64().max(1e-3)) as u64).clamp(1, 10 * cases)
}

fn words(tally: &Tally) -> String {
    let Tally { cases, time, peak } = tally;
    format!("{cases} cases in {} s, at most {} MiB", time.as_secs(), peak.div_ceil(1024))
}

/// Runs the tests once. Returns the number of tests, and the most memory they had, in KiB.
fn round(project: &Project, reader: &Reader, program: &Path, cases: u64) -> Result<(u64, u64)> {
    let log = project.target.join("fuzz").join(format!("{}.log", reader.name));
    let failed = || format!("cannot run {}", program.display());
    let output = fs::File::create(&log).context(failed)?;
    let mut command = limited(program);
    command
        .args([reader.tests, "--test-threads=1", "--skip", SEEDS])
        .env("PROPTEST_CASES", cases.to_string())
        .env("CARGO_MANIFEST_DIR", &project.root)
        .current_dir(&project.root)
        .stdin(Stdio::null())
        .stderr(output.try_clone().context(failed)?)
        .stdout(output);
    let (status, peak) = command.spawn().and_then(watch).context(failed)?;
    let said = fs::read_to_string(&log).context(failed)?;
    match passed(&said).filter(|tests| status.success() && *tests > 0) {
        Some(tests) => Ok((tests, peak)),
        None => Err(Error::new(format!("{said}\n{}: a test failed ({status}); all of it is in {}", reader.name, log.display()))),
    }
}

/// A program that is limited to [`MEMORY`].
fn limited(program: &Path) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", &format!("ulimit -v {MEMORY} && exec \"$0\" \"$@\"")]).arg(program);
    command
}

/// Waits for a process. Returns its status, and the most memory that was seen, in KiB.
fn watch(mut child: Child) -> std::io::Result<(ExitStatus, u64)> {
    let mut peak = 0;
    loop {
        peak = peak.max(high_water(child.id()));
        if let Some(status) = child.try_wait()? {
            return Ok((status, peak));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The most memory that a process has had so far, in KiB.
fn high_water(process: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().strip_suffix(" kB")?.parse().ok()).unwrap_or(0)
}

/// How many tests passed, by the last line of their runner.
fn passed(said: &str) -> Option<u64> {
    let (_, rest) = said.rsplit_once("test result: ok. ")?;
    rest.split_once(" passed")?.0.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_checked() {
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let parsed = parse(&words("--minutes 3 json")).ok();
        assert_eq!(parsed, Some(Options { minutes: Some(3), only: Some("json".into()) }));
        assert_eq!(parse(&[]).ok(), Some(Options::default()));
        for wrong in ["--minutes", "--minutes 0", "--minutes x", "yaml"] {
            assert!(parse(&words(wrong)).is_err(), "{wrong}");
        }
    }

    #[test]
    fn rounds_take_as_long_as_they_are_meant_to() {
        let second = Duration::from_secs(1);
        assert_eq!(next(200, 5 * second, 600 * second), 600);
        assert_eq!(next(200, 30 * second, 600 * second), 100);
        assert_eq!(next(200, second / 100, 600 * second), 2000, "no more than ten times as many");
        assert_eq!(next(200, 10 * second, 5 * second), 100, "the time ends");
        assert_eq!(next(200, 10 * second, Duration::ZERO), 1);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn memory_is_limited_and_seen() {
        let run = |script: &str| {
            let mut command = limited(Path::new("sh"));
            command.args(["-c", script]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().and_then(watch).ok()
        };
        let sound = run("sleep 0.1");
        assert!(sound.is_some_and(|(status, peak)| status.success() && peak > 0), "{sound:?}");
        let greedy = run("head -c 900M /dev/zero | tail");
        assert!(greedy.is_some_and(|(status, _)| !status.success()), "{greedy:?}");
    }

    #[test]
    fn the_runner_is_understood() {
        let said = "running 4 tests\ntest result: ok. 4 passed; 0 failed; 0 ignored; 0 measured; 400 filtered out\n";
        assert_eq!(passed(said), Some(4));
        assert_eq!(passed("test result: FAILED. 3 passed; 1 failed"), None);
        assert_eq!(passed(""), None);
    }
}
