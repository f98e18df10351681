//! The data: three arms of a spiral.

use std::f64::consts::TAU;

/// Arms, each a class.
pub const CLASSES: usize = 3;
/// Coordinates of a point.
pub const FEATURES: usize = 2;

/// Points and the arms they belong to.
pub struct Spiral {
    /// One point a row.
    pub points: Vec<f32>,
    /// One arm a row.
    pub labels: Vec<i32>,
}

impl Spiral {
    /// `count` points, spread over arms that wind one and a quarter turns, in a square of side 2.
    pub fn new(count: usize, random: &mut Random) -> Spiral {
        let (mut points, mut labels) = (Vec::new(), Vec::new());
        for i in 0..count {
            let arm = i % CLASSES;
            let along = 0.06 + 0.92 * random.uniform();
            let angle = TAU * (arm as f64 / CLASSES as f64 + 1.25 * along) + 0.13 * random.normal();
            points.extend([angle.cos(), angle.sin()].map(|x| (along * x) as f32));
            labels.push(arm as i32);
        }
        Spiral { points, labels }
    }
}

/// Random numbers (splitmix64), the same every time.
pub struct Random(pub u64);

impl Random {
    /// In [0, 1).
    pub fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((x ^ (x >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Normally distributed, with variance 1 (Box and Muller).
    pub fn normal(&mut self) -> f64 {
        (-2.0 * (1.0 - self.uniform()).ln()).sqrt() * (TAU * self.uniform()).cos()
    }
}
