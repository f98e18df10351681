//! The epilogues whose gradients are tested: on the CPU against differences, on the GPU against the CPU.
//!
//! Include this file with `#[path = "../support/pairs.rs"] mod pairs;` beside `graphs`, which draws the random ones.

#![allow(dead_code, reason = "each test crate uses its part")]

use crate::graphs::{Style, well_typed};
use postlude::build::activation;
use postlude::dtype::ValueType;
use postlude::grad::Wrt;
use postlude::ir::axes::{L, N};
use postlude::ir::{Axes, Constant, Function, Graph, Node, Reduction, Sink, SinkKind};
use postlude::prelude::*;
use postlude::{CustomOp, DType, Op};
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use std::sync::Arc;

/// How many random graphs are differentiated.
pub const GRAPHS: usize = 500;

/// Random graphs whose values stay of moderate size. Without square roots: that of `x - x` has a value and no slope.
pub fn smooth() -> Style {
    use Op::{Abs, Add, Cos, Div, Erf, Expm1, Fma, Log1p, Max, Min, Mul, Neg, Select, Sin, Sub, Tanh, ToF32};
    Style {
        float_ops: vec![Add, Sub, Mul, Fma, Min, Max, Abs, Neg, Tanh, Erf, Sin, Cos, Select, ToF32, Div, Log1p, Expm1],
        functions: activation::ALL.to_vec(),
        formats: vec![F32, I32, Bool, Bits8],
        reductions: true,
        stores: 3,
        ..Style::tame()
    }
}

/// With poles, exponentials of exponentials, borders that move with the values, and a custom primitive.
pub fn steep() -> Style {
    let smooth = smooth();
    let float_ops = smooth.float_ops.iter().copied().chain([Op::Exp, Op::Recip]).collect();
    Style { float_ops, custom: Some(distance()), float_conditions: true, ..smooth }
}

/// The square root of `x^2 + y^2 + 1`, with both derivatives.
fn distance() -> Arc<CustomOp> {
    let root = |x: &[f64]| (x[0] * x[0] + x[1] * x[1] + 1.0).sqrt();
    let op = CustomOp::new("distance", 2, "sqrtf($0 * $0 + $1 * $1 + 1.0f)", root);
    let op = op.and_then(|op| op.partial(0, "$0 / sqrtf($0 * $0 + $1 * $1 + 1.0f)", move |x| x[0] / root(x)));
    let op = op.and_then(|op| op.partial(1, "$1 / sqrtf($0 * $0 + $1 * $1 + 1.0f)", move |x| x[1] / root(x)));
    Arc::new(op.expect("the spelling is sound"))
}

/// Whether two evaluations of a graph decide alike: no function jumps, none has a pole, and none undoes another, so
/// that no value is compared with its own rounding.
pub fn decides(epilogue: &Epilogue) -> bool {
    let jumps = ["hardshrink", "shrink", "thresholded_relu", "threshold"];
    let has = |wanted: &dyn Fn(&Node) -> bool| epilogue.graph().nodes().any(|(_, node)| wanted(node));
    let uses = |op: Op| has(&|node| matches!(node, Node::Apply { op: own, .. } if *own == op));
    !has(&|node| matches!(node, Node::Call { function, .. } if jumps.contains(&function.name))) && !uses(Op::Log1p)
}

/// Random epilogues that have a gradient, each with the number of its draw: always the same ones. Every eighth draw is over the
/// accumulator of an integer product.
pub fn epilogues(style: Style, seed: u8) -> impl Iterator<Item = (u64, Epilogue)> {
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[seed; 32]);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    let strategies = [well_typed(style.clone()).boxed(), well_typed(style.integer()).boxed()];
    let draws = (1u64..).map(move |draw| {
        let graph = strategies[usize::from(draw % 8 == 0)].new_tree(&mut runner).unwrap().current();
        (draw, Epilogue::from_graph(graph).unwrap())
    });
    draws.filter(|(_, epilogue)| has_gradient(epilogue))
}

/// Whether there is an output through which a gradient comes in, and something that it is the gradient of.
fn has_gradient(epilogue: &Epilogue) -> bool {
    let through = |s: &Sink| matches!(s.kind, SinkKind::Store(o) if o.dtype == F32 && o.axes.contains(L));
    let of_argument =
        epilogue.arguments().iter().any(|a| a.role.operand().is_some_and(|o| o.dtype == F32) && !a.role.is_written());
    let of_accumulator = epilogue.checked().accumulator() != Some(ValueType::I32);
    epilogue.graph().sinks().iter().any(through) && (of_accumulator || of_argument)
}

/// Outputs that cannot carry a gradient.
pub fn detached(epilogue: &Epilogue) -> Vec<String> {
    let out = epilogue.graph().sinks().iter().filter(|s| match s.kind {
        SinkKind::Store(operand) => !operand.axes.contains(Axes::MNL),
        SinkKind::Reduce(Reduction { monoid, .. }) => monoid.adjoint().is_none(),
        SinkKind::Bincount(_) => true,
    });
    out.map(|s| s.name.to_string()).collect()
}

/// Everything that has a gradient; saved values are `f32`.
pub fn everything(epilogue: &Epilogue) -> Wrt {
    detached(epilogue).iter().fold(Wrt::all().exact(), |wrt, name| wrt.detached(name))
}

/// An activation of the accumulator, stored in a format. Its parameters are vectors over N, so that their gradients are sums
/// over M; positive ones keep logarithms real.
pub fn of_activation(function: &'static Function, dtype: DType) -> Epilogue {
    let mut graph = Graph::new();
    let value = dtype.value_type();
    let acc = graph.push(Node::Accumulator(value), None);
    let mut args = vec![acc];
    for parameter in &function.parameters[1..] {
        let raw = graph.push(Node::load(format!("p_{parameter}"), value.storage().over(N)), None);
        let square = graph.apply(Op::Mul, &[raw, raw]);
        let constant = |x: f64| Node::Constant(Constant::of(value, x));
        let half = graph.push(constant(0.5), None);
        let shifted = graph.apply(Op::Add, &[square, half]);
        let sign = graph.push(constant(if *parameter == "low" { -1.0 } else { 1.0 }), None);
        args.push(graph.apply(Op::Mul, &[shifted, sign]));
    }
    let value = graph.push(Node::Call { function, args }, None);
    graph.sink(Sink::new("d", value, SinkKind::Store(dtype.into())), None);
    Epilogue::from_graph(graph).unwrap()
}
