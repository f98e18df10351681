//! Operands of every kind, wherever they lie, and outputs that are also inputs.

use crate::support::{CANARY, Matrix, Numbers, POINTWISE, product};
use postlude::ir::Order::{ColumnMajor, RowMajor};
use postlude::prelude::*;
use postlude::reference::{Precision, oracle, run};
use postlude::{HostArgs, Tensor};

const SHAPE: Shape = Shape::new(131, 259, 0).batched(3);
const EXTENTS: [usize; 3] = [131, 259, 3];

fn zeros() -> Matrix {
    Matrix::new(F32, RowMajor, EXTENTS, 0).filled(|_, _, _| 0.0)
}

#[test]
fn operands_are_read_along_the_axes_they_vary_along() {
    let cases: [(&str, Operand, [usize; 3]); 9] = [
        ("pointer", F32.pointer(), [1, 1, 1]),
        ("per_entry", F32.pointer().batched(), [1, 1, 3]),
        ("rows", F16.over(M), [131, 1, 1]),
        ("columns", BF16.over(N), [1, 259, 1]),
        ("rows_batched", F32.over(M).batched(), [131, 1, 3]),
        ("columns_batched", F16.over(N).batched(), [1, 259, 3]),
        ("shared", F32.over(M | N), [131, 259, 1]),
        ("shared_columns", F32.over(M | N).column_major(), [131, 259, 1]),
        ("matrix", F16.column_major(), [131, 259, 3]),
    ];
    for (name, operand, extents) in cases {
        let mut numbers = Numbers(7);
        // A vector is like one run; it has its own batch stride, unless the batch shares it.
        let order =
            if operand.axes.contains(M) && (extents[1] == 1 || operand.order == ColumnMajor) { ColumnMajor } else { RowMajor };
        let pad = if operand.axes.contains(M | N) { 2 } else { 0 };
        let x = Matrix::new(operand.dtype, order, extents, pad).filled(|_, _, _| numbers.small());
        let tensor = Tensor::of_bytes(x.dtype, &x.bytes);
        let tensor = if operand.axes.contains(M | N) { tensor.ld(x.ld) } else { tensor };
        let tensor = if operand.axes.contains(L) { tensor.batch_stride(x.batch_stride) } else { tensor };
        let epilogue = Epilogue::build(|e| e.store("d", e.load(name, operand) + e.acc(), F32)).unwrap();
        let (a, mut d) = (zeros(), Matrix::new(F32, RowMajor, EXTENTS, 1));
        let expected = d.clone().filled(|i, j, l| x.at(i.min(extents[0] - 1), j.min(extents[1] - 1), l.min(extents[2] - 1)));
        let args = HostArgs::new().input("a", a.input()).input(name, tensor).output("d", d.output());
        run(POINTWISE, epilogue.checked(), SHAPE, args, Precision::F32).unwrap();
        assert!(d == expected, "{name}");
    }
}

#[test]
fn conditions_are_bytes() {
    let epilogue = Epilogue::build(|e| {
        let keep = e.load("keep", Bool);
        e.store("d", keep.select(e.acc(), -1.0), F32);
        e.store("dropped", !keep, Bool);
    });
    let (a, keep) = ([1.0f32, 2.0, 3.0], [0u8, 1, 255]);
    let (mut d, mut dropped) = ([0.0f32; 3], [CANARY; 3]);
    let args = HostArgs::new().input("a", &a[..]).input("keep", &keep[..]);
    let args = args.output("d", &mut d[..]).output("dropped", &mut dropped[..]);
    run(POINTWISE, epilogue.unwrap().checked(), Shape::new(1, 3, 0), args, Precision::F32).unwrap();
    assert_eq!((d, dropped), ([-1.0, 2.0, 3.0], [1, 0, 0]));
}

#[test]
fn every_output_is_written_in_its_own_format_and_order() {
    let epilogue = Epilogue::build(|e| {
        let z = e.acc() + 0.125;
        e.store("full", z, F32);
        e.store("half", z * 2.0, F16.column_major());
        e.store("brain", z.relu(), BF16);
        e.store("rounded", z.round().cast(I32), I32.column_major());
        e.store("positive", z.gt(0.0), Bool);
        e.store("one", e.constant(1.0), F16.over(M | N));
    });
    let mut numbers = Numbers(9);
    let a = zeros().filled(|_, _, _| numbers.small());
    let mut outputs = [
        ("full", Matrix::new(F32, RowMajor, EXTENTS, 3)),
        ("half", Matrix::new(F16, ColumnMajor, EXTENTS, 1)),
        ("brain", Matrix::new(BF16, RowMajor, EXTENTS, 0)),
        ("rounded", Matrix::new(I32, ColumnMajor, EXTENTS, 0)),
        ("positive", Matrix::new(Bool, RowMajor, EXTENTS, 5)),
        ("one", Matrix::strided(F16, RowMajor, [131, 259, 1], 260, 0)),
    ];
    let values: [fn(f64) -> f64; 6] =
        [|z| z, |z| z * 2.0, |z| z.max(0.0), f64::round_ties_even, |z| f64::from(u8::from(z > 0.0)), |_| 1.0];
    let expected: Vec<Matrix> = outputs
        .iter()
        .zip(values)
        .map(|((_, m), value)| m.clone().filled(|i, j, l| m.dtype.round(value(a.at(i, j, l) + 0.125))))
        .collect();
    let args = HostArgs::new().input("a", a.input());
    let args = outputs.iter_mut().fold(args, |args, (name, matrix)| args.output(name, matrix.output()));
    run(POINTWISE, epilogue.unwrap().checked(), SHAPE, args, Precision::F32).unwrap();
    for ((name, got), expected) in outputs.iter().zip(&expected) {
        assert!(got == expected, "{name}");
    }
}

#[test]
fn an_update_reads_every_element_before_it_writes_it() {
    let epilogue = Epilogue::build(|e| {
        let c = e.load("c", F16.column_major());
        e.store("c", c * 2.0 + e.acc(), F16.column_major());
        e.store("before", c, F32);
        e.store("after", c * 2.0 + e.acc(), F32);
    });
    let epilogue = epilogue.unwrap();
    let shape = Shape { k: 9, ..SHAPE };
    let mut numbers = Numbers(13);
    let a = Matrix::new(F16, RowMajor, [131, 9, 3], 0).filled(|_, _, _| numbers.small());
    let b = Matrix::new(F16, ColumnMajor, [9, 259, 3], 0).filled(|_, _, _| numbers.small());
    let old = Matrix::new(F16, ColumnMajor, EXTENTS, 4).filled(|_, _, _| numbers.small());
    let (mut c, mut before, mut after) = (old.clone(), zeros(), zeros());
    let args = HostArgs::new().input("a", a.input()).input("b", b.input()).output("c", c.output());
    let args = args.output("before", before.output()).output("after", after.output());
    let exact = oracle(product(F16, TN), epilogue.checked(), shape, &args).unwrap();
    run(product(F16, TN), epilogue.checked(), shape, args, Precision::F32).unwrap();
    let dot = |i, j, l| (0..9).map(|k| a.at(i, k, l) * b.at(k, j, l)).sum::<f64>();
    assert!(c == old.clone().filled(|i, j, l| 2.0 * old.at(i, j, l) + dot(i, j, l)));
    assert!(before == zeros().filled(|i, j, l| old.at(i, j, l)));
    assert!(after == zeros().filled(|i, j, l| c.at(i, j, l)));
    assert_eq!(exact.output("c").unwrap().at(130, 258, 2), c.at(130, 258, 2));
}

#[test]
fn an_input_may_be_passed_as_writable_and_stays_as_it_is() {
    let epilogue = Epilogue::build(|e| e.store("d", e.acc() + e.load("x", F32), F32)).unwrap();
    let (mut a, mut x, mut d) = ([1.0f32, 2.0], [10.0f32, 20.0], [0.0f32; 2]);
    let args = HostArgs::new().output("a", &mut a[..]).output("x", &mut x[..]).output("d", &mut d[..]);
    run(POINTWISE, epilogue.checked(), Shape::new(1, 2, 0), args, Precision::F32).unwrap();
    assert_eq!((a, x, d), ([1.0, 2.0], [10.0, 20.0], [11.0, 22.0]));
}

#[test]
fn memory_needs_no_alignment() {
    let epilogue = Epilogue::build(|e| e.store("d", e.acc() * 2.0, F32)).unwrap();
    let mut bytes = [0u8; 17];
    F32.write(&mut bytes[1..9], 0, 3.0);
    F32.write(&mut bytes[1..9], 1, -4.0);
    let (left, right) = bytes.split_at_mut(9);
    let args = HostArgs::new().input("a", Tensor::of_bytes(F32, &left[1..]));
    let args = args.output("d", Tensor::of_bytes_mut(F32, right));
    run(POINTWISE, epilogue.checked(), Shape::new(1, 2, 0), args, Precision::F32).unwrap();
    assert_eq!([F32.read(right, 0), F32.read(right, 1)], [6.0, -8.0]);
}
