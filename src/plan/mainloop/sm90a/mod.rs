//! Hopper's mainloop: its rules, how it reads operands, the cost of its tiles, its shared memory, its operands' tensor maps, its
//! edge tiles, and the L2 cache.

pub(in crate::plan) mod cost;
pub(in crate::plan) mod cost_model;
pub(in crate::plan) mod edges;
pub(in crate::plan) mod few_rows;
mod few_tiles;
pub(in crate::plan) mod l2;
pub(in crate::plan) mod operand_maps;
mod reads;
pub(in crate::plan) mod rules;
pub(in crate::plan) mod smem;
pub(in crate::plan) mod staging;
pub(crate) mod widened;
pub(in crate::plan) mod widened_tiles;
