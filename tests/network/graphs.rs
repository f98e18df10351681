//! Networks that several tests use.

use postlude::network::{Attributes, Network, NetworkBuilder, Tensor, Value};
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

/// Numbers of a weight, scaled so that sums of products stay about as large as their terms.
pub fn scaled(format: DType, shape: &[usize], seed: u64) -> Tensor {
    let terms: usize = if shape.len() > 2 { shape[1..].iter().product() } else { shape[0] };
    let scale = 1.0 / (terms.max(1) as f64).sqrt();
    let scaled: Vec<f64> = numbers(shape.iter().product(), seed).iter().map(|x| x * scale).collect();
    Tensor::of_numbers(format, shape, &scaled).unwrap()
}

fn weight<'g>(g: &'g NetworkBuilder, format: DType, name: &str, shape: &[usize]) -> Value<'g> {
    g.constant(name, scaled(format, shape, name.bytes().map(u64::from).sum()))
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
    layer(format, [batch, length, heads, head], |_, scores| scores)
}

/// The same for sequences that end early: `mask` is 1 where there is a word, and 0 behind the last one.
pub fn padded_encoder(format: DType, batch: usize, length: usize, heads: usize, head: usize) -> Network {
    layer(format, [batch, length, heads, head], |g, scores| {
        let mask = g.input("mask", format, (batch, 1, 1, length));
        scores + (g.number(format, 1.0) - mask) * g.number(format, -10000.0)
    })
}

fn layer(
    format: DType,
    [batch, length, heads, head]: [usize; 4],
    masked: impl for<'g> FnOnce(&'g NetworkBuilder, Value<'g>) -> Value<'g>,
) -> Network {
    let width = heads * head;
    let sizes = [batch, length, heads, head].map(|x| x as i64);
    Network::build(|g| {
        let x = g.input("x", format, (batch, length, width));
        let [q, k, v] = ["q", "k", "v"].map(|name| project(g, format, x, name, [width, width]).reshape(&sizes));
        let (q, k, v) = (q.transpose(&[0, 2, 1, 3]), k.transpose(&[0, 2, 3, 1]), v.transpose(&[0, 2, 1, 3]));
        let scores = masked(g, q.matmul(k) * g.number(format, 1.0 / (head as f64).sqrt())).softmax(-1);
        let mixed = scores.matmul(v).transpose(&[0, 2, 1, 3]).reshape(&[sizes[0], sizes[1], width as i64]);
        let attended = norm(g, format, x + project(g, format, mixed, "o", [width, width]), "norm1", width);
        let hidden = project(g, format, attended, "up", [width, 4 * width]).gelu();
        let out = project(g, format, hidden, "down", [4 * width, width]);
        g.output("y", norm(g, format, attended + out, "norm2", width));
    })
    .unwrap()
}

pub type Named = (&'static str, Tensor);

const WEIGHTS: [&str; 3] = ["w1", "w2", "w3"];
const BIASES: [&str; 3] = ["b1", "b2", "b3"];

/// Three layers with biases, GELU, ReLU and a softmax cross-entropy against one-hot targets. Weights are inputs.
pub fn mlp(format: DType, batch: usize, sizes: [usize; 4]) -> Network {
    Network::build(|g| {
        let x = g.input("x", format, (batch, sizes[0]));
        let [w1, w2, w3] = [0, 1, 2].map(|i| g.input(WEIGHTS[i], format, (sizes[i], sizes[i + 1])));
        let [b1, b2, b3] = [0, 1, 2].map(|i| g.input(BIASES[i], format, (sizes[i + 1],)));
        let hidden = (x.matmul(w1) + b1).gelu();
        let hidden = (hidden.matmul(w2) + b2).relu();
        let scores = hidden.matmul(w3) + b3;
        let logs = scores.apply("LogSoftmax", &[], Attributes::new());
        let chosen = logs * g.input("target", format, (batch, sizes[3]));
        let sum = chosen.apply("ReduceSum", &[], Attributes::new().with("keepdims", 0));
        g.output("loss", sum * g.number(format, -1.0 / batch as f64));
    })
    .unwrap()
}

/// The weights of [`mlp`], and its data.
pub fn mlp_inputs(format: DType, batch: usize, sizes: [usize; 4]) -> (Vec<Named>, Vec<Named>) {
    let one_hot: Vec<f64> =
        (0..batch * sizes[3]).map(|i| f64::from(u8::from(i % sizes[3] == (i / sizes[3] * 7) % sizes[3]))).collect();
    let layer = |i: usize| {
        let bias = Tensor::of_numbers(format, &[sizes[i + 1]], &vec![0.1; sizes[i + 1]]).unwrap();
        [(WEIGHTS[i], scaled(format, &[sizes[i], sizes[i + 1]], 11 + i as u64)), (BIASES[i], bias)]
    };
    let data = vec![
        ("x", tensor(format, &[batch, sizes[0]], 1)),
        ("target", Tensor::of_numbers(format, &[batch, sizes[3]], &one_hot).unwrap()),
    ];
    ((0..3).flat_map(layer).collect(), data)
}
