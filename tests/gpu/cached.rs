//! A machine with a GPU and without a compiler: kernels come from a directory that another process has filled.

use crate::rig::gpu;
use postlude::build::recipes;
use postlude::jit::{CACHE_DIR, CACHE_MODE, NVRTC_PATH};
use postlude::prelude::*;
use std::path::Path;
use std::process::Command;

/// Set in the processes that the test starts: to the activation.
const CHILD: &str = "POSTLUDE_TEST_CACHED";

/// Not a test by itself: a small product, on whatever [`Gemm::run`] finds.
#[test]
fn in_another_process() {
    let Ok(activation) = std::env::var(CHILD) else { return };
    let epilogue = recipes::bias_activation(F32, F32, |z| if activation == "relu" { z.relu() } else { z.relu6() }).unwrap();
    let (a, b, bias, mut d) = ([1.0f32, 2.0, 3.0, 4.0], [1.0f32, 0.0, 0.0, -1.0], [0.5f32, 0.5], [f32::NAN; 4]);
    let args = HostArgs::new().input("a", &a).input("b", &b).input("bias", &bias).output("d", &mut d);
    let ran_on = Gemm::new(F32, TT, &epilogue).run(Shape::new(2, 2, 2), args).unwrap();
    assert_eq!(d, [1.5, 0.0, 3.5, 0.0]);
    println!("it ran on the {ran_on}");
}

/// The report of a process with this cache directory.
fn child(root: &Path, activation: &str, variables: &[(&str, &str)]) -> String {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "cached::in_another_process", "--nocapture"]).env(CHILD, activation).env(CACHE_DIR, root);
    let output = command.env_remove(CACHE_MODE).envs(variables.iter().copied()).output().unwrap();
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[test]
fn kernels_run_where_nothing_can_be_compiled() {
    if gpu().is_none() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("cache");
    let unusable = (NVRTC_PATH, "/nowhere");
    for (what, variables) in [
        ("filled", &[][..]),
        ("denied", &[unusable, (CACHE_MODE, "deny")]),
        ("without a compiler", &[unusable]),
        ("only read", &[unusable, (CACHE_MODE, "ro")]),
    ] {
        let said = child(&root, "relu", variables);
        assert!(said.contains("it ran on the GPU"), "{what}: {said}");
    }
    let said = child(&root, "relu6", &[unusable]);
    assert!(said.contains("it ran on the CPU: "), "a kernel that is not there: {said}");
    let said = child(&directory.path().join("empty"), "relu", &[unusable]);
    assert!(said.contains("CPU: ") && said.contains("cannot be compiled"), "neither compiler nor kernels: {said}");
}
