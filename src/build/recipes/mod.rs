//! Recipes: frequent epilogues as plain functions without privileges. They are also examples of how to write your own.
//!
//! Every recipe stores its result as `d` in the given format. A format that a recipe does not support is reported at
//! the call of the recipe.

mod rows;

pub use rows::*;

use super::epilogue::Epilogue;
use super::expr::{Builder, Expr};
use crate::check::Diagnostics;
use crate::dtype::DType;
use crate::ir::axes::{M, N};
use crate::ir::{Monoid, Operand};
use std::ops::Neg;

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

/// D = relu(batch norm of the accumulator), with `f32` vectors `mean`, `variance`, `gain` and `shift` over N: see
/// [`Expr::batch_norm`]. Behind a [`Conv`](crate::Conv) these are its output channels. Where the filters may change,
/// [`BatchNorm::fold`](super::BatchNorm::fold) them and use [`bias_activation`], which reads one vector.
///
/// # Errors
/// If the format is not floating-point.
#[track_caller]
pub fn conv_bn_relu(epsilon: f32, d: DType) -> Result<Epilogue, Diagnostics> {
    Epilogue::build_for_caller(file!(), |e| e.store("d", batch_norm(e, epsilon).relu(), d))
}

/// D = relu(batch norm of the accumulator + residual): [`conv_bn_relu`] with a matrix `residual` in the format of D, the
/// end of a residual block.
///
/// # Errors
/// If the format is not floating-point.
#[track_caller]
pub fn conv_bn_add_relu(epsilon: f32, d: DType) -> Result<Epilogue, Diagnostics> {
    Epilogue::build_for_caller(file!(), |e| e.store("d", (batch_norm(e, epsilon) + e.load("residual", d)).relu(), d))
}

fn batch_norm(e: &Builder, epsilon: f32) -> Expr<'_> {
    let [mean, variance, gain, shift] = ["mean", "variance", "gain", "shift"].map(|name| e.load(name, DType::F32.over(N)));
    e.acc().batch_norm(mean, variance, gain, shift, epsilon)
}

/// D = row_scale * accumulator * column_scale, with `f32` vectors `row_scale` over M and `column_scale` over N: the
/// dequantisation of a product whose operands were scaled per row and per column. [`scaled_mm`] and [`w8a8`] have the
/// arguments that products of eight bits have in other libraries.
///
/// # Errors
/// If the format is not floating-point.
#[track_caller]
pub fn scaled(d: DType) -> Result<Epilogue, Diagnostics> {
    Epilogue::build_for_caller(file!(), |e| {
        let (rows, columns) = (e.load("row_scale", DType::F32.over(M)), e.load("column_scale", DType::F32.over(N)));
        e.store("d", e.acc() * rows * columns, d);
    })
}

/// D = accumulator * (scale_a * scale_b) + bias, PyTorch's `_scaled_mm` and cuBLASLt's product of fp8: the scales are
/// those by which A and B were divided. Each is one number by device pointer (`F32.pointer()`) or a vector, `scale_a`
/// over M and `scale_b` over N.
///
/// A launch may leave out `bias`, a vector over N, which is then 0. Where D has eight bits it is multiplied by
/// `scale_result`, one number by device pointer, which is 1 if it is left out; and it saturates, where PyTorch's own
/// conversion does not.
///
/// ```
/// use postlude::build::recipes;
/// use postlude::float8::F8E4M3;
/// use postlude::prelude::*;
/// let by_rows = recipes::scaled_mm(F32.over(M), F32.over(N), BF16, F32)?;
/// let [a, b] = [[2.0, -1.0], [0.5, 4.0]].map(|x| x.map(F8E4M3::from_f32));
/// let mut d = [0.0f32];
/// let args = HostArgs::new().input("a", &a).input("b", &b).output("d", &mut d);
/// let args = args.input("scale_a", &[0.5f32]).input("scale_b", &[2.0f32]);
/// Gemm::new(E4M3, TN, &by_rows).reference(Shape::new(1, 1, 2), args)?;
/// assert_eq!(d, [-3.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// If a format is not floating-point, or a scale varies along another axis.
#[doc(alias = "_scaled_mm")]
#[track_caller]
pub fn scaled_mm(
    scale_a: impl Into<Operand>,
    scale_b: impl Into<Operand>,
    bias: DType,
    d: DType,
) -> Result<Epilogue, Diagnostics> {
    let scales = [scale_a.into(), scale_b.into()];
    Epilogue::build_for_caller(file!(), |e| store_scaled(e, e.acc(), scales, bias, d))
}

/// D = accumulator * (scale_a * scale_b) + bias for a product of 8-bit integers, whose accumulator is an `i32`; arguments
/// as [`scaled_mm`] has them. vLLM's epilogue of weights and activations of eight bits, both quantised without a zero
/// point.
///
/// # Errors
/// If a scale, the bias or the result is not floating-point (an 8-bit integer result is: its store rounds), or a scale varies
/// along another axis.
#[doc(alias = "cutlass_scaled_mm")]
#[track_caller]
pub fn w8a8(scale_a: impl Into<Operand>, scale_b: impl Into<Operand>, bias: DType, d: DType) -> Result<Epilogue, Diagnostics> {
    let scales = [scale_a.into(), scale_b.into()];
    Epilogue::build_for_caller(file!(), |e| store_scaled(e, e.acc_i32().cast(DType::F32), scales, bias, d))
}

/// [`w8a8`] for activations that have a zero point: D = (accumulator - zero_point * column_sums) * (scale_a * scale_b) + bias.
///
/// `zero_point` is what stands for 0 in A: `I32.pointer()` for all of it, or `I32.over(M)` for each row. `column_sums`
/// are the sums of B over K, a vector of `I32` over N. They are a constant of the weights: a product with
/// `e.reduce("column_sums", e.b_i32(), Monoid::Sum, I32.over(N))` leaves them. The difference is exact, in integers. With
/// a zero point of all of A these subtract from a column, not from each element.
///
/// # Errors
/// As `w8a8`, or if the zero point is not an integer.
#[doc(alias = "cutlass_scaled_mm_azp")]
#[track_caller]
pub fn w8a8_asymmetric(
    scale_a: impl Into<Operand>,
    scale_b: impl Into<Operand>,
    zero_point: impl Into<Operand>,
    bias: DType,
    d: DType,
) -> Result<Epilogue, Diagnostics> {
    let (scales, zero_point) = ([scale_a.into(), scale_b.into()], zero_point.into());
    Epilogue::build_for_caller(file!(), |e| {
        let moved = e.load("zero_point", zero_point) * e.load("column_sums", DType::I32.over(N));
        store_scaled(e, (e.acc_i32() - moved).cast(DType::F32), scales, bias, d);
    })
}

/// What products of eight bits have in common, from their sums on.
fn store_scaled<'g>(e: &'g Builder, z: Expr<'g>, [scale_a, scale_b]: [Operand; 2], bias: DType, d: DType) {
    // The scales first: what does not vary along both axes is not computed for each element.
    let z = z * (e.load("scale_a", scale_a) * e.load("scale_b", scale_b)) + e.load_or("bias", bias.over(N), 0.0);
    let z = if d.is_eight_bits() { z * e.load_or("scale_result", DType::F32.pointer(), 1.0) } else { z };
    e.store("d", z, d);
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

/// Quantisation by a given scale: D = accumulator / `d_scale`, an `f32` in memory. The largest magnitude of the accumulator is
/// `d_amax`, from which [`delayed_scale`] makes the scale of the next step. A format of eight bits saturates.
///
/// # Errors
/// If the format holds conditions or is an integer of 32 bits.
#[track_caller]
pub fn quantize(d: DType) -> Result<Epilogue, Diagnostics> {
    Epilogue::build_for_caller(file!(), |e| {
        e.store("d", e.acc() / e.load("d_scale", DType::F32.pointer()), d);
        e.reduce("d_amax", e.acc(), Monoid::AbsMax, DType::F32.pointer());
    })
}

/// Dynamic quantisation: D = accumulator / scale, where the scale of a row is its largest absolute value over the format's
/// largest number, or 1 if the row is 0. Stores the scales as the vector `row_scale` in `f32`, as [`scaled`] and
/// [`scaled_mm`] read it.
///
/// `I8` takes the integers from -127 to 127, and so does a wider floating-point format, in which they are exact. `E4M3`
/// reaches 448, `E5M2` 57344. `U8` reaches 255, and negative numbers become 0.
///
/// # Errors
/// If the format is `I32`, or holds conditions.
#[doc(alias = "dynamic_quantize")]
#[track_caller]
pub fn quantize_rows(d: DType) -> Result<Epilogue, Diagnostics> {
    Epilogue::build_for_caller(file!(), |e| {
        let largest = e.acc().absmax_over(N);
        let most = if d.is_eight_bits() { d.round(f64::MAX) as f32 } else { 127.0 };
        let scale = largest.gt(0.0).select(largest / most, 1.0);
        let quotient = e.acc() / scale;
        // A store of eight bits rounds and saturates by itself.
        e.store("d", if d.is_eight_bits() { quotient } else { quotient.round().clamp(-127.0, 127.0) }, d);
        e.store("row_scale", scale, DType::F32.over(M).batched());
    })
}

/// Delayed scaling, as Transformer Engine has it: the scale of the next step from the largest magnitudes of the last ones.
///
/// A pointwise operation over the history, a matrix of `f32` whose rows are tensors and whose columns are steps. The scale
/// maps the largest of a row to the format's largest number, over two to the power of `margin`. `scale` divides, as in
/// [`Expr::quantize`], and `inverse` multiplies, as cuBLASLt's D scale does; both are vectors over M. A history of zeros
/// gives 1. Steps whose largest magnitude is infinite or NaN do not count.
///
/// The history is a ring. Let the product of step t reduce its `amax` into column t modulo the length, with
/// [`Monoid::AbsMax`] and [`pointer`](DType::pointer) as its operand.
///
/// ```
/// use postlude::build::recipes;
/// use postlude::prelude::*;
/// let history = [0.5f32, 2.0, f32::INFINITY, 1.0]; // of one tensor
/// let (mut scale, mut inverse) = ([0.0f32], [0.0f32]);
/// let args = HostArgs::new().input("a", &history).output("scale", &mut scale).output("inverse", &mut inverse);
/// Gemm::pointwise(F32, Order::RowMajor, &recipes::delayed_scale(E4M3, 0)?).reference(Shape::matrix(1, 4), args)?;
/// assert_eq!((scale, inverse), ([2.0 / 448.0], [224.0]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// None, whatever the format.
#[track_caller]
pub fn delayed_scale(format: DType, margin: i8) -> Result<Epilogue, Diagnostics> {
    Epilogue::build_for_caller(file!(), |e| {
        let most = format.round(f64::from(f32::MAX)) as f32 * f32::from(margin).neg().exp2();
        let largest = e.acc().is_finite().select(e.acc(), 0.0).absmax_over(N);
        let held = largest.gt(0.0);
        e.store("scale", held.select(largest / most, 1.0), DType::F32.over(M).batched());
        e.store("inverse", held.select(most / largest, 1.0), DType::F32.over(M).batched());
    })
}

/// NHWC images `y` of NCHW images `x`, on a device: for [`Gemm::pointwise`](crate::Gemm::pointwise) over H W rows, C columns and
/// a batch of images. Filters from OIHW to KRSC are the same, with filters as the batch and taps as the rows.
///
/// ```
/// use postlude::build::recipes;
/// use postlude::prelude::*;
/// let (planes, mut pixels) = ([1.0f32, 2.0, 3.0, 4.0, 10.0, 20.0, 30.0, 40.0], [0.0f32; 8]);
/// let gemm = Gemm::pointwise(F32, Order::RowMajor, &recipes::nchw_to_nhwc(F32)?);
/// let (n, c, h, w) = (1, 2, 2, 2);
/// gemm.reference(Shape::matrix(h * w, c).batched(n), HostArgs::new().input("x", &planes).output("y", &mut pixels))?;
/// assert_eq!(pixels, [1.0, 10.0, 2.0, 20.0, 3.0, 30.0, 4.0, 40.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// If the format cannot be loaded.
#[track_caller]
pub fn nchw_to_nhwc(dtype: DType) -> Result<Epilogue, Diagnostics> {
    Epilogue::build(|e| e.store("y", e.load("x", dtype.column_major()), dtype))
}

/// NCHW images `y` of NHWC images `x`, on a device, as [`nchw_to_nhwc`].
///
/// # Errors
/// If the format cannot be loaded.
#[track_caller]
pub fn nhwc_to_nchw(dtype: DType) -> Result<Epilogue, Diagnostics> {
    Epilogue::build(|e| e.store("y", e.load("x", dtype), dtype.column_major()))
}
