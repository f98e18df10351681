//! Linear and convolutional layers: every step against plain loops in `f64`, whose gradients are differences of theirs.
#![allow(missing_docs, reason = "a test binary")]

mod chain;
mod conv2d;
mod differences;
mod eight_bits;
mod matrix;
mod paddle;
mod refusals;
