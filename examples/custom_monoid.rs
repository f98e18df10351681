//! A monoid of your own: the variance of each row by Welford's method, and a layer norm with it.
//!
//! A reduction combines elements with a monoid. A monoid defines the state of no elements, an element as a state, the
//! merge of two states, and the stored number. The kernel chooses the order. Two rows lie 1000 away from 0, where a
//! mean of squares would lose the digits of the variance.
//!
//! ```text
//! $ cargo run --release --example custom_monoid
//! variance, a state of 3 words: of each row
//! ...
//! mean of each row
//! ...
//! layer norm of D = A B + offset
//! ...
//! CPU: no CUDA driver: libcuda.so.1: cannot open shared object file ...
//! ```

#[path = "support/matrix.rs"]
mod matrix;

use matrix::{eighths, show};
use postlude::CustomMonoid;
use postlude::dtype::ValueType;
use postlude::prelude::*;
use std::io::Write;

type Result<T, E = Box<dyn std::error::Error>> = std::result::Result<T, E>;

const SHAPE: Shape = Shape::new(4, 8, 6);

/// The variance (Welford 1962; the merge of two states by Chan et al. 1979). A state has a count, a mean, and the sum
/// of squared distances from that mean.
fn variance() -> Result<Monoid, postlude::build::MonoidError> {
    CustomMonoid::build(
        "variance",
        [F32],
        [0.0, 0.0, 0.0],
        |e, [x]| [e.constant(1.0), x, e.constant(0.0)],
        |_, [n, mean, squares], [m, other, more]| {
            let (count, distance) = (n + m, other - mean);
            let share = m / count.max(1.0);
            [count, mean + distance * share, squares + more + distance * distance * n * share]
        },
        |_, [n, _, squares]| squares / n,
    )
}

/// Reduces behind the product, then normalises the stored matrix.
pub fn run(out: &mut dyn Write) -> Result<()> {
    let variance = variance()?;
    let product = Epilogue::build(|e| {
        let d = e.acc() + e.load("offset", F32.over(M));
        e.store("d", d, F32);
        e.reduce("mean", d, Monoid::Mean, F32.over(M));
        e.reduce("variance", d, variance, F32.over(M));
    })?;
    // The statistics are outputs of the product, so the norm is a separate pass, in place.
    let norm = Epilogue::build(|e| {
        let scale = (e.load("variance", F32.over(M)) + 1e-5).rsqrt();
        let d = (e.load("d", F32) - e.load("mean", F32.over(M))) * scale;
        e.store("d", d * e.load("gamma", F32.over(N)) + e.load("beta", F32.over(N)), F32);
    })?;

    let (a, b, offset) = (eighths(SHAPE.m * SHAPE.k, 1), eighths(SHAPE.k * SHAPE.n, 2), [0.0f32, 1000.0, 3.0, -1000.0]);
    let (gamma, beta) = (eighths(SHAPE.n, 3), eighths(SHAPE.n, 4));
    let (mut d, mut mean, mut of_rows) = (vec![0.0f32; SHAPE.m * SHAPE.n], vec![0.0f32; SHAPE.m], vec![0.0f32; SHAPE.m]);
    let args = HostArgs::new().input("a", &a).input("b", &b).input("offset", &offset).output("d", &mut d);
    Gemm::new(F32, TT, &product).run(SHAPE, args.output("mean", &mut mean).output("variance", &mut of_rows))?;
    show(
        out,
        &format!("variance, a state of {} words: of each row", variance.words(ValueType::F32)),
        SHAPE.m,
        of_rows.iter().copied(),
    )?;
    show(out, "mean of each row", SHAPE.m, mean.iter().copied())?;

    let args = HostArgs::new().input("mean", &mean).input("variance", &of_rows).input("gamma", &gamma).input("beta", &beta);
    let pass = Gemm::pointwise(F32, Order::RowMajor, &norm);
    let ran_on = pass.run(Shape::matrix(SHAPE.m, SHAPE.n), args.output("d", &mut d))?;
    show(out, "layer norm of D = A B + offset", SHAPE.n, d)?;

    // A document contains the monoid's name and fingerprint. Reading it needs a program that has the same monoid.
    let registry = postlude::build::registry();
    assert!(Epilogue::from_json(&product.to_json(), &registry).is_err());
    assert_eq!(Epilogue::from_json(&product.to_json(), &registry.with_monoids([variance]))?, product);
    writeln!(out, "{ran_on}")?;
    Ok(())
}

fn main() {
    if let Err(error) = run(&mut std::io::stdout()) {
        eprintln!("error: {error}");
        std::process::exit(1);
    }
}
