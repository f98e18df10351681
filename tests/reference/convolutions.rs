//! Convolutions, against seven plain loops.

use crate::support::{Matrix, Numbers};
use postlude::build::{BatchNorm, FoldError, recipes};
use postlude::ir::Order::RowMajor;
use postlude::prelude::*;
use postlude::problem::{ConvFault, oihw_to_krsc};
use postlude::reference::{Precision, oracle, run};
use postlude::{Convolution, HostArgs, Operation};

/// Every feature by itself, and some together.
pub fn shapes() -> Vec<ConvShape> {
    let base = ConvShape::new(2, [7, 9, 6], [5, 3, 3]);
    vec![
        base,
        base.padding([1, 1]),
        base.padding_of([0, 2, 0, 0]),
        base.padding_of([0, 0, 3, 1]),
        base.padding_of([1, 0, 0, 2]).stride([2, 3]),
        base.dilation([3, 2]).padding([2, 0]),
        base.stride([9, 4]).padding([5, 5]),
        base.padding([1, 1]).groups(1),
        ConvShape { filters: 4, ..base }.groups(2).padding([1, 2]),
        ConvShape { filters: 12, ..base }.groups(6).padding([1, 1]), // depthwise, two filters a channel
        ConvShape { images: 3, window: [1, 1], ..base },
        ConvShape { window: [1, 1], ..base }.stride([2, 2]),
        ConvShape { window: [1, 1], ..base }.padding([1, 0]),
        ConvShape { window: [7, 9], ..base },
        ConvShape { window: [2, 5], filters: 1, channels: 1, ..base },
        ConvShape::line(3, [20, 4], [6, 5]).padding([0, 2]).dilation([1, 2]),
        // Several tiles of the executor along both axes, and chunks that end inside a tap.
        ConvShape::new(3, [9, 8, 65], [260, 3, 3]).padding([1, 1]),
        ConvShape::new(1, [13, 11, 8], [264, 2, 2]).groups(4).stride([1, 2]),
        ConvShape { height: 0, ..base }.padding([2, 0]), // nothing but padding
        ConvShape { images: 0, ..base },
        ConvShape { channels: 0, ..base },
        ConvShape { filters: 0, ..base },
    ]
}

/// The sum at an element, by the book.
fn direct(shape: ConvShape, a: &Matrix, b: &Matrix, [image, p, q, filter]: [usize; 4], term: impl Fn(f64) -> f64) -> f64 {
    let ConvShape { height, width, channels, filters, window: [r, s], stride, padding, dilation, groups, .. } = shape;
    let (of_group, first) = (channels / groups, filter / (filters / groups) * (channels / groups));
    let mut sum = 0.0;
    for i in 0..r {
        for j in 0..s {
            let (y, x) = ((p * stride[0] + i * dilation[0]) as i64, (q * stride[1] + j * dilation[1]) as i64);
            let (y, x) = (y - padding[0] as i64, x - padding[2] as i64);
            if y < 0 || x < 0 || y >= height as i64 || x >= width as i64 {
                continue;
            }
            let pixel = (image * height + y as usize) * width + x as usize;
            for c in 0..of_group {
                sum += term(a.at(pixel, first + c, 0) * b.at(filter, (i * s + j) * of_group + c, 0));
            }
        }
    }
    sum
}

pub struct Case {
    pub shape: ConvShape,
    pub convolution: Convolution,
    pub a: Matrix,
    pub b: Matrix,
}

impl Case {
    /// Images and filters of small integers, whose lines are `pad` elements apart.
    pub fn new(shape: ConvShape, dtype: DType, pad: usize) -> Case {
        let convolution = Convolution::new(shape).unwrap();
        let mut numbers = Numbers(shape.channels as u64 * 31 + shape.filters as u64 * 17 + shape.width as u64);
        let mut matrix = |rows, columns| Matrix::new(dtype, RowMajor, [rows, columns, 1], pad).filled(|_, _, _| numbers.small());
        let a = matrix(shape.images * shape.height * shape.width, shape.channels);
        let b = matrix(shape.filters, shape.window[0] * shape.window[1] * shape.channels / shape.groups);
        Case { shape, convolution, a, b }
    }

    fn at(&self, row: usize, filter: usize, term: impl Fn(f64) -> f64) -> f64 {
        let [p, q] = self.convolution.output();
        direct(self.shape, &self.a, &self.b, [row / (p * q), row / q % p, row % q, filter], term)
    }

    fn args(&self) -> HostArgs<'_> {
        HostArgs::new().input("a", self.a.input()).input("b", self.b.input())
    }
}

#[test]
fn every_shape_and_format_is_seven_loops() {
    for (i, shape) in shapes().into_iter().enumerate() {
        for dtype in [F32, F64, F16, BF16, I32] {
            let case = Case::new(shape, dtype, i % 2 * 3);
            let Shape { m, n, .. } = case.convolution.shape();
            let epilogue = Epilogue::build(|e| match dtype {
                I32 => e.store("d", e.acc_i32(), I32),
                F64 => e.store("d", e.acc_f64(), F64),
                _ => e.store("d", e.acc(), F32),
            });
            let d = Matrix::new(dtype.value_type().storage(), RowMajor, [m, n, 1], i % 3);
            let expected = d.clone().filled(|row, filter, _| case.at(row, filter, |x| x));
            for precision in [Precision::F32, Precision::F64] {
                let mut d = d.clone();
                let operation = Operation::Convolution { dtype, convolution: case.convolution };
                let args = case.args().output("d", d.output());
                run(operation, epilogue.as_ref().unwrap().checked(), case.convolution.shape(), args, precision).unwrap();
                assert!(d == expected, "{dtype} {shape} {precision:?}");
            }
        }
    }
}

#[test]
fn the_oracle_knows_the_magnitude_of_each_sum() {
    let case = Case::new(shapes()[8], F16, 0);
    let epilogue = Epilogue::build(|e| e.store("d", e.acc(), F32)).unwrap();
    let Shape { m, n, .. } = case.convolution.shape();
    let mut d = vec![0.0f32; m * n];
    let operation = Operation::Convolution { dtype: F16, convolution: case.convolution };
    let args = case.args().output("d", &mut d);
    let found = oracle(operation, epilogue.checked(), case.convolution.shape(), &args).unwrap();
    for (row, filter) in (0..m).flat_map(|row| (0..n).map(move |filter| (row, filter))) {
        assert_eq!(found.outputs[0].at(row, filter, 0), case.at(row, filter, |x| x));
        assert_eq!(found.magnitude.at(row, filter, 0), case.at(row, filter, f64::abs));
    }
}

#[test]
fn an_epilogue_sees_pixels_and_channels() {
    for shape in [ConvShape::new(3, [5, 6, 4], [7, 3, 2]), ConvShape::new(2, [9, 5, 4], [7, 3, 2]).stride([2, 1])] {
        let case = Case::new(shape, F32, 0);
        let ([_, q], Shape { m, n, .. }) = (case.convolution.output(), case.convolution.shape());
        let epilogue = Epilogue::build(|e| {
            let at = case.convolution.pixel(e);
            let inside = at.y.ge(1).and(at.x.ge(2)).and(at.image.lt(2));
            let z = e.acc() + e.load("bias", F32.over(N)) + e.load("residual", F32);
            e.store("d", z.region(inside, |z| z.relu()).otherwise(|z| z * 2.0), F32);
            e.reduce("sums", z, Monoid::Sum, F32.over(N));
            e.store("place", at.image * 10_000 + at.y * 100 + at.x, I32);
        });
        let bias: Vec<f32> = (0..n).map(|i| i as f32).collect();
        let residual: Vec<f32> = (0..m * n).map(|i| (i % 13) as f32 - 6.0).collect();
        let (mut d, mut sums, mut place) = (vec![0.0f32; m * n], vec![0.0f32; n], vec![0i32; m * n]);
        let conv = Conv::new(F32, shape, &epilogue.unwrap()).unwrap();
        let args = case.args().input("bias", &bias).input("residual", &residual);
        conv.reference(args.output("d", &mut d).output("sums", &mut sums).output("place", &mut place)).unwrap();
        let mut expected_sums = vec![0.0; n];
        for (row, filter) in (0..m).flat_map(|row| (0..n).map(move |filter| (row, filter))) {
            let per_image = m / shape.images;
            let (image, y, x) = (row / per_image, row % per_image / q, row % q);
            let z = case.at(row, filter, |x| x) as f32 + bias[filter] + residual[row * n + filter];
            let expected = if y >= 1 && x >= 2 && image < 2 { z.max(0.0) } else { z * 2.0 };
            assert_eq!((d[row * n + filter], place[row * n + filter] as usize), (expected, image * 10_000 + y * 100 + x));
            expected_sums[filter] += z;
        }
        assert_eq!(sums, expected_sums);
    }
}

#[test]
fn what_does_not_fit_is_named() {
    let shape = ConvShape::new(1, [4, 4, 2], [3, 2, 2]);
    let epilogue = Epilogue::build(|e| e.store("d", e.acc(), F32)).unwrap();
    let conv = Conv::new(F32, shape, &epilogue).unwrap();
    let (a, b, mut d) = ([0.0f32; 31], [0.0f32; 23], [1.0f32; 27]);
    let error = conv.reference(HostArgs::new().input("a", &a).input("b", &b).output("d", &mut d)).unwrap_err().to_string();
    assert!(error.contains("argument `a`: too short: N H W x C, row-major with leading dimension 2 needs 32"), "{error}");
    assert!(error.contains("argument `b`: too short: K x R S C, row-major with leading dimension 8 needs 24"), "{error}");
    assert_eq!(d, [1.0; 27]);

    let (a, b) = ([0.0f32; 32], [0.0f32; 24]);
    let args = HostArgs::new().input("a", &a).input("b", &b).output("d", &mut d);
    let error = conv.gemm().reference(Shape::new(9, 3, 4), args).unwrap_err().to_string();
    assert!(error.contains("a launch of 9 x 3 x 4 was asked for, and the images make it 9 x 3 x 8"), "{error}");

    let summed = Epilogue::build(|e| {
        e.store("d", e.acc(), F32);
        e.reduce("sums", e.b(), Monoid::Sum, F32.over(N));
    });
    let (mut d, mut sums) = ([0.0f32; 27], [0.0f32; 3]);
    let args = HostArgs::new().input("a", &a).input("b", &b).output("d", &mut d).output("sums", &mut sums);
    let error = Conv::new(F32, shape, &summed.unwrap()).unwrap().reference(args).unwrap_err().to_string();
    assert!(error.contains("a convolution has no such sums yet"), "{error}");

    let fault = Conv::new(F32, shape.groups(2), &epilogue).unwrap_err();
    assert_eq!(fault, ConvFault::Groups { groups: 2, what: "filters", of: 3 });
    assert_eq!(postlude::Error::from(fault.clone()).to_string(), fault.to_string());
}

/// Batch norm as values over N, folded into the filters, and by the book.
#[test]
fn batch_norm_of_inference() {
    let case = Case::new(ConvShape::new(2, [5, 4, 3], [6, 3, 3]).padding([1, 1]), F32, 0);
    let Shape { m, n, .. } = case.convolution.shape();
    let numbers = |from: f32, step: f32| (0..n).map(|i| from + step * i as f32).collect::<Vec<f32>>();
    let (mean, variance, gain, shift) = (numbers(-2.0, 0.7), numbers(0.2, 1.3), numbers(1.5, -0.4), numbers(-1.0, 0.5));
    let residual: Vec<f32> = (0..m * n).map(|i| (i % 11) as f32 - 5.0).collect();
    let expected: Vec<f64> = (0..m * n)
        .map(|i| {
            let (x, filter) = (case.at(i / n, i % n, |x| x), i % n);
            let [mean, variance, gain, shift] = [mean[filter], variance[filter], gain[filter], shift[filter]].map(f64::from);
            (x - mean) / (variance + f64::from(1e-3f32)).sqrt() * gain + shift
        })
        .collect();
    let close = |got: &[f32], added: &dyn Fn(usize) -> f64| {
        for (i, (got, expected)) in got.iter().zip(&expected).enumerate() {
            let expected = (expected + added(i)).max(0.0);
            assert!((f64::from(*got) - expected).abs() <= 1e-4 * (1.0 + expected), "{i}: {got}, {expected}");
        }
    };
    let (mut d, mut added) = (vec![0.0f32; m * n], vec![0.0f32; m * n]);
    let shape = case.convolution.measures();
    let normed = Conv::new(F32, shape, &recipes::conv_bn_relu(1e-3, F32).unwrap()).unwrap();
    let args = case.args().input("mean", &mean).input("variance", &variance).input("gain", &gain).input("shift", &shift);
    normed.reference(args.output("d", &mut d)).unwrap();
    close(&d, &|_| 0.0);
    let block = Conv::new(F32, shape, &recipes::conv_bn_add_relu(1e-3, F32).unwrap()).unwrap();
    let args = case.args().input("mean", &mean).input("variance", &variance).input("gain", &gain).input("shift", &shift);
    block.reference(args.input("residual", &residual).output("d", &mut added)).unwrap();
    close(&added, &|i| f64::from(residual[i]));

    let mut filters: Vec<f32> = case.b.bytes.chunks(4).map(|x| f32::from_le_bytes(x.try_into().unwrap())).collect();
    let (mut bias, before) = (vec![0.0f32; n], filters.clone());
    let norm = BatchNorm { mean: &mean, variance: &variance, gain: &gain, shift: &shift, epsilon: 1e-3 };
    let short = BatchNorm { gain: &gain[1..], ..norm };
    let error = short.fold(&mut filters, &mut bias).unwrap_err();
    assert_eq!(error, FoldError::Length { name: "gain", got: n - 1, channels: n });
    assert_eq!(norm.fold(&mut filters[1..], &mut bias).unwrap_err(), FoldError::Filters { got: before.len() - 1, channels: n });
    assert!(filters == before && bias == vec![0.0; n], "nothing is changed");
    let none = BatchNorm { mean: &[], variance: &[], gain: &[], shift: &[], epsilon: 1e-3 };
    assert_eq!(none.fold(&mut filters[..3], &mut []), Err(FoldError::Filters { got: 3, channels: 0 }));
    assert_eq!(none.fold(&mut [], &mut []), Ok(()), "no channels have no filters");
    norm.fold(&mut filters, &mut bias).unwrap();
    let folded = Conv::new(F32, shape, &recipes::bias_activation(F32, F32, |z| z.relu()).unwrap()).unwrap();
    let args = HostArgs::new().input("a", case.a.input()).input("b", &filters).input("bias", &bias);
    folded.reference(args.output("d", &mut d)).unwrap();
    close(&d, &|_| 0.0);
}

#[test]
fn filters_of_other_libraries_are_put_in_order() {
    let [k, c, r, s] = [2, 3, 2, 4];
    let planes: Vec<usize> = (0..k * c * r * s).collect();
    let ordered = oihw_to_krsc(&planes, [k, c, r, s]).unwrap();
    let places = (0..k).flat_map(|k| (0..r * s).flat_map(move |at| (0..c).map(move |channel| (k * c + channel) * r * s + at)));
    assert_eq!(ordered, places.collect::<Vec<_>>());
    assert_eq!(oihw_to_krsc(&planes, [k, c, r, s + 1]), None);
}
