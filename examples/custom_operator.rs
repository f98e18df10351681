//! Two operators of your own with forward and backward passes, in place if possible: `add_relu` and `mul_sigmoid`.
//!
//! `add_relu` is a Rust function over expressions, and its derivative follows. `mul_sigmoid` is a registered primitive,
//! with CUDA, a value on the CPU and derivatives of its own. Both overwrite x. The forward pass saves only the parts of
//! the old x that the backward pass needs: nothing for `add_relu`, whose result determines the derivative.
//!
//! ```text
//! $ cargo run --release --example custom_operator
//! add_relu, x: in place; 0 bits an element saved
//! ...
//! mul_sigmoid, x: in place; 32 bits an element saved
//! ...
//! mul_sigmoid, grad_y
//! ...
//! behind a product, c: relu(a b + c), in place
//! ...
//! behind a product, g: its gradient before relu, in place
//! ...
//! CPU: no CUDA driver: libcuda.so.1: cannot open shared object file ...
//! ```

#[path = "support/matrix.rs"]
mod matrix;

use matrix::{eighths, show};
use postlude::RanOn;
use postlude::grad::Pair;
use postlude::prelude::*;
use std::io::Write;
use std::sync::Arc;

type Result<T, E = Box<dyn std::error::Error>> = std::result::Result<T, E>;

const SHAPE: Shape = Shape::new(3, 8, 5);

fn add_relu<'g>(x: Expr<'g>, y: Expr<'g>) -> Expr<'g> {
    (x + y).relu()
}

/// x sigmoid(y), and its derivatives for x and y. `$0` is x, `$1` is y.
fn mul_sigmoid() -> Result<Arc<CustomOp>> {
    let sigmoid = |y: f64| 1.0 / (1.0 + (-y).exp());
    let op = CustomOp::new("mul_sigmoid", 2, "$0 / (1.0f + expf(-$1))", move |x| x[0] * sigmoid(x[1]))?;
    let op = op.partial(0, "1.0f / (1.0f + expf(-$1))", move |x| sigmoid(x[1]))?;
    let slope = "$0 / ((1.0f + expf(-$1)) * (1.0f + expf($1)))";
    Ok(Arc::new(op.partial(1, slope, move |x| x[0] * sigmoid(x[1]) * sigmoid(-x[1]))?))
}

/// Both passes of x = operator(x, y). The caller keeps the new x.
fn in_place(operator: impl for<'g> Fn(&'g Builder, [Expr<'g>; 2]) -> Expr<'g>) -> Result<Pair> {
    let forward = Epilogue::build(|e| e.store("x", operator(e, [e.load("x", F32), e.load("y", F32)]), F32))?;
    Ok(forward.backward(Wrt::arguments(["x", "y"]).keeps("x"))?)
}

/// Runs both operators, and one of them behind a product.
pub fn run(out: &mut dyn Write) -> Result<()> {
    train(out, "add_relu", &in_place(|_, [x, y]| add_relu(x, y))?)?;
    let op = mul_sigmoid()?;
    let pair = in_place(|e, operands| e.custom(&op, operands))?;
    train(out, "mul_sigmoid", &pair)?;

    // A document contains a registered primitive's name and fingerprint. Reading it needs a registry with the same
    // primitive.
    let registry = postlude::build::registry().with(op);
    assert_eq!(&Epilogue::from_json(&pair.backward().to_json(), &registry)?, pair.backward());

    let ran_on = behind_a_product(out)?;
    writeln!(out, "{ran_on}")?;
    Ok(())
}

/// One step, without a product: passes over matrices.
fn train(out: &mut dyn Write, name: &str, pair: &Pair) -> Result<()> {
    let (mut x, y, upstream) = (eighths(SHAPE.m * SHAPE.n, 1), eighths(SHAPE.m * SHAPE.n, 2), eighths(SHAPE.m * SHAPE.n, 3));
    let shape = Shape::matrix(SHAPE.m, SHAPE.n);
    let mut reserve = pair.reserve().allocate(shape);
    let args = HostArgs::new().output("x", &mut x).input("y", &y).saving(&mut reserve);
    Gemm::pointwise(F32, Order::RowMajor, pair.forward()).run(shape, args)?;

    // The backward pass takes the incoming gradient as `a`, and the parts of x and y that it needs.
    let (mut grad_x, mut grad_y) = (vec![0.0f32; x.len()], vec![0.0f32; y.len()]);
    let args = HostArgs::new().input("a", &upstream).input("x", &x).input("y", &y).saved(&reserve);
    let args = args.output("grad_x", &mut grad_x).output("grad_y", &mut grad_y);
    Gemm::pointwise(F32, Order::RowMajor, pair.backward()).run(shape, args.used_by(pair.backward().checked()))?;

    let bits = pair.reserve().bits_per_element();
    show(out, &format!("{name}, x: in place; {bits} bits an element saved"), SHAPE.n, x)?;
    show(out, &format!("{name}, grad_x"), SHAPE.n, grad_x)?;
    Ok(show(out, &format!("{name}, grad_y"), SHAPE.n, grad_y)?)
}

/// The same function in the kernel of a product, and a hand-written backward pass that overwrites the gradient.
fn behind_a_product(out: &mut dyn Write) -> Result<RanOn> {
    let forward = Epilogue::build(|e| e.store("c", add_relu(e.acc(), e.load("c", F32)), F32))?;
    let backward = Epilogue::build(|e| e.store("g", e.load("c", F32).gt(0.0).select(e.load("g", F32), 0.0), F32))?;
    let (a, b, mut c) = (eighths(SHAPE.m * SHAPE.k, 4), eighths(SHAPE.k * SHAPE.n, 5), eighths(SHAPE.m * SHAPE.n, 6));
    Gemm::new(F32, TT, &forward).run(SHAPE, HostArgs::new().input("a", &a).input("b", &b).output("c", &mut c))?;
    show(out, "behind a product, c: relu(a b + c), in place", SHAPE.n, c.iter().copied())?;

    // It reads no accumulator, so it needs no `a`.
    let mut g = eighths(SHAPE.m * SHAPE.n, 3);
    let pass = Gemm::pointwise(F32, Order::RowMajor, &backward);
    let ran_on = pass.run(Shape::matrix(SHAPE.m, SHAPE.n), HostArgs::new().input("c", &c).output("g", &mut g))?;
    show(out, "behind a product, g: its gradient before relu, in place", SHAPE.n, g)?;
    Ok(ran_on)
}

fn main() {
    if let Err(error) = run(&mut std::io::stdout()) {
        eprintln!("error: {error}");
        std::process::exit(1);
    }
}
