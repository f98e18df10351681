//! Tables read at an index of the graph, against plain loops.

use crate::support::{Matrix, Numbers, POINTWISE, product};
use postlude::args::{ArgumentFault, IntoTensor};
use postlude::ir::Order::{ColumnMajor, RowMajor};
use postlude::prelude::*;
use postlude::reference::{Precision, oracle, run};
use postlude::{Expr, HostArgs, Tensor};

/// More than one tile of the reference along either side, and no multiple of it.
const SHAPE: Shape = Shape::new(131, 259, 0).batched(3);
const EXTENTS: [usize; 3] = [131, 259, 3];
const ORIGIN: [i32; 3] = [-7, 5, 1];

fn zeros() -> Matrix {
    Matrix::new(F32, RowMajor, EXTENTS, 0).filled(|_, _, _| 0.0)
}

/// A table's meaning.
fn element(table: &[f64], index: i64) -> f64 {
    usize::try_from(index).ok().and_then(|index| table.get(index)).copied().unwrap_or(0.0)
}

/// What is gathered from a table of this length at every element, by this index.
fn gathered(dtype: DType, length: usize, index: impl for<'e> Fn(&'e postlude::Builder) -> Expr<'e>) -> (Vec<f64>, Matrix) {
    let mut numbers = Numbers(length as u64);
    // No element is 0, which is what stands for none.
    let values: Vec<f64> = (0..length).map(|_| if dtype == Bool { 1.0 } else { numbers.small().abs() + 1.0 }).collect();
    // What lies behind the table is no zero either.
    let mut bytes = vec![0x3f; dtype.bytes(length + 8)];
    values.iter().enumerate().for_each(|(i, x)| dtype.write(&mut bytes, i, *x));
    let epilogue = Epilogue::build(|e| e.store("d", e.gather("table", dtype, index(e)).cast(F32) + e.acc(), F32)).unwrap();
    let mut d = Matrix::new(F32, RowMajor, EXTENTS, 1);
    let (a, [row, column, batch]) = (zeros(), ORIGIN);
    let table = Tensor::of_bytes(dtype, &bytes[..dtype.bytes(length)]);
    let args = HostArgs::new().input("a", a.input()).input("table", table).output("d", d.output()).origin(row, column, batch);
    let exact = oracle(POINTWISE, epilogue.checked(), SHAPE, &args).unwrap();
    run(POINTWISE, epilogue.checked(), SHAPE, args, Precision::F32).unwrap();
    for (i, j, l) in [(0, 0, 0), (130, 258, 2), (7, 64, 1)] {
        assert_eq!(exact.output("d").unwrap().at(i, j, l), d.at(i, j, l));
    }
    (values, d)
}

/// An index as the epilogue builds it, and as a function of the coordinates.
type Build = for<'e> fn(&'e postlude::Builder) -> Expr<'e>;
type Index = fn([i64; 3]) -> i64;

#[test]
fn a_table_of_every_format_is_read_along_the_axes_of_its_index() {
    let [row, column, batch] = ORIGIN.map(i64::from);
    let by: [(&str, Build, Index); 6] = [
        ("a constant", |e| e.constant(2), |_| 2),
        ("the batch entry", |e| e.batch(), |[_, _, l]| l),
        ("the row", |e| e.row(), |[i, _, _]| i),
        ("the column", |e| e.column() * -1 + 100, |[_, j, _]| 100 - j),
        ("both", |e| e.column() - e.row(), |[i, j, _]| j - i),
        ("all", |e| (e.row() + e.column() + e.batch()) % 9, |[i, j, l]| (i + j + l) % 9),
    ];
    for dtype in [F32, F16, BF16, I32, Bool] {
        for (what, build, index) in by {
            for length in [0, 1, 3, 64] {
                let (table, d) = gathered(dtype, length, build);
                let at = |i: usize, j: usize, l: usize| [row + i as i64, column + j as i64, batch + l as i64];
                let expected = d.clone().filled(|i, j, l| element(&table, index(at(i, j, l))));
                assert!(d == expected, "{length} elements of {dtype} by {what}");
            }
        }
    }
}

#[test]
fn an_index_outside_the_table_gives_zero() {
    for index in [-1, 5, 6, i32::MIN, i32::MAX] {
        let (_, d) = gathered(F32, 5, |e| e.constant(index));
        assert!(d == d.clone().filled(|_, _, _| 0.0), "{index}");
    }
    let (table, d) = gathered(F32, 5, |e| e.constant(4));
    assert!(d == d.clone().filled(|_, _, _| table[4]));
}

/// Loaded vectors and matrices as indices, behind a product, in either order.
#[test]
fn loaded_indices_of_a_product() {
    let [m, n, k, batch] = [70, 45, 6, 2];
    let epilogue = Epilogue::build(|e| {
        let slope = e.gather("slope", F16, e.load("expert", I32.over(M)));
        let shift = e.gather("shift", F32, e.load("group", I32.over(N).batched()) / 2);
        let other = e.gather("slope", F16, e.load("index", I32.column_major()));
        e.store("d", e.acc() * slope + shift + other, F32.column_major());
    })
    .unwrap();
    let mut numbers = Numbers(3);
    let mut matrix = |dtype, order, extents: [usize; 3]| Matrix::new(dtype, order, extents, 0).filled(|_, _, _| numbers.small());
    let (a, b) = (matrix(F32, RowMajor, [m, k, batch]), matrix(F32, RowMajor, [k, n, batch]));
    let (expert, group) = (matrix(I32, ColumnMajor, [m, 1, 1]), matrix(I32, RowMajor, [1, n, batch]));
    let index = matrix(I32, ColumnMajor, [m, n, batch]);
    let (slope, shift) = (matrix(F16, RowMajor, [1, 3, 1]), matrix(F32, RowMajor, [1, 2, 1]));
    let mut d = Matrix::new(F32, ColumnMajor, [m, n, batch], 3);
    let expected = d.clone().filled(|i, j, l| {
        let sum: f64 = (0..k).map(|t| a.at(i, t, l) * b.at(t, j, l)).sum();
        let read = |table: &Matrix, at: f64| {
            let table: Vec<f64> = (0..table.extents[1]).map(|i| table.at(0, i, 0)).collect();
            element(&table, at as i64)
        };
        let slope_of = |at: f64| read(&slope, at);
        sum * slope_of(expert.at(i, 0, 0)) + read(&shift, (group.at(0, j, l) / 2.0).trunc()) + slope_of(index.at(i, j, l))
    });
    let args = HostArgs::new().input("a", a.input()).input("b", b.input()).input("index", index.input());
    let args = args.input("expert", Tensor::of_bytes(I32, &expert.bytes)).input("group", Tensor::of_bytes(I32, &group.bytes));
    let args = args.input("slope", Tensor::of_bytes(F16, &slope.bytes)).input("shift", Tensor::of_bytes(F32, &shift.bytes));
    let shape = Shape::new(m, n, k).batched(batch);
    run(product(F32, TT), epilogue.checked(), shape, args.output("d", d.output()), Precision::F32).unwrap();
    assert!(d == expected);
}

/// Reductions take gathered values like any other.
#[test]
fn gathered_values_are_reduced() {
    let epilogue =
        Epilogue::build(|e| e.reduce("sums", e.gather("t", F32, e.row()) + e.acc() * 0.0, Monoid::Sum, F32.over(N))).unwrap();
    let (a, table, mut sums) = ([1.0f32; 8], [1.0f32, 2.0, 4.0], [0.0f32; 2]);
    let args = HostArgs::new().input("a", &a).input("t", &table).output("sums", &mut sums);
    run(POINTWISE, epilogue.checked(), Shape::new(4, 2, 0), args, Precision::F32).unwrap();
    assert_eq!(sums, [7.0; 2]);
}

#[test]
fn what_is_not_the_table_is_refused() {
    let epilogue = Epilogue::build(|e| e.store("d", e.acc() * e.gather("t", F32, e.row()), F32)).unwrap();
    let (a, table, integers) = ([1.0f32; 4], [1.0f32; 4], [1i32; 4]);
    let fault = |args: HostArgs<'_>| {
        let mut d = [7.0f32; 4];
        let args = args.output("d", &mut d);
        let errors = run(POINTWISE, epilogue.checked(), Shape::new(2, 2, 0), args, Precision::F32).unwrap_err();
        assert!(errors.0.len() == 1 && errors.0[0].name == "t", "{errors}");
        assert_eq!(d, [7.0; 4], "written in spite of {errors}");
        (errors.0[0].fault.clone(), errors.to_string())
    };
    let args = || HostArgs::new().input("a", &a);
    let (missing, told) = fault(args());
    assert!(matches!(missing, ArgumentFault::Missing { .. }) && told.contains("memory of f32, a table of any length"), "{told}");
    assert!(matches!(fault(args().scalar("t", 1.0f32)).0, ArgumentFault::Kind { .. }));
    assert_eq!(fault(args().input("t", &integers)).0, ArgumentFault::DType { needs: F32, got: I32 });
    assert!(matches!(
        fault(args().input("t", table.as_slice().ld(2))).0,
        ArgumentFault::LeadingDimension { least: 0, got: 2, .. }
    ));
    assert!(matches!(fault(args().input("t", table.as_slice().batch_stride(4))).0, ArgumentFault::BatchStride { got: 4, .. }));
}
