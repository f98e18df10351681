//! Coordinates, scalars, regions, custom primitives and the rounding of stores.

use crate::support::{Matrix, Numbers, POINTWISE, Points, product};
use postlude::dtype::ValueType;
use postlude::ir::Order::RowMajor;
use postlude::prelude::*;
use postlude::reference::{Precision, oracle, run};
use postlude::{HostArgs, Op};
use std::sync::Arc;

#[test]
fn coordinates_count_from_the_origin() {
    let epilogue = Epilogue::build(|e| {
        e.store("d", e.row() * 1_000_000 + e.column() * 1000 + e.batch(), I32);
    });
    let extents = [140, 300, 2];
    let a = Matrix::new(F32, RowMajor, extents, 0).filled(|_, _, _| 0.0);
    let mut d = Matrix::new(I32, RowMajor, extents, 0);
    let expected = d.clone().filled(|i, j, l| (i as f64 + 5.0) * 1e6 + (j as f64 - 7.0) * 1e3 + l as f64 + 2.0);
    let args = HostArgs::new().input("a", a.input()).output("d", d.output()).origin(5, -7, 2);
    let shape = Shape::new(140, 300, 0).batched(2);
    run(POINTWISE, epilogue.unwrap().checked(), shape, args, Precision::F32).unwrap();
    assert!(d == expected);
}

#[test]
fn scalars_of_every_type_are_passed_by_value() {
    let epilogue = Epilogue::build(|e| {
        let shifted = e.acc() + e.scalar("shift", F32);
        let wide = e.column().ge(e.scalar("from", I32)) & e.scalar("on", Bool);
        e.store("d", wide.select(shifted, e.acc()), F32);
    });
    let (a, mut d) = ([1.0f32, 2.0, 3.0], [0.0f32; 3]);
    let args = HostArgs::new().input("a", &a[..]).output("d", &mut d[..]);
    let args = args.scalar("shift", 0.5f32).scalar("from", 1).scalar("on", true);
    run(POINTWISE, epilogue.unwrap().checked(), Shape::new(1, 3, 0), args, Precision::F32).unwrap();
    assert_eq!(d, [1.0, 2.5, 3.5]);
}

#[test]
fn a_region_ends_where_the_scalar_says() {
    let epilogue = Epilogue::build(|e| {
        let z = e.acc() + e.load("bias", F16.over(N));
        let y = z
            .region(e.row().lt(e.scalar("boundary", I32)), |z| z.sigmoid())
            .region(e.column().lt(100), |z| z.tanh())
            .otherwise(|z| z.relu());
        e.store("d", y, F16);
    });
    let epilogue = epilogue.unwrap();
    let mut numbers = Numbers(19);
    let a = Matrix::new(F16, RowMajor, [200, 24, 1], 0).filled(|_, _, _| numbers.between(-1.0, 1.0));
    let b = Matrix::new(F16, RowMajor, [24, 150, 1], 0).filled(|_, _, _| numbers.between(-1.0, 1.0));
    let bias = Matrix::new(F16, RowMajor, [1, 150, 1], 0).filled(|_, _, _| numbers.between(-1.0, 1.0));
    let bias: Vec<half::f16> = (0..150).map(|j| half::f16::from_f64(bias.at(0, j, 0))).collect();
    for boundary in [0, 1, 127, 130, 200, 999] {
        let mut d = Matrix::new(F16, RowMajor, [200, 150, 1], 2);
        let args = HostArgs::new().input("a", a.input()).input("b", b.input()).input("bias", &bias);
        let args = args.scalar("boundary", boundary).output("d", d.output());
        run(product(F16, TT), epilogue.checked(), Shape::new(200, 150, 24), args, Precision::F32).unwrap();
        for (i, j) in (0..200).flat_map(|i| (0..150).map(move |j| (i, j))) {
            let z = (0..24).map(|k| a.at(i, k, 0) * b.at(k, j, 0)).sum::<f64>() + bias[j].to_f64();
            let y = match (i, j) {
                (i, _) if (i as i32) < boundary => 1.0 / (1.0 + (-z).exp()),
                (_, j) if j < 100 => z.tanh(),
                _ => z.max(0.0),
            };
            // A unit in the last place of f16: the sum was rounded in f32.
            assert!((d.at(i, j, 0) - y).abs() <= y.abs() * 1e-3 + 1e-6, "({i}, {j}), boundary {boundary}");
        }
    }
}

#[test]
fn the_arm_that_is_not_taken_leaks_nothing() {
    let epilogue = Epilogue::build(|e| {
        let z = e.acc();
        e.store("d", z.gt(0.0).select(z.log(), -1.0), F32);
    });
    let (a, mut d) = ([-1.0f32, 1.0, f32::NAN, 0.0], [9.0f32; 4]);
    let args = HostArgs::new().input("a", &a[..]).output("d", &mut d[..]);
    run(POINTWISE, epilogue.unwrap().checked(), Shape::new(2, 2, 0), args, Precision::F32).unwrap();
    assert_eq!(d, [-1.0, 0.0, -1.0, -1.0]);
}

#[test]
fn custom_primitives_are_evaluated_and_rounded() {
    let third = Arc::new(CustomOp::new("third", 1, "$0 / 3.0f", |x| x[0] / 3.0).unwrap());
    let sum = Arc::new(CustomOp::new("sum4", 4, "$0 + $1 + $2 + $3", |x| x.iter().sum()).unwrap());
    let epilogue = Epilogue::build(|e| {
        let (z, row) = (e.acc(), e.row().cast(F32));
        e.store("third", e.custom(&third, [z]), F32);
        e.store("sum", e.custom(&sum, [z, row, e.column().cast(F32), e.constant(100.0)]), F32);
    });
    let epilogue = epilogue.unwrap();
    let (a, mut thirds, mut sums) = ([1.0f32, 2.0, 3.0, 4.0], [0.0f32; 4], [0.0f32; 4]);
    let args = HostArgs::new().input("a", &a[..]).output("third", &mut thirds[..]).output("sum", &mut sums[..]);
    let exact = oracle(POINTWISE, epilogue.checked(), Shape::new(2, 2, 0), &args).unwrap();
    run(POINTWISE, epilogue.checked(), Shape::new(2, 2, 0), args, Precision::F32).unwrap();
    assert_eq!(thirds, a.map(|x| x / 3.0));
    assert_eq!(sums, [101.0, 103.0, 104.0, 106.0]);
    assert_eq!(exact.output("third").unwrap().at(0, 0, 0), 1.0 / 3.0);
}

#[test]
fn stores_round_once_to_nearest_even() {
    let (f16, bf16) = (2f64.powi(-10), 2f64.powi(-7));
    let x = [
        1.0 + f16 / 2.0,
        1.0 + 1.5 * f16,
        -1.0 - f16 / 2.0,
        1.0 + bf16 / 2.0,
        1.0 + 1.5 * bf16,
        65519.0,
        65520.0,
        2f64.powi(-25),
        3.0 * 2f64.powi(-26),
        f64::from(f32::MAX),
        f64::NEG_INFINITY,
        -0.0,
    ];
    let mut points = Points::new(x.len());
    let value = points.load("x", ValueType::F32, &x);
    points.store("half", value, F16);
    points.store("brain", value, BF16);
    let stored = points.run(Precision::F32);
    let brain = |f: f64| f64::from(half::bf16::from_f64(f).to_f32());
    assert_eq!(stored[0][..3], [1.0, 1.0 + 2.0 * f16, -1.0]);
    assert_eq!(stored[0][5..11], [65504.0, f64::INFINITY, 0.0, 2f64.powi(-24), f64::INFINITY, f64::NEG_INFINITY]);
    assert_eq!(stored[1][3..5], [1.0, 1.0 + 2.0 * bf16]);
    assert_eq!(stored[1][5..], [brain(65519.0), 65536.0, x[7], x[8], f64::INFINITY, f64::NEG_INFINITY, -0.0]);
    assert!(stored.iter().all(|s| s[11].is_sign_negative()));
    assert_eq!(points.exact(), [x, x]);
}

#[test]
fn a_store_of_the_oracle_rounds_once_too() {
    // A tie of f16 and a little more: an f32 in between would lose the little.
    let mut points = Points::new(1);
    let (tie, little) = (1.0 + 2f64.powi(-11), 2f64.powi(-40));
    let (x, y) = (points.load("x", ValueType::F32, &[tie]), points.load("y", ValueType::F32, &[little]));
    let sum = points.graph.apply(Op::Add, &[x, y]);
    points.store("d", sum, F16);
    assert_eq!(points.run(Precision::F32), [[1.0]]);
    assert_eq!(points.run(Precision::F64), [[1.0 + 2f64.powi(-10)]]);
    assert_eq!(points.exact(), [[tie + little]]);
}

#[test]
fn many_small_batch_entries_are_as_good_as_one_large() {
    let epilogue = Epilogue::build(|e| e.store("d", e.acc() + e.batch().cast(F32), F32)).unwrap();
    let shape = Shape::new(3, 2, 4).batched(500);
    let (a, b, mut d) = (vec![1.0f32; 12 * 500], vec![1.0f32; 8 * 500], vec![0.0f32; 6 * 500]);
    let args = HostArgs::new().input("a", &a).input("b", &b).output("d", &mut d);
    run(product(F32, TN), epilogue.checked(), shape, args, Precision::F32).unwrap();
    assert!(d.iter().enumerate().all(|(i, x)| *x == 4.0 + (i / 6) as f32));
}

#[test]
fn operators_in_place_and_sums_are_what_they_stand_for() {
    let build = |build: fn(&Builder) -> Expr<'_>| Epilogue::build(|e| e.store("d", build(e), F32)).unwrap();
    let in_place = build(|e| {
        let mut z = e.acc();
        z += 1.0;
        z -= 2.0;
        z *= 3.0;
        z /= e.acc();
        z %= 5.0;
        z
    });
    assert_eq!(in_place.to_string(), build(|e| ((e.acc() + 1.0 - 2.0) * 3.0 / e.acc()) % 5.0).to_string());
    let bits = build(|e| {
        {
            let mut x = e.acc().to_bits();
            x <<= 1;
            x >>= 1;
            x &= -2;
            x |= 8;
            x ^= e.row();
            !x.from_bits().is_nan() ^ true
        }
        .cast(F32)
    });
    let chained = build(|e| (!((((e.acc().to_bits() << 1) >> 1) & -2 | 8) ^ e.row()).from_bits().is_nan() ^ true).cast(F32));
    assert_eq!(bits.to_string(), chained.to_string());
    assert_eq!(build(|e| e.sum([e.acc(), e.row().cast(F32), e.acc()])), build(|e| e.acc() + e.row().cast(F32) + e.acc()));
    assert_eq!(build(|e| e.acc() + e.sum(Vec::<Expr<'_>>::new())), build(|e| e.acc() + 0.0));
}
