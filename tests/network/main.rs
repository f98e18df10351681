//! Networks: building and its errors, passes, fusion against node by node.

mod attention;
mod build;
mod custom;
mod drawing;
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
