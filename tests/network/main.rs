//! Networks: building and its errors, passes, fusion against node by node.
#![allow(clippy::duplicate_mod, reason = "an example shares what it draws with")]

mod attention;
mod build;
mod custom;
mod drawing;
#[allow(dead_code, reason = "the example runs the rest")]
#[path = "../../examples/encoder_block.rs"]
mod encoder_block;
mod fused;
mod gradients;
mod graphs;
mod images;
mod json;
#[allow(dead_code, reason = "examples and the benchmark use the rest")]
#[path = "../../examples/support/networks.rs"]
mod networks;
mod numbers;
mod passes;
mod quantised;
mod training;
mod typing;
