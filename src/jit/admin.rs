//! Maintenance of a cache directory: its contents, their verification, and sweeping.

use super::cache::Cache;
use super::config::Limits;
use super::key::CacheKey;
use super::kind::{FileKind, Holds, Identified};
use super::layout::Found;
use super::store::Store;
use super::sweep::{self, Swept};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// A file of a cache directory.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CachedFile {
    /// Its path.
    pub path: PathBuf,
    /// Its length in bytes.
    pub bytes: u64,
    /// When it was last used, to within an hour.
    pub used: SystemTime,
    /// Its content, or why it is unsound.
    pub holds: Result<Holds, Unsound>,
}

/// Why a file of a cache directory is unsound. It counts as a miss.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unsound(String);

impl Cache {
    /// Reads and verifies every kernel and every note of the directory, the most recently used first, then the records
    /// of compilers. Changes nothing.
    pub fn files(&self) -> Vec<CachedFile> {
        let Ok(store) = self.store() else { return Vec::new() };
        let (mut entries, _) = sweep::census(store);
        entries.sort_by_key(|found| std::cmp::Reverse(found.used));
        let mut compilers = store.compilers_found();
        compilers.sort_by(|one, other| one.path.cmp(&other.path));
        let entries = entries.into_iter().map(|found| (FileKind::of_entry(&found.path), found));
        let compilers = compilers.into_iter().map(|found| (FileKind::Compiler, found));
        entries.chain(compilers).map(|(kind, found)| examine(store, found, kind)).collect()
    }

    /// Removes the least recently used files until 70 % of `limits` are left, if the directory exceeds them, and the
    /// leftovers of dead writers and old versions. The cache does this itself once an hour, with its own limits.
    pub fn prune(&self, limits: Limits) -> Swept {
        match self.store() {
            Ok(store) if self.writable() => {
                let swept = sweep::sweep(store, limits, SystemTime::now());
                self.tell("sweep");
                swept
            }
            _ => Swept::default(),
        }
    }

    /// Removes every kernel and every note from the directory. Kernels in memory stay.
    pub fn clear(&self) -> Swept {
        self.prune(Limits { bytes: 0, files: 0 })
    }
}

fn examine(store: &Store, Found { path, bytes, used }: Found, kind: FileKind) -> CachedFile {
    let unsound = |why: &dyn std::fmt::Display| Unsound(why.to_string());
    let holds = || {
        let content = store.contents(&path).map_err(|error| unsound(&error))?;
        let (_, content) = content.ok_or_else(|| unsound(&"it is too large for a file of the cache"))?;
        let Identified { key, folder, holds } = kind.read(&content).map_err(|damage| unsound(&damage))?;
        if placed(&path, &key, &folder) {
            Ok(holds)
        } else {
            Err(unsound(&format_args!("it belongs to {folder}/{}", shard(&key))))
        }
    };
    CachedFile { holds: holds(), path, bytes, used }
}

/// A file's path in its folder, without the extension.
fn shard(key: &CacheKey) -> String {
    let name = key.to_string();
    format!("{}/{name}", &name[..2])
}

fn placed(path: &Path, key: &CacheKey, folder: &str) -> bool {
    path.with_extension("").ends_with(Path::new(folder).join(shard(key)))
}
