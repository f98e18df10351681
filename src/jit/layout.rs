//! The layout of a cache directory: names of its folders, and what a file's name says. `store` has the whole picture.

use std::fs::Metadata;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Changes with the layout of the directory, so that versions can coexist.
pub(super) const LAYOUT: &str = "v1";

/// The largest possible entry, in bytes.
pub(super) const LARGEST: u64 = 256 << 20;

/// The prefix of a file's name while it is being written.
pub(super) const TEMPORARY: &str = ".new-";

/// The folders beside those of the targets.
pub(super) const NOTES: &str = "notes";
pub(super) const COMPILERS: &str = "compilers";
pub(super) const LIBRARIES: &str = "libraries";
pub(super) const LOCKS: &str = "locks";

/// A file of the directory.
pub(super) struct Found {
    pub path: PathBuf,
    pub bytes: u64,
    pub used: SystemTime,
}

impl Found {
    pub fn new(path: PathBuf, metadata: &Metadata) -> Self {
        Self { bytes: metadata.len(), used: metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH), path }
    }
}

/// Whether a file is being written, or its writer died.
pub(super) fn is_temporary(path: &Path) -> bool {
    path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with(TEMPORARY))
}
