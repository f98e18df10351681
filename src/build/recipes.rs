//! Recipes: frequent epilogues as plain functions without privileges. They are also examples of how to write your own.
//!
//! Every recipe stores its result as `d` in the given format. A format that a recipe does not support is reported at
//! the call of the recipe.

use super::epilogue::Epilogue;
use super::expr::Expr;
use crate::check::Diagnostics;
use crate::dtype::DType;
use crate::ir::Operand;
use crate::ir::axes::{M, N};

/// A function of one value: [`activation::relu`](super::activation::relu), `|z| z.leaky_relu(0.1)`, or a function of
/// your own. The path `Expr::relu` does not work: a method belongs to one lifetime of [`Expr`], and a recipe calls its
/// function with a lifetime of its own.
///
/// ```
/// use postlude::build::{activation, recipes};
/// use postlude::prelude::*;
/// let by_path = recipes::bias_activation(F16, F16, activation::relu)?;
/// assert_eq!(by_path, recipes::bias_activation(F16, F16, |z| z.relu())?);
/// fn doubled(z: Expr<'_>) -> Expr<'_> {
///     z * 2.0
/// }
/// recipes::residual(F16, F16, doubled)?;
/// # Ok::<(), postlude::Diagnostics>(())
/// ```
pub trait Activation: for<'g> Fn(Expr<'g>) -> Expr<'g> {}
impl<F: for<'g> Fn(Expr<'g>) -> Expr<'g>> Activation for F {}

/// D = accumulator.
///
/// # Errors
/// If the format cannot hold an `f32` value.
#[track_caller]
pub fn identity(d: DType) -> Result<Epilogue, Diagnostics> {
    Epilogue::build_for_caller(file!(), |e| e.store("d", e.acc(), d))
}

/// D = alpha * accumulator + beta * C, with run-time scalars `alpha` and `beta` and a matrix `c`. C is multiplied even
/// if beta is 0. [`cublaslt::default`](crate::compat::cublaslt::default) ignores C then, as BLAS does.
///
/// # Errors
/// If a format is not floating-point.
#[doc(alias = "LinearCombination")]
#[doc(alias = "addmm")]
#[doc(alias = "baddbmm")]
#[doc(alias = "alpha")]
#[doc(alias = "beta")]
#[track_caller]
pub fn linear_combination(c: impl Into<Operand>, d: DType) -> Result<Epilogue, Diagnostics> {
    let c = c.into();
    Epilogue::build_for_caller(file!(), |e| {
        let (alpha, beta) = (e.scalar("alpha", DType::F32), e.scalar("beta", DType::F32));
        e.store("d", e.acc() * alpha + e.load("c", c) * beta, d);
    })
}

/// D = activation(accumulator + bias), with a vector `bias` over N.
///
/// # Errors
/// If a format is not floating-point.
#[doc(alias = "EpilogueWithBroadcast")]
#[doc(alias = "LinCombPerColBiasEltAct")]
#[doc(alias = "_addmm_activation")]
#[doc(alias = "linear")]
#[track_caller]
pub fn bias_activation(bias: DType, d: DType, activation: impl Activation) -> Result<Epilogue, Diagnostics> {
    Epilogue::build_for_caller(file!(), |e| e.store("d", activation(e.acc() + e.load("bias", bias.over(N))), d))
}

/// D = activation(accumulator + bias) + residual, with a vector `bias` over N and a matrix `residual`.
///
/// # Errors
/// If a format is not floating-point.
#[doc(alias = "LinearCombinationResidualBlock")]
#[doc(alias = "PerColResAddPerColBiasEltAct")]
#[track_caller]
pub fn residual(dtype: DType, d: DType, activation: impl Activation) -> Result<Epilogue, Diagnostics> {
    Epilogue::build_for_caller(file!(), |e| {
        let z = e.acc() + e.load("bias", dtype.over(N));
        e.store("d", activation(z) + e.load("residual", dtype), d);
    })
}

/// D = row_scale * accumulator * column_scale, with `f32` vectors `row_scale` over M and `column_scale` over N: the
/// dequantisation of a product whose operands were scaled per row and per column. The operands have 16 or 32 bits;
/// 8-bit operands are not supported yet.
///
/// # Errors
/// If the format is not floating-point.
#[doc(alias = "scaled_mm")]
#[doc(alias = "dequantize")]
#[track_caller]
pub fn scaled(d: DType) -> Result<Epilogue, Diagnostics> {
    Epilogue::build_for_caller(file!(), |e| {
        let (rows, columns) = (e.load("row_scale", DType::F32.over(M)), e.load("column_scale", DType::F32.over(N)));
        e.store("d", e.acc() * rows * columns, d);
    })
}

/// D = above(z) in the rows before the run-time scalar `boundary`, below(z) from there on, with z = accumulator + bias.
///
/// # Errors
/// If a format is not floating-point.
#[track_caller]
pub fn split_rows(bias: DType, d: DType, above: impl Activation, below: impl Activation) -> Result<Epilogue, Diagnostics> {
    Epilogue::build_for_caller(file!(), |e| {
        let z = e.acc() + e.load("bias", bias.over(N));
        let y = z.region(e.row().lt(e.scalar("boundary", DType::I32)), &above).otherwise(&below);
        e.store("d", y, d);
    })
}
