//! Two ways to write your own activation: a function over primitives, and a primitive with its own CUDA.
//!
//! A function is ordinary Rust over expressions. Its kernel, value and derivative follow. A custom primitive serves
//! functions that the table lacks: it has a CUDA expression, a value on the CPU, and a derivative.
//!
//! ```text
//! $ cargo run --release --example custom_activation
//! softcap, a function:
//!   %0: f32[M,N,L] = acc f32
//!   %1: f32[] = const f32 30.0
//!   %2: f32[M,N,L] = div %0, %1
//!   %3: f32[M,N,L] = tanh %2
//!   %4: f32[M,N,L] = mul %3, %1
//!   store "d" f32[M,N,L], %4
//!   [-27.154, -9.645, 0.000, 9.645, 27.154]
//!
//! asinh, a custom primitive:
//!   %0: f32[M,N,L] = acc f32
//!   %1: f32[M,N,L] = custom asinh#a8d571319880d0b6 %0
//!   store "d" f32[M,N,L], %1
//!   [-4.500, -2.998, 0.000, 2.998, 4.500]
//!   its derivative agrees with differences to 0.00000
//!
//! CPU: no CUDA driver: libcuda.so.1: cannot open shared object file ...
//! ```

use postlude::ir::Order;
use postlude::prelude::*;
use std::io::Write;
use std::sync::Arc;

type Result<T, E = Box<dyn std::error::Error>> = std::result::Result<T, E>;

/// `cap * tanh(x / cap)`: about x where |x| is small, never beyond the cap.
fn softcap(x: Expr<'_>, cap: f32) -> Expr<'_> {
    (x / cap).tanh() * cap
}

/// The inverse hyperbolic sine, a logarithm that passes through zero, as a custom primitive.
fn asinh() -> Result<Arc<CustomOp>> {
    let op = CustomOp::new("asinh", 1, "asinhf($0)", |x| x[0].asinh())?;
    let op = op.partial(0, "rsqrtf(fmaf($0, $0, 1.0f))", |x| 1.0 / (x[0] * x[0] + 1.0).sqrt())?;
    Ok(Arc::new(op))
}

/// Applies both to a few numbers, and writes listings and values to `out`.
pub fn run(out: &mut dyn Write) -> Result<()> {
    writeln!(out, "softcap, a function:")?;
    let epilogue = Epilogue::build(|e| e.store("d", softcap(e.acc(), 30.0), F32))?;
    show(out, &epilogue, &[-45.0, -10.0, 0.0, 10.0, 45.0])?;

    writeln!(out, "\nasinh, a custom primitive:")?;
    let asinh = asinh()?;
    let epilogue = Epilogue::build(|e| e.store("d", e.custom(&asinh, [e.acc()]), F32))?;
    let ran_on = show(out, &epilogue, &[-45.0, -10.0, 0.0, 10.0, 45.0])?;
    let off = derivative_error(&asinh, &[-45.0, -1.0, 0.0, 0.5, 10.0])?;
    writeln!(out, "  its derivative agrees with differences to {off:.5}")?;

    // A document contains the name and a fingerprint, never the expression. Reading it needs a program that has the
    // primitive.
    let registry = postlude::build::registry().with(asinh);
    assert_eq!(Epilogue::from_json(&epilogue.to_json(), &registry)?, epilogue);
    assert!(Epilogue::from_json(&epilogue.to_json(), &postlude::build::registry()).is_err());

    writeln!(out, "\n{ran_on}")?;
    Ok(())
}

/// Prints an epilogue and its results for a row of numbers: a pointwise operation, an epilogue without a product.
fn show(out: &mut dyn Write, epilogue: &Epilogue, x: &[f32]) -> Result<postlude::RanOn> {
    epilogue.to_string().lines().try_for_each(|line| writeln!(out, "  {line}"))?;
    let mut d = vec![0.0f32; x.len()];
    let args = HostArgs::new().input("a", x).output("d", &mut d);
    let ran_on = Gemm::pointwise(F32, Order::RowMajor, epilogue).run(Shape::matrix(1, x.len()), args)?;
    writeln!(out, "  {d:.3?}")?;
    Ok(ran_on)
}

/// The largest difference of a primitive's derivative to a difference quotient.
fn derivative_error(op: &CustomOp, at: &[f64]) -> Result<f64> {
    let partial = op.derivative(0).ok_or("no derivative")?;
    let h = 1e-4;
    let off = at.iter().map(|x| ((op.eval(&[x + h]) - op.eval(&[x - h])) / (2.0 * h) - (partial.eval)(&[*x])).abs());
    Ok(off.fold(0.0, f64::max))
}

fn main() {
    if let Err(error) = run(&mut std::io::stdout()) {
        eprintln!("error: {error}");
        std::process::exit(1);
    }
}
