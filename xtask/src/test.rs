//! `cargo xtask test`: every test, on a machine that may have nothing but Rust and Python.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::{Context, Error, Result};
use crate::nvrtc::{self, Nvrtc};
use crate::onnx;
use crate::project::{Project, call};

/// The packages and features that are tested. Every run of the tests names the same, because cargo builds the library again for
/// each set of features, those of its dependencies included.
pub const EVERYTHING: [&str; 5] =
    ["--workspace", "--exclude=postlude-candle", "--exclude=postlude-py", "--features", "postlude/onnx,postlude/dlpack"];

/// The variable of the compile tests that says which of their kernels they compile.
pub const KERNELS: &str = "POSTLUDE_TEST_KERNELS";
/// All kernels: for one release, they take longer than every other test together.
pub const ALL_KERNELS: &str = "0/1";
/// The samples of the usual tests, and of two more releases. Each takes other kernels.
pub const SAMPLES: [&str; 3] = ["0/8", "3/8", "6/8"];

pub fn run(project: &Project, args: &[String]) -> Result {
    let (own, extra) = split_at_dashes(args);
    let (mut cold, mut kernels) = (false, SAMPLES[0]);
    for arg in own {
        match arg.as_str() {
            "--cold" => cold = true,
            "--all-kernels" => kernels = ALL_KERNELS,
            other => return Err(Error::new(format!("unknown option `{other}` of `test`; cargo's own go behind `--`"))),
        }
    }

    let cache = cache(project);
    if cold && cache.exists() {
        fs::remove_dir_all(&cache).context(|| format!("cannot empty {}", cache.display()))?;
    }

    let nvrtc = nvrtc::find_or_fetch(project)?;
    if extra.is_empty() {
        gpu(project, &nvrtc)?;
    } else {
        // A named test is wanted whole.
        kernels = ALL_KERNELS;
    }
    let mut args: Vec<&str> = package_selection(extra).to_vec();
    // Everything is tested, so ONNX's own tests are at hand.
    if !args.is_empty() {
        onnx::find_or_fetch(project)?;
    }
    args.extend(extra.iter().map(String::as_str));
    call(cargo(project, &nvrtc, &args).env(KERNELS, kernels))
}

/// The tests that need a GPU. Without one they are built, and neither run nor counted.
fn gpu(project: &Project, nvrtc: &Nvrtc) -> Result {
    let run = |more: &[&str]| run_with(project, nvrtc, &[&EVERYTHING[..], &["--lib", "--test", "gpu"], more].concat());
    if has_gpu() {
        eprintln!("GPU: found, so its tests must pass");
        return run(&["--", "--include-ignored"]);
    }
    eprintln!("GPU: none, so tests/gpu is built and not run");
    run(&["--no-run"])
}

/// `cargo test`, with this NVRTC and a kernel cache of the project's own.
pub fn run_with(project: &Project, nvrtc: &Nvrtc, args: &[&str]) -> Result {
    call(&mut cargo(project, nvrtc, args))
}

/// The command of [`run_with`], to add to.
pub fn cargo(project: &Project, nvrtc: &Nvrtc, args: &[&str]) -> Command {
    let mut cargo = project.cargo();
    cargo.args(["test", "--no-fail-fast"]).args(args);
    cargo.env("POSTLUDE_CACHE_DIR", cache(project)).env_remove("POSTLUDE_CACHE").env("POSTLUDE_REQUIRE_NVRTC", "1");
    cargo.env("POSTLUDE_REQUIRE_ONNX", "1");
    match nvrtc {
        Nvrtc::Folder(folder) => {
            eprintln!("NVRTC: {}", folder.display());
            cargo.env("POSTLUDE_NVRTC_PATH", folder);
        }
        Nvrtc::Loader(name) => eprintln!("NVRTC: {name}, found by the loader"),
    }
    if has_gpu() {
        cargo.env("POSTLUDE_REQUIRE_GPU", "1");
    }
    cargo
}

/// Tests must not read kernels that another program on this machine compiled, nor leave their own behind.
fn cache(project: &Project) -> PathBuf {
    project.target.join("kernel-cache")
}

/// The words before and behind the first `--`.
pub fn split_at_dashes(args: &[String]) -> (&[String], &[String]) {
    match args.iter().position(|arg| arg == "--") {
        Some(at) => (&args[..at], &args[at + 1..]),
        None => (args, &[]),
    }
}

/// The whole workspace but the adapters, with every feature of the library, unless the user chose a package.
fn package_selection(extra: &[String]) -> &'static [&'static str] {
    let (cargo, _) = split_at_dashes(extra);
    let chosen =
        cargo.iter().any(|arg| arg.starts_with("-p") || arg.starts_with("--package") || arg == "--workspace" || arg == "--all");
    if chosen { &[] } else { &EVERYTHING }
}

/// Whether this machine has a GPU and a driver for it. A driver alone, as on a build machine, is not enough.
pub fn has_gpu() -> bool {
    let is_gpu = |name: &str| name.strip_prefix("nvidia").is_some_and(|rest| rest.parse::<u32>().is_ok());
    let devices = fs::read_dir(Path::new("/dev")).into_iter().flatten().flatten();
    devices.into_iter().any(|entry| is_gpu(&entry.file_name().to_string_lossy())) && nvrtc::loadable("libcuda.so.1")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn only_the_first_dashes_split() {
        let args = words("--cold -- name -- --nocapture");
        let (own, extra) = split_at_dashes(&args);
        assert_eq!((own, extra), (&words("--cold")[..], &words("name -- --nocapture")[..]));
    }

    #[test]
    fn a_chosen_package_replaces_the_workspace() {
        let all = package_selection(&words("name -- -p"));
        assert_eq!(all[0], "--workspace");
        assert!(crate::adapters::PACKAGES.iter().all(|name| all.contains(&format!("--exclude={name}").as_str())));
        assert!(package_selection(&words("-p xtask")).is_empty());
        assert!(package_selection(&words("--package=xtask")).is_empty());
    }
}
