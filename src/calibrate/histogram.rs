//! Histograms of magnitudes, and the thresholds that follow from one.

use super::{Calibration, CalibrationError, Method, entropy, largest};
use crate::dtype::DType;

/// How many magnitudes lie in each of equally wide bins from 0 to a range.
#[derive(Clone, Debug, PartialEq)]
pub struct Histogram {
    pub(super) range: f64,
    pub(super) counts: Vec<u64>,
    /// Elements that are larger than the range.
    pub(super) beyond: u64,
}

/// The most thresholds that are compared. The error changes slowly from one bin to the next.
const CANDIDATES: usize = 512;

impl Histogram {
    /// The bins that calibration tools use: 2048.
    pub const BINS: usize = 2048;

    /// The histogram of some values, up to the largest magnitude. NaN counts nowhere, and infinity beyond the range.
    ///
    /// # Errors
    /// If `bins` is 0.
    pub fn of<'v, T: Copy + Into<f64> + 'v>(
        values: impl IntoIterator<Item = &'v T, IntoIter: Clone>,
        bins: usize,
    ) -> Result<Histogram, CalibrationError> {
        let magnitudes = values.into_iter().map(|value| (*value).into().abs() as f32);
        let finite = magnitudes.clone().filter(|x| x.is_finite());
        let range = Some(finite.fold(0.0, f32::max)).filter(|range| *range > 0.0).unwrap_or(1.0);
        let mut histogram = Histogram::new(range, bins)?;
        histogram.add(magnitudes);
        Ok(histogram)
    }

    /// A histogram that holds nothing yet.
    ///
    /// # Errors
    /// If the range is not a positive number, or `bins` is 0.
    pub fn new(range: f32, bins: usize) -> Result<Histogram, CalibrationError> {
        if bins == 0 {
            return Err(CalibrationError::Bins { got: bins, least: 1 });
        }
        if !(range > 0.0 && range.is_finite()) {
            return Err(CalibrationError::Range(range));
        }
        Ok(Histogram { range: f64::from(range), counts: vec![0; bins], beyond: 0 })
    }

    /// Counts further values, in the arithmetic of [`Builder::histogram`](crate::Builder::histogram).
    pub fn add(&mut self, values: impl IntoIterator<Item = f32>) {
        let bins = self.counts.len();
        let factor = bins as f32 / self.range as f32;
        for magnitude in values.into_iter().map(f32::abs).filter(|x| !x.is_nan()) {
            match self.counts.get_mut((magnitude * factor) as usize) {
                Some(count) => *count += 1,
                // The range itself belongs to the last bin.
                None if f64::from(magnitude) <= self.range => self.counts[bins - 1] += 1,
                None => self.beyond += 1,
            }
        }
    }

    /// What an epilogue has counted up to a range: its bins, and behind them the elements beyond.
    ///
    /// # Errors
    /// If the range is not a positive number, `counts` has fewer than two elements, or a count has overflowed.
    pub fn of_counts(range: f32, counts: &[i32]) -> Result<Histogram, CalibrationError> {
        let mut histogram = Histogram::new(range, counts.len().saturating_sub(1))?;
        let count =
            |(bin, count): (usize, &i32)| u64::try_from(*count).map_err(|_| CalibrationError::Overflow { bin, count: *count });
        let mut counts: Vec<u64> = counts.iter().enumerate().map(count).collect::<Result<_, _>>()?;
        histogram.beyond = counts.pop().unwrap_or_default();
        histogram.counts = counts;
        Ok(histogram)
    }

    /// Adds the counts of a histogram with the same range and bins.
    ///
    /// # Errors
    /// If it has others.
    pub fn merge(&mut self, other: &Histogram) -> Result<(), CalibrationError> {
        if (self.range, self.counts.len()) != (other.range, other.counts.len()) {
            let (bins, range) = (other.counts.len(), other.range);
            return Err(CalibrationError::Merge { bins, range, others: self.counts.len(), to: self.range });
        }
        self.counts.iter_mut().zip(&other.counts).for_each(|(sum, count)| *sum += count);
        self.beyond += other.beyond;
        Ok(())
    }

    /// How many elements there are in each bin.
    pub fn counts(&self) -> &[u64] {
        &self.counts
    }

    /// Where the last bin ends.
    pub fn range(&self) -> f64 {
        self.range
    }

    /// How many elements lie beyond the range.
    pub fn beyond(&self) -> u64 {
        self.beyond
    }

    /// How many elements were counted.
    pub fn elements(&self) -> u64 {
        self.counts.iter().sum::<u64>() + self.beyond
    }

    /// The magnitude at which a bin begins.
    fn edge(&self, bin: usize) -> f64 {
        self.range * bin as f64 / self.counts.len() as f64
    }

    /// Bins up to the last that holds anything.
    fn filled(&self) -> usize {
        self.counts.iter().rposition(|count| *count > 0).map_or(0, |bin| bin + 1)
    }

    /// The bins below a threshold, which is the edge behind them.
    fn bins_of(&self, method: Method, format: DType) -> Result<usize, CalibrationError> {
        let known = match self.beyond {
            0 => Ok(self.filled()),
            count => Err(CalibrationError::Beyond { count, range: self.range }),
        };
        match method {
            Method::Max => known,
            Method::Percentile(share) if !(share > 0.0 && share <= 100.0) => Err(CalibrationError::Percentile(share)),
            Method::Percentile(share) => {
                let needed = self.elements() as f64 * share / 100.0;
                let sums = self.counts.iter().scan(0, |sum, count| {
                    *sum += count;
                    Some(*sum)
                });
                // Rounding must not ask for more elements than there are.
                let enough = sums.enumerate().find(|(_, sum)| *sum as f64 >= needed - 1e-6);
                enough.map_or(known, |(bin, _)| Ok((bin + 1).min(self.filled())))
            }
            Method::MeanSquaredError => {
                let (filled, most) = (known?, largest(format)?);
                let step = filled.div_ceil(CANDIDATES).max(1);
                let error = |bins: usize| self.powers(self.edge(bins), most, format)[1];
                let candidates = (1..=filled).rev().step_by(step).map(|bins| (bins, error(bins)));
                Ok(candidates.min_by(|a, b| a.1.total_cmp(&b.1)).map_or(0, |(bins, _)| bins))
            }
            Method::Entropy => entropy::bins(&self.counts[..known?], format),
        }
    }

    /// The powers of the values and of the differences that quantising makes with a threshold. A bin's elements lie in its
    /// middle.
    fn powers(&self, threshold: f64, most: f64, format: DType) -> [f64; 2] {
        let scale = threshold / most;
        let filled = self.counts.iter().enumerate().filter(|(_, count)| **count > 0);
        filled.fold([0.0; 2], |[signal, noise], (bin, count)| {
            let (value, count) = ((self.edge(bin) + self.edge(bin + 1)) / 2.0, *count as f64);
            let error = format.round(value / scale) * scale - value;
            [signal + count * value * value, noise + count * error * error]
        })
    }

    /// Chooses the threshold and the scale for a format.
    ///
    /// # Errors
    /// If the format does not have eight bits, the method is not defined for it, or elements beyond the range leave the
    /// answer open.
    pub fn calibrate(&self, method: Method, format: DType) -> Result<Calibration, CalibrationError> {
        let most = largest(format)?;
        let bins = self.bins_of(method, format)?;
        let threshold = self.edge(bins);
        let elements = self.elements();
        let above: u64 = self.counts[bins..].iter().sum::<u64>() + self.beyond;
        let [signal, noise] = if bins > 0 { self.powers(threshold, most, format) } else { [0.0; 2] };
        Ok(Calibration {
            format,
            method,
            threshold: threshold as f32,
            scale: if bins > 0 { (threshold / most) as f32 } else { 1.0 },
            largest: self.edge(self.filled()) as f32,
            elements,
            clipped: if elements > 0 { above as f64 / elements as f64 } else { 0.0 },
            noise: 10.0 * (signal / noise.max(f64::MIN_POSITIVE)).max(f64::MIN_POSITIVE).log10(),
        })
    }
}
