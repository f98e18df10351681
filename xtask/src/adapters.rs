//! The adapters under `crates/`: they have foreign dependencies, so they are built and tested apart from the workspace.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::error::{Context, Error, Result};
use crate::nvrtc::{self, Nvrtc};
use crate::project::{Project, call};

/// The adapters' packages.
pub const PACKAGES: [&str; 2] = ["postlude-candle", "postlude-py"];

/// Builds the wheel, installs it into an empty environment, and runs its tests on the CPU there.
pub fn wheel(project: &Project) -> Result {
    let source = project.root.join("crates/postlude-py");
    let home = project.target.join("wheel");
    let (tools, clean, wheels) = (home.join("tools"), home.join("clean"), home.join("wheels"));
    let lint = ["clippy", "--package", "postlude-py", "--features", "pyo3/extension-module", "--", "-D", "warnings"];
    call(project.cargo().args(lint))?;
    environment(&tools)?;
    pip(&tools, &["maturin>=1.9,<2"])?;
    let _ = std::fs::remove_dir_all(&wheels);
    let mut build = python(&tools);
    build.args(["-m", "maturin", "build", "--compatibility", "linux", "--interpreter", "python3", "--out"]);
    call(build.arg(&wheels).current_dir(&source).env("CARGO_TARGET_DIR", &project.target))?;
    let built = std::fs::read_dir(&wheels).context(|| format!("cannot read {}", wheels.display()))?;
    let wheel = built.flatten().map(|entry| entry.path()).find(|path| path.extension().is_some_and(|kind| kind == "whl"));
    let wheel =
        wheel.ok_or_else(|| Error::new(format!("maturin reported success, but left no wheel in {}", wheels.display())))?;
    environment(&clean)?;
    pip(&clean, &["numpy", "pytest", &wheel.to_string_lossy()])?;
    let mut test = python(&clean);
    test.args(["-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/test_cpu.py"]).current_dir(&source);
    let readmes = std::env::join_paths([source.join("README.md"), project.root.join("README.md")]);
    let readmes = readmes.map_err(|error| Error::new(format!("the path of the repository does not fit a list: {error}")))?;
    call(test.env("POSTLUDE_README", readmes))
}

/// Lints and tests of candle's adapter on the CPU.
pub fn candle(project: &Project) -> Result {
    let package = ["--package", "postlude-candle"];
    call(project.cargo().arg("clippy").args(package).args(["--all-targets", "--", "-D", "warnings"]))?;
    let mut test = project.cargo();
    if let Nvrtc::Folder(folder) = nvrtc::find_or_fetch(project)? {
        test.env("POSTLUDE_NVRTC_PATH", folder);
    }
    call(test.arg("test").args(package))
}

/// Contexts and streams are shared only if candle and the library have the same copy of cudarc.
pub fn one_cudarc(project: &Project) -> Result {
    let args = ["tree", "--package", "postlude-candle", "--features", "cuda", "--prefix", "none", "--edges", "normal"];
    let tree = project.capture(&args)?;
    let mut copies: Vec<&str> = tree.lines().filter(|line| line.starts_with("cudarc ")).map(version).collect();
    copies.sort_unstable();
    copies.dedup();
    match copies[..] {
        [only] => {
            say!("one cudarc: {only}");
            Ok(())
        }
        _ => Err(Error::new(format!("candle and the library need one cudarc, not {}", copies.join(", ")))),
    }
}

/// The version in a line of `cargo tree`: `cudarc v0.19.10 (*)`.
fn version(line: &str) -> &str {
    line.split_whitespace().nth(1).unwrap_or_default()
}

/// An empty environment of Python.
fn environment(home: &Path) -> Result {
    let mut make = Command::new("python3");
    call(make.args(["-m", "venv", "--clear"]).arg(home).stdin(Stdio::null()))
}

fn python(environment: &Path) -> Command {
    let mut python = Command::new(environment.join("bin/python"));
    python.stdin(Stdio::null());
    python
}

fn pip(environment: &Path, packages: &[&str]) -> Result {
    let options = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"];
    call(python(environment).args(options).args(packages))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_stand_behind_names() {
        assert_eq!(version("cudarc v0.19.10"), "v0.19.10");
        assert_eq!(version("cudarc v0.19.10 (*)"), "v0.19.10");
    }
}
