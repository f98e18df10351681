//! What the environment says of the process-wide cache, and the rights of a cache.

use std::fmt;
use std::str::FromStr;

/// The environment variable with the longest estimated compile time of [`Cache::global`](super::Cache::global), in
/// seconds; 0 for no limit.
pub const COMPILE_LIMIT: &str = "POSTLUDE_COMPILE_LIMIT";

/// The environment variable with the [`Mode`] of [`Cache::global`](super::Cache::global).
pub const CACHE_MODE: &str = "POSTLUDE_CACHE";

/// The rights of a cache. In every mode a kernel in memory is not fetched again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mode {
    /// `rw`: reads the directory, compiles missing kernels, and stores them there.
    #[default]
    ReadWrite,
    /// `ro`: reads the directory and compiles missing kernels; changes nothing on disk, not even time stamps.
    ReadOnly,
    /// `off`: uses no directory.
    Off,
    /// `deny`: reads the directory and never compiles; NVRTC is not searched for. A missing kernel is
    /// [`JitError::Denied`](super::JitError::Denied). For machines that run kernels which were compiled and tested
    /// elsewhere.
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

/// A text that does not name a [`Mode`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a mode of the kernel cache; use `rw`, `ro`, `off` or `deny`")]
pub struct ModeError(String);

impl FromStr for Mode {
    type Err = ModeError;
    fn from_str(text: &str) -> Result<Mode, ModeError> {
        let found = Self::ALL.iter().find(|(name, _)| *name == text);
        found.map(|(_, mode)| *mode).ok_or_else(|| ModeError(text.chars().take(40).collect()))
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
