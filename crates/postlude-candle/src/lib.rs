//! Postlude for candle: an epilogue as an operation on candle tensors.
//!
//! [`Fused`] runs an epilogue behind the product of two tensors, on candle's stream and in candle's memory, and on the CPU by
//! the library's reference. Gradients come from the derived backward epilogue, so `loss.backward()` works. [`Linear`] is a
//! layer with an activation, and [`Gated`] one that a second product gates, as SwiGLU.
//!
//! ```
//! use candle_core::{Device, Tensor};
//! use postlude::prelude::*;
//! use postlude_candle::{Arguments, Fused};
//! let epilogue = Epilogue::build(|e| {
//!     let z = e.acc() + e.load("bias", F32.over(N));
//!     e.store("d", z.region(e.row().lt(e.scalar("boundary", I32)), |z| z.sigmoid()).otherwise(|z| z.tanh()), F32);
//! })?;
//! let x = Tensor::new(&[[1f32, 0.], [2., 1.]], &Device::Cpu)?;
//! let w = Tensor::new(&[[1f32, 0.], [1., 1.], [1., -1.]], &Device::Cpu)?; // N x K, as of a linear layer
//! let bias = Tensor::new(&[0f32, 2., -1.5], &Device::Cpu)?;
//! let d = Fused::new(&epilogue).apply(&x, &w.t()?, Arguments::new().tensor("bias", &bias).scalar("boundary", 1))?;
//! assert_eq!(d.dims(), [2, 3]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Views count as they lie: a transposed operand is column-major, a slice has a leading dimension, and nothing is copied.

mod fused;
mod gated;
mod linear;
mod operation;
mod storage;

pub use fused::{Arguments, Fused};
pub use gated::Gated;
pub use linear::{Activation, Linear, identity};
pub use postlude;

/// The README's programs, compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
