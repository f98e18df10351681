//! `cargo xtask gpu-bundle`: the tests, benchmarks and examples as plain programs, for a machine that has a GPU but no
//! Rust.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::error::{Context, Error, Result};
use crate::project::{Project, Target, capture};
use crate::test::split_at_dashes;

const RUNNER: &str = include_str!("run.sh");

/// One folder of the bundle, and how cargo builds its programs.
struct Kind {
    folder: &'static str,
    command: &'static [&'static str],
    /// The kinds of cargo target, each with the flag that selects one.
    targets: &'static [(&'static str, &'static str)],
}

const KINDS: [Kind; 3] = [
    Kind { folder: "tests", command: &["test", "--release", "--no-run"], targets: &[("lib", "--lib"), ("test", "--test")] },
    Kind { folder: "benches", command: &["bench", "--no-run"], targets: &[("bench", "--bench")] },
    Kind { folder: "examples", command: &["build", "--release"], targets: &[("example", "--example")] },
];

#[derive(Debug, Default, PartialEq, Eq)]
struct Options {
    out: Option<PathBuf>,
    only: Option<String>,
    filter: String,
}

pub fn run(project: &Project, args: &[String]) -> Result {
    let (own, extra) = split_at_dashes(args);
    let options = parse(own)?;
    let out = match &options.out {
        Some(out) => std::path::absolute(out).context(|| format!("cannot make {} absolute", out.display()))?,
        None => project.target.join("gpu-bundle"),
    };
    let kinds = || KINDS.iter().filter(|kind| options.only.as_deref().is_none_or(|only| only == kind.folder));
    let none = || Error::new("nothing to bundle: no test, benchmark or example fits");
    if kinds().all(|kind| select(kind, &project.targets, &options.filter).is_empty()) {
        return Err(none());
    }
    clear(&out)?;
    // The runner marks the folder as a bundle, even if a build below fails.
    fs::create_dir_all(&out).context(|| format!("cannot create {}", out.display()))?;
    write_runner(&out)?;

    let mut bytes = 0;
    for kind in kinds() {
        for (name, program) in build(project, kind, &options.filter, extra)? {
            let folder = out.join(kind.folder);
            fs::create_dir_all(&folder).context(|| format!("cannot create {}", folder.display()))?;
            let size = fs::copy(&program, folder.join(&name)).context(|| format!("cannot copy {}", program.display()))?;
            say!("{:>8.1} MB  {}/{name}", megabytes(size), kind.folder);
            bytes += size;
        }
    }
    if bytes == 0 {
        return Err(none());
    }
    say!("{:>8.1} MB  together", megabytes(bytes));
    say!("Run from the repository root: {} all", out.join("run.sh").display());
    Ok(())
}

fn parse(args: &[String]) -> Result<Options> {
    let mut options = Options::default();
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let mut value = || args.next().cloned().ok_or_else(|| Error::new(format!("`{arg}` needs a value")));
        match arg.as_str() {
            "--out" => options.out = Some(value()?.into()),
            "--only" => options.only = Some(value()?),
            "--filter" => options.filter = value()?,
            other => return Err(Error::new(format!("unknown option `{other}` of `gpu-bundle`; cargo's own go behind `--`"))),
        }
    }
    match &options.only {
        Some(only) if KINDS.iter().all(|kind| kind.folder != only) => {
            Err(Error::new(format!("`--only {only}`: there are tests, benches and examples")))
        }
        _ => Ok(options),
    }
}

/// Empties an old bundle. Any other folder with contents is left alone.
fn clear(out: &Path) -> Result {
    let occupied = fs::read_dir(out).is_ok_and(|mut entries| entries.next().is_some());
    if occupied && fs::read_to_string(out.join("run.sh")).ok().as_deref().map(first_lines) != Some(first_lines(RUNNER)) {
        return Err(Error::new(format!("{} is not empty and holds no earlier bundle: choose another folder", out.display())));
    }
    for kind in &KINDS {
        let folder = out.join(kind.folder);
        if folder.exists() {
            fs::remove_dir_all(&folder).context(|| format!("cannot empty {}", folder.display()))?;
        }
    }
    Ok(())
}

/// The lines that identify the runner script, whatever its version.
fn first_lines(script: &str) -> Vec<&str> {
    script.lines().take(2).collect()
}

/// Builds one kind of program. Returns names and files.
fn build(project: &Project, kind: &Kind, filter: &str, extra: &[String]) -> Result<Vec<(String, PathBuf)>> {
    let selection = select(kind, &project.targets, filter);
    if selection.is_empty() {
        return Ok(Vec::new());
    }
    let mut cargo = project.cargo();
    cargo
        .args(kind.command)
        .args(["--package", "postlude", "--message-format=json-render-diagnostics"])
        .args(selection)
        .args(extra);
    cargo.env("CARGO_PROFILE_RELEASE_STRIP", "symbols");
    let messages = capture(&mut cargo)?;
    Ok(messages
        .lines()
        .filter_map(program)
        .filter(|(target, _)| belongs(kind, target))
        .map(|(t, file)| (file_name(&t), file))
        .collect())
}

/// The flags that make cargo build this kind of program and nothing else.
fn select(kind: &Kind, targets: &[Target], filter: &str) -> Vec<String> {
    let mut flags = Vec::new();
    for target in targets.iter().filter(|target| file_name(target).contains(filter)) {
        match kind.targets.iter().find(|(name, _)| *name == target.kind) {
            Some((_, "--lib")) => flags.push("--lib".to_owned()),
            Some((_, flag)) => flags.extend([(*flag).to_owned(), target.name.clone()]),
            None => {}
        }
    }
    flags
}

fn belongs(kind: &Kind, target: &Target) -> bool {
    kind.targets.iter().any(|(name, _)| *name == target.kind)
}

/// A program's name in the bundle: its target's name, and `unit` for the unit tests.
fn file_name(target: &Target) -> String {
    if target.kind == "lib" { "unit".to_owned() } else { target.name.clone() }
}

/// A message of cargo about something that it built.
#[derive(Deserialize)]
struct Artifact {
    reason: String,
    target: Target,
    executable: Option<PathBuf>,
}

/// The program that one of cargo's messages reports, if it reports one.
pub fn program(message: &str) -> Option<(Target, PathBuf)> {
    let Artifact { reason, target, executable } = serde_json::from_str(message).ok()?;
    Some((target, executable.filter(|_| reason == "compiler-artifact")?))
}

fn write_runner(out: &Path) -> Result {
    let runner = out.join("run.sh");
    fs::write(&runner, RUNNER).context(|| format!("cannot write {}", runner.display()))?;
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = fs::Permissions::from_mode(0o755);
        fs::set_permissions(&runner, mode).context(|| format!("cannot make {} executable", runner.display()))?;
    }
    Ok(())
}

fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(kind: &str, name: &str) -> Target {
        Target { kind: kind.into(), name: name.into() }
    }

    #[test]
    fn reads_programs_out_of_messages() {
        let message = r#"{"reason":"compiler-artifact","target":{"kind":["test"],"name":"files"},
            "executable":"/t/release/deps/files-0a1b"}"#;
        assert_eq!(program(message), Some((target("test", "files"), PathBuf::from("/t/release/deps/files-0a1b"))));
        assert_eq!(
            program(r#"{"reason":"compiler-artifact","target":{"kind":["lib"],"name":"postlude"},"executable":null}"#),
            None
        );
        assert_eq!(program(r#"{"reason":"build-finished","success":true}"#), None);
        assert_eq!(program("running 3 tests"), None);
    }

    #[test]
    fn selects_targets_by_kind_and_name() {
        let targets = [target("lib", "postlude"), target("test", "files"), target("test", "gpu"), target("bench", "gemm")];
        assert_eq!(select(&KINDS[0], &targets, ""), ["--lib", "--test", "files", "--test", "gpu"]);
        assert_eq!(select(&KINDS[0], &targets, "unit"), ["--lib"]);
        assert_eq!(select(&KINDS[1], &targets, "g"), ["--bench", "gemm"]);
        assert!(select(&KINDS[2], &targets, "").is_empty());
    }

    #[test]
    fn options_are_checked() {
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let parsed = parse(&words("--out b --only tests --filter gpu")).ok();
        assert_eq!(parsed, Some(Options { out: Some("b".into()), only: Some("tests".into()), filter: "gpu".into() }));
        for wrong in ["--only bench", "--out", "--release"] {
            assert!(parse(&words(wrong)).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_strange_folder_is_never_emptied() {
        let out = std::env::temp_dir().join(format!("postlude-xtask-{}-bundle", std::process::id()));
        let kept = out.join("tests").join("kept.rs");
        assert!(fs::create_dir_all(out.join("tests")).is_ok() && fs::write(&kept, "").is_ok());
        assert!(clear(&out).is_err() && kept.is_file());
        assert!(write_runner(&out).is_ok() && clear(&out).is_ok());
        assert!(!kept.exists());
        let _ = fs::remove_dir_all(&out);
    }
}
