//! Building a graph with ordinary Rust: a closure, operators and methods.
//!
//! ```
//! use postlude::prelude::*;
//! let epilogue = Epilogue::build(|e| {
//!     let z = e.acc() + e.load("bias", F16.over(N));
//!     let y = z.region(e.row().lt(e.scalar("boundary", I32)), |z| z.sigmoid()).otherwise(|z| z.tanh());
//!     e.store("d", y, F16);
//! })?;
//! assert_eq!(epilogue.arguments().iter().map(|a| &*a.name).collect::<Vec<_>>(), ["bias", "boundary", "d"]);
//! # Ok::<(), postlude::Diagnostics>(())
//! ```
//!
//! Building a graph never fails. [`Epilogue::build`] checks the whole graph and returns every error at once, each at
//! its node and at the line of Rust that built it.

pub mod activation;
mod batch_norm;
mod epilogue;
mod expr;
mod into;
mod monoid;
mod operators;
mod quantize;
pub mod recipes;
mod region;
pub mod rows;
mod scores;
mod top_k;

pub use batch_norm::{BatchNorm, BatchNormTraining, FoldError};
pub use epilogue::{Epilogue, ReadError, registry};
pub use expr::{Builder, Expr};
pub use into::{IntoElement, IntoExpr};
pub use monoid::MonoidError;
pub use operators::ComparedByOperator;
pub use region::Regions;
pub use top_k::TopK;
