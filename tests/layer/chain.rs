//! Layers in a chain: the derivative of one runs behind the product of the next.

use crate::matrix::{Numbers, near};
use postlude::layer::Linear;
use postlude::prelude::*;

const ROWS: usize = 6;
const INPUTS: usize = 3;
const HIDDEN: usize = 7;
const OUTPUTS: usize = 4;

fn fill(numbers: &mut Numbers, count: usize) -> Vec<f32> {
    (0..count).map(|_| numbers.number()).collect()
}

/// Y = tanh(hidden) W2 + b2 + hidden's skip, with hidden = region(X W1 + b1).
#[derive(Clone)]
struct Network {
    x: Vec<f32>,
    parameters: [Vec<f32>; 4],
    upstream: Vec<f32>,
    /// The contribution to the hidden values from elsewhere.
    skip: Vec<f32>,
}

fn product(a: &[f64], b: &[f32], bias: &[f32], [m, n, k]: [usize; 3], f: impl Fn(usize, usize, f64) -> f64) -> Vec<f64> {
    let at = |i: usize, j: usize| (0..k).map(|l| a[i * k + l] * f64::from(b[l * n + j])).sum::<f64>() + f64::from(bias[j]);
    (0..m * n).map(|place| f(place / n, place % n, at(place / n, place % n))).collect()
}

fn hidden(i: usize, j: usize, z: f64) -> f64 {
    if i + j < 5 { z.tanh() } else { z.max(0.0) }
}

impl Network {
    fn new() -> Network {
        let mut numbers = Numbers(77);
        let mut fill = |count| fill(&mut numbers, count);
        let x = fill(ROWS * INPUTS);
        let parameters = [INPUTS * HIDDEN, HIDDEN, HIDDEN * OUTPUTS, OUTPUTS].map(&mut fill);
        Network { x, parameters, upstream: fill(ROWS * OUTPUTS), skip: fill(ROWS * HIDDEN) }
    }

    fn loss(&self) -> f64 {
        let [w1, b1, w2, b2] = &self.parameters;
        let x: Vec<f64> = self.x.iter().map(|x| f64::from(*x)).collect();
        let h = product(&x, w1, b1, [ROWS, HIDDEN, INPUTS], hidden);
        let y = product(&h, w2, b2, [ROWS, OUTPUTS, HIDDEN], |_, _, z| z.tanh());
        let dot = |a: &[f64], b: &[f32]| a.iter().zip(b).map(|(a, b)| a * f64::from(*b)).sum::<f64>();
        dot(&y, &self.upstream) + dot(&h, &self.skip)
    }

    fn difference(&self, parameter: usize, index: usize) -> f64 {
        let h = 1.0 / 131_072.0;
        let at = |h| {
            let mut moved = self.clone();
            moved.parameters[parameter][index] += h;
            moved.loss()
        };
        (at(h) - at(-h)) / (2.0 * f64::from(h))
    }
}

/// Every parameter's gradient, with no pass besides the one over the last output.
#[test]
fn a_network_needs_no_pass_but_the_last() {
    let network = Network::new();
    let [w1, b1, w2, b2] = &network.parameters;
    let first =
        Linear::new(F32, [INPUTS, HIDDEN], |e, z| z.region((e.row() + e.column()).lt(5), |z| z.tanh()).otherwise(|z| z.relu()));
    let (first, second) = (first.unwrap(), Linear::new(F32, [HIDDEN, OUTPUTS], |_, z| z.tanh()).unwrap());
    let (mut h, mut y) = (vec![f32::NAN; ROWS * HIDDEN], vec![f32::NAN; ROWS * OUTPUTS]);
    let (mut saved1, mut saved2) = (first.reserve(ROWS), second.reserve(ROWS));
    let args = HostArgs::new().input("x", &network.x).input("w", w1).input("bias", b1).output("y", &mut h);
    first.forward(ROWS).reference(args.saving(&mut saved1)).unwrap();
    let args = HostArgs::new().input("x", &h).input("w", w2).input("bias", b2).output("y", &mut y);
    second.forward(ROWS).reference(args.saving(&mut saved2)).unwrap();

    let mut gradients = network.parameters.clone().map(|p| vec![f32::NAN; p.len()]);
    let [dw1, db1, dw2, db2] = &mut gradients;
    let (mut dz1, mut dz2) = (h.clone(), y.clone());
    let args = HostArgs::new().input("dy", &network.upstream).output("grad_acc", &mut dz2).output("grad_bias", db2);
    second.activation_grad(ROWS).unwrap().reference(args.saved(&saved2)).unwrap();
    second.wgrad(ROWS).unwrap().reference(HostArgs::new().input("x", &h).input("dz", &dz2).output("dw", dw2)).unwrap();
    let behind = second.dgrad_into(&first, ROWS).unwrap().plus("skip", F32).unwrap();
    let args = HostArgs::new().input("dz", &dz2).input("w", w2).input("skip", &network.skip);
    behind.reference(args.output("grad_acc", &mut dz1).output("grad_bias", db1).saved(&saved1)).unwrap();
    first.wgrad(ROWS).unwrap().reference(HostArgs::new().input("x", &network.x).input("dz", &dz1).output("dw", dw1)).unwrap();

    for (parameter, found) in gradients.iter().enumerate() {
        for (i, found) in found.iter().enumerate() {
            near(&format!("parameter {parameter}[{i}]"), f64::from(*found), network.difference(parameter, i));
        }
    }
}

/// Two halves of a batch, the second of which adds to the first's gradients, make the gradients of the whole.
#[test]
fn halves_of_a_batch_add_up() {
    let mut numbers = Numbers(5);
    let (x, dy, w) = (fill(&mut numbers, 8 * 3), fill(&mut numbers, 8 * 5), fill(&mut numbers, 3 * 5));
    let layer = Linear::new(F32, [3, 5], |_, z| z.sigmoid()).unwrap();
    let bias = [0.25f32; 5];
    let (mut dw, mut dbias) = ([[0.0f32; 15]; 2], [[0.0f32; 5]; 2]);
    let mut both = ([0.0f32; 15], [0.0f32; 5]);
    for (way, pieces) in [&[(0, 8)][..], &[(0, 4), (4, 8)]].into_iter().enumerate() {
        for &(first, end) in pieces {
            let (m, again) = (end - first, first > 0);
            let accumulate = |step: postlude::layer::Step, name| if again { step.accumulate(&[name]).unwrap() } else { step };
            let (x, dy) = (&x[first * 3..end * 3], &dy[first * 5..end * 5]);
            let (mut y, mut dz, mut saved) = (vec![0.0f32; m * 5], vec![0.0f32; m * 5], layer.reserve(m));
            let args = HostArgs::new().input("x", x).input("w", &w).input("bias", &bias).output("y", &mut y);
            layer.forward(m).reference(args.saving(&mut saved)).unwrap();
            let args = HostArgs::new().input("dy", dy).output("grad_acc", &mut dz).output("grad_bias", &mut dbias[way]);
            accumulate(layer.activation_grad(m).unwrap(), "grad_bias").reference(args.saved(&saved)).unwrap();
            let args = HostArgs::new().input("x", x).input("dz", &dz).output("dw", &mut dw[way]);
            accumulate(layer.wgrad(m).unwrap(), "dw").reference(args).unwrap();
            // The same beside each other.
            let args = HostArgs::new().input("x", x).input("dz", &dz).output("dw", &mut both.0).output("grad_bias", &mut both.1);
            let step = layer.wgrad_with_bias(m).unwrap();
            let step = if again { step.accumulate(&["dw", "grad_bias"]).unwrap() } else { step };
            step.reference(args).unwrap();
        }
        assert_eq!(both.0, dw[way]);
        both.1.iter().zip(dbias[way]).for_each(|(a, b)| near("a bias", f64::from(*a), f64::from(b)));
    }
    let near = |a: &[f32], b: &[f32]| a.iter().zip(b).for_each(|(a, b)| near("a half", f64::from(*a), f64::from(*b)));
    near(&dw[0], &dw[1]);
    near(&dbias[0], &dbias[1]);
}
