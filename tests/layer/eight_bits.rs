//! Layers of eight bits: products of what was rounded, sums of what was not.

use crate::matrix::{Numbers, near};
use postlude::build::recipes;
use postlude::float8::{F8E4M3, F8E5M2};
use postlude::grad::Wrt;
use postlude::layer::{Linear, LinearError};
use postlude::prelude::*;

const ROWS: usize = 5;
const INPUTS: usize = 6;
const HIDDEN: usize = 4;
const OUTPUTS: usize = 3;

fn fill(numbers: &mut Numbers, count: usize, size: f32) -> Vec<f32> {
    (0..count).map(|_| size * numbers.number()).collect()
}

/// Numbers over a scale in `E4M3`, and the numbers that those stand for.
fn rounded(numbers: &[f32], scale: f32) -> (Vec<F8E4M3>, Vec<f64>) {
    let codes: Vec<F8E4M3> = numbers.iter().map(|x| F8E4M3::from_f32(x / scale)).collect();
    let real = codes.iter().map(|x| x.to_f64() * f64::from(scale)).collect();
    (codes, real)
}

/// A B, where A is m x k and B k x n, either of which may be transposed.
fn product(a: &[f64], b: &[f64], [m, n, k]: [usize; 3], [trans_a, trans_b]: [bool; 2]) -> Vec<f64> {
    let a = |i: usize, l: usize| a[if trans_a { l * m + i } else { i * k + l }];
    let b = |l: usize, j: usize| b[if trans_b { j * k + l } else { l * n + j }];
    (0..m * n).map(|at| (0..k).map(|l| a(at / n, l) * b(l, at % n)).sum()).collect()
}

fn all_near(what: &str, found: &[f32], expected: &[f64]) {
    assert_eq!(found.len(), expected.len());
    for (i, (found, expected)) in found.iter().zip(expected).enumerate() {
        near(&format!("{what}[{i}]"), f64::from(*found), *expected);
    }
}

fn largest(numbers: &[f64]) -> f64 {
    numbers.iter().fold(0.0, |largest, x| largest.max(x.abs()))
}

/// Two layers, tanh and a bias alone, whose every product reads eight bits. The scales are powers of two, or not.
#[test]
fn two_layers_follow_what_was_rounded() {
    for [x_scale, w_scale, y_scale, dz_scale] in [[0.25, 0.5, 0.0625, 2.0], [0.3, 0.007, 0.011, 0.05]] {
        let mut numbers = Numbers(11);
        let first = Linear::new(F32, [INPUTS, HIDDEN], |_, z| z.tanh()).unwrap().fp8().unwrap();
        let second = Linear::new(F32, [HIDDEN, OUTPUTS], |_, z| z).unwrap().fp8().unwrap().trans_w(true);
        let (x8, x) = rounded(&fill(&mut numbers, ROWS * INPUTS, 3.0), x_scale);
        let (w8, w) = rounded(&fill(&mut numbers, INPUTS * HIDDEN, 0.5), w_scale);
        let (v8, v) = rounded(&fill(&mut numbers, HIDDEN * OUTPUTS, 0.7), w_scale);
        let (bias1, bias2) = (fill(&mut numbers, HIDDEN, 1.0), fill(&mut numbers, OUTPUTS, 1.0));
        let dy = fill(&mut numbers, ROWS * OUTPUTS, 5.0);

        // Forward: the first layer stores its output for the second.
        let (mut saved1, mut saved2) = (first.reserve(ROWS), second.reserve(ROWS));
        let (mut h8, mut h_amax, mut y) = (vec![F8E4M3::from_f32(1.0); ROWS * HIDDEN], [0.0f32], vec![f32::NAN; ROWS * OUTPUTS]);
        let args = HostArgs::new().input("x", &x8).input("w", &w8).input("bias", &bias1).output("y", &mut h8);
        let (x_memory, w_memory, y_memory, dz_memory) = ([x_scale], [w_scale], [y_scale], [dz_scale]);
        let args = args.input("x_scale", &x_memory).input("w_scale", &w_memory).input("y_scale", &y_memory);
        let step = first.forward(ROWS).quantize("y", E4M3).unwrap();
        step.reference(args.output("y_amax", &mut h_amax).saving(&mut saved1)).unwrap();
        let z1 = product(&x, &w, [ROWS, HIDDEN, INPUTS], [false, false]);
        let z1: Vec<f64> = z1.iter().enumerate().map(|(i, z)| z + f64::from(bias1[i % HIDDEN])).collect();
        let h: Vec<f64> = z1.iter().map(|z| z.tanh()).collect();
        near("y_amax", f64::from(h_amax[0]), largest(&h));
        let h_read: Vec<f64> = h8.iter().map(|h| h.to_f64() * f64::from(y_scale)).collect();
        for (found, expected) in h_read.iter().zip(&h) {
            let ends = f64::from(y_scale) * 448.0;
            let step = expected.abs().max(f64::from(y_scale) / 64.0) / 16.0;
            assert!((found - expected.clamp(-ends, ends)).abs() <= step * 1.001, "{found} is {expected} in eight bits");
        }
        let args = HostArgs::new().input("x", &h8).input("w", &v8).input("bias", &bias2).output("y", &mut y);
        let args = args.input("x_scale", &y_memory).input("w_scale", &w_memory);
        second.forward(ROWS).reference(args.saving(&mut saved2)).unwrap();
        let expected = product(&h_read, &v, [ROWS, OUTPUTS, HIDDEN], [false, true]);
        let expected: Vec<f64> = expected.iter().enumerate().map(|(i, z)| z + f64::from(bias2[i % OUTPUTS])).collect();
        all_near("y", &y, &expected);

        // Backward: dZ of the last layer is dY, in eight bits; its sum is that of dY.
        let one = F8E5M2::from_f32(1.0);
        let (mut dz2, mut dz2_amax, mut db2) = (vec![one; ROWS * OUTPUTS], [0.0f32], vec![f32::NAN; OUTPUTS]);
        let args = HostArgs::new().input("dy", &dy).input("grad_acc_scale", &dz_memory).output("grad_acc", &mut dz2);
        let args = args.output("grad_acc_amax", &mut dz2_amax).output("grad_bias", &mut db2).saved(&saved2);
        second.activation_grad(ROWS).unwrap().reference(args).unwrap();
        let codes: Vec<F8E5M2> = dy.iter().map(|x| F8E5M2::from_f32(x / dz_scale)).collect();
        assert_eq!(dz2, codes);
        assert_eq!(dz2_amax[0], dy.iter().fold(0.0f32, |largest, x| largest.max(x.abs())));
        let sums: Vec<f64> = (0..OUTPUTS).map(|j| (0..ROWS).map(|i| f64::from(dy[i * OUTPUTS + j])).sum()).collect();
        all_near("grad_bias", &db2, &sums);
        let dz2_read: Vec<f64> = dz2.iter().map(|x| x.to_f64() * f64::from(dz_scale)).collect();

        let mut dv = vec![f32::NAN; HIDDEN * OUTPUTS];
        let args = HostArgs::new().input("x", &h8).input("dz", &dz2).output("dw", &mut dv);
        second.wgrad(ROWS).unwrap().reference(args.input("x_scale", &y_memory).input("dz_scale", &dz_memory)).unwrap();
        all_near("dw", &dv, &product(&dz2_read, &h_read, [OUTPUTS, HIDDEN, ROWS], [true, false]));

        let mut dx = vec![f32::NAN; ROWS * HIDDEN];
        let args = HostArgs::new().input("dz", &dz2).input("w", &v8).output("dx", &mut dx);
        second.dgrad(ROWS).unwrap().reference(args.input("w_scale", &w_memory).input("dz_scale", &dz_memory)).unwrap();
        let dh = product(&dz2_read, &v, [ROWS, HIDDEN, OUTPUTS], [false, false]);
        all_near("dx", &dx, &dh);

        // The first layer's dZ leaves the second layer's product in eight bits.
        let (mut dz1, mut dz1_amax, mut db1) = (vec![one; ROWS * HIDDEN], [0.0f32], vec![f32::NAN; HIDDEN]);
        let args = HostArgs::new().input("dz", &dz2).input("w", &v8).input("w_scale", &w_memory).input("dz_scale", &dz_memory);
        let args = args.input("grad_acc_scale", &dz_memory).output("grad_acc", &mut dz1).output("grad_acc_amax", &mut dz1_amax);
        let step = second.dgrad_into(&first, ROWS).unwrap();
        step.reference(args.output("grad_bias", &mut db1).saved(&saved1)).unwrap();
        let exact: Vec<f64> = dh.iter().zip(&h).map(|(g, h)| g * (1.0 - h * h)).collect();
        near("grad_acc_amax", f64::from(dz1_amax[0]), largest(&exact));
        let sums: Vec<f64> = (0..HIDDEN).map(|j| (0..ROWS).map(|i| exact[i * HIDDEN + j]).sum()).collect();
        all_near("grad_bias of the first layer", &db1, &sums);
        for (found, expected) in dz1.iter().map(|x| x.to_f64() * f64::from(dz_scale)).zip(&exact) {
            let step = expected.abs().max(f64::from(dz_scale) / 16384.0) / 8.0;
            assert!((found - expected).abs() <= step * 1.001, "{found} is {expected} in eight bits");
        }
    }
}

/// The pass that rounds a tensor, and what it saturates.
#[test]
fn a_tensor_is_quantised_by_a_pass() {
    let (w, mut codes, mut amax) = ([0.5f32, -900.0, 3.0, 0.0], [F8E4M3::from_f32(1.0); 4], [0.0f32]);
    let args = HostArgs::new().input("a", &w).input("d_scale", &[2.0f32]).output("d", &mut codes).output("d_amax", &mut amax);
    let gemm = Gemm::pointwise(F32, Order::RowMajor, &recipes::quantize(E4M3).unwrap());
    gemm.reference(Shape::matrix(2, 2), args).unwrap();
    assert_eq!((codes.map(|code| code.to_f32()), amax), ([0.25, -448.0, 1.5, 0.0], [900.0]));
}

#[test]
fn what_has_no_eight_bits_is_refused() {
    let layer = || Linear::new(F32, [4, 4], |_, z| z.relu()).unwrap();
    let says = |error: LinearError, words: &[&str]| {
        let text = error.to_string();
        words.iter().for_each(|word| assert!(text.contains(word), "`{word}` is missing in: {text}"));
    };
    says(layer().forward(1).quantize("z", E4M3).unwrap_err(), &["writes no `z`", "y"]);
    says(layer().forward(1).quantize("y", F16).unwrap_err(), &["`y`", "take `E4M3`"]);
    says(layer().activation_grad(1).unwrap().quantize("grad_bias", E5M2).unwrap_err(), &["`grad_bias`", "not a matrix"]);
    let twice = layer().forward(1).quantize("y", E4M3).unwrap().quantize("y", E4M3);
    says(twice.unwrap_err(), &["`y_scale`", "another name"]);
    let adds = layer().wgrad(1).unwrap().accumulate(&["dw"]).unwrap();
    says(adds.quantize("dw", E5M2).unwrap_err(), &["`dw`", "in place"]);
    let kept = Epilogue::build(|e| e.store("y", (e.acc() + e.load("bias", F32.over(N))).tanh(), F32)).unwrap();
    let kept = Linear::with_epilogue(F32, [4, 4], &kept, Wrt::all().keeps("y")).unwrap();
    says(kept.forward(1).quantize("y", E4M3).unwrap_err(), &["`y`", "derivative follows"]);
    says(layer().fp8().unwrap().wgrad_with_bias(1).unwrap_err(), &["eight bits", "activation_grad"]);
    let named = Linear::new(F32, [4, 4], |e, z| z * e.scalar("w_scale", F32)).unwrap();
    says(named.fp8().unwrap_err(), &["`w_scale`"]);
    let missing = layer().fp8().unwrap().forward(1);
    let (x, w, bias, mut y) = ([F8E4M3::from_f32(1.0); 4], [F8E4M3::from_f32(1.0); 16], [0.0f32; 4], [0.0f32; 4]);
    let args = HostArgs::new().input("x", &x).input("w", &w).input("bias", &bias);
    let errors = missing.reference(args.output("y", &mut y)).unwrap_err().to_string();
    assert!(errors.contains("x_scale") && errors.contains("w_scale"), "{errors}");
    assert_eq!(y, [0.0; 4]);
}
