//! The CPU reference against independent arithmetic: every primitive, every activation, every derivative, every way memory
//! may lie, and every argument that does not fit.

mod activations;
mod adjoints;
mod attention;
mod convolutions;
mod eight_bits;
mod errors;
mod gathers;
mod gradients;
mod left_out;
mod meaning;
mod memory;
#[path = "../support/monoids.rs"]
mod monoids;
mod operand_sums;
mod primitives;
mod products;
mod recipes;
mod reductions;
mod rows;
mod scaled;
mod scores;
mod support;
