//! Hopper's mainloop: the cost of its tiles, its shared memory, its edge tiles, and the L2 cache.

pub(in crate::plan) mod cost;
pub(in crate::plan) mod edges;
pub(in crate::plan) mod few_rows;
pub(in crate::plan) mod l2;
pub(in crate::plan) mod smem;
pub(in crate::plan) mod staging;
