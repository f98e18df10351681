//! Passes keep the meaning.

use crate::graphs::{numbers, tensor};
use postlude::network::{Attributes, Network, Tensor};
use postlude::prelude::*;

#[test]
fn what_is_known_is_computed_once() {
    let network = Network::build(|g| {
        let x = g.input("x", F32, (2, 3));
        let shape = g.apply("Shape", &[x], Attributes::new());
        let ones = g.apply("ConstantOfShape", &[shape], Attributes::new().with("value", Tensor::of(&[1.0f32], &[1]).unwrap()));
        let dead = (x + ones).exp();
        let _ = dead.relu();
        g.output("y", (x * (ones + ones)) - (x * (ones + ones)).relu());
    })
    .unwrap();
    let (simple, did) = network.simplified();
    assert_eq!((did.before, did.after), (11, 3), "{did:?}\n{simple}");
    let x = [("x", tensor(F32, &[2, 3], 1))];
    assert_eq!(network.run(&x).unwrap(), simple.run(&x).unwrap());
}

#[test]
fn batch_norms_fold_into_weights() {
    let network = Network::build(|g| {
        let x = g.input("x", F32, (2, 3, 6, 6));
        let w = g.constant("w", tensor(F32, &[4, 3, 3, 3], 2));
        let b = g.constant("b", tensor(F32, &[4], 3));
        let y = g.apply("Conv", &[x, w, b], Attributes::new().with("pads", vec![1, 1, 1, 1]));
        let [scale, shift, mean] = [4, 5, 6].map(|seed| g.constant(&format!("c{seed}"), tensor(F32, &[4], seed)));
        let variance: Vec<f64> = numbers(4, 7).iter().map(|x| x.abs() + 0.5).collect();
        let variance = g.constant("variance", Tensor::of_numbers(F32, &[4], &variance).unwrap());
        let normed = g.apply("BatchNormalization", &[y, scale, shift, mean, variance], Attributes::new());
        g.output("y", normed.relu());
    })
    .unwrap();
    let (simple, did) = network.simplified();
    assert_eq!((did.batch_norms, did.after), (1, 2), "{simple}");
    let x = [("x", tensor(F32, &[2, 3, 6, 6], 8))];
    let (exact, folded) = (network.run(&x).unwrap(), simple.run(&x).unwrap());
    let near = |(a, b): (&f64, &f64)| (a - b).abs() < 1e-5;
    assert!(exact[0].1.numbers().iter().zip(&folded[0].1.numbers()).all(near));
}

/// A norm behind a `Gemm` goes over its columns. Behind a `MatMul` it may go over another axis, and stays.
#[test]
fn batch_norms_fold_into_columns_alone() {
    for (x, w, transposed, folds) in [
        (&[3, 4][..], &[4, 5][..], None, 0),
        (&[3, 4], &[4, 5], Some(0i64), 1),
        (&[3, 4], &[5, 4], Some(1), 1),
        // As many rows as columns, and as many as K.
        (&[2, 5, 4], &[4, 5], None, 0),
        (&[2, 4, 4], &[2, 4, 5], None, 0),
        (&[2, 5, 4], &[4], None, 0),
    ] {
        let of = if w.len() == 1 || x.len() > 2 { x[1] } else { 5 };
        let network = Network::build(|g| {
            let w = g.constant("w", tensor(F32, w, 2));
            let product = match (g.input("x", F32, x), transposed) {
                (x, Some(transposed)) => g.apply("Gemm", &[x, w], Attributes::new().with("transB", transposed)),
                (x, None) => x.matmul(w),
            };
            let [scale, shift, mean] = [4, 5, 6].map(|seed| g.constant(&format!("c{seed}"), tensor(F32, &[of], seed)));
            let variance: Vec<f64> = numbers(of, 7).iter().map(|x| x.abs() + 0.5).collect();
            let variance = g.constant("variance", Tensor::of_numbers(F32, &[of], &variance).unwrap());
            g.output("y", g.apply("BatchNormalization", &[product, scale, shift, mean, variance], Attributes::new()));
        })
        .unwrap();
        let (simple, did) = network.simplified();
        assert_eq!(did.batch_norms, folds, "{x:?} times {w:?}\n{simple}");
        let input = [("x", tensor(F32, x, 8))];
        let (exact, folded) = (network.run(&input).unwrap(), simple.run(&input).unwrap());
        let near = |(a, b): (&f64, &f64)| (a - b).abs() < 1e-5;
        assert!(exact[0].1.numbers().iter().zip(&folded[0].1.numbers()).all(near), "{x:?} times {w:?}");
    }
}

#[test]
fn parallel_products_become_one() {
    let network = Network::build(|g| {
        let x = g.input("x", F32, (2, 3, 4));
        let linear = |name: &str, to: usize, seed: u64| {
            let w = g.constant(&format!("{name}.w"), tensor(F32, &[4, to], seed));
            x.matmul(w) + g.constant(&format!("{name}.b"), tensor(F32, &[to], seed + 1))
        };
        let (q, k, gate) = (linear("q", 4, 1), linear("k", 6, 3), linear("gate", 6, 5));
        g.output("heads", q.reshape(&[2, 3, 2, 2]).transpose(&[0, 2, 1, 3]));
        // A gate stands in the epilogue of its product.
        g.output("gated", k.transpose(&[0, 2, 1]).matmul(gate.sigmoid()));
    })
    .unwrap();
    let (simple, did) = network.simplified();
    assert_eq!(did.merged, 2);
    let inputs = [("x", tensor(F32, &[2, 3, 4], 9))];
    assert_eq!(network.run(&inputs).unwrap(), simple.run(&inputs).unwrap());
}

/// Rows of vectors are matrices, whose products merge like those of more axes.
#[test]
fn parallel_products_of_a_matrix_become_one() {
    let network = Network::build(|g| {
        let x = g.input("x", F32, (3, 4));
        for (name, columns) in [("q", 4), ("k", 6)] {
            let product = x.matmul(g.constant(&format!("{name}.w"), tensor(F32, &[4, columns], columns as u64)));
            g.output(name, product.reshape(&[columns as i64, 3]));
        }
    })
    .unwrap();
    let (simple, did) = network.simplified();
    assert_eq!(did.merged, 2);
    let inputs = [("x", tensor(F32, &[3, 4], 9))];
    assert_eq!(network.run(&inputs).unwrap(), simple.run(&inputs).unwrap());
}

/// No kernel multiplies a vector, so its products stay what they are.
#[test]
fn parallel_products_of_a_vector_stay() {
    let network = Network::build(|g| {
        let x = g.input("x", F32, (4,));
        for (name, columns) in [("q", 4), ("k", 6)] {
            let product = x.matmul(g.constant(&format!("{name}.w"), tensor(F32, &[4, columns], columns as u64)));
            g.output(name, product.reshape(&[2, columns as i64 / 2]));
        }
    })
    .unwrap();
    assert_eq!(network.simplified().1.merged, 0);
}
