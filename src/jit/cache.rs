//! The way from a source to its binary: memory, disk, compiler.

use super::build::Build;
use super::compiler::{Compile, TheNvrtc};
use super::config::Config;
use super::environment::{CACHE_MODE, COMPILE_LIMIT, Mode, ModeError};
use super::error::{Denied, JitError};
use super::fault::{CacheFault, Faults};
use super::flight::Flights;
use super::key::CacheKey;
use super::lock::{self, Turn};
use super::memo::Memos;
use super::options::Options;
use super::root;
use super::stats::{CacheStats, Counters, EVENTS, Level};
use super::store::Store;
use super::sweep;
use super::watch::{self, Pace};
use crate::source::{Cubin, Origin, Source};
use crate::target::Target;
use std::any::Any;
use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, LazyLock, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// Compiled kernels, in memory and, where possible, on disk.
///
/// A look-up goes to memory, then to the disk, then to NVRTC. If several threads ask for a kernel at the same time, one
/// of them fetches or compiles it. If several processes share a directory, one compiles while the others wait for its
/// file. A failed compilation is tried again at the next request.
///
/// A fault of the disk is never an error. A cache that cannot be read or written costs time. Each kind of fault is
/// reported once as a warning (an event of `tracing`), and [`Cache::directory`] says why there is no directory. The
/// cache's [`Mode`] says what it may do.
///
/// The key of a kernel contains the build of the compiler. A machine without NVRTC can still use a filled directory:
/// the directory records the compilers that filled it. A kernel of any of them will do, the newest first.
pub struct Cache {
    flights: Flights<CacheKey, Arc<Cubin>, Failure>,
    disk: Result<Store, String>,
    /// Counts for the disk alone.
    faults: Arc<Faults>,
    config: Config,
    /// The environment asked for a mode that does not exist.
    fault: Option<ModeError>,
    compiler: Arc<dyn Compile>,
    build: OnceLock<Build>,
    /// The compiler according to a note. It serves look-ups, and nothing else.
    recalled: OnceLock<Option<Build>>,
    /// The last search found no compiler.
    missing: AtomicBool,
    /// The compilers of the directory, as last read.
    known: Mutex<Arc<[Build]>>,
    /// Keys of kernels that the driver rejected and that were replaced by an older compiler's.
    refused: Mutex<HashSet<String>>,
    notes: Mutex<HashMap<CacheKey, Vec<u8>>>,
    memos: Memos,
    counters: Counters,
    pace: Pace,
}

/// Why a look-up failed.
#[derive(Clone, Debug)]
enum Failure {
    /// The kernel is missing, and was not to be compiled.
    Absent,
    Jit(JitError),
}

/// How to treat the entry on disk, and what to do without one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Disk {
    /// Read it, or compile.
    Read,
    /// Compile, and replace the entry.
    Overwrite,
    /// Read it, or give up.
    Only,
}

impl Cache {
    /// The cache of this process, in `$POSTLUDE_CACHE_DIR`, else `$XDG_CACHE_HOME/postlude`, else
    /// `$HOME/.cache/postlude`, else in memory. `$POSTLUDE_CACHE` is its [`Mode`]. The first call reads the
    /// environment.
    pub fn global() -> &'static Self {
        static GLOBAL: LazyLock<Cache> = LazyLock::new(Cache::of_this_environment);
        &GLOBAL
    }

    pub(super) fn of_this_environment() -> Self {
        Self::of_environment(|name| std::env::var_os(name))
    }

    fn of_environment(variable: impl Fn(&str) -> Option<std::ffi::OsString>) -> Self {
        let mode = variable(CACHE_MODE).filter(|value| !value.is_empty());
        let mode = match mode.map_or(Ok(Mode::default()), |value| value.to_string_lossy().parse()) {
            Ok(mode) => mode,
            Err(fault) => {
                return Self {
                    fault: Some(fault.clone()),
                    ..Self::with(Err(format!("{CACHE_MODE}: {fault}")), Config::default())
                };
            }
        };
        let limit = variable(COMPILE_LIMIT).filter(|value| !value.is_empty());
        let config = match limit.map(|value| value.to_string_lossy().trim().parse::<f64>()) {
            Some(Ok(0.0)) => Config::default().compile_limit(None),
            Some(Ok(seconds)) if seconds > 0.0 && seconds < 1e9 => {
                Config::default().compile_limit(Some(Duration::from_secs_f64(seconds)))
            }
            Some(_) => {
                tracing::warn!("{COMPILE_LIMIT} is not a number of seconds; the default limit holds");
                Config::default()
            }
            None => Config::default(),
        };
        let config = config.mode(mode);
        match root::default_root(variable) {
            Some(root) => Cache::open(root, config),
            None => {
                let why = format!("neither {}, XDG_CACHE_HOME nor HOME is set", root::CACHE_DIR);
                tracing::warn!("kernels are cached in memory only: {why}");
                Cache::with(Err(why), config)
            }
        }
    }

    /// A cache in memory alone.
    pub fn in_memory() -> Self {
        Self::with(Err("this cache was asked to use memory only".to_owned()), Config::default())
    }

    /// A cache in a directory of the caller's choice, created if need be.
    pub fn at(root: impl AsRef<Path>) -> Self {
        Self::open(root, Config::default())
    }

    /// A cache in a directory of the caller's choice, with the caller's configuration. The directory is created if it
    /// is to be written.
    pub fn open(root: impl AsRef<Path>, config: Config) -> Self {
        let root = root.as_ref();
        if config.mode == Mode::Off {
            return Self::with(Err(format!("the mode of this cache is `{}`", config.mode)), config);
        }
        let disk = Store::open(root, config.mode == Mode::ReadWrite).map_err(|why| {
            let why = format!("{}: {why}", root.display());
            tracing::warn!("kernels are cached in memory only: {why}");
            why
        });
        Self::with(disk, config)
    }

    fn with(disk: Result<Store, String>, config: Config) -> Self {
        Self {
            flights: Flights::new(),
            faults: disk.as_ref().map(Store::faults).unwrap_or_default(),
            disk,
            config,
            fault: None,
            compiler: Arc::new(TheNvrtc),
            build: OnceLock::new(),
            recalled: OnceLock::new(),
            missing: AtomicBool::new(false),
            known: Mutex::new([].into()),
            refused: Mutex::default(),
            notes: Mutex::default(),
            memos: Memos::default(),
            counters: Counters::default(),
            pace: Pace::default(),
        }
    }

    /// The same with another compiler.
    #[cfg(test)]
    pub(super) fn compiling_with(self, compiler: Arc<dyn Compile>) -> Self {
        Self { compiler, ..self }
    }

    /// The directory in use, or why there is none.
    pub fn directory(&self) -> Result<&Path, &str> {
        self.disk.as_ref().map(Store::root).map_err(String::as_str)
    }

    /// The directory as a store, or why there is none.
    pub(super) fn store(&self) -> Result<&Store, &str> {
        self.disk.as_ref().map_err(String::as_str)
    }

    /// Reports a fault that costs only time. The first of its kind is a warning.
    pub(crate) fn report(&self, fault: CacheFault, what: &dyn std::fmt::Display, why: &dyn std::fmt::Display) {
        self.faults.report(fault, what, why);
    }

    /// Whether the directory may be changed: its mode allows it, and the file system allowed it at the opening.
    pub fn writable(&self) -> bool {
        self.disk.as_ref().is_ok_and(Store::writable)
    }

    /// The rights of the cache.
    pub fn mode(&self) -> Mode {
        self.config.mode
    }

    /// The counts so far. Each answer is also an event of `tracing` with the target `postlude::cache`. So are these
    /// counts after a sweep and after [`precompile`](crate::gemm::precompile).
    pub fn stats(&self) -> CacheStats {
        let (bytes_read, bytes_written) = self.disk.as_ref().map_or((0, 0), Store::traffic);
        CacheStats { bytes_read, bytes_written, held: self.flights.len(), ..self.counters.read() }
    }

    /// Emits the counts so far, if there is a subscriber.
    pub(crate) fn tell(&self, when: &str) {
        if tracing::enabled!(target: EVENTS, tracing::Level::DEBUG) {
            self.stats().tell(when);
        }
    }

    /// The key that [`Cache::compile`] looks a kernel up by. Needs NVRTC.
    ///
    /// # Errors
    /// If NVRTC is not found, or an option is not one.
    pub fn key(&self, source: &Source, target: &Target, options: &Options) -> Result<CacheKey, JitError> {
        Ok(self.job(source, *target, options)?.key)
    }

    /// The binary of `source` for `target`.
    ///
    /// # Errors
    /// If NVRTC is not found, rejects the target, an option or the source; or if the kernel is missing and must not be
    /// compiled.
    pub fn compile(&self, source: &Source, target: &Target, options: &Options) -> Result<Arc<Cubin>, JitError> {
        if let Some(fault) = &self.fault {
            return Err(fault.clone().into());
        }
        let target = *target;
        if self.config.mode == Mode::Deny {
            return self.without_compiling(source, target, options);
        }
        // A search for a missing compiler takes long.
        let known_missing = self.missing.load(Relaxed);
        if known_missing && let Some(found) = self.without_compiler(source, target, options, &"it was looked for before")? {
            return Ok(found);
        }
        if let Some(found) = self.without_loading(source, target, options)? {
            return Ok(found);
        }
        let job = match self.job(source, target, options) {
            Err(JitError::NotFound(missing)) => {
                self.missing.store(true, Relaxed);
                // This call's knowledge, not what another call has found out since: the disk was not searched for this
                // kernel yet.
                let found = if known_missing { None } else { self.without_compiler(source, target, options, &missing)? };
                return found.ok_or(JitError::NotFound(missing));
            }
            other => other?,
        };
        self.missing.store(false, Relaxed);
        loop {
            match self.obtain(&job.key, target, Disk::Read, || self.run(&job)) {
                Ok(cubin) => return Ok(cubin),
                Err(Failure::Jit(error)) => return Err(error),
                // Another thread, which had no compiler yet, searched for the same kernel at the same time.
                Err(Failure::Absent) => {}
            }
        }
    }

    /// Compiles, unless the estimate exceeds the limit, and reports progress to the watcher.
    fn run(&self, job: &Job<'_>) -> Result<Cubin, JitError> {
        let Job { source, target, flags, key } = job;
        watch::within(self.config.compile_limit, &self.pace, source, *target)?;
        watch::watched(&self.config.watcher, &self.pace, source, *target, |cancel| {
            self.compiler.compile(key, source, *target, flags, cancel)
        })
    }

    fn obtain(
        &self,
        key: &CacheKey,
        target: Target,
        disk: Disk,
        run: impl FnOnce() -> Result<Cubin, JitError>,
    ) -> Result<Arc<Cubin>, Failure> {
        // Set if this call does the work. Its value tells so.
        let mut own = None;
        let shared = self.flights.get_or_try(key, || {
            let cubin = self.fetch(key, target, disk, run)?;
            let mut shared = cubin.clone();
            shared.info.origin = Origin::Memory;
            own = Some(Arc::new(cubin));
            Ok(Arc::new(shared))
        })?;
        Ok(own.unwrap_or_else(|| {
            self.counters.remembered(key, || shared.bytes.len());
            shared
        }))
    }

    fn fetch(
        &self,
        key: &CacheKey,
        target: Target,
        disk: Disk,
        run: impl FnOnce() -> Result<Cubin, JitError>,
    ) -> Result<Cubin, Failure> {
        let (store, start) = (self.disk.as_ref().ok(), Instant::now());
        let look = |level| self.look(store?, key, target, level, start);
        if disk == Disk::Overwrite {
            store.inspect(|store| store.remove(key, target));
        } else if let Some(cubin) = look(Level::Disk) {
            return Ok(cubin);
        }
        if disk == Disk::Only {
            return Err(Failure::Absent);
        }
        self.counters.missed(key);
        let turn = match store {
            Some(store) if disk == Disk::Read => lock::turn(store, key, self.config.patience, || look(Level::Awaited)),
            _ => Turn::Ours(None),
        };
        let _held = match turn {
            Turn::Done(cubin) => return Ok(cubin),
            Turn::Ours(held) => held,
        };
        let cubin = run().map_err(|error| {
            Counters::add(&self.counters.failures, 1);
            tracing::debug!(%key, %target, %error, "kernel not compiled");
            Failure::Jit(error)
        })?;
        self.counters.answered(Level::Compiled, key, &cubin, cubin.info.compile_ms.unwrap_or_default().into());
        if cubin.info.registers == 0 {
            self.report(CacheFault::Unmeasured, key, &format_args!("from {}", cubin.info.compiler));
        }
        if let Some(store) = store {
            self.save(store, key, target, &cubin);
        }
        // Another process may have won the name on disk. These bytes are equally good.
        Ok(cubin)
    }

    /// The kernel, if it is on disk and sound.
    fn look(&self, store: &Store, key: &CacheKey, target: Target, level: Level, start: Instant) -> Option<Cubin> {
        let (found, damaged) = store.read(key, target);
        Counters::add(&self.counters.damaged, damaged.into());
        found.inspect(|cubin| self.counters.answered(level, key, cubin, start.elapsed().as_secs_f64() * 1e3))
    }

    fn save(&self, store: &Store, key: &CacheKey, target: Target, cubin: &Cubin) {
        let saved = store.write(key, target, cubin);
        Counters::add(&self.counters.unsaved, (!saved && self.config.mode == Mode::ReadWrite).into());
        if sweep::if_due(store, self.config.limits).is_some() {
            self.tell("sweep");
        }
    }

    fn job<'a>(&self, source: &'a Source, target: Target, options: &Options) -> Result<Job<'a>, JitError> {
        let build = match self.build.get() {
            Some(build) => build,
            None => {
                let build = self.compiler.build()?;
                self.get_to_know(&build);
                self.build.get_or_init(|| build)
            }
        };
        let flags = options.flags(target, &build.common)?;
        let key = CacheKey::new(&build.identity, target, &flags, source);
        Ok(Job { source, target, flags, key })
    }
}

/// Notes are stored like kernels: in memory, and on disk if there is a directory.
#[cfg_attr(not(feature = "cuda"), allow(dead_code, reason = "only what runs kernels takes notes"))]
impl Cache {
    /// The note of a key.
    pub(crate) fn note(&self, key: &CacheKey) -> Option<Vec<u8>> {
        if let Some(note) = self.notes.lock().unwrap_or_else(PoisonError::into_inner).get(key) {
            return Some(note.clone());
        }
        let (note, damaged) = self.disk.as_ref().ok()?.read_note(key);
        Counters::add(&self.counters.damaged, damaged.into());
        let note = note?;
        self.notes.lock().unwrap_or_else(PoisonError::into_inner).insert(*key, note.clone());
        Some(note)
    }

    /// Stores a note in place of an earlier one. Returns whether another process will find it.
    pub(crate) fn keep_note(&self, key: &CacheKey, note: &[u8]) -> bool {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner).insert(*key, note.to_vec());
        self.memos.forget_all();
        self.disk.as_ref().is_ok_and(|store| store.write_note(key, note))
    }
}

/// Memos: the results of earlier requests, in memory only.
impl Cache {
    /// The value under a key, and the size of its binary in bytes. The caller guarantees that the key covers everything
    /// that matters.
    pub(crate) fn memo<T: Any + Send + Sync>(&self, key: &CacheKey, bytes: impl Fn(&T) -> usize) -> Option<Arc<T>> {
        let found: Arc<T> = self.memos.get(key)?;
        self.counters.remembered(key, || bytes(&found));
        Some(found)
    }

    pub(crate) fn keep_memo<T: Any + Send + Sync>(&self, key: CacheKey, memo: Arc<T>) {
        self.memos.keep(key, memo);
    }
}

impl std::fmt::Debug for Cache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("Cache");
        shown.field("mode", &self.config.mode).field("directory", &self.directory()).field("stats", &self.stats()).finish()
    }
}

/// A compilation, and the key of all its inputs.
struct Job<'a> {
    source: &'a Source,
    target: Target,
    flags: Vec<String>,
    key: CacheKey,
}

mod other;
#[cfg(test)]
mod tests;
