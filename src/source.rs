//! The two ends of a compilation: [`Source`] goes in, [`Cubin`] comes out. Both are plain data; the `jit` module
//! converts one into the other.

use crate::target::Target;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The beginning of a line marker's file name. The number of a step of the plan's program follows.
pub const STEP_MARKER: &str = "postlude:%";

/// A kernel as CUDA C++ text.
///
/// Everything that influences a kernel is in the source, the target or the options: the text includes no header and
/// reads no environment. Therefore the text itself is a sound cache key.
///
/// A line marker `#line 7 "postlude:%9"` says that the following lines belong to step 9 of the plan's program. A
/// compiler message reports that number.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Source {
    text: String,
    entry: String,
    /// The estimate does not belong to the text, so it does not enter a key.
    #[serde(skip)]
    expected: Option<Duration>,
}

impl Source {
    /// A source text and the name of the `extern "C" __global__` function in it.
    pub fn new(text: impl Into<String>, entry: impl Into<String>) -> Self {
        Self { text: text.into(), entry: entry.into(), expected: None }
    }

    /// The same source with its estimated compile time, on the machine to which such estimates are fitted.
    #[must_use]
    pub fn expecting(self, time: Duration) -> Self {
        Self { expected: Some(time), ..self }
    }

    /// The estimated compile time, if it is known.
    pub fn expected(&self) -> Option<Duration> {
        self.expected
    }

    /// The CUDA C++ text, one self-contained translation unit.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The name of the kernel.
    pub fn entry(&self) -> &str {
        &self.entry
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Where a [`Cubin`] came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// NVRTC compiled it for this call.
    Compiled,
    /// It was read from the cache directory.
    Disk,
    /// This process already had it.
    Memory,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Compiled => "compiled",
            Self::Disk => "disk",
            Self::Memory => "memory",
        })
    }
}

/// Facts about a compiled kernel besides its code.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct KernelInfo {
    /// The name of the kernel, for looking it up in the loaded module.
    pub entry: String,
    /// The target it was compiled for.
    pub target: Target,
    /// The key it is cached under, 64 hexadecimal digits; equal keys mean equal kernels.
    pub key: String,
    /// The compiler, down to its build.
    pub compiler: String,
    /// Registers a thread uses. Zero means that the compiler did not report them: a kernel uses at least one.
    pub registers: u32,
    /// Bytes a thread writes to local memory because registers ran out, called functions included.
    pub spill_store_bytes: u32,
    /// Bytes a thread reads back from local memory.
    pub spill_load_bytes: u32,
    /// Bytes of local memory a thread uses as its stack.
    pub stack_bytes: u32,
    /// Bytes of shared memory that the source declares with a fixed size.
    pub static_shared_bytes: u32,
    /// The compiler's warnings, one text a warning. See also [`KernelInfo::performance_warnings`].
    pub warnings: Vec<String>,
    /// Milliseconds the compilation took, if this process compiled the kernel.
    #[serde(default, skip_serializing)]
    pub compile_ms: Option<f32>,
    /// The origin of this value.
    #[serde(default = "from_disk", skip_serializing)]
    pub origin: Origin,
}

fn from_disk() -> Origin {
    Origin::Disk
}

/// Remarks of ptxas that mean a kernel far slower than written: `setmaxnreg` ignored (C7504, C7508) or every `wgmma` waiting for
/// the one before it (C7510, C7519, C7520).
pub const PERFORMANCE_WARNINGS: [&str; 5] = ["C7504", "C7508", "C7510", "C7519", "C7520"];

impl KernelInfo {
    /// Whether the kernel spills registers.
    pub fn spills(&self) -> bool {
        self.spill_store_bytes > 0 || self.spill_load_bytes > 0
    }

    /// The warnings that are among [`PERFORMANCE_WARNINGS`].
    pub fn performance_warnings(&self) -> impl Iterator<Item = &str> {
        self.warnings.iter().map(String::as_str).filter(|text| PERFORMANCE_WARNINGS.iter().any(|code| text.contains(code)))
    }
}

/// A compiled kernel: the binary for one target. Cheap to clone.
#[derive(Clone, PartialEq)]
#[non_exhaustive]
pub struct Cubin {
    /// The image that the driver loads.
    pub bytes: Arc<[u8]>,
    /// Facts about the kernel.
    pub info: KernelInfo,
}

impl Cubin {
    /// An image and the facts about it.
    pub fn new(bytes: impl Into<Arc<[u8]>>, info: KernelInfo) -> Self {
        Self { bytes: bytes.into(), info }
    }
}

impl fmt::Debug for Cubin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cubin").field("bytes", &self.bytes.len()).field("info", &self.info).finish()
    }
}
