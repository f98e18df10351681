//! Recipes of rows: softmax, norms, losses, and the largest elements.

use crate::build::{Builder, Epilogue, Expr};
use crate::check::Diagnostics;
use crate::dtype::DType;
use crate::ir::axes::{M, N};
use crate::ir::{Monoid, Over};

/// Which elements of a row take part in a softmax.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mask {
    /// All of them.
    None,
    /// Those of columns up to the row, as in attention that sees nothing later.
    Causal,
    /// Those where a matrix `mask` of conditions holds: of `Bool`, `Bits8` or `Bits128`.
    Loaded(DType),
}

impl Mask {
    /// accumulator * scale, and minus infinity where an element takes no part.
    fn logits(self, e: &Builder) -> Expr<'_> {
        let z = e.acc() * e.scalar_or("scale", DType::F32, 1.0);
        match self {
            Mask::None => z,
            Mask::Causal => e.column().le(e.row()).select(z, f32::NEG_INFINITY),
            Mask::Loaded(format) => e.load("mask", format).select(z, f32::NEG_INFINITY),
        }
    }
}

/// D = the softmax over N of scale * accumulator, where the scalar `scale` may be left out and is 1 then: the reciprocal
/// of a temperature, or of the root of a head's width. Masked elements are 0; a row without any other is NaN.
///
/// # Errors
/// If the format is not floating-point, or the mask's holds no conditions.
#[track_caller]
pub fn softmax(mask: Mask, d: DType) -> Result<Epilogue, Diagnostics> {
    Epilogue::build_for_caller(file!(), |e| e.store("d", mask.logits(e).softmax_over(N), d))
}

/// D = the logarithm of the [`softmax`] over N of scale * accumulator. Masked elements are minus infinity.
///
/// # Errors
/// If the format is not floating-point, or the mask's holds no conditions.
#[track_caller]
pub fn log_softmax(mask: Mask, d: DType) -> Result<Epilogue, Diagnostics> {
    Epilogue::build_for_caller(file!(), |e| e.store("d", mask.logits(e).log_softmax_over(N), d))
}

/// What a norm of rows has beside its input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Norm {
    /// The format of a vector `weight` over N that multiplies the result and, of a layer or group norm, of a vector `bias`
    /// that is added to it.
    pub weights: Option<DType>,
    /// The format of a matrix `residual` that is added to the accumulator before. The sum is stored as `sum`, in the same format.
    pub residual: Option<DType>,
}

impl Norm {
    fn input(self, e: &Builder) -> Expr<'_> {
        let Some(format) = self.residual else { return e.acc() };
        let x = e.acc() + e.load("residual", format);
        e.store("sum", x, format);
        x
    }

    fn scaled<'g>(self, e: &'g Builder, x: Expr<'g>) -> Expr<'g> {
        self.weights.map_or(x, |format| x * e.load("weight", format.over(N)))
    }
}

/// The number that keeps a norm from dividing by 0; a launch may leave it out.
fn epsilon(e: &Builder, default: f32) -> Expr<'_> {
    e.scalar_or("epsilon", DType::F32, default)
}

/// D = (x - mean) / sqrt(variance + epsilon) along each row, times a weight and plus a bias if there are some. The scalar
/// `epsilon` may be left out and is 1e-5 then. Stores the mean of each row as the vector `mean`, and 1 / sqrt(variance +
/// epsilon) as `rstd`, both in `f32`.
///
/// # Errors
/// If a format is not floating-point.
#[track_caller]
pub fn layer_norm(norm: Norm, d: DType) -> Result<Epilogue, Diagnostics> {
    Epilogue::build_for_caller(file!(), |e| {
        let x = norm.input(e);
        let mean = x.mean_over(N);
        let centred = x - mean;
        let rstd = (centred.mean_square_over(N) + epsilon(e, 1e-5)).rsqrt();
        let y = norm.scaled(e, centred * rstd);
        let y = norm.weights.map_or(y, |format| y + e.load("bias", format.over(N)));
        e.store("d", y, d);
        e.store("mean", mean, DType::F32.over(M).batched());
        e.store("rstd", rstd, DType::F32.over(M).batched());
    })
}

/// D = x / sqrt(mean of squares + epsilon) along each row, times a weight if there is one. The scalar `epsilon` may be
/// left out and is 1e-6 then. Stores 1 / sqrt(mean of squares + epsilon) of each row as the vector `rstd`, in `f32`.
///
/// # Errors
/// If a format is not floating-point.
#[track_caller]
pub fn rms_norm(norm: Norm, d: DType) -> Result<Epilogue, Diagnostics> {
    Epilogue::build_for_caller(file!(), |e| {
        let x = norm.input(e);
        let rstd = (x.mean_square_over(N) + epsilon(e, 1e-6)).rsqrt();
        e.store("d", norm.scaled(e, x * rstd), d);
        e.store("rstd", rstd, DType::F32.over(M).batched());
    })
}

/// D = (x - mean) / sqrt(variance + epsilon) in each group of so many neighbouring columns, over all rows of a batch entry,
/// times a weight and plus a bias of each column if there are some. The scalar `epsilon` may be left out and is 1e-5 then.
/// Stores the mean of each column's group as the vector `mean`, and 1 / sqrt(variance + epsilon) as `rstd`, both in `f32`, for
/// each batch entry.
///
/// Images with their channels side by side are a batch of matrices: rows are pixels, and columns are channels. Groups of one
/// column are an instance norm.
///
/// ```
/// use postlude::build::recipes::{self, Norm};
/// use postlude::prelude::*;
/// // Two images of 8 x 8 pixels and 64 channels, in 32 groups of 2.
/// let norm = recipes::group_norm(2, Norm { weights: Some(F32), residual: None }, F16)?;
/// let plan = Gemm::pointwise(F16, Order::RowMajor, &norm)
///     .kernel_plan(postlude::target::Target::SM_80, 108, Shape::matrix(64, 64).batched(2))?;
/// assert!(plan.before.is_empty(), "a block holds a group of an image");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// If a format is not floating-point, or groups have no columns.
#[doc(alias = "instance_norm")]
#[track_caller]
pub fn group_norm(columns: usize, norm: Norm, d: DType) -> Result<Epilogue, Diagnostics> {
    Epilogue::build_for_caller(file!(), |e| {
        let x = norm.input(e);
        let over: Over = if columns == 1 { M.into() } else { (M | N).bands(columns) };
        let mean = x.mean_over(over);
        let centred = x - mean;
        let rstd = (centred.mean_square_over(over) + epsilon(e, 1e-5)).rsqrt();
        let y = norm.scaled(e, centred * rstd);
        let y = norm.weights.map_or(y, |format| y + e.load("bias", format.over(N)));
        e.store("d", y, d);
        e.store("mean", mean, DType::F32.over(N).batched());
        e.store("rstd", rstd, DType::F32.over(N).batched());
    })
}

/// D = accumulator / its Euclidean norm along each row, or over the scalar `epsilon` where that is larger, which may be
/// left out and is 1e-12 then.
///
/// # Errors
/// If the format is not floating-point.
#[doc(alias = "normalize")]
#[track_caller]
pub fn l2_normalize(d: DType) -> Result<Epilogue, Diagnostics> {
    Epilogue::build_for_caller(file!(), |e| {
        e.store("d", e.acc() / e.acc().norm_over(N).max(epsilon(e, 1e-12)), d);
    })
}

/// The cross-entropy of each row of logits with the class that the vector `target` of `i32` names, as the vector `loss`
/// in `f32`; and D = its gradient, (softmax - 1 at the target) * scale, where the scalar `scale` may be left out and is 1
/// then: the reciprocal of the number of rows, for a mean.
///
/// # Errors
/// If the format is not floating-point.
#[doc(alias = "nll_loss")]
#[track_caller]
pub fn cross_entropy(d: DType) -> Result<Epilogue, Diagnostics> {
    Epilogue::build_for_caller(file!(), |e| {
        let log_share = e.acc().log_softmax_over(N);
        let is_target = e.column().eq(e.load("target", DType::I32.over(M).batched()));
        e.store("loss", -is_target.select(log_share, 0.0).sum_over(N), DType::F32.over(M).batched());
        let gradient = log_share.exp() - is_target.select(1.0, 0.0);
        e.store("d", gradient * e.scalar_or("scale", DType::F32, 1.0), d);
    })
}

/// The column of the largest element of each row, as the vector `d` of `i32`: the first of equals, and of the first NaN
/// if there is one.
///
/// # Errors
/// None: it has no format to choose.
#[track_caller]
pub fn argmax() -> Result<Epilogue, Diagnostics> {
    Epilogue::build_for_caller(file!(), |e| e.reduce("d", e.acc(), Monoid::ArgMax, DType::I32.over(M).batched()))
}

/// The `k` largest elements of each row, the largest first: vectors over M, `value0`, `value1`, ... of `f32` and `index0`,
/// `index1`, ... of `i32`. See [`Expr::top_k_over`](crate::Expr::top_k_over) for equals, NaN and rows of fewer than `k`.
///
/// # Errors
/// None: it has no format to choose.
#[doc(alias = "topk")]
#[track_caller]
pub fn top_k(k: usize) -> Result<Epilogue, Diagnostics> {
    Epilogue::build_for_caller(file!(), |e| {
        let best = e.acc().top_k_over(N, k);
        for (i, (value, index)) in best.values.into_iter().zip(best.indices).enumerate() {
            e.store(&format!("value{i}"), value, DType::F32.over(M).batched());
            e.store(&format!("index{i}"), index, DType::I32.over(M).batched());
        }
    })
}

/// D = the softmax of the `k` largest elements of each row, and 0 elsewhere: the weights of a mixture of experts.
///
/// # Errors
/// If the format is not floating-point.
#[doc(alias = "Sm90TopKSoftmaxColReduction")]
#[track_caller]
pub fn top_k_softmax(k: usize, d: DType) -> Result<Epilogue, Diagnostics> {
    Epilogue::build_for_caller(file!(), |e| {
        let selected = e.acc().top_k_over(N, k).selected;
        e.store("d", selected.select(e.acc(), f32::NEG_INFINITY).softmax_over(N), d);
    })
}

/// The first of two epilogues that take an RMS norm across two products: D = accumulator, and the mean of squares of each row
/// as the vector `mean_square` of `f32`, so that no pass over D stands between the products.
///
/// The second product reads D as A and ends with [`rms_scaled`]. The norm's weight is folded into its B: row k of B times
/// weight k.
///
/// # Errors
/// If the format is not floating-point.
#[track_caller]
pub fn mean_squares(d: DType) -> Result<Epilogue, Diagnostics> {
    Epilogue::build_for_caller(file!(), |e| {
        e.store("d", e.acc(), d);
        e.reduce("mean_square", e.acc() * e.acc(), Monoid::Mean, DType::F32.over(M).batched());
    })
}

/// The second of two epilogues that take an RMS norm across two products: D = accumulator / sqrt(`mean_square` + epsilon),
/// where [`mean_squares`] left the vector. The scalar `epsilon` may be left out and is 1e-6 then.
///
/// ```
/// use postlude::build::recipes;
/// use postlude::prelude::*;
/// let (x, w1, w2) = ([1.0f32, 2.0], [3.0f32, 0.0, 0.0, 2.0], [1.0f32, 1.0]); // 1x2, 2x2, 2x1
/// let (mut y, mut mean_square, mut d) = ([0.0f32; 2], [0.0f32], [0.0f32]);
/// let args = HostArgs::new().input("a", &x).input("b", &w1).output("d", &mut y).output("mean_square", &mut mean_square);
/// Gemm::new(F32, TT, &recipes::mean_squares(F32)?).reference(Shape::new(1, 2, 2), args)?;
/// let args = HostArgs::new().input("a", &y).input("b", &w2).input("mean_square", &mean_square).output("d", &mut d);
/// Gemm::new(F32, TT, &recipes::rms_scaled(F32)?).reference(Shape::new(1, 1, 2), args)?;
/// assert!((d[0] - 7.0 / 12.5f32.sqrt()).abs() < 1e-5); // (3 + 4) over the root of (9 + 16) / 2
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// If the format is not floating-point.
#[track_caller]
pub fn rms_scaled(d: DType) -> Result<Epilogue, Diagnostics> {
    Epilogue::build_for_caller(file!(), |e| {
        let rstd = (e.load("mean_square", DType::F32.over(M).batched()) + epsilon(e, 1e-6)).rsqrt();
        e.store("d", e.acc() * rstd, d);
    })
}
