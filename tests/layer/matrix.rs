//! Matrices in host memory that lie anyhow: transposed, with gaps between rows, several behind each other.

use postlude::Tensor;
use postlude::args::{HostBuffer, IntoTensor};

/// The value between the rows.
const POISON: f32 = -12345.5;

/// How a matrix lies.
#[derive(Clone, Copy, Debug)]
pub struct Lies {
    pub transposed: bool,
    /// Elements behind each run.
    pub gap: usize,
    pub entries: usize,
}

/// A batch of `rows` x `columns` matrices.
#[derive(Clone, Debug)]
pub struct Matrix {
    pub rows: usize,
    pub columns: usize,
    pub lies: Lies,
    pub data: Vec<f32>,
}

impl Matrix {
    pub fn new(rows: usize, columns: usize, lies: Lies, mut value: impl FnMut(usize, usize, usize) -> f32) -> Matrix {
        let runs = if lies.transposed { columns } else { rows };
        let mut matrix = Matrix { rows, columns, lies, data: Vec::new() };
        matrix.data = vec![POISON; runs * matrix.ld() * lies.entries];
        for (l, i, j) in matrix.places() {
            let at = matrix.index(l, i, j);
            matrix.data[at] = value(l, i, j);
        }
        matrix
    }

    pub fn places(&self) -> Vec<(usize, usize, usize)> {
        let (rows, columns) = (self.rows, self.columns);
        (0..self.lies.entries).flat_map(|l| (0..rows).flat_map(move |i| (0..columns).map(move |j| (l, i, j)))).collect()
    }

    pub fn ld(&self) -> usize {
        (if self.lies.transposed { self.rows } else { self.columns }) + self.lies.gap
    }

    pub fn index(&self, l: usize, i: usize, j: usize) -> usize {
        let (run, at, runs) = if self.lies.transposed { (j, i, self.columns) } else { (i, j, self.rows) };
        (l * runs + run) * self.ld() + at
    }

    pub fn at(&self, l: usize, i: usize, j: usize) -> f64 {
        f64::from(self.data[self.index(l, i, j)])
    }

    pub fn read(&self) -> Tensor<HostBuffer<'_>> {
        self.data.ld(self.ld())
    }

    pub fn write(&mut self) -> Tensor<HostBuffer<'_>> {
        let ld = self.ld();
        self.data.as_mut_slice().ld(ld)
    }

    /// Fails unless every element has its expected value, and the gaps are unchanged.
    pub fn check(&self, what: &str, expected: impl Fn(usize, usize, usize) -> f64) {
        for (l, i, j) in self.places() {
            near(&format!("{what}[{l}, {i}, {j}]"), self.at(l, i, j), expected(l, i, j));
        }
        let gaps = self.data.iter().filter(|x| **x == POISON).count();
        assert_eq!(gaps, self.data.len() - self.places().len(), "{what}: the gaps between its rows were written");
    }
}

pub fn near(what: &str, found: f64, expected: f64) {
    assert!((found - expected).abs() < 2e-4 * (1.0 + expected.abs()), "{what} is {found}, not {expected}");
}

/// Numbers in (-1, 1) that are on no kink.
pub struct Numbers(pub u64);

impl Numbers {
    pub fn number(&mut self) -> f32 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((self.0 >> 33) % 2048) as f32 / 1024.0 - 1.0 + 1.0 / 4096.0
    }
}
