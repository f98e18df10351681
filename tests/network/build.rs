//! Building: listings, and errors that point.

use postlude::network::{Attributes, CustomOperator, Format, Network, RunError, Tensor, Type, Value};
use postlude::prelude::*;

#[test]
fn a_listing_shows_types() {
    let network = Network::build(|g| {
        let x = g.input("x", F16, ("batch", 8));
        let w = g.constant("w", Tensor::of_numbers(F16, &[8, 4], &[0.5; 32]).unwrap());
        g.output("y", x.matmul(w).relu());
    })
    .unwrap();
    let expected = "input `x`: f16[batch,8]\nconstant `w`: f16[8,4]\n`v0`: f16[batch,4] = `MatMul` `x`, `w`\n\
        `v1`: f16[batch,4] = `Relu` `v0`\noutput `y` = `v1`\n";
    assert_eq!(network.to_string().replace('`', ""), expected.replace('`', ""));
    assert!(network.to_dot().contains("MatMul"));
}

#[test]
fn every_error_is_found_at_once() {
    let faults = Network::build(|g| {
        let x = g.input("x", F32, (2, 3));
        let y = g.input("y", F16, (3, 4));
        let z = g.input("z", F32, (5,));
        g.output("a", x.matmul(y));
        g.output("b", x + z);
        g.output("c", g.apply("Softmx", &[x], Attributes::new()));
        g.output("d", g.apply("Softmax", &[x], Attributes::new().with("axes", 1i64)));
        g.output("d", g.apply("Elu", &[x], Attributes::new().with("alpha", 1i64)));
        g.output("e", g.apply("Gemm", &[x], Attributes::new()));
        g.output("f", g.apply("Not", &[x], Attributes::new()));
    })
    .unwrap_err();
    let codes: Vec<&str> = faults.iter().map(|fault| fault.code()).collect();
    for code in ["N0204", "N0205", "N0201", "N0203", "N0103", "N0202"] {
        assert!(codes.contains(&code), "{code} is not among {codes:?}:\n{faults}");
    }
    assert_eq!(codes.len(), 8, "{faults}");
    let text = faults.to_string();
    assert!(text.contains("did you mean `Softmax`?") && text.contains("tests/network/build.rs:"), "{text}");
    assert!(text.ends_with("8 errors in the network"), "{text}");
}

#[test]
fn inputs_are_checked_by_name_and_type() {
    let network = Network::build(|g| {
        let (x, y) = (g.input("x", F32, ("n", 2)), g.input("y", F32, ("n", 2)));
        g.output("z", x + y);
    })
    .unwrap();
    let tensor = |rows: usize| Tensor::of_numbers(F32, &[rows, 2], &vec![1.0; rows * 2]).unwrap();
    assert!(matches!(network.run(&[("x", tensor(1))]), Err(RunError::Missing { .. })));
    assert!(matches!(network.run(&[("x", tensor(1)), ("q", tensor(1))]), Err(RunError::Unknown { .. })));
    assert!(matches!(network.run(&[("x", tensor(1)), ("y", tensor(3))]), Err(RunError::Symbol { .. })));
    let wrong = Tensor::of_numbers(F16, &[1, 2], &[1.0; 2]).unwrap();
    assert!(matches!(network.run(&[("x", tensor(1)), ("y", wrong)]), Err(RunError::Type { .. })));
    assert_eq!(network.run(&[("x", tensor(3)), ("y", tensor(3))]).unwrap()[0].1.numbers(), [2.0; 6]);
}

#[test]
fn two_edges_join_two_nodes() {
    let network = Network::build(|g| {
        let x = g.input("x", F32, (4,));
        let parts = g.apply_all("Split", &[Some(x)], Attributes::new(), 2);
        g.output("y", parts[0] - parts[1]);
    })
    .unwrap();
    let x = Tensor::of(&[5.0f32, 6.0, 1.0, 3.0], &[4]).unwrap();
    assert_eq!(network.run(&[("x", x)]).unwrap()[0].1.numbers(), [4.0, 3.0]);
}

#[test]
fn a_custom_operator_reports_its_fault() {
    let odd = CustomOperator::new(
        "Odd",
        1,
        |x| Ok(vec![Type::new(x[0].format, (1,))]),
        |_| Err(postlude::network::Fault::Value("no".to_owned())),
    );
    let network = Network::build(|g| {
        let x = g.input("x", F32, (1,));
        g.output("y", g.custom(&odd, [x])[0]);
    })
    .unwrap();
    let error = network.run(&[("x", Tensor::of(&[1.0f32], &[1]).unwrap())]).unwrap_err();
    assert!(error.to_string().starts_with("node n0 (Odd): no"), "{error}");
}

/// A network's JSON form, and so a comparison with what is read, is worth what `==` is worth.
#[test]
fn networks_of_one_node_are_equal_if_the_nodes_are() {
    type Body = for<'g> fn(Value<'g>, Value<'g>) -> Value<'g>;
    let bodies: [Body; 6] = [|x, y| x - y, |x, y| y - x, |x, y| x + y, |x, _| x - x, |x, _| x.softmax(0), |x, _| x.softmax(1)];
    let of = |body: Body| Network::build(|g| g.output("z", body(g.input("x", F32, (2, 3)), g.input("y", F32, (2, 3))))).unwrap();
    for (i, one) in bodies.into_iter().enumerate() {
        for (j, other) in bodies.into_iter().enumerate() {
            assert_eq!(of(one) == of(other), i == j, "{}{}", of(one), of(other));
        }
    }
}

/// Integers that no kernel multiplies are multiplied exactly.
#[test]
fn products_of_long_integers_are_exact() {
    let of = |shape: &[usize], list: &[i128]| Tensor::of_integers(Format::I64, shape, list).unwrap();
    let network = Network::build(|g| {
        g.output("y", g.input("a", Format::I64, ("m", "k")).matmul(g.input("b", Format::I64, ("k", "n"))));
    });
    let network = network.unwrap();
    let product = |a: Tensor, b: Tensor| network.run(&[("a", a), ("b", b)]).unwrap()[0].1.clone();
    let large = 1i128 << 40;
    let (a, b) = (of(&[2, 3], &[1, -2, large, 4, 5, 6]), of(&[3, 4], &[7, 0, 1, -1, 8, 9, 0, 3, -5, 11, 2, large]));
    // Each sum by itself, 64 bits of it.
    let mut expected = Vec::new();
    for row in 0..2 {
        for column in 0..4 {
            let sum: i128 = (0..3).map(|k| a.integers()[row * 3 + k] * b.integers()[k * 4 + column]).sum();
            expected.push(i128::from(sum as i64));
        }
    }
    assert_eq!(product(a, b), of(&[2, 4], &expected));
    assert_eq!(product(of(&[2, 0], &[]), of(&[0, 3], &[])), of(&[2, 3], &[0; 6]), "sums of nothing");
}

/// The best along an axis that others lie behind, and before.
#[test]
fn the_best_of_an_axis_in_the_middle() {
    let network = Network::build(|g| {
        let x = g.input("x", F32, (2, 3, 2));
        let best = g.apply_all("TopK", &[Some(x), Some(g.indices(&[2]))], Attributes::new().with("axis", 1i64), 2);
        g.output("values", best[0]);
        g.output("places", best[1]);
    })
    .unwrap();
    let x = Tensor::of(&[1.0f32, 9.0, 3.0, 8.0, 2.0, 7.0, -4.0, 0.0, -6.0, 2.0, -5.0, 1.0], &[2, 3, 2]).unwrap();
    let found = network.run(&[("x", x)]).unwrap();
    assert_eq!(found[0].1.numbers(), [3.0, 9.0, 2.0, 8.0, -4.0, 2.0, -5.0, 1.0]);
    assert_eq!(found[1].1.numbers(), [1.0, 0.0, 2.0, 1.0, 0.0, 1.0, 2.0, 2.0]);
}
