//! The mainloops: their tiles, what each tile costs, what convolutions need, and the parts that only Hopper's mainloop has.

pub(super) mod candidates;
pub(super) mod direct;
pub(super) mod name;
pub(super) mod patches;
pub(super) mod pool;
mod rules;
pub(super) mod scaled;
pub(super) mod sm90a;
pub(super) mod tile;
