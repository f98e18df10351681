//! Gradients through reductions inside the graph, against differences; and how short they are.

use crate::pairs::everything;
use crate::problem::Problem;
use postlude::build::recipes::{self, Mask, Norm};
use postlude::grad::{GradError, Wrt};
use postlude::ir::Node;
use postlude::ir::NodeId;
use postlude::prelude::*;
use postlude::{Builder, Op};

fn epilogue(build: impl FnOnce(&Builder)) -> Epilogue {
    Epilogue::build(build).unwrap_or_else(|e| panic!("{e}"))
}

fn check(epilogue: &Epilogue, wrt: Wrt, seed: u64) {
    let mut problem = Problem::with(epilogue, wrt, seed);
    // What keeps a norm from dividing by 0 is positive.
    problem.scalars.values_mut().for_each(|scalar| *scalar = scalar.abs() + 0.25);
    let (smooth, all) = problem.check(30, 1e-5);
    assert!(smooth * 10 >= all * 8 && all > 0, "{smooth} of {all}\n{epilogue}");
}

#[test]
fn of_recipes() {
    let norms = [Norm::default(), Norm { weights: Some(F32), residual: None }, Norm { weights: Some(F32), residual: Some(F32) }];
    let mut all = vec![
        recipes::softmax(Mask::None, F32),
        recipes::softmax(Mask::Causal, F32),
        recipes::log_softmax(Mask::None, F32),
        recipes::l2_normalize(F32),
        recipes::top_k_softmax(3, F32),
        Epilogue::build(|e| {
            let best = e.acc().top_k_over(N, 2).values;
            e.store("d", e.acc() * 0.5 + best[0].sin() - best[1].cos(), F32);
        }),
    ];
    all.extend(norms.iter().flat_map(|norm| [recipes::layer_norm(*norm, F32), recipes::rms_norm(*norm, F32)]));
    all.extend(norms.iter().flat_map(|norm| [recipes::group_norm(2, *norm, F32), recipes::group_norm(1, *norm, F32)]));
    for (seed, recipe) in all.into_iter().enumerate() {
        let recipe = recipe.unwrap();
        check(&recipe, everything(&recipe), seed as u64);
    }
}

/// Every monoid that has a gradient, along every set of axes, of what varies along them and of what does not.
#[test]
fn of_every_monoid_along_every_axis() {
    let mut tested = 0;
    for monoid in Monoid::ALL.into_iter().filter(|m| m.inner_adjoint().is_some()) {
        let whole = [M, N, L, M | N, N | L, M | N | L].map(Over::from);
        let bands = [N.bands(2), (M | N).bands(3), M.bands(2), (M | L).bands(2)];
        for (seed, axes) in whole.into_iter().chain(bands).enumerate() {
            let e = epilogue(|e| {
                let z = e.acc() * e.load("w", F32.over(N)) + e.load("shared", F32.over(M | N));
                let r = e.reduce_over(z, monoid, axes) + e.reduce_over(e.load("w", F32.over(N)).sin(), monoid, axes);
                e.store("d", (z * 0.5 + r * 0.25).tanh() + r * e.load("v", F32.over(M)), F32);
            });
            let of_acc = epilogue(|e| {
                let r = e.reduce_over(e.acc(), monoid, axes);
                e.store("d", (e.acc() * 0.5 + r * 0.25).tanh() + r, F32);
            });
            let picks = matches!(monoid, Monoid::Max | Monoid::Min | Monoid::AbsMax);
            match e.backward(Wrt::all().exact()) {
                // Which element is the largest along two axes no coordinate says.
                Err(GradError::Reduction { over, .. }) => assert!(picks && ![M, N, L].contains(&over.axes)),
                Err(other) => panic!("{other}"),
                // Along an axis that a value does not vary along it has no largest element, and differences see a step of all.
                Ok(_) if picks => check(&of_acc, Wrt::all().exact(), seed as u64),
                Ok(_) => check(&e, Wrt::all().exact(), seed as u64),
            }
            tested += 1;
        }
    }
    assert_eq!(tested, 10 * 9);
}

/// What only one arm of a region uses gets no gradient from where the other is picked.
#[test]
fn of_a_reduction_that_only_one_arm_uses() {
    let e = epilogue(|e| {
        let z = e.acc();
        let inside = e.column().lt(e.row() + 2);
        e.store("d", z.region(inside, |z| z * z.sum_over(N).exp()).otherwise(|z| z.sin() / z.mean_over(M)), F32);
    });
    check(&e, Wrt::all().exact(), 3);
}

fn reductions(epilogue: &Epilogue) -> usize {
    epilogue.graph().nodes().filter(|(_, node)| matches!(node, Node::Reduce { .. })).count()
}

/// As many sums as a derivation by hand has: one of a softmax and of a norm by mean squares, and what is saved beside the
/// output or the input is vectors.
#[test]
fn of_softmax_and_norms_are_short() {
    let softmax = recipes::softmax(Mask::None, F16).unwrap();
    let pair = softmax.backward(Wrt::accumulator().keeps("d")).unwrap();
    assert_eq!((reductions(pair.backward()), pair.reserve().bits_per_element()), (1, 0));
    let rms_norm = recipes::rms_norm(Norm::default(), F16).unwrap();
    let pair = rms_norm.backward(Wrt::accumulator().detached("rstd")).unwrap();
    assert_eq!((reductions(pair.backward()), pair.reserve().bits_per_element()), (1, 16));
    let layer_norm = recipes::layer_norm(Norm::default(), F16).unwrap();
    let pair = layer_norm.backward(Wrt::accumulator().detached("mean").detached("rstd")).unwrap();
    assert_eq!((reductions(pair.backward()), pair.reserve().bits_per_element()), (2, 16), "{}", pair.backward());
    // What rows have in common is taken out of their sums: nothing is divided for each element.
    let divides = |id: NodeId, node: &Node| {
        matches!(node, Node::Apply { op: Op::Div, .. }) && pair.backward().checked().type_of(id).axes.is_matrix()
    };
    assert!(!pair.backward().graph().nodes().any(|(id, node)| divides(id, node)), "{}", pair.backward());
}

#[test]
fn what_has_none_says_so() {
    let e = epilogue(|e| e.store("d", e.acc() * e.acc().product_over(N), F32));
    let fault = e.backward(Wrt::all()).unwrap_err().to_string();
    assert!(fault.starts_with("`product` over [N], whose result the epilogue uses, has no gradient (used at"), "{fault}");
}
