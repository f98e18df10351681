//! The compiler: NVRTC, or a stand-in in tests of the cache.

use super::build::Build;
use super::error::JitError;
use super::key::CacheKey;
use super::library::Traced;
use super::locate;
use crate::source::{Cubin, Source};
use crate::target::Target;
use std::path::PathBuf;
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

/// The NVRTC that compiles the kernels of this process.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Compiler {
    /// Version and build, as in `NVRTC 13.0 V13.0.88 CL-36424714`; part of every [`CacheKey`].
    pub identity: String,
    /// The file of the library, if it is known.
    pub file: Option<PathBuf>,
    /// The architectures it compiles for, as the numbers in their names; empty if it does not report them.
    pub architectures: Vec<u32>,
}

/// Finds NVRTC, or reports the searched places. After a success this costs nothing. After a failure the next call
/// searches again.
///
/// # Errors
/// If no place has a working NVRTC.
pub fn compiler() -> Result<Compiler, JitError> {
    let nvrtc = locate::nvrtc()?;
    Ok(Compiler { identity: nvrtc.identity.clone(), file: nvrtc.file.clone(), architectures: nvrtc.architectures.to_vec() })
}
