//! `postlude-cache`, as it is called from a shell.
//!
//! Tests that compile are skipped with a message without NVRTC; with `POSTLUDE_REQUIRE_NVRTC=1` they fail instead.
#![cfg(target_os = "linux")]

use postlude::build::recipes;
use postlude::ir::Order;
use postlude::jit::{CACHE_DIR, CACHE_MODE, Cache, Config, Mode, NVRTC_PATH, compiler};
use postlude::prelude::*;
use postlude::target::Target;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::process::Command;

/// The tool's output and exit code.
fn tool(root: &Path, words: &[&str]) -> (String, i32) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_postlude-cache"));
    command.args(words).env(CACHE_DIR, root).env_remove(CACHE_MODE);
    if let Ok(Some(file)) = compiler().map(|compiler| compiler.file) {
        command.env(NVRTC_PATH, file);
    }
    let (text, code) = end_of(&mut command);
    print!("$ postlude-cache {}\n{text}", words.join(" "));
    (text, code)
}

fn end_of(command: &mut Command) -> (String, i32) {
    let output = command.output().unwrap();
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    (text, output.status.code().unwrap_or(-1))
}

/// The tool is not in a bundle of tests that was taken to another machine.
fn there_is_no_tool() -> bool {
    let missing = !Path::new(env!("CARGO_BIN_EXE_postlude-cache")).exists();
    if missing {
        eprintln!("skipped: postlude-cache was not built on this machine");
    }
    missing
}

#[test]
fn wrong_words_are_named() {
    if there_is_no_tool() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("cache");
    assert!(tool(&root, &["help"]).0.contains("precompile --target"));
    assert_eq!(tool(&root, &["--version"]), (concat!("postlude-cache ", env!("CARGO_PKG_VERSION"), "\n").to_owned(), 0));
    for (words, complaint) in [
        (&["frob"][..], "unknown command `frob`"),
        (&["prune", "--bytes", "many"], "`many` is not a size"),
        (&["export"], "FILE is missing"),
        (&["list", "x"], "`x` is one word too many"),
        (&["import", "/no/such/file"], "/no/such/file: "),
        (&["import", "/dev/null"], "/dev/null is not a sound bundle"),
        (&["precompile", "x.json"], "--target is missing"),
        (&["precompile", "--target", "sm_90", "x.json"], "warning: devices of capability 9.0 ask for sm_90a"),
        (&["precompile", "--target", "sm_90a", "--shape", "1,2", "x.json"], "`1,2` is not a shape"),
        (&["precompile", "--target", "sm_90a", "--shape", "1,2,3", "--frob", "x.json"], "unknown option `--frob`"),
        (&["precompile", "--target", "sm_90a", "--shape", "1,2,3", "/no/such.json"], "/no/such.json: "),
    ] {
        let (text, code) = tool(&root, words);
        assert!(text.contains(complaint) && code == 2, "{words:?}: {code} {text}");
    }
}

#[test]
fn the_mode_holds_for_the_tool() {
    if there_is_no_tool() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("cache");
    let as_it_is = |mode: &str, words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_postlude-cache"));
        end_of(command.arg("--dir").arg(&root).args(words).env(CACHE_MODE, mode))
    };
    // Looking makes nothing.
    for words in [&["list"][..], &["stat"], &["verify"]] {
        let (text, code) = as_it_is("rw", words);
        assert!(code == 2 && !root.exists(), "{words:?}: {text}");
    }
    assert_eq!(as_it_is("rw", &["clear"]).1, 0);
    let (text, code) = as_it_is("frob", &["list"]);
    assert!(code == 2 && text.contains("POSTLUDE_CACHE: "), "{text}");
    for words in [&["clear"][..], &["prune"], &["verify", "--remove"]] {
        let (text, code) = as_it_is("ro", words);
        assert!(code == 2 && text.contains("nothing is removed in mode `ro`"), "{words:?}: {text}");
    }
    assert_eq!(as_it_is("ro", &["list"]).1, 0);
}

#[test]
fn what_cannot_be_done_is_an_error() {
    if there_is_no_tool() {
        return;
    }
    // Nobody, not even the superuser, makes files there.
    for words in [&["clear"][..], &["prune"], &["verify", "--remove"]] {
        let (text, code) = tool(Path::new("/proc"), words);
        assert!(code == 2 && text.contains("nothing is removed: /proc cannot be written"), "{words:?}: {text}");
    }
    let command = || Command::new(env!("CARGO_BIN_EXE_postlude-cache"));
    let (text, code) = end_of(command().arg(std::ffi::OsStr::from_bytes(b"l\xffst")));
    assert!(code == 2 && text.contains("`l\u{fffd}st` is not UTF-8"), "{text}");
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let output = command().arg("help").stdout(full).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && text.contains("the output cannot be written: "), "{text}");
}

#[test]
fn an_empty_directory_is_in_order() {
    if there_is_no_tool() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("cache");
    assert!(tool(&root, &["verify"]).0.contains("0 kernels, 0 notes and 0 compilers are sound, 0 files are damaged"));
    assert!(tool(&root, &["stat"]).0.contains("together      0 files, 0 B"));
    assert!(tool(&root, &["clear"]).0.contains("removed 0 files"));
    let bundle = directory.path().join("bundle");
    assert!(tool(&root, &["export", bundle.to_str().unwrap()]).0.contains("exported 0 kernels"));
    assert!(tool(&root, &["import", bundle.to_str().unwrap()]).0.contains("imported 0 kernels"));
}

/// Whether the tool is present, with a compiler for it.
fn there_is_nothing_to_compile_with() -> bool {
    match compiler() {
        Err(error) if std::env::var_os("POSTLUDE_REQUIRE_NVRTC").is_some_and(|value| value == "1") => panic!("{error}"),
        Err(error) => {
            eprintln!("skipped: NVRTC not found ({error})");
            true
        }
        Ok(_) => there_is_no_tool(),
    }
}

/// The command in the refusal makes the very kernel that was refused.
#[test]
fn a_refusal_names_a_command_that_works() {
    if there_is_nothing_to_compile_with() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let (root, file) = (directory.path().join("cache"), directory.path().join("relu.json"));
    let relu = recipes::bias_activation(F16, F16, |z| z.relu()).unwrap();
    std::fs::write(&file, relu.to_json()).unwrap();
    let denying = || Cache::open(&root, Config::new().mode(Mode::Deny));
    for (gemm, target, shape) in [
        (Gemm::new(F16, NT, &relu), Target::SM_80, Shape::new(64, 128, 64).batched(2)),
        (Gemm::pointwise(F32, Order::ColumnMajor, &relu), Target::SM_86, Shape::new(64, 128, 1)),
        // In parts of K, which are two kernels.
        (Gemm::new(F16, TN, &relu), Target::SM_90A, Shape::new(64, 64, 8192)),
    ] {
        let denied = gemm.compile(&denying(), target, 100, shape).unwrap_err().to_string();
        let command = denied.lines().find_map(|line| line.trim().strip_prefix("postlude-cache ")).expect(&denied);
        let words: Vec<_> =
            command.split(' ').map(|word| if word == "EPILOGUE.json" { file.to_str().unwrap() } else { word }).collect();
        let (made, code) = tool(&root, &words);
        assert_eq!(code, 0, "{made}");
        gemm.compile(&denying(), target, 100, shape).unwrap();
    }
}

#[test]
fn kernels_are_made_listed_moved_and_removed() {
    if there_is_nothing_to_compile_with() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let (here, there) = (directory.path().join("here"), directory.path().join("there"));
    for (name, epilogue) in [("relu.json", recipes::bias_activation(F16, F16, |z| z.relu())), ("id.json", recipes::identity(F16))]
    {
        std::fs::write(path(name), epilogue.unwrap().to_json()).unwrap();
    }
    let (relu, id) = (path("relu.json"), path("id.json"));
    let words =
        ["precompile", "--target", "sm_80", "--target", "sm_86:84", "--shape", "64,64,64", "--pointwise", "f16,row", &relu, &id];
    let (first, code) = tool(&here, &words);
    assert!(code == 0 && first.contains("4 kernels compiled") && first.contains("0 were there, 0 requests failed"), "{first}");
    assert!(first.contains("4/4") && first.contains("relu.json for sm_86, 64 x 64 x 64: compiled"), "{first}");
    let (second, _) = tool(&here, &words);
    assert!(second.contains("0 kernels compiled") && second.contains("4 were there"), "{second}");
    let (list, _) = tool(&here, &["list"]);
    assert_eq!(list.lines().filter(|line| line.contains("postlude_kernel")).count(), 4, "{list}");
    assert_eq!(list.lines().filter(|line| line.contains("(compiler)") && line.contains("NVRTC ")).count(), 1, "{list}");
    let (stat, _) = tool(&here, &["stat"]);
    assert!(stat.contains("target        sm_80: 2 kernels") && stat.contains("compiler      NVRTC "), "{stat}");

    let bundle = path("bundle");
    assert!(tool(&here, &["export", &bundle]).0.contains("exported 4 kernels and 0 notes of 1 compilers"));
    assert!(tool(&there, &["import", &bundle]).0.contains("imported 4 kernels and 0 notes of 1 compilers"));
    let (brought, _) = tool(&there, &words);
    assert!(brought.contains("0 kernels compiled") && brought.contains("4 were there"), "{brought}");

    let kernel = std::fs::read_dir(there.join("v1/sm_80")).unwrap().flatten().next().unwrap().path();
    let kernel = std::fs::read_dir(kernel).unwrap().flatten().next().unwrap().path();
    std::fs::write(&kernel, "damaged").unwrap();
    let (verified, code) = tool(&there, &["verify"]);
    assert!(code == 1 && verified.contains("3 kernels, 0 notes and 1 compilers are sound, 1 files are damaged"), "{verified}");
    let (verified, code) = tool(&there, &["verify", "--remove"]);
    assert!(code == 0 && verified.contains("1 files are damaged, removed") && !kernel.exists(), "{verified}");
    assert!(tool(&there, &["prune", "--files", "2"]).0.contains("1 files remain"));
    // The kernels, and the note of which compiler the library is.
    assert!(tool(&there, &["--dir", here.to_str().unwrap(), "clear"]).0.contains("removed 5 files"));
}
