//! Weights of eight or four bits: quantising and packing them on the host, as a product reads them.
//!
//! A product of 16-bit activations and such weights widens them on the way to the tensor cores, so what is read are their few
//! bits ([`Gemm::grouped_weights`](crate::Gemm::grouped_weights)).

use crate::dtype::DType;
use crate::problem::Blocks;

/// Why weights cannot be quantised.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WeightsError {
    /// A format of no weights.
    #[error("weights of {0} are not quantised: use i4, u4, i8, u8, e4m3 or e5m2")]
    Format(DType),
    /// Blocks that break a rule.
    #[error("weights in blocks of {blocks}: {rule}")]
    Blocks {
        /// The blocks.
        blocks: Blocks,
        /// The rule that they break.
        rule: &'static str,
    },
    /// Another number of elements than the extents say.
    #[error("{n} x {k} weights are {} elements, and {got} were given", n * k)]
    Length {
        /// Columns of B.
        n: usize,
        /// Elements of K.
        k: usize,
        /// The number of elements.
        got: usize,
    },
    /// An infinity or a NaN.
    #[error("the weight of column {column} at element {term} of K is {value}: only finite weights have a scale")]
    NotFinite {
        /// Its column of B.
        column: usize,
        /// Its element of K.
        term: usize,
        /// Its value, as text.
        value: String,
    },
}

/// Quantised weights, as a launch takes them: each field is the bytes of an argument.
///
/// ```
/// use postlude::prelude::*;
/// use postlude::weights::{QuantizedWeights, quantize_weights};
/// use postlude::{Blocks, Tensor};
/// // Two columns of B, each of 64 elements of K, in groups of 32.
/// let weights: Vec<f32> = (0..128).map(|i| (i % 15) as f32 * 0.25 - 1.75).collect();
/// let blocks = Blocks::groups(32);
/// let QuantizedWeights { b, b_scale, .. } = quantize_weights(&weights, [2, 64], I4, blocks)?;
/// assert_eq!((b.len(), b_scale.len()), (2 * 64 / 2, 2 * 2 * 4));
/// let epilogue = Epilogue::build(|e| e.store("d", e.acc(), F32))?;
/// let (x, mut d) = ([postlude::half::f16::ONE; 64], [0.0f32; 2]);
/// let args = HostArgs::new().input("a", &x).input("b", Tensor::of_bytes(I4, &b));
/// let args = args.input("b_scale", Tensor::of_bytes(F32, &b_scale)).output("d", &mut d);
/// Gemm::grouped_weights(F16, I4, TN, blocks, &epilogue).reference(Shape::new(1, 2, 64), args)?;
/// assert_eq!(d, [weights[..64].iter().sum::<f32>(), weights[64..].iter().sum()]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuantizedWeights {
    /// N lines of K elements. Two elements of four bits share a byte: the even one has the lower half. A line begins with a new
    /// byte.
    pub b: Vec<u8>,
    /// The scales, in the order and format of the blocks.
    pub b_scale: Vec<u8>,
    /// The zero points, if the blocks have any, in the same order.
    pub b_zero: Vec<u8>,
}

/// The least and the largest number that quantised weights use.
fn range(dtype: DType) -> Option<(f64, f64)> {
    let narrow = dtype.is_eight_bits() || dtype.is_four_bits();
    narrow.then(|| (dtype.round(f64::MIN), dtype.round(f64::MAX)))
}

/// Quantises the N x K weights of a linear layer, K contiguous.
///
/// - Without zero points a block's scale maps its largest magnitude to the largest number of the format. Unsigned formats
///   stand for positive numbers alone, so negative weights become 0.
/// - With zero points it maps the block's range, with 0 in it, to the whole range of the format, and 0 to an integer.
///
/// The scale is rounded to its format first, and the weights are divided by what it then is. A block of zeros has scale 1.
///
/// # Errors
/// If the format has no such weights, blocks and format do not go together, or a weight is not finite.
pub fn quantize_weights(
    weights: &[f32],
    [n, k]: [usize; 2],
    dtype: DType,
    blocks: Blocks,
) -> Result<QuantizedWeights, WeightsError> {
    let (least, most) = range(dtype).ok_or(WeightsError::Format(dtype))?;
    if let Some(rule) = blocks.broken_rule(dtype) {
        return Err(WeightsError::Blocks { blocks, rule });
    }
    if n.checked_mul(k) != Some(weights.len()) {
        return Err(WeightsError::Length { n, k, got: weights.len() });
    }
    if let Some(at) = weights.iter().position(|x| !x.is_finite()) {
        return Err(WeightsError::NotFinite { column: at / k, term: at % k, value: weights[at].to_string() });
    }
    let ([across, along], ld) = (blocks.counts(n, k), k.next_multiple_of(dtype.run()));
    let zero_format = Blocks::zero_format(dtype);
    let mut out = QuantizedWeights {
        b: vec![0; dtype.bytes(n * ld)],
        b_scale: vec![0; blocks.dtype.bytes(across * along)],
        b_zero: vec![0; if blocks.zero_points { zero_format.bytes(across * along) } else { 0 }],
    };
    for line in 0..across {
        for block in 0..along {
            let lines = line * blocks.lines..n.min((line + 1) * blocks.lines);
            let terms = block * blocks.terms..k.min((block + 1) * blocks.terms);
            let places = || lines.clone().flat_map(|column| terms.clone().map(move |term| (column, term)));
            let (mut low, mut high) = (0.0f64, 0.0f64);
            for (column, term) in places() {
                let x = f64::from(weights[column * k + term]);
                (low, high) = (low.min(x), high.max(x));
            }
            let wanted = match (blocks.zero_points, least < 0.0) {
                (true, _) => (high - low) / (most - least),
                (false, true) => (-low).max(high) / most,
                (false, false) => high / most,
            };
            let scale = blocks.dtype.round(wanted);
            let scale = if scale > 0.0 && scale.is_finite() { scale } else { 1.0 };
            let zero = if blocks.zero_points { (least - low / scale).round_ties_even().clamp(least, most) } else { 0.0 };
            let at = if blocks.lines_contiguous() { block * across + line } else { line * along + block };
            blocks.dtype.write(&mut out.b_scale, at, scale);
            if blocks.zero_points {
                zero_format.write(&mut out.b_zero, at, zero);
            }
            for (column, term) in places() {
                let x = f64::from(weights[column * k + term]) / scale;
                let integers = !dtype.value_type().is_float();
                let x = if integers { x.round_ties_even() + zero } else { x };
                dtype.write(&mut out.b, column * ld + term, x);
            }
        }
    }
    Ok(out)
}
