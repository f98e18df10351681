//! Two layers: the backward epilogue of the first runs behind the product that makes its incoming gradient.

use crate::problem::Numbers;
use postlude::grad::{Pair, Reserve, Wrt};
use postlude::prelude::*;

const BATCH: usize = 5;
const INNER: usize = 9;
const HIDDEN: usize = 11;
const OUTER: usize = 6;

struct Network {
    x: Vec<f32>,
    w1: Vec<f32>,
    bias: Vec<f32>,
    w2: Vec<f32>,
    upstream: Vec<f32>,
}

impl Network {
    fn hidden(&self, pair: &Pair, reserve: &mut Reserve<Vec<u8>>) -> Vec<f32> {
        let mut h = vec![0.0f32; BATCH * HIDDEN];
        let args = HostArgs::new().input("a", &self.x).input("b", &self.w1).input("bias", &self.bias);
        let args = args.output("d", &mut h).scalar("split", 2).saving(reserve);
        Gemm::new(F32, TT, pair.forward()).reference(Shape::new(BATCH, HIDDEN, INNER), args).unwrap();
        h
    }

    /// The weighted sum of the outputs.
    fn loss(&self, pair: &Pair) -> f64 {
        let mut reserve = pair.reserve().allocate(Shape::new(BATCH, HIDDEN, INNER));
        let h = self.hidden(pair, &mut reserve);
        let mut sum = 0.0;
        for i in 0..BATCH {
            for j in 0..OUTER {
                let y: f64 = (0..HIDDEN).map(|k| f64::from(h[i * HIDDEN + k]) * f64::from(self.w2[k * OUTER + j])).sum();
                sum += y * f64::from(self.upstream[i * OUTER + j]);
            }
        }
        sum
    }
}

#[test]
fn the_gradients_of_a_hidden_layer() {
    let epilogue = Epilogue::build(|e| {
        let z = e.acc() + e.load("bias", F32.over(N));
        let y = z.region(e.column().lt(e.scalar("split", I32)), |z| z.tanh()).otherwise(|z| z.relu());
        e.store("d", y, F32);
    })
    .unwrap();
    let pair = epilogue.backward(Wrt::all().masks(Bits128)).unwrap();
    let mut numbers = Numbers(12);
    let mut fill = |count: usize| -> Vec<f32> { (0..count).map(|_| numbers.number() as f32 / 2.0).collect() };
    let mut network = Network {
        x: fill(BATCH * INNER),
        w1: fill(INNER * HIDDEN),
        bias: fill(HIDDEN),
        w2: fill(HIDDEN * OUTER),
        upstream: fill(BATCH * OUTER),
    };
    let shape = Shape::new(BATCH, HIDDEN, OUTER);
    let mut reserve = pair.reserve().allocate(Shape::new(BATCH, HIDDEN, INNER));
    network.hidden(&pair, &mut reserve);
    // dH = dY W2^T: W2 lies K x N as the product's B does in the forward pass, and here N x K.
    let (mut dz, mut dbias) = (vec![0.0f32; BATCH * HIDDEN], vec![0.0f32; HIDDEN]);
    let args = HostArgs::new().input("a", &network.upstream).input("b", &network.w2).scalar("split", 2);
    let args = args.output("grad_acc", &mut dz).output("grad_bias", &mut dbias).saved(&reserve);
    Gemm::new(F32, TN, pair.backward()).reference(shape, args).unwrap();
    // `None` where ReLU has its kink in between.
    let difference = |network: &mut Network, of: fn(&mut Network) -> &mut Vec<f32>, i: usize| {
        let x = of(network)[i];
        let mut at = |offset: f32| {
            of(network)[i] = x + offset;
            let loss = network.loss(&pair);
            of(network)[i] = x;
            loss
        };
        let h = 1.0 / 128.0;
        let slopes = [h, h / 2.0, h / 4.0].map(|h| [(at(h) - at(0.0)) / f64::from(h), (at(0.0) - at(-h)) / f64::from(h)]);
        let [left, right] = slopes[2];
        let smooth = slopes.iter().flatten().all(|s| (s - left).abs() < 2e-2 * (1.0 + left.abs()));
        smooth.then_some((left + right) / 2.0)
    };
    let mut kinks = 0;
    for (j, found) in dbias.iter().enumerate() {
        let Some(expected) = difference(&mut network, |n| &mut n.bias, j) else {
            kinks += 1;
            continue;
        };
        assert!((f64::from(*found) - expected).abs() < 1e-2 * (1.0 + expected.abs()), "bias {j}: {found}, not {expected}");
    }
    // dW1 = X^T dZ.
    for (k, j) in (0..INNER).flat_map(|k| (0..HIDDEN).map(move |j| (k, j))) {
        let found: f64 = (0..BATCH).map(|i| f64::from(network.x[i * INNER + k]) * f64::from(dz[i * HIDDEN + j])).sum();
        let Some(expected) = difference(&mut network, |n| &mut n.w1, k * HIDDEN + j) else {
            kinks += 1;
            continue;
        };
        assert!((found - expected).abs() < 1e-2 * (1.0 + expected.abs()), "weight {k}, {j}: {found}, not {expected}");
    }
    assert!(kinks < 20, "{kinks} of {} weights are at a kink", (INNER + 1) * HIDDEN);
}
