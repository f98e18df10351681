//! Convolutional layers: every step of two of them, one behind the other, against plain loops and their differences.

use postlude::build::Builder;
use postlude::grad::Wrt;
use postlude::layer::{Conv2d, LinearError};
use postlude::prelude::*;

/// An activation, in the graph and in plain Rust.
type Function = (for<'g> fn(&'g Builder, Expr<'g>) -> Expr<'g>, fn(usize, f64) -> f64);

const SMOOTH: Function = (|_, z| z.tanh(), |_, z| z.tanh());
/// Another function for every other filter, and a kink.
const REGION: Function = (
    |e, z| z.region(e.column().lt(3), |z| z.relu()).otherwise(|z| z.sigmoid()),
    |filter, z| if filter < 3 { z.max(0.0) } else { 1.0 / (1.0 + (-z).exp()) },
);

/// The numbers of one layer.
#[derive(Clone)]
struct Plain {
    shape: ConvShape,
    output: [usize; 2],
    f: Function,
    w: Vec<f64>,
    bias: Vec<f64>,
}

fn numbers(count: usize, seed: usize) -> Vec<f64> {
    (0..count).map(|i| ((i * 37 + seed * 11) % 61) as f64 / 64.0 - 0.47).collect()
}

fn narrow(numbers: &[f64]) -> Vec<f32> {
    numbers.iter().map(|x| *x as f32).collect()
}

impl Plain {
    fn new(shape: ConvShape, f: Function, seed: usize) -> Plain {
        let of_filter = shape.window[0] * shape.window[1] * shape.channels / shape.groups;
        let output = postlude::Convolution::new(shape).unwrap().output();
        Plain { shape, output, f, w: numbers(shape.filters * of_filter, seed), bias: numbers(shape.filters, seed + 1) }
    }

    fn forward(&self, x: &[f64]) -> Vec<f64> {
        let ConvShape { height, width, channels, filters, window: [r, s], stride, padding, dilation, groups, .. } = self.shape;
        let ([p, q], of_group) = (self.output, channels / groups);
        let mut y = Vec::new();
        for (image, i, j) in (0..self.shape.images).flat_map(|n| (0..p * q).map(move |at| (n, at / q, at % q))) {
            for filter in 0..filters {
                let first = filter / (filters / groups) * of_group;
                let mut z = self.bias[filter];
                for tap in 0..r * s {
                    let v = (i * stride[0] + tap / s * dilation[0]).wrapping_sub(padding[0]);
                    let u = (j * stride[1] + tap % s * dilation[1]).wrapping_sub(padding[2]);
                    if v < height && u < width {
                        for c in 0..of_group {
                            let element = x[((image * height + v) * width + u) * channels + first + c];
                            z += element * self.w[(filter * r * s + tap) * of_group + c];
                        }
                    }
                }
                y.push((self.f.1)(filter, z));
            }
        }
        y
    }
}

/// Two layers, X, and the weights of the loss.
#[derive(Clone)]
struct Net {
    x: Vec<f64>,
    layers: [Plain; 2],
    weights: Vec<f64>,
}

impl Net {
    fn loss(&self) -> f64 {
        let y = self.layers[1].forward(&self.layers[0].forward(&self.x));
        y.iter().zip(&self.weights).map(|(y, weight)| y * weight).sum()
    }

    fn check(&self, what: &str, found: &[f32], of: fn(&mut Net) -> &mut Vec<f64>) {
        let step = found.len().div_ceil(60);
        for (i, found) in found.iter().enumerate().step_by(step) {
            let moved = |by: f64| {
                let mut net = self.clone();
                of(&mut net)[i] += by;
                net.loss()
            };
            let expected = (moved(1e-6) - moved(-1e-6)) / 2e-6;
            assert!((f64::from(*found) - expected).abs() < 2e-4 * (1.0 + expected.abs()), "{what}[{i}]: {found}, {expected}");
        }
    }
}

fn chain(shapes: [ConvShape; 2], f: Function) {
    let layers = [Plain::new(shapes[0], f, 1), Plain::new(shapes[1], f, 7)];
    let [first, second] = layers.each_ref().map(|plain| Conv2d::new(F32, plain.shape, plain.f.0).unwrap());
    let x = numbers(first.convolution().pixels() * shapes[0].channels, 3);
    let weights = numbers(second.shape().m * second.shape().n, 5);
    let net = Net { x, layers, weights };
    let (x, dy) = (narrow(&net.x), narrow(&net.weights));
    let ([w1, w2], [b1, b2]) = (net.layers.each_ref().map(|l| narrow(&l.w)), net.layers.each_ref().map(|l| narrow(&l.bias)));
    let room = |layer: &Conv2d| vec![f32::NAN; layer.shape().m * layer.shape().n];

    let (mut y1, mut y2, mut r1, mut r2) = (room(&first), room(&second), first.reserve(), second.reserve());
    let args = HostArgs::new().input("x", &x).input("w", &w1).input("bias", &b1).output("y", &mut y1);
    first.forward().reference(args.saving(&mut r1)).unwrap();
    let args = HostArgs::new().input("x", &y1).input("w", &w2).input("bias", &b2).output("y", &mut y2);
    second.forward().reference(args.saving(&mut r2)).unwrap();
    let expected = net.layers[1].forward(&net.layers[0].forward(&net.x));
    assert!(y2.iter().zip(&expected).all(|(y, expected)| (f64::from(*y) - expected).abs() < 1e-4), "{:?}", shapes[0]);
    let mut again = room(&second);
    let args = HostArgs::new().input("x", &y1).input("w", &w2).input("bias", &b2).output("y", &mut again);
    second.inference().reference(args).unwrap();
    assert_eq!(again, y2);

    let (mut dz1, mut dz2, mut db1, mut db2) = (room(&first), room(&second), vec![f32::NAN; b1.len()], vec![f32::NAN; b2.len()]);
    let args = HostArgs::new().input("dy", &dy).output("grad_acc", &mut dz2).output("grad_bias", &mut db2);
    second.activation_grad().unwrap().reference(args.saved(&r2)).unwrap();
    let args = HostArgs::new().input("dz", &dz2).input("w", &w2).output("grad_acc", &mut dz1).output("grad_bias", &mut db1);
    second.dgrad_into(&first).unwrap().reference(args.saved(&r1)).unwrap();
    let (mut dw1, mut dw2, mut dx) = (vec![f32::NAN; w1.len()], vec![1.0f32; w2.len()], vec![f32::NAN; x.len()]);
    first.wgrad().unwrap().reference(HostArgs::new().input("dz", &dz1).input("x", &x).output("dw", &mut dw1)).unwrap();
    let step = second.wgrad().unwrap().accumulate(&["dw"]).unwrap();
    step.reference(HostArgs::new().input("dz", &dz2).input("x", &y1).output("dw", &mut dw2)).unwrap();
    dw2.iter_mut().for_each(|x| *x -= 1.0);
    first.dgrad().unwrap().reference(HostArgs::new().input("dz", &dz1).input("w", &w1).output("dx", &mut dx)).unwrap();
    net.check("dx", &dx, |net| &mut net.x);
    net.check("dw1", &dw1, |net| &mut net.layers[0].w);
    net.check("dw2", &dw2, |net| &mut net.layers[1].w);
    net.check("db1", &db1, |net| &mut net.layers[0].bias);
    net.check("db2", &db2, |net| &mut net.layers[1].bias);

    let (mut with_bias, mut sum) = (vec![f32::NAN; w2.len()], vec![f32::NAN; b2.len()]);
    let args = HostArgs::new().input("dz", &dz2).input("x", &y1).output("dw", &mut with_bias).output("grad_bias", &mut sum);
    second.wgrad_with_bias().unwrap().reference(args).unwrap();
    net.check("dw2", &with_bias, |net| &mut net.layers[1].w);
    net.check("db2", &sum, |net| &mut net.layers[1].bias);
}

#[test]
fn two_layers_have_their_gradients() {
    let first = ConvShape::new(2, [7, 6, 3], [6, 3, 3]).padding([1, 1]);
    let second = ConvShape::new(2, [7, 6, 6], [4, 2, 3]);
    for f in [SMOOTH, REGION] {
        chain([first, second.padding_of([1, 0, 0, 2])], f);
        chain([first, second.stride([2, 3]).padding([0, 1])], f);
        chain([first, second.groups(2).dilation([2, 1])], f);
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let shape = ConvShape::new(2, [7, 6, 3], [6, 3, 3]);
    let layer = |shape| Conv2d::new(F32, shape, |_, z| z.relu()).unwrap();
    let says = |error: LinearError, words: &str| assert!(error.to_string().contains(words), "{error}");
    says(Conv2d::new(F32, shape.groups(2), |_, z| z).unwrap_err(), "2 groups of 3 channels");
    says(Conv2d::new(I32, shape, |_, z| z).unwrap_err(), "not of i32");
    let next = layer(ConvShape::new(2, [5, 4, 6], [3, 1, 1]));
    next.dgrad_into(&layer(shape)).unwrap();
    says(next.dgrad_into(&layer(ConvShape { images: 3, ..shape })).unwrap_err(), "3 images, and this one takes 2");
    says(next.dgrad_into(&layer(ConvShape { height: 8, ..shape })).unwrap_err(), "6 rows, and this one takes 5");
    says(next.dgrad_into(&layer(ConvShape { filters: 9, ..shape })).unwrap_err(), "9 channels, and this one takes 6");
    let turned = Epilogue::build(|e| e.store("y", e.acc(), F32.column_major())).unwrap();
    says(Conv2d::with_epilogue(F32, shape, &turned, Wrt::all()).unwrap_err(), "NHWC");
    let plain = Epilogue::build(|e| e.store("y", e.acc(), F32)).unwrap();
    let plain = Conv2d::with_epilogue(F32, shape, &plain, Wrt::all()).unwrap();
    says(plain.wgrad_with_bias().unwrap_err(), "no gradient of the layer is the sum of dZ");
    says(layer(shape).gradients(I8).wgrad().unwrap_err(), "a layer's gradients are f32, f16 or bf16, not i8");
}
