//! Quantiles of ratios, and the order of turns.

/// The value that a fraction `q` of them do not exceed: the nearest rank, so that it is one of them.
pub fn quantile(values: &[f64], q: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[((sorted.len() - 1) as f64 * q).round() as usize]
}

/// The middle of some ratios, and how far they spread.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    pub median: f64,
    /// The tenth percentile.
    pub low: f64,
    /// The ninetieth.
    pub high: f64,
}

impl Spread {
    /// Of the ratios inside each round: both contenders of a round met the same clock.
    pub fn of_ratios(numerators: &[f64], denominators: &[f64]) -> Spread {
        let ratios: Vec<f64> = numerators.iter().zip(denominators).map(|(n, d)| n / d).collect();
        Spread { median: quantile(&ratios, 0.5), low: quantile(&ratios, 0.1), high: quantile(&ratios, 0.9) }
    }
}

/// Shuffles: a contender inherits the clock that the one before it left, so that a fixed order would favour somebody.
pub struct Shuffle(u64);

impl Shuffle {
    pub fn new(seed: u64) -> Shuffle {
        Shuffle(seed)
    }

    /// The numbers below `count`, in any order with the same probability.
    pub fn order(&mut self, count: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..count).collect();
        for i in (1..count).rev() {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            order.swap(i, (self.0 >> 33) as usize % (i + 1));
        }
        order
    }
}
