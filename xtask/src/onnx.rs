//! Fetches ONNX's own tests: files in a Python wheel, of which no code is run.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::error::{Context, Error, Result};
use crate::nvrtc::{download, subfolders};
use crate::project::{Project, capture};

/// The last release whose node tests are files.
const VERSION: &str = "1.22.0";

/// The tests' folder inside the wheel.
const FOLDER: &str = "onnx/backend/test/data";

/// `cargo xtask onnx`.
pub fn print(project: &Project, args: &[String]) -> Result {
    if let Some(arg) = args.first() {
        return Err(Error::new(format!("`onnx` takes no argument, not `{arg}`")));
    }
    say!("{}", find_or_fetch(project)?.display());
    Ok(())
}

/// The folder of the tests, which are fetched once. It appears in one step, so an interrupted fetch leaves none.
pub fn find_or_fetch(project: &Project) -> Result<PathBuf> {
    let store = project.target.join("onnx");
    let home = store.join(VERSION);
    let tests = home.join(FOLDER);
    if tests.is_dir() {
        return Ok(tests);
    }
    eprintln!("Fetching ONNX's tests with pip (19 MB, once)");
    let partial = store.join(format!("partial-{}", std::process::id()));
    fs::create_dir_all(&partial).context(|| format!("cannot create {}", partial.display()))?;
    let outcome = fetch_into(&partial).and_then(|unpacked| match fs::rename(unpacked, &home) {
        Err(_) if tests.is_dir() => Ok(()),
        outcome => outcome.context(|| format!("cannot create {}", home.display())),
    });
    // A leftover would only cost space.
    let _ = fs::remove_dir_all(&partial);
    outcome.map(|()| tests)
}

/// Downloads and unpacks the wheel inside `partial`.
fn fetch_into(partial: &Path) -> Result<PathBuf> {
    let downloads = partial.join("download");
    download(&format!("onnx=={VERSION}"), &downloads)?;
    let wheel =
        subfolders(&downloads, "onnx-").pop().ok_or_else(|| Error::new("pip reported success, but left no wheel of onnx"))?;
    let unpacked = partial.join("unpacked");
    let mut unpack = Command::new("python3");
    capture(unpack.args(["-m", "zipfile", "-e"]).arg(&wheel).arg(&unpacked).stdin(Stdio::null()))?;
    if !unpacked.join(FOLDER).is_dir() {
        return Err(Error::new(format!("the wheel of onnx {VERSION} holds no tests in {FOLDER}")));
    }
    Ok(unpacked)
}
