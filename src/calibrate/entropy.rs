//! The threshold by entropy: what a histogram loses when its bins are merged into the levels of an integer format.

use super::CalibrationError;
use crate::dtype::DType;

/// The bins below the threshold with the least divergence.
///
/// For each candidate the distribution P is the histogram up to the threshold, with everything beyond in the last bin. Q is
/// the same bins merged into levels, each level spread evenly over its bins that are not empty. The divergence is the sum of
/// P log(P / Q).
pub(super) fn bins(counts: &[u64], format: DType) -> Result<usize, CalibrationError> {
    let levels = match format {
        DType::I8 => 128,
        DType::U8 => 256,
        _ => return Err(CalibrationError::Entropy(format)),
    };
    if counts.len() <= levels {
        return Ok(counts.len());
    }
    let mut sums = vec![0u64];
    counts.iter().for_each(|count| sums.push(sums[sums.len() - 1] + count));
    let candidates = (levels..=counts.len()).map(|bins| (bins, divergence(counts, &sums, bins, levels)));
    Ok(candidates.min_by(|a, b| a.1.total_cmp(&b.1)).map_or(counts.len(), |(bins, _)| bins))
}

fn divergence(counts: &[u64], sums: &[u64], bins: usize, levels: usize) -> f64 {
    let (all, inside) = (sums[counts.len()] as f64, sums[bins] as f64);
    let beyond = all - inside;
    let mut divergence = 0.0;
    for level in 0..levels {
        let range = level * bins / levels..(level + 1) * bins / levels;
        let held = counts[range.clone()].iter().filter(|count| **count > 0).count();
        let mean = (sums[range.end] - sums[range.start]) as f64 / held.max(1) as f64;
        for bin in range {
            let last = if bin + 1 == bins { beyond } else { 0.0 };
            let p = (counts[bin] as f64 + last) / all;
            // An empty last bin that takes what lies beyond has nothing to compare with but an element of its own.
            let q = if counts[bin] > 0 { mean } else { 1.0 } / inside.max(1.0);
            if p > 0.0 {
                divergence += p * (p / q).ln();
            }
        }
    }
    divergence
}
