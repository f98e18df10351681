//! Recipes against the formulas that their documentation has, on numbers whose results are exact.

use postlude::Gemm;
use postlude::build::{BatchNormTraining, Epilogue, recipes};
use postlude::ir::Order;
use postlude::prelude::*;

const SHAPE: Shape = Shape::new(3, 2, 2);
const A: [f32; 6] = [1.0, -2.0, 0.5, 3.0, -4.0, 0.25];
const B: [f32; 4] = [2.0, 1.0, -1.0, 4.0];
/// A by the transpose of B, row after row.
const PRODUCT: [f32; 6] = [0.0, -9.0, 4.0, 11.5, -7.75, 5.0];

/// D of a product with a recipe's epilogue. `further` adds its other arguments.
fn of(epilogue: &Epilogue, further: impl for<'a> FnOnce(HostArgs<'a>) -> HostArgs<'a>) -> Vec<f32> {
    let mut d = vec![0.0f32; 6];
    let args = further(HostArgs::new()).input("a", &A).input("b", &B).output("d", &mut d);
    Gemm::new(F32, TN, epilogue).reference(SHAPE, args).unwrap();
    d
}

/// Each element by a formula of the product, the row and the column.
fn each(formula: impl Fn(f32, usize, usize) -> f32) -> Vec<f32> {
    PRODUCT.iter().enumerate().map(|(at, z)| formula(*z, at / 2, at % 2)).collect()
}

const ROWS: [f32; 3] = [0.5, 2.0, -1.0];
const COLUMNS: [f32; 2] = [4.0, 0.25];
const MATRIX: [f32; 6] = [1.0, 2.0, -3.0, 4.0, 5.0, -6.0];

#[test]
fn products_are_what_the_formulas_say() {
    assert_eq!(of(&recipes::identity(F32).unwrap(), |args| args), PRODUCT);
    let combined = recipes::linear_combination(F32, F32).unwrap();
    let d = of(&combined, |args| args.input("c", &MATRIX).scalar("alpha", 0.5).scalar("beta", -2.0));
    assert_eq!(d, each(|z, i, j| 0.5 * z - 2.0 * MATRIX[2 * i + j]));
    let activated = recipes::bias_activation(F32, F32, |z| z.relu()).unwrap();
    assert_eq!(of(&activated, |args| args.input("bias", &COLUMNS)), each(|z, _, j| (z + COLUMNS[j]).max(0.0)));
    let residual = recipes::residual(F32, F32, |z| z * 2.0).unwrap();
    let d = of(&residual, |args| args.input("bias", &COLUMNS).input("residual", &MATRIX));
    assert_eq!(d, each(|z, i, j| 2.0 * (z + COLUMNS[j]) + MATRIX[2 * i + j]));
    let scaled = recipes::scaled(F32).unwrap();
    let d = of(&scaled, |args| args.input("row_scale", &ROWS).input("column_scale", &COLUMNS));
    assert_eq!(d, each(|z, i, j| ROWS[i] * z * COLUMNS[j]));
    for boundary in 0..4 {
        let split = recipes::split_rows(F32, F32, |z| z * 2.0, |z| z - 1.0).unwrap();
        let d = of(&split, |args| args.input("bias", &COLUMNS).scalar("boundary", boundary));
        let formula = |z: f32, i: usize, j: usize| {
            let z = z + COLUMNS[j];
            if i < boundary as usize { 2.0 * z } else { z - 1.0 }
        };
        assert_eq!(d, each(formula), "{boundary}");
    }
}

#[test]
fn scales_multiply_products_and_divide_what_is_quantised() {
    for with_bias in [true, false] {
        let scaled = recipes::scaled_mm(F32.over(M), F32.over(N), F32, F32).unwrap();
        let d = of(&scaled, |args| {
            let args = args.input("scale_a", &ROWS).input("scale_b", &COLUMNS);
            if with_bias { args.input("bias", &COLUMNS) } else { args }
        });
        assert_eq!(d, each(|z, i, j| z * ROWS[i] * COLUMNS[j] + if with_bias { COLUMNS[j] } else { 0.0 }));
    }
    let (mut largest, quantised) = ([0.0f32], recipes::quantize(F32).unwrap());
    let mut d = vec![0.0f32; 6];
    let args = HostArgs::new().input("a", &A).input("b", &B).input("d_scale", &[0.25f32]);
    Gemm::new(F32, TN, &quantised).reference(SHAPE, args.output("d", &mut d).output("d_amax", &mut largest)).unwrap();
    assert_eq!((d, largest), (each(|z, _, _| 4.0 * z), [11.5]));
    let (mut squares, mut d) = ([0.0f32; 3], vec![0.0f32; 6]);
    let args = HostArgs::new().input("a", &A).input("b", &B).output("d", &mut d).output("mean_square", &mut squares);
    Gemm::new(F32, TN, &recipes::mean_squares(F32).unwrap()).reference(SHAPE, args).unwrap();
    assert_eq!((d, squares), (PRODUCT.to_vec(), [40.5, 74.125, 42.53125]));
}

#[test]
fn norms_across_two_products() {
    let scaled = recipes::rms_scaled(F32).unwrap();
    // The roots of 4, 16 and 64.
    let d = of(&scaled, |args| args.input("mean_square", &[1.0f32, 13.0, 61.0]).scalar("epsilon", 3.0));
    assert_eq!(d, each(|z, i, _| z * [0.5, 0.25, 0.125][i]));
    let d = of(&scaled, |args| args.input("mean_square", &[0.0f32; 3]));
    let exact = each(|z, _, _| z * 1e3);
    assert!(d.iter().zip(&exact).all(|(x, y)| (x - y).abs() <= 1e-3 * y.abs()), "the root of 1e-6: {d:?}");
}

/// Scales of the next step map the largest of the last ones to the format's largest number, over a margin.
#[test]
fn delayed_scales_leave_a_margin() {
    for (margin, most) in [(0, 448.0), (3, 56.0), (-1, 896.0)] {
        let history = [0.5f32, -2.0, 1.0, f32::NAN, 3.5, f32::INFINITY, 0.0, 0.0, 0.0];
        let (mut scale, mut inverse) = ([0.0f32; 3], [0.0f32; 3]);
        let args = HostArgs::new().input("a", &history).output("scale", &mut scale).output("inverse", &mut inverse);
        let recipe = recipes::delayed_scale(E4M3, margin).unwrap();
        Gemm::pointwise(F32, Order::RowMajor, &recipe).reference(Shape::matrix(3, 3), args).unwrap();
        assert_eq!((scale, inverse), ([2.0 / most, 3.5 / most, 1.0], [most / 2.0, most / 3.5, 1.0]), "{margin}");
    }
}

#[test]
fn planes_become_pixels_on_a_device_too() {
    let [n, c, h, w] = [2, 3, 4, 5];
    let planes: Vec<f32> = (0..n * c * h * w).map(|i| i as f32).collect();
    let pixels = postlude::problem::nchw_to_nhwc(&planes, [n, c, h, w]).unwrap();
    let shape = Shape::matrix(h * w, c).batched(n);
    for (recipe, from, to) in [(recipes::nchw_to_nhwc(F32), &planes, &pixels), (recipes::nhwc_to_nchw(F32), &pixels, &planes)] {
        let mut y = vec![0.0f32; from.len()];
        let gemm = Gemm::pointwise(F32, Order::RowMajor, &recipe.unwrap());
        gemm.reference(shape, HostArgs::new().input("x", from).output("y", &mut y)).unwrap();
        assert_eq!(&y, to);
    }
}

/// The gradient of a batch norm of training in `f64`, as PyTorch's documentation of `BatchNorm2d` defines the norm.
#[test]
fn correcting_makes_the_gradient_of_a_batch_norm() {
    const PIXELS: usize = 5;
    let norm = BatchNormTraining { count: PIXELS, epsilon: 1e-3, momentum: 0.1 };
    let z: Vec<f32> = (0..2 * PIXELS).map(|i| ((i * 7 + 3) % 11) as f32 * 0.5 - 1.25).collect();
    let g: Vec<f32> = (0..2 * PIXELS).map(|i| ((i * 5 + 2) % 13) as f32 * 0.25 - 1.0).collect();
    let gain = [1.5f32, -0.75];
    let column = |of: &[f32], c: usize| of.iter().skip(c).step_by(2).map(|x| f64::from(*x)).collect::<Vec<f64>>();
    let mean = |of: &[f64]| of.iter().sum::<f64>() / PIXELS as f64;
    let (mut known, mut expected) = ([[0.0f32; 2]; 4], vec![0.0f64; 2 * PIXELS]);
    let mut through = vec![0.0f32; 2 * PIXELS];
    for c in 0..2 {
        let (z, g) = (column(&z, c), column(&g, c));
        let middle = mean(&z);
        let variance = mean(&z.iter().map(|z| (z - middle).powi(2)).collect::<Vec<f64>>());
        let scale = 1.0 / (variance + f64::from(norm.epsilon)).sqrt();
        let normal: Vec<f64> = z.iter().map(|z| (z - middle) * scale).collect();
        let weighted: Vec<f64> = normal.iter().zip(&g).map(|(n, g)| n * g).collect();
        let of_sums = [middle, variance, mean(&weighted) * PIXELS as f64, mean(&g) * PIXELS as f64];
        known.iter_mut().zip(of_sums).for_each(|(known, x)| known[c] = x as f32);
        let g_all = &g;
        for (i, (normal, g)) in normal.iter().zip(&g).enumerate() {
            let factor = f64::from(gain[c]) * scale;
            through[2 * i + c] = (g * factor) as f32;
            expected[2 * i + c] = factor * (g - mean(g_all) - normal * mean(&weighted));
        }
    }
    let [mean, variance, grad_gain, grad_shift] = &known;
    let args = HostArgs::new().input("z", &z).input("mean", mean).input("variance", variance).input("gain", &gain);
    let args = args.input("grad_gain", grad_gain).input("grad_shift", grad_shift).output("grad_z", &mut through);
    let pass = Gemm::pointwise(F32, Order::RowMajor, &norm.correct(F32).unwrap());
    pass.reference(Shape::matrix(PIXELS, 2), args).unwrap();
    for (found, expected) in through.iter().zip(&expected) {
        assert!((f64::from(*found) - expected).abs() < 1e-5, "{found} {expected}");
    }
}
