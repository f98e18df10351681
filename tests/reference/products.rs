//! The product, against a triple loop, wherever the matrices lie.

use crate::support::{Matrix, Numbers, POINTWISE, product};
use postlude::build::recipes;
use postlude::ir::Order::{ColumnMajor, RowMajor};
use postlude::prelude::*;
use postlude::reference::{Precision, oracle, run};
use postlude::{Builder, Expr, HostArgs, Operation};

/// The accumulator of an element, by the book.
fn dot(a: &Matrix, b: &Matrix, [row, column, batch]: [usize; 3], term: impl Fn(f64, f64) -> f64) -> f64 {
    (0..a.extents[1]).fold(0.0, |sum, k| sum + term(a.at(row, k, batch), b.at(k, column, batch)))
}

fn operands(dtype: DType, layout: Layout, shape: Shape, pad: usize) -> [Matrix; 2] {
    let mut numbers = Numbers(shape.m as u64 * 31 + shape.n as u64 * 17 + shape.k as u64);
    [([shape.m, shape.k], layout.a()), ([shape.k, shape.n], layout.b())].map(|([rows, columns], order)| {
        Matrix::new(dtype, order, [rows, columns, shape.batch], pad).filled(|_, _, _| numbers.small())
    })
}

fn accumulator(e: &Builder, dtype: DType) -> Expr<'_> {
    match dtype {
        I32 => e.acc_i32(),
        F64 => e.acc_f64(),
        _ => e.acc(),
    }
}

/// Runs the identity in both precisions and compares every byte of D, canaries included.
fn identity(dtype: DType, layout: Layout, shape: Shape, pad: usize, d: &Matrix) {
    let [a, b] = operands(dtype, layout, shape, pad);
    let operand = Operand { order: d.order, ..d.dtype.into() };
    let epilogue = Epilogue::build(|e| e.store("d", accumulator(e, dtype), operand)).unwrap();
    let expected = d.clone().filled(|i, j, l| dot(&a, &b, [i, j, l], |x, y| x * y));
    for precision in [Precision::F32, Precision::F64] {
        let mut d = d.clone();
        let args = HostArgs::new().input("a", a.input()).input("b", b.input()).output("d", d.output());
        run(product(dtype, layout), epilogue.checked(), shape, args, precision).unwrap();
        assert!(d == expected, "{dtype} {layout} {shape} pad {pad} {:?} {precision:?}", d.order);
    }
}

#[test]
fn every_layout_format_and_shape_is_a_triple_loop() {
    let shapes = [(1, 1, 1), (7, 9, 5), (1, 300, 3), (300, 1, 3), (129, 257, 8), (33, 17, 1030), (5, 6, 0)];
    for layout in Layout::ALL {
        for dtype in [F32, F64, F16, BF16, I32] {
            for (i, (m, n, k)) in shapes.into_iter().enumerate() {
                let shape = Shape::new(m, n, k).batched(1 + i % 3);
                let pad = i % 2 * 3;
                let stored = dtype.value_type().storage();
                for order in [RowMajor, ColumnMajor] {
                    identity(dtype, layout, shape, pad, &Matrix::new(stored, order, [m, n, shape.batch], pad));
                }
            }
        }
    }
}

#[test]
fn batch_entries_may_be_interleaved() {
    let shape = Shape::new(131, 40, 7).batched(3);
    for order in [RowMajor, ColumnMajor] {
        let inner = if order == RowMajor { shape.n } else { shape.m };
        let d = Matrix::strided(F32, order, [shape.m, shape.n, shape.batch], 3 * (inner + 2) + 1, inner + 2);
        identity(F16, Layout::TN, shape, 0, &d);
    }
}

#[test]
fn a_batch_stride_of_zero_shares_an_operand() {
    let shape = Shape::new(9, 11, 6).batched(4);
    let [mut a, b] = operands(F32, Layout::NN, shape, 0);
    a.batch_stride = 0;
    let mut d = Matrix::new(F32, RowMajor, [9, 11, 4], 0);
    let expected = d.clone().filled(|i, j, l| dot(&a, &b, [i, j, l], |x, y| x * y));
    let args = HostArgs::new().input("a", a.input()).input("b", b.input()).output("d", d.output());
    let epilogue = recipes::identity(F32).unwrap();
    run(product(F32, Layout::NN), epilogue.checked(), shape, args, Precision::F32).unwrap();
    assert_eq!(d, expected);
}

#[test]
fn no_terms_give_zero_and_no_elements_touch_nothing() {
    let epilogue = Epilogue::build(|e| e.store("d", e.acc() + e.load("bias", F32.over(N)), F32)).unwrap();
    let bias = [1.0f32, 2.0, 3.0];
    let mut d = [9.0f32; 6];
    let none: [f32; 0] = [];
    let args = HostArgs::new().input("a", &none[..]).input("b", &none[..]).input("bias", &bias[..]).output("d", &mut d[..]);
    run(product(F32, Layout::TN), epilogue.checked(), Shape::new(2, 3, 0), args, Precision::F32).unwrap();
    assert_eq!(d, [1.0, 2.0, 3.0, 1.0, 2.0, 3.0]);
    for shape in [Shape::new(0, 3, 4), Shape::new(2, 0, 4), Shape::new(2, 3, 4).batched(0), Shape::new(0, 0, 0)] {
        let (a, b) = ([1.0f32; 8], [1.0f32; 12]);
        let mut d = [9.0f32; 6];
        let args = HostArgs::new().input("a", &a[..]).input("b", &b[..]).input("bias", &bias[..]).output("d", &mut d[..]);
        let found = oracle(product(F32, Layout::TN), epilogue.checked(), shape, &args).unwrap();
        assert!(found.output("d").unwrap().values.is_empty());
        run(product(F32, Layout::TN), epilogue.checked(), shape, args, Precision::F32).unwrap();
        assert_eq!(d, [9.0; 6], "{shape}");
    }
}

#[test]
fn integers_wrap_and_are_not_rounded() {
    let epilogue = Epilogue::build(|e| e.store("d", e.acc_i32(), I32)).unwrap();
    let (a, b) = ([i32::MAX, i32::MAX, 16777217, 1], [i32::MAX, 3, 1, 16777216]);
    let mut d = [0i32; 4];
    let args = HostArgs::new().input("a", &a[..]).input("b", &b[..]).output("d", &mut d[..]);
    run(product(I32, Layout::TT), epilogue.checked(), Shape::new(2, 2, 2), args, Precision::F32).unwrap();
    let dot = |i: usize, j: usize| {
        a[2 * i].wrapping_mul(b[j]).wrapping_add(a[2 * i + 1].wrapping_mul(b[2 + j])) //
    };
    assert_eq!(d, [dot(0, 0), dot(0, 1), dot(1, 0), dot(1, 1)]);
}

#[test]
fn infinities_and_nans_stay_in_their_rows_and_columns() {
    let (m, n, k) = (5, 7, 20);
    let (mut a, mut b) = (vec![1.0f32; m * k], vec![1.0f32; n * k]);
    a[2 * k + 3] = f32::NAN;
    b[4 * k + 5] = f32::INFINITY;
    let mut d = vec![0.0f32; m * n];
    let args = HostArgs::new().input("a", &a).input("b", &b).output("d", &mut d);
    let epilogue = recipes::identity(F32).unwrap();
    run(product(F32, Layout::TN), epilogue.checked(), Shape::new(m, n, k), args, Precision::F32).unwrap();
    for (i, x) in d.iter().enumerate() {
        match (i / n, i % n) {
            (2, _) => assert!(x.is_nan()),
            (_, 4) => assert_eq!(*x, f32::INFINITY),
            _ => assert_eq!(*x, k as f32),
        }
    }
}

#[test]
fn a_pointwise_operation_reads_its_matrix() {
    let epilogue = Epilogue::build(|e| e.store("d", e.acc() * 2.0, F32)).unwrap();
    for order in [RowMajor, ColumnMajor] {
        let mut numbers = Numbers(3);
        let a = Matrix::new(BF16, order, [130, 259, 2], 3).filled(|_, _, _| numbers.small());
        let mut d = Matrix::new(F32, RowMajor, [130, 259, 2], 1);
        let expected = d.clone().filled(|i, j, l| 2.0 * a.at(i, j, l));
        let args = HostArgs::new().input("a", a.input()).output("d", d.output());
        let operation = Operation::Pointwise { dtype: BF16, order };
        run(operation, epilogue.checked(), Shape::new(130, 259, 99).batched(2), args, Precision::F32).unwrap();
        assert!(d == expected);
    }
}

#[test]
fn the_oracle_accumulates_in_f64_and_measures_the_sum() {
    let shape = Shape::new(140, 270, 600).batched(2);
    let mut numbers = Numbers(5);
    let [a, b] = operands(F32, Layout::NT, shape, 1).map(|m| m.filled(|_, _, _| numbers.between(-1.0, 1.0)));
    let epilogue = Epilogue::build(|e| e.store("d", e.acc() * 0.5, F16.column_major())).unwrap();
    let mut d = Matrix::new(F16, ColumnMajor, [140, 270, 2], 5);
    let untouched = d.clone();
    let args = HostArgs::new().input("a", a.input()).input("b", b.input()).output("d", d.output());
    let found = oracle(product(F32, Layout::NT), epilogue.checked(), shape, &args).unwrap();
    run(product(F32, Layout::NT), epilogue.checked(), shape, args, Precision::F64).unwrap();
    assert!(d != untouched);
    for (i, j, l) in [(0, 0, 0), (139, 269, 1), (127, 255, 0), (128, 256, 1), (64, 3, 1)] {
        let exact = 0.5 * dot(&a, &b, [i, j, l], |x, y| x * y);
        let magnitude = dot(&a, &b, [i, j, l], |x, y| (x * y).abs());
        let value = found.output("d").unwrap().at(i, j, l);
        assert!((value - exact).abs() < 1e-13 * magnitude, "{value} {exact}");
        assert!((found.magnitude.at(i, j, l) - magnitude).abs() < 1e-12 * magnitude);
        assert_eq!(d.at(i, j, l), F16.round(value));
    }
    // An accumulation in f32 stays within the bound of a sum of K products, whatever its order.
    let identity = recipes::identity(F32).unwrap();
    let mut d = Matrix::new(F32, RowMajor, [140, 270, 2], 0);
    let args = HostArgs::new().input("a", a.input()).input("b", b.input()).output("d", d.output());
    run(product(F32, Layout::NT), identity.checked(), shape, args, Precision::F32).unwrap();
    let mut rounded = 0;
    for (i, j, l) in (0..140).flat_map(|i| (0..270).flat_map(move |j| [(i, j, 0), (i, j, 1)])) {
        let error = (d.at(i, j, l) - 2.0 * found.outputs[0].at(i, j, l)).abs();
        assert!(error <= 601.0 * 2f64.powi(-24) * found.magnitude.at(i, j, l));
        rounded += usize::from(error > 0.0);
    }
    assert!(rounded > 10_000, "accumulated in more than f32");
    // A pointwise accumulator is exact.
    let (a, mut d) = ([1.0f32, 2.0], [0.0f32; 2]);
    let args = HostArgs::new().input("a", &a[..]).output("d", &mut d[..]);
    let found = oracle(POINTWISE, identity.checked(), Shape::new(1, 2, 0), &args).unwrap();
    assert_eq!((found.outputs[0].values.as_slice(), found.magnitude.values.as_slice()), (&[1.0, 2.0][..], &[0.0, 0.0][..]));
    assert!(found.output("e").is_none());
}

/// Digits that `f32` would round away are present, in operands, K elements, sums and the result.
#[test]
fn products_of_doubles_are_doubles() {
    let tiny = 2f64.powi(-40);
    let (a, b) = ([1.0 + tiny, 3.0, 1e200, 1.0], [1.0 - tiny, 1.0, 1e100, tiny]);
    let epilogue = Epilogue::build(|e| e.store("d", e.acc_f64() * 0.1, F64)).unwrap();
    for precision in [Precision::F32, Precision::F64] {
        let mut d = [0.0f64; 4];
        let args = HostArgs::new().input("a", &a).input("b", &b).output("d", &mut d);
        run(product(F64, TN), epilogue.checked(), Shape::new(2, 2, 2), args, precision).unwrap();
        let exact = [4.0 - tiny * tiny, (1.0 + tiny) * 1e100 + 3.0 * tiny, 1e200 * (1.0 - tiny) + 1.0, 1e200 * 1e100 + tiny];
        for (got, exact) in d.iter().zip(exact) {
            assert!((got - exact * 0.1).abs() <= 4.0 * f64::EPSILON * got.abs(), "{got}, not {}", exact * 0.1);
        }
    }
    let (a, b, mut d) = ([3.0f64, 4.0], [-5.0f64, 7.0], [0.0f64]);
    let args = HostArgs::new().input("a", &a).input("b", &b).output("d", &mut d);
    let found = oracle(product(F64, TN), epilogue.checked(), Shape::new(1, 1, 2), &args).unwrap();
    assert_eq!(found.magnitude.values, [43.0]);
}
