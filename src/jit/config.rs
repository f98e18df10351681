//! The configuration of a cache: its rights, and the size limits of its directory.

use super::environment::Mode;
use super::watch::{Progress, Watcher};
use std::ops::ControlFlow;
use std::time::Duration;

/// Size limits of a directory. They are soft: a process that has just written compares once an hour, and then removes
/// the least recently used files until 70 % are left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of all files together.
    pub bytes: u64,
    /// The number of files.
    pub files: u64,
}

impl Default for Limits {
    /// 512 MiB in 32,768 files.
    fn default() -> Limits {
        Limits { bytes: 512 << 20, files: 32_768 }
    }
}

/// The configuration of a cache. The default suits most programs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    pub(super) mode: Mode,
    pub(super) limits: Limits,
    pub(super) patience: Duration,
    pub(super) compile_limit: Option<Duration>,
    pub(super) watcher: Watcher,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            mode: Mode::ReadWrite,
            limits: Limits::default(),
            patience: Duration::from_secs(30),
            compile_limit: Some(Duration::from_secs(30)),
            watcher: Watcher::default(),
        }
    }
}

impl Config {
    /// The default.
    pub fn new() -> Config {
        Config::default()
    }

    /// Sets the cache's rights.
    #[must_use]
    pub fn mode(self, mode: Mode) -> Config {
        Config { mode, ..self }
    }

    /// Sets the size limits of the directory.
    #[must_use]
    pub fn limits(self, limits: Limits) -> Config {
        Config { limits, ..self }
    }

    /// Sets how long to wait while another process compiles the same kernel, before compiling it too; 30 seconds by
    /// default. With zero no lock is taken. Locks save work and decide nothing: results are right without them.
    #[must_use]
    pub fn patience(self, time: Duration) -> Config {
        Config { patience: time, ..self }
    }

    /// Sets the longest estimated compile time, 30 seconds by default; `None` for no limit. A kernel with a longer
    /// estimate is rejected as [`JitError::TooLong`](super::JitError::TooLong), and nothing is compiled. The estimate
    /// follows from the plan, and from the speed of this cache's last compilations.
    #[must_use]
    pub fn compile_limit(self, limit: Option<Duration>) -> Config {
        Config { compile_limit: limit, ..self }
    }

    /// Sets a closure that receives the progress of each compilation, at its start and ten times a second, on a thread
    /// of its own. `Break` cancels the compilation: it ends as [`JitError::Cancelled`](super::JitError::Cancelled), for
    /// every thread that waits for the same kernel. NVRTC asks between its phases, which may take seconds each. Before
    /// 13.0 it cannot be interrupted, and ends as if it had not been cancelled.
    ///
    /// ```no_run
    /// use postlude::jit::{Cache, Config};
    /// use std::ops::ControlFlow;
    ///
    /// let config = Config::new().watch(|progress| {
    ///     if let Some(fraction) = progress.fraction() {
    ///         eprintln!("{} {:.0} %", progress.target, fraction * 100.0);
    ///     }
    ///     ControlFlow::Continue(())
    /// });
    /// let cache = Cache::open("/var/cache/my-service", config);
    /// ```
    #[must_use]
    pub fn watch(self, tell: impl Fn(&Progress) -> ControlFlow<()> + Send + Sync + 'static) -> Config {
        Config { watcher: Watcher::new(tell), ..self }
    }
}
