//! Paddle's gradient on the GPU: a transposed X of three dimensions, with the mask that the operator before leaves.

use crate::layout::Rng;
use crate::rig::gpu;
use half::f16;
use postlude::compat::paddle::{Activation, FusedGemmEpilogue};
use postlude::layer::Step;
use postlude::prelude::*;

#[test]
fn a_transposed_x_reads_the_mask_of_the_operator_before() {
    let Some(device) = gpu() else { return };
    let stream = device.context().new_stream().unwrap();
    // K x (rows of X); the last dimension fills no line of a mask, fills one, and begins another.
    for [k, entries, columns, n] in [[24, 3, 40, 16], [72, 5, 128, 24], [130, 2, 200, 64]] {
        let mut rng = Rng(7);
        let mut numbers = |count: usize| -> Vec<f16> { (0..count).map(|_| f16::from_f64(rng.element(F16))).collect() };
        let (z, w, bias) = (numbers(k * entries * 32), numbers(32 * columns), numbers(columns));
        let (dout, y) = (numbers(entries * columns * n), numbers(k * n));
        let operator = FusedGemmEpilogue { trans_x: false, trans_y: false, activation: Activation::Relu, dtype: F16 };
        let forward = operator.forward(&[k, entries, 32], &[32, columns], &[columns], true).unwrap();
        let mut mask = vec![0u8; forward.reserve.as_ref().unwrap().bytes];
        let mut x = vec![f16::ZERO; k * entries * columns];
        let aux = postlude::Tensor::of_bytes_mut(Bits128, &mut mask);
        let args = HostArgs::new().input("x", &z).input("y", &w).input("bias", &bias).output("d", &mut x).output("aux", aux);
        Step::from(forward).plan(device).unwrap().execute_host(&stream, args).unwrap();

        let operator = FusedGemmEpilogue { trans_x: true, ..operator };
        let dims = [k, entries, columns];
        let gradients = operator.backward_with_bias(&[entries, columns, n], &dims, &[k, n], true).unwrap();
        let step = Step::from(gradients.dx);
        let run = |on_gpu: bool| {
            let (mut dx, mut dbias) = (vec![f16::NAN; x.len()], vec![f16::NAN; columns]);
            let args = HostArgs::new().input("y", &y).input("dout", &dout);
            let args = args.input("aux", postlude::Tensor::of_bytes(Bits128, &mask));
            let args = args.output("d", &mut dx).output("bgrad", &mut dbias);
            if on_gpu {
                step.plan(device).unwrap().execute_host(&stream, args).unwrap();
            } else {
                step.reference(args).unwrap();
            }
            stream.synchronize().unwrap();
            (dx, dbias)
        };
        let ((dx, dbias), (expected, sums)) = (run(true), run(false));
        let near = |found: &[f16], expected: &[f16]| {
            for (i, (found, expected)) in found.iter().zip(expected).enumerate() {
                let (found, expected) = (found.to_f32(), expected.to_f32());
                assert!((found - expected).abs() <= 0.02 * (1.0 + expected.abs()), "{dims:?} at {i}: {found}, not {expected}");
            }
        };
        near(&dx, &expected);
        near(&dbias, &sums);
        // A value that the previous operator cut off has no gradient, except for a sum of exactly 0.
        let through = x.iter().zip(&dx).filter(|(x, dx)| **x == f16::ZERO && **dx != f16::ZERO).count();
        assert!(through * 100 < x.len() && dx.iter().any(|dx| *dx != f16::ZERO), "{through} of {}", x.len());
    }
}
