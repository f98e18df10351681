//! Networks: building and its errors, passes, fusion against node by node.

mod build;
mod fused;
mod graphs;
mod json;
mod passes;
