//! What a cache may do, and how large its directory may grow.

use super::watch::{Progress, Watcher};
use std::fmt;
use std::ops::ControlFlow;
use std::str::FromStr;
use std::time::Duration;

/// The environment variable with the [`Mode`] of [`Cache::global`](super::Cache::global).
pub const CACHE_MODE: &str = "POSTLUDE_CACHE";

/// What a cache may do. Whatever the mode, a kernel that the process has is not fetched again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mode {
    /// `rw`: reads the directory, compiles what is not there, and keeps it there.
    #[default]
    ReadWrite,
    /// `ro`: reads the directory and compiles what is not there; changes nothing on disk, not even time stamps.
    ReadOnly,
    /// `off`: uses no directory.
    Off,
    /// `deny`: reads the directory and never compiles; NVRTC is not even looked for. What is not there is
    /// [`JitError::Denied`](super::JitError::Denied). For machines that are to run what was compiled, and tested, elsewhere.
    Deny,
}

impl Mode {
    const ALL: [(&'static str, Mode); 4] =
        [("rw", Mode::ReadWrite), ("ro", Mode::ReadOnly), ("off", Mode::Off), ("deny", Mode::Deny)];
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(Self::ALL.iter().find(|(_, mode)| mode == self).map_or("", |(name, _)| name))
    }
}

/// A text that names no [`Mode`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no mode of the kernel cache; use `rw`, `ro`, `off` or `deny`")]
pub struct ModeError(String);

impl FromStr for Mode {
    type Err = ModeError;
    fn from_str(text: &str) -> Result<Mode, ModeError> {
        let found = Self::ALL.iter().find(|(name, _)| *name == text);
        found.map(|(_, mode)| *mode).ok_or_else(|| ModeError(text.chars().take(40).collect()))
    }
}

/// How large a directory may grow. Soft: it is compared once an hour, by whoever has just written, and then the files that were
/// used least recently go until 70 % are left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of all files together.
    pub bytes: u64,
    /// How many files.
    pub files: u64,
}

impl Default for Limits {
    /// 512 MiB in 32,768 files.
    fn default() -> Limits {
        Limits { bytes: 512 << 20, files: 32_768 }
    }
}

/// How a cache is used. The default is right for most programs.
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

    /// What the cache may do.
    #[must_use]
    pub fn mode(self, mode: Mode) -> Config {
        Config { mode, ..self }
    }

    /// How large the directory may grow.
    #[must_use]
    pub fn limits(self, limits: Limits) -> Config {
        Config { limits, ..self }
    }

    /// How long to wait while another process compiles the same kernel, before compiling it too; 30 seconds by default. With zero
    /// no lock is taken. Locks save work and decide nothing: results are right without.
    #[must_use]
    pub fn patience(self, time: Duration) -> Config {
        Config { patience: time, ..self }
    }

    /// The most time that a compilation may be estimated to take, 30 seconds by default; `None` for any. A kernel that is estimated
    /// to take longer is refused as [`JitError::TooLong`](super::JitError::TooLong), and nothing is compiled. The estimate follows
    /// from the plan, and from how fast this cache's last compilations were.
    #[must_use]
    pub fn compile_limit(self, limit: Option<Duration>) -> Config {
        Config { compile_limit: limit, ..self }
    }

    /// A closure that is told how far each compilation is, at its start and ten times a second, from a thread of its own. `Break` calls
    /// the compilation off: it ends as [`JitError::Cancelled`](super::JitError::Cancelled), for everyone who waits for the same kernel.
    /// NVRTC asks between its phases, which may take seconds each; before 13.0 it cannot be interrupted, and ends as if nobody had
    /// called it off.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_have_names() {
        for (name, mode) in Mode::ALL {
            assert_eq!((mode.to_string().as_str(), name.parse()), (name, Ok(mode)));
        }
        for wrong in ["", "RW", "denny", " rw"] {
            let error = wrong.parse::<Mode>().unwrap_err().to_string();
            assert!(error.starts_with(&format!("`{wrong}`")) && error.contains("`deny`"), "{error}");
        }
        assert!("x".repeat(1 << 20).parse::<Mode>().unwrap_err().to_string().len() < 200);
    }
}
