//! Kernels on disk.
//!
//! ```text
//! v1/sm_90a/ab/ab....kernel     one file a kernel; `ab` are the first two digits of its key
//! v1/notes/cd/cd....note        notes: what was found out about kernels
//! v1/compilers/ef/ef....note    which compilers the kernels are from
//! v1/libraries/01/01....note    which build of the compiler a file is
//! v1/locks/abc, v1/sweep        empty; held while working, never removed
//! ```
//!
//! A file appears under its name complete or not at all, so readers and writers need no lock. If two processes write
//! the same kernel, either may win. Every read is verified to the last bit, and a file that fails is a miss. A file
//! that is removed during a read is read to its end: nothing is mapped into memory.
//!
//! The time stamp of a file says when it was last used, to within an hour. The cache sets it: most machines switch off
//! the file system's own record of accesses.

mod libraries;
mod tree;

use super::build::{Build, compiler_in};
use super::entry;
use super::envelope::{self, Damage};
use super::fault::{CacheFault, Faults};
use super::folder::{Folder, Untrusted, fresh};
use super::key::CacheKey;
use super::kind::FileKind;
use super::layout::{COMPILERS, Found, LAYOUT, NOTES, TEMPORARY, is_temporary};
use super::note;
use super::root;
use crate::source::Cubin;
use crate::target::Target;
use std::fmt::Display;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

/// The age at which the time stamp of a used entry is renewed.
const STAMP_AGE: Duration = Duration::from_secs(3600);

/// An opened cache directory.
pub(super) struct Store {
    root: PathBuf,
    /// The opened directory: the path to it is long, and was examined.
    opened: Mutex<Option<Folder>>,
    writable: bool,
    faults: Arc<Faults>,
    read: AtomicU64,
    written: AtomicU64,
}

impl Store {
    /// Examines the directory and, if it is to be written, creates it. The error is the reason to do without it.
    pub fn open(root: &Path, write: bool) -> Result<Self, String> {
        let root = std::path::absolute(root).map_err(|error| format!("it is not a path: {error}"))?;
        let writable = root::prepare(&root, write)?;
        let (read, written) = (AtomicU64::new(0), AtomicU64::new(0));
        Ok(Self { root, opened: Mutex::default(), writable, faults: Arc::default(), read, written })
    }

    /// The directory given to [`Store::open`], made absolute.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Whether the directory may be changed.
    pub fn writable(&self) -> bool {
        self.writable
    }

    /// The reported faults.
    pub fn faults(&self) -> Arc<Faults> {
        self.faults.clone()
    }

    /// Bytes read and written so far.
    pub fn traffic(&self) -> (u64, u64) {
        (self.read.load(Ordering::Relaxed), self.written.load(Ordering::Relaxed))
    }

    /// A folder of this layout.
    pub fn folder(&self, name: &str) -> PathBuf {
        self.root.join(LAYOUT).join(name)
    }

    fn file(&self, folder: &str, key: &CacheKey, kind: FileKind) -> PathBuf {
        let name = key.to_string();
        self.folder(folder).join(&name[..2]).join(format!("{name}.{}", kind.extension()))
    }

    pub fn path(&self, key: &CacheKey, target: Target) -> PathBuf {
        self.file(&target.to_string(), key, FileKind::Kernel)
    }

    pub fn note_path(&self, key: &CacheKey) -> PathBuf {
        self.file(NOTES, key, FileKind::Note)
    }

    /// The kernel, if it is present and sound. The flag says that an unsound one is present.
    pub fn read(&self, key: &CacheKey, target: Target) -> (Option<Cubin>, bool) {
        self.get(&self.path(key, target), |bytes| entry::decode(key, bytes))
    }

    /// Stores a kernel. Returns whether that worked.
    pub fn write(&self, key: &CacheKey, target: Target, cubin: &Cubin) -> bool {
        self.put(&self.path(key, target), || entry::encode(key, cubin))
    }

    /// The note, if it is present and sound. The flag says that an unsound one is present.
    pub fn read_note(&self, key: &CacheKey) -> (Option<Vec<u8>>, bool) {
        self.get(&self.note_path(key), |bytes| note::decode(key, bytes))
    }

    /// Stores a note. Returns whether that worked.
    pub fn write_note(&self, key: &CacheKey, text: &[u8]) -> bool {
        self.put(&self.note_path(key), || Some(note::encode(key, text)))
    }

    /// Records a compiler whose kernels are stored. Replaces a damaged record, or one of another version of this
    /// library.
    pub fn know_compiler(&self, build: &Build) {
        let key = CacheKey::of_note(&["compiler", &build.identity]);
        let path = self.file(COMPILERS, &key, FileKind::Compiler);
        if self.writable && self.get(&path, compiler_in).0.is_none_or(|(_, known)| known != *build) {
            self.put(&path, || Some(note::encode(&key, &serde_json::to_vec(build).ok()?)));
        }
    }

    /// The compilers of the stored kernels, newest first.
    pub fn compilers(&self) -> Vec<Build> {
        let files = self.compiler_files().into_iter();
        let mut builds: Vec<Build> = files.filter_map(|path| self.get(&path, compiler_in).0).map(|(_, build)| build).collect();
        builds.sort_by_cached_key(|build| std::cmp::Reverse((build.age(), build.identity.clone())));
        builds.dedup();
        builds
    }

    /// The records of compilers.
    pub fn compiler_files(&self) -> Vec<PathBuf> {
        self.compilers_found().into_iter().map(|found| found.path).collect()
    }

    /// The same, with their sizes and times.
    pub fn compilers_found(&self) -> Vec<Found> {
        self.found_below(COMPILERS.as_ref()).into_iter().filter(|found| !is_temporary(&found.path)).collect()
    }

    /// Imports a file from another directory, unless a sound one of its name is present. Returns whether it is present
    /// now.
    pub fn adopt(&self, folder: &str, key: &CacheKey, kind: FileKind, bytes: &[u8]) -> bool {
        let path = self.file(folder, key, kind);
        let own = |bytes: &[u8]| kind.read(bytes).and_then(|found| envelope::of(key, (found.key, ())));
        self.get(&path, own).0.is_some() || self.put(&path, || Some(bytes.to_vec()))
    }

    fn get<T>(&self, path: &Path, decode: impl FnOnce(&[u8]) -> Result<T, Damage>) -> (Option<T>, bool) {
        let damage = match self.load(path) {
            Ok(Some(bytes)) => match decode(&bytes) {
                Ok(found) => return (Some(found), false),
                Err(damage) => damage,
            },
            Ok(None) => Damage::Length,
            Err(error) => {
                if !matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) {
                    self.report_error(CacheFault::Unreadable, path, &error);
                }
                // The file itself, or a link. Files in a folder that others can write to stay.
                if self.writable && Untrusted::in_error(&error).is_some_and(|untrusted| untrusted.path == path) {
                    let _ = self.unlink(path);
                }
                return (None, false);
            }
        };
        self.report(CacheFault::Damaged, path, &damage);
        if self.writable {
            let _ = self.unlink(path);
        }
        (None, true)
    }

    /// A complete file, unless it is far too large. Renews its time stamp.
    fn load(&self, path: &Path) -> io::Result<Option<Vec<u8>>> {
        let Some((file, bytes)) = self.contents(path)? else { return Ok(None) };
        self.read.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        let now = SystemTime::now();
        let stamp = file.metadata().and_then(|metadata| metadata.modified());
        // A negative age comes from a clock that was set back. Such a file would never age.
        let recent = stamp.is_ok_and(|stamp| now.duration_since(stamp).is_ok_and(|age| age < STAMP_AGE));
        if self.writable && !recent {
            let _ = file.set_modified(now);
        }
        Ok(Some(bytes))
    }

    fn put(&self, path: &Path, encode: impl FnOnce() -> Option<Vec<u8>>) -> bool {
        if !self.writable {
            return false;
        }
        let outcome = (|| {
            let (folder, name) = self.at(path, true)?;
            let bytes = encode().ok_or(io::ErrorKind::InvalidData)?;
            let temporary = fresh(TEMPORARY);
            let mut file = folder.create(temporary.as_ref())?;
            // Not synchronised: after a crash of the machine the checksum detects a torn file.
            let placed = file.write_all(&bytes).and_then(|()| self.place(&folder, temporary.as_ref(), name, path));
            if placed.is_err() {
                let _ = folder.remove_file(temporary.as_ref());
            }
            placed.map(|()| self.written.fetch_add(bytes.len() as u64, Ordering::Relaxed))
        })();
        outcome.inspect_err(|error: &io::Error| self.report_error(CacheFault::Unwritable, path, error)).is_ok()
    }

    /// Removes a kernel.
    pub fn remove(&self, key: &CacheKey, target: Target) {
        if !self.writable {
            return;
        }
        let path = self.path(key, target);
        match self.unlink(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => self.report_error(CacheFault::Unremovable, &path, &error),
            _ => {}
        }
    }

    /// Reports a fault of a file. The first of its kind is a warning. Missing trust is a kind of its own.
    pub fn report_error(&self, fault: CacheFault, path: &Path, error: &io::Error) {
        self.report(if Untrusted::in_error(error).is_some() { CacheFault::Untrusted } else { fault }, path, error);
    }

    /// Reports a fault of a file. The first of its kind is a warning.
    pub fn report(&self, fault: CacheFault, path: &Path, why: &dyn Display) {
        self.faults.report(fault, &path.display(), why);
    }
}

#[cfg(test)]
mod tests {
    use super::super::entry::tests::{as_read, cubin};
    use super::super::layout::LARGEST;
    use super::*;
    use std::fs::{self, File};

    const SM: Target = Target::SM_90A;

    fn store_in(directory: &Path) -> Store {
        Store::open(&directory.join("cache"), true).unwrap()
    }

    #[test]
    fn the_layout_is_that_of_the_format() {
        assert_eq!(LAYOUT, format!("v{}", super::super::key::FORMAT), "a new format needs a layout of its own");
    }

    #[test]
    fn what_is_written_is_read() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(&directory.path().join("a/b"), true).unwrap();
        let (key, other) = (CacheKey::for_test(0xab), CacheKey::for_test(1));
        assert_eq!(store.read(&key, SM), (None, false));
        let kernel = cubin(&key, b"image");
        assert!(store.write(&key, SM, &kernel) && store.write(&key, SM, &kernel));
        assert_eq!(store.read(&key, SM), (Some(as_read(kernel)), false));
        assert_eq!(store.read(&key, Target::SM_80), (None, false));
        assert_eq!(store.read(&other, SM), (None, false));
        let path = store.path(&key, SM);
        assert!(path.ends_with(format!("a/b/v1/sm_90a/ab/{key}.kernel")), "{path:?}");
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "no temporary file is left");
        let size = fs::metadata(&path).unwrap().len();
        assert_eq!(store.traffic(), (size, 2 * size));
        store.remove(&key, SM);
        store.remove(&key, SM);
        assert_eq!(store.read(&key, SM), (None, false));
    }

    #[test]
    fn damaged_entries_are_misses_and_removed() {
        let directory = tempfile::tempdir().unwrap();
        let store = store_in(directory.path());
        let (key, other) = (CacheKey::for_test(2), CacheKey::for_test(3));
        store.write(&key, SM, &cubin(&key, b"image"));
        store.write(&other, SM, &cubin(&other, b"image"));
        let path = store.path(&key, SM);
        let whole = fs::read(&path).unwrap();
        let mut flipped = whole.clone();
        flipped[100] ^= 1;
        let foreign = fs::read(store.path(&other, SM)).unwrap();
        for bad in [&[][..], &whole[..whole.len() / 2], &flipped, &foreign] {
            fs::write(&path, bad).unwrap();
            assert_eq!(Store::open(store.root(), false).unwrap().read(&key, SM), (None, true));
            assert!(path.exists(), "only read");
            assert_eq!(store.read(&key, SM), (None, true));
            assert!(!path.exists());
        }
        assert!(store.write(&key, SM, &cubin(&key, b"image")) && store.read(&key, SM).0.is_some());
    }

    #[test]
    fn a_folder_in_the_place_of_a_file_goes_or_is_set_aside() {
        let directory = tempfile::tempdir().unwrap();
        let store = store_in(directory.path());
        let key = CacheKey::for_test(2);
        let path = store.path(&key, SM);
        for theirs in [None, Some("theirs")] {
            fs::create_dir_all(&path).unwrap();
            theirs.iter().for_each(|name| fs::write(path.join(name), "x").unwrap());
            assert_eq!(store.read(&key, SM), (None, false));
            assert!(store.write(&key, SM, &cubin(&key, b"image")));
            assert!(store.read(&key, SM).0.is_some());
            let others: Vec<_> = fs::read_dir(path.parent().unwrap()).unwrap().map(|entry| entry.unwrap().path()).collect();
            let aside: Vec<_> = others.into_iter().filter(|other| *other != path).collect();
            assert_eq!(aside.len(), theirs.iter().count(), "{aside:?}");
            assert!(aside.iter().all(|aside| aside.join("theirs").exists()), "{aside:?}");
            fs::remove_file(&path).unwrap();
        }
    }

    #[test]
    fn what_is_adopted_takes_the_place_of_what_belongs_elsewhere() {
        let directory = tempfile::tempdir().unwrap();
        let store = store_in(directory.path());
        let (key, other) = (CacheKey::for_test(2), CacheKey::for_test(3));
        let [own, foreign] = [&key, &other].map(|key| entry::encode(key, &cubin(key, b"image")).unwrap());
        let adopt = || assert!(store.adopt(&SM.to_string(), &key, FileKind::Kernel, &own));
        adopt();
        fs::write(store.path(&key, SM), &foreign).unwrap();
        adopt();
        assert_eq!(fs::read(store.path(&key, SM)).unwrap(), own);
        let sound = entry::encode(&key, &cubin(&key, b"another image")).unwrap();
        fs::write(store.path(&key, SM), &sound).unwrap();
        adopt();
        assert_eq!(fs::read(store.path(&key, SM)).unwrap(), sound, "a sound file of the key stays");
    }

    #[test]
    fn a_directory_that_is_removed_or_changed_is_seen() {
        let directory = tempfile::tempdir().unwrap();
        let store = store_in(directory.path());
        let (key, root) = (CacheKey::for_test(2), directory.path().join("cache"));
        let write = || store.write(&key, SM, &cubin(&key, b"image"));
        assert!(write());
        fs::remove_dir_all(&root).unwrap();
        assert_eq!(store.read(&key, SM), (None, false));
        assert!(write() && store.path(&key, SM).exists() && store.read(&key, SM).0.is_some());
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt as _;
            let chmod = |mode| fs::set_permissions(&root, fs::Permissions::from_mode(mode)).unwrap();
            chmod(0o777);
            assert!(store.read(&key, SM) == (None, false) && !write() && !store.is_trusted());
            chmod(0o700);
            assert!(store.read(&key, SM).0.is_some() && store.is_trusted());
        }
    }

    #[test]
    fn what_is_far_too_large_is_not_read() {
        let directory = tempfile::tempdir().unwrap();
        let store = store_in(directory.path());
        let key = CacheKey::for_test(2);
        store.write(&key, SM, &cubin(&key, b"image"));
        // A hole: it takes no room.
        File::options().write(true).open(store.path(&key, SM)).unwrap().set_len(LARGEST + 1).unwrap();
        assert_eq!(store.read(&key, SM), (None, true));
        assert_eq!(store.traffic().0, 0);
    }

    #[test]
    fn use_renews_the_time_stamp() {
        let directory = tempfile::tempdir().unwrap();
        let store = store_in(directory.path());
        let key = CacheKey::for_test(2);
        store.write(&key, SM, &cubin(&key, b"image"));
        let path = store.path(&key, SM);
        let (now, hour) = (SystemTime::now(), Duration::from_secs(3600));
        let read_at = |stamp: SystemTime, write: bool| {
            File::open(&path).unwrap().set_modified(stamp).unwrap();
            assert!(Store::open(store.root(), write).unwrap().read(&key, SM).0.is_some());
            fs::metadata(&path).unwrap().modified().unwrap() != stamp
        };
        assert!(!read_at(now - hour / 2, true), "recent enough");
        assert!(read_at(now - 2 * hour, true) && read_at(now + 24 * hour, true), "old, and of the future");
        assert!(!read_at(now - 2 * hour, false), "only read");
    }

    #[test]
    fn notes_are_kept_replaced_and_doubted() {
        let directory = tempfile::tempdir().unwrap();
        let store = store_in(directory.path());
        let key = CacheKey::of_note(&["a"]);
        assert_eq!(store.read_note(&key), (None, false));
        assert!(store.write_note(&key, b"first") && store.write_note(&key, b"second"));
        assert_eq!(store.read_note(&key), (Some(b"second".to_vec()), false));
        assert_eq!(store.read_note(&CacheKey::of_note(&["b"])), (None, false));
        let path = store.note_path(&key);
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "no temporary file is left");
        fs::write(&path, "damaged").unwrap();
        assert_eq!(store.read_note(&key), (None, true));
        assert!(!path.exists());
    }

    #[test]
    fn compilers_are_known_newest_first() {
        let directory = tempfile::tempdir().unwrap();
        let store = store_in(directory.path());
        let build = |identity: &str| Build { identity: identity.into(), common: vec!["--x".into()] };
        assert_eq!(store.compilers(), []);
        for identity in ["NVRTC 9.0", "NVRTC 13.0", "NVRTC 12.9", "NVRTC 13.0"] {
            store.know_compiler(&build(identity));
        }
        let files = store.compiler_files();
        assert_eq!(files.len(), 3);
        assert_eq!(store.compilers(), ["NVRTC 13.0", "NVRTC 12.9", "NVRTC 9.0"].map(build));
        fs::write(&files[0], "damaged").unwrap();
        fs::copy(&files[1], &files[2]).unwrap();
        assert_eq!(store.compilers().len(), 1, "a copy adds nothing");
        // A process with a compiler records it again, with today's options.
        let today = Build { common: vec!["--y".into()], ..build("NVRTC 13.0") };
        for _ in 0..2 {
            store.know_compiler(&today);
            assert_eq!(store.compilers()[0], today);
            store.compiler_files().iter().for_each(|file| fs::write(file, "damaged").unwrap());
        }
    }

    #[cfg(unix)]
    #[test]
    fn files_are_private_and_pipes_do_not_block() {
        use std::os::unix::fs::MetadataExt as _;
        let directory = tempfile::tempdir().unwrap();
        let store = store_in(directory.path());
        let key = CacheKey::for_test(4);
        store.write(&key, SM, &cubin(&key, b"image"));
        let path = store.path(&key, SM);
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        fs::remove_file(&path).unwrap();
        let made = std::process::Command::new("mkfifo").arg(&path).status().is_ok_and(|status| status.success());
        assert!(!made || store.read(&key, SM) == (None, false));
    }
}
