//! Paddle's operators against plain loops: every transposition and activation, and what they refuse.

use postlude::HostArgs;
use postlude::args::IntoTensor;
use postlude::check::Role;
use postlude::compat::paddle::{Activation, FusedGemmEpilogue, PaddleError, Product, TensorName};
use postlude::prelude::*;
use postlude::reference::{Precision, run};

const M_: usize = 6;
const N_: usize = 5;
const K_: usize = 4;

fn numbers(count: usize, seed: usize) -> Vec<f32> {
    (0..count).map(|i| ((i * 7 + seed * 5) % 17) as f32 / 8.0 - 1.0).collect()
}

/// Runs a step; `aux` is a reserve to read or to fill.
fn execute(step: &Product, of: impl Fn(TensorName) -> Vec<f32>, bias: &[f32], aux: &mut Vec<u8>) -> Vec<f32> {
    let mut out = vec![f32::NAN; step.dims.iter().product()];
    launch(step, of, bias, aux, &mut out, HostArgs::new());
    out
}

/// Runs a step that stores a matrix and a bias gradient.
fn execute_with_sums(step: &Product, of: impl Fn(TensorName) -> Vec<f32>, aux: &mut Vec<u8>) -> (Vec<f32>, Vec<f32>) {
    let over_rows = step.epilogue.checked().argument("bgrad").unwrap().1.role.operand().unwrap().axes == M;
    let count = if over_rows { step.shape.m } else { step.shape.n };
    let (mut out, mut sums) = (vec![f32::NAN; step.dims.iter().product()], vec![f32::NAN; count]);
    launch(step, of, &[], aux, &mut out, HostArgs::new().output("bgrad", &mut sums));
    (out, sums)
}

fn launch<'a>(
    step: &Product,
    of: impl Fn(TensorName) -> Vec<f32>,
    bias: &'a [f32],
    aux: &'a mut Vec<u8>,
    out: &'a mut Vec<f32>,
    args: HostArgs<'a>,
) {
    let (a, b) = (of(step.a), of(step.b));
    let mut args = args.input("a", &a).input("b", &b);
    let mut room = Some((out, aux));
    for argument in step.epilogue.arguments() {
        let name = &*argument.name;
        args = match (name, argument.role) {
            ("bias", _) => args.input("bias", bias),
            ("aux", Role::Input(o)) => {
                let (out, aux) = room.take().unwrap();
                let args = args.input("aux", postlude::Tensor::of_bytes(o.dtype, &*aux));
                args.output("d", out)
            }
            ("aux", role) => {
                let (out, aux) = room.take().unwrap();
                let aux = postlude::Tensor::of_bytes_mut(role.operand().unwrap().dtype, aux);
                args.output("d", out).output("aux", aux.into_tensor())
            }
            _ => args,
        };
    }
    if let Some((out, _)) = room {
        args = args.output("d", out);
    }
    run(step.operation, step.epilogue.checked(), step.shape, step.arrange(args), Precision::F32)
        .unwrap_or_else(|e| panic!("{e}"));
}

#[test]
fn a_reserve_says_how_large_it_is() {
    let space = |activation, n: usize| {
        let operator = FusedGemmEpilogue { trans_x: false, trans_y: false, activation, dtype: F16 };
        operator.forward(&[2, 3, 8], &[8, n], &[n], activation != Activation::None).unwrap().reserve
    };
    let relu = space(Activation::Relu, 130).unwrap();
    assert_eq!((relu.dtype, &relu.dims[..], relu.bytes), (Bits128, &[2, 3, 130][..], 6 * 32));
    let gelu = space(Activation::Gelu, 5).unwrap();
    assert_eq!((gelu.dtype, &gelu.dims[..], gelu.bytes), (F16, &[2, 3, 5][..], 6 * 5 * 2));
    assert_eq!(space(Activation::None, 5), None);
    // The gradient's is the previous operator's, which made X.
    let operator = FusedGemmEpilogue { trans_x: false, trans_y: false, activation: Activation::Relu, dtype: F16 };
    let gradients = operator.backward(&[2, 3, 5], &[2, 3, 8], &[8, 5], true).unwrap();
    let before = gradients.dx.reserve.unwrap();
    assert_eq!((&before.dims[..], before.bytes), (&[2, 3, 8][..], 6 * 16));
    assert_eq!((gradients.dy.reserve, gradients.dy_with_bias.reserve), (None, None));
}

fn gelu(x: f64) -> f64 {
    0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x)).tanh())
}

fn slope(activation: Activation, z: f64) -> f64 {
    match activation {
        Activation::None => 1.0,
        Activation::Relu => f64::from(u8::from(z >= 0.0)),
        Activation::Gelu => (gelu(z + 1e-5) - gelu(z - 1e-5)) / 2e-5,
    }
}

fn near(found: &[f32], expected: impl Iterator<Item = f64>) {
    let expected: Vec<f64> = expected.collect();
    assert_eq!(found.len(), expected.len());
    for (i, (found, expected)) in found.iter().zip(expected).enumerate() {
        assert!((f64::from(*found) - expected).abs() < 1e-5 * (1.0 + expected.abs()), "{i}: {found}, not {expected}");
    }
}

/// What the operator before computes ahead of its activation, and the reserve that it leaves, where its Out has these dimensions.
fn made_before(activation: Activation, dims: &[usize]) -> (Vec<f32>, Vec<u8>) {
    let (columns, count) = (dims[dims.len() - 1], dims.iter().product());
    let z = numbers(count, 6);
    if activation == Activation::None {
        return (z, Vec::new());
    }
    // A product with the unit matrix, whose result is exact.
    let unit: Vec<f32> = (0..columns * columns).map(|at| f32::from(at / columns == at % columns)).collect();
    let operator = FusedGemmEpilogue { trans_x: false, trans_y: false, activation, dtype: F32 };
    let step = operator.forward(dims, &[columns, columns], &[columns], true).unwrap();
    let mut aux = vec![0xa5u8; step.reserve.as_ref().unwrap().bytes];
    let of = |tensor| if tensor == TensorName::X { z.clone() } else { unit.clone() };
    execute(&step, of, &vec![0.0; columns], &mut aux);
    (z, aux)
}

#[test]
fn every_transposition_and_activation_is_plain_loops() {
    // The rows of X as one dimension, two and three: with and without gaps between the lines of a mask.
    let ranks: [&[usize]; 3] = [&[M_], &[2, 3], &[2, 1, 3]];
    let transpositions = [(false, false), (false, true), (true, false), (true, true)];
    for (row_dims, (trans_x, trans_y)) in ranks.into_iter().flat_map(|dims| transpositions.map(|trans| (dims, trans))) {
        let (x, y, bias, dout) = (numbers(M_ * K_, 1), numbers(K_ * N_, 2), numbers(N_, 3), numbers(M_ * N_, 4));
        let at_x = |i: usize, k: usize| f64::from(if trans_x { x[k * M_ + i] } else { x[i * K_ + k] });
        let at_y = |k: usize, j: usize| f64::from(if trans_y { y[j * K_ + k] } else { y[k * N_ + j] });
        let at_g = |i: usize, j: usize| f64::from(dout[i * N_ + j]);
        let x_dims = if trans_x { [&[K_], row_dims].concat() } else { [row_dims, &[K_]].concat() };
        let y_dims = if trans_y { [N_, K_] } else { [K_, N_] };
        let out_dims = [row_dims, &[N_]].concat();
        let of = |tensor| match tensor {
            TensorName::X => x.clone(),
            TensorName::Y => y.clone(),
            TensorName::DOut => dout.clone(),
        };
        for activation in [Activation::None, Activation::Relu, Activation::Gelu] {
            let operator = FusedGemmEpilogue { trans_x, trans_y, activation, dtype: F32 };
            let reserve = activation != Activation::None;
            let z = |i: usize, j: usize| (0..K_).map(|k| at_x(i, k) * at_y(k, j)).sum::<f64>() + f64::from(bias[j]);
            let step = operator.forward(&x_dims, &y_dims, &[N_], reserve).unwrap();
            assert_eq!(step.dims, out_dims);
            let mut aux = vec![0u8; 4 * M_ * 128];
            let found = execute(&step, of, &bias, &mut aux);
            let places = || (0..M_).flat_map(|i| (0..N_).map(move |j| (i, j)));
            near(
                &found,
                places().map(|(i, j)| match activation {
                    Activation::None => z(i, j),
                    Activation::Relu => z(i, j).max(0.0),
                    Activation::Gelu => gelu(z(i, j)),
                }),
            );
            // The previous layer's reserve is what that layer's forward step leaves: its rows are all dimensions but the last.
            let [rows, columns] = if trans_x { [K_, M_] } else { [M_, K_] };
            let (before, mut aux) = made_before(activation, &x_dims);
            let gradients = operator.backward(&out_dims, &x_dims, &y_dims, reserve).unwrap();
            assert_eq!((&gradients.dx.dims, &gradients.dy.dims[..]), (&x_dims, &y_dims[..]));
            let dx = execute(&gradients.dx, of, &[], &mut aux);
            near(
                &dx,
                (0..rows * columns).map(|at| {
                    let (i, k) = if trans_x { (at % M_, at / M_) } else { (at / K_, at % K_) };
                    let sum: f64 = (0..N_).map(|j| at_g(i, j) * at_y(k, j)).sum();
                    sum * slope(activation, f64::from(before[at]))
                }),
            );
            // The same product gives the previous operator's DBias.
            let with_bias = operator.backward_with_bias(&out_dims, &x_dims, &y_dims, reserve).unwrap();
            assert_eq!(with_bias.dx.reserve, gradients.dx.reserve);
            let (again, bgrad) = execute_with_sums(&with_bias.dx, of, &mut aux);
            assert_eq!(again, dx);
            let last = x_dims[x_dims.len() - 1];
            near(&bgrad, (0..last).map(|j| dx.iter().skip(j).step_by(last).map(|x| f64::from(*x)).sum()));
            let dy = execute(&gradients.dy, of, &[], &mut Vec::new());
            near(
                &dy,
                (0..K_ * N_).map(|at| {
                    let (k, j) = if trans_y { (at % K_, at / K_) } else { (at / N_, at % N_) };
                    (0..M_).map(|i| at_x(i, k) * at_g(i, j)).sum()
                }),
            );
            let (again, dbias) = execute_with_sums(&gradients.dy_with_bias, of, &mut Vec::new());
            assert_eq!(again, dy);
            near(&dbias, (0..N_).map(|j| (0..M_).map(|i| at_g(i, j)).sum()));
        }
    }
}

#[test]
fn shapes_that_do_not_fit_are_refused() {
    let operator = |activation| FusedGemmEpilogue { trans_x: false, trans_y: false, activation, dtype: F16 };
    let none = operator(Activation::None);
    let relu = operator(Activation::from_gradient_name("relu_grad").unwrap());
    let refused = |step: Result<Product, _>| {
        step.map(|_| ()).map_err(|e: postlude::compat::paddle::PaddleError| e.to_string()).unwrap_err()
    };
    let integers = FusedGemmEpilogue { dtype: I32, ..none };
    let error = refused(integers.forward(&[3, 4], &[4, 5], &[5], false));
    assert_eq!(error, "the operator multiplies matrices of f32, f16 or bf16, and not of i32");
    for gradients in [FusedGemmEpilogue::backward, FusedGemmEpilogue::backward_with_bias] {
        let integers = FusedGemmEpilogue { dtype: I32, ..relu };
        assert_eq!(gradients(&integers, &[3, 5], &[3, 4], &[4, 5], true).unwrap_err().to_string(), error);
    }
    assert_eq!(refused(none.forward(&[4], &[4, 5], &[5], false)), "X has 1 dimensions; it needs 2 or more");
    assert_eq!(refused(none.forward(&[3, 4], &[4, 5, 1], &[5], false)), "Y has 3 dimensions; it needs 2");
    assert_eq!(refused(none.forward(&[3, 4], &[4, 5], &[5, 1], false)), "bias has 2 dimensions; it needs 1");
    assert_eq!(
        refused(none.forward(&[3, 4], &[4, 5], &[4], false)),
        "the length of bias is 4, and N of Y is 5: they have to be the same"
    );
    assert_eq!(
        refused(none.forward(&[usize::MAX, usize::MAX, 3], &[4, 5], &[5], false)),
        "K of X is 3, and K of Y is 4: they have to be the same"
    );
    assert_eq!(refused(none.forward(&[3, 7], &[4, 5], &[5], false)), "K of X is 7, and K of Y is 4: they have to be the same");
    assert_eq!(
        refused(none.forward(&[3, 4], &[4, 5], &[5], true)),
        "a reserve is of no use with activation `none`: leave it out"
    );
    let transposed = FusedGemmEpilogue { trans_x: true, ..none };
    assert_eq!(
        refused(transposed.forward(&[2, 4, 3], &[4, 5], &[5], false)),
        "K of X is 2, and K of Y is 4: they have to be the same"
    );
    for gradients in [FusedGemmEpilogue::backward, FusedGemmEpilogue::backward_with_bias] {
        let useless = gradients(&none, &[3, 5], &[3, 4], &[4, 5], true).unwrap_err();
        assert_eq!(useless.to_string(), "a reserve is of no use with activation `none`: leave it out");
    }
    let missing = relu.backward(&[3, 5], &[3, 4], &[4, 5], false).unwrap_err();
    assert_eq!(missing.to_string(), "the derivative of an activation needs its reserve: pass it, or use activation `none`");
    let dout = none.backward(&[3, 6], &[3, 4], &[4, 5], false).unwrap_err();
    assert_eq!(dout.to_string(), "an extent of DOut is 6, and that of Out is 5: they have to be the same");
    // Each operator has names of its own.
    for name in ["tanh", "relu_grad", "gelu_grad"] {
        assert!(Activation::from_name(name).is_none(), "{name}");
    }
    for name in ["tanh", "relu", "gelu"] {
        assert!(Activation::from_gradient_name(name).is_none(), "{name}");
    }
    for (forward, gradient) in [("none", "none"), ("relu", "relu_grad"), ("gelu", "gelu_grad")] {
        assert!(Activation::from_name(forward).is_some());
        assert_eq!(Activation::from_name(forward), Activation::from_gradient_name(gradient));
    }
}

#[test]
fn extents_beyond_every_kernel_are_refused() {
    let relu = FusedGemmEpilogue { trans_x: false, trans_y: false, activation: Activation::Relu, dtype: F16 };
    let limit = "is too large: M, N, K and the batch count up to 2147418112 each (`Shape::LARGEST`)";
    let (huge, most) = (1 << 40, Shape::LARGEST);
    let refused = |step: Result<Product, PaddleError>| step.unwrap_err().to_string();
    for x in [vec![huge, huge, 4], vec![usize::MAX, 4], vec![most + 1, 4], vec![1 << 20, 1 << 20, 4]] {
        let expected = format!("X of the dimensions {x:?} {limit}");
        assert_eq!(refused(relu.forward(&x, &[4, 8], &[8], true)), expected);
        assert_eq!(relu.backward(&[1, 8], &x, &[4, 8], true).unwrap_err().to_string(), expected);
    }
    for n in [usize::MAX, most + 1] {
        let expected = format!("Y of the dimensions {:?} {limit}", [4, n]);
        assert_eq!(refused(relu.forward(&[2, 4], &[4, n], &[n], true)), expected);
        assert_eq!(relu.backward(&[2, n], &[2, 4], &[4, n], true).unwrap_err().to_string(), expected);
    }
    assert!(refused(relu.forward(&[2, most + 1], &[most + 1, 8], &[8], true)).starts_with("X of"));
    // The largest that there are, in the widest format of a reserve; and rows of which there are none.
    let gelu = FusedGemmEpilogue { activation: Activation::Gelu, dtype: F32, ..relu };
    let reserve = |step: Result<Product, PaddleError>| step.unwrap().reserve.unwrap().bytes;
    assert_eq!(reserve(gelu.forward(&[most, 4], &[4, most], &[most], true)), 4 * most * most);
    assert_eq!(reserve(relu.forward(&[huge, huge, 0, 4], &[4, 8], &[8], true)), 0);
    let gradients = relu.backward(&[huge, huge, 0, 8], &[huge, huge, 0, 4], &[4, 8], true).unwrap();
    assert_eq!(gradients.dx.reserve.unwrap().bytes, 0);
}

/// ReLU's gradient for an X that lies transposed, K x 2 x columns, behind the operator that made X.
fn transposed(columns: usize) -> (Product, Vec<u8>, Vec<f32>, [Vec<f32>; 2]) {
    let (dims, n) = ([3, 2, columns], 4);
    let (z, aux) = made_before(Activation::Relu, &dims);
    let operator = FusedGemmEpilogue { trans_x: true, trans_y: false, activation: Activation::Relu, dtype: F32 };
    let (dout, y) = (numbers(2 * columns * n, 4), numbers(3 * n, 2));
    let dx = operator.backward(&[2, columns, n], &dims, &[3, n], true).unwrap().dx;
    let expected = (0..3 * 2 * columns).map(|at| {
        let (k, row) = (at / (2 * columns), at % (2 * columns));
        let sum: f32 = (0..n).map(|j| dout[row * n + j] * y[k * n + j]).sum();
        if z[at] >= 0.0 { sum } else { 0.0 }
    });
    (dx, aux, expected.collect(), [dout, y])
}

#[test]
fn lines_of_a_mask_may_have_gaps_or_none() {
    // Whole lines are one product; a line that is not whole makes a batch of them.
    for (columns, entries) in [(128, 1), (256, 1), (3, 2), (130, 2)] {
        let (dx, mut aux, expected, [dout, y]) = transposed(columns);
        assert_eq!(dx.shape.batch, entries, "{columns} columns");
        let of = |tensor| if tensor == TensorName::Y { y.clone() } else { dout.clone() };
        near(&execute(&dx, of, &[], &mut aux), expected.iter().map(|x| f64::from(*x)));
    }
}

#[test]
fn an_arrangement_that_is_forgotten_is_refused() {
    let (dx, aux, _, [dout, y]) = transposed(3);
    let mut out = vec![0.0f32; 18];
    let aux = postlude::Tensor::of_bytes(Bits128, &aux);
    let args = HostArgs::new().input("a", &y).input("b", &dout).input("aux", aux).output("d", &mut out);
    let error = run(dx.operation, dx.epilogue.checked(), dx.shape, args, Precision::F32).unwrap_err().to_string();
    assert!(error.contains("argument `a`: too short"), "{error}");
}
