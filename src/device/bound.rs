//! An argument of a launch, as the kernel gets it.

use crate::ir::Constant;

/// A tensor of a launch: address and layout. A scalar has its value instead.
#[derive(Clone, Copy)]
pub(super) struct BoundOperand {
    pub address: u64,
    pub ld: usize,
    pub batch_stride: usize,
    pub scalar: Constant,
    /// The largest power of two up to 16 that divides address and strides, in bytes.
    pub aligned: usize,
}

impl BoundOperand {
    pub const NONE: BoundOperand =
        BoundOperand { address: 0, ld: 0, batch_stride: 0, scalar: Constant::Bool(false), aligned: 16 };
}
