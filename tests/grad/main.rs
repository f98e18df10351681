//! Derivatives of epilogues against central differences in `f64`, what is saved for them, and what is refused.

#[path = "../support/graphs.rs"]
mod graphs;
#[path = "../support/softcap.rs"]
mod softcap;

mod arms;
mod differences;
mod network;
mod problem;
mod refusals;
mod reserve;
mod simple;
