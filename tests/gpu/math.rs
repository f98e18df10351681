//! Every primitive and every activation over dense ranges, against the bounds of the table.

use crate::rig::{Rig, rig};
use postlude::build::activation;
use postlude::device::DeviceArgs;
use postlude::ir::op::Signature;
use postlude::ir::{Graph, Node, NodeId, Operand, Order, Sink, SinkKind};
use postlude::plan::Math;
use postlude::prelude::*;
use postlude::{Epilogue, Gemm, Op, Operation};

/// How far values were from exact, over all tested ones.
#[derive(Clone, Copy, Debug, Default)]
struct Error {
    /// In units in the last place of the `f32` result.
    ulps: f64,
    absolute: f64,
    relative: f64,
    /// The largest excess over a bound, and where.
    excess: f64,
    at: [f32; 3],
}

/// Points of `f32`: dense on an interval, and every magnitude of either sign.
fn points(low: f32, high: f32) -> Vec<f32> {
    const DENSE: usize = 1 << 18;
    let dense = (0..DENSE).map(|i| low + (high - low) * (i as f32 / (DENSE - 1) as f32));
    let magnitudes =
        (0..1u32 << 15).flat_map(|i| [f32::from_bits(i << 16 | (i * 40_503) & 0xFFFF), -f32::from_bits(i << 16 | i & 0xFFFF)]);
    let mut points: Vec<f32> = dense.chain(magnitudes).filter(|x| x.is_finite() && low <= *x && *x <= high).collect();
    points.truncate(points.len() / 256 * 256);
    points
}

/// A graph of one node over the accumulator and loaded operands.
fn single(arity: usize, node: impl FnOnce(Vec<NodeId>) -> Node) -> Epilogue {
    let mut graph = Graph::new();
    let mut args = vec![graph.push(Node::Accumulator(postlude::dtype::ValueType::F32), None)];
    for name in ["x1", "x2"].iter().take(arity - 1) {
        args.push(graph.push(Node::Load { name: (*name).into(), operand: Operand::from(F32) }, None));
    }
    let value = graph.push(node(args), None);
    graph.sink(Sink { name: "d".into(), value, kind: SinkKind::Store(F32.into()) }, None);
    Epilogue::from_graph(graph).unwrap()
}

/// The kernel's values; without a GPU those of the CPU reference.
fn evaluate(epilogue: &Epilogue, operands: &[Vec<f32>], math: Math) -> Option<Vec<f32>> {
    let gemm = Gemm::pointwise(F32, Order::RowMajor, epilogue).math(math);
    let shape = Shape::new(operands[0].len() / 256, 256, 0);
    let names = ["a", "x1", "x2"];
    let mut d = vec![f32::NAN; operands[0].len()];
    match rig()? {
        Rig::Gpu(device) => {
            let stream = device.context().new_stream().unwrap();
            let plan = gemm.plan(device, shape).unwrap();
            let inputs: Vec<_> = operands.iter().map(|x| stream.clone_htod(x).unwrap()).collect();
            let mut output = stream.clone_htod(&d).unwrap();
            let args = names.iter().zip(&inputs).fold(DeviceArgs::new(), |args, (name, x)| args.input(name, x));
            plan.execute(&stream, &mut args.output("d", &mut output)).unwrap();
            d = stream.clone_dtoh(&output).unwrap();
        }
        Rig::StandIn(cache) => {
            if let Some(cache) = cache {
                gemm.compile(cache, postlude::target::Target::SM_90A, 132, shape).unwrap();
            }
            let args = names.iter().zip(operands).fold(HostArgs::new(), |args, (name, x)| args.input(name, x));
            gemm.reference(shape, args.output("d", &mut d)).unwrap();
        }
    }
    Some(d)
}

/// The unit in the last place of the `f32` nearest to a value.
fn unit(exact: f64) -> f64 {
    let exponent = exact.abs().max(f64::from(f32::MIN_POSITIVE)).log2().floor();
    2f64.powf(exponent - 23.0)
}

/// Compares; `excess` is by how much an error is over what `bound` allows at that exact value.
fn measure(operands: &[Vec<f32>], got: &[f32], exact: impl Fn(&[f64]) -> f64, bound: impl Fn(f64, f64) -> f64) -> Error {
    let mut worst = Error::default();
    for (i, &y) in got.iter().enumerate() {
        let x: Vec<f64> = operands.iter().map(|o| f64::from(o[i])).collect();
        let exact = exact(&x);
        let as_f32 = exact as f32;
        // Beyond the range of `f32`, and where there is no value, the kernel has to agree with the rounded truth.
        let same = as_f32 == y || as_f32.is_nan() && y.is_nan();
        let error = if same && !as_f32.is_finite() { 0.0 } else { (f64::from(y) - exact).abs() };
        let error = if error.is_nan() { f64::INFINITY } else { error };
        let over = if same { 0.0 } else { bound(error, exact) };
        if as_f32.is_finite() {
            worst.ulps = worst.ulps.max(error / unit(exact));
            worst.absolute = worst.absolute.max(error);
            if exact.abs() >= f64::from(f32::MIN_POSITIVE) {
                worst.relative = worst.relative.max(error / exact.abs());
            }
        }
        if over > worst.excess {
            worst.excess = over;
            worst.at = [x[0] as f32, y, as_f32];
        }
    }
    worst
}

/// Where a primitive is tested: all of `f32` that it is defined on, or where its approximation is meant for.
fn operands(op: Op, fast: bool) -> Vec<Vec<f32>> {
    let all = f32::MAX;
    let (low, high) = match (op, fast) {
        (Op::Exp, true) => (-87.0, 88.0),
        (Op::Exp2, true) => (-126.0, 127.9),
        (Op::Log, true) | (Op::Sqrt, true) => (f32::MIN_POSITIVE, all),
        (Op::Sin | Op::Cos, true) => (-100.0, 100.0),
        (Op::Sin | Op::Cos, false) => (-1e5, 1e5),
        (Op::Recip, true) => (-1e37, 1e37),
        (Op::Exp | Op::Exp2 | Op::Expm1, false) => (-150.0, 130.0),
        (Op::Tanh | Op::Erf, _) => (-12.0, 12.0),
        (Op::Log | Op::Sqrt | Op::Rsqrt, _) => (0.0, all),
        (Op::Log1p, _) => (-1.0, all),
        (Op::Pow, _) => (0.0, 50.0),
        _ => (-1000.0, 1000.0),
    };
    let first = points(low, high);
    let shuffled = |factor: usize, scale: f32| -> Vec<f32> {
        (0..first.len()).map(|i| first[i.wrapping_mul(factor) % first.len()] * scale).collect()
    };
    let mut operands = vec![first.clone(), shuffled(40_503, if op == Op::Pow { 0.2 } else { 1.0 }), shuffled(9_973, 1.0)];
    operands.truncate(op.row().signature.arity());
    if fast && op == Op::Recip {
        operands[0].iter_mut().filter(|x| x.abs() < 1e-37).for_each(|x| *x = 1.0);
    }
    if fast && op == Op::Div {
        operands[1].iter_mut().filter(|x| x.abs() < 1e-37).for_each(|x| *x = 1.0);
    }
    operands
}

fn floats() -> impl Iterator<Item = Op> {
    Op::ALL.iter().copied().filter(|op| matches!(op.row().signature, Signature::Float(_) | Signature::Numeric(_)))
}

#[test]
fn exact_primitives_hold_their_bounds() {
    let mut failures = Vec::new();
    for op in floats() {
        let (row, operands) = (op.row(), operands(op, false));
        let epilogue = single(operands.len(), |args| Node::Apply { op, args });
        let Some(got) = evaluate(&epilogue, &operands, Math::Exact) else { return };
        let worst = measure(&operands, &got, row.eval, |error, exact| error / unit(exact) - f64::from(row.ulp));
        println!("exact {:<10} {:>8.3} ulp (bound {}), relative {:.2e}", row.name, worst.ulps, row.ulp, worst.relative);
        if worst.excess > 0.0 {
            failures.push(format!("{}: {} ulp, bound {}: {worst:?}", row.name, worst.ulps, row.ulp));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn fast_primitives_hold_their_bounds() {
    let mut failures = Vec::new();
    for op in floats() {
        let row = op.row();
        let Some(fast) = row.fast else { continue };
        let operands = operands(op, true);
        let epilogue = single(operands.len(), |args| Node::Apply { op, args });
        let Some(got) = evaluate(&epilogue, &operands, Math::Fast) else { return };
        let bound = |error: f64, exact: f64| (error - fast.absolute).min(error - fast.relative * exact.abs());
        let worst = measure(&operands, &got, row.eval, bound);
        println!(
            "fast  {:<10} absolute {:.2e} (bound {:.1e}), relative {:.2e} (bound {:.1e})",
            row.name, worst.absolute, fast.absolute, worst.relative, fast.relative
        );
        if worst.excess > 0.0 {
            failures.push(format!("{}: {worst:?}", row.name));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// What an activation may be off by: absolute up to 1, relative beyond.
fn activations(math: Math, limit: f64) {
    let mut failures = Vec::new();
    for function in activation::ALL {
        let parameters = [1.25f32, 0.75];
        let epilogue = {
            let mut graph = Graph::new();
            let mut args = vec![graph.push(Node::Accumulator(postlude::dtype::ValueType::F32), None)];
            for i in 1..function.parameters.len() {
                args.push(graph.constant_f32(parameters[i - 1]));
            }
            let value = graph.push(Node::Call { function, args }, None);
            graph.sink(Sink { name: "d".into(), value, kind: SinkKind::Store(F32.into()) }, None);
            Epilogue::from_graph(graph).unwrap()
        };
        let x = points(-30.0, 30.0);
        let shape = Shape::new(x.len() / 256, 256, 0);
        let mut unused = vec![0f32; x.len()];
        let args = HostArgs::new().input("a", &x).output("d", &mut unused);
        let operation = Operation::Pointwise { dtype: F32, order: Order::RowMajor };
        let oracle = postlude::reference::oracle(operation, epilogue.checked(), shape, &args).unwrap();
        let exact = &oracle.outputs[0].values;
        let Some(got) = evaluate(&epilogue, std::slice::from_ref(&x), math) else { return };
        let (mut worst, mut at) = (0.0f64, 0);
        for i in 0..x.len() {
            let error = (f64::from(got[i]) - exact[i]).abs() / exact[i].abs().max(1.0);
            if error > worst || error.is_nan() {
                (worst, at) = (error, i);
            }
        }
        println!("{math:?} {:<14} {worst:.2e} at {}", function.name, x[at]);
        if worst > limit || worst.is_nan() {
            failures.push(format!("{}: {worst:.2e} at {}: {} for {}", function.name, x[at], got[at], exact[at]));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn exact_activations() {
    activations(Math::Exact, 5e-7);
}

#[test]
fn fast_activations() {
    activations(Math::Fast, 5e-5);
}
