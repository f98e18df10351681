//! The mainloops: their tiles, what each tile takes, what convolutions take, and what is particular to Hopper's.

pub(super) mod candidates;
pub(super) mod name;
pub(super) mod patches;
pub(super) mod sm90a;
pub(super) mod tile;
