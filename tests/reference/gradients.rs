//! Gradients of convolutions, against plain loops that hand each output's gradient back to what it was made of.

use crate::convolutions::{Case, shapes};
use crate::support::{Matrix, Numbers};
use postlude::args::{HostBuffer, IntoTensor};
use postlude::ir::Order::RowMajor;
use postlude::prelude::*;
use postlude::reference::{Precision, oracle, run};
use postlude::{DType, GradientOf, HostArgs, Operation, Tensor};

/// For each element of the output, pixel of X and tap that meet: their places.
fn meetings(shape: ConvShape, [p, q]: [usize; 2], mut meet: impl FnMut(usize, usize, usize)) {
    let ConvShape { images, height, width, window: [r, s], stride, padding, dilation, .. } = shape;
    for (image, i, j) in (0..images).flat_map(|n| (0..p).flat_map(move |i| (0..q).map(move |j| (n, i, j)))) {
        for tap in 0..r * s {
            let y = (i * stride[0] + tap / s * dilation[0]) as i64 - padding[0] as i64;
            let x = (j * stride[1] + tap % s * dilation[1]) as i64 - padding[2] as i64;
            if (0..height as i64).contains(&y) && (0..width as i64).contains(&x) {
                meet((image * p + i) * q + j, (image * height + y as usize) * width + x as usize, tap);
            }
        }
    }
}

/// dX or dW, row after row, and the same of magnitudes.
fn direct(case: &Case, dy: &Matrix, of: GradientOf) -> [Vec<f64>; 2] {
    let ConvShape { channels, filters, groups, window: [r, s], .. } = case.shape;
    let (of_group, per_group) = (channels / groups, filters / groups);
    let count = match of {
        GradientOf::Images => case.convolution.pixels() * channels,
        GradientOf::Filters => filters * r * s * of_group,
    };
    let mut sums = [vec![0.0; count], vec![0.0; count]];
    meetings(case.shape, case.convolution.output(), |output, pixel, tap| {
        for filter in 0..filters {
            for c in 0..of_group {
                let (element, channel) = (tap * of_group + c, filter / per_group * of_group + c);
                let (at, term) = match of {
                    GradientOf::Images => (pixel * channels + channel, case.b.at(filter, element, 0)),
                    GradientOf::Filters => (filter * r * s * of_group + element, case.a.at(pixel, channel, 0)),
                };
                let term = dy.at(output, filter, 0) * term;
                sums[0][at] += term;
                sums[1][at] += term.abs();
            }
        }
    });
    sums
}

fn gradient_of_output(case: &Case, dtype: DType, pad: usize) -> Matrix {
    let Shape { m, n, .. } = case.convolution.shape();
    let mut numbers = Numbers(m as u64 * 5 + n as u64);
    Matrix::new(dtype, RowMajor, [m, n, 1], pad).filled(|_, _, _| numbers.small())
}

fn store(dtype: DType) -> Epilogue {
    let stored = Epilogue::build(|e| match dtype {
        I32 => e.store("d", e.acc_i32(), I32),
        F64 => e.store("d", e.acc_f64(), F64),
        _ => e.store("d", e.acc(), F32),
    });
    stored.unwrap()
}

/// A matrix whose lines may have gaps. Groups share it, so it has no batch stride.
fn lines(matrix: &Matrix) -> Tensor<HostBuffer<'_>> {
    Tensor::of_bytes(matrix.dtype, &matrix.bytes[..]).ld(matrix.ld)
}

fn other(case: &Case, of: GradientOf) -> &Matrix {
    if of == GradientOf::Images { &case.b } else { &case.a }
}

#[test]
fn every_shape_and_format_is_plain_loops() {
    for (i, shape) in shapes().into_iter().enumerate() {
        // Plain loops take long where there are many filters.
        let formats: &[DType] = if shape.filters > 100 { &[F16] } else { &[F32, F64, F16, BF16, I32] };
        for &dtype in formats {
            let case = Case::new(shape, dtype, i % 2 * 3);
            let dy = gradient_of_output(&case, dtype, i % 3);
            for of in [GradientOf::Images, GradientOf::Filters] {
                let (operation, [expected, _]) =
                    (Operation::ConvolutionGradient { dtype, convolution: case.convolution, of }, direct(&case, &dy, of));
                let shape = operation.patches().unwrap().shape();
                assert_eq!(shape.m * shape.n * shape.batch, expected.len(), "{operation}");
                let mut d = Matrix::new(dtype.value_type().storage(), RowMajor, [shape.m * shape.batch, shape.n, 1], 0);
                let args = HostArgs::new().input("a", lines(&dy)).input("b", lines(other(&case, of)));
                let args = args.output("d", Tensor::of_bytes_mut(d.dtype, &mut d.bytes));
                run(operation, store(dtype).checked(), shape, args, Precision::F32).unwrap();
                let found: Vec<f64> = (0..expected.len()).map(|at| d.at(at / shape.n, at % shape.n, 0)).collect();
                assert_eq!(found, expected, "{operation}");
            }
        }
    }
}

#[test]
fn the_oracle_knows_the_magnitude_of_each_sum() {
    for shape in [shapes()[4], shapes()[8]] {
        let case = Case::new(shape, F16, 0);
        let dy = gradient_of_output(&case, F16, 0);
        for of in [GradientOf::Images, GradientOf::Filters] {
            let operation = Operation::ConvolutionGradient { dtype: F16, convolution: case.convolution, of };
            let shape = operation.patches().unwrap().shape();
            let [expected, magnitudes] = direct(&case, &dy, of);
            let mut d = vec![0.0f32; expected.len()];
            let args = HostArgs::new().input("a", lines(&dy)).input("b", lines(other(&case, of))).output("d", &mut d);
            let found = oracle(operation, store(F16).checked(), shape, &args).unwrap();
            assert_eq!((&found.outputs[0].values, &found.magnitude.values), (&expected, &magnitudes), "{operation}");
        }
    }
}

/// The derivative of the layer before, the bias gradients of both layers, and a gradient that is added to.
#[test]
fn epilogues_run_behind_gradients() {
    let case = Case::new(ConvShape { filters: 4, ..shapes()[0] }.groups(2).padding([1, 2]).stride([2, 1]), F32, 0);
    let dy = gradient_of_output(&case, F32, 0);
    let [images, filters] = [GradientOf::Images, GradientOf::Filters].map(|of| direct(&case, &dy, of)[0].clone());
    let shape = case.shape;
    let saved: Vec<f32> = (0..images.len()).map(|i| (i % 7) as f32 - 3.0).collect();
    let behind = Epilogue::build(|e| {
        let left = case.convolution.input_pixel(e).x.lt(4);
        let dz = e.load("saved", F32).gt(0.0).select(e.acc(), 0.0);
        e.store("dz", dz.region(left, |z| z * 2.0).otherwise(|z| z), F32);
        e.reduce("db", dz, Monoid::Sum, F32.over(N));
    });
    let (mut dz, mut db) = (vec![0.0f32; images.len()], vec![0.0f32; shape.channels]);
    let args = HostArgs::new().input("a", lines(&dy)).input("b", lines(&case.b)).input("saved", &saved);
    let conv = Conv::data_gradient(F32, shape, &behind.unwrap()).unwrap();
    conv.reference(args.output("dz", &mut dz).output("db", &mut db)).unwrap();
    let mut sums = vec![0.0f32; shape.channels];
    for (at, x) in images.iter().enumerate() {
        let x = if saved[at] > 0.0 { *x as f32 } else { 0.0 };
        sums[at % shape.channels] += x;
        assert_eq!(dz[at], if at / shape.channels % shape.width < 4 { 2.0 * x } else { x });
    }
    assert_eq!(db, sums);

    let added = Epilogue::build(|e| {
        e.store("dw", e.acc() * 0.5 + e.load("dw", F32), F32);
        e.reduce("db", e.a(), Monoid::Sum, F32.over(M | L));
    });
    let (mut dw, mut db) = (vec![1.0f32; filters.len()], vec![0.0f32; shape.filters]);
    let args = HostArgs::new().input("a", lines(&dy)).input("b", lines(&case.a)).output("dw", &mut dw).output("db", &mut db);
    let conv = Conv::filter_gradient(F32, shape, &added.unwrap()).unwrap();
    assert_eq!(conv.shape().batch, 2, "a group is a batch entry");
    conv.reference(args).unwrap();
    assert_eq!(dw, filters.iter().map(|x| *x as f32 * 0.5 + 1.0).collect::<Vec<f32>>());
    let outputs = case.convolution.shape().m;
    let sums = (0..shape.filters).map(|filter| (0..outputs).map(|row| dy.at(row, filter, 0) as f32).sum());
    assert_eq!(db, sums.collect::<Vec<f32>>());
}

#[test]
fn what_does_not_fit_is_named() {
    let shape = ConvShape::new(1, [4, 4, 2], [3, 2, 2]);
    let (dy, b, mut d) = ([0.0f32; 26], [0.0f32; 23], [1.0f32; 32]);
    let conv = Conv::data_gradient(F32, shape, &store(F32)).unwrap();
    let error = conv.reference(HostArgs::new().input("a", &dy).input("b", &b).output("d", &mut d)).unwrap_err().to_string();
    assert!(error.contains("argument `a`: too short: N P Q x K, row-major with leading dimension 3 needs 27"), "{error}");
    assert!(error.contains("argument `b`: too short: K x R S C, row-major with leading dimension 8 needs 24"), "{error}");
    let summed = Epilogue::build(|e| {
        e.store("d", e.acc(), F32);
        e.reduce("sums", e.b(), Monoid::Sum, F32.over(N));
    });
    let (dy, x, mut dw, mut sums) = ([0.0f32; 27], [0.0f32; 32], [1.0f32; 24], [1.0f32; 8]);
    let args = HostArgs::new().input("a", &dy).input("b", &x).output("d", &mut dw).output("sums", &mut sums);
    let error = Conv::filter_gradient(F32, shape, &summed.unwrap()).unwrap().reference(args).unwrap_err().to_string();
    assert!(error.contains("a convolution has no such sums yet, but for those of `a`"), "{error}");
    assert_eq!((d, dw, sums), ([1.0; 32], [1.0; 24], [1.0; 8]), "nothing is written");
}
