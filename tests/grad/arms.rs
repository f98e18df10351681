//! The value of an arm that was not picked never reaches a gradient.

use crate::edges::{self, Arm};
use postlude::dtype::ValueType;
use postlude::grad::Wrt;
use postlude::ir::{Function, Graph, Node, NodeId, Sink, SinkKind};
use postlude::prelude::*;
use postlude::reference::{Precision, run};
use postlude::{Builder, HostArgs, Op, Operation};

/// The gradients of the accumulator and of `x`, at the given values of both, for incoming gradients of 1.
fn gradients(build: impl FnOnce(&Builder), a: &[f32], x: &[f32]) -> [Vec<f32>; 2] {
    gradients_of(&Epilogue::build(build).unwrap_or_else(|e| panic!("{e}")), a, x)
}

fn gradients_of(epilogue: &Epilogue, a: &[f32], x: &[f32]) -> [Vec<f32>; 2] {
    let pair = epilogue.backward(Wrt::all()).unwrap();
    let (shape, operation) = (Shape::new(1, a.len(), 0), Operation::Pointwise { dtype: F32, order: Default::default() });
    let mut reserve = pair.reserve().allocate(shape);
    let mut d = vec![0.0f32; a.len()];
    let args = HostArgs::new().input("a", a).output("d", &mut d).saving(&mut reserve);
    let args = if x.is_empty() { args } else { args.input("x", x) };
    run(operation, pair.forward().checked(), shape, args, Precision::F32).unwrap();
    let ones = vec![1.0f32; a.len()];
    let mut found = [vec![7.0f32; a.len()], vec![7.0f32; x.len()]];
    let [acc, gx] = &mut found;
    let mut args = HostArgs::new().input("a", &ones).output("grad_acc", acc).saved(&reserve);
    if !x.is_empty() {
        args = args.output("grad_x", gx);
        if pair.backward().arguments().iter().any(|a| &*a.name == "x") {
            args = args.input("x", x);
        }
    }
    run(operation, pair.backward().checked(), shape, args, Precision::F32).unwrap();
    found
}

#[test]
fn reach_no_gradient() {
    for Arm { name, build, a, x, acc, of_x } in edges::ALL {
        let [found_acc, found_x] = gradients(build, a, x);
        assert!(edges::agree(&found_acc, acc), "{name}: {found_acc:?}, not {acc:?}");
        assert!(edges::agree(&found_x, of_x), "{name}: {found_x:?} of `x`, not {of_x:?}");
    }
}

/// min(x, 0), whose rule has the gradient in the second arm.
static MIRRORED: Function = Function {
    name: "mirrored",
    doc: "min(x, 0).",
    parameters: &["x"],
    body: |graph, x| mirrored(graph, x[0], x[0]),
    gradient: Some(|graph, x, _, g| vec![Some(mirrored(graph, x[0], g))]),
};

fn mirrored(graph: &mut Graph, x: NodeId, value: NodeId) -> NodeId {
    let zero = graph.constant_f32(0.0);
    let above = graph.apply(Op::Gt, &[x, zero]);
    graph.apply(Op::Select, &[above, zero, value])
}

#[test]
fn of_a_rule_that_masks_with_its_second_arm() {
    let mut graph = Graph::new();
    let acc = graph.push(Node::Accumulator(ValueType::F32), None);
    let root = graph.apply(Op::Recip, &[acc]);
    let value = graph.push(Node::Call { function: &MIRRORED, args: vec![root] }, None);
    graph.sink(Sink::new("d", value, SinkKind::Store(F32.into())), None);
    let [found, _] = gradients_of(&Epilogue::from_graph(graph).unwrap(), &[-2.0, 2.0, 0.0, -0.5], &[]);
    assert_eq!(found, [-0.25, 0.0, 0.0, -4.0]);
}
