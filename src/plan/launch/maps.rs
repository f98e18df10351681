//! Tensor maps: the operands that a kernel copies box by box through the tensor memory accelerator.
//!
//! A plan says which memory and which box; address, extents and strides are the launch's. What a launch cannot describe it
//! marks as unused, and the kernel goes another way.

use crate::dtype::DType;
use serde::Serialize;

/// One tensor map of a kernel. Its three axes are the contiguous one, the strided one and the batch; a box covers one batch
/// entry, and reads zero where it reaches beyond the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct TensorMap {
    /// What it describes.
    pub source: MapSource,
    /// Format of the elements.
    pub dtype: DType,
    /// Elements of a box along the contiguous axis: at most 256, a multiple of 16 bytes and no wider than the swizzle.
    pub box_inner: usize,
    /// ArgumentRuns of a box: at most 256.
    pub box_outer: usize,
    /// How the box lies in shared memory.
    pub swizzle: Swizzle,
    /// Whether the kernel cannot do without: what the map cannot describe is then no argument for it.
    pub required: bool,
}

/// What a tensor map describes, as the kernel sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MapSource {
    /// Operand `a` (0) or `b` (1).
    Operand(usize),
    /// The images of a convolution, whose box are the pixels under one tap of the window, output pixel after output pixel: an
    /// im2col map. Its inner axis are channels.
    Patches,
    /// The filters of a convolution: channels of a tap, filters, and taps where others have the batch.
    Filters,
    /// An argument of the epilogue. Its batch axis counts the batch even if the batch shares it: the stride is 0 then.
    Argument(usize),
}

/// How 16-byte units of a box are permuted in shared memory, so that rows fall into different banks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Swizzle {
    /// Not at all.
    #[default]
    None,
    /// Within 32 bytes.
    B32,
    /// Within 64 bytes.
    B64,
    /// Within 128 bytes.
    B128,
}
