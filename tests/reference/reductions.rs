//! Reductions and bit masks against plain loops: every monoid, every set of axes, ragged and empty extents, more tiles than
//! one, and memory around the result left alone.

use crate::monoids;
use crate::support::{CANARY, Numbers, POINTWISE};
use postlude::args::{ArgumentFault, IntoTensor};
use postlude::dtype::ValueType;
use postlude::ir::axes::Axes;
use postlude::prelude::*;
use postlude::reference::{Precision, oracle, run};
use postlude::{HostArgs, Operand, Operation};

#[test]
fn what_is_said_of_a_reduction_is_said_in_any_order() {
    assert_eq!(Monoid::Sum.accumulate().atomic(), Monoid::Sum.atomic().accumulate());
}

/// Every set of axes but all three.
fn results() -> Vec<Operand> {
    let sets = [Axes::NONE, M, N, Axes::MN].into_iter().flat_map(|axes| [axes, axes | L]);
    sets.filter(|axes| *axes != Axes::MNL).map(|axes| F32.over(axes)).collect()
}

/// The index of an element in a contiguous result, and how many there are.
fn place(axes: Axes, shape: Shape, [i, j, l]: [usize; 3]) -> (usize, usize) {
    let along = |axis, at, extent| if axes.contains(axis) { (at, extent) } else { (0, 1) };
    let ((i, m), (j, n), (l, batch)) = (along(M, i, shape.m), along(N, j, shape.n), along(L, l, shape.batch));
    ((l * m + i) * n + j, m * n * batch)
}

/// An element of a kind that the monoid takes, of the accumulator, and the place of each in a row-major tensor.
fn element<'g>(e: &'g Builder, monoid: Monoid, shape: Shape) -> Vec<Expr<'g>> {
    let place = || (e.batch() * shape.m as i32 + e.row()) * shape.n as i32 + e.column();
    match monoid.takes(0) {
        [ValueType::Bool] => vec![e.acc().gt(-1.0)],
        [ValueType::I32] => vec![(e.acc() * 100.0).cast(I32)],
        _ if monoid.is_indexed() => vec![e.acc(), place()],
        _ if monoid.arity() == 2 => vec![e.acc(), e.acc() * e.acc()],
        _ => vec![e.acc()],
    }
}

fn epilogue(monoid: Monoid, operand: Operand, shape: Shape) -> Epilogue {
    let built = Epilogue::build(|e| match element(e, monoid, shape)[..] {
        [x] => e.reduce("r", x, monoid, operand),
        [x, y] => e.reduce("r", [x, y], monoid, operand),
        _ => unreachable!("one value or two"),
    });
    built.unwrap()
}

/// The definition: an element after the other.
fn plain(monoid: Monoid, axes: Axes, shape: Shape, a: &[f32]) -> Vec<f64> {
    let count = place(axes, shape, [0; 3]).1;
    let mut groups: Vec<Vec<(f64, usize)>> = vec![Vec::new(); count];
    for l in 0..shape.batch {
        for i in 0..shape.m {
            for j in 0..shape.n {
                let at = (l * shape.m + i) * shape.n + j;
                groups[place(axes, shape, [i, j, l]).0].push((f64::from(a[at]), at));
            }
        }
    }
    let best = |x: &[(f64, usize)], ahead: fn(f64, f64) -> bool| {
        let first = x.iter().copied().reduce(|best, x| if ahead(x.0, best.0) { x } else { best });
        first.map_or(-1.0, |(_, at)| at as f64)
    };
    let reduce = |group: &Vec<(f64, usize)>| {
        let x = || group.iter().map(|(x, _)| *x);
        let (count, mean) = (x().count() as f64, x().sum::<f64>() / x().count() as f64);
        let (largest, smallest) = (x().fold(f64::NEG_INFINITY, f64::max), x().fold(f64::INFINITY, f64::min));
        match monoid {
            Monoid::Sum => x().sum(),
            Monoid::Product => x().product(),
            Monoid::Max => largest,
            Monoid::Min => smallest,
            Monoid::AbsMax => x().fold(0.0, |m: f64, x| m.max(x.abs())),
            Monoid::LogSumExp => x().map(f64::exp).sum::<f64>().ln(),
            Monoid::Mean => mean,
            Monoid::Variance => x().map(|x| (x - mean) * (x - mean)).sum::<f64>() / count,
            Monoid::SumSquares => x().map(|x| x * x).sum(),
            Monoid::Norm2 => x().map(|x| x * x).sum::<f64>().sqrt(),
            Monoid::Count => x().filter(|x| *x > -1.0).count() as f64,
            Monoid::ArgMax => best(group, |x, y| x > y),
            Monoid::ArgMin => best(group, |x, y| x < y),
            Monoid::Custom(custom) => match custom.name() {
                "variance" => x().map(|x| (x - mean) * (x - mean)).sum::<f64>() / count,
                "spread" => largest - smallest,
                // As the graph computes weights, which are `f32`.
                "weighted" => {
                    let weight = |x: f64| f64::from((x * x) as f32);
                    x().map(|x| x * weight(x)).sum::<f64>() / x().map(weight).sum::<f64>()
                }
                "bits" => f64::from(x().map(|x| (x as f32 * 100.0) as i32).fold(0, |a, b| a | b)),
                other => unreachable!("`{other}` has no definition here"),
            },
        }
    };
    groups.iter().map(reduce).collect()
}

/// To a result over these axes, in the format that the monoid gives.
fn reduce(monoid: Monoid, axes: Axes, shape: Shape, a: &[f32]) -> Vec<f64> {
    let count = place(axes, shape, [0; 3]).1;
    let first = monoid.takes(0)[0];
    if monoid.gives(first) == ValueType::I32 {
        let mut r = vec![i32::MAX; count];
        let args = HostArgs::new().input("a", a).output("r", &mut r);
        run(POINTWISE, epilogue(monoid, I32.over(axes), shape).checked(), shape, args, Precision::F32).unwrap();
        return r.into_iter().map(f64::from).collect();
    }
    let mut r = vec![f32::NAN; count];
    let args = HostArgs::new().input("a", a).output("r", &mut r);
    run(POINTWISE, epilogue(monoid, F32.over(axes), shape).checked(), shape, args, Precision::F32).unwrap();
    r.into_iter().map(f64::from).collect()
}

fn every_monoid() -> impl Iterator<Item = Monoid> {
    Monoid::ALL.into_iter().chain(monoids::every())
}

/// The present value takes part as one more element, with its sign for a largest absolute value.
#[test]
fn every_monoid_accumulates_onto_what_is_there() {
    let mut numbers = Numbers(32);
    for (m, n, batch) in [(7, 9, 2), (130, 257, 1), (0, 4, 2)] {
        let shape = Shape::new(m, n, 0).batched(batch);
        let a: Vec<f32> = (0..m * n * batch).map(|_| numbers.between(0.999, 1.001) as f32).collect();
        for operand in results() {
            for monoid in Monoid::ALL.into_iter().filter(|monoid| monoid.accumulates()) {
                let epilogue = Epilogue::build(|e| e.reduce("r", e.acc(), monoid.accumulate(), operand)).unwrap();
                let there = -1.25f32;
                let fresh: Vec<f32> = reduce(monoid, operand.axes, shape, &a).into_iter().map(|x| x as f32).collect();
                let mut r = vec![there; fresh.len()];
                let args = HostArgs::new().input("a", &a).output("r", &mut r);
                let exact = oracle(POINTWISE, epilogue.checked(), shape, &args).unwrap();
                run(POINTWISE, epilogue.checked(), shape, args, Precision::F32).unwrap();
                for (i, (found, fresh)) in r.iter().zip(&fresh).enumerate() {
                    let expected = match monoid {
                        Monoid::Sum => fresh + there,
                        Monoid::Product => fresh * there,
                        Monoid::Max => fresh.max(there),
                        Monoid::Min => fresh.min(there),
                        Monoid::AbsMax => fresh.max(there.abs()),
                        Monoid::LogSumExp => (fresh.exp() + there.exp()).ln(),
                        other => unreachable!("{other:?} does not accumulate"),
                    };
                    let expected = if shape.is_empty() { there } else { expected };
                    let near = (found - expected).abs() <= 1e-5 * expected.abs() || found == &expected;
                    assert!(near, "{monoid:?} to {operand} of {shape}: {i} is {found}, not {expected}");
                    assert!(shape.is_empty() || exact.outputs[0].values[i] as f32 == *found);
                }
            }
        }
    }
}

#[test]
fn every_monoid_over_every_set_of_axes_is_its_definition() {
    let mut numbers = Numbers(31);
    let shapes = [(1, 1, 1), (7, 9, 2), (1, 300, 3), (129, 1, 1), (130, 257, 2)];
    for (m, n, batch) in shapes {
        let shape = Shape::new(m, n, 0).batched(batch);
        // Far enough below zero that a maximum which begins with the least number of a format would be seen.
        let a: Vec<f32> = (0..m * n * batch).map(|_| numbers.between(-1.25, -0.75) as f32).collect();
        for monoid in every_monoid() {
            for operand in results() {
                let expected = plain(monoid, operand.axes, shape, &a);
                let found = reduce(monoid, operand.axes, shape, &a);
                for (i, (found, expected)) in found.iter().zip(&expected).enumerate() {
                    let fits = (found - expected).abs() <= 1e-6 * expected.abs() + 1e-37;
                    assert!(fits, "{monoid:?} to {operand} of {shape} at {i} is {found}, not {expected}");
                }
            }
        }
    }
}

#[test]
fn over_nothing_is_the_identity() {
    for (m, n, batch) in [(0, 3, 2), (2, 0, 2), (2, 3, 0), (0, 0, 0)] {
        let shape = Shape::new(m, n, 0).batched(batch);
        for (monoid, identity) in [
            (Monoid::Sum, 0.0),
            (Monoid::Product, 1.0),
            (Monoid::Max, f32::NEG_INFINITY),
            (Monoid::Min, f32::INFINITY),
            (Monoid::AbsMax, 0.0),
            (Monoid::LogSumExp, f32::NEG_INFINITY),
            (Monoid::Mean, f32::NAN),
            (Monoid::Variance, f32::NAN),
            (Monoid::SumSquares, 0.0),
            (Monoid::Norm2, 0.0),
            (Monoid::Count, 0.0),
            (Monoid::ArgMax, -1.0),
            (Monoid::ArgMin, -1.0),
            (monoids::variance(), f32::NAN),
            (monoids::spread(), f32::NEG_INFINITY),
            (monoids::bits(), 0.0),
        ] {
            for operand in results() {
                let found = reduce(monoid, operand.axes, shape, &[]);
                let is = |x: f64| x == f64::from(identity) || x.is_nan() && identity.is_nan();
                assert!(found.iter().all(|x| is(*x)), "{monoid:?} to {operand} of {shape}: {found:?}");
                if monoid.gives(monoid.takes(0)[0]) != ValueType::F32 {
                    continue;
                }
                let epilogue = epilogue(monoid, operand, shape);
                let mut r = vec![0.0f32; found.len()];
                let args = HostArgs::new().input("a", &[] as &[f32]).output("r", &mut r);
                let exact = oracle(POINTWISE, epilogue.checked(), shape, &args).unwrap();
                assert_eq!(exact.outputs[0].values.len(), found.len());
                assert!(exact.outputs[0].values.iter().all(|x| is(*x)));
            }
        }
    }
}

#[test]
fn formats_have_their_own_least_values() {
    let shape = Shape::new(3, 2, 0);
    let a = [-60000.0f32, -70000.0, -61000.0, -65504.0, -60000.0, -1e30];
    let epilogue = Epilogue::build(|e| {
        e.reduce("f16", e.acc(), Monoid::Max, F16.over(N));
        e.reduce("i32", (e.row() + e.column()) * -1 - i32::MAX + 2, Monoid::Max, I32.over(N));
        e.reduce("wraps", e.row() + i32::MAX - 1, Monoid::Sum, I32.over(N));
    })
    .unwrap();
    let (mut half, mut max, mut sum) = ([postlude::half::f16::ZERO; 2], [0i32; 2], [0i32; 2]);
    let args = HostArgs::new().input("a", &a).output("f16", &mut half).output("i32", &mut max).output("wraps", &mut sum);
    run(POINTWISE, epilogue.checked(), shape, args, Precision::F32).unwrap();
    assert_eq!(half.map(f32::from), [-60000.0, -65504.0]);
    assert_eq!(max, [2 - i32::MAX, 1 - i32::MAX]);
    assert_eq!(
        sum,
        [0i32, 1, 2].into_iter().fold([0i32; 2], |s, i| s.map(|s| s.wrapping_add(i.wrapping_add(i32::MAX).wrapping_sub(1))))
    );
}

#[test]
fn a_sum_of_products_rounds_no_product() {
    // In `f32` the square of 1 + 2^-12 loses its last bit, which the difference is made of.
    let x = 1.0 + 2f32.powi(-12);
    let a = [x, 1.0];
    let epilogue = Epilogue::build(|e| {
        e.reduce("squares", e.acc() * e.load("w", F32), Monoid::Sum, F32.over(M));
        e.store("rounded", e.acc() * e.load("w", F32), F32);
    })
    .unwrap();
    let (w, mut squares, mut rounded) = ([x, -(1.0 + 2f32.powi(-11))], [0.0f32], [0.0f32; 2]);
    let args = HostArgs::new().input("a", &a).input("w", &w).output("squares", &mut squares).output("rounded", &mut rounded);
    run(POINTWISE, epilogue.checked(), Shape::new(1, 2, 0), args, Precision::F32).unwrap();
    assert_eq!(rounded[0] + rounded[1], 0.0);
    assert_eq!(squares[0], 2f32.powi(-24));
}

#[test]
fn a_reduction_is_of_the_product_and_the_same_twice() {
    let shape = Shape::new(300, 520, 40).batched(2);
    let mut numbers = Numbers(7);
    let mut fill = |count: usize| -> Vec<f32> { (0..count).map(|_| numbers.between(-1.0, 1.0) as f32).collect() };
    let (a, b) = (fill(300 * 40 * 2), fill(40 * 520 * 2));
    let epilogue = Epilogue::build(|e| {
        e.store("d", e.acc().tanh(), F32);
        e.reduce("sums", e.acc().tanh(), Monoid::Sum, F32.over(N).batched());
    })
    .unwrap();
    let once = || {
        let (mut d, mut sums) = (vec![0.0f32; 300 * 520 * 2], vec![0.0f32; 520 * 2]);
        let args = HostArgs::new().input("a", &a).input("b", &b).output("d", &mut d).output("sums", &mut sums);
        run(Operation::product(F32, TT), epilogue.checked(), shape, args, Precision::F32).unwrap();
        (d, sums)
    };
    let (d, sums) = once();
    for l in 0..2 {
        for j in 0..520 {
            let expected: f64 = (0..300).map(|i| f64::from(d[(l * 300 + i) * 520 + j])).sum();
            assert!((f64::from(sums[l * 520 + j]) - expected).abs() < 1e-5);
        }
    }
    let again = once().1;
    assert!(sums.iter().zip(&again).all(|(x, y)| x.to_bits() == y.to_bits()));
}

#[test]
fn bits_lie_where_their_format_says() {
    for (m, n, batch) in [(3usize, 5usize, 2usize), (1, 1, 1), (2, 8, 1), (130, 300, 2), (5, 129, 1)] {
        for dtype in [Bits8, Bits128] {
            for column_major in [false, true] {
                let operand = if column_major { Operand::from(dtype).column_major() } else { dtype.into() };
                let epilogue = Epilogue::build(|e| e.store("mask", e.acc().gt(0.0), operand)).unwrap();
                let mut numbers = Numbers((m * n) as u64);
                let a: Vec<f32> = (0..m * n * batch).map(|_| numbers.between(-1.0, 1.0) as f32).collect();
                let (outer, inner) = if column_major { (n, m) } else { (m, n) };
                // One run longer than it has to be, and entries one run apart.
                let ld = (inner + 1).next_multiple_of(dtype.run()) + dtype.run();
                let stride = outer * ld + dtype.run();
                let mut bytes = vec![CANARY; ((batch - 1) * stride + (outer - 1) * ld + inner).div_ceil(8) + 2];
                let mask = bytes.as_mut_slice().ld(ld).batch_stride(stride);
                let args = HostArgs::new().input("a", &a).output("mask", mask);
                run(POINTWISE, epilogue.checked(), Shape::new(m, n, 0).batched(batch), args, Precision::F32).unwrap();
                let mut expected = vec![CANARY; bytes.len()];
                for l in 0..batch {
                    for (row, column) in (0..m).flat_map(|i| (0..n).map(move |j| (i, j))) {
                        let (run, at) = if column_major { (column, row) } else { (row, column) };
                        let bit = l * stride + run * ld + at;
                        if at % 8 == 0 {
                            expected[bit / 8] = 0;
                        }
                        if a[(l * m + row) * n + column] > 0.0 {
                            expected[bit / 8] |= 1 << (bit % 8);
                        }
                    }
                }
                assert!(bytes == expected, "{operand} of {m} x {n} x {batch}");
                // And read back, where it lies.
                let back = Epilogue::build(|e| e.store("d", e.load("mask", operand).cast(F32), F32)).unwrap();
                let mut d = vec![7.0f32; a.len()];
                let args = HostArgs::new().input("a", &a).input("mask", bytes.as_slice().ld(ld).batch_stride(stride));
                let shape = Shape::new(m, n, 0).batched(batch);
                run(POINTWISE, back.checked(), shape, args.output("d", &mut d), Precision::F32).unwrap();
                assert!(d.iter().zip(&a).all(|(d, a)| *d == f32::from(u8::from(*a > 0.0))));
            }
        }
    }
}

#[test]
fn a_mask_that_does_not_fit_is_refused() {
    let epilogue = Epilogue::build(|e| {
        e.store("m8", e.acc().gt(0.0), Bits8);
        e.store("m128", e.acc().gt(0.0), Bits128);
    })
    .unwrap();
    let fault = |m8: (usize, usize), m128: (usize, usize)| {
        let (mut bytes8, mut bytes128) = (vec![0u8; m8.0], vec![0u8; m128.0]);
        let (first, second) = (bytes8.as_mut_slice().ld(m8.1), bytes128.as_mut_slice().ld(m128.1));
        let args = HostArgs::new().input("a", &[0.0f32; 30]).output("m8", first).output("m128", second);
        let result = run(POINTWISE, epilogue.checked(), Shape::new(3, 10, 0), args, Precision::F32);
        result.map_err(|e| e.0.into_iter().map(|e| (e.name, e.fault)).collect::<Vec<_>>())
    };
    assert_eq!(fault((6, 16), (34, 128)), Ok(()));
    let multiple = |dtype, got| ArgumentFault::Multiple { what: "leading dimension", dtype, got };
    assert_eq!(fault((9, 20), (34, 136)), Err(vec![("m8".into(), multiple(Bits8, 20)), ("m128".into(), multiple(Bits128, 136))]));
    let short = fault((5, 16), (34, 128)).unwrap_err();
    assert!(matches!(short[..], [(ref name, ArgumentFault::TooShort { needs: 42, got: 40, .. })] if name == "m8"), "{short:?}");
    let text = multiple(Bits128, 136);
    let text = postlude::args::ArgumentErrors(vec![postlude::args::ArgumentError { name: "m".into(), fault: text }]).to_string();
    assert_eq!(text, "argument `m`: leading dimension 136: for bits128 it counts bits, and has to be a multiple of 128");
}

#[test]
fn the_magnitude_of_a_sum_is_that_of_its_terms() {
    let epilogue = Epilogue::build(|e| {
        e.reduce("max", e.acc(), Monoid::Max, F32.over(N));
        e.reduce("sums", e.acc() * e.load("w", F32.over(M)), Monoid::Sum, F32.over(N));
    })
    .unwrap();
    let (mut max, mut sums) = ([0.0f32; 2], [0.0f32; 2]);
    let args = HostArgs::new().input("a", &[1.0f32, -2.0, 3.0, 4.0]).input("w", &[-1.0f32, 0.5]);
    let args = args.output("max", &mut max).output("sums", &mut sums);
    let exact = oracle(POINTWISE, epilogue.checked(), Shape::new(2, 2, 0), &args).unwrap();
    assert_eq!((exact.outputs[0].values.as_slice(), exact.outputs[1].values.as_slice()), (&[3.0, 4.0][..], &[0.5, 4.0][..]));
    assert_eq!(exact.sums.iter().map(|s| (&*s.name, s.values.clone())).collect::<Vec<_>>(), [("sums", vec![2.5, 4.0])]);
    // A sum onto what is there counts that with its magnitude, too.
    let onto = Epilogue::build(|e| e.reduce("sums", e.acc(), Monoid::Sum.accumulate(), F32.over(N))).unwrap();
    let (a, mut sums) = ([1.0f32, -2.0, 3.0, 4.0], [-8.0f32, 16.0]);
    let args = HostArgs::new().input("a", &a).output("sums", &mut sums);
    let exact = oracle(POINTWISE, onto.checked(), Shape::new(2, 2, 0), &args).unwrap();
    assert_eq!((&*exact.outputs[0].values, &*exact.sums[0].values), (&[-4.0, 18.0][..], &[12.0, 22.0][..]));
}

/// A number that a row or a column has counts once for each of its elements. Numbers beyond the table do not count.
#[test]
fn counts_of_what_rows_and_columns_name() {
    let epilogue = Epilogue::build(|e| {
        e.bincount("rows", e.row());
        e.bincount("columns", e.column());
        e.bincount("all", e.scalar("which", I32));
    })
    .unwrap();
    let (mut rows, mut columns, mut all) = ([0i32; 2], [1i32; 6], [0i32; 3]);
    let args = HostArgs::new().input("a", &[0.0f32; 15]).scalar("which", 1);
    let args = args.output("rows", &mut rows).output("columns", &mut columns).output("all", &mut all);
    postlude::Gemm::pointwise(F32, Default::default(), &epilogue).reference(Shape::matrix(3, 5), args).unwrap();
    assert_eq!((rows, columns, all), ([5, 5], [4, 4, 4, 4, 4, 1], [0, 15, 0]));
}
