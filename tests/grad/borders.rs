//! At the borders of activations derivatives are PyTorch's, as `pytorch_borders.py` prints them, except those listed
//! here.

use postlude::build::activation;
use postlude::dtype::ValueType;
use postlude::grad::Wrt;
use postlude::ir::{Function, Graph, Node, NodeId, Sink, SinkKind};
use postlude::prelude::*;
use postlude::reference::{Precision, run};
use postlude::{HostArgs, Op, Operation};
use std::collections::BTreeSet;

const TABLE: &str = include_str!("pytorch_borders.txt");

/// The differences: the name, x, and our derivative. The forward values of a threshold differ there, too.
const OTHERS: &[(&str, &str, f32)] = &[("relu", "nan", 0.0), ("threshold", "nan", 0.0)];

/// One line of the table.
struct Line {
    name: &'static str,
    parameters: Vec<f32>,
    x: &'static str,
    slope: f32,
}

fn lines() -> Vec<Line> {
    let parse = |line: &'static str| {
        let [name, parameters, x, slope] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
        let parameters = parameters.split(',').filter(|p| *p != "-").map(|p| p.parse().unwrap()).collect();
        Line { name, parameters, x, slope: slope.parse().unwrap() }
    };
    TABLE.lines().map(parse).collect()
}

/// An activation, or a primitive, of the accumulator.
fn epilogue(name: &str, parameters: &[f32]) -> Epilogue {
    let mut graph = Graph::new();
    let acc = graph.push(Node::Accumulator(ValueType::F32), None);
    let mut args: Vec<NodeId> = vec![acc];
    args.extend(parameters.iter().map(|p| graph.constant_f32(*p)));
    let value = match activation::ALL.iter().find(|f| f.name == name) {
        Some(&function) => graph.push(Node::Call { function, args }, None),
        None => graph.apply(Op::from_name(name).unwrap(), &args),
    };
    graph.sink(Sink::new("d", value, SinkKind::Store(F32.into())), None);
    Epilogue::from_graph(graph).unwrap()
}

fn slope(epilogue: &Epilogue, wrt: Wrt, x: f32) -> f32 {
    let pair = epilogue.backward(wrt).unwrap();
    let (shape, operation) = (Shape::new(1, 1, 0), Operation::Pointwise { dtype: F32, order: Order::RowMajor });
    let (mut reserve, mut d, mut dz) = (pair.reserve().allocate(shape), [0.0f32], [0.0f32]);
    let args = HostArgs::new().input("a", std::slice::from_ref(&x)).output("d", &mut d).saving(&mut reserve);
    run(operation, pair.forward().checked(), shape, args, Precision::F32).unwrap();
    let mut args = HostArgs::new().input("a", &[1.0f32]).output("grad_acc", &mut dz).saved(&reserve);
    if pair.backward().arguments().iter().any(|a| &*a.name == "d") {
        args = args.input("d", &d);
    }
    run(operation, pair.backward().checked(), shape, args, Precision::F32).unwrap();
    dz[0]
}

#[test]
fn are_those_of_pytorch() {
    let (mut faults, mut others) = (Vec::new(), 0);
    for Line { name, parameters, x, slope: pytorch } in lines() {
        let other = OTHERS.iter().find(|(n, at, _)| *n == name && *at == x).map(|(.., slope)| *slope);
        others += usize::from(other.is_some_and(|ours| ours != pytorch));
        let expected = other.unwrap_or(pytorch);
        let epilogue = epilogue(name, &parameters);
        for (what, wrt) in [("saved", Wrt::all()), ("saved in f32", Wrt::all().exact()), ("kept", Wrt::all().keeps("d"))] {
            let found = slope(&epilogue, wrt, x.parse().unwrap());
            let near = (found - expected).abs() <= 1e-5 * (1.0 + expected.abs());
            if !near {
                faults.push(format!("{name} {parameters:?} at {x} ({what}): {found}, not {expected}"));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert_eq!(others, OTHERS.len(), "what is listed as different is the same");
}

/// An activation whose derivative asks a condition has a border.
#[test]
fn of_every_activation_that_has_one_are_listed() {
    let listed: BTreeSet<&str> = lines().iter().map(|line| line.name).collect();
    let asks = |function: &&'static Function| {
        let parameters: Vec<f32> = function.parameters[1..].iter().map(|p| if *p == "low" { -1.0 } else { 0.5 }).collect();
        let pair = epilogue(function.name, &parameters).backward(Wrt::all().exact()).unwrap();
        [pair.forward(), pair.backward()].iter().any(|half| half.to_string().contains(": bool["))
    };
    let missing: Vec<_> = activation::ALL.iter().copied().filter(asks).map(|f| f.name).filter(|f| !listed.contains(f)).collect();
    assert!(missing.is_empty(), "{missing:?}: write them into pytorch_borders.py");
}

/// The table in the documentation is this one.
#[test]
fn are_in_the_documentation() {
    let docs = include_str!("../../src/grad/mod.rs");
    for Line { name, .. } in lines() {
        assert!(docs.lines().any(|line| line.starts_with("//! |") && line.contains(&format!("`{name}`"))), "{name}");
    }
}
