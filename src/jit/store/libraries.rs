//! Records of libraries, beside the kernels.

use super::Store;
use crate::jit::CacheKey;
use crate::jit::build::Build;
use crate::jit::envelope;
use crate::jit::kind::FileKind;
use crate::jit::layout::LIBRARIES;
use crate::jit::library::{self, Library, Traced};
use std::path::PathBuf;

impl Store {
    pub fn library_path(&self, way: &CacheKey) -> PathBuf {
        self.file(LIBRARIES, way, FileKind::Library)
    }

    /// The library that an equal search found, if its file is unchanged. The flag says that a note is damaged.
    pub fn recall(&self, way: &CacheKey) -> (Option<Library>, bool) {
        let (library, damaged) = self.get(&self.library_path(way), |bytes| envelope::of(way, library::decode_any(bytes)?));
        (library.filter(Library::is_there), damaged)
    }

    /// Records the result of a search, unless it is known.
    pub fn remember(&self, traced: &Traced, build: &Build) {
        let library = Library { stamp: traced.stamp.clone(), build: build.clone() };
        if self.writable && self.recall(&traced.way).0.is_none_or(|known| known != library) {
            self.put(&self.library_path(&traced.way), || library::encode(&traced.way, &library));
        }
    }
}
