//! The epilogue of a plan: its values, placed in phases, its reductions, and the sums of operands beside it.

pub(super) mod bytes;
pub(super) mod fixup;
mod label;
pub(super) mod operand_sums;
pub(super) mod program;
pub(super) mod reduce;
pub(super) mod scores;
pub(super) mod stage;
pub(super) mod window;
pub(super) mod workspace;
