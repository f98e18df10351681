//! Tensor maps: the operands that a kernel copies box by box through the tensor memory accelerator.
//!
//! A plan states the memory and the box of each map. The launch adds address, extents and strides. A launch marks a map
//! that cannot describe its memory as unused, and the kernel takes its other path.

use crate::dtype::DType;
use serde::Serialize;

/// Bytes of a TMA unit, the least that TMA moves. Addresses, strides and lines of a box are multiples of it. TMA also
/// clips a box at a multiple of it, not at the element: if the memory's lines end inside a unit, a store of the box
/// would write beyond them. Such a matrix needs another path for its last chunk.
pub const TMA_UNIT: usize = 16;

/// One tensor map of a kernel. Its three axes are the contiguous one, the strided one and the batch. A box covers one
/// batch entry, and reads zero where it reaches beyond the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct TensorMap {
    /// The memory that it describes.
    pub source: MapSource,
    /// Format of the elements.
    pub dtype: DType,
    /// Elements of a box along the contiguous axis: at most 256, no wider than the swizzle, and a multiple of [`TMA_UNIT`]
    /// in bytes.
    pub box_inner: usize,
    /// Lines of a box: at most 256.
    pub box_outer: usize,
    /// How the box lies in shared memory.
    pub swizzle: Swizzle,
    /// Whether the kernel requires the map. An argument that a required map cannot describe is refused.
    pub required: bool,
}

/// The memory that a tensor map describes, as the kernel sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MapSource {
    /// Operand `a` (0) or `b` (1).
    Operand(usize),
    /// The images of a convolution, as an im2col map: its box holds the pixels under one tap of the window, output pixel
    /// after output pixel. Channels are the inner axis.
    Patches,
    /// The filters of a convolution: channels of a tap, filters, and taps in the place of the batch.
    Filters,
    /// An argument of the epilogue. Its batch axis counts all entries even if the batch shares it; its stride is then
    /// 0.
    Argument(usize),
    /// An argument of a gradient of images that goes by remainders, as an im2col map: its box holds consecutive pixels of one
    /// remainder. The distance to a remainder's first pixel is part of the place along the channels.
    Remainders(usize),
}

impl MapSource {
    /// The argument of the epilogue, if it is one.
    pub const fn argument(self) -> Option<usize> {
        match self {
            MapSource::Argument(i) | MapSource::Remainders(i) => Some(i),
            _ => None,
        }
    }
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
