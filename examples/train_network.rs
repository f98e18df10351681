//! Training a network: `Network::backward` makes the network of a training step, and fusion puts every derivative of an
//! activation, and the sum of every bias, into the product that computes its gradient.
//!
//! The network learns which of two interleaved moons a point belongs to. One of its operators is the program's own: a
//! function on expressions, whose derivative follows from it.
//!
//! ```text
//! $ cargo run --release --example train_network
//! 9 nodes forward, 31 with gradients, in 12 kernels
//! kernel 0: MatMul + Bump
//! ...
//! kernel 9: MatMul + Bump'0 + Bump'1 + ReduceSum
//! ...
//! step   0  loss 0.56...
//! ...
//! step 200  loss 0.0...
//! 6... of 64 points are on the right side
//! ```

use postlude::network::{Attributes, CustomOperator, Network, Tensor};
use postlude::prelude::*;
use std::io::Write;

type Result<T, E = Box<dyn std::error::Error>> = std::result::Result<T, E>;

const POINTS: usize = 64;
const WIDTH: usize = 16;
const WEIGHTS: [(&str, [usize; 2]); 4] = [("w1", [2, WIDTH]), ("b1", [1, WIDTH]), ("w2", [WIDTH, WIDTH]), ("w3", [WIDTH, 2])];

/// Scores of two classes for each point, and their cross-entropy against targets.
fn network() -> Result<Network> {
    let bump = CustomOperator::pointwise("Bump", |[z, b]| {
        let z = z + b;
        z * (-(z * z)).exp() + z.tanh()
    });
    Ok(Network::build(|g| {
        let (x, target) = (g.input("x", F32, (POINTS, 2)), g.input("target", F32, (POINTS, 2)));
        let [w1, b1, w2, w3] = WEIGHTS.map(|(name, shape)| g.input(name, F32, shape));
        let hidden = g.custom(&bump, [x.matmul(w1), b1])[0];
        let scores = hidden.matmul(w2).relu().matmul(w3);
        let logs = scores.apply("LogSoftmax", &[], Attributes::new());
        let sum = (logs * target).apply("ReduceSum", &[], Attributes::new().with("keepdims", 0));
        g.output("loss", sum * g.number(F32, -1.0 / POINTS as f64));
        g.output("scores", scores);
    })?)
}

/// Points on two half circles, and the one each is on, as two columns.
fn moons() -> Result<(Tensor, Tensor)> {
    let (mut points, mut classes) = (Vec::new(), Vec::new());
    for i in 0..POINTS {
        let angle = std::f64::consts::PI * (i / 2) as f64 / (POINTS / 2 - 1) as f64;
        let upper = i % 2 == 0;
        points.extend(if upper { [angle.cos(), angle.sin()] } else { [1.0 - angle.cos(), 0.5 - angle.sin()] });
        classes.extend(if upper { [1.0, 0.0] } else { [0.0, 1.0] });
    }
    Ok((Tensor::of_numbers(F32, &[POINTS, 2], &points)?, Tensor::of_numbers(F32, &[POINTS, 2], &classes)?))
}

/// Numbers that look random, the same every time.
fn noise([rows, columns]: [usize; 2], seed: usize) -> Vec<f64> {
    let scale = (2.0 / rows as f64).sqrt();
    (0..rows * columns).map(|i| (((i + 1) * 7919 + seed * 104_729) % 1009) as f64 / 504.5 - 1.0).map(|x| x * scale).collect()
}

/// Builds the training step, fuses it, and takes steps of gradient descent.
pub fn run(out: &mut dyn Write) -> Result<()> {
    let network = network()?;
    let names = WEIGHTS.map(|(name, _)| name);
    let training = network.backward("loss", &names)?;
    let fused = training.fuse()?;
    let count = |network: &Network| network.graph().nodes().count();
    let kernels = fused.kernels().count();
    writeln!(out, "{} nodes forward, {} with gradients, in {kernels} kernels", count(&network), count(&training))?;
    for (at, kernel) in fused.kernels().enumerate() {
        writeln!(out, "kernel {at}: {}", kernel.title(fused.network()))?;
    }
    let (x, target) = moons()?;
    let mut weights: Vec<Vec<f64>> = WEIGHTS.iter().enumerate().map(|(seed, (_, shape))| noise(*shape, seed)).collect();
    for step in 0..=200 {
        let mut inputs = vec![("x", x.clone()), ("target", target.clone())];
        for ((name, shape), numbers) in WEIGHTS.iter().zip(&weights) {
            inputs.push((*name, Tensor::of_numbers(F32, shape, numbers)?));
        }
        let outputs = fused.run(&inputs)?;
        if step % 25 == 0 {
            let loss = outputs[0].1.numbers()[0];
            writeln!(out, "step {step:3}  loss {loss:.3}  {}", "#".repeat((60.0 * loss) as usize))?;
        }
        for (weights, (_, gradient)) in weights.iter_mut().zip(&outputs[1..]) {
            weights.iter_mut().zip(gradient.numbers()).for_each(|(w, g)| *w -= 0.5 * g);
        }
    }
    let mut inputs = vec![("x", x), ("target", target.clone())];
    for ((name, shape), numbers) in WEIGHTS.iter().zip(&weights) {
        inputs.push((*name, Tensor::of_numbers(F32, shape, numbers)?));
    }
    let (scores, classes) = (network.run(&inputs)?[1].1.numbers(), target.numbers());
    let right = |point: &usize| (scores[2 * point] > scores[2 * point + 1]) == (classes[2 * point] == 1.0);
    writeln!(out, "{} of {POINTS} points are on the right side", (0..POINTS).filter(right).count())?;
    Ok(())
}

#[allow(dead_code, reason = "the tests run the example's other function")]
fn main() -> Result<()> {
    run(&mut std::io::stdout())
}
