//! Looking after a cache directory: what is in it, whether it is sound, and making it smaller.

use super::cache::Cache;
use super::config::Limits;
use super::entry;
use super::note;
use super::store::NOTES;
use super::sweep::{self, Found, Swept};
use crate::source::KernelInfo;
use std::fs;
use std::path::PathBuf;
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
}

/// Why a file of a cache directory is of no use. It is a miss for whoever looks for it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unsound(String);

impl Cache {
    /// Reads and verifies every kernel and every note of the directory, those used last first. Nothing is changed.
    pub fn files(&self) -> Vec<CachedFile> {
        let Ok(store) = self.store() else { return Vec::new() };
        let (mut entries, _) = sweep::census(store);
        entries.sort_by_key(|found| std::cmp::Reverse(found.used));
        entries.into_iter().map(|found| self.examine(found)).collect()
    }

    fn examine(&self, Found { path, bytes, used }: Found) -> CachedFile {
        let read = || {
            let text = |error: &dyn std::fmt::Display| Unsound(error.to_string());
            let content = fs::read(&path).map_err(|error| text(&error))?;
            let (key, place, holds) = if path.extension().is_some_and(|extension| extension == "kernel") {
                let (key, cubin) = entry::decode_any(&content).map_err(|damage| text(&damage))?;
                (key, cubin.info.target.to_string(), Holds::Kernel(Box::new(cubin.info)))
            } else {
                let (key, _) = note::decode_any(&content).map_err(|damage| text(&damage))?;
                (key, NOTES.to_owned(), Holds::Note)
            };
            let name = key.to_string();
            let shard = path.parent();
            let at = |level: Option<&std::path::Path>, expected: &str| level.is_some_and(|level| level.ends_with(expected));
            let placed = path.file_stem().is_some_and(|stem| *stem == *name)
                && at(shard, &name[..2])
                && at(shard.and_then(std::path::Path::parent), &place);
            if placed { Ok(holds) } else { Err(Unsound(format!("it belongs to {place}/{}/{name}", &name[..2]))) }
        };
        CachedFile { holds: read(), path, bytes, used }
    }

    /// Removes what has not been used for longest until 70 % of `limits` are left, if the directory exceeds them, and what dead
    /// writers and old versions left behind. This happens by itself once an hour, with the cache's own limits.
    pub fn prune(&self, limits: Limits) -> Swept {
        match self.store() {
            Ok(store) if store.writable() => {
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
