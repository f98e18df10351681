//! The way from a source to its binary: memory, disk, compiler.

use super::error::JitError;
use super::flight::Flights;
use super::key::CacheKey;
use super::locate;
use super::nvrtc::Nvrtc;
use super::options::Options;
use super::store::{self, Store};
use crate::source::{Cubin, Origin, Source};
use crate::target::Target;
use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

/// Compiled kernels, in memory and, where possible, on disk.
///
/// A look-up goes to memory, then to the disk, then to NVRTC. However many threads ask for a kernel at the same time, one of them
/// fetches or compiles it. A compilation that failed is tried again by the next who asks.
///
/// Nothing about the disk is ever an error: a cache that cannot be read or written, for whatever reason, costs time and is
/// reported once as a warning (an event of `tracing`), and [`Cache::directory`] says why.
///
/// The key of a kernel contains the build of the compiler. Without NVRTC the key is unknown, so a machine without it cannot use a
/// filled directory either: [`Cache::compile`] returns [`JitError::NotFound`].
pub struct Cache {
    flights: Flights<CacheKey, Arc<Cubin>, JitError>,
    disk: Result<Store, String>,
    notes: Mutex<HashMap<CacheKey, Vec<u8>>>,
    counters: Counters,
}

#[derive(Default)]
struct Counters {
    memory_hits: AtomicU64,
    disk_hits: AtomicU64,
    compiles: AtomicU64,
    failures: AtomicU64,
    damaged: AtomicU64,
    unsaved: AtomicU64,
}

/// What a [`Cache`] has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CacheStats {
    /// Kernels that were in memory, or that another thread was already fetching.
    pub memory_hits: u64,
    /// Kernels read from disk.
    pub disk_hits: u64,
    /// Kernels compiled.
    pub compiles: u64,
    /// Compilations that failed.
    pub failures: u64,
    /// Entries on disk that were damaged and have been removed.
    pub damaged: u64,
    /// Compiled kernels that could not be written to disk although there is a directory.
    pub unsaved: u64,
    /// Kernels in memory now.
    pub held: usize,
}

impl Cache {
    /// The cache of this process, in `$POSTLUDE_CACHE_DIR`, else `$XDG_CACHE_HOME/postlude`, else `$HOME/.cache/postlude`, else
    /// in memory. The environment is read on the first call.
    pub fn global() -> &'static Self {
        static GLOBAL: LazyLock<Cache> = LazyLock::new(|| match store::default_root(|name| std::env::var_os(name)) {
            Some(root) => Cache::at(root),
            None => {
                let why = format!("neither {}, XDG_CACHE_HOME nor HOME is set", store::CACHE_DIR);
                tracing::warn!("kernels are cached in memory only: {why}");
                Cache::with(Err(why))
            }
        });
        &GLOBAL
    }

    /// A cache that forgets everything with the process.
    pub fn in_memory() -> Self {
        Self::with(Err("this cache was asked to use memory only".to_owned()))
    }

    /// A cache in a directory of the caller's choice, created if need be.
    pub fn at(root: impl AsRef<Path>) -> Self {
        let root = root.as_ref();
        Self::with(Store::open(root).map_err(|why| {
            let why = format!("{}: {why}", root.display());
            tracing::warn!("kernels are cached in memory only: {why}");
            why
        }))
    }

    fn with(disk: Result<Store, String>) -> Self {
        Self { flights: Flights::new(), disk, notes: Mutex::default(), counters: Counters::default() }
    }

    /// The directory in use, or why there is none.
    pub fn directory(&self) -> Result<&Path, &str> {
        self.disk.as_ref().map(Store::root).map_err(String::as_str)
    }

    /// What has been done so far.
    pub fn stats(&self) -> CacheStats {
        let Counters { memory_hits, disk_hits, compiles, failures, damaged, unsaved } = &self.counters;
        CacheStats {
            memory_hits: memory_hits.load(Relaxed),
            disk_hits: disk_hits.load(Relaxed),
            compiles: compiles.load(Relaxed),
            failures: failures.load(Relaxed),
            damaged: damaged.load(Relaxed),
            unsaved: unsaved.load(Relaxed),
            held: self.flights.len(),
        }
    }

    /// The key that [`Cache::compile`] looks a kernel up by.
    pub fn key(&self, source: &Source, target: &Target, options: &Options) -> Result<CacheKey, JitError> {
        Ok(Job::new(source, *target, options)?.key)
    }

    /// The binary of `source` for `target`.
    ///
    /// # Errors
    /// If NVRTC is not found, does not take the target or an option, or refuses the source.
    pub fn compile(&self, source: &Source, target: &Target, options: &Options) -> Result<Arc<Cubin>, JitError> {
        let job = Job::new(source, *target, options)?;
        self.obtain(&job.key, job.target, Disk::ReadAndWrite, || job.run())
    }

    /// Another binary for one that the driver refused to load.
    ///
    /// An image from disk may be stale in a way no checksum shows. This forgets it, compiles the kernel once more and keeps the
    /// result instead. `None` if `refused` was compiled by this very process: compiling again gives the same bytes, so the
    /// driver's word stands.
    ///
    /// # Errors
    /// As for [`Cache::compile`].
    pub fn replace(
        &self,
        refused: &Cubin,
        source: &Source,
        target: &Target,
        options: &Options,
    ) -> Result<Option<Arc<Cubin>>, JitError> {
        let job = Job::new(source, *target, options)?;
        self.replace_with(refused, &job.key, job.target, || job.run())
    }

    fn replace_with(
        &self,
        refused: &Cubin,
        key: &CacheKey,
        target: Target,
        run: impl FnOnce() -> Result<Cubin, JitError>,
    ) -> Result<Option<Arc<Cubin>>, JitError> {
        if refused.info.compile_ms.is_some() {
            return Ok(None);
        }
        tracing::warn!(%key, "a cached kernel was refused by the driver; it is compiled again");
        // If someone else has replaced it already, theirs is taken. The file goes first, or a third would read it back.
        self.flights.forget_if(key, |held| {
            let stale = held.bytes == refused.bytes;
            if let (true, Ok(store)) = (stale, &self.disk) {
                store.remove(key, target);
            }
            stale
        });
        self.obtain(key, target, Disk::Overwrite, run).map(Some)
    }

    fn obtain(
        &self,
        key: &CacheKey,
        target: Target,
        disk: Disk,
        run: impl FnOnce() -> Result<Cubin, JitError>,
    ) -> Result<Arc<Cubin>, JitError> {
        // Set if the work fell to this call, which then gets the value that tells so.
        let mut own = None;
        let shared = self.flights.get_or_try(key, || {
            let cubin = self.fetch(key, target, disk, run)?;
            let mut shared = cubin.clone();
            shared.info.origin = Origin::Memory;
            own = Some(Arc::new(cubin));
            Ok(Arc::new(shared))
        })?;
        Ok(own.unwrap_or_else(|| {
            self.counters.memory_hits.fetch_add(1, Relaxed);
            shared
        }))
    }

    fn fetch(
        &self,
        key: &CacheKey,
        target: Target,
        disk: Disk,
        run: impl FnOnce() -> Result<Cubin, JitError>,
    ) -> Result<Cubin, JitError> {
        if let Ok(store) = &self.disk {
            if disk == Disk::Overwrite {
                store.remove(key, target);
            } else {
                let (found, damaged) = store.read(key, target);
                self.counters.damaged.fetch_add(damaged.into(), Relaxed);
                if let Some(cubin) = found {
                    self.counters.disk_hits.fetch_add(1, Relaxed);
                    tracing::debug!(%key, %target, "kernel read from disk");
                    return Ok(cubin);
                }
            }
        }
        let cubin = run().inspect_err(|error| {
            self.counters.failures.fetch_add(1, Relaxed);
            tracing::debug!(%key, %target, %error, "kernel not compiled");
        })?;
        self.counters.compiles.fetch_add(1, Relaxed);
        tracing::debug!(%key, %target, ms = cubin.info.compile_ms, registers = cubin.info.registers, "kernel compiled");
        if let Ok(store) = &self.disk
            && !store.write(key, target, &cubin)
        {
            self.counters.unsaved.fetch_add(1, Relaxed);
        }
        // Whoever won the name on disk, these bytes are as good.
        Ok(cubin)
    }
}

/// Notes follow the kernels: in memory, and on disk where there is one.
#[cfg_attr(not(feature = "cuda"), allow(dead_code, reason = "only what runs kernels takes notes"))]
impl Cache {
    /// The note of a key.
    pub(crate) fn note(&self, key: &CacheKey) -> Option<Vec<u8>> {
        if let Some(note) = self.notes.lock().unwrap_or_else(PoisonError::into_inner).get(key) {
            return Some(note.clone());
        }
        let (note, damaged) = self.disk.as_ref().ok()?.read_note(key);
        self.counters.damaged.fetch_add(damaged.into(), Relaxed);
        let note = note?;
        self.notes.lock().unwrap_or_else(PoisonError::into_inner).insert(*key, note.clone());
        Some(note)
    }

    /// Keeps a note instead of an earlier one; whether it will be found by another process.
    pub(crate) fn keep_note(&self, key: &CacheKey, note: &[u8]) -> bool {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner).insert(*key, note.to_vec());
        self.disk.as_ref().is_ok_and(|store| store.write_note(key, note))
    }
}

impl std::fmt::Debug for Cache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cache").field("directory", &self.directory()).field("stats", &self.stats()).finish()
    }
}

/// What to do with the entry on disk.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Disk {
    ReadAndWrite,
    Overwrite,
}

/// A compilation, and the key made of all that it will use.
struct Job<'a> {
    nvrtc: &'static Nvrtc,
    source: &'a Source,
    target: Target,
    flags: Vec<String>,
    key: CacheKey,
}

impl<'a> Job<'a> {
    fn new(source: &'a Source, target: Target, options: &Options) -> Result<Self, JitError> {
        let nvrtc = locate::nvrtc()?;
        let flags = options.flags(target, &nvrtc.common)?;
        let key = CacheKey::new(&nvrtc.identity, target, &flags, source);
        Ok(Self { nvrtc, source, target, flags, key })
    }

    fn run(&self) -> Result<Cubin, JitError> {
        self.nvrtc.compile(&self.key, self.source, self.target, &self.flags)
    }
}

#[cfg(test)]
mod tests {
    use super::super::entry::tests::cubin;
    use super::*;
    use std::sync::Barrier;

    const SM: Target = Target::SM_90A;
    const KEY: CacheKey = CacheKey::for_test(9);

    fn obtain(cache: &Cache) -> Arc<Cubin> {
        cache.obtain(&KEY, SM, Disk::ReadAndWrite, || Ok(cubin(&KEY, b"image"))).unwrap()
    }

    fn refuse() -> Result<Cubin, JitError> {
        Err(JitError::InvalidSource { entry: "k".into(), why: "for this test" })
    }

    #[test]
    fn memory_then_disk_then_compiler() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().join("cache");
        let first = Cache::at(&root);
        let origins = [obtain(&first), obtain(&first)].map(|cubin| (cubin.info.origin, cubin.info.compile_ms.is_some()));
        assert_eq!(origins, [(Origin::Compiled, true), (Origin::Memory, true)]);
        let second = Cache::at(&root);
        let origins = [obtain(&second), obtain(&second)].map(|cubin| (cubin.info.origin, cubin.info.compile_ms.is_some()));
        assert_eq!(origins, [(Origin::Disk, false), (Origin::Memory, false)]);
        assert_eq!(first.stats(), CacheStats { compiles: 1, memory_hits: 1, held: 1, ..CacheStats::default() });
        assert_eq!(second.stats(), CacheStats { disk_hits: 1, memory_hits: 1, held: 1, ..CacheStats::default() });
        assert_eq!(second.directory(), Ok(root.as_path()));
    }

    #[test]
    fn a_failure_is_not_remembered() {
        let cache = Cache::in_memory();
        assert!(cache.obtain(&KEY, SM, Disk::ReadAndWrite, refuse).is_err());
        assert_eq!(obtain(&cache).info.origin, Origin::Compiled);
        assert_eq!(cache.stats(), CacheStats { compiles: 1, failures: 1, held: 1, ..CacheStats::default() });
    }

    #[test]
    fn notes_outlive_the_process_where_there_is_a_directory() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().join("cache");
        let key = CacheKey::of_note(&["about"]);
        let cache = Cache::at(&root);
        assert_eq!(cache.note(&key), None);
        assert!(cache.keep_note(&key, b"first") && cache.keep_note(&key, b"note"));
        assert_eq!(cache.note(&key).as_deref(), Some(&b"note"[..]));
        assert_eq!(Cache::at(&root).note(&key).as_deref(), Some(&b"note"[..]));
        let memory = Cache::in_memory();
        assert!(!memory.keep_note(&key, b"note"));
        assert_eq!(memory.note(&key).as_deref(), Some(&b"note"[..]));
    }

    #[test]
    fn no_directory_is_no_error() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("file");
        std::fs::write(&file, "").unwrap();
        let cache = Cache::at(&file);
        assert!(cache.directory().unwrap_err().contains("file: it cannot be created"), "{cache:?}");
        assert_eq!(obtain(&cache).info.origin, Origin::Compiled);
        assert_eq!(obtain(&cache).info.origin, Origin::Memory);
    }

    #[test]
    fn damaged_entries_are_compiled_again() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().join("cache");
        obtain(&Cache::at(&root));
        let path = Store::open(&root).unwrap().path(&KEY, SM);
        std::fs::write(&path, "damaged").unwrap();
        let cache = Cache::at(&root);
        assert_eq!(obtain(&cache).info.origin, Origin::Compiled);
        assert_eq!(cache.stats().damaged, 1);
        assert_eq!(obtain(&Cache::at(&root)).info.origin, Origin::Disk);
    }

    #[test]
    fn a_refused_kernel_is_replaced_once() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().join("cache");
        obtain(&Cache::at(&root));
        let cache = Cache::at(&root);
        let (stale, start) = (obtain(&cache), Barrier::new(4));
        let fresh = || Ok(cubin(&KEY, b"fresh"));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    start.wait();
                    let replaced = cache.replace_with(&stale, &KEY, SM, fresh).unwrap().unwrap();
                    assert_eq!(&*replaced.bytes, b"fresh");
                });
            }
        });
        assert_eq!(cache.stats().compiles, 1);
        assert_eq!(&*obtain(&Cache::at(&root)).bytes, b"fresh");
        let compiled_here = obtain(&cache);
        assert_eq!(cache.replace_with(&compiled_here, &KEY, SM, fresh).unwrap(), None);
    }
}
