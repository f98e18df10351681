//! Kernels on a real GPU, against the CPU oracle in `f64`.
//!
//! Every case draws random operands and poisons its outputs and everything between and behind their rows. It runs the
//! kernel twice and compares: each element with the oracle, each byte around them with its old value, the second run
//! with the first bit for bit. [`verdict`] defines the tolerance of an element.
//!
//! Without a GPU the tests say that they are skipped; with `POSTLUDE_REQUIRE_GPU=1` they fail instead. To work on the tests
//! themselves without a GPU, `POSTLUDE_GPU_STAND_IN=1` lets the CPU reference play the kernel's part, and
//! `POSTLUDE_GPU_STAND_IN=compile` compiles every kernel besides.
#![allow(missing_docs, reason = "a test binary")]

mod arguments;
mod attention;
mod autotune;
mod bits;
mod borrowed;
mod cached;
mod case;
mod code;
mod conv_gradients;
mod convolutions;
mod counts;
mod cublaslt;
mod doubles;
mod eight_bits;
mod few;
mod files;
mod fixups;
mod gathers;
mod gemv;
mod gradients;
mod hopper;
mod large;
mod launches;
mod layer;
mod layout;
mod left_out;
mod low_bits;
mod math;
mod memory;
mod moments;
mod network;
mod operand_sums;
mod outputs;
mod paddle;
mod random;
mod reductions;
mod regions;
mod repack;
mod rig;
mod rows;
mod scores;
mod shapes;
mod split;
mod strides;
mod tf32;
mod tiles;
mod verdict;

#[path = "../support/edges.rs"]
mod edges;
#[path = "../support/graphs.rs"]
mod graphs;
#[path = "../support/monoids.rs"]
mod monoids;
#[path = "../support/pairs.rs"]
mod pairs;
#[path = "../../benches/gemm/cublaslt.rs"]
#[allow(dead_code, reason = "the benchmark uses what the tests do not")]
mod peer;
#[path = "../support/softcap.rs"]
mod softcap;
