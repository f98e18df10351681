//! ONNX's own tests, which nobody here wrote: every case on the CPU, and on request on a GPU.
//!
//! `cargo xtask onnx` fetches them (a Python wheel, from which only files are taken) into `target/`. Without them the tests
//! say so and do nothing, unless `POSTLUDE_REQUIRE_ONNX` is set. `conformance.txt` lists every case, and why those
//! do not pass that do not: the test fails if a listed case stops to pass, or begins to. `BLESS=1` rewrites the list.

mod command;
mod conformance;
#[cfg(feature = "cuda")]
mod device;
mod fuzz;
mod kernels;
mod light;
mod reader;

use postlude::network::Tensor;
use std::path::{Path, PathBuf};

/// Where the cases lie, if they do.
pub fn data() -> Option<PathBuf> {
    let root = std::env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| env!("CARGO_MANIFEST_DIR").into(), PathBuf::from);
    let named = std::env::var_os("POSTLUDE_ONNX_TESTS").map(PathBuf::from);
    let folder = named.unwrap_or_else(|| root.join("target/onnx/1.22.0/onnx/backend/test/data"));
    if folder.is_dir() {
        return Some(folder);
    }
    assert!(
        std::env::var_os("POSTLUDE_REQUIRE_ONNX").is_none(),
        "{} does not exist: run `cargo xtask onnx`, which fetches ONNX's tests",
        folder.display()
    );
    eprintln!("skipped: {} does not exist; `cargo xtask onnx` fetches ONNX's tests", folder.display());
    None
}

/// The tensor of a file.
pub fn tensor(path: &Path) -> Result<Tensor, String> {
    let bytes = std::fs::read(path).map_err(|error| error.to_string())?;
    Tensor::from_onnx(&bytes).map(|(_, tensor)| tensor).map_err(|error| error.to_string())
}

/// Whether a result is the expected one, to within what ONNX's own runner allows.
pub fn agrees(result: &Tensor, expected: &Tensor) -> Result<(), String> {
    if result.format() != expected.format() || result.shape() != expected.shape() {
        return Err(format!("gives {result}, not {expected}"));
    }
    if !expected.format().is_float() {
        let same = result.bytes() == expected.bytes();
        return if same { Ok(()) } else { Err("gives other integers".to_owned()) };
    }
    let near = |(x, y): (&f64, &f64)| x == y || x.is_nan() && y.is_nan() || (x - y).abs() <= 1e-7 + 1e-3 * y.abs();
    let (x, y) = (result.numbers(), expected.numbers());
    if x.iter().zip(&y).all(near) { Ok(()) } else { Err("gives other numbers".to_owned()) }
}

/// The cases that pass on the CPU.
pub fn passing() -> impl Iterator<Item = &'static str> {
    include_str!("conformance.txt").lines().filter(|line| !line.contains(": "))
}

/// The folder of a case.
pub fn folder(data: &Path, name: &str) -> Option<PathBuf> {
    let (suite, case) = name.split_once('/')?;
    let folders = [data.join(suite).join(format!("test_{case}")), data.join(suite).join(case)];
    folders.into_iter().find(|folder| folder.is_dir())
}

/// Compares a list with the one that is kept beside this file. `BLESS=1` rewrites it.
pub fn same_as_listed(file: &str, list: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/onnx").join(file);
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, list).expect("the list is written");
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    let changed: Vec<&str> = list.lines().filter(|line| !kept.lines().any(|kept| kept == *line)).collect();
    assert!(changed.is_empty(), "these cases are not as listed in {file} (BLESS=1 rewrites the list):\n{}", changed.join("\n"));
    assert_eq!(kept.lines().count(), list.lines().count(), "cases are listed in {file} that do not exist");
}
