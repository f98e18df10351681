//! A layer of a transformer's encoder as a network: attention and a GELU MLP, each with a residual and a layer norm.
//!
//! The network is built node by node. Fusion finds the kernels: biases, GELU, scales and residuals become epilogues,
//! attention one kernel, layer norms kernels of rows, and heads strides of the projections' results. `explain` says for each
//! tensor that is left in memory why it is.
//!
//! ```text
//! $ cargo run --release --example encoder_block
//! 1 attentions take the place of ...
//! 29 nodes, ...
//! kernel 0: MatMul + Add ...
//! ...
//! launches   7 instead of 29
//! ...
//! largest difference to the network node by node: 0.0...
//! Runs on the CPU: ...
//! Drawings: target/encoder_block.dot, target/encoder_block_fused.dot and target/encoder_block.svg
//! ```

#[path = "support/networks.rs"]
#[allow(dead_code, reason = "tests and the benchmark use the rest")]
mod networks;

use networks::compute;
use postlude::network::{Network, NetworkBuilder, Tensor, Value};
use postlude::prelude::*;
use std::io::Write;

type Result<T, E = Box<dyn std::error::Error>> = std::result::Result<T, E>;

const LENGTH: usize = 32;
const HEADS: usize = 4;
const HEAD: usize = 16;
const WIDTH: usize = HEADS * HEAD;

/// Numbers that look random, the same every time.
fn noise(count: usize, seed: usize) -> Vec<f64> {
    (0..count).map(|i| ((i * 7919 + seed * 104_729) % 1009) as f64 / 504.5 - 1.0).collect()
}

fn tensor(shape: &[usize], seed: usize, scale: f64) -> Tensor {
    let numbers: Vec<f64> = noise(shape.iter().product(), seed).iter().map(|x| x * scale).collect();
    Tensor::of_numbers(F16, shape, &numbers).expect("as many numbers as the shape has")
}

/// x W + b.
fn linear<'g>(g: &'g NetworkBuilder, x: Value<'g>, name: &str, [from, to]: [usize; 2]) -> Value<'g> {
    let seed = name.bytes().map(usize::from).sum::<usize>() + from + to;
    let w = g.constant(&format!("{name}.w"), tensor(&[from, to], seed, 1.0 / (from as f64).sqrt()));
    x.matmul(w) + g.constant(&format!("{name}.b"), tensor(&[to], seed + 1, 0.1))
}

fn norm<'g>(g: &'g NetworkBuilder, x: Value<'g>, name: &str) -> Value<'g> {
    let scale = g.constant(&format!("{name}.scale"), Tensor::of_numbers(F16, &[WIDTH], &[1.0; WIDTH]).expect("a vector"));
    x.layer_norm(scale, g.constant(&format!("{name}.bias"), tensor(&[WIDTH], 3, 0.1)), 1e-5)
}

/// The layer.
pub fn encoder() -> Result<Network> {
    let sizes = [1, LENGTH as i64, HEADS as i64, HEAD as i64];
    Ok(Network::build(|g| {
        let x = g.input("x", F16, (1, LENGTH, WIDTH));
        let [q, k, v] = ["query", "key", "value"].map(|name| linear(g, x, name, [WIDTH, WIDTH]).reshape(&sizes));
        let (q, k, v) = (q.transpose(&[0, 2, 1, 3]), k.transpose(&[0, 2, 3, 1]), v.transpose(&[0, 2, 1, 3]));
        let shares = (q.matmul(k) * g.number(F16, 1.0 / (HEAD as f64).sqrt())).softmax(-1);
        let mixed = shares.matmul(v).transpose(&[0, 2, 1, 3]).reshape(&[1, sizes[1], WIDTH as i64]);
        let attended = norm(g, x + linear(g, mixed, "out", [WIDTH, WIDTH]), "norm1");
        let hidden = linear(g, attended, "up", [WIDTH, 4 * WIDTH]).gelu();
        g.output("y", norm(g, attended + linear(g, hidden, "down", [4 * WIDTH, WIDTH]), "norm2"));
    })?)
}

/// Builds, fuses, runs and draws the layer.
pub fn run(out: &mut dyn Write) -> Result<()> {
    let network = encoder()?;
    let fused = network.fuse()?;
    write!(out, "{}", fused.explain())?;
    let x = tensor(&[1, LENGTH, WIDTH], 1, 1.0);
    let (y, place) = compute(&network, &x)?;
    let exact = network.run(&[("x", x)])?[0].1.numbers();
    let worst = y.numbers().iter().zip(&exact).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    writeln!(out, "largest difference to the network node by node: {worst:.4}")?;
    writeln!(out, "Runs on {place}")?;
    networks::draw("encoder_block", &network, &fused)?;
    writeln!(out, "Drawings: target/encoder_block.dot, target/encoder_block_fused.dot and target/encoder_block.svg")?;
    Ok(())
}

#[allow(dead_code, reason = "the tests run the example's other function")]
fn main() -> Result<()> {
    run(&mut std::io::stdout())
}
