//! A residual block, forward and backward: y = relu(norm(conv(relu(norm(conv(x))))) + x), with batch norms in training.
//!
//! Each convolution sums its output's channels in its own kernel. The gradient of the inner images has the derivative of the
//! first norm and of its relu behind it, so that gradient is never stored. The last one adds the gradient of the shortcut. The
//! program holds the output to plain loops, and every gradient to differences of the loss in plain loops:
//!
//! ```text
//! $ cargo run --release --example resnet_block
//! 2 images of 8 x 7 x 6, two convolutions of 3 x 3, two batch norms
//! forward in 6 launches, backward in 7
//! the output is that of plain loops
//! dx, dw1, dgain1, dshift1, dw2, dgain2, dshift2 are the differences of plain loops
//! CPU: no CUDA driver: libcuda.so.1: cannot open shared object file ...
//! ```

#[allow(dead_code, reason = "each example uses its part")]
#[path = "support/matrix.rs"]
mod matrix;

use matrix::eighths;
use postlude::build::BatchNormTraining;
use postlude::gemm::RanOn;
use postlude::grad::Wrt;
use postlude::ir::Order;
use postlude::prelude::*;
use std::io::Write;

type Result<T, E = Box<dyn std::error::Error>> = std::result::Result<T, E>;

const IMAGES: usize = 2;
const HEIGHT: usize = 8;
const WIDTH: usize = 7;
const CHANNELS: usize = 6;
const PIXELS: usize = IMAGES * HEIGHT * WIDTH;
const SHAPE: ConvShape = ConvShape::new(IMAGES, [HEIGHT, WIDTH, CHANNELS], [CHANNELS, 3, 3]).padding([1, 1]);
const NORM: BatchNormTraining = BatchNormTraining { count: PIXELS, epsilon: 1e-3, momentum: 0.1 };

/// The parameters of a convolution and its norm.
#[derive(Clone)]
struct Layer {
    filters: Vec<f32>,
    gain: Vec<f32>,
    shift: Vec<f32>,
}

impl Layer {
    fn new(seed: usize) -> Layer {
        let filters = eighths(CHANNELS * 9 * CHANNELS, seed).iter().map(|x| x * 0.25).collect();
        let gain = eighths(CHANNELS, seed + 1).iter().map(|x| 1.0 + 0.5 * x).collect();
        Layer { filters, gain, shift: eighths(CHANNELS, seed + 2) }
    }
}

/// What a layer leaves for the backward pass.
struct Kept {
    z: Vec<f32>,
    mean: Vec<f32>,
    variance: Vec<f32>,
}

/// Runs a pass over all pixels.
fn pass(epilogue: &Epilogue, args: HostArgs<'_>) -> Result<RanOn> {
    Ok(Gemm::pointwise(F32, Order::RowMajor, epilogue).run(Shape::matrix(PIXELS, CHANNELS), args.used_by(epilogue.checked()))?)
}

/// A convolution with its statistics, and mean and variance of them: two launches.
fn convolve(layer: &Layer, x: &[f32]) -> Result<Kept> {
    let zeros = || vec![0.0f32; CHANNELS];
    let (mut z, mut sums, mut squares) = (vec![0.0f32; PIXELS * CHANNELS], zeros(), zeros());
    let (mut running_mean, mut running_variance) = (zeros(), vec![1.0f32; CHANNELS]);
    let args = HostArgs::new().input("a", x).input("b", &layer.filters).input("running_mean", &running_mean);
    let args = args.output("z", &mut z).output("sums", &mut sums).output("squares", &mut squares);
    Conv::new(F32, SHAPE, &NORM.statistics(F32)?)?.run(args)?;
    let (mut mean, mut variance) = (zeros(), zeros());
    let args = HostArgs::new().input("sums", &sums).input("squares", &squares).output("mean", &mut mean);
    let args = args.output("variance", &mut variance).output("running_mean", &mut running_mean);
    let args = args.output("running_variance", &mut running_variance);
    Gemm::pointwise(F32, Order::RowMajor, &NORM.finish()?).run(Shape::matrix(1, CHANNELS), args)?;
    Ok(Kept { z, mean, variance })
}

/// The arguments that every pass over a norm takes.
fn normed<'a>(layer: &'a Layer, kept: &'a Kept) -> HostArgs<'a> {
    let args = HostArgs::new().input("z", &kept.z).input("mean", &kept.mean).input("variance", &kept.variance);
    args.input("gain", &layer.gain).input("shift", &layer.shift)
}

/// The gradients of a layer.
struct Gradients {
    z: Vec<f32>,
    filters: Vec<f32>,
    gain: Vec<f32>,
    shift: Vec<f32>,
}

impl Gradients {
    fn new() -> Gradients {
        let (z, filters) = (vec![0.0; PIXELS * CHANNELS], vec![0.0; CHANNELS * 9 * CHANNELS]);
        Gradients { z, filters, gain: vec![0.0; CHANNELS], shift: vec![0.0; CHANNELS] }
    }

    /// What came in through mean and variance, and the gradient of the filters: two launches.
    fn finish(&mut self, layer: &Layer, kept: &Kept, x: &[f32]) -> Result<()> {
        let args = normed(layer, kept).input("grad_gain", &self.gain).input("grad_shift", &self.shift);
        pass(&NORM.correct(F32)?, args.output("grad_z", &mut self.z))?;
        let store = Epilogue::build(|e| e.store("dw", e.acc(), F32))?;
        let args = HostArgs::new().input("a", &self.z).input("b", x).output("dw", &mut self.filters);
        Conv::filter_gradient(F32, SHAPE, &store)?.run(args)?;
        Ok(())
    }
}

/// Trains nothing, but computes everything that a step of training needs, and checks it.
pub fn run(out: &mut dyn Write) -> Result<()> {
    writeln!(out, "{IMAGES} images of {HEIGHT} x {WIDTH} x {CHANNELS}, two convolutions of 3 x 3, two batch norms")?;
    let (x, layers) = (eighths(PIXELS * CHANNELS, 1), [Layer::new(2), Layer::new(5)]);
    // The loss is the sum of the outputs, each with its weight.
    let weights: Vec<f32> = eighths(PIXELS * CHANNELS, 9).iter().map(|x| x + 0.1).collect();

    let inner = NORM.normalise(F32, |_, z| z.relu())?;
    let outer = NORM.normalise(F32, |e, z| (z + e.load("residual", F32)).relu())?;
    let first = convolve(&layers[0], &x)?;
    let mut y = vec![0.0f32; PIXELS * CHANNELS];
    pass(&inner, normed(&layers[0], &first).output("d", &mut y))?;
    let second = convolve(&layers[1], &y)?;
    let mut output = vec![0.0f32; PIXELS * CHANNELS];
    pass(&outer, normed(&layers[1], &second).input("residual", &x).output("d", &mut output))?;

    // Backward. Everything that the derivatives need is in memory already, so nothing is saved beside it.
    let inner = inner.backward(Wrt::arguments(["z", "gain", "shift"]))?;
    let outer = outer.backward(Wrt::arguments(["z", "gain", "shift", "residual"]))?;
    if [&inner, &outer].iter().any(|pair| !pair.reserve().is_empty()) {
        return Err("a norm saves what it has".into());
    }
    let ([mut of_first, mut of_second], mut shortcut) = ([Gradients::new(), Gradients::new()], vec![0.0f32; PIXELS * CHANNELS]);
    let args = normed(&layers[1], &second).input("residual", &x).input("a", &weights).output("grad_residual", &mut shortcut);
    let args = args.output("grad_gain", &mut of_second.gain).output("grad_shift", &mut of_second.shift);
    pass(outer.backward(), args.output("grad_z", &mut of_second.z))?;
    of_second.finish(&layers[1], &second, &y)?;
    // The derivative of the first norm runs behind the gradient of the second convolution's images.
    let args = normed(&layers[0], &first).input("a", &of_second.z).input("b", &layers[1].filters);
    let args = args.output("grad_gain", &mut of_first.gain).output("grad_shift", &mut of_first.shift);
    let args = args.output("grad_z", &mut of_first.z).used_by(inner.backward().checked());
    Conv::data_gradient(F32, SHAPE, inner.backward())?.run(args)?;
    of_first.finish(&layers[0], &first, &x)?;
    let with_shortcut = Epilogue::build(|e| e.store("dx", e.acc() + e.load("shortcut", F32), F32))?;
    let mut dx = vec![0.0f32; PIXELS * CHANNELS];
    let args = HostArgs::new().input("a", &of_first.z).input("b", &layers[0].filters).input("shortcut", &shortcut);
    let ran_on = Conv::data_gradient(F32, SHAPE, &with_shortcut)?.run(args.output("dx", &mut dx))?;
    writeln!(out, "forward in 6 launches, backward in 7")?;

    let by_hand = ByHand { x: wide(&x), layers: layers.each_ref().map(Wide::of), weights: wide(&weights) };
    near("the output", &output, &by_hand.output())?;
    writeln!(out, "the output is that of plain loops")?;
    let gradients: [(&str, &[f32], Numbers); 7] = [
        ("dx", &dx, |hand| &mut hand.x),
        ("dw1", &of_first.filters, |hand| &mut hand.layers[0].filters),
        ("dgain1", &of_first.gain, |hand| &mut hand.layers[0].gain),
        ("dshift1", &of_first.shift, |hand| &mut hand.layers[0].shift),
        ("dw2", &of_second.filters, |hand| &mut hand.layers[1].filters),
        ("dgain2", &of_second.gain, |hand| &mut hand.layers[1].gain),
        ("dshift2", &of_second.shift, |hand| &mut hand.layers[1].shift),
    ];
    for (name, found, of) in gradients {
        // Every seventh element of the long ones.
        let picked = (0..found.len()).step_by(if found.len() > 100 { 7 } else { 1 });
        let (found, expected): (Vec<f32>, Vec<f64>) = picked.map(|i| (found[i], by_hand.difference(of, i))).unzip();
        near(name, &found, &expected)?;
    }
    writeln!(out, "{} are the differences of plain loops\n{ran_on}", gradients.map(|(name, ..)| name).join(", "))?;
    Ok(())
}

/// Refuses numbers that are further apart than `f32` explains.
fn near(what: &str, found: &[f32], expected: &[f64]) -> Result<()> {
    for (i, (found, expected)) in found.iter().zip(expected).enumerate() {
        let off = (f64::from(*found) - expected).abs();
        // A value that is not a number is off, too.
        if off.is_nan() || off > 2e-4 * (1.0 + expected.abs()) {
            return Err(format!("{what}[{i}] is {found}, and {expected} in plain loops").into());
        }
    }
    Ok(())
}

fn wide(numbers: &[f32]) -> Vec<f64> {
    numbers.iter().copied().map(f64::from).collect()
}

/// The same block in `f64`, in plain loops.
#[derive(Clone)]
struct ByHand {
    x: Vec<f64>,
    layers: [Wide; 2],
    weights: Vec<f64>,
}

/// Some of its numbers.
type Numbers = fn(&mut ByHand) -> &mut Vec<f64>;

#[derive(Clone)]
struct Wide {
    filters: Vec<f64>,
    gain: Vec<f64>,
    shift: Vec<f64>,
}

impl Wide {
    fn of(layer: &Layer) -> Wide {
        Wide { filters: wide(&layer.filters), gain: wide(&layer.gain), shift: wide(&layer.shift) }
    }

    /// The convolution and its norm.
    fn apply(&self, x: &[f64]) -> Vec<f64> {
        let mut z = vec![0.0; PIXELS * CHANNELS];
        for (i, z) in z.iter_mut().enumerate() {
            let (pixel, filter) = (i / CHANNELS, i % CHANNELS);
            let (image, row, column) = (pixel / (HEIGHT * WIDTH), pixel / WIDTH % HEIGHT, pixel % WIDTH);
            for (tap, c) in (0..9).flat_map(|tap| (0..CHANNELS).map(move |c| (tap, c))) {
                let (v, u) = ((row + tap / 3).wrapping_sub(1), (column + tap % 3).wrapping_sub(1));
                if v < HEIGHT && u < WIDTH {
                    let element = x[((image * HEIGHT + v) * WIDTH + u) * CHANNELS + c];
                    *z += element * self.filters[(filter * 9 + tap) * CHANNELS + c];
                }
            }
        }
        for c in 0..CHANNELS {
            let channel = || z.iter().skip(c).step_by(CHANNELS);
            let mean = channel().sum::<f64>() / PIXELS as f64;
            let variance = channel().map(|z| (z - mean).powi(2)).sum::<f64>() / PIXELS as f64;
            let scale = self.gain[c] / (variance + f64::from(NORM.epsilon)).sqrt();
            z.iter_mut().skip(c).step_by(CHANNELS).for_each(|z| *z = (*z - mean) * scale + self.shift[c]);
        }
        z
    }
}

impl ByHand {
    fn output(&self) -> Vec<f64> {
        let inner: Vec<f64> = self.layers[0].apply(&self.x).into_iter().map(|z| z.max(0.0)).collect();
        self.layers[1].apply(&inner).iter().zip(&self.x).map(|(z, x)| (z + x).max(0.0)).collect()
    }

    fn loss(&self) -> f64 {
        self.output().iter().zip(&self.weights).map(|(y, weight)| y * weight).sum()
    }

    /// The derivative of the loss by one number.
    fn difference(&self, of: Numbers, i: usize) -> f64 {
        let step = 1e-6;
        let moved = |by: f64| {
            let mut other = self.clone();
            of(&mut other)[i] += by;
            other.loss()
        };
        (moved(step) - moved(-step)) / (2.0 * step)
    }
}

fn main() {
    if let Err(error) = run(&mut std::io::stdout()) {
        eprintln!("error: {error}");
        std::process::exit(1);
    }
}
