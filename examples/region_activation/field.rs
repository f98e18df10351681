//! Operands with a picturesque product: a smooth random field.

use postlude::Shape;
use postlude::half::f16;
use std::f64::consts::TAU;

/// The operands.
pub struct Field {
    /// M x K, row by row.
    pub a: Vec<f16>,
    /// N x K, row by row: a column-major K x N matrix.
    pub b: Vec<f16>,
    /// One for each column.
    pub bias: Vec<f16>,
    shape: Shape,
}

impl Field {
    /// Every K element of the product is half of a wave along the rows times a wave along the columns: cos x cos - sin
    /// x sin is a plane wave of random direction and phase.
    pub fn new(shape: Shape) -> Field {
        let waves: Vec<Wave> = (0..shape.k / 2).map(Wave::random).collect();
        let power: f64 = waves.iter().map(|w| w.amplitude * w.amplitude / 2.0).sum();
        let gain = 1.35 / power.sqrt();
        let (mut a, mut b) = (Vec::with_capacity(shape.m * shape.k), Vec::with_capacity(shape.n * shape.k));
        for row in 0..shape.m {
            for wave in &waves {
                let angle = TAU * (wave.along_rows * row as f64 / shape.m as f64 + wave.phase);
                a.extend([angle.cos(), angle.sin()].map(|x| f16::from_f64(gain * wave.amplitude * x)));
            }
        }
        for column in 0..shape.n {
            for wave in &waves {
                let angle = TAU * wave.along_columns * column as f64 / shape.n as f64;
                b.extend([angle.cos(), -angle.sin()].map(f16::from_f64));
            }
        }
        let bias = (0..shape.n).map(|column| f16::from_f64(0.4 * (TAU * column as f64 / shape.n as f64).sin())).collect();
        Field { a, b, bias, shape }
    }

    /// The value before the activation, by a plain loop.
    pub fn z(&self, row: usize, column: usize) -> f64 {
        let k = self.shape.k;
        let (a, b) = (&self.a[row * k..][..k], &self.b[column * k..][..k]);
        a.iter().zip(b).map(|(a, b)| a.to_f64() * b.to_f64()).sum::<f64>() + self.bias[column].to_f64()
    }
}

struct Wave {
    along_rows: f64,
    along_columns: f64,
    phase: f64,
    amplitude: f64,
}

impl Wave {
    /// Long waves are strong, short ones weak.
    fn random(index: usize) -> Wave {
        let turns = 2.0 + 8.0 * hash(index, 0).powi(2);
        let direction = TAU * hash(index, 1);
        Wave {
            along_rows: turns * direction.sin(),
            along_columns: turns * direction.cos(),
            phase: hash(index, 2),
            amplitude: turns.powf(-1.4),
        }
    }
}

/// A number in [0, 1) that looks random (splitmix64).
fn hash(index: usize, salt: u64) -> f64 {
    let mut x = (index as u64 * 4 + salt + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    ((x ^ (x >> 31)) >> 11) as f64 / (1u64 << 53) as f64
}
