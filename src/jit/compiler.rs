//! The compiler: NVRTC, or a stand-in in tests of the cache.

use super::error::JitError;
use super::key::CacheKey;
use super::library::Traced;
use super::locate;
use crate::source::{Cubin, Source};
use crate::target::Target;
use serde::{Deserialize, Serialize};
use std::sync::atomic::AtomicBool;

/// The interface that the cache needs of a compiler.
pub(super) trait Compile: Send + Sync {
    /// The identity of the compiler. Finding it may take long.
    fn build(&self) -> Result<Build, JitError>;

    /// The search by which [`build`](Self::build) would find it. `None` if that is unknown, or if the compiler is
    /// already found and asking is fast.
    fn way(&self) -> Option<CacheKey> {
        None
    }

    /// The search by which it was found, and its file, if that is certain.
    fn traced(&self) -> Option<Traced> {
        None
    }

    /// A binary of `source`. `key` is the kernel's key, and `flags` are all options. Once `cancel` is true the compiler
    /// may give up.
    fn compile(
        &self,
        key: &CacheKey,
        source: &Source,
        target: Target,
        flags: &[String],
        cancel: &AtomicBool,
    ) -> Result<Cubin, JitError>;
}

/// The compiler's part of a key. It is stored beside the kernels, so that a machine without a compiler knows which keys
/// to look for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Build {
    /// Version and build.
    pub identity: String,
    /// The options of every compilation.
    pub common: Vec<String>,
}

impl Build {
    /// The numbers in the identity, major version first. The newer of two builds has the larger ones.
    pub fn age(&self) -> Vec<u64> {
        let numbers = self.identity.split(|c: char| !c.is_ascii_digit()).filter(|digits| !digits.is_empty());
        numbers.map(|digits| digits.parse().unwrap_or(u64::MAX)).collect()
    }
}

/// The NVRTC of this process.
pub(super) struct TheNvrtc;

impl Compile for TheNvrtc {
    fn build(&self) -> Result<Build, JitError> {
        let nvrtc = locate::nvrtc()?;
        Ok(Build { identity: nvrtc.identity.clone(), common: nvrtc.common.clone() })
    }

    fn way(&self) -> Option<CacheKey> {
        locate::way()
    }

    fn traced(&self) -> Option<Traced> {
        locate::nvrtc().ok()?.traced.clone()
    }

    fn compile(
        &self,
        key: &CacheKey,
        source: &Source,
        target: Target,
        flags: &[String],
        cancel: &AtomicBool,
    ) -> Result<Cubin, JitError> {
        locate::nvrtc()?.compile(key, source, target, flags, cancel)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newer_builds_are_larger() {
        let build = |identity: &str| Build { identity: identity.into(), common: Vec::new() };
        let sorted = ["", "NVRTC 9.9", "NVRTC 12.9 V12.9.86 CL-9", "NVRTC 13.0 V13.0.48 CL-8", "NVRTC 13.0 V13.0.88 CL-1"];
        assert!(sorted.windows(2).all(|pair| build(pair[0]).age() < build(pair[1]).age()));
        assert_eq!(build(&"9".repeat(90)).age(), [u64::MAX]);
    }
}
