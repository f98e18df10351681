//! What is not trusted, and names that nobody has.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io;
use std::path::{Path, PathBuf};

/// Why a folder, file or link is not used, and the cure.
#[derive(Debug, thiserror::Error)]
#[error("{}: {why}", path.display())]
pub(in crate::jit) struct Untrusted {
    /// The folder, file or link.
    pub path: PathBuf,
    pub why: String,
}

impl Untrusted {
    /// The message of an error, if it is about trust.
    pub fn in_error(error: &io::Error) -> Option<&Untrusted> {
        error.get_ref()?.downcast_ref()
    }
}

/// The error of what is not trusted.
#[cfg_attr(not(unix), allow(dead_code, reason = "nothing is examined there"))]
pub(super) fn untrusted(path: &Path, why: String) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, Untrusted { path: path.to_owned(), why })
}

/// The error of what is not a file.
pub(super) fn no_file() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "it is not a file")
}

/// An unused name.
pub(in crate::jit) fn fresh(prefix: &str) -> String {
    format!("{prefix}{:016x}", RandomState::new().build_hasher().finish())
}
