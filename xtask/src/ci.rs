//! `cargo xtask ci`: every check a change has to pass, the tests last.

use std::path::Path;
use std::time::Instant;

use crate::error::{Context, Error, Result};
use crate::project::{Project, call};
use crate::{adapters, msrv, nvrtc, test};

struct Step {
    name: &'static str,
    what: &'static str,
    run: fn(&Project) -> Result,
    /// Whether it runs only if it is named.
    named: bool,
    /// Why this machine cannot run it, if it cannot.
    lacks: fn(&Project) -> Result<Option<String>>,
}

impl Step {
    const fn new(name: &'static str, what: &'static str, run: fn(&Project) -> Result) -> Step {
        Step { name, what, run, named: false, lacks: |_| Ok(None) }
    }
}

const STEPS: [Step; 15] = [
    Step::new("fmt", "formatting", |project| cargo(project, &["fmt", "--all", "--check"])),
    Step::new("clippy", "lints, with every part", |project| {
        clippy(project, &["--test", "gpu", "--features", "postlude/onnx,postlude/dlpack"])
    }),
    Step::new("clippy-cpu", "lints, without CUDA", |project| clippy(project, &["--no-default-features"])),
    Step::new("clippy-jit", "lints, with the compiler but without the driver", |project| {
        clippy(project, &["--no-default-features", "--features", "jit"])
    }),
    Step { lacks: msrv::lacks, ..Step::new("msrv", "builds with the oldest Rust", msrv::check) },
    Step::new("doc", "documentation", doc),
    Step::new("unify", "builds beside a crate that links CUDA dynamically", |project| {
        cargo(project, &["check", "--package", "postlude", "--features", "cudarc/dynamic-linking"])
    }),
    Step::new("cudarc", "candle and the library share one cudarc", adapters::one_cudarc),
    Step::new("package", "the published package has all its files, and builds", package),
    Step::new("wheel", "the wheel in an empty environment of Python", adapters::wheel),
    Step { named: true, ..Step::new("candle", "candle's adapter, on the CPU", adapters::candle) },
    Step::new("compilers", "some kernels through other releases of NVRTC", some_kernels),
    Step { named: true, ..Step::new("all-kernels", "all kernels through every release of NVRTC", all_kernels) },
    Step::new("bare", "tests without compiler and driver", |project| {
        cargo(project, &["test", "--quiet", "--package", "postlude", "--no-default-features"])
    }),
    // Last, so that the output ends with the summary of the test runner.
    Step::new("test", "tests", |project| test::run(project, &[])),
];

/// Files that every package needs.
const SHIPPED: [&str; 5] = ["Cargo.toml", "README.md", "LICENSE-MIT", "LICENSE-APACHE", "src/lib.rs"];

pub fn run(project: &Project, args: &[String]) -> Result {
    if args.iter().all(|arg| arg == "--list") && !args.is_empty() {
        let when = |step: &Step| if step.named { " (only if it is named)" } else { "" };
        STEPS.iter().for_each(|step| say!("{:<12}{}{}", step.name, step.what, when(step)));
        return Ok(());
    }
    if let Some(unknown) = args.iter().find(|arg| STEPS.iter().all(|step| step.name != **arg)) {
        return Err(Error::new(format!("no step `{unknown}`; `cargo xtask ci --list` names them")));
    }
    let wanted = |step: &&Step| if args.is_empty() { !step.named } else { args.iter().any(|arg| arg == step.name) };
    for step in STEPS.iter().filter(wanted) {
        say!("\n== {}: {}", step.name, step.what);
        if let Some(why) = (step.lacks)(project).map_err(|error| Error::new(format!("step `{}`: {error}", step.name)))? {
            say!("== {}: LEFT OUT, because {why}", step.name);
            continue;
        }
        let start = Instant::now();
        let outcome = (step.run)(project);
        let seconds = start.elapsed().as_secs_f64();
        outcome.map_err(|error| Error::new(format!("step `{}` failed after {seconds:.1} s: {error}", step.name)))?;
        if step.name != "test" {
            say!("== {}: ok, {seconds:.1} s", step.name);
        }
    }
    Ok(())
}

fn cargo(project: &Project, args: &[&str]) -> Result {
    call(project.cargo().args(args))
}

fn clippy(project: &Project, features: &[&str]) -> Result {
    let mut cargo = project.cargo();
    cargo.args(["clippy", "--workspace", "--all-targets"]).args(adapters::PACKAGES.map(|name| format!("--exclude={name}")));
    cargo.args(features).args(["--", "-D", "warnings"]);
    call(&mut cargo)
}

fn doc(project: &Project) -> Result {
    // All of it as docs.rs does, and less, because links to items of a feature would break without the feature.
    for features in [&["--all-features"][..], &[], &["--no-default-features"]] {
        call(project.cargo().args(["doc", "--no-deps"]).args(features).env("RUSTDOCFLAGS", "-D warnings"))?;
    }
    Ok(())
}

/// The rendered kernels come from files. A package that lacks one would build only here.
fn package(project: &Project) -> Result {
    let mut more = vec!["CHANGELOG.md".to_owned()];
    files_under(&project.root, Path::new("templates"), &mut more)?;
    ships(project, "postlude", more)?;
    ships(project, "postlude-candle", Vec::new())?;
    // Builds the package without access to files that were not packed.
    cargo(project, &["package", "--package", "postlude", "--allow-dirty"])
}

/// A package has the files of every package, and these.
fn ships(project: &Project, package: &str, more: Vec<String>) -> Result {
    let list = project.capture(&["package", "--package", package, "--list", "--allow-dirty"])?;
    let missing = missing(&list, SHIPPED.into_iter().map(str::to_owned).chain(more));
    if !missing.is_empty() {
        return Err(Error::new(format!("the package {package} lacks {}", missing.join(", "))));
    }
    say!("{package}: {} files, and none missing", list.lines().count());
    Ok(())
}

/// The expected files that do not stand in the list, which has a line for each.
fn missing(list: &str, expected: impl Iterator<Item = String>) -> Vec<String> {
    let shipped: Vec<&str> = list.lines().collect();
    expected.filter(|file| !shipped.contains(&file.as_str())).collect()
}

fn some_kernels(project: &Project) -> Result {
    nvrtc::OTHERS.iter().zip(&test::SAMPLES[1..]).try_for_each(|(release, sample)| compiler(project, release, sample))
}

fn all_kernels(project: &Project) -> Result {
    test::run(project, &["--all-kernels", "--", "--package", "postlude", "--test", "nvrtc"].map(str::to_owned))?;
    nvrtc::OTHERS.iter().try_for_each(|release| compiler(project, release, test::ALL_KERNELS))
}

/// A kernel that passes with one compiler may run out of registers with another.
fn compiler(project: &Project, release: &nvrtc::Release, kernels: &str) -> Result {
    let library = release.fetch(project)?;
    say!("NVRTC {}, kernels {kernels}", release.version);
    let arguments = [&test::EVERYTHING[..], &["--test", "nvrtc"]].concat();
    call(test::cargo(project, &nvrtc::Nvrtc::Folder(library), &arguments).env(test::KERNELS, kernels))
}

/// The files below a folder, as paths from `root` with forward slashes.
fn files_under(root: &Path, folder: &Path, files: &mut Vec<String>) -> Result {
    let failed = || format!("cannot read {}", folder.display());
    for entry in std::fs::read_dir(root.join(folder)).context(failed)? {
        let entry = entry.context(failed)?;
        let path = folder.join(entry.file_name());
        if entry.file_type().context(failed)?.is_dir() {
            files_under(root, &path, files)?;
        } else {
            files.push(path.to_string_lossy().replace('\\', "/"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_not_packed_is_named() {
        let expected = ["src/lib.rs", "LICENSE-MIT"].map(str::to_owned);
        assert_eq!(missing("LICENSE-MIT\nsrc/lib.rs\nx", expected.clone().into_iter()), [""; 0]);
        assert_eq!(missing("LICENSE-MIT.txt\nsrc/lib.rs", expected.into_iter()), ["LICENSE-MIT"]);
    }

    #[test]
    fn steps_have_names_of_their_own() {
        let mut names = STEPS.map(|step| step.name);
        names.sort_unstable();
        assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "{names:?}");
    }
}
