//! The command `postlude-run`.

use crate::fuzz::seed;
use std::process::{Command, Output};

fn run(args: &[&str]) -> Output {
    let folder = tempfile::tempdir().expect("a folder");
    let model = folder.path().join("model.onnx");
    std::fs::write(&model, seed()).expect("a file");
    Command::new(env!("CARGO_BIN_EXE_postlude-run")).arg(model).args(args).output().expect("the command")
}

#[test]
fn it_explains_and_times() {
    let output = run(&["--explain", "--time"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for part in ["input  x: f32[1,1,8,8]", "8 nodes", "kernel 0: Conv", "launches", "not on a GPU: "] {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
    assert!(String::from_utf8_lossy(&run(&["--dot"]).stdout).starts_with("digraph network {"));
    assert!(String::from_utf8_lossy(&run(&["--json"]).stdout).contains("\"operator\": \"MaxPool\""));
}

#[test]
fn it_draws() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("fused.svg");
    let output = run(&["--svg", file.to_str().expect("a name")]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let picture = std::fs::read_to_string(&file).expect("a picture");
    assert!(picture.starts_with("<svg ") && picture.contains(">kernel 0<") && picture.contains(">MaxPool<"));
    let output = run(&["--svg", folder.path().to_str().expect("a name")]);
    assert!(!output.status.success() && String::from_utf8_lossy(&output.stderr).contains("cannot write"));
}

#[test]
fn it_says_what_is_wrong() {
    let output = run(&["--fast"]);
    assert!(!output.status.success() && String::from_utf8_lossy(&output.stderr).contains("unknown option `--fast`"));
}
