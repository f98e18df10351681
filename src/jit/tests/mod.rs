//! The cache against a hostile world, with a stand-in for the compiler: nothing wrong is ever loaded, and nothing panics.

mod bundles;
mod children;
mod disk;
pub(crate) mod events;
mod faults;
mod levels;
#[cfg(target_os = "linux")]
mod libraries;
mod modes;
mod processes;
mod reader;
#[cfg(target_os = "linux")]
mod recalled;
mod spills;
mod trust;
mod watch;

use self::events::{heard, warnings};
use super::build::Build;
use super::compiler::Compile;
use super::error::{JitError, NotFound};
use super::key::CacheKey;
use super::library::{self, Stamp, Traced};
use super::locate;
use super::{Cache, Options, Source, Target};
use crate::source::{Cubin, KernelInfo, Origin};
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Barrier};
use std::time::Duration;

const SM: Target = Target::SM_90A;

/// Compiles a key into bytes that follow from it, so that a wrong binary is seen.
#[derive(Default)]
struct StandIn {
    identity: &'static str,
    absent: AtomicBool,
    /// The number of requests for its identity, and of compilations.
    asked: AtomicU64,
    compiled: AtomicU64,
    /// How long a compilation sleeps, and how long it works.
    takes: Duration,
    works: Duration,
    /// A search for it waits for so many other searches.
    together: Option<Barrier>,
    /// Its file. With one, its identity can be remembered.
    library: Option<PathBuf>,
    /// A file that grows by one byte a compilation, in any process.
    tally: Option<PathBuf>,
}

/// The size of a binary, in bytes.
const SIZE: usize = 40_000;

fn image(key: &str) -> Vec<u8> {
    let mut bytes = vec![0; SIZE];
    blake3::Hasher::new().update(key.as_bytes()).finalize_xof().fill(&mut bytes);
    bytes
}

fn right(cubin: &Cubin) -> bool {
    *cubin.bytes == *image(&cubin.info.key)
}

fn made(key: &CacheKey, entry: &str, target: Target, compiler: &str) -> Cubin {
    let info = KernelInfo {
        entry: entry.into(),
        target,
        key: key.to_string(),
        compiler: compiler.into(),
        registers: 40,
        spill_store_bytes: 0,
        spill_load_bytes: 0,
        stack_bytes: 0,
        static_shared_bytes: 0,
        warnings: Vec::new(),
        compile_ms: Some(1.5),
        origin: Origin::Compiled,
    };
    Cubin::new(image(&info.key), info)
}

impl Compile for StandIn {
    fn build(&self) -> Result<Build, JitError> {
        self.asked.fetch_add(1, SeqCst);
        if let Some(together) = &self.together {
            together.wait();
        }
        if self.absent.load(SeqCst) {
            return Err(NotFound::new(Vec::new()).into());
        }
        Ok(Build { identity: self.identity.into(), common: vec![format!("--for-{}", self.identity.len())] })
    }

    fn way(&self) -> Option<CacheKey> {
        self.library.as_ref().map(|file| library::way(&[file.display().to_string()]))
    }

    fn traced(&self) -> Option<Traced> {
        Some(Traced { way: self.way()?, stamp: Stamp::of(self.library.as_ref()?)? })
    }

    fn compile(&self, key: &CacheKey, source: &Source, target: Target, _: &[String], _: &AtomicBool) -> Result<Cubin, JitError> {
        self.compiled.fetch_add(1, SeqCst);
        if let Some(tally) = &self.tally {
            File::options().create(true).append(true).open(tally).unwrap().write_all(b"+").unwrap();
        }
        std::thread::sleep(self.takes);
        // By the clock that the pace is learned from, so that a busy machine makes no difference.
        let start = crate::jit::watch::worked();
        while crate::jit::watch::worked().saturating_sub(start) < self.works {
            std::hint::spin_loop();
        }
        match source.text() {
            "wrong" => Err(JitError::InvalidSource { entry: source.entry().into(), why: "for this test" }),
            text => {
                let mut cubin = made(key, source.entry(), target, self.identity);
                if text.starts_with("unmeasured") {
                    cubin.info.registers = 0;
                }
                Ok(cubin)
            }
        }
    }
}

fn compiler(identity: &'static str) -> Arc<StandIn> {
    Arc::new(StandIn { identity, ..StandIn::default() })
}

fn absent() -> Arc<StandIn> {
    Arc::new(StandIn { absent: true.into(), ..StandIn::default() })
}

fn compile(cache: &Cache, text: &str) -> Result<Arc<Cubin>, JitError> {
    cache.compile(&Source::new(text, "k"), &SM, &Options::new()).inspect(|cubin| assert!(right(cubin), "{:?}", cubin.info))
}

/// The place of a kernel.
fn origin(cache: &Cache, text: &str) -> Origin {
    compile(cache, text).unwrap().info.origin
}

/// Every file with this ending below a folder.
fn files(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut found: Vec<_> = entries.flat_map(|path| if path.is_dir() { files(&path, ending) } else { vec![path] }).collect();
    found.retain(|path| path.to_string_lossy().ends_with(ending));
    found.sort();
    found
}
