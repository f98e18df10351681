//! From a source text to a binary: the search for NVRTC, the compiler, the cache.
//!
//! ```text
//! Source, Target, Options --> CacheKey --> memory --> disk --> NVRTC --> Cubin
//! ```
//!
//! The module sees only a text, a target and options, so nothing else can influence a kernel. The [`CacheKey`] is a
//! hash of these and of the compiler's build. The module does not know graphs or devices: compiling needs no GPU and no
//! driver.
//!
//! - [`Cache::compile`] is the entry point. It answers from memory, from one verified file a kernel on disk, or from
//!   NVRTC. No two threads compile the same kernel. [`KernelInfo`] describes the result: registers, spills, warnings,
//!   and its origin.
//! - NVRTC is searched for in all places where pip, conda and the toolkit put it; [`NotFound`] lists them. [`compiler`]
//!   reports the one that was found.
//! - A source that does not compile is a [`CompileFailure`]. Each message names the node of the graph that it is about.
//!
//! A missing part of the machine costs speed, not correctness. No home directory, a full or read-only disk, a damaged
//! entry, a lost race: each costs a compilation, and is a `tracing` warning once for each kind. The origin of each
//! kernel is an event too, see [`Cache::stats`].
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
//! | `POSTLUDE_NVRTC_PATH` | the NVRTC to use: its file or directory; the search visits nothing else |
//! | `POSTLUDE_CACHE_DIR` | the cache directory of [`Cache::global`] |
//! | `POSTLUDE_CACHE` | its [`Mode`]: `rw`, `ro`, `off` or `deny` |
//! | `POSTLUDE_COMPILE_LIMIT` | its longest estimated compile time in seconds, 30 by default; 0 for no limit |

mod admin;
mod build;
mod bundle;
mod cache;
mod compiler;
mod config;
#[cfg(target_os = "linux")]
mod elf;
mod entry;
mod envelope;
mod environment;
mod error;
mod fault;
mod flight;
mod folder;
mod generations;
mod key;
mod kind;
mod layout;
mod library;
mod locate;
mod lock;
mod log;
mod memo;
mod note;
// On other systems no library is opened yet.
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

pub use self::admin::{CachedFile, Unsound};
pub use self::bundle::{BundleError, Bundled};
pub use self::cache::Cache;
pub use self::compiler::{Compiler, compiler};
pub use self::config::{Config, Limits};
pub use self::environment::{CACHE_MODE, COMPILE_LIMIT, Mode, ModeError};
pub use self::error::{Asked, CompileFailure, Denied, JitError, NotFound, TooLong, Tried};
#[cfg_attr(not(feature = "cuda"), allow(unused_imports, reason = "only what runs kernels is tuned"))]
pub(crate) use self::fault::CacheFault;
pub use self::key::CacheKey;
pub use self::kind::Holds;
pub use self::locate::{NVRTC_PATH, search_environment};
pub use self::log::{CompilerMessage, Severity};
#[cfg(feature = "cuda")]
pub(crate) use self::memo::Memos;
pub use self::options::Options;
pub use self::root::CACHE_DIR;
pub use self::stats::CacheStats;
pub use self::sweep::Swept;
pub use self::watch::Progress;
pub use crate::source::{Cubin, KernelInfo, Origin, PERFORMANCE_WARNINGS, Source};
pub use crate::target::Target;
