//! Fusion: how many kernels, and that they compute what the nodes do.

use crate::graphs::{encoder, tensor};
use postlude::network::fuse::FuseError;
use postlude::network::{Attributes, Format, Network, Tensor};
use postlude::prelude::*;

/// Runs a network node by node and fused; both agree to within what rounding between nodes explains.
pub fn agrees(network: &Network, inputs: &[(&str, Tensor)], tolerance: f64) {
    let fused = network.fuse().unwrap();
    let (nodes, kernels) = (network.run(inputs).unwrap(), fused.run(inputs).unwrap());
    for ((name, x), (_, y)) in nodes.iter().zip(&kernels) {
        assert_eq!((x.format(), x.shape()), (y.format(), y.shape()), "{name}");
        for (x, y) in x.numbers().iter().zip(y.numbers()) {
            assert!((x - y).abs() <= tolerance * (1.0 + x.abs()), "{name}: {x} and {y}\n{}", fused.explain());
        }
    }
}

fn kernels(network: &Network) -> usize {
    let fused = network.fuse().unwrap();
    assert_eq!(fused.unserved().count(), 0, "{}", fused.explain());
    fused.kernels().count()
}

#[test]
fn a_chain_behind_a_product_is_its_epilogue() {
    let network = Network::build(|g| {
        let (x, w, b) = (g.input("x", F32, (6, 5)), g.input("w", F32, (5, 7)), g.input("b", F32, (7,)));
        let (rows, residual) = (g.input("rows", F32, (6, 1)), g.input("residual", F32, (6, 7)));
        let z = x.matmul(w) + b;
        g.output("z", z);
        g.output("y", (z.gelu() * rows + residual).max(g.number(F32, 0.0)));
    })
    .unwrap();
    assert_eq!(kernels(&network), 1);
    let inputs = [
        ("x", tensor(F32, &[6, 5], 1)),
        ("w", tensor(F32, &[5, 7], 2)),
        ("b", tensor(F32, &[7], 3)),
        ("rows", tensor(F32, &[6, 1], 4)),
        ("residual", tensor(F32, &[6, 7], 5)),
    ];
    agrees(&network, &inputs, 1e-6);
}

#[test]
fn a_gate_joins_the_product_it_multiplies() {
    let network = Network::build(|g| {
        let (x, w, u) = (g.input("x", F32, (4, 8)), g.input("w", F32, (8, 8)), g.input("u", F32, (4, 8)));
        // The gate is computed before the product is, and belongs to its epilogue all the same.
        let gate = (u + u.tanh()).sigmoid();
        g.output("y", x.matmul(w) * gate);
    })
    .unwrap();
    assert_eq!(kernels(&network), 1);
    let inputs = [("x", tensor(F32, &[4, 8], 1)), ("w", tensor(F32, &[8, 8], 2)), ("u", tensor(F32, &[4, 8], 3))];
    agrees(&network, &inputs, 1e-6);
}

#[test]
fn a_reader_of_two_products_waits_for_both() {
    let network = Network::build(|g| {
        let (x, w, u) = (g.input("x", F32, (4, 8)), g.input("w", F32, (8, 8)), g.input("u", F32, (8, 8)));
        let first = x.matmul(w).relu();
        let second = first.matmul(u);
        // It could not stand behind the first: the second has to run in between.
        g.output("y", first + second);
    })
    .unwrap();
    assert_eq!(kernels(&network), 2);
    let inputs = [("x", tensor(F32, &[4, 8], 1)), ("w", tensor(F32, &[8, 8], 2)), ("u", tensor(F32, &[8, 8], 3))];
    agrees(&network, &inputs, 1e-6);
    assert!(network.fuse().unwrap().explain().contains("a product reads all of it"));
}

#[test]
fn an_encoder_layer() {
    let network = encoder(F32, 1, 6, 2, 4);
    let fused = network.fuse().unwrap();
    println!("{}", fused.explain());
    assert_eq!(fused.unserved().count(), 0, "{}", fused.explain());
    assert_eq!(fused.kernels().count(), 9, "{}", fused.explain());
    agrees(&network, &[("x", tensor(F32, &[1, 6, 8], 1))], 1e-5);
    // Heads of several sequences have two strides, so q, k, v and what is mixed are copied.
    let network = encoder(F32, 3, 6, 2, 4);
    assert_eq!(network.fuse().unwrap().unserved().count(), 0);
    agrees(&network, &[("x", tensor(F32, &[3, 6, 8], 1))], 1e-5);
}

#[test]
fn rows_take_what_is_before_and_behind() {
    let network = Network::build(|g| {
        let (x, mask) = (g.input("x", F32, (2, 3, 4, 8)), g.input("mask", F32, (2, 1, 1, 8)));
        let p = (x * g.number(F32, 0.5) + mask).softmax(-1);
        g.output("y", p * p.apply("ReduceMax", &[g.indices(&[-1])], Attributes::new()));
    })
    .unwrap();
    assert_eq!(kernels(&network), 1);
    agrees(&network, &[("x", tensor(F32, &[2, 3, 4, 8], 1)), ("mask", tensor(F32, &[2, 1, 1, 8], 2))], 1e-6);
}

/// A function of rows takes in what computes its rows, and nothing of another shape.
#[test]
fn rows_take_in_what_has_their_shape() {
    let own = Network::build(|g| g.output("y", g.input("x", F32, (6, 8)).exp().softmax(-1))).unwrap();
    assert_eq!(kernels(&own), 1);
    agrees(&own, &[("x", tensor(F32, &[6, 8], 1))], 1e-6);
    let two = Network::build(|g| g.output("y", g.input("x", F32, (6, 8)).softmax(-1).softmax(-1))).unwrap();
    assert_eq!(kernels(&two), 1);
    agrees(&two, &[("x", tensor(F32, &[6, 8], 1))], 1e-6);
    let other = Network::build(|g| {
        let (x, scale) = (g.input("x", F32, (6, 8)), g.input("scale", F32, (8,)));
        g.output("y", x.apply("LayerNormalization", &[scale.exp()], Attributes::new()));
        let shares = g.input("z", F32, (2, 3, 8)).softmax(-1);
        let planes = g.constant("planes", tensor(F32, &[3, 8], 4));
        g.output("z", shares.apply("LayerNormalization", &[planes], Attributes::new().with("axis", 1i64)));
    })
    .unwrap();
    assert_eq!(other.fuse().unwrap().kernels().count(), 4, "{}", other.fuse().unwrap().explain());
    let inputs = [("x", tensor(F32, &[6, 8], 1)), ("scale", tensor(F32, &[8], 2)), ("z", tensor(F32, &[2, 3, 8], 3))];
    agrees(&other, &inputs, 1e-6);
}

#[test]
fn channels_and_views_are_read_in_place() {
    let network = Network::build(|g| {
        let x = g.input("x", F32, (2, 3, 4, 5));
        let [scale, shift, mean] = [4, 5, 6].map(|seed| g.constant(&format!("c{seed}"), tensor(F32, &[3], seed)));
        let variance = g.constant("variance", Tensor::of_numbers(F32, &[3], &[0.5, 1.0, 2.0]).unwrap());
        let normed = g.apply("BatchNormalization", &[x, scale, shift, mean, variance], Attributes::new());
        let turned = x.transpose(&[0, 1, 3, 2]).reshape(&[2, 3, 20]);
        g.output("y", normed.relu().reshape(&[2, 3, 20]) + turned);
        g.output("turned", x.transpose(&[3, 1, 0, 2]));
    })
    .unwrap();
    let fused = network.fuse().unwrap();
    assert_eq!(fused.unserved().count(), 0, "{}", fused.explain());
    agrees(&network, &[("x", tensor(F32, &[2, 3, 4, 5], 1))], 1e-6);
}

#[test]
fn what_no_kernel_serves_is_named() {
    let network = Network::build(|g| {
        let x = g.input("x", F32, (1, 2, 5, 5));
        let y = g.apply("LpPool", &[x], Attributes::new().with("kernel_shape", vec![2, 2])).relu();
        g.output("y", y * y);
    })
    .unwrap();
    let fused = network.fuse().unwrap();
    let unserved: Vec<String> = fused.unserved().map(|(node, why)| format!("{}: {why}", node.operator_name())).collect();
    assert_eq!(unserved, ["LpPool: no kernel serves operators of the kind pooling"]);
    assert_eq!(fused.kernels().count(), 1);
    agrees(&network, &[("x", tensor(F32, &[1, 2, 5, 5], 1))], 1e-6);
}

/// Images without channels have sums of nothing, and filters without elements lie in every order.
#[test]
fn convolutions_without_channels_are_zero() {
    let network = Network::build(|g| {
        let filters = g.constant("w", tensor(F32, &[2, 0, 3, 3], 1));
        g.output("y", g.apply("Conv", &[g.input("x", F32, (1, 0, 4, 5)), filters], Attributes::new()));
    })
    .unwrap();
    let x = [("x", tensor(F32, &[1, 0, 4, 5], 1))];
    assert_eq!(network.run(&x).unwrap()[0].1.numbers(), [0.0; 12]);
    agrees(&network, &x, 0.0);
}

/// A copy of nothing lies in order, so that no copy of it is asked for, again and again.
#[test]
fn empty_tensors_are_fused() {
    let network = Network::build(|g| {
        let x = g.input("x", F32, (3, 0, 5));
        g.output("y", g.apply("Trilu", &[x], Attributes::new()));
        g.output("turned", x.transpose(&[2, 0, 1]));
        let all = g.apply(
            "Concat",
            &[g.input("left", F32, (2, 4, 0)), g.input("right", F32, (2, 4, 3))],
            Attributes::new().with("axis", 2),
        );
        g.output("all", all);
        let rest = [g.indices(&[3]), g.indices(&[9]), g.indices(&[2])];
        g.output("rest", g.apply("Slice", &[all, rest[0], rest[1], rest[2]], Attributes::new()));
    })
    .unwrap();
    let inputs = [("x", tensor(F32, &[3, 0, 5], 1)), ("left", tensor(F32, &[2, 4, 0], 1)), ("right", tensor(F32, &[2, 4, 3], 2))];
    agrees(&network, &inputs, 1e-6);
}

#[test]
fn a_slice_backwards_is_no_copy_forwards() {
    let network = Network::build(|g| {
        let x = g.input("x", F32, (2, 5));
        let turned =
            g.apply("Slice", &[x, g.indices(&[-1]), g.indices(&[-100]), g.indices(&[1]), g.indices(&[-1])], Attributes::new());
        g.output("y", turned);
        g.output("power", x.apply("Pow", &[g.indices(&[2])], Attributes::new()));
    })
    .unwrap();
    let unserved: Vec<String> = network.fuse().unwrap().unserved().map(|(node, _)| node.operator_name().to_owned()).collect();
    assert_eq!(unserved, ["Slice"]);
    agrees(&network, &[("x", tensor(F32, &[2, 5], 1))], 1e-6);
}

#[test]
fn extents_have_to_be_bound() {
    let network = Network::build(|g| {
        let x = g.input("x", F32, ("batch", 2));
        g.output("y", x.relu());
    })
    .unwrap();
    assert_eq!(network.fuse().unwrap_err(), FuseError::Unbound("batch".to_owned()));
    assert_eq!(kernels(&network.bind(&[("batch", 4)]).unwrap()), 1);
    assert!(network.bind(&[("bach", 4)]).unwrap_err().to_string().contains("did you mean `batch`?"));
}

#[test]
fn memory_is_used_again() {
    let network = Network::build(|g| {
        let mut x = g.input("x", F32, (64, 64));
        let w = g.constant("w", tensor(F32, &[64, 64], 1));
        for _ in 0..6 {
            x = x.matmul(w).relu();
        }
        g.output("y", x);
    })
    .unwrap();
    let fused = network.fuse().unwrap();
    let memory = fused.memory();
    assert_eq!((memory.sum, memory.peak, memory.bound), (6 * 16384, 2 * 16384, 2 * 16384));
}

/// A gate joins the second of two products, unless the first one waits for the gate.
#[test]
fn a_gate_joins_a_product_that_waits_for_another() {
    for (first_waits, expected) in [(false, 2), (true, 3)] {
        let network = Network::build(|g| {
            let (x, u) = (g.input("x", F32, (4, 8)), g.input("u", F32, (4, 8)));
            let (w, v) = (g.input("w", F32, (8, 8)), g.input("v", F32, (8, 8)));
            let gate = (u + u.tanh()).sigmoid();
            let first = if first_waits { x * gate } else { x }.matmul(w);
            g.output("y", first.matmul(v) * gate);
        })
        .unwrap();
        assert_eq!(kernels(&network), expected);
        let inputs = [("x", 1), ("u", 2)].map(|(name, seed)| (name, tensor(F32, &[4, 8], seed)));
        let weights = [("w", 3), ("v", 4)].map(|(name, seed)| (name, tensor(F32, &[8, 8], seed)));
        agrees(&network, &[inputs, weights].concat(), 1e-5);
    }
}

/// The remainder of integers has the sign of either operand, as `fmod` says.
#[test]
fn remainders_of_integers_have_the_sign_that_is_asked_for() {
    let network = Network::build(|g| {
        let (x, y) = (g.input("x", I32, (6,)), g.input("y", I32, (6,)));
        for fmod in [0, 1] {
            g.output(&format!("fmod {fmod}"), g.apply("Mod", &[x, y], Attributes::new().with("fmod", fmod)));
        }
    })
    .unwrap();
    let inputs = [("x", [7, -7, 7, -7, 6, 5]), ("y", [3, 3, -3, -3, -3, 0])];
    let inputs = inputs.map(|(name, numbers): (_, [i32; 6])| (name, Tensor::of(&numbers, &[6]).unwrap()));
    agrees(&network, &inputs, 0.0);
    let results = network.run(&inputs).unwrap();
    assert_eq!(results.iter().map(|(_, result)| result.numbers()[1]).collect::<Vec<_>>(), [2.0, -1.0]);
}

/// What is read beside a border of integers is an integer, too.
#[test]
fn integers_have_borders_of_integers() {
    let network = Network::build(|g| {
        let x = g.input("x", I32, (2, 3));
        let padded = g.apply("Pad", &[x, g.indices(&[0, 1, 0, 2]), g.number(I32, 7.0)], Attributes::new());
        g.output("y", padded + padded);
    })
    .unwrap();
    assert_eq!(kernels(&network), 1);
    agrees(&network, &[("x", Tensor::of(&[1i32, -2, 3, 4, -5, 6], &[2, 3]).unwrap())], 0.0);
}

/// Reductions along the last axes, the first, and one in the middle, with every monoid that an operator names.
#[test]
fn reductions_along_any_axes_are_kernels() {
    let operators = [
        "ReduceSum",
        "ReduceMean",
        "ReduceMax",
        "ReduceMin",
        "ReduceProd",
        "ReduceL1",
        "ReduceL2",
        "ReduceSumSquare",
        "ReduceLogSum",
        "ReduceLogSumExp",
    ];
    for operator in operators {
        for axes in [&[2i64][..], &[1, 2], &[0], &[1], &[0, 1], &[3]] {
            for keepdims in [0i64, 1] {
                let network = Network::build(|g| {
                    let x = g.input("x", F32, (3, 4, 5, 1));
                    // The logarithm takes sums above 0.
                    let x = if operator == "ReduceLogSum" { x.apply("Abs", &[], Attributes::new()) } else { x };
                    let attributes = Attributes::new().with("keepdims", keepdims);
                    g.output("y", g.apply(operator, &[x, g.indices(axes)], attributes));
                })
                .unwrap();
                let fused = network.fuse().unwrap();
                // A logarithm behind a sum over the first axes has no kernel yet.
                let left = usize::from(operator == "ReduceLogSum" && !axes.contains(&2) && axes != [3]);
                assert_eq!(fused.unserved().count(), left, "{operator} {axes:?}\n{}", fused.explain());
                agrees(&network, &[("x", tensor(F32, &[3, 4, 5, 1], 7))], 1e-5);
            }
        }
    }
}

/// What a caller gets is memory of the network's own, also if it is a part or another shape of what it passes.
#[test]
fn views_of_inputs_are_copied_for_the_caller() {
    let network = Network::build(|g| {
        let x = g.input("x", F32, (4, 1, 6));
        let parts = g.apply_all("Split", &[Some(x), Some(g.indices(&[1, 3]))], Attributes::new().with("axis", 0i64), 2);
        g.output("first", parts[0]);
        g.output("rest", parts[1].relu());
        g.output("flat", g.apply("Squeeze", &[x, g.indices(&[1])], Attributes::new()));
        g.output("wide", g.apply("Unsqueeze", &[x, g.indices(&[0])], Attributes::new()));
        g.output("x", x);
    })
    .unwrap();
    // One for each, but for what is passed as it is.
    assert_eq!(kernels(&network), 4, "{}", network.fuse().unwrap().explain());
    agrees(&network, &[("x", tensor(F32, &[4, 1, 6], 3))], 0.0);
}

/// The format of an example counts, and not its shape: `CastLike` reads no element of it.
#[test]
fn casts_by_example_are_casts() {
    let network = Network::build(|g| {
        let (x, like) = (g.input("x", F32, (4, 6)), g.input("like", F16, [0]));
        g.output("y", g.apply("CastLike", &[x, like], Attributes::new()));
    })
    .unwrap();
    assert_eq!(kernels(&network), 1);
    agrees(&network, &[("x", tensor(F32, &[4, 6], 3)), ("like", tensor(F16, &[0], 1))], 0.0);
}

#[test]
fn inputs_are_fixed() {
    let network = Network::build(|g| {
        let (x, axes) = (g.input("x", F32, (4, 6)), g.input("axes", Format::I64, [1]));
        g.output("y", g.apply("ReduceMax", &[x, axes], Attributes::new()));
    })
    .unwrap();
    assert!(network.fuse().unwrap().unserved().count() == 1);
    let axes = Tensor::of_numbers(Format::I64, &[1], &[1.0]).unwrap();
    let fixed = network.fix(&[("axes", axes.clone())]).unwrap();
    assert_eq!(kernels(&fixed), 1);
    assert_eq!(fixed.inputs().map(|(name, _)| name).collect::<Vec<_>>(), ["x"]);
    let x = ("x", tensor(F32, &[4, 6], 3));
    assert_eq!(network.run(&[x.clone(), ("axes", axes.clone())]).unwrap(), fixed.run(&[x]).unwrap());
    let refused = |name: &str, tensor: &Tensor| network.fix(&[(name, tensor.clone())]).unwrap_err().to_string();
    assert!(refused("axis", &axes).contains("did you mean `axes`?"));
    assert!(refused("axes", &tensor(F32, &[1], 1)).contains("input `axes` is i64[1]"));
    assert!(refused("axes", &Tensor::of_numbers(Format::I64, &[1], &[7.0]).unwrap()).contains("axis"));
}
