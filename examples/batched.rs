//! A batch of products like PyTorch's `baddbmm`, with two additions: a scale and a bias for each entry, and strides.
//!
//! D[l] = alpha[l] A[l] B + beta C[l] + bias[l]. The entries share B. The rows of A are wider than K. The entries of D
//! are interleaved row by row, as attention needs its heads.
//!
//! ```text
//! $ cargo run --release --example batched
//! D: a line has a row of each of the 3 entries
//! ...
//! total: the sum of each entry's elements
//! ...
//! CPU: no CUDA driver: libcuda.so.1: cannot open shared object file ...
//! ```

#[path = "support/matrix.rs"]
mod matrix;

use matrix::{eighths, show};
use postlude::prelude::*;
use std::io::Write;

type Result<T, E = Box<dyn std::error::Error>> = std::result::Result<T, E>;

/// The products, and the extents of each.
const ENTRIES: usize = 3;
const ROWS: usize = 4;
const COLUMNS: usize = 5;
const TERMS: usize = 6;

/// Elements from a row of A to the next. The first `TERMS` count.
const WIDTH: usize = 8;

/// Computes the batch in one launch and prints it.
pub fn run(out: &mut dyn Write) -> Result<()> {
    let epilogue = Epilogue::build(|e| {
        // `batched()`: one for each entry. A matrix is batched, unless it is `shared()`. A vector or a number is
        // shared, unless it is `batched()`.
        let alpha = e.load("alpha", F32.pointer().batched());
        let bias = e.load("bias", F32.over(N).batched());
        let d = e.acc() * alpha + e.load("c", F32) * e.scalar("beta", F32) + bias;
        e.store("d", d, F32);
        e.reduce("total", d, Monoid::Sum, F32.pointer().batched());
    })?;

    let (a, b) = (eighths(ENTRIES * ROWS * WIDTH, 1), eighths(TERMS * COLUMNS, 2));
    let (c, bias, alpha) = (eighths(ENTRIES * ROWS * COLUMNS, 3), eighths(ENTRIES * COLUMNS, 4), [1.0f32, 0.5, -2.0]);
    let (mut d, mut total) = (vec![0.0f32; ROWS * ENTRIES * COLUMNS], vec![0.0f32; ENTRIES]);

    // Strides belong to the launch, in elements: `ld` from row to row, `batch_stride` from entry to entry. 0 shares an
    // input.
    let args = HostArgs::new()
        .input("a", a.ld(WIDTH).batch_stride(ROWS * WIDTH))
        .input("b", b.batch_stride(0))
        .input("c", &c)
        .input("alpha", &alpha)
        .input("bias", &bias)
        .scalar("beta", 0.25)
        .output("d", (&mut d).ld(ENTRIES * COLUMNS).batch_stride(COLUMNS))
        .output("total", &mut total);
    let shape = Shape::new(ROWS, COLUMNS, TERMS).batched(ENTRIES);
    let ran_on = Gemm::new(F32, TT, &epilogue).run(shape, args)?;

    show(out, &format!("D: a line has a row of each of the {ENTRIES} entries"), ENTRIES * COLUMNS, d)?;
    show(out, "total: the sum of each entry's elements", ENTRIES, total)?;
    writeln!(out, "{ran_on}")?;
    Ok(())
}

fn main() {
    if let Err(error) = run(&mut std::io::stdout()) {
        eprintln!("error: {error}");
        std::process::exit(1);
    }
}
