//! Batch norm of inference: as values of an epilogue, and folded into the filters and bias of a convolution.

use super::expr::Expr;
use super::into::IntoExpr;
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
