//! A network of three layers, calibrated on a few hundred points and run in 8-bit integers and in fp8. Each layer's kernel
//! quantises for the next one, so between the layers nothing has more than eight bits.
//!
//! Four spiral arms are told apart by 32 waves over the plane, two layers of 64, and a read-out that is solved for. Running
//! the float network counts the magnitudes of its activations in histograms, in the same kernels. Thresholds follow from
//! them, scales from the thresholds, and they make the round trip through JSON.
//!
//! ```text
//! $ cargo run --release --example quantized_mlp
//! y0: |T| ... dB
//! y1: |T| ... dB
//! float: ... % of 2000 points
//! i8: ... %
//! |T| by max ...
//! target/quantized_mlp.png
//! CPU: no CUDA driver: libcuda.so.1: cannot open shared object file ...
//! ```
//!
//! Picture: target/quantized_mlp.png

// Every example uses a part of it.
#[allow(dead_code)]
#[path = "support/canvas.rs"]
mod canvas;

use canvas::{Canvas, Colour, INK, WHITE, mix};
use postlude::calibrate::{Calibration, Calibrations, Histogram, Method};
use postlude::ir::Axes;
use postlude::prelude::*;
use postlude::{RanOn, Tensor};
use std::io::Write;
use std::path::PathBuf;

type Result<T, E = Box<dyn std::error::Error>> = std::result::Result<T, E>;

const WAVES: usize = 32;
const WIDTH: usize = 64;
const ARMS: usize = 4;
/// Inputs of each layer, and outputs of the last.
const SIZES: [usize; 4] = [WAVES, WIDTH, WIDTH, ARMS];
/// Points that the read-out is solved for, that calibrate, and that are asked afterwards.
const SOLVED: usize = 1500;
const CALIBRATING: usize = 500;
const ASKED: usize = 2000;
const BINS: u16 = 2048;

struct Numbers(u64);

impl Numbers {
    fn unit(&mut self) -> f32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 40) as f32 / (1u64 << 24) as f32
    }

    fn bell(&mut self) -> f32 {
        (0..12).map(|_| self.unit()).sum::<f32>() - 6.0
    }
}

/// Points on the arms, each with the number of its arm.
fn points(count: usize, seed: u64) -> (Vec<[f32; 2]>, Vec<usize>) {
    let mut numbers = Numbers(seed);
    let point = |i: usize| {
        let (arm, far) = (i % ARMS, 0.15 + 0.85 * numbers.unit());
        let angle = std::f32::consts::TAU * (arm as f32 / ARMS as f32 + 0.8 * far) + 0.15 * numbers.bell() * (1.2 - far);
        ([far * angle.cos(), far * angle.sin()], arm)
    };
    (0..count).map(point).unzip()
}

/// A network in floating point. Weights are N x K, output after output.
struct Network {
    waves: Vec<[f32; 3]>,
    weights: [Vec<f32>; 3],
    biases: [Vec<f32>; 3],
}

/// What the layers of a run come to: activations of the two hidden ones, counts of their magnitudes, results.
struct Run {
    hidden: [Vec<f32>; 2],
    counts: [Vec<i32>; 2],
    scores: Vec<f32>,
    ran_on: RanOn,
}

impl Network {
    /// Two random layers, and a third that is solved for.
    fn new() -> Result<Network> {
        let mut numbers = Numbers(3);
        let waves = (0..WAVES).map(|_| [4.0 * numbers.bell(), 4.0 * numbers.bell(), 6.3 * numbers.unit()]).collect();
        let mut layer = |n: usize, k: usize| -> (Vec<f32>, Vec<f32>) {
            let scale = (2.0 / k as f32).sqrt();
            ((0..n * k).map(|_| scale * numbers.bell()).collect(), (0..n).map(|_| 0.3 * numbers.bell()).collect())
        };
        let ((w0, b0), (w1, b1)) = (layer(WIDTH, WAVES), layer(WIDTH, WIDTH));
        let nothing = (vec![0.0; ARMS * WIDTH], vec![0.0; ARMS]);
        let mut network = Network { waves, weights: [w0, w1, nothing.0], biases: [b0, b1, nothing.1] };
        let (at, arms) = points(SOLVED, 11);
        let features = network.run(&network.inputs(&at), [1.0; 2])?.hidden[1].clone();
        network.solve(&features, &arms);
        Ok(network)
    }

    fn inputs(&self, points: &[[f32; 2]]) -> Vec<f32> {
        let waves = |p: &[f32; 2]| self.waves.iter().map(|w| (w[0] * p[0] + w[1] * p[1] + w[2]).sin()).collect::<Vec<_>>();
        points.iter().flat_map(waves).collect()
    }

    /// Least squares with a little damping, by elimination: the read-out that comes nearest to 1 for the arm and 0 for others.
    fn solve(&mut self, features: &[f32], arms: &[usize]) {
        let size = WIDTH + 1;
        let mut rows = vec![vec![0.0f64; size + ARMS]; size];
        for (features, arm) in features.chunks_exact(WIDTH).zip(arms) {
            let x: Vec<f64> = features.iter().map(|x| f64::from(*x)).chain([1.0]).collect();
            for (i, row) in rows.iter_mut().enumerate() {
                x.iter().zip(row.iter_mut()).for_each(|(y, sum)| *sum += x[i] * y);
                row[size + arm] += x[i];
            }
        }
        (0..size).for_each(|i| rows[i][i] += 1e-3 * arms.len() as f64);
        for i in 0..size {
            let pivot = rows[i].clone();
            for (_, row) in rows.iter_mut().enumerate().filter(|(j, _)| *j != i) {
                let factor = row[i] / pivot[i];
                row.iter_mut().zip(&pivot).for_each(|(x, p)| *x -= factor * p);
            }
        }
        let of = |arm: usize, i: usize| (rows[i][size + arm] / rows[i][i]) as f32;
        self.weights[2] = (0..ARMS).flat_map(|arm| (0..WIDTH).map(move |i| of(arm, i))).collect();
        self.biases[2] = (0..ARMS).map(|arm| of(arm, WIDTH)).collect();
    }

    /// The layers in floating point, which count the magnitudes of activations up to these ranges.
    fn run(&self, inputs: &[f32], ranges: [f32; 2]) -> Result<Run> {
        let rows = inputs.len() / WAVES;
        let hidden = Epilogue::build(|e| {
            let y = (e.acc() + e.load("bias", F32.over(N))).relu();
            e.histogram("magnitudes", y, e.scalar("range", F32), BINS, Axes::NONE);
            e.store("d", y, F32);
        })?;
        let mut y = [vec![0.0f32; rows * WIDTH], vec![0.0; rows * WIDTH]];
        let mut counts = [vec![0i32; usize::from(BINS) + 1], vec![0; usize::from(BINS) + 1]];
        for (layer, range) in ranges.into_iter().enumerate() {
            let (before, after) = y.split_at_mut(layer);
            let x = before.first().map_or(inputs, |y| y);
            let args = HostArgs::new().input("a", x).input("b", &self.weights[layer]).input("bias", &self.biases[layer]);
            let args = args.output("d", &mut after[0]).output("magnitudes", &mut counts[layer]);
            let shape = Shape::new(rows, WIDTH, SIZES[layer]);
            Gemm::new(F32, TN, &hidden).run(shape, args.scalar("range", range))?;
        }
        let mut scores = vec![0.0f32; rows * ARMS];
        let last = Epilogue::build(|e| e.store("d", e.acc() + e.load("bias", F32.over(N)), F32))?;
        let args = HostArgs::new().input("a", &y[1]).input("b", &self.weights[2]).input("bias", &self.biases[2]);
        let ran_on = Gemm::new(F32, TN, &last).run(Shape::new(rows, ARMS, WIDTH), args.output("d", &mut scores))?;
        Ok(Run { hidden: y, counts, scores, ran_on })
    }

    /// Scales of everything that is quantised: inputs and activations one each, weights one for each output.
    fn calibrate(&self, inputs: &[f32], run: &Run, ranges: [f32; 2], format: DType) -> Result<Calibrations> {
        let mut tensors = Calibrations::default();
        let mut add = |name: String, channels: Vec<Calibration>| tensors.tensors.insert(name, channels);
        add("x".into(), vec![Histogram::of(inputs, usize::from(BINS))?.calibrate(Method::Max, signed(format))?]);
        for (layer, (range, counts)) in ranges.iter().zip(&run.counts).enumerate() {
            let histogram = Histogram::of_counts(*range, counts)?;
            add(format!("y{layer}"), vec![histogram.calibrate(Method::MeanSquaredError, format)?]);
        }
        for (layer, weights) in self.weights.iter().enumerate() {
            let channel = |row: &[f32]| Histogram::of(row, usize::from(BINS))?.calibrate(Method::Max, signed(format));
            add(format!("w{layer}"), weights.chunks_exact(SIZES[layer]).map(channel).collect::<Result<_, _>>()?);
        }
        Ok(tensors)
    }

    /// The layers in a format of eight bits. Activations are not negative, so integers take all of `U8`.
    fn quantised(&self, inputs: &[f32], scales: &Calibrations, format: DType) -> Result<Vec<f32>> {
        let rows = inputs.len() / WAVES;
        let mut x = scales.tensors["x"][0].quantize(inputs);
        let (mut x_format, mut x_scale) = (signed(format), scales.scales("x"));
        let mut scores = vec![0.0f32; rows * ARMS];
        for layer in 0..3 {
            let epilogue = Epilogue::build(|e| {
                let sum = if format.value_type().is_float() { e.acc() } else { e.acc_i32().cast(F32) };
                let y = sum * (e.load("x_scale", F32.pointer()) * e.load("w_scale", F32.over(N))) + e.load("bias", F32.over(N));
                match layer {
                    2 => e.store("d", y, F32),
                    _ => e.store("d", y.relu().quantize(format, e.load("y_scale", F32.pointer()), 0), format),
                }
            })?;
            let weights = self.weights[layer].chunks_exact(SIZES[layer]);
            let channels = &scales.tensors[&format!("w{layer}")];
            let b: Vec<u8> = weights.zip(channels).flat_map(|(row, channel)| channel.quantize(row)).collect();
            let (w_scale, y_scale) = (scales.scales(&format!("w{layer}")), scales.scales(&format!("y{layer}")));
            let mut y = vec![0u8; if layer < 2 { rows * WIDTH } else { 0 }];
            let args = HostArgs::new()
                .input("a", Tensor::of_bytes(x_format, &x))
                .input("b", Tensor::of_bytes(signed(format), &b))
                .input("x_scale", &x_scale)
                .input("w_scale", &w_scale)
                .input("bias", &self.biases[layer]);
            let args = match layer {
                2 => args.output("d", &mut scores),
                _ => args.input("y_scale", &y_scale).output("d", Tensor::of_bytes_mut(format, &mut y)),
            };
            let shape = Shape::new(rows, SIZES[layer + 1], SIZES[layer]);
            Gemm::mixed(x_format, signed(format), TN, &epilogue).run(shape, args)?;
            (x, x_format, x_scale) = (y, format, y_scale);
        }
        Ok(scores)
    }
}

/// The format of what has signs, beside one of activations that have none.
fn signed(format: DType) -> DType {
    if format == U8 { I8 } else { format }
}

/// The arm with the best score, point after point.
fn chosen(scores: &[f32]) -> Vec<usize> {
    let best = |scores: &[f32]| (0..ARMS).max_by(|a, b| scores[*a].total_cmp(&scores[*b])).unwrap_or(0);
    scores.chunks_exact(ARMS).map(best).collect()
}

fn share(chosen: &[usize], arms: &[usize]) -> f64 {
    100.0 * chosen.iter().zip(arms).filter(|(a, b)| a == b).count() as f64 / arms.len() as f64
}

const SIDE: usize = 220;
const MARGIN: usize = 16;
const COLOURS: [Colour; ARMS] = [[0.31, 0.49, 0.67], [0.82, 0.29, 0.36], [0.93, 0.71, 0.29], [0.35, 0.62, 0.47]];

/// The plane as each network sees it, over the histogram of the second activations and the threshold.
fn draw(network: &Network, scales: [&Calibrations; 2], histogram: &Histogram, points: &[[f32; 2]]) -> Result<PathBuf> {
    let half = SIDE as f32 / 2.0;
    let place = |i: usize| [(i % SIDE) as f32 / half - 1.0, (i / SIDE) as f32 / half - 1.0].map(|x| 1.1 * x);
    let plane: Vec<[f32; 2]> = (0..SIDE * SIDE).map(place).collect();
    let inputs = network.inputs(&plane);
    let views = [
        network.run(&inputs, [1.0; 2])?.scores,
        network.quantised(&inputs, scales[0], U8)?,
        network.quantised(&inputs, scales[1], E4M3)?,
    ];
    let mut canvas = Canvas::new(3 * (SIDE + MARGIN) + MARGIN, SIDE + 110 + 3 * MARGIN);
    for (view, scores) in views.iter().enumerate() {
        let left = MARGIN + view * (SIDE + MARGIN);
        for (i, arm) in chosen(scores).into_iter().enumerate() {
            canvas.pixels[(MARGIN + i / SIDE) * canvas.width + left + i % SIDE] = mix(COLOURS[arm], WHITE, 0.35);
        }
        for p in points.iter().step_by(5) {
            let at = [0, 1].map(|i| f64::from((p[i] / 1.1 + 1.0) * half) + [left, MARGIN][i] as f64);
            canvas.stroke(at, at, 2.5, INK);
        }
    }
    let (top, base) = ((SIDE + 2 * MARGIN) as f64, (SIDE + 2 * MARGIN + 110) as f64);
    let across = canvas.width as f64 - 2.0 * MARGIN as f64;
    let bars: Vec<u64> = histogram.counts().chunks(8).map(|bins| bins.iter().sum()).collect();
    let most = bars.iter().skip(1).copied().max().unwrap_or(1) as f64;
    let threshold = f64::from(scales[0].tensors["y1"][0].threshold) / histogram.range();
    for (bar, count) in bars.iter().enumerate() {
        let (x, width) = (MARGIN as f64 + across * bar as f64 / bars.len() as f64, across / bars.len() as f64);
        let tall = 110.0 * ((*count as f64).ln_1p() / most.ln_1p()).min(1.0);
        let colour = if (bar as f64) < threshold * bars.len() as f64 { COLOURS[0] } else { COLOURS[1] };
        canvas.paint([x, base - tall], [x + width, base], colour, |p| f64::from(p[0] >= x && p[0] < x + width && p[1] < base));
    }
    let at = MARGIN as f64 + across * threshold;
    canvas.stroke([at, top], [at, base], 1.5, INK);
    Ok(canvas.save("quantized_mlp.png")?)
}

/// The whole example.
///
/// # Errors
/// If a launch does not fit, or the picture or `out` cannot be written.
pub fn run(out: &mut dyn Write) -> Result<()> {
    let network = Network::new()?;
    let calibrating = network.inputs(&points(CALIBRATING, 12).0);
    // The first run finds the ranges, and the second counts up to them.
    let most = |y: &[f32]| y.iter().fold(0.0f32, |most, y| most.max(*y));
    let ranges = network.run(&calibrating, [1.0; 2])?.hidden.map(|y| most(&y));
    let counted = network.run(&calibrating, ranges)?;
    let [integers, floats] = [U8, E4M3].map(|format| network.calibrate(&calibrating, &counted, ranges, format));
    let (integers, floats) = (Calibrations::from_json(&integers?.to_json())?, floats?);
    for name in ["y0", "y1"] {
        let Calibration { threshold, clipped, noise, .. } = &integers.tensors[name][0];
        writeln!(out, "{name}: |T| {threshold:.3}, {:.3} % saturate, {noise:.1} dB", 100.0 * clipped)?;
    }
    let (at, arms) = points(ASKED, 13);
    let inputs = network.inputs(&at);
    let float = network.run(&inputs, ranges)?;
    let right = share(&chosen(&float.scores), &arms);
    writeln!(out, "float: {right:.1} % of {ASKED} points")?;
    let [i8, e4m3] = [(U8, &integers), (E4M3, &floats)]
        .map(|(format, scales)| -> Result<f64> { Ok(share(&chosen(&network.quantised(&inputs, scales, format)?), &arms)) });
    let (i8, e4m3) = (i8?, e4m3?);
    writeln!(out, "i8: {i8:.1} %, e4m3: {e4m3:.1} %")?;
    assert!(right > 90.0 && i8 > right - 1.0 && e4m3 > right - 3.0, "eight bits suffice for this network");
    let histogram = Histogram::of_counts(ranges[1], &counted.counts[1])?;
    let methods = [Method::Max, Method::Percentile(99.9), Method::MeanSquaredError, Method::Entropy];
    let thresholds: Vec<f32> =
        methods.iter().map(|m| histogram.calibrate(*m, U8).map(|c| c.threshold)).collect::<Result<_, _>>()?;
    let [max, percentile, mse, entropy] = thresholds[..] else { unreachable!("four methods") };
    writeln!(out, "|T| by max {max:.3}, percentile {percentile:.3}, mse {mse:.3}, entropy {entropy:.3}")?;
    writeln!(out, "{}", draw(&network, [&integers, &floats], &histogram, &at)?.display())?;
    writeln!(out, "{}", float.ran_on)?;
    Ok(())
}

fn main() -> Result<()> {
    run(&mut std::io::stdout().lock())
}
