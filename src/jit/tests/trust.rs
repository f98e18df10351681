//! Binaries that another user has planted, or might have: none is loaded, wherever it is.
//!
//! Cases that need another owner run for the superuser alone, who can give files away. Otherwise they are skipped with
//! a message.

use super::children::{child, report};
use super::*;
use crate::jit::{Config, Mode, entry};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, lchown, symlink};

const SOMEBODY: u32 = 12_345;

fn open(root: &Path, mode: Mode) -> Cache {
    Cache::open(root, Config::new().mode(mode)).compiling_with(compiler("C 1"))
}

fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// Whether files can be given away.
fn superuser(directory: &Path) -> bool {
    let file = directory.join("given");
    fs::write(&file, "").unwrap();
    let given = chown(&file, Some(SOMEBODY), None);
    if let Err(error) = &given {
        eprintln!("skipped: only the superuser gives files away ({error})");
    }
    given.is_ok()
}

/// A directory in which the kernel of "text" is sound in every bit, and wrong. The path of the kernel.
fn planted(root: &Path) -> PathBuf {
    let cache = open(root, Mode::ReadWrite);
    let key = cache.key(&Source::new("text", "k"), &SM, &Options::new()).unwrap();
    let mut evil = made(&key, "k", SM, "C 1");
    evil.bytes = b"planted"[..].into();
    assert!(cache.store().unwrap().write(&key, SM, &evil));
    assert!(entry::decode(&key, &fs::read(cache.store().unwrap().path(&key, SM)).unwrap()).is_ok());
    cache.store().unwrap().path(&key, SM)
}

/// Nothing that was planted is loaded, in any mode, and the message names the culprit.
fn refused(root: &Path, what: &str, culprit: &Path) {
    let denying = open(root, Mode::Deny);
    assert!(compile(&denying, "text").is_err(), "{what}");
    assert!(denying.files().iter().all(|file| !matches!(file.holds, Ok(super::super::Holds::Kernel(_)))), "{what}");
    for mode in [Mode::ReadOnly, Mode::ReadWrite] {
        let (found, heard) = warnings(|| origin(&open(root, mode), "text"));
        assert_eq!(found, Origin::Compiled, "{what}");
        let culprit = culprit.display().to_string();
        assert!(heard.iter().any(|said| said.contains(&culprit)), "{what}: {heard:#?}");
    }
}

#[test]
fn folders_that_others_write_to_hold_nothing() {
    for (depth, mode) in [(1, 0o777), (2, 0o777), (3, 0o777), (3, 0o770), (1, 0o1777)] {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().join("cache");
        let kernel = planted(&root);
        let folder = kernel.ancestors().nth(4 - depth).unwrap();
        chmod(folder, mode);
        refused(&root, &format!("{mode:o} at depth {depth}"), folder);
        assert_eq!(fs::read(&kernel).unwrap().len(), fs::metadata(&kernel).unwrap().len() as usize, "it is left alone");
        // The named cure.
        fs::remove_file(&kernel).unwrap();
        chmod(folder, 0o700);
        assert_eq!(origin(&open(&root, Mode::ReadWrite), "text"), Origin::Compiled);
        assert_eq!(origin(&open(&root, Mode::ReadWrite), "text"), Origin::Disk);
    }
}

#[test]
fn files_that_others_write_to_are_replaced() {
    for mode in [0o666, 0o660, 0o602] {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().join("cache");
        let kernel = planted(&root);
        chmod(&kernel, mode);
        refused(&root, &format!("{mode:o}"), &kernel);
        assert_eq!(fs::metadata(&kernel).unwrap().mode() & 0o777, 0o600);
        assert_eq!(origin(&open(&root, Mode::ReadWrite), "text"), Origin::Disk);
    }
}

#[test]
fn links_below_the_directory_are_not_followed() {
    for depth in 1..=4 {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().join("cache");
        let kernel = planted(&root);
        let (linked, moved) = (kernel.ancestors().nth(4 - depth).unwrap(), directory.path().join("elsewhere"));
        fs::rename(linked, &moved).unwrap();
        symlink(&moved, linked).unwrap();
        let before = files(&moved, "");
        refused(&root, &format!("a link at depth {depth}"), linked);
        open(&root, Mode::ReadWrite).clear();
        assert_eq!(files(&moved, ""), before, "nothing is made or removed through a link");
    }
}

#[test]
fn locks_and_marks_are_not_made_through_links() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("cache");
    let name = open(&root, Mode::ReadWrite).key(&Source::new("text", "k"), &SM, &Options::new()).unwrap().to_string();
    fs::create_dir_all(root.join("v1/locks")).unwrap();
    let outside = ["lock", "mark"].map(|name| directory.path().join(name));
    symlink(&outside[0], root.join("v1/locks").join(&name[..3])).unwrap();
    symlink(&outside[1], root.join("v1/sweep")).unwrap();
    assert_eq!(origin(&open(&root, Mode::ReadWrite), "text"), Origin::Compiled);
    assert!(!outside[0].exists() && !outside[1].exists());
}

#[test]
fn locks_that_others_could_hold_become_the_owners() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("cache");
    compile(&open(&root, Mode::ReadWrite), "text").unwrap();
    let lock = fs::read_dir(root.join("v1/locks")).unwrap().next().unwrap().unwrap().path();
    chmod(&lock, 0o664);
    fs::remove_file(files(&root, ".kernel").remove(0)).unwrap();
    let (_, heard) = warnings(|| compile(&open(&root, Mode::ReadWrite), "text").unwrap());
    assert_eq!((heard, fs::metadata(&lock).unwrap().mode() & 0o777), (Vec::new(), 0o644));
}

#[test]
fn a_folder_above_that_everybody_writes_to_is_sticky() {
    for (mode, used) in [(0o777, false), (0o707, false), (0o1777, true), (0o775, true), (0o711, true)] {
        let directory = tempfile::tempdir().unwrap();
        let open_to_all = directory.path().join("above");
        let root = open_to_all.join("deeper/cache");
        planted(&root);
        chmod(&open_to_all, mode);
        if used {
            assert!(open(&root, Mode::ReadWrite).directory().is_ok() && open(&root, Mode::Deny).directory().is_ok(), "{mode:o}");
            continue;
        }
        refused(&root, &format!("{mode:o}"), &open_to_all);
        let cache = open(&root, Mode::ReadWrite);
        let why = cache.directory().unwrap_err();
        assert!(why.contains("above the cache") && why.contains("chmod o-w"), "{why}");
        let made = open_to_all.join("new");
        assert!(open(&made, Mode::ReadWrite).directory().is_err() && !made.exists(), "nothing is made there");
    }
}

#[test]
fn links_to_the_directory_are_the_owners() {
    let directory = tempfile::tempdir().unwrap();
    let (real, link) = (directory.path().join("real"), directory.path().join("link"));
    planted(&real);
    fs::create_dir(directory.path().join("folder")).unwrap();
    let relative = directory.path().join("folder/relative");
    symlink(&real, &link).unwrap();
    symlink("../link", &relative).unwrap();
    for way in [&link, &relative, &directory.path().join("folder/../link")] {
        let cache = open(way, Mode::ReadWrite);
        assert_eq!(cache.directory(), Ok(way.as_path()));
        assert_eq!(cache.files().len(), 2, "a kernel and its compiler");
    }
    let around = directory.path().join("around");
    symlink("around", &around).unwrap();
    assert!(open(&around, Mode::Deny).directory().unwrap_err().contains("too many links"));
    if superuser(directory.path()) {
        lchown(&link, Some(SOMEBODY), None).unwrap();
        for way in [&link, &relative, &link.join("below")] {
            refused(way, "a link of somebody else's", &link);
            let cache = open(way, Mode::ReadWrite);
            assert!(cache.directory().unwrap_err().contains("the link belongs to user 12345"), "{cache:?}");
        }
    }
}

#[test]
fn what_is_somebody_elses_is_not_loaded() {
    for depth in -1..=4 {
        let directory = tempfile::tempdir().unwrap();
        if !superuser(directory.path()) {
            return;
        }
        let root = directory.path().join("above/cache");
        let kernel = planted(&root);
        let theirs = kernel.ancestors().nth((4 - depth) as usize).unwrap();
        chown(theirs, Some(SOMEBODY), None).unwrap();
        refused(&root, &format!("another owner at depth {depth}"), theirs);
    }
}

#[test]
fn what_is_planted_is_not_exported() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("cache");
    let kernel = planted(&root);
    let bundle = directory.path().join("bundle");
    assert_eq!(open(&root, Mode::ReadOnly).export(&bundle).unwrap().kernels, 1);
    chmod(&kernel, 0o666);
    assert_eq!(open(&root, Mode::ReadOnly).export(&bundle).unwrap().kernels, 0);
    chmod(&kernel, 0o600);
    chmod(kernel.parent().unwrap(), 0o777);
    assert_eq!(open(&root, Mode::ReadOnly).export(&bundle).unwrap().kernels, 0);
}

/// As `mkdir` makes a directory under many systems' umask.
#[test]
fn a_refused_directory_is_told_to_whoever_does_not_listen() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("cache");
    fs::create_dir(&root).unwrap();
    chmod(&root, 0o775);
    let output = child("refused", &root).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    let lines: Vec<_> = said.lines().filter(|line| line.contains("in memory only")).collect();
    assert_eq!(lines.len(), 1, "three caches say it once: {said}");
    let place = root.display().to_string();
    assert!(lines[0].contains(&place) && lines[0].contains("mode 775") && lines[0].contains("chmod -R go-w"), "{said}");
    let why = report(child("refused", &root).spawn().unwrap());
    assert!(lines[0].ends_with(&why), "{why}");
    // The same holds below it for the first file that is not used.
    chmod(&root, 0o700);
    chmod(planted(&root).parent().unwrap(), 0o777);
    let said = String::from_utf8(child("refused", &root).output().unwrap().stderr).unwrap();
    assert_eq!(said.lines().filter(|line| line.contains("mode 777")).count(), 1, "{said}");
    // With a listener the message is an event, and nothing else: `everything` has one.
    chmod(&root, 0o775);
    let listening = child("everything", &root).env(super::super::CACHE_DIR, &root).output().unwrap();
    assert!(listening.status.success() && !String::from_utf8_lossy(&listening.stderr).contains("mode 775"));
}
