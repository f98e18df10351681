//! Calibration: from the magnitudes that a tensor has to the scale of its 8-bit format.
//!
//! A [`Histogram`] counts magnitudes, on the host or in an epilogue ([`Builder::histogram`](crate::Builder::histogram)). A
//! [`Method`] chooses the threshold |T| beyond which values saturate. The scale maps the threshold to the format's largest
//! number. Activations usually gain from a threshold below their maximum. Weights do not: use [`Method::Max`] for them.
//!
//! ```
//! use postlude::calibrate::{Histogram, Method};
//! use postlude::prelude::*;
//! // Many values are small, and one is twice as large.
//! let mut x: Vec<f32> = (0..200_000).map(|i| (i * 7919 % 20_011) as f32 / 20_011.0 - 0.5).collect();
//! x[77] = 1.0;
//! let histogram = Histogram::of(&x, Histogram::BINS)?;
//! let [all, most] = [Method::Max, Method::MeanSquaredError].map(|method| histogram.calibrate(method, I8));
//! let (all, most) = (all?, most?);
//! assert_eq!(all.threshold, 1.0);
//! // Without the one the steps are half as wide, and the ratio of signal to noise is larger.
//! assert!(most.threshold < 0.6 && most.clipped < 0.01 && most.noise > all.noise + 2.0);
//! assert_eq!(most.quantize(&[0.0, most.scale, 1.0]), [0, 1, 127]);
//! # Ok::<(), postlude::calibrate::CalibrationError>(())
//! ```

mod entropy;
mod histogram;
mod picture;
mod store;

pub use histogram::Histogram;
pub use store::Calibrations;

use crate::dtype::DType;
use serde::{Deserialize, Serialize};

/// How a threshold is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Method {
    /// The largest magnitude: nothing saturates.
    Max,
    /// The least threshold that this share of the elements, in percent, does not exceed: 99.99 is common.
    Percentile(f64),
    /// The threshold with the least mean squared difference between values and their quantised forms.
    MeanSquaredError,
    /// The threshold whose quantised histogram has the least Kullback-Leibler divergence from the histogram itself. This is
    /// TensorRT's calibration, and is defined for integers.
    #[doc(alias = "KL")]
    Entropy,
}

/// The scale of a tensor, or of one channel of it, and what it costs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Calibration {
    /// The format that values are quantised to.
    pub format: DType,
    /// How the threshold was chosen.
    pub method: Method,
    /// The magnitude beyond which values saturate.
    pub threshold: f32,
    /// The real number that 1 of the format stands for: the threshold over the format's largest number, or 1 if all values
    /// are 0. [`Expr::quantize`](crate::Expr::quantize) divides by it.
    pub scale: f32,
    /// The largest magnitude that occurred, to the width of a bin.
    pub largest: f32,
    /// How many values were seen.
    pub elements: u64,
    /// The share of them that saturates.
    pub clipped: f64,
    /// The signal-to-noise ratio of the quantised values in dB, as the histogram knows it.
    pub noise: f64,
}

impl Calibration {
    /// Quantises values: divided by the scale, and stored as a kernel stores them. They saturate beyond the threshold.
    pub fn quantize(&self, values: &[f32]) -> Vec<u8> {
        let mut bytes = vec![0; values.len()];
        for (index, value) in values.iter().enumerate() {
            self.format.write(&mut bytes, index, f64::from(value / self.scale));
        }
        bytes
    }
}

/// Why a calibration or its histogram failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CalibrationError {
    /// A format that has more than eight bits, or bits alone.
    #[error("{0} is not a format of eight bits: calibrate for I8, U8, E4M3 or E5M2")]
    Format(DType),
    /// A method that is not defined for a format.
    #[error("the entropy of a histogram with {0} levels is not defined: use `Method::MeanSquaredError` for {0}")]
    Entropy(DType),
    /// Not a share of elements.
    #[error("{0} is not a percentile: give a number above 0 and up to 100, such as 99.99")]
    Percentile(f64),
    /// Too few bins.
    #[error("a histogram of {got} bins is too coarse: it needs at least {least}")]
    Bins {
        /// How many there are.
        got: usize,
        /// How many it needs.
        least: usize,
    },
    /// Not a range.
    #[error("the range {0} is not a positive number: give the largest magnitude that is expected")]
    Range(f32),
    /// A count below zero: it has overflowed.
    #[error("bin {bin} holds {count} elements: an `i32` has overflowed; read and clear the counts more often")]
    Overflow {
        /// Which bin.
        bin: usize,
        /// What it holds.
        count: i32,
    },
    /// Elements beyond the histogram's range, where their magnitudes are not known.
    #[error(
        "{count} elements are larger than {range}, the histogram's range: take the largest magnitude as the range, or a \
             percentile that leaves them out"
    )]
    Beyond {
        /// How many.
        count: u64,
        /// The range.
        range: f64,
    },
    /// Two histograms with different bins.
    #[error("{bins} bins up to {range} cannot be added to {others} bins up to {to}: count both with the same range")]
    Merge {
        /// Bins of the one that is added.
        bins: usize,
        /// Its range.
        range: f64,
        /// Bins of the other.
        others: usize,
        /// Its range.
        to: f64,
    },
    /// A document that is not a record of calibrations.
    #[error("this is not a record of calibrations: {0}")]
    Document(#[from] serde_json::Error),
    /// A record with a number that no calibration has.
    #[error("`{name}` has a {what} of {got}: it was not written by this library, or was changed")]
    Number {
        /// The tensor.
        name: String,
        /// Which number.
        what: &'static str,
        /// Its value.
        got: f64,
    },
}

/// The largest number of a format, which a threshold is mapped to.
fn largest(format: DType) -> Result<f64, CalibrationError> {
    if format.is_eight_bits() { Ok(format.round(f64::MAX)) } else { Err(CalibrationError::Format(format)) }
}
