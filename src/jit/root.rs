//! Where the cache directory is, and whether it can be trusted.
//!
//! A binary from there runs with all the rights this process has on its GPU: the directory is as trusted as the program. It has to
//! belong to the user of the process (or to the superuser, if it can only be read) and others must not be able to write to it.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The environment variable that names the cache directory.
pub const CACHE_DIR: &str = "POSTLUDE_CACHE_DIR";

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

/// A directory to keep kernels in: made if need be and `write` is wanted, and examined. Whether it can be written, or the reason
/// to do without it.
pub(super) fn prepare(root: &Path, write: bool) -> Result<bool, String> {
    if !write {
        let metadata = fs::metadata(root).map_err(|error| format!("it cannot be read: {error}"))?;
        if !metadata.is_dir() {
            return Err("it is no directory".to_owned());
        }
        return check_owner(root, None).map(|()| false);
    }
    create_private(root).map_err(|error| format!("it cannot be created: {error}"))?;
    match tempfile::tempfile_in(root) {
        Ok(probe) => check_owner(root, Some(&probe)).map(|()| true),
        Err(error) => {
            check_owner(root, None)?;
            let root = root.display();
            tracing::warn!(%root, %error, "the kernel cache cannot be written; new kernels are kept in memory only");
            Ok(false)
        }
    }
}

pub(super) fn create_private(directory: &Path) -> io::Result<()> {
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

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

    fn root_of(pairs: &[(&str, &str)]) -> Option<PathBuf> {
        default_root(|name| pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| value.into()))
    }

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
    fn directories_that_others_write_to_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().join("cache");
        assert_eq!(prepare(&root, true), Ok(true));
        assert_eq!(fs::metadata(&root).unwrap().mode() & 0o777, 0o700);
        for mode in [0o770, 0o702, 0o1777] {
            fs::set_permissions(&root, fs::Permissions::from_mode(mode)).unwrap();
            for write in [true, false] {
                let reason = prepare(&root, write).unwrap_err();
                assert!(reason.contains("others can write to it") && reason.contains("chmod go-w"), "{reason}");
            }
        }
    }

    #[test]
    fn directories_of_others_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().join("cache");
        assert_eq!(prepare(&root, true), Ok(true));
        if let Err(error) = std::os::unix::fs::chown(&root, Some(12_345), None) {
            eprintln!("skipped: only the superuser gives directories away ({error})");
            return;
        }
        for write in [true, false] {
            let reason = prepare(&root, write).unwrap_err();
            assert!(reason.starts_with("it belongs to user 12345, this process to user "), "{reason}");
        }
    }

    #[test]
    fn impossible_places_are_reasons() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("file");
        fs::write(&file, "").unwrap();
        assert!(prepare(&file, true).is_err() && prepare(&file.join("below"), true).is_err());
        assert!(prepare(&file, false).is_err() && prepare(&directory.path().join("absent"), false).is_err());
        assert!(!directory.path().join("absent").exists(), "reading creates nothing");
    }
}
