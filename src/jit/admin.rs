//! Looking after a cache directory: what is in it, whether it is sound, and making it smaller.

use super::cache::Cache;
use super::config::Limits;
use super::key::CacheKey;
use super::kind::{FileKind, Identified};
use super::store::{Found, Store};
use super::sweep::{self, Swept};
use crate::source::KernelInfo;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// A file of a cache directory.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CachedFile {
    /// Where it is.
    pub path: PathBuf,
    /// Its length in bytes.
    pub bytes: u64,
    /// When it was used last, to within an hour.
    pub used: SystemTime,
    /// What it holds, or what is wrong with it.
    pub holds: Result<Holds, Unsound>,
}

/// What a sound file of a cache directory holds.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Holds {
    /// A kernel.
    Kernel(Box<KernelInfo>),
    /// A note: what tuning found about a kernel.
    Note,
    /// A compiler that kernels are from: its identity.
    Compiler(String),
    /// Which compiler a library of this machine is, so that a process need not load it to know: the compiler's identity.
    Library(String),
}

/// Why a file of a cache directory is of no use. It is a miss for whoever looks for it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unsound(String);

impl Cache {
    /// Reads and verifies every kernel and every note of the directory, those used last first, and then what it knows of compilers.
    /// Nothing is changed.
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

    /// Removes what has not been used for longest until 70 % of `limits` are left, if the directory exceeds them, and what dead
    /// writers and old versions left behind. This happens by itself once an hour, with the cache's own limits.
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

    /// Removes every kernel and every note from the directory. What is in memory stays.
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

/// Where in its folder a file lies, but for the extension.
fn shard(key: &CacheKey) -> String {
    let name = key.to_string();
    format!("{}/{name}", &name[..2])
}

fn placed(path: &Path, key: &CacheKey, folder: &str) -> bool {
    path.with_extension("").ends_with(Path::new(folder).join(shard(key)))
}
