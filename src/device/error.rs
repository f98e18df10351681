//! Why the device failed.

use crate::jit::JitError;
use cudarc::driver::DriverError;

/// Why the device failed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// The machine has no NVIDIA driver.
    #[error("no CUDA driver: {tried}. Install the NVIDIA driver, or use the CPU reference (`Gemm::reference`)")]
    NoDriver {
        /// The libraries that were tried.
        tried: String,
    },
    /// The driver rejected a call.
    #[error("the CUDA driver failed to {what}: {error}")]
    Driver {
        /// The attempted action.
        what: &'static str,
        /// The driver's error.
        error: DriverError,
    },
    /// The machine has a GPU, but nothing to compile kernels with, and no compiled kernels.
    #[error("{device} was found, but kernels cannot be compiled for it: {error}")]
    NoCompiler {
        /// The GPU.
        device: String,
        /// The missing part.
        error: JitError,
    },
    /// The device has no memory left for the copies of unaligned operands.
    #[error(
        "no {bytes} bytes of device memory for copies of unaligned operands: {error}. Align them to 16 bytes (address, \
         leading dimension and batch stride), or free memory"
    )]
    Scratch {
        /// Bytes needed.
        bytes: usize,
        /// The driver's error.
        error: DriverError,
    },
    /// Copies of unaligned operands need memory, and a capture cannot allocate it.
    #[error(
        "the plan copies unaligned operands into {bytes} bytes that this stream does not have yet, and a capture \
         cannot allocate them: execute the plan once on the stream before the capture"
    )]
    ScratchInCapture {
        /// Bytes needed.
        bytes: usize,
    },
    /// More copies of operands than a grid counts.
    #[error("copies of unaligned operands take {bytes} bytes, more than one launch can copy: align them to 16 bytes")]
    ScratchTooLarge {
        /// Bytes needed.
        bytes: usize,
    },
    /// The device has no memory left for partial results of reductions, or for the sums of parts of K.
    #[error(
        "no {bytes} bytes of device memory for partial results, of reductions or of parts of K: {error}. Free memory, \
         make the batch or the matrix smaller, or plan with `Gemm::split_k(1)`"
    )]
    Workspace {
        /// Bytes needed.
        bytes: usize,
        /// The driver's error.
        error: DriverError,
    },
    /// Partial results need memory, and a capture cannot allocate it.
    #[error(
        "the plan's reductions, or parts of K, need {bytes} bytes that this stream does not have yet, and a capture \
         cannot allocate them: execute the plan once on the stream before the capture"
    )]
    WorkspaceInCapture {
        /// Bytes needed.
        bytes: usize,
    },
    /// A call that waits for the stream cannot be recorded.
    #[error("{what} waits for the stream, which is being captured: call it before the capture, or after its end")]
    Capture {
        /// The call.
        what: &'static str,
    },
    /// A stream of another device, or of another context of the same.
    #[error(
        "the stream belongs to {}device {got}; the plan was made for device {needs}",
        if needs == got { "another context of " } else { "" }
    )]
    Stream {
        /// The plan's device ordinal.
        needs: usize,
        /// The stream's device ordinal.
        got: usize,
    },
}

impl DeviceError {
    /// The error of a call that the driver rejected.
    pub(super) fn driver(what: &'static str) -> impl FnOnce(DriverError) -> DeviceError {
        move |error| DeviceError::Driver { what, error }
    }
}
