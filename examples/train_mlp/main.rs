//! A network trained with epilogues alone: three layers classify spiral arms.
//!
//! Two inputs, two hidden layers of 48 (the first with a region: waves in 16 of its columns, rectified ones in the rest), three
//! classes. A step of the training is fifteen launches and nothing else: three products forward; one pass for softmax, loss,
//! accuracy and the gradient; five products backward, which apply the
//! derivatives and sum the bias gradients; six passes of the optimiser.
//!
//! Runs on the GPU if there is one, on the CPU otherwise, and says why. Compares the gradients of the first step with
//! differences of a plain loop in `f64`, and checks that the loss falls. Draws the network's classification of the
//! plane. With `--fp8` the products of the second and third layer read eight bits, and their gradients are compared with those in
//! `f32`:
//!
//! ```text
//! $ cargo run --release --example train_mlp
//! 2 -> 48 -> 48 -> 3, 600 points of 3 spiral arms, f32
//! Runs on the CPU: no CUDA driver: libcuda.so.1: cannot open shared object file ...
//!
//! gradients of the first step, off differences of a plain loop: ...
//!
//! step      loss   accuracy
//!    0 ...
//!  100 ...
//!  200 ...
//!  300 ...
//!  400 ...
//! points it has not seen: ...
//!
//! Picture: target/train_mlp.png
//! ```

#[path = "../support/canvas.rs"]
mod canvas;
mod eight_bits;
mod launch;
mod network;
pub mod picture;
pub mod spiral;

use launch::Machine;
use network::{HIDDEN, Layers, Parameters, Trainer, logits, plain_loss};
use postlude::prelude::*;
use spiral::{CLASSES, FEATURES, Random, Spiral};
use std::io::Write;

type Result<T, E = Box<dyn std::error::Error>> = std::result::Result<T, E>;

const ROWS: usize = 600;
const STEPS: usize = 400;

/// The largest difference between a gradient and a central difference of the plain loop, relative to the largest gradient of
/// its tensor.
fn off_differences(data: &Spiral, parameters: &[Parameters; 3]) -> f64 {
    let mut worst = 0f64;
    let tensors = parameters.iter().flat_map(|p| [&p.w, &p.bias]);
    for (which, tensor) in tensors.enumerate() {
        let largest = tensor.gradient.iter().fold(0f64, |largest, g| largest.max(f64::from(g.abs())));
        for index in (0..tensor.value.len()).step_by(tensor.value.len().div_ceil(6)) {
            let at = |offset| plain_loss(data, parameters, (which, index, offset));
            let h = 1e-6;
            let difference = (at(h) - at(-h)) / (2.0 * h);
            let off = (f64::from(tensor.gradient[index]) - difference).abs() / largest;
            // NaN counts as worse than any number.
            worst = if off.is_nan() { f64::INFINITY } else { worst.max(off) };
        }
    }
    worst
}

/// How far gradients are from others, as a share of their size: the largest of all tensors.
fn off_others(parameters: &[Parameters; 3], others: &[Parameters; 3]) -> f64 {
    let tensors = |parameters: &[Parameters; 3]| -> Vec<Vec<f32>> {
        parameters.iter().flat_map(|p| [p.w.gradient.clone(), p.bias.gradient.clone()]).collect()
    };
    let norm = |numbers: &mut dyn Iterator<Item = f32>| numbers.map(|x| f64::from(x).powi(2)).sum::<f64>().sqrt();
    let off = tensors(parameters).into_iter().zip(tensors(others)).map(|(found, expected)| {
        norm(&mut found.iter().zip(&expected).map(|(a, b)| a - b)) / norm(&mut expected.iter().copied())
    });
    // NaN counts as worse than any number.
    off.fold(0.0, |worst, off| if off.is_nan() { f64::INFINITY } else { worst.max(off) })
}

/// Trains in `f32`, checks and draws; writes its progress to `out`.
pub fn run(out: &mut dyn Write) -> Result<()> {
    train(out, false)
}

/// [`run`], if asked with products of eight bits.
pub fn train(out: &mut dyn Write, eight_bits: bool) -> Result<()> {
    let format = if eight_bits { "e4m3 and e5m2" } else { "f32" };
    writeln!(out, "{FEATURES} -> {HIDDEN} -> {HIDDEN} -> {CLASSES}, {ROWS} points of {CLASSES} spiral arms, {format}")?;
    let device = Device::find();
    match &device {
        Ok(device) => writeln!(out, "Runs on the GPU: {device}\n")?,
        Err(why) => writeln!(out, "Runs on the CPU: {why}\n")?,
    }
    let machine = Machine::new(device.ok());

    let mut random = Random(1);
    let (seen, unseen) = (Spiral::new(ROWS, &mut random), Spiral::new(ROWS, &mut random));
    let layers = Layers::new()?;
    let mut parameters = Parameters::new(&layers, &mut random);
    let mut floats = Trainer::new(&machine, &layers, ROWS, false)?;
    let mut trainer = Trainer::new(&machine, &layers, ROWS, eight_bits)?;

    floats.gradients(&seen, &mut parameters)?;
    let off = off_differences(&seen, &parameters);
    writeln!(out, "gradients of the first step, off differences of a plain loop: {off:.1e}\n")?;
    if off.is_nan() || off > 1e-4 {
        return Err(format!("a gradient is wrong by {off} of the largest").into());
    }
    if eight_bits {
        let mut rounded = parameters.clone();
        // The first run finds how large the numbers are.
        trainer.gradients(&seen, &mut rounded)?;
        trainer.gradients(&seen, &mut rounded)?;
        let off = off_others(&rounded, &parameters);
        writeln!(out, "gradients in eight bits, off those in f32: {:.1} % of their size\n", 100.0 * off)?;
        if off > 0.2 {
            return Err(format!("a gradient is off by {off} of its size").into());
        }
    }

    writeln!(out, "step      loss   accuracy")?;
    let mut losses = Vec::new();
    for step in 0..=STEPS {
        // The rate falls to nothing along half a cosine.
        let rate = 0.003 * (1.0 + (std::f32::consts::PI * step as f32 / STEPS as f32).cos());
        let score = trainer.step(&seen, &mut parameters, rate)?;
        losses.push(score.loss);
        if step % 100 == 0 {
            writeln!(out, "{step:>4} {:>9.4} {:>8.1} %", score.loss, 100.0 * score.accuracy)?;
        }
    }
    let test = floats.gradients(&unseen, &mut parameters)?;
    writeln!(out, "points it has not seen: loss {:.4}, accuracy {:.1} %", test.loss, 100.0 * test.accuracy)?;
    if losses[STEPS].is_nan() || losses[STEPS] > 0.1 * losses[0] {
        return Err(format!("the loss fell from {} to {} only", losses[0], losses[STEPS]).into());
    }

    let plane = logits(&machine, &layers, &parameters, &picture::plane())?;
    let path = picture::draw(if eight_bits { "train_mlp_fp8.png" } else { "train_mlp.png" }, &plane, &seen, &losses)?;
    writeln!(out, "\nPicture: {}", path.display())?;
    Ok(())
}

fn main() {
    if let Err(error) = train(&mut std::io::stdout(), std::env::args().any(|argument| argument == "--fp8")) {
        eprintln!("error: {error}");
        std::process::exit(1);
    }
}
