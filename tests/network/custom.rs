//! Custom operators of every kind: as expressions, with gradients of their own, as closures.

use crate::gradients::{Given, check};
use crate::graphs::tensor;
use postlude::network::{Attributes, BackwardError, CustomOperator, Fault, Network, Operators, Tensor};
use postlude::prelude::*;
use std::sync::Arc;

fn given(name: &'static str, shape: &[usize], seed: u64) -> Given {
    (name, tensor(F64, shape, seed), true)
}

/// The three operators of the question that this began with: an expression, one with a gradient of its own, and a convolution
/// with the norm behind it, which is two closures.
fn add_relu() -> Arc<CustomOperator> {
    CustomOperator::pointwise("FusedAddReLU", |[x, y]| (x + y).relu())
}

fn mul_sigmoid() -> Arc<CustomOperator> {
    CustomOperator::pointwise("mul_sigmoid", |[x, y]| x * y.sigmoid()).gradient(|[x, y], dz| {
        let s = y.sigmoid();
        [dz * s, dz * x * s * (-s + 1.0)]
    })
}

#[test]
fn expressions_are_operators() {
    let (add_relu, mul_sigmoid) = (add_relu(), mul_sigmoid());
    let network = Network::build(|g| {
        let (x, w, b, gate) =
            (g.input("x", F64, (3, 4)), g.input("w", F64, (4, 5)), g.input("b", F64, (5,)), g.input("gate", F64, (3, 1)));
        let y = g.custom(&add_relu, [x.matmul(w), b])[0];
        g.output("y", g.custom(&mul_sigmoid, [y, gate])[0]);
    })
    .unwrap();
    assert_eq!(network.outputs().next().unwrap().1.to_string(), "f64[3,5]");
    let fused = network.fuse().unwrap();
    assert_eq!((fused.kernels().count(), fused.unserved().count()), (1, 0), "{}", fused.explain());
    let inputs = [given("x", &[3, 4], 1), given("w", &[4, 5], 2), given("b", &[5], 3), given("gate", &[3, 1], 4)];
    check("custom", &network, &inputs);
}

/// Asking for more operands than the node has is said, and nothing panics.
#[test]
fn an_expression_asks_for_what_the_node_has() {
    let greedy = CustomOperator::pointwise_with("Greedy", 1, |s| s.x(0) + s.x(2));
    let built = Network::build(|g| g.output("y", g.custom(&greedy, [g.input("x", F32, [3])])[0]));
    let message = built.unwrap_err().to_string();
    assert!(message.contains("asks for operand 2, counted from 0, and the node has 1"), "{message}");
}

#[test]
fn a_gradient_of_its_own_is_used() {
    // Not the derivative, on purpose: what the program says counts.
    let reversed = CustomOperator::pointwise("Reversed", |[x]| x * 1.0).gradient(|[x], dy| [-dy * x.abs()]);
    let network = Network::build(|g| {
        let x = g.input("x", F32, (2,));
        g.output("y", g.custom(&reversed, [x])[0]);
    })
    .unwrap();
    let backward = network.backward_through(&["y"], &["x"]).unwrap();
    let inputs = [("x", Tensor::of(&[2.0f32, -3.0], &[2]).unwrap()), ("upstream_y", Tensor::of(&[1.0f32, 2.0], &[2]).unwrap())];
    assert_eq!(backward.run(&inputs).unwrap()[1].1.numbers(), [-2.0, -6.0]);
    assert_eq!(backward.fuse().unwrap().run(&inputs).unwrap()[1].1.numbers(), [-2.0, -6.0]);
}

/// A convolution of one pixel with a norm of each channel behind it: y = (x w) scale.
fn conv_bn() -> Arc<CustomOperator> {
    fn product(x: &Tensor, w: &Tensor, scale: &Tensor) -> Result<Vec<Tensor>, Fault> {
        let (x_shape, &[k, n]) = (x.shape().to_vec(), w.shape()) else { return Err(Fault::Shape("filters are a matrix".into())) };
        let rows = x.len() / k;
        let (x, w, scale) = (x.numbers(), w.numbers(), scale.numbers());
        let mut y = vec![0.0; rows * n];
        for (at, y) in y.iter_mut().enumerate() {
            *y = (0..k).map(|i| x[at / n * k + i] * w[i * n + at % n]).sum::<f64>() * scale[at % n];
        }
        Ok(vec![Tensor::of_numbers(F64, &[x_shape[0], n], &y)?])
    }
    CustomOperator::new(
        "FusedConvBN",
        3,
        |of| {
            let mut y = of[0].clone();
            if let (Some(dims), Some([_, n])) = (&mut y.dims, of[1].dims.as_deref()) {
                dims[1] = n.clone();
            }
            Ok(vec![y])
        },
        |x| product(x[0], x[1], x[2]),
    )
    .gradient_of_tensors(|x, dy| {
        let (&[m, k], n) = (x[0].shape(), x[2].len()) else { return Err(Fault::Shape("images are a matrix".into())) };
        let (a, w, scale, g) = (x[0].numbers(), x[1].numbers(), x[2].numbers(), dy[0].numbers());
        let (mut da, mut dw, mut ds) = (vec![0.0; m * k], vec![0.0; k * n], vec![0.0; n]);
        for (row, i, column) in (0..m * k * n).map(|at| (at / (k * n), at / n % k, at % n)) {
            let g = g[row * n + column];
            da[row * k + i] += g * scale[column] * w[i * n + column];
            dw[i * n + column] += g * scale[column] * a[row * k + i];
            ds[column] += g * a[row * k + i] * w[i * n + column];
        }
        let of = |x: &Tensor, numbers: &[f64]| Tensor::of_numbers(F64, x.shape(), numbers);
        Ok(vec![of(x[0], &da)?, of(x[1], &dw)?, of(x[2], &ds)?])
    })
}

#[test]
fn closures_have_gradients() {
    let conv_bn = conv_bn();
    let network = Network::build(|g| {
        let (x, w, scale) = (g.input("x", F64, (3, 2)), g.input("w", F64, (2, 4)), g.input("scale", F64, (4,)));
        g.output("y", g.custom(&conv_bn, [x, w, scale])[0].tanh());
    })
    .unwrap();
    check("closures", &network, &[given("x", &[3, 2], 1), given("w", &[2, 4], 2), given("scale", &[4], 3)]);
    // A closure forward may have an expression backward.
    let cube = CustomOperator::new(
        "Cube",
        1,
        |x| Ok(vec![x[0].clone()]),
        |x| {
            let cubes: Vec<f64> = x[0].numbers().iter().map(|x| x * x * x).collect();
            Ok(vec![Tensor::of_numbers(x[0].format(), x[0].shape(), &cubes)?])
        },
    );
    let network = |operator: &Arc<CustomOperator>| {
        Network::build(|g| g.output("y", g.custom(operator, [g.input("x", F64, (3,))])[0])).unwrap()
    };
    check("cube", &network(&cube.gradient(|[x], dy| [dy * x * x * 3.0])), &[given("x", &[3], 1)]);
    let error = network(&cube).backward_through(&["y"], &["x"]).unwrap_err();
    assert!(matches!(&error, BackwardError::Operator { operator, .. } if operator == "Cube"), "{error}");
}

#[test]
fn documents_name_them() {
    let operators = Operators::new().with(&add_relu()).with(&mul_sigmoid()).with(&conv_bn());
    let known = |name: &str| operators.get(name).unwrap();
    let network = Network::build(|g| {
        let (x, w, scale) = (g.input("x", F64, (3, 2)), g.input("w", F64, (2, 4)), g.input("scale", F64, (4,)));
        let y = g.custom(known("FusedConvBN"), [x, w, scale])[0];
        g.output("y", g.custom(known("mul_sigmoid"), [g.custom(known("FusedAddReLU"), [y, scale])[0], y])[0]);
    })
    .unwrap();
    let backward = network.backward_through(&["y"], &["x", "w"]).unwrap();
    let read = Network::from_json(&backward.to_json(), &operators).unwrap();
    assert_eq!(read, backward);
    assert!(Network::from_json(&backward.to_json(), &Operators::new()).is_err());
    let inputs = [
        ("x", tensor(F64, &[3, 2], 1)),
        ("w", tensor(F64, &[2, 4], 2)),
        ("scale", tensor(F64, &[4], 3)),
        ("upstream_y", tensor(F64, &[3, 4], 4)),
    ];
    assert_eq!(read.run(&inputs).unwrap(), backward.run(&inputs).unwrap());
    // Attributes of a document reach the expression.
    let scaled = CustomOperator::pointwise_with("Scaled", 1, |s| s.x(0) * s.float("by", 2.0));
    let json = Network::build(|g| g.output("y", g.custom(&scaled, [g.input("x", F32, (1,))])[0])).unwrap().to_json();
    let json = json.replace(
        "\"operator\": \"Scaled\",",
        "\"operator\": \"Scaled\", \"attributes\": [[\"by\", {\"float_bits\": 1077936128}]],",
    );
    let network = Network::from_json(&json, &Operators::new().with(&scaled)).unwrap();
    assert_eq!(network.run(&[("x", Tensor::of(&[1.5f32], &[1]).unwrap())]).unwrap()[0].1.numbers(), [4.5]);
}

#[test]
fn what_is_wrong_with_one_is_named() {
    let faults = |operator: &Arc<CustomOperator>, format: DType| {
        let built = Network::build(|g| {
            let (x, y) = (g.input("x", format, (2,)), g.input("y", format, (2,)));
            g.output("z", g.custom(operator, [x, y])[0]);
        });
        built.map(|_| ()).map_err(|error| error.to_string())
    };
    assert_eq!(faults(&add_relu(), F16), Ok(()));
    assert!(faults(&CustomOperator::pointwise("One", |[x]| x), F32).unwrap_err().contains("One takes 1 inputs, not 2"));
    // Another number of gradients than inputs is a broken rule, and no panic.
    let misfit = add_relu().gradient(|[x], dy| [dy * x]);
    assert!(faults(&misfit, F32).unwrap_err().contains("inputs of its gradient"), "{:?}", faults(&misfit, F32));
    let hidden = CustomOperator::pointwise("Compared", |[x, y]| x.lt(y));
    assert!(faults(&hidden, F32).unwrap_err().contains("has no meaning"));
    for name in ["Floor'0", "Tanh'7", "Conv'0", "Tanh'0'0'0'0'0'0", "MatMul'1", "'0", "Tanh'"] {
        let json = Network::build(|g| {
            g.output("y", g.apply("Add", &[g.input("x", F32, (1,)), g.input("y", F32, (1,))], Attributes::new()))
        });
        let json = json.unwrap().to_json().replace("\"Add\"", &format!("\"{name}\""));
        assert!(Network::from_json(&json, &Operators::new()).is_err(), "{name}");
    }
}

/// A closure that gives no gradient for an input, or one of another type, is a fault and nothing is computed with it.
#[test]
fn gradients_have_the_types_of_their_inputs() {
    type Given = fn(&[&Tensor], &[&Tensor]) -> Result<Vec<Tensor>, Fault>;
    let wrong: [Given; 3] = [
        |_, dy| Ok(vec![dy[0].clone()]),
        |x, dy| Ok(vec![dy[0].clone(), Tensor::of_numbers(F64, &[3], &x[1].numbers())?]),
        |_, dy| Ok(vec![dy[0].clone(); 3]),
    ];
    let right: Given = |_, dy| Ok(vec![dy[0].clone(); 2]);
    for (at, gradient) in wrong.into_iter().chain([right]).enumerate() {
        let first = CustomOperator::new("First", 2, |x| Ok(vec![x[0].clone()]), |x| Ok(vec![x[0].clone()]));
        let first = first.gradient_of_tensors(gradient);
        let network = Network::build(|g| {
            let (x, w) = (g.input("x", F32, (3,)), g.input("w", F32, (3,)));
            g.output("y", g.custom(&first, [x, w])[0]);
        });
        let backward = network.unwrap().backward_through(&["y"], &["x", "w"]).unwrap();
        let of = Tensor::of(&[1.0f32, 2.0, 3.0], &[3]).unwrap();
        let inputs: Vec<(&str, Tensor)> = backward.inputs().map(|(name, _)| (name, of.clone())).collect();
        let found = backward.run(&inputs);
        assert_eq!(found.is_ok(), at == 3, "{at}");
        if let Err(error) = found {
            assert!(error.to_string().contains("not one for each of 2 inputs"), "{error}");
        }
    }
}

/// A document may name the operator of a gradient. One that gives it other inputs is refused before the closure sees them.
#[test]
fn a_document_gives_a_gradient_what_it_takes() {
    let reversed = CustomOperator::new("Reversed", 1, |x| Ok(vec![x[0].clone()]), |x| Ok(vec![x[0].clone()]))
        .gradient_of_tensors(|_, dy| Ok(vec![dy[0].clone()]));
    let registered = Operators::new().with(&reversed);
    let network = Network::build(|g| {
        let x = g.input("x", F32, (2,));
        g.output("y", g.custom(&reversed, [x])[0]);
    })
    .unwrap();
    let backward = network.backward_through(&["y"], &["x"]).unwrap();
    let whole: serde_json::Value = serde_json::from_str(&backward.to_json()).unwrap();
    assert_eq!(Network::from_json(&whole.to_string(), &registered).unwrap(), backward);
    let change = |edit: fn(&mut Vec<serde_json::Value>)| {
        let mut document = whole.clone();
        let nodes = document["nodes"].as_array_mut().unwrap().iter_mut();
        let node = { nodes }.find(|node| node["operator"] == "Reversed'").unwrap();
        edit(node["inputs"].as_array_mut().unwrap());
        Network::from_json(&document.to_string(), &registered).unwrap_err().to_string()
    };
    let edits: [fn(&mut Vec<serde_json::Value>); 3] =
        [|all| drop(all.pop()), |all| all.push(all[1].clone()), |all| all[1] = serde_json::Value::Null];
    for edit in edits {
        let error = change(edit);
        assert!(error.contains("gradients of outputs") && error.contains("N0202"), "{error}");
    }
    assert!(change(Vec::clear).contains("Reversed'"));
}
