//! Three kinds of mask: computed from coordinates, stored as bits, and chosen by data.
//!
//! A mask from coordinates is computed where it is used, and takes no memory. A bit mask takes one bit for each
//! element. A number that is loaded for each row may choose the row's function: the kernel branches, and runs only the
//! chosen one.
//!
//! ```text
//! $ cargo run --release --example masks
//! causal, rows 4 to 7 of 8: scores, and nothing behind the diagonal
//!    -0.5000   0.1562   0.0156   0.1406   0.0000     -inf     -inf     -inf
//! ...
//! causal, the log-sum-exp of each row
//! ...
//! forward: relu, and a bit where it passes, 1 byte a row
//! ...
//! backward: the gradient where the bit is set
//! ...
//! kinds 0 1 2 1: sigmoid, tanh or relu, by row
//! ...
//! CPU: no CUDA driver: libcuda.so.1: cannot open shared object file ...
//! ```

#[path = "support/matrix.rs"]
mod matrix;

use matrix::{eighths, show};
use postlude::RanOn;
use postlude::prelude::*;
use std::io::Write;

type Result<T, E = Box<dyn std::error::Error>> = std::result::Result<T, E>;

/// Four rows of eight: Q is 4 x 6, K is 8 x 6, and D = Q K^T.
const SHAPE: Shape = Shape::new(4, 8, 6);

/// Runs the three.
pub fn run(out: &mut dyn Write) -> Result<()> {
    causal(out)?;
    bits(out)?;
    let ran_on = by_data(out)?;
    writeln!(out, "{ran_on}")?;
    Ok(())
}

/// Scores of attention. The launch has a shard of the rows. Its origin says which, so coordinates are those of the
/// whole.
fn causal(out: &mut dyn Write) -> Result<()> {
    let epilogue = Epilogue::build(|e| {
        let score = e.acc() * e.scalar("scale", F32);
        let masked = e.column().le(e.row()).select(score, f32::NEG_INFINITY);
        e.store("d", masked, F32);
        e.reduce("lse", masked, Monoid::LogSumExp, F32.over(M)); // softmax is exp(d - lse)
    })?;
    let (q, k) = (eighths(SHAPE.m * SHAPE.k, 1), eighths(SHAPE.n * SHAPE.k, 2));
    let (mut d, mut lse) = (vec![0.0f32; SHAPE.m * SHAPE.n], vec![0.0f32; SHAPE.m]);
    let args = HostArgs::new().input("a", &q).input("b", &k).scalar("scale", 0.5).origin(4, 0, 0);
    Gemm::new(F32, TN, &epilogue).run(SHAPE, args.output("d", &mut d).output("lse", &mut lse))?;
    show(out, "causal, rows 4 to 7 of 8: scores, and nothing behind the diagonal", SHAPE.n, d)?;
    Ok(show(out, "causal, the log-sum-exp of each row", SHAPE.m, lse)?)
}

/// A condition that one kernel stores and another loads. Rows of `Bits8` begin with a byte; `Bits128` is cuBLASLt's layout.
fn bits(out: &mut dyn Write) -> Result<()> {
    let forward = Epilogue::build(|e| {
        e.store("d", e.acc().relu(), F32);
        e.store("passes", e.acc().gt(0.0), Bits8);
    })?;
    let backward = Epilogue::build(|e| e.store("d", e.load("passes", Bits8).select(e.acc(), 0.0), F32))?;
    let (x, w) = (eighths(SHAPE.m * SHAPE.k, 3), eighths(SHAPE.n * SHAPE.k, 4));
    let (mut d, mut passes) = (vec![0.0f32; SHAPE.m * SHAPE.n], vec![0u8; SHAPE.m * Bits8.bytes(SHAPE.n)]);
    let args = HostArgs::new().input("a", &x).input("b", &w).output("d", &mut d);
    Gemm::new(F32, TN, &forward).run(SHAPE, args.output("passes", Tensor::of_bytes_mut(Bits8, &mut passes)))?;
    show(out, "forward: relu, and a bit where it passes, 1 byte a row", SHAPE.n, d)?;

    let (upstream, mut dz) = (eighths(SHAPE.m * SHAPE.n, 5), vec![0.0f32; SHAPE.m * SHAPE.n]);
    let args = HostArgs::new().input("a", &upstream).input("passes", Tensor::of_bytes(Bits8, &passes)).output("d", &mut dz);
    Gemm::pointwise(F32, Order::RowMajor, &backward).run(Shape::matrix(SHAPE.m, SHAPE.n), args)?;
    Ok(show(out, "backward: the gradient where the bit is set", SHAPE.n, dz)?)
}

/// Rows of several kinds, such as tokens of several experts.
fn by_data(out: &mut dyn Write) -> Result<RanOn> {
    let epilogue = Epilogue::build(|e| {
        let kind = e.load("kind", I32.over(M));
        let d = e.acc().region(kind.eq(0), |z| z.sigmoid()).region(kind.eq(1), |z| z.tanh()).otherwise(|z| z.relu());
        e.store("d", d, F32);
    })?;
    let (x, w) = (eighths(SHAPE.m * SHAPE.k, 5), eighths(SHAPE.n * SHAPE.k, 6));
    let (kind, mut d) = ([0i32, 1, 2, 1], vec![0.0f32; SHAPE.m * SHAPE.n]);
    let args = HostArgs::new().input("a", &x).input("b", &w).input("kind", &kind).output("d", &mut d);
    let ran_on = Gemm::new(F32, TN, &epilogue).run(SHAPE, args)?;
    show(out, "kinds 0 1 2 1: sigmoid, tanh or relu, by row", SHAPE.n, d)?;
    Ok(ran_on)
}

fn main() {
    if let Err(error) = run(&mut std::io::stdout()) {
        eprintln!("error: {error}");
        std::process::exit(1);
    }
}
