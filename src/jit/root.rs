//! The place of the cache directory, and whether it can be trusted.
//!
//! A binary from it runs with all the rights of this process on its GPU, so the directory is as trusted as the program.
//! [`folder`](super::folder) states and examines the requirements.

use super::fault::unheard;
use super::folder::{Folder, Untrusted, fresh};
use super::layout::TEMPORARY;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

/// The environment variable that names the cache directory.
pub const CACHE_DIR: &str = "POSTLUDE_CACHE_DIR";

/// The default directory: `$POSTLUDE_CACHE_DIR`, `$XDG_CACHE_HOME/postlude`, `$HOME/.cache/postlude` (on Windows
/// `%LOCALAPPDATA%\postlude\cache`). `None` without a home directory; the shared directory for temporary files does not
/// replace one.
pub(super) fn default_root(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let path = |name| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    // By the XDG rules a relative path is ignored.
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

/// A directory for kernels, examined. It is made if it is missing and `write` is set. Returns whether it can be
/// written, or the reason to do without it.
pub(super) fn prepare(root: &Path, write: bool) -> Result<bool, String> {
    let folder = Folder::root(root, write).map_err(|error| {
        let why = reason(root, write, &error);
        if Untrusted::in_error(&error).is_some() {
            unheard(&format_args!("kernels are cached in memory only: {}: {why}", root.display()));
        }
        why
    })?;
    if !write {
        return Ok(false);
    }
    let name = fresh(TEMPORARY);
    let probe = folder.create(name.as_ref()).and_then(|_| folder.remove_file(name.as_ref()));
    if let Err(error) = &probe {
        let root = root.display();
        tracing::warn!(%root, %error, "the kernel cache cannot be written; new kernels are kept in memory only");
    }
    Ok(probe.is_ok())
}

fn reason(root: &Path, write: bool, error: &io::Error) -> String {
    match Untrusted::in_error(error) {
        Some(untrusted) if untrusted.path == root => untrusted.why.clone(),
        Some(untrusted) => untrusted.to_string(),
        None if write => format!("it cannot be created: {error}"),
        None if error.kind() == io::ErrorKind::NotADirectory => "it is not a directory".to_owned(),
        None => format!("it cannot be read: {error}"),
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::fs;
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
                assert!(reason.contains("others can write to it") && reason.contains("chmod -R go-w"), "{reason}");
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
