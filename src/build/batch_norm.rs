//! Batch norm: of inference, as values of an epilogue or folded into the filters and bias of a convolution; and of training, as
//! the epilogues of its passes.

use super::epilogue::Epilogue;
use super::expr::{Builder, Expr};
use super::into::IntoExpr;
use crate::check::Diagnostics;
use crate::dtype::DType::{self, F32};
use crate::ir::Monoid;
use crate::ir::axes::N;
use std::panic::Location;

impl<'g> Expr<'g> {
    /// Batch norm with known statistics: `(x - mean) / sqrt(variance + epsilon) * gain + shift`. ONNX's `BatchNormalization`.
    ///
    /// Behind a convolution or a linear layer the four are vectors over N. What depends on N alone is computed once for
    /// each column of a tile, not for each element.
    ///
    /// ```
    /// # use postlude::prelude::*;
    /// let epilogue = Epilogue::build(|e| {
    ///     let [mean, variance, gain, shift] = ["mean", "variance", "gain", "shift"].map(|name| e.load(name, F32.over(N)));
    ///     e.store("d", e.acc().batch_norm(mean, variance, gain, shift, 1e-5).relu(), F16);
    /// })?;
    /// # assert_eq!(epilogue.arguments().len(), 5);
    /// # Ok::<(), postlude::Diagnostics>(())
    /// ```
    #[doc(alias = "BatchNormalization")]
    #[doc(alias = "BatchNorm2d")]
    #[track_caller]
    pub fn batch_norm(
        self,
        mean: impl IntoExpr<'g>,
        variance: impl IntoExpr<'g>,
        gain: impl IntoExpr<'g>,
        shift: impl IntoExpr<'g>,
        epsilon: f32,
    ) -> Expr<'g> {
        let at = Location::caller();
        let (mean, variance) = (mean.into_expr(self.builder, at), variance.into_expr(self.builder, at));
        let (gain, shift) = (gain.into_expr(self.builder, at), shift.into_expr(self.builder, at));
        (self - mean) * (gain * (variance + epsilon).rsqrt()) + shift
    }
}

/// The statistics and parameters of a batch norm of inference, one number of each for every output channel.
///
/// ```
/// use postlude::build::BatchNorm;
/// let norm = BatchNorm { mean: &[1.0, 0.0], variance: &[4.0, 1.0], gain: &[2.0, 3.0], shift: &[0.5, 0.0], epsilon: 0.0 };
/// let (mut filters, mut bias) = ([1.0f32, 2.0, 3.0, 4.0], [0.0f32, 1.0]);
/// norm.fold(&mut filters, &mut bias)?;
/// assert_eq!((filters, bias), ([1.0, 2.0, 9.0, 12.0], [-0.5, 3.0]));
/// # Ok::<(), postlude::build::FoldError>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct BatchNorm<'a> {
    /// The mean of each channel.
    pub mean: &'a [f32],
    /// The variance of each channel.
    pub variance: &'a [f32],
    /// What a normalised channel is multiplied by (`weight`, gamma).
    pub gain: &'a [f32],
    /// What is added to it (`bias`, beta).
    pub shift: &'a [f32],
    /// What is added to the variance.
    pub epsilon: f32,
}

/// Why a batch norm does not fold.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FoldError {
    /// Not one number for each channel.
    #[error("`{name}` has {got} elements, and there are {channels} channels: pass one for each")]
    Length {
        /// What it is.
        name: &'static str,
        /// Its elements.
        got: usize,
        /// Output channels: elements of the bias.
        channels: usize,
    },
    /// Filters that are not equally long.
    #[error("{got} elements are not {channels} filters of one length: a filter has the same taps and channels as the others")]
    Filters {
        /// Elements of all filters.
        got: usize,
        /// How many filters there are: elements of the bias.
        channels: usize,
    },
}

impl BatchNorm<'_> {
    /// Changes filters and bias so that they do what they did, and then the norm. Filter after filter, as in KRSC (or in a
    /// linear layer's weights, N x K).
    ///
    /// Each product is computed in `f32`, the factor of a channel in `f64`. Round the filters to 16 bits afterwards, not
    /// before: the folded ones are then rounded once.
    ///
    /// # Errors
    /// If a vector does not have a number for each channel, or the filters are not equally long. Nothing is changed then.
    pub fn fold(&self, filters: &mut [f32], bias: &mut [f32]) -> Result<(), FoldError> {
        let channels = bias.len();
        let BatchNorm { mean, variance, gain, shift, epsilon } = *self;
        for (name, given) in [("mean", mean), ("variance", variance), ("gain", gain), ("shift", shift)] {
            if given.len() != channels {
                return Err(FoldError::Length { name, got: given.len(), channels });
            }
        }
        if channels == 0 || !filters.len().is_multiple_of(channels) {
            let got = filters.len();
            return if channels == 0 && got == 0 { Ok(()) } else { Err(FoldError::Filters { got, channels }) };
        }
        let of_filter = filters.len() / channels;
        for (channel, bias) in bias.iter_mut().enumerate() {
            let factor = f64::from(gain[channel]) / (f64::from(variance[channel]) + f64::from(epsilon)).sqrt();
            for tap in &mut filters[channel * of_filter..][..of_filter] {
                *tap *= factor as f32;
            }
            *bias = ((f64::from(*bias) - f64::from(mean[channel])) * factor + f64::from(shift[channel])) as f32;
        }
        Ok(())
    }
}

/// Batch norm of training: the epilogues of its passes. The statistics are taken in the kernel of the convolution (or of the
/// product), whose tiles have the values anyway.
///
/// | pass | operation | reads | writes |
/// | --- | --- | --- | --- |
/// | [`statistics`](BatchNormTraining::statistics) | the convolution | `running_mean` | `z`, `sums`, `squares` |
/// | [`finish`](BatchNormTraining::finish) | pointwise, over `Shape::matrix(1, channels)` | `sums`, `squares` | `mean`, `variance`; `running_mean` and `running_variance` in place |
/// | [`normalise`](BatchNormTraining::normalise) | pointwise, over all pixels | `z`, `mean`, `variance`, `gain`, `shift` | `d` |
/// | its [`backward`](Epilogue::backward) by `z`, `gain` and `shift` | pointwise over dD, or the product that computes dD | the same | `grad_z`, `grad_gain`, `grad_shift` |
/// | [`correct`](BatchNormTraining::correct) | pointwise, over all pixels | `z`, `mean`, `variance`, `gain`, `grad_gain`, `grad_shift` | `grad_z` in place |
///
/// The backward pass of `normalise` takes mean and variance as given. `correct` subtracts what came in through them. Only then
/// `grad_z` is the gradient of Z.
///
/// Sums are of differences from the running mean, so that a mean far from 0 does not cancel the variance's digits.
///
/// ```
/// use postlude::build::BatchNormTraining;
/// use postlude::ir::Order;
/// use postlude::prelude::*;
/// // Four pixels of one channel, from a product with the number 1.
/// let norm = BatchNormTraining { count: 4, epsilon: 0.0, momentum: 0.5 };
/// let (x, one, running) = ([1.0f32, 2.0, 3.0, 6.0], [1.0f32], [0.0f32]);
/// let (mut z, mut sums, mut squares) = ([0.0f32; 4], [0.0f32], [0.0f32]);
/// let args = HostArgs::new().input("a", &x).input("b", &one).input("running_mean", &running);
/// let args = args.output("z", &mut z).output("sums", &mut sums).output("squares", &mut squares);
/// Gemm::new(F32, TN, &norm.statistics(F32)?).reference(Shape::new(4, 1, 1), args)?;
///
/// let pass = |epilogue: &Epilogue| Gemm::pointwise(F32, Order::RowMajor, epilogue);
/// let (mut mean, mut variance, mut running_mean, mut running_variance) = ([0.0f32], [0.0f32], running, [1.0f32]);
/// let args = HostArgs::new().input("sums", &sums).input("squares", &squares).output("mean", &mut mean);
/// let args = args.output("variance", &mut variance).output("running_mean", &mut running_mean);
/// pass(&norm.finish()?).reference(Shape::matrix(1, 1), args.output("running_variance", &mut running_variance))?;
/// assert_eq!((mean, variance, running_mean), ([3.0], [3.5], [1.5]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias = "BatchNorm2d")]
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BatchNormTraining {
    /// Values of a channel: pixels of all images.
    pub count: usize,
    /// What is added to the variance.
    pub epsilon: f32,
    /// The share of this batch in the running statistics.
    pub momentum: f32,
}

impl BatchNormTraining {
    /// Z = accumulator, and of each channel the sum and the sum of squares of its distance from the running mean.
    ///
    /// # Errors
    /// If the format is not floating-point.
    #[track_caller]
    pub fn statistics(&self, z: DType) -> Result<Epilogue, Diagnostics> {
        Epilogue::build_for_caller(file!(), |e| {
            let distance = e.acc() - e.load("running_mean", F32.over(N));
            e.store("z", e.acc(), z);
            e.reduce("sums", distance, Monoid::Sum, F32.over(N));
            e.reduce("squares", distance * distance, Monoid::Sum, F32.over(N));
        })
    }

    /// Mean and variance of each channel from the sums, and the running statistics in place. As in other libraries the
    /// variance divides by the count, and the running variance by one less.
    ///
    /// # Errors
    /// Never.
    #[track_caller]
    pub fn finish(&self) -> Result<Epilogue, Diagnostics> {
        let (share, momentum) = (1.0 / self.count.max(1) as f32, self.momentum);
        let unbiased = self.count as f32 / self.count.saturating_sub(1).max(1) as f32;
        Epilogue::build_for_caller(file!(), |e| {
            let (running_mean, running_variance) = (e.load("running_mean", F32), e.load("running_variance", F32));
            let distance = e.load("sums", F32) * share;
            let (mean, variance) = (running_mean + distance, (e.load("squares", F32) * share - distance * distance).max(0.0));
            e.store("mean", mean, F32);
            e.store("variance", variance, F32);
            e.store("running_mean", running_mean + distance * momentum, F32);
            e.store("running_variance", running_variance + (variance * unbiased - running_variance) * momentum, F32);
        })
    }

    /// D = f(batch norm of Z), where Z and D have one format. `f` may load matrices of its own, such as a residual.
    ///
    /// # Errors
    /// If `f` makes an invalid graph, or the format is not floating-point.
    #[track_caller]
    pub fn normalise(
        &self,
        dtype: DType,
        f: impl for<'g> FnOnce(&'g Builder, Expr<'g>) -> Expr<'g>,
    ) -> Result<Epilogue, Diagnostics> {
        Epilogue::build_for_caller(file!(), |e| {
            let [mean, variance, gain, shift] = ["mean", "variance", "gain", "shift"].map(|name| e.load(name, F32.over(N)));
            e.store("d", f(e, e.load("z", dtype).batch_norm(mean, variance, gain, shift, self.epsilon)), dtype);
        })
    }

    /// Subtracts from `grad_z`, in the format of Z, what a change of Z does to mean and variance.
    ///
    /// # Errors
    /// If the format is not floating-point.
    #[track_caller]
    pub fn correct(&self, dtype: DType) -> Result<Epilogue, Diagnostics> {
        let share = 1.0 / self.count.max(1) as f32;
        Epilogue::build_for_caller(file!(), |e| {
            let vector = |name| e.load(name, F32.over(N));
            let scale = (vector("variance") + self.epsilon).rsqrt();
            let normal = (e.load("z", dtype) - vector("mean")) * scale;
            let through = vector("grad_shift") + normal * vector("grad_gain");
            e.store("grad_z", e.load("grad_z", dtype) - through * (vector("gain") * scale * share), dtype);
        })
    }
}
