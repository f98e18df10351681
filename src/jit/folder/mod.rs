//! Folders that this process trusts, and the files in them.
//!
//! A binary from the cache runs with the rights of the process. So every folder on the way to it is opened from its
//! parent, and no link is followed below the cache's directory. The opened folder itself is examined, not whatever a
//! path leads to at another moment:
//!
//! - The directory, its folders and their files belong to the user of this process or to the superuser, and no other
//!   user can write to them.
//! - A folder above the directory belongs to one of these two as well. If everybody can write to it, it is sticky, as
//!   `/tmp` is. Its group may write to it: a replacement of the directory belongs to the member who made it, and is
//!   rejected.
//! - A link above the directory, or in its place, belongs to one of these two.
//!
//! On systems other than Unix there are no owners and modes to examine, and folders are as trusted as their names.

#[cfg(not(unix))]
mod elsewhere;
#[cfg(unix)]
mod unix;

#[cfg(not(unix))]
pub(super) use elsewhere::Folder;
#[cfg(unix)]
pub(super) use unix::Folder;

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io;
use std::path::{Path, PathBuf};

/// Why a folder, file or link is not used, and the cure.
#[derive(Debug, thiserror::Error)]
#[error("{}: {why}", path.display())]
pub(super) struct Untrusted {
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

#[cfg_attr(not(unix), allow(dead_code, reason = "nothing is examined there"))]
fn untrusted(path: &Path, why: String) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, Untrusted { path: path.to_owned(), why })
}

fn no_file() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "it is not a file")
}

/// An unused name.
pub(super) fn fresh(prefix: &str) -> String {
    format!("{prefix}{:016x}", RandomState::new().build_hasher().finish())
}
