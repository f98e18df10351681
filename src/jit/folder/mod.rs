//! Folders that this process may trust, and the files in them.
//!
//! A binary from the cache runs with the rights of the process. So every folder on the way to it is opened from the folder before,
//! no link is followed below the cache's directory, and what was opened is examined, not what a path leads to at another moment:
//!
//! - The directory, the folders in it and their files belong to the user of this process or to the superuser, and nobody else can
//!   write to them.
//! - A folder above the directory belongs to one of these two as well. If everybody can write to it, it is sticky, as `/tmp` is.
//!   Its group may write to it: what a group puts in the directory's place belongs to a member of it, and is refused.
//! - A link above the directory, or in its place, belongs to one of these two.
//!
//! Elsewhere than on Unix there are neither owners nor modes to ask for, and folders are as trusted as their names.

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

/// Why something on the way to a file is not used, and what to do about it.
#[derive(Debug, thiserror::Error)]
#[error("{}: {why}", path.display())]
pub(super) struct Untrusted {
    /// The folder, file or link that is to blame.
    pub path: PathBuf,
    pub why: String,
}

impl Untrusted {
    /// What an error says, if it is about trust.
    pub fn in_error(error: &io::Error) -> Option<&Untrusted> {
        error.get_ref()?.downcast_ref()
    }
}

#[cfg_attr(not(unix), allow(dead_code, reason = "nothing is examined there"))]
fn untrusted(path: &Path, why: String) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, Untrusted { path: path.to_owned(), why })
}

fn no_file() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "it is no file")
}

/// A name that nothing has yet.
pub(super) fn fresh(prefix: &str) -> String {
    format!("{prefix}{:016x}", RandomState::new().build_hasher().finish())
}
