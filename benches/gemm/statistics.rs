//! Quantiles of ratios, and the order of turns.

/// The middle of some values; of two in the middle their mean.
pub fn median(values: &[f64]) -> f64 {
    let sorted = sorted(values);
    let half = sorted.len() / 2;
    if sorted.len() % 2 == 1 { sorted[half] } else { 0.5 * (sorted[half - 1] + sorted[half]) }
}

/// The tenth and the ninetieth percentile: of few values, which have none in between, the least and the largest.
fn tenths(values: &[f64]) -> [f64; 2] {
    let sorted = sorted(values);
    let outside = (sorted.len() - 1) / 10;
    [sorted[outside], sorted[sorted.len() - 1 - outside]]
}

fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
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
    /// The spread of the ratios inside each round: both contenders of a round ran at the same clock.
    pub fn of_ratios(numerators: &[f64], denominators: &[f64]) -> Spread {
        let ratios: Vec<f64> = numerators.iter().zip(denominators).map(|(n, d)| n / d).collect();
        let [low, high] = tenths(&ratios);
        Spread { median: median(&ratios), low, high }
    }
}

/// Shuffles. A contender inherits the clock that the previous one left, so a fixed order would favour one of them.
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
