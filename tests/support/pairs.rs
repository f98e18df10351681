//! The epilogues whose gradients are tested: on the CPU against differences, on the GPU against the CPU.
//!
//! Include this file with `#[path = "../support/pairs.rs"] mod pairs;` beside `graphs`, which draws the random ones.

#![allow(dead_code, reason = "each test crate uses its part")]

use crate::graphs::{Style, well_typed};
use postlude::build::activation;
use postlude::dtype::ValueType;
use postlude::grad::Wrt;
use postlude::ir::axes::{L, N};
use postlude::ir::{Function, Graph, Monoid, Node, Reduction, Sink, SinkKind};
use postlude::prelude::*;
use postlude::{DType, Op};
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

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
        SinkKind::Store(operand) => !operand.axes.contains(L),
        SinkKind::Reduce(Reduction { monoid, .. }) => monoid != Monoid::Sum,
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
    let acc = graph.push(Node::Accumulator(ValueType::F32), None);
    let mut args = vec![acc];
    for parameter in &function.parameters[1..] {
        let raw = graph.push(Node::Load { name: format!("p_{parameter}").as_str().into(), operand: F32.over(N) }, None);
        let square = graph.apply(Op::Mul, &[raw, raw]);
        let half = graph.constant_f32(0.5);
        let shifted = graph.apply(Op::Add, &[square, half]);
        let sign = graph.constant_f32(if *parameter == "low" { -1.0 } else { 1.0 });
        args.push(graph.apply(Op::Mul, &[shifted, sign]));
    }
    let value = graph.push(Node::Call { function, args }, None);
    graph.sink(Sink { name: "d".into(), value, kind: SinkKind::Store(dtype.into()) }, None);
    Epilogue::from_graph(graph).unwrap()
}
