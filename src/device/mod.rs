//! The device: contexts, modules, launches, and buffers borrowed from the user's own cudarc.
//!
//! This module takes cudarc's types of the version that this crate re-exports as [`cudarc`]: a program's own context,
//! streams and slices.
//!
//! # Memory and streams of others
//!
//! A program whose library has another version of cudarc, or none, can pass addresses and streams if it uses the
//! device's primary context, as CUDA's runtime does. cudarc wraps them. `leak` takes a wrapped slice out again, since
//! dropping it would free the memory:
//!
//! ```no_run
//! use postlude::cudarc::driver::CudaSlice;
//! use postlude::cudarc::driver::sys::{CUdeviceptr, CUstream};
//! use postlude::half::f16;
//! use postlude::prelude::*;
//!
//! /// Runs a plan for 256 x 512 x 1024 on three addresses.
//! ///
//! /// # Safety
//! /// The addresses are those of matrices of that size, and other streams that use them are ordered with this one. The stream
//! /// outlives the plan: memory of the plan's own is freed in its order.
//! unsafe fn launch(device: &Device, plan: &Plan, stream: CUstream, [a, b, d]: [CUdeviceptr; 3]) -> Result<(), postlude::Error> {
//!     let stream = unsafe { device.context().wrap_borrowed_stream(stream) };
//!     let matrix = |address, len| unsafe { stream.upgrade_device_ptr::<f16>(address, len) };
//!     let (a, b, mut d) = (matrix(a, 256 * 1024), matrix(b, 1024 * 512), matrix(d, 256 * 512));
//!     let result = plan.execute(&stream, &mut DeviceArgs::new().input("a", &a).input("b", &b).output("d", &mut d));
//!     [a, b, d].map(CudaSlice::leak);
//!     result
//! }
//! ```

mod block;
mod bound;
mod buffer;
mod context;
mod error;
mod host;
mod launch;
mod passes;
mod plug;
pub(crate) mod probe;
mod recorded;
mod reduce;
mod repack;
mod rooms;
mod scratch;
mod split;
mod tensor_map;
mod written;

pub use buffer::{DeviceArgs, DeviceBuffer};
pub use context::Device;
pub(crate) use context::LoadError;
pub use error::DeviceError;
pub(crate) use host::Copies;
pub(crate) use launch::{Before, Launch, LaunchError};
pub(crate) use passes::Passer;
pub(crate) use plug::{LAUNCHED, Plug, WARM};
pub(crate) use recorded::Recorded;
pub(crate) use repack::Repacker;
pub(crate) use scratch::{Scratch, ScratchError};
pub(crate) use split::Splitter;
