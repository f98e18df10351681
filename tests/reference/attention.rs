//! Attention, against plain loops, and what it refuses.

use crate::support::Numbers;
use postlude::args::{ArgumentFault, Misfit};
use postlude::prelude::*;
use postlude::reference::{Precision, run};
use postlude::{Attention, Operation};

/// Row-major matrices of a batch of heads, as numbers that 16 bits hold.
fn matrix(seed: u64, len: usize) -> Vec<f32> {
    let mut numbers = Numbers(seed);
    (0..len).map(|_| half::f16::from_f64(numbers.between(-2.0, 2.0)).to_f32()).collect()
}

fn plain() -> Epilogue {
    Epilogue::build(|e| e.store("d", e.acc() * 2.0 + 1.0, F32)).unwrap()
}

/// By the book: the scores of all keys that a query sees, their softmax, and the mean of the values.
fn direct(of: Attention, sequences: usize, Shape { m, n, k, batch }: Shape, [q, keys, v]: [&[f32]; 3]) -> Vec<f64> {
    let (width, mut out) = (of.width(), Vec::new());
    let (queries, length) = (m / sequences, k / sequences);
    for head in 0..batch {
        for row in 0..m {
            let (sequence, position) = (row / queries, row % queries);
            let seen = if of.is_causal() { length.min(position + 1) } else { length };
            let key = |i: usize| head * k + sequence * length + i;
            let score = |i: usize| -> f64 {
                let product = |x| f64::from(q[(head * m + row) * width + x]) * f64::from(keys[key(i) * width + x]);
                (0..width).map(product).sum::<f64>() * f64::from(of.scale())
            };
            let powers: Vec<f64> = (0..seen).map(|i| score(i).exp()).collect();
            let sum: f64 = powers.iter().sum();
            for column in 0..n {
                let mean: f64 = powers.iter().enumerate().map(|(i, p)| p / sum * f64::from(v[key(i) * n + column])).sum();
                out.push(2.0 * if seen == 0 { 0.0 } else { mean } + 1.0);
            }
        }
    }
    out
}

#[test]
fn it_is_what_plain_loops_say() {
    let cases = [
        (Attention::new(4), 1, Shape::new(5, 3, 7).batched(2)),
        (Attention::new(8).causal(), 1, Shape::new(70, 5, 70)),
        (Attention::new(3).scaled(2.0), 3, Shape::new(3 * 40, 270, 3 * 33)),
        (Attention::new(16).causal(), 2, Shape::new(2 * 9, 4, 2 * 600).batched(3)),
        (Attention::new(2), 1, Shape::new(4, 3, 0)),
        (Attention::new(2), 4, Shape::new(0, 3, 8)),
        (Attention::new(2), 5, Shape::new(5 * 2, 3, 5 * 3)),
        (Attention::new(2), 3, Shape::new(3 * 400, 3, 3 * 5)),
    ];
    for (i, (of, sequences, shape)) in cases.into_iter().enumerate() {
        let Shape { m, n, k, batch } = shape;
        let [q, keys, v] = [m * of.width(), k * of.width(), k * n].map(|len| matrix(7 + i as u64, len * batch));
        let mut d = vec![f32::NAN; m * n * batch];
        let args = HostArgs::new().input("a", &q).input("keys", &keys).input("b", &v).output("d", &mut d);
        let operation = Operation::Attention { dtype: F32, attention: of.sequences(sequences) };
        run(operation, plain().checked(), shape, args, Precision::F32).unwrap();
        let expected = direct(of, sequences, shape, [&q, &keys, &v]);
        assert_eq!(d.len(), expected.len());
        for (x, y) in d.iter().zip(&expected) {
            assert!((f64::from(*x) - y).abs() <= 1e-5 * (1.0 + y.abs()), "{of} {shape}: {x} and {y}");
        }
    }
}

/// What one sequence holds reaches no other one, and no query that does not see it.
#[test]
fn sequences_are_apart() {
    let of = Attention::new(2).sequences(2);
    let (q, keys) = (matrix(1, 8), matrix(2, 8));
    let v = [1.0f32, 2.0, f32::NAN, f32::INFINITY];
    let mut d = [0.0f32; 4];
    let args = HostArgs::new().input("a", &q).input("keys", &keys).input("b", &v).output("d", &mut d);
    Gemm::attention(F32, of, &plain()).reference(Shape::new(4, 1, 4), args).unwrap();
    assert!(d[0].is_finite() && d[1].is_finite() && d[2].is_nan() && d[3].is_nan(), "{d:?}");
}

#[test]
fn what_does_not_fit_is_named() {
    let refused = |dtype, of: Attention, shape: Shape, epilogue: &Epilogue| {
        let (a, mut d) = ([0u8; 256], [0u8; 256]);
        let bytes = |dtype| postlude::args::Tensor::of_bytes(dtype, &a);
        let args = HostArgs::new().input("a", bytes(dtype)).input("keys", bytes(dtype)).input("b", bytes(dtype));
        let args = args.output("d", postlude::args::Tensor::of_bytes_mut(F32, &mut d));
        let errors = Gemm::attention(dtype, of, epilogue).reference(shape, args).unwrap_err();
        match &errors.0[0].fault {
            ArgumentFault::Misfit(misfit) => (*misfit, errors.to_string()),
            other => panic!("{other:?}"),
        }
    };
    let (of, shape) = (Attention::new(2), Shape::new(4, 2, 4));
    let (misfit, text) = refused(F32, of.sequences(3), shape, &plain());
    assert_eq!(misfit, Misfit::Sequences { attention: of.sequences(3), got: shape });
    assert!(text.contains("whole sequences") && text.contains("3 sequences"), "{text}");
    for (of, rule) in [
        (of.sequences(0), "at least one sequence"),
        (Attention::new(0), "at least one element"),
        (of.scaled(0.0), "positive and finite"),
        (of.scaled(f32::NAN), "positive and finite"),
        (of.scaled(f32::INFINITY), "positive and finite"),
    ] {
        let (_, text) = refused(F32, of, shape, &plain());
        assert!(text.contains(rule), "{text}");
    }
    assert_eq!(refused(F64, of, shape, &plain()).0, Misfit::Attended(F64));
    assert_eq!(refused(I8, of, shape, &plain()).0, Misfit::Attended(I8));
    let named = Epilogue::build(|e| e.store("d", e.acc() + e.load("keys", F32.over(N)), F32)).unwrap();
    assert_eq!(refused(F32, of, shape, &named).0, Misfit::ScaleName { name: "keys" });
    let summed = Epilogue::build(|e| {
        e.store("d", e.acc(), F32);
        e.reduce("sums", e.b(), Monoid::Sum, F32.over(N));
    });
    assert!(matches!(refused(F32, of, shape, &summed.unwrap()).0, Misfit::AttentionSum { .. }));
}
