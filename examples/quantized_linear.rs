//! Two linear layers, y = relu(x w^T + bias) and z = y v^T, in 8-bit integers and in fp8: quantised outputs of the first
//! are inputs of the second, and no matrix in between has more than eight bits.
//!
//! Integers: x and y have a scale and a zero point each, weights a scale for each column. The kernel takes out what the
//! zero point adds by the weights' column sums. fp8: one scale a row of x and one a column of the weights. Each layer is
//! held to plain loops over the same numbers, and the whole to the layers in floating point.
//!
//! ```text
//! $ cargo run --release --example quantized_linear
//! u8 by i8, first layer: ...
//! u8 by i8, both layers: relative error 0.00...
//! e4m3, first layer: ...
//! e4m3, both layers: relative error 0.04...
//! CPU: no CUDA driver: libcuda.so.1: cannot open shared object file ...
//! ```

use postlude::RanOn;
use postlude::build::recipes;
use postlude::prelude::*;
use std::io::Write;

type Result<T, E = Box<dyn std::error::Error>> = std::result::Result<T, E>;

/// Rows of x, its columns, columns of y, columns of z.
const ROWS: usize = 48;
const INNER: usize = 96;
const MIDDLE: usize = 64;
const OUTER: usize = 32;

/// Numbers from `low` to `high`.
fn numbers(count: usize, low: f32, high: f32, mut state: u64) -> Vec<f32> {
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        low + (high - low) * ((state >> 40) as f32 / (1u64 << 24) as f32)
    };
    (0..count).map(|_| next()).collect()
}

fn largest<'a>(x: impl IntoIterator<Item = &'a f32>) -> f32 {
    x.into_iter().fold(0.0, |most, x| most.max(x.abs()))
}

/// Elements of a matrix with rows of `k`, each divided by the scale of its row, in a format.
fn quantised(x: &[f32], k: usize, scales: &[f32], zero_point: f32, dtype: DType) -> Vec<u8> {
    let mut bytes = vec![0; x.len()];
    for (i, x) in x.iter().enumerate() {
        let quotient = x / scales[i / k];
        let whole = if dtype.value_type().is_float() { quotient } else { quotient.round_ties_even() + zero_point };
        dtype.write(&mut bytes, i, f64::from(whole));
    }
    bytes
}

/// For each row the number by which its largest element becomes the largest of the format.
fn scales(x: &[f32], k: usize, most: f32) -> Vec<f32> {
    x.chunks_exact(k).map(|row| largest(row) / most).collect()
}

/// Row by row products of two matrices of `k` columns, in `f64`; `a` less its zero point.
fn products(a: &[u8], a_format: DType, zero_point: f64, b: &[u8], b_format: DType, k: usize) -> Vec<f64> {
    let row = |bytes: &[u8], format: DType, row: usize| -> Vec<f64> { (0..k).map(|i| format.read(bytes, row * k + i)).collect() };
    let columns: Vec<Vec<f64>> = (0..b.len() / k).map(|j| row(b, b_format, j)).collect();
    let rows = (0..a.len() / k).map(|i| row(a, a_format, i));
    rows.flat_map(|a| {
        let dot = |b: &Vec<f64>| a.iter().zip(b).map(|(x, y)| (x - zero_point) * y).sum::<f64>();
        columns.iter().map(dot).collect::<Vec<_>>()
    })
    .collect()
}

/// |x - y| / |y|.
fn distance(x: &[f32], y: &[f64]) -> f64 {
    let square = |x: f64| x * x;
    let difference: f64 = x.iter().zip(y).map(|(x, y)| square(f64::from(*x) - y)).sum();
    (difference / y.iter().map(|y| square(*y)).sum::<f64>()).sqrt()
}

fn column_sums(weights: &[u8], k: usize) -> Vec<i32> {
    weights.chunks_exact(k).map(|column| column.iter().map(|x| i32::from(*x as i8)).sum()).collect()
}

/// How many numbers differ, and by how much at most.
fn differing(found: &[u8], expected: &[f64], dtype: DType) -> (usize, f64) {
    let mut bytes = [0];
    let difference = |(i, y): (usize, &f64)| {
        dtype.write(&mut bytes, 0, *y);
        (dtype.read(found, i) - dtype.read(&bytes, 0)).abs()
    };
    let differences: Vec<f64> = expected.iter().enumerate().map(difference).collect();
    (differences.iter().filter(|x| **x > 0.0).count(), differences.iter().copied().fold(0.0, f64::max))
}

struct Layers {
    x: Vec<f32>,
    w: Vec<f32>,
    v: Vec<f32>,
    bias: Vec<f32>,
    /// What y is at most, from an earlier run.
    most: f32,
    /// z in floating point.
    z: Vec<f64>,
}

impl Layers {
    fn new() -> Layers {
        let (x, w) = (numbers(ROWS * INNER, -0.5, 1.0, 1), numbers(MIDDLE * INNER, -0.3, 0.3, 2));
        let (v, bias) = (numbers(OUTER * MIDDLE, -0.3, 0.3, 3), numbers(MIDDLE, -0.5, 0.5, 4));
        let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(x, y)| f64::from(*x) * f64::from(*y)).sum::<f64>();
        let y = x.chunks_exact(INNER).flat_map(|x| {
            let outputs = w.chunks_exact(INNER).zip(&bias);
            outputs.map(|(w, bias)| (dot(x, w) + f64::from(*bias)).max(0.0) as f32).collect::<Vec<_>>()
        });
        let y: Vec<f32> = y.collect();
        let z = y.chunks_exact(MIDDLE).flat_map(|y| v.chunks_exact(MIDDLE).map(|v| dot(y, v)).collect::<Vec<_>>());
        Layers { z: z.collect(), most: largest(&y), x, w, v, bias }
    }

    fn integers(&self, out: &mut dyn Write) -> Result<RanOn> {
        // x from -0.5 to 1 takes all of 0 to 255; y is not negative, and its zero stands for itself.
        let (x_scale, x_zero, y_scale) = ([1.5 / 255.0], [85], [self.most / 255.0]);
        let x = quantised(&self.x, INNER, &[x_scale[0]; ROWS], x_zero[0] as f32, U8);
        let (w_scales, v_scales) = (scales(&self.w, INNER, 127.0), scales(&self.v, MIDDLE, 127.0));
        let (w, v) = (quantised(&self.w, INNER, &w_scales, 0.0, I8), quantised(&self.v, MIDDLE, &v_scales, 0.0, I8));
        let sums = column_sums(&w, INNER);

        let first = Epilogue::build(|e| {
            let centred = e.acc_i32() - e.load("x_zero", I32.pointer()) * e.load("column_sums", I32.over(N));
            let y = centred.dequantize(e.load("x_scale", F32.pointer()) * e.load("w_scale", F32.over(N)), 0);
            let y = (y + e.load("bias", F32.over(N))).relu();
            e.reduce("amax", y, Monoid::AbsMax, F32.pointer());
            e.store("y", y.quantize(U8, e.load("y_scale", F32.pointer()), 0), U8);
        })?;
        let (mut y, mut amax) = (vec![0u8; ROWS * MIDDLE], [0.0f32]);
        let args = HostArgs::new()
            .input("a", postlude::Tensor::of_bytes(U8, &x))
            .input("b", postlude::Tensor::of_bytes(I8, &w))
            .input("x_zero", &x_zero)
            .input("column_sums", &sums)
            .input("x_scale", &x_scale)
            .input("w_scale", &w_scales)
            .input("bias", &self.bias)
            .input("y_scale", &y_scale)
            .output("y", &mut y)
            .output("amax", &mut amax);
        Gemm::mixed(U8, I8, TN, &first).math(postlude::plan::Math::Exact).run(Shape::new(ROWS, MIDDLE, INNER), args)?;
        let expected = products(&x, U8, f64::from(x_zero[0]), &w, I8, INNER);
        let layer = |(i, sum): (usize, &f64)| {
            let y = sum * f64::from(x_scale[0]) * f64::from(w_scales[i % MIDDLE]) + f64::from(self.bias[i % MIDDLE]);
            y.max(0.0) / f64::from(y_scale[0])
        };
        let expected: Vec<f64> = expected.iter().enumerate().map(layer).collect();
        let (count, most) = differing(&y, &expected, U8);
        assert!(count <= y.len() / 1000 && most <= 1.0, "only a tie may fall the other way: {count} differ, by up to {most}");
        writeln!(
            out,
            "u8 by i8, first layer: {count} of {} numbers of eight bits differ from plain loops; largest y {:.3}",
            y.len(),
            amax[0]
        )?;

        let mut z = vec![0.0f32; ROWS * OUTER];
        let args = HostArgs::new()
            .input("a", &y)
            .input("b", postlude::Tensor::of_bytes(I8, &v))
            .input("scale_a", &y_scale)
            .input("scale_b", &v_scales)
            .output("d", &mut z);
        let second = recipes::w8a8(F32.pointer(), F32.over(N), F32, F32)?;
        let ran_on = Gemm::mixed(U8, I8, TN, &second).run(Shape::new(ROWS, OUTER, MIDDLE), args)?;
        self.close("u8 by i8", &z, 0.02, out)?;
        Ok(ran_on)
    }

    fn floats(&self, out: &mut dyn Write) -> Result<()> {
        let (x_scales, w_scales) = (scales(&self.x, INNER, 448.0), scales(&self.w, INNER, 448.0));
        let (x, w) = (quantised(&self.x, INNER, &x_scales, 0.0, E4M3), quantised(&self.w, INNER, &w_scales, 0.0, E4M3));
        let v_scales = scales(&self.v, MIDDLE, 448.0);
        let v = quantised(&self.v, MIDDLE, &v_scales, 0.0, E4M3);
        let y_scale = [self.most / 448.0];

        let first = Epilogue::build(|e| {
            let y = e.acc() * (e.load("x_scale", F32.over(M)) * e.load("w_scale", F32.over(N))) + e.load("bias", F32.over(N));
            let y = y.relu();
            e.reduce("amax", y, Monoid::AbsMax, F32.pointer());
            e.store("y", y.quantize(E4M3, e.load("y_scale", F32.pointer()), 0.0), E4M3);
        })?;
        let (mut y, mut amax) = (vec![0u8; ROWS * MIDDLE], [0.0f32]);
        let args = HostArgs::new()
            .input("a", postlude::Tensor::of_bytes(E4M3, &x))
            .input("b", postlude::Tensor::of_bytes(E4M3, &w))
            .input("x_scale", &x_scales)
            .input("w_scale", &w_scales)
            .input("bias", &self.bias)
            .input("y_scale", &y_scale)
            .output("y", postlude::Tensor::of_bytes_mut(E4M3, &mut y))
            .output("amax", &mut amax);
        Gemm::new(E4M3, TN, &first).run(Shape::new(ROWS, MIDDLE, INNER), args)?;
        let expected = products(&x, E4M3, 0.0, &w, E4M3, INNER);
        let layer = |(i, sum): (usize, &f64)| {
            let scale = f64::from(x_scales[i / MIDDLE]) * f64::from(w_scales[i % MIDDLE]);
            (sum * scale + f64::from(self.bias[i % MIDDLE])).max(0.0) / f64::from(y_scale[0])
        };
        let expected: Vec<f64> = expected.iter().enumerate().map(layer).collect();
        // Tensor cores sum less exactly than loops do, so that a number near a tie of the format may fall the other way.
        let (count, most) = differing(&y, &expected, E4M3);
        assert!(count <= y.len() / 50 && most <= 32.0, "{count} of {} differ, by up to {most}", y.len());
        writeln!(
            out,
            "e4m3, first layer: {count} of {} numbers of eight bits differ from plain loops; largest y {:.3}",
            y.len(),
            amax[0]
        )?;

        let mut z = vec![0.0f32; ROWS * OUTER];
        let args = HostArgs::new()
            .input("a", postlude::Tensor::of_bytes(E4M3, &y))
            .input("b", postlude::Tensor::of_bytes(E4M3, &v))
            .input("scale_a", &y_scale)
            .input("scale_b", &v_scales)
            .output("d", &mut z);
        let second = recipes::scaled_mm(F32.pointer(), F32.over(N), F32, F32)?;
        Gemm::new(E4M3, TN, &second).run(Shape::new(ROWS, OUTER, MIDDLE), args)?;
        self.close("e4m3", &z, 0.06, out)
    }

    fn close(&self, what: &str, z: &[f32], within: f64, out: &mut dyn Write) -> Result<()> {
        let error = distance(z, &self.z);
        assert!(error < within, "{what}: {error}");
        Ok(writeln!(out, "{what}, both layers: relative error {error:.4}")?)
    }
}

/// The whole example.
///
/// # Errors
/// If a launch does not fit, or `out` cannot be written.
pub fn run(out: &mut dyn Write) -> Result<()> {
    let layers = Layers::new();
    let ran_on = layers.integers(out)?;
    layers.floats(out)?;
    writeln!(out, "{ran_on}")?;
    Ok(())
}

fn main() -> Result<()> {
    run(&mut std::io::stdout().lock())
}
