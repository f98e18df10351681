//! Networks that several tests use.

use postlude::network::{Network, NetworkBuilder, Tensor, Value};
use postlude::prelude::*;

/// Numbers that look random, the same every time.
pub fn numbers(count: usize, seed: u64) -> Vec<f64> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = |state: &mut u64| {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        (*state >> 40) as f64 / (1u64 << 23) as f64 - 1.0
    };
    (0..count).map(|_| next(&mut state)).collect()
}

pub fn tensor(format: DType, shape: &[usize], seed: u64) -> Tensor {
    Tensor::of_numbers(format, shape, &numbers(shape.iter().product(), seed)).unwrap()
}

/// A weight, scaled so that sums stay about as large as their terms.
fn weight<'g>(g: &'g NetworkBuilder, format: DType, name: &str, shape: &[usize]) -> Value<'g> {
    let scale = 1.0 / (shape[0] as f64).sqrt();
    let seed = name.bytes().map(u64::from).sum();
    let scaled: Vec<f64> = numbers(shape.iter().product(), seed).iter().map(|x| x * scale).collect();
    g.constant(name, Tensor::of_numbers(format, shape, &scaled).unwrap())
}

/// x W + b.
fn project<'g>(g: &'g NetworkBuilder, format: DType, x: Value<'g>, name: &str, [from, to]: [usize; 2]) -> Value<'g> {
    let w = weight(g, format, &format!("{name}.w"), &[from, to]);
    x.matmul(w) + weight(g, format, &format!("{name}.b"), &[to])
}

/// A layer norm over the last axis.
fn norm<'g>(g: &'g NetworkBuilder, format: DType, x: Value<'g>, name: &str, width: usize) -> Value<'g> {
    let scale = g.constant(&format!("{name}.scale"), tensor(format, &[width], 9));
    x.layer_norm(scale, weight(g, format, &format!("{name}.bias"), &[width]), 1e-5)
}

/// A layer of a transformer's encoder: attention and a GELU MLP, each with a residual and a layer norm behind it.
pub fn encoder(format: DType, batch: usize, length: usize, heads: usize, head: usize) -> Network {
    let width = heads * head;
    let sizes = [batch, length, heads, head].map(|x| x as i64);
    Network::build(|g| {
        let x = g.input("x", format, (batch, length, width));
        let [q, k, v] = ["q", "k", "v"].map(|name| project(g, format, x, name, [width, width]).reshape(&sizes));
        let (q, k, v) = (q.transpose(&[0, 2, 1, 3]), k.transpose(&[0, 2, 3, 1]), v.transpose(&[0, 2, 1, 3]));
        let scores = (q.matmul(k) * g.number(format, 1.0 / (head as f64).sqrt())).softmax(-1);
        let mixed = scores.matmul(v).transpose(&[0, 2, 1, 3]).reshape(&[sizes[0], sizes[1], width as i64]);
        let attended = norm(g, format, x + project(g, format, mixed, "o", [width, width]), "norm1", width);
        let hidden = project(g, format, attended, "up", [width, 4 * width]).gelu();
        let out = project(g, format, hidden, "down", [4 * width, width]);
        g.output("y", norm(g, format, attended + out, "norm2", width));
    })
    .unwrap()
}
