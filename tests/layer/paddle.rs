//! Paddle's operator as a whole: forward and gradient, with the gradients added up.

use crate::matrix::near;
use postlude::compat::paddle::{Activation, FusedGemmEpilogue};
use postlude::layer::{LinearError, Step};
use postlude::prelude::*;

#[test]
fn the_operator_and_its_gradient_run_as_steps() {
    let operator = FusedGemmEpilogue { trans_x: false, trans_y: true, activation: Activation::None, dtype: F32 };
    let (x, y, dout) = ([1.0f32, 2.0, 3.0, 4.0], [1.0f32, -1.0, 0.5, 2.0, 0.0, 1.0], [1.0f32, 0.0, 2.0, -1.0, 1.0, 0.5]);
    let (x_dims, y_dims, out_dims) = ([2, 2], [3, 2], [2, 3]);
    let mut out = [0.0f32; 6];
    let step = Step::from(operator.forward(&x_dims, &y_dims, &[3], false).unwrap());
    let args = HostArgs::new().input("x", &x).input("y", &y).input("bias", &[1.0f32, 0.0, -1.0]).output("d", &mut out);
    step.reference(args).unwrap();
    assert_eq!(out, [0.0, 4.5, 1.0, 0.0, 9.5, 3.0]);

    let gradients = operator.backward(&out_dims, &x_dims, &y_dims, false).unwrap();
    let (mut dx, mut dy, mut dbias) = ([0.0f32; 4], [1.0f32; 6], [1.0f32; 3]);
    let args = HostArgs::new().input("dout", &dout).input("y", &y).output("d", &mut dx);
    Step::from(gradients.dx).reference(args).unwrap();
    assert_eq!(dx, [1.0, 1.0, -0.5, 3.5]);
    let args = HostArgs::new().input("dout", &dout).input("x", &x).output("d", &mut dy).output("bgrad", &mut dbias);
    Step::from(gradients.dy_with_bias).accumulate(&["d", "bgrad"]).unwrap().reference(args).unwrap();
    let sum = |j: usize, k: usize| f64::from(dout[j] * x[k] + dout[3 + j] * x[2 + k]) + 1.0;
    dy.iter().enumerate().for_each(|(at, dy)| near("DY", f64::from(*dy), sum(at / 2, at % 2)));
    assert_eq!(dbias, [1.0, 2.0, 3.5]);
}

#[test]
fn what_a_gradient_follows_from_is_not_added_to() {
    let operator = FusedGemmEpilogue { trans_x: false, trans_y: false, activation: Activation::Gelu, dtype: F32 };
    let forward = || Step::from(operator.forward(&[1, 1], &[1, 1], &[1], true).unwrap());
    let error = forward().accumulate(&["aux"]).unwrap_err();
    assert!(matches!(&error, LinearError::Accumulate { name, .. } if name == "aux"), "{error}");
    assert!(forward().accumulate(&["d"]).is_ok());
}
