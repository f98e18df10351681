//! Identifies a compiler library by its file, and remembers the build that it reported when it was loaded.
//!
//! Loading NVRTC takes ten times as long as the rest of a disk hit, and a process that finds its kernel needs only
//! NVRTC's identity. So a process that has loaded NVRTC records its file and its build, under a hash of everything that
//! the search depended on ([`locate`](super::locate)). If the next process would search in the same way, and finds the
//! file unchanged, it takes the build from the record.
//!
//! A wrong note cannot give a wrong kernel. A build only chooses among kernels of the same source, and each of these is
//! verified. So the worst case is a kernel from another build, as on a machine without a compiler. Nothing is compiled
//! under a recorded build: a process that compiles loads the library, and replaces a note that disagrees.

use super::build::Build;
use super::envelope::Damage;
use super::key::CacheKey;
use super::note;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Identifies a file among all others, and among its own earlier versions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Stamp {
    /// The path without links.
    file: PathBuf,
    bytes: u64,
    /// Seconds and nanoseconds.
    modified: (i64, i64),
    /// When the file system last recorded a change. No user can set it back.
    changed: (i64, i64),
    device: u64,
    inode: u64,
    /// The linker's name for it, in hexadecimal digits.
    build_id: Option<String>,
}

impl Stamp {
    /// The stamp of the file at a path, if it can be read.
    #[cfg(target_os = "linux")]
    pub fn of(path: &Path) -> Option<Stamp> {
        use std::os::unix::fs::MetadataExt as _;
        let file = path.canonicalize().ok()?;
        let metadata = file.metadata().ok()?;
        Some(Stamp {
            bytes: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
            device: metadata.dev(),
            inode: metadata.ino(),
            build_id: super::elf::build_id(&file),
            file,
        })
    }

    /// On other systems no library is opened yet.
    #[cfg(not(target_os = "linux"))]
    pub fn of(_: &Path) -> Option<Stamp> {
        None
    }

    /// Whether the file was unchanged for a while before `loading`, so that the loaded file is the stamped one. Time
    /// stamps are coarse on some file systems, and clocks of other machines differ.
    pub fn is_older_than(&self, loading: SystemTime) -> bool {
        const MARGIN: i64 = 2;
        let since = loading.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |time| time.as_secs());
        i64::try_from(since).is_ok_and(|since| self.changed.0.saturating_add(MARGIN) < since)
    }
}

/// Where a compiler was found: the key of the search, and the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Traced {
    pub way: CacheKey,
    pub stamp: Stamp,
}

/// The key of a search: a hash of everything that decides its result and can be seen without loading anything.
pub(super) fn way(surroundings: &[String]) -> CacheKey {
    let fields: Vec<&str> = ["library"].into_iter().chain(surroundings.iter().map(String::as_str)).collect();
    CacheKey::of_note(&fields)
}

/// The recorded facts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Library {
    pub stamp: Stamp,
    pub build: Build,
}

impl Library {
    /// Whether the file is unchanged.
    pub fn is_there(&self) -> bool {
        Stamp::of(&self.stamp.file).is_some_and(|now| now == self.stamp)
    }
}

/// The library that a file of the cache describes, and its key.
pub(super) fn decode_any(bytes: &[u8]) -> Result<(CacheKey, Library), Damage> {
    let (key, text) = note::decode_any(bytes)?;
    Ok((key, serde_json::from_slice(&text).map_err(|_| Damage::Description)?))
}

pub(super) fn encode(key: &CacheKey, library: &Library) -> Option<Vec<u8>> {
    Some(note::encode(key, &serde_json::to_vec(library).ok()?))
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use std::fs::{self, File};
    use std::time::Duration;

    #[test]
    fn whatever_changes_a_file_changes_its_stamp() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("library");
        let (link, moved) = (directory.path().join("link"), directory.path().join("moved"));
        fs::write(&path, "library").unwrap();
        std::os::unix::fs::symlink(&path, &link).unwrap();
        let first = Stamp::of(&path).unwrap();
        assert_eq!(Stamp::of(&link), Some(first.clone()), "a link is another name of the same file");
        assert_eq!(Stamp::of(&moved), None);
        let mut seen = vec![first];
        let mut changed = |what: &str| {
            let now = Stamp::of(&path).unwrap();
            assert!(!seen.contains(&now), "{what}: {seen:?}");
            seen.push(now);
        };
        let modified = fs::metadata(&path).unwrap().modified().unwrap();
        // Long enough for the coarsest clock of a file system that has nanoseconds.
        let tick = || std::thread::sleep(Duration::from_millis(20));
        tick();
        fs::write(&path, "LIBRARY").unwrap();
        File::options().write(true).open(&path).unwrap().set_modified(modified).unwrap();
        changed("written over, its time set back");
        fs::write(&moved, "library").unwrap();
        File::options().write(true).open(&moved).unwrap().set_modified(modified).unwrap();
        fs::rename(&moved, &path).unwrap();
        changed("replaced by one of its size and time");
        fs::write(&path, "a library").unwrap();
        changed("longer");
    }

    #[test]
    fn a_file_that_has_just_changed_may_not_be_what_was_loaded() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let (stamp, now) = (Stamp::of(file.path()).unwrap(), SystemTime::now());
        assert!(!stamp.is_older_than(now) && !stamp.is_older_than(now - Duration::from_secs(60)));
        assert!(stamp.is_older_than(now + Duration::from_secs(5)) && !stamp.is_older_than(SystemTime::UNIX_EPOCH));
    }

    #[test]
    fn ways_are_told_apart() {
        let ways = [&["a", "b"][..], &["ab"], &["b", "a"], &[]]
            .map(|texts| way(&texts.iter().map(ToString::to_string).collect::<Vec<_>>()));
        assert!((0..ways.len()).all(|at| !ways[..at].contains(&ways[at])));
    }
}
