//! Files named as NVRTC that are not NVRTC: each is a reason, and none ends or blocks the process.

use super::super::NVRTC_PATH;
use super::children::{child, report};
use super::*;
use std::time::Instant;

/// The message of a process that was directed to this library. It has to end by itself.
fn told(library: &Path) -> String {
    let mut process = child("find", library).env(NVRTC_PATH, library).spawn().unwrap();
    let start = Instant::now();
    while process.try_wait().unwrap().is_none() {
        if start.elapsed() > Duration::from_secs(60) {
            process.kill().unwrap();
            panic!("{library:?} keeps the process");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    report(process)
}

/// A library that every Linux machine has, and its file.
fn some_library() -> Vec<u8> {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let file = maps.lines().filter_map(|line| line.find('/').map(|at| &line[at..])).find(|file| file.contains("libc.so"));
    fs::read(file.expect("the C library of this process")).unwrap()
}

#[test]
fn a_library_that_is_cut_off_is_a_reason() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("libnvrtc.so.13");
    let whole = some_library();
    fs::write(&path, &whole).unwrap();
    assert!(told(&path).contains("no function nvrtcVersion"), "whole, it is another library");
    for length in [0, 3, 17, 63, 64, 500, 4096, whole.len() / 4, whole.len() / 2, whole.len() * 3 / 4] {
        fs::write(&path, &whole[..length]).unwrap();
        let said = told(&path);
        let place = path.display().to_string();
        assert!(said.contains(&place) && said.contains("cut off") && said.contains("install it again"), "{length}: {said}");
        // The same by search, below a directory.
        assert!(told(directory.path()).contains("cut off"), "{length}");
    }
    // At the offset where its headers say that it continues.
    let mut bent = whole.clone();
    bent[32..40].copy_from_slice(&u64::MAX.to_le_bytes());
    fs::write(&path, &bent).unwrap();
    assert!(told(&path).contains("cut off"));
}

#[test]
fn what_is_no_library_of_this_machine_is_a_reason() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("libnvrtc.so.13");
    let whole = some_library();
    let with = |at: usize, byte: u8| {
        let mut bytes = whole.clone();
        bytes[at] = byte;
        bytes
    };
    for (bytes, reason) in [
        (b"#!/bin/sh\nexit 0\n".repeat(100), "not an ELF library"),
        (with(4, 1), "another kind of machine"),
        (with(5, 2), "another kind of machine"),
        (with(18, 0xfe), "another kind of machine"),
        (with(16, 1), "not an ELF library"),
    ] {
        fs::write(&path, bytes).unwrap();
        let said = told(&path);
        assert!(said.contains(reason) && said.contains(&path.display().to_string()), "{reason}: {said}");
    }
}

#[test]
fn what_is_no_file_is_a_reason() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("libnvrtc.so.13");
    if std::process::Command::new("mkfifo").arg(&path).status().is_ok_and(|status| status.success()) {
        for place in [&path, &directory.path().to_path_buf()] {
            let said = told(place);
            assert!(said.contains("libnvrtc.so.13") && said.contains("not a regular file"), "{said}");
        }
    }
    let said = told(Path::new("/dev/zero"));
    assert!(said.contains("/dev/zero") && said.contains("not a regular file"), "{said}");
}
