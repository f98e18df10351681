//! From a source text to a binary: finding NVRTC, compiling, caching.
//!
//! ```text
//! Source, Target, Options --> CacheKey --> memory --> disk --> NVRTC --> Cubin
//! ```
//!
//! The module sees a text, a target and options, and nothing else, so nothing else can influence a kernel; the [`CacheKey`] is a
//! hash of exactly these and of the build of the compiler. It knows neither graphs nor devices: compiling needs no GPU and no
//! driver.
//!
//! - [`Cache::compile`] is the way in. It answers from memory, from one verified file a kernel on disk, or from NVRTC, and lets no two
//!   threads compile the same kernel. [`KernelInfo`] tells what came out: registers, spills, warnings, and where it came from.
//! - NVRTC is looked for in all the places where pip, conda and the toolkit put it; [`NotFound`] lists them. [`compiler`] says which
//!   one was found.
//! - A source that does not compile comes back as [`CompileFailure`], each message with the node of the graph it is about.
//!
//! What the machine lacks costs speed, not correctness: no home directory, a full or read-only disk, a damaged entry, a lost race
//! are all met with a compilation, and a `tracing` event that is a warning once for each kind.
//! Where each kernel came from is an event too, see [`Cache::stats`].
//!
//! ```no_run
//! use postlude::jit::{Cache, Options, Source, Target};
//!
//! let source = Source::new(r#"extern "C" __global__ void twice(float* x) { x[threadIdx.x] *= 2; }"#, "twice");
//! let cubin = Cache::global().compile(&source, &Target::SM_90A, &Options::new())?;
//! println!("{} registers, from {}", cubin.info.registers, cubin.info.origin);
//! # Ok::<(), postlude::jit::JitError>(())
//! ```
//!
//! # Environment
//!
//! | variable | meaning |
//! | --- | --- |
//! | `POSTLUDE_NVRTC_PATH` | the NVRTC to use: its file or directory; nothing else is tried then |
//! | `POSTLUDE_CACHE_DIR` | the cache directory of [`Cache::global`] |
//! | `POSTLUDE_CACHE` | its [`Mode`]: `rw`, `ro`, `off` or `deny` |
//! | `POSTLUDE_COMPILE_LIMIT` | the most seconds that a compilation of it may be estimated to take, 30 by default; 0 for any |

mod admin;
mod bundle;
mod cache;
mod compiler;
mod config;
#[cfg(target_os = "linux")]
mod elf;
mod entry;
mod envelope;
mod error;
mod fault;
mod flight;
mod folder;
mod generations;
mod key;
mod kind;
mod library;
mod locate;
mod lock;
mod log;
mod memo;
mod note;
// Elsewhere nothing opens a library yet.
#[cfg_attr(not(target_os = "linux"), allow(dead_code))]
mod nvrtc;
mod options;
mod root;
mod stats;
mod store;
mod sweep;
#[cfg(all(test, unix))]
pub(crate) mod tests;
mod watch;

pub use self::admin::{CachedFile, Holds, Unsound};
pub use self::bundle::{BundleError, Bundled};
pub use self::cache::Cache;
pub use self::config::{CACHE_MODE, Config, Limits, Mode, ModeError};
pub use self::error::{Asked, CompileFailure, Denied, JitError, NotFound, TooLong, Tried};
#[cfg_attr(not(feature = "cuda"), allow(unused_imports, reason = "only what runs kernels is tuned"))]
pub(crate) use self::fault::CacheFault;
pub use self::key::CacheKey;
pub use self::locate::NVRTC_PATH;
pub use self::log::{CompilerMessage, Severity};
#[cfg(feature = "cuda")]
pub(crate) use self::memo::Memos;
pub use self::options::Options;
pub use self::root::CACHE_DIR;
pub use self::stats::CacheStats;
pub use self::sweep::Swept;
pub use self::watch::{COMPILE_LIMIT, Progress};
pub use crate::source::{Cubin, KernelInfo, Origin, PERFORMANCE_WARNINGS, Source};
pub use crate::target::Target;

use std::path::PathBuf;

/// The NVRTC that compiles the kernels of this process.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Compiler {
    /// Version and build, as in `NVRTC 13.0 V13.0.88 CL-36424714`; part of every [`CacheKey`].
    pub identity: String,
    /// The file of the library, where it is known.
    pub file: Option<PathBuf>,
    /// The architectures it compiles for, as the numbers in their names; empty if it does not tell.
    pub architectures: Vec<u32>,
}

/// Finds NVRTC, or says where it was looked for. After a success this costs nothing; after a failure the next call looks again.
///
/// # Errors
/// If no place has an NVRTC that works.
pub fn compiler() -> Result<Compiler, JitError> {
    let nvrtc = locate::nvrtc()?;
    Ok(Compiler { identity: nvrtc.identity.clone(), file: nvrtc.file.clone(), architectures: nvrtc.architectures.to_vec() })
}
