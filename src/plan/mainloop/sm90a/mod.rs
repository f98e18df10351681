//! Hopper's mainloop: what its tiles cost, what they stage in shared memory and where, its edge tiles, and the level-2 cache.

pub(in crate::plan) mod cost;
pub(in crate::plan) mod edges;
pub(in crate::plan) mod few_rows;
pub(in crate::plan) mod l2;
pub(in crate::plan) mod smem;
pub(in crate::plan) mod staging;
