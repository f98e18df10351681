//! The epilogue of a plan: its values in the phases that compute them, its reductions, and the sums of operands beside it.

pub(super) mod operand_sums;
pub(super) mod program;
pub(super) mod reduce;
