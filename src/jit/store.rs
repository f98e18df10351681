//! Kernels on disk.
//!
//! One file a kernel, `<root>/v1/<target>/<hh>/<64 digits>.kernel`, where `hh` are the first two digits of the key. A file
//! appears under its name complete or not at all, so readers and writers need no lock; of two processes that write the same
//! kernel either may win. Notes lie beside them in the same way, `<root>/v1/notes/<hh>/<64 digits>.note`. What is read is verified to the last bit, and what fails is a miss.
//!
//! A binary from here runs with all the rights this process has on its GPU: the directory is as trusted as the program. It has to
//! belong to the user of the process (or to the superuser, if it can only be read) and others must not be able to write to it.

use super::entry::{self, Damage};
use super::key::CacheKey;
use super::note;
use crate::source::Cubin;
use crate::target::Target;
use std::ffi::OsString;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

/// The environment variable that names the cache directory.
pub const CACHE_DIR: &str = "POSTLUDE_CACHE_DIR";

/// Changes with the layout of the directory, so that versions can live side by side.
const LAYOUT: &str = "v1";

/// Where the cache is if nobody says otherwise: `$POSTLUDE_CACHE_DIR`, `$XDG_CACHE_HOME/postlude`, `$HOME/.cache/postlude` (on
/// Windows `%LOCALAPPDATA%\postlude\cache`). `None` where there is no home; the shared directory for temporary files is no
/// substitute for one.
pub(super) fn default_root(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let path = |name| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    // The XDG rules say that a relative path is to be ignored.
    let absolute = |name| path(name).filter(|path| path.is_absolute());
    path(CACHE_DIR).or_else(|| {
        if cfg!(windows) {
            absolute("LOCALAPPDATA").map(|local| local.join("postlude").join("cache"))
        } else {
            let home = || absolute("HOME").map(|home| home.join(".cache"));
            absolute("XDG_CACHE_HOME").or_else(home).map(|cache| cache.join("postlude"))
        }
    })
}

/// An opened cache directory.
pub(super) struct Store {
    root: PathBuf,
    writable: bool,
    warned: AtomicBool,
}

impl Store {
    /// Creates the directory if need be and checks who else has a say in it. The error is the reason to do without.
    pub fn open(root: &Path) -> Result<Self, String> {
        let root = std::path::absolute(root).map_err(|error| format!("it is no path: {error}"))?;
        create_private(&root).map_err(|error| format!("it cannot be created: {error}"))?;
        let writable = match tempfile::tempfile_in(&root) {
            Ok(probe) => {
                check_owner(&root, Some(&probe))?;
                true
            }
            Err(error) => {
                check_owner(&root, None)?;
                let root = root.display();
                tracing::warn!(%root, %error, "the kernel cache cannot be written; new kernels are kept in memory only");
                false
            }
        };
        Ok(Self { root, writable, warned: AtomicBool::new(!writable) })
    }

    /// The directory given to [`Store::open`], made absolute.
    pub fn root(&self) -> &Path {
        &self.root
    }

    pub fn path(&self, key: &CacheKey, target: Target) -> PathBuf {
        let name = key.to_string();
        self.root.join(LAYOUT).join(target.to_string()).join(&name[..2]).join(format!("{name}.kernel"))
    }

    fn note_path(&self, key: &CacheKey) -> PathBuf {
        let name = key.to_string();
        self.root.join(LAYOUT).join("notes").join(&name[..2]).join(format!("{name}.note"))
    }

    /// The kernel, if it is here and sound. The flag tells that there was one that was not.
    pub fn read(&self, key: &CacheKey, target: Target) -> (Option<Cubin>, bool) {
        self.get(&self.path(key, target), |bytes| entry::decode(key, bytes))
    }

    /// Keeps a kernel; whether that worked.
    pub fn write(&self, key: &CacheKey, target: Target, cubin: &Cubin) -> bool {
        self.put(&self.path(key, target), || entry::encode(key, cubin))
    }

    /// The note, if it is here and sound. The flag tells that there was one that was not.
    pub fn read_note(&self, key: &CacheKey) -> (Option<Vec<u8>>, bool) {
        self.get(&self.note_path(key), |bytes| note::decode(key, bytes))
    }

    /// Keeps a note; whether that worked.
    pub fn write_note(&self, key: &CacheKey, text: &[u8]) -> bool {
        self.put(&self.note_path(key), || Some(note::encode(key, text)))
    }

    fn get<T>(&self, path: &Path, decode: impl FnOnce(&[u8]) -> Result<T, Damage>) -> (Option<T>, bool) {
        let damage = match fs::read(path) {
            Ok(bytes) => match decode(&bytes) {
                Ok(found) => return (Some(found), false),
                Err(damage) => damage,
            },
            Err(error) => {
                if !matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) {
                    self.warn("a cached file cannot be read", path, &error);
                }
                return (None, false);
            }
        };
        tracing::warn!(path = %path.display(), %damage, "a cached file is damaged; it is removed and made again");
        let _ = fs::remove_file(path);
        (None, true)
    }

    fn put(&self, path: &Path, encode: impl FnOnce() -> Option<Vec<u8>>) -> bool {
        if !self.writable {
            return false;
        }
        let outcome = (|| {
            let shard = path.parent().unwrap_or(&self.root);
            create_private(shard)?;
            let bytes = encode().ok_or(io::ErrorKind::InvalidData)?;
            // A random name, readable by the owner only, removed again if anything fails from here on.
            let mut file = tempfile::Builder::new().prefix(".new-").tempfile_in(shard)?;
            file.write_all(&bytes)?;
            // Not synchronised: after a crash of the machine the checksum tells a torn file from a whole one.
            file.persist(path)?;
            Ok(())
        })();
        outcome.inspect_err(|error: &io::Error| self.warn("a file cannot be cached", path, error)).is_ok()
    }

    /// Forgets a kernel.
    pub fn remove(&self, key: &CacheKey, target: Target) {
        let path = self.path(key, target);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                self.warn("a cached kernel cannot be removed", &path, &error)
            }
            _ => {}
        }
    }

    /// Says it once: a full disk is full for every kernel.
    fn warn(&self, what: &str, path: &Path, error: &io::Error) {
        if self.warned.swap(true, Ordering::Relaxed) {
            tracing::debug!(path = %path.display(), %error, "{what}");
        } else {
            tracing::warn!(path = %path.display(), %error, "{what}; this is said only once");
        }
    }
}

fn create_private(directory: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(directory)
}

/// Nobody else may plant a binary here. `probe` is a file that this process has just made: its owner is the user of the process.
#[cfg(unix)]
fn check_owner(root: &Path, probe: Option<&fs::File>) -> Result<(), String> {
    use std::os::unix::fs::MetadataExt as _;
    let metadata = fs::metadata(root).map_err(|error| format!("it cannot be examined: {error}"))?;
    if metadata.mode() & 0o022 != 0 {
        return Err(format!("others can write to it (mode {:o}); `chmod go-w` it", metadata.mode() & 0o777));
    }
    let own = match probe {
        Some(file) => file.metadata(),
        None => fs::metadata("/proc/self"),
    };
    let own = own.map_err(|error| format!("its owner cannot be compared: {error}"))?.uid();
    let trusted = metadata.uid() == own || (probe.is_none() && metadata.uid() == 0);
    if trusted { Ok(()) } else { Err(format!("it belongs to user {}, this process to user {own}", metadata.uid())) }
}

#[cfg(not(unix))]
fn check_owner(_: &Path, _: Option<&fs::File>) -> Result<(), String> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::entry::tests::{as_read, cubin};
    use super::*;

    const SM: Target = Target::SM_90A;

    #[cfg(unix)]
    fn root_of(pairs: &[(&str, &str)]) -> Option<PathBuf> {
        default_root(|name| pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| value.into()))
    }

    #[cfg(unix)]
    #[test]
    fn the_place_is_as_documented() {
        let all = [(CACHE_DIR, "c"), ("XDG_CACHE_HOME", "/x"), ("HOME", "/h")];
        assert_eq!(root_of(&all), Some("c".into()));
        assert_eq!(root_of(&all[1..]), Some("/x/postlude".into()));
        assert_eq!(root_of(&all[2..]), Some("/h/.cache/postlude".into()));
        assert_eq!(root_of(&[("XDG_CACHE_HOME", "relative"), ("HOME", "/h")]), Some("/h/.cache/postlude".into()));
        assert_eq!(root_of(&[(CACHE_DIR, ""), ("HOME", "")]), None);
        assert_eq!(root_of(&[]), None);
    }

    #[test]
    fn what_is_written_is_read() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(&directory.path().join("a/b")).unwrap();
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
        store.remove(&key, SM);
        store.remove(&key, SM);
        assert_eq!(store.read(&key, SM), (None, false));
    }

    #[test]
    fn damaged_entries_are_misses_and_removed() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(&directory.path().join("cache")).unwrap();
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
            assert_eq!(store.read(&key, SM), (None, true));
            assert!(!path.exists());
        }
        assert!(store.write(&key, SM, &cubin(&key, b"image")) && store.read(&key, SM).0.is_some());
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        assert_eq!(store.read(&key, SM), (None, false), "a directory in its place");
        assert!(!store.write(&key, SM, &cubin(&key, b"image")));
    }

    #[test]
    fn notes_are_kept_replaced_and_doubted() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(&directory.path().join("cache")).unwrap();
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

    #[cfg(unix)]
    #[test]
    fn directories_that_others_write_to_are_refused() {
        use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().join("cache");
        let store = Store::open(&root).unwrap();
        assert_eq!(fs::metadata(&root).unwrap().mode() & 0o777, 0o700);
        let key = CacheKey::for_test(4);
        store.write(&key, SM, &cubin(&key, b"image"));
        assert_eq!(fs::metadata(store.path(&key, SM)).unwrap().mode() & 0o777, 0o600);
        for mode in [0o770, 0o702, 0o1777] {
            fs::set_permissions(&root, fs::Permissions::from_mode(mode)).unwrap();
            let reason = Store::open(&root).err().unwrap();
            assert!(reason.contains("others can write to it") && reason.contains("chmod go-w"), "{reason}");
        }
    }

    #[test]
    fn impossible_roots_are_reasons() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("file");
        fs::write(&file, "").unwrap();
        for root in [file.clone(), file.join("below"), PathBuf::new()] {
            assert!(Store::open(&root).is_err(), "{root:?}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_read_only_directory_is_read() {
        use std::os::unix::fs::PermissionsExt as _;
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().join("cache");
        let key = CacheKey::for_test(5);
        assert!(Store::open(&root).unwrap().write(&key, SM, &cubin(&key, b"image")));
        fs::set_permissions(&root, fs::Permissions::from_mode(0o500)).unwrap();
        if tempfile::tempfile_in(&root).is_ok() {
            eprintln!("skipped: permissions do not bind the superuser");
            return;
        }
        let store = Store::open(&root).unwrap();
        assert!(store.read(&key, SM).0.is_some());
        assert!(!store.write(&CacheKey::for_test(6), SM, &cubin(&key, b"image")));
        fs::set_permissions(&root, fs::Permissions::from_mode(0o700)).unwrap();
    }
}
