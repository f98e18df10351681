//! Derivatives of epilogues against central differences in `f64`, their saved values, and refusals.

#[path = "../support/edges.rs"]
mod edges;
#[path = "../support/graphs.rs"]
mod graphs;
#[path = "../support/monoids.rs"]
mod monoids;
#[path = "../support/pairs.rs"]
mod pairs;
#[path = "../support/softcap.rs"]
mod softcap;

mod arms;
mod borders;
mod differences;
mod eight_bits;
mod kinks;
mod network;
mod problem;
mod refusals;
mod reserve;
mod rows;
mod simple;
