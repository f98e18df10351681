//! The laws of every row of the table.

use super::*;

fn samples(value: ValueType) -> Vec<f64> {
    match value {
        F32 | F64 => vec![f64::NEG_INFINITY, -70000.0, -2.5, -0.0, 0.0, 0.25, 3.0, 88.0, f64::INFINITY, f64::NAN],
        I32 => [i32::MIN, i32::MIN + 1, -7, -1, 0, 1, 9, i32::MAX].map(f64::from).to_vec(),
        Bool => vec![0.0, 1.0],
    }
}

fn same(a: &[f64], b: &[f64]) -> bool {
    a.iter().zip(b).all(|(a, b)| a == b || a.is_nan() && b.is_nan())
}

#[test]
fn every_row_is_a_monoid_in_every_type_it_takes() {
    for monoid in Monoid::ALL {
        let row = monoid.row().unwrap();
        assert_eq!(Monoid::from_name(monoid.name()), Some(monoid));
        assert_eq!(serde_json::to_string(&monoid).unwrap(), format!("\"{}\"", monoid.name()));
        assert!(row.doc.trim().len() > 8);
        assert_eq!(monoid.arity(), 1 + usize::from(row.indexed));
        for &value in row.takes {
            let unit = monoid.identity(value);
            let joined = |a: &[f64], b: &[f64]| {
                let mut state = a.to_vec();
                monoid.join(value, &mut state, b);
                state
            };
            let elements = samples(value).into_iter().enumerate().map(|(i, x)| {
                let mut state = unit.clone();
                monoid.take(value, &mut state, &[x, i as f64]);
                state
            });
            let elements: Vec<Vec<f64>> = elements.collect();
            for x in &elements {
                assert_eq!(x.len(), monoid.numbers());
                assert!(same(&joined(&unit, x), x), "{monoid:?} of its identity {unit:?} and {x:?}");
                assert!(same(&joined(x, &unit), x), "{monoid:?} of {x:?} and its identity {unit:?}");
                for y in &elements {
                    assert!(same(&joined(x, y), &joined(y, x)), "{monoid:?} of {x:?}, {y:?}");
                    for z in &elements {
                        let (left, right) = (joined(&joined(x, y), z), joined(x, &joined(y, z)));
                        let near = left.iter().zip(&right).all(|(l, r)| (l - r).abs() <= 1e-9 * l.abs().max(1.0));
                        assert!(near || same(&left, &right), "{monoid:?} of {x:?}, {y:?}, {z:?}");
                    }
                }
            }
        }
    }
}

fn reduce(monoid: Monoid, value: ValueType, elements: &[[f64; 2]]) -> f64 {
    let mut state = monoid.identity(value);
    elements.iter().for_each(|x| monoid.take(value, &mut state, x));
    monoid.result(&state, elements.len() as f64)
}

#[test]
fn edges_are_defined() {
    let pair = |monoid, value, a, b| reduce(monoid, value, &[[a, 0.0], [b, 1.0]]);
    assert_eq!(reduce(Monoid::AbsMax, I32, &[[f64::from(i32::MIN), 0.0]]), f64::from(i32::MAX));
    assert!(reduce(Monoid::Sum, F32, &[]).is_sign_positive(), "the sum of no elements is 0, not -0");
    assert_eq!(pair(Monoid::Sum, I32, f64::from(i32::MAX), 1.0), f64::from(i32::MIN));
    assert_eq!(pair(Monoid::Product, I32, f64::from(i32::MAX), 2.0), -2.0);
    assert_eq!(pair(Monoid::Count, Bool, 1.0, 1.0), 2.0);
    let nan = f64::NAN;
    assert!(pair(Monoid::Max, F32, nan, 1.0).is_nan() && pair(Monoid::Min, F32, 1.0, nan).is_nan());
    for (a, b) in [(0.0, -0.0), (-0.0, 0.0)] {
        let signs = [Monoid::Max, Monoid::Min].map(|monoid| pair(monoid, F32, a, b).is_sign_negative());
        assert_eq!(signs, [false, true], "{a:?} and {b:?}");
    }
    let lse = |a, b| pair(Monoid::LogSumExp, F32, a, b);
    assert_eq!(lse(f64::NEG_INFINITY, f64::NEG_INFINITY), f64::NEG_INFINITY);
    assert_eq!(lse(f64::INFINITY, f64::INFINITY), f64::INFINITY);
    assert!((lse(1000.0, 1000.0) - 1000.0 - 2f64.ln()).abs() < 1e-9);
    assert!(lse(nan, 0.0).is_nan() && lse(nan, f64::NEG_INFINITY).is_nan());
}

/// The result is the same in every order of the elements.
#[test]
fn an_index_is_that_of_the_first_of_the_best() {
    let (inf, nan) = (f64::INFINITY, f64::NAN);
    for (monoid, values, expected) in [
        (Monoid::ArgMax, vec![1.0, 3.0, 2.0, 3.0], 1.0),
        (Monoid::ArgMin, vec![1.0, 3.0, 1.0, 3.0], 0.0),
        (Monoid::ArgMax, vec![-0.0, 0.0, -1.0], 0.0),
        (Monoid::ArgMin, vec![0.0, -0.0, 1.0], 0.0),
        (Monoid::ArgMax, vec![1.0, nan, inf, nan], 1.0),
        (Monoid::ArgMin, vec![-inf, 1.0, nan, nan], 2.0),
        (Monoid::ArgMax, vec![-inf, -inf], 0.0),
        (Monoid::ArgMin, vec![inf, inf], 0.0),
        (Monoid::ArgMax, vec![], -1.0),
        (Monoid::ArgMin, vec![], -1.0),
    ] {
        let mut elements: Vec<[f64; 2]> = values.iter().enumerate().map(|(i, x)| [*x, i as f64]).collect();
        for _ in 0..elements.len().max(1) {
            assert_eq!(reduce(monoid, F32, &elements), expected, "{monoid:?} of {values:?}");
            let whole = values.iter().all(|x| x.is_finite());
            assert!(!whole || reduce(monoid, I32, &elements) == expected, "{monoid:?} of {values:?} as integers");
            if !elements.is_empty() {
                elements.rotate_left(1);
            }
        }
    }
}

/// These may meet an element in two tiles.
#[test]
fn some_take_an_element_twice_as_once() {
    let twice: Vec<Monoid> = Monoid::ALL.into_iter().filter(|monoid| monoid.is_idempotent()).collect();
    assert_eq!(twice, [Monoid::Max, Monoid::Min, Monoid::AbsMax, Monoid::ArgMax, Monoid::ArgMin]);
}

/// A sum of these can be distributed over what is summed.
#[test]
fn sums_and_means_are_linear() {
    let linear: Vec<Monoid> = Monoid::ALL.into_iter().filter(|monoid| monoid.is_linear()).collect();
    assert_eq!(linear, [Monoid::Sum, Monoid::Mean]);
}

/// However elements are grouped, and however far from zero they lie.
#[test]
fn a_variance_is_its_definition() {
    let elements: Vec<f64> = (0..97).map(|i| 1e6 + f64::from(i * i % 31)).collect();
    let of = |elements: &[f64], parts: usize| {
        let mut all = Monoid::Variance.identity(F64);
        for part in elements.chunks(elements.len().div_ceil(parts).max(1)) {
            let mut state = Monoid::Variance.identity(F64);
            part.iter().for_each(|x| Monoid::Variance.take(F64, &mut state, &[*x]));
            Monoid::Variance.join(F64, &mut all, &state);
        }
        Monoid::Variance.result(&all, elements.len() as f64)
    };
    let mean = elements.iter().sum::<f64>() / 97.0;
    let exact = elements.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / 97.0;
    for parts in [1, 2, 5, 97, 200] {
        assert!((of(&elements, parts) - exact).abs() < 1e-8 * exact, "{parts} parts");
    }
    assert_eq!((of(&[3.0], 1), of(&[0.75; 8], 4)), (0.0, 0.0));
    assert!(of(&[], 1).is_nan() && of(&[1.0, f64::NAN, 2.0], 2).is_nan() && of(&[1.0, f64::INFINITY], 1).is_nan());
}

/// Such a reduction over an axis of one element computes nothing.
#[test]
fn some_keep_one_number_as_it_is() {
    for monoid in [Monoid::Sum, Monoid::Max, Monoid::Min, Monoid::Mean] {
        assert!(monoid.keeps_one(), "{monoid:?}");
    }
    for monoid in [Monoid::AbsMax, Monoid::SumSquares, Monoid::Norm2, Monoid::Count, Monoid::ArgMax] {
        assert!(!monoid.keeps_one(), "{monoid:?}");
    }
}
