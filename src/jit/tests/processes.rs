//! Many processes with one directory, some of which die.

use super::super::store::Store;
use super::super::{CACHE_DIR, Limits, sweep};
use super::children::{ENTRIES, PATIENCE, beside, child, child_of_shell, large, numbered, report};
use super::*;
use std::process::Child;
use std::time::{Instant, SystemTime};

fn race(root: &Path, count: usize, patience: &str) -> (Vec<String>, usize) {
    let children: Vec<Child> = (0..count).map(|_| child("compile", root).env(PATIENCE, patience).spawn().unwrap()).collect();
    let deadline = Instant::now() + Duration::from_secs(60);
    while !children.iter().all(|child| beside(root, &format!("ready-{}", child.id())).exists()) {
        assert!(Instant::now() < deadline, "the children do not come");
        std::thread::sleep(Duration::from_millis(1));
    }
    File::create(beside(root, "start")).unwrap();
    let reports = children.into_iter().map(report).collect();
    (reports, fs::metadata(beside(root, "tally")).unwrap().len() as usize)
}

#[test]
fn sixteen_processes_compile_once() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("cache");
    let (reports, compiled) = race(&root, 16, "30000");
    assert_eq!(compiled, 1, "{reports:#?}");
    let count = |origin: &str| reports.iter().filter(|report| report.starts_with(origin)).count();
    assert_eq!((count("compiled"), count("disk")), (1, 15), "{reports:#?}");
    assert!(reports.iter().any(|report| report.ends_with("awaited=1")), "{reports:#?}");
    assert_eq!((files(&root, ".kernel").len(), files(&root, "").len()), (1, 4), "kernel, compiler, lock, sweep");
}

#[test]
fn sixteen_processes_without_locks_are_as_right() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("cache");
    let (reports, compiled) = race(&root, 16, "0");
    assert!((2..=16).contains(&compiled), "{compiled}: {reports:#?}");
    assert_eq!((files(&root, ".kernel").len(), files(&root, ".new-").len()), (1, 0));
}

/// A process that does not finish in time is not waited for.
#[test]
fn patience_ends() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("cache");
    let (reports, compiled) = race(&root, 4, "20");
    assert!((2..=4).contains(&compiled), "{compiled}: {reports:#?}");
}

/// A writer that is killed leaves at most a file that nothing reads.
#[test]
fn killed_writers_do_no_harm() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("cache");
    let entries = [1, 2, 3, 4].map(large);
    let store = Store::open(&root, true).unwrap();
    let mut sound = 0;
    // From a writer's first file to its hundredth on a fast disk, and over its first few on any.
    let mut span = Duration::from_millis(4);
    for round in 0..200u32 {
        let _ = fs::remove_file(beside(&root, "writing"));
        let mut writer = child("write for ever", &root).spawn().unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        while !beside(&root, "writing").exists() {
            assert!(Instant::now() < deadline && writer.try_wait().unwrap().is_none(), "the writer does not write");
            std::thread::sleep(Duration::from_micros(200));
        }
        if round == 0 {
            // This one lives until an entry is complete, and so measures the time.
            let start = Instant::now();
            while !entries.iter().any(|(key, _)| store.read(key, SM).0.is_some()) {
                assert!(Instant::now() < deadline && writer.try_wait().unwrap().is_none(), "the writer finishes nothing");
                std::thread::sleep(Duration::from_micros(200));
            }
            span = span.max(4 * start.elapsed());
        } else {
            std::thread::sleep(span * (round * 7919 % 4000) / 4000);
        }
        writer.kill().unwrap();
        writer.wait().unwrap();
        for (key, whole) in &entries {
            let (found, damaged) = store.read(key, SM);
            assert!(!damaged && found.as_ref().is_none_or(|found| found.bytes == whole.bytes), "round {round}");
            sound += u32::from(found.is_some());
        }
    }
    let left = files(&root, "").into_iter().filter(|path| path.to_string_lossy().contains("/.new-")).count();
    assert!(sound > 0 && left > 10, "{sound} entries read, {left} writers died at it");
    // They are removed when they are old.
    let swept = sweep::sweep(&store, Limits::default(), SystemTime::now() + Duration::from_secs(48 * 3600));
    assert_eq!(swept.leftovers as usize, left);
}

#[test]
fn ten_thousand_entries_are_swept_under_four_readers() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("cache");
    let store = Store::open(&root, true).unwrap();
    for number in 0..ENTRIES {
        let key = numbered(number);
        let mut cubin = made(&CacheKey::for_test(0), "k", SM, "C 1");
        (cubin.bytes, cubin.info.key) = (key.as_bytes()[..].into(), key.to_string());
        assert!(store.write(&key, SM, &cubin));
    }
    let readers: Vec<Child> = (0..4).map(|_| child("read", &root).spawn().unwrap()).collect();
    let deadline = Instant::now() + Duration::from_secs(60);
    while !readers.iter().all(|reader| beside(&root, &format!("ready-{}", reader.id())).exists()) {
        assert!(Instant::now() < deadline, "the readers do not read");
        std::thread::sleep(Duration::from_millis(1));
    }
    std::thread::sleep(Duration::from_millis(100));
    let limits = Limits { files: 2_000, ..Limits::default() };
    let swept = sweep::sweep(&store, limits, SystemTime::now());
    assert_eq!((swept.kept, swept.removed), (1_400, ENTRIES - 1_400));
    std::thread::sleep(Duration::from_millis(100));
    File::create(beside(&root, "stop")).unwrap();
    for report in readers.into_iter().map(report) {
        let (hits, misses) = report.split_once(' ').unwrap();
        assert!(hits.parse::<u64>().unwrap() > 0 && misses.parse::<u64>().unwrap() > 0, "{report}");
    }
    assert_eq!(files(&root, ".kernel").len(), 1_400);
}

#[test]
fn no_home_and_a_full_disk_cost_nothing_but_time() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("cache");
    let mut homeless = child("everything", &root);
    homeless.env_remove(CACHE_DIR).env_remove("XDG_CACHE_HOME").env_remove("HOME");
    assert_eq!(report(homeless.spawn().unwrap()), "compiles=3 disk=0 unsaved=0 directory=false warnings=1");
    // Files may be empty, or so small that writing fails in the middle.
    for blocks in [0, 1, 20] {
        let mut full = child_of_shell(&format!("trap '' XFSZ; ulimit -f {blocks};"), "everything", &root);
        let report = report(full.env(CACHE_DIR, &root).spawn().unwrap());
        assert_eq!(report, "compiles=3 disk=0 unsaved=3 directory=true warnings=1", "{blocks}");
        let left: Vec<_> = files(&root, "").into_iter().filter(|path| fs::metadata(path).unwrap().len() > 512).collect();
        assert_eq!(left, Vec::<PathBuf>::new(), "nothing half written is left");
    }
}

#[test]
fn a_directory_that_cannot_be_written_is_read() {
    use std::os::unix::fs::PermissionsExt as _;
    use std::os::unix::process::CommandExt as _;
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("cache");
    let filler = Cache::at(&root).compiling_with(compiler("C 1"));
    for text in ["a", "b"] {
        compile(&filler, text).unwrap();
    }
    let damaged = files(&root, &format!("{}.kernel", compile(&filler, "b").unwrap().info.key)).remove(0);
    fs::write(&damaged, "damaged").unwrap();
    // Readable by all, as in a container image, and read by a user other than the superuser.
    let mut paths = vec![directory.path().to_path_buf(), root.clone()];
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap().flatten() {
            paths.push(entry.path());
            if entry.path().is_dir() {
                folders.push(entry.path());
            }
        }
    }
    for path in &paths {
        fs::set_permissions(path, fs::Permissions::from_mode(if path.is_dir() { 0o555 } else { 0o444 })).unwrap();
    }
    let mut reader = child("everything", &root);
    reader.env(CACHE_DIR, &root).env("TMPDIR", "/");
    match reader.uid(65_534).spawn() {
        Ok(reader) => {
            let report = report(reader);
            assert_eq!(report, "compiles=2 disk=1 unsaved=2 directory=true warnings=2", "not written, and damaged");
        }
        Err(error) => eprintln!("skipped: only the superuser becomes somebody else ({error})"),
    }
    assert!(files(&root, ".kernel").len() == 2 && fs::read(&damaged).unwrap() == b"damaged");
    for path in &paths {
        fs::set_permissions(path, fs::Permissions::from_mode(if path.is_dir() { 0o755 } else { 0o644 })).unwrap();
    }
}
