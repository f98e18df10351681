//! Every primitive and every activation over dense ranges, against the bounds of the table.

use crate::rig::{Rig, rig};
use postlude::build::activation;
use postlude::device::DeviceArgs;
use postlude::dtype::ValueType;
use postlude::ir::op::{Domain, Row, Signature};
use postlude::ir::{Graph, Node, NodeId, Order, Sink, SinkKind};
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

/// Points of intervals of `f32`: dense ones, every magnitude of either sign, and every number of 16 bits.
fn points(intervals: &[[f32; 2]]) -> Vec<f32> {
    const DENSE: usize = 1 << 18;
    let each = DENSE / intervals.len();
    let dense = intervals
        .iter()
        .flat_map(|&[low, high]| (0..each).map(move |i| i as f32 / (each - 1) as f32).map(move |t| low * (1.0 - t) + high * t));
    let magnitudes = (0..1u32 << 17)
        .flat_map(|i| [f32::from_bits(i << 14 | i.wrapping_mul(40_503) & 0x3FFF), -f32::from_bits(i << 14 | i & 0x3FFF)]);
    let narrow = (0..=u16::MAX).flat_map(|bits| [half::f16::from_bits(bits).to_f32(), half::bf16::from_bits(bits).to_f32()]);
    let inside = |x: &f32| intervals.iter().any(|[low, high]| low <= x && x <= high);
    let mut points: Vec<f32> = dense.chain(magnitudes).chain(narrow).filter(inside).collect();
    points.truncate(points.len() / 256 * 256);
    points
}

/// A graph of one node over the accumulator and loaded operands.
fn single(arity: usize, node: impl FnOnce(Vec<NodeId>) -> Node) -> Epilogue {
    let mut graph = Graph::new();
    let mut args = vec![graph.push(Node::Accumulator(ValueType::F32), None)];
    for name in ["x1", "x2"].iter().take(arity - 1) {
        args.push(graph.push(Node::load(*name, F32), None));
    }
    let value = graph.push(node(args), None);
    graph.sink(Sink::new("d", value, SinkKind::Store(F32.into())), None);
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
        // Beyond the range of `f32`, and where the function has no value, the kernel has to agree with the rounded
        // truth.
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

/// Values of every operand, from the intervals of the table.
fn operands(op: Op, domain: Domain) -> Vec<Vec<f32>> {
    let first = points(Row::intervals(domain, 0));
    let of = |operand: usize| -> Vec<f32> {
        let own = points(Row::intervals(domain, operand));
        let step = [1, 40_503, 9_973][operand];
        (0..first.len()).map(|i| own[i.wrapping_mul(step) % own.len()]).collect()
    };
    (0..op.row().signature.arity()).map(of).collect()
}

/// The primitives from `f32` to `f32`.
fn floats() -> impl Iterator<Item = Op> {
    let is_float = |op: &Op| {
        let signature = op.row().signature;
        let floats = vec![ValueType::F32; signature.arity()];
        matches!(signature, Signature::Same { .. }) && signature.result(&floats) == Some(ValueType::F32)
    };
    Op::ALL.iter().copied().filter(is_float)
}

#[test]
fn exact_primitives_hold_their_bounds() {
    let mut failures = Vec::new();
    for op in floats() {
        let (row, operands) = (op.row(), operands(op, op.row().domain));
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
        let operands = operands(op, fast.domain);
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

/// Every fast spelling of one operand at zeros, infinities and NaN.
#[test]
fn fast_primitives_are_right_at_edges() {
    let edges = [0.0, -0.0, 1.0, -1.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN];
    let x: Vec<f32> = edges.into_iter().cycle().take(256).collect();
    let mut failures = Vec::new();
    for op in floats().filter(|op| op.row().signature.arity() == 1) {
        let row = op.row();
        let Some(fast) = row.fast else { continue };
        let epilogue = single(1, |args| Node::Apply { op, args });
        let Some(got) = evaluate(&epilogue, std::slice::from_ref(&x), Math::Fast) else { return };
        for (x, got) in x.iter().zip(got).take(edges.len()) {
            let exact = (row.eval)(&[f64::from(*x)]);
            let same = exact as f32 == got || exact.is_nan() && got.is_nan();
            if !same && (f64::from(got) - exact).abs() > fast.absolute.max(fast.relative * exact.abs())
                || got.is_nan() != exact.is_nan()
            {
                failures.push(format!("{} of {x} is {got}, not {exact}", row.name));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

const FLOATS: [f32; 18] = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    2.5,
    -1.5,
    3.25,
    -7.0,
    65519.0,
    1e-40,
    -1e-45,
    1e30,
    -3e9,
    f32::MAX,
    f32::INFINITY,
    f32::NEG_INFINITY,
    f32::NAN,
];
/// As many of doubles, some of which are none of the above.
const DOUBLES: [f64; FLOATS.len()] = [
    0.0,
    -0.0,
    1.0,
    -1.0 - f64::EPSILON,
    0.1,
    2.5,
    -1.5,
    2049.0 + 1e-9,
    257.0 - 1e-12,
    65520.0 - 1e-9,
    5e-324,
    -1e-45,
    1e300,
    -2147483648.5,
    f64::MAX,
    f64::INFINITY,
    f64::NEG_INFINITY,
    f64::NAN,
];
const INTEGERS: [i32; 16] = [0, 1, -1, 2, 5, -7, 7, 31, 32, 33, -32, 1 << 24 | 1, 0x3f80_0000, 0x7fc0_0000, i32::MAX, i32::MIN];

/// Values of one type in memory.
enum Values {
    F32(Vec<f32>),
    F64(Vec<f64>),
    I32(Vec<i32>),
    Bool(Vec<u8>),
}

impl Values {
    /// The values at some places of the type's edges.
    fn of(value: ValueType, places: impl Iterator<Item = usize>) -> Values {
        match value {
            ValueType::F32 => Values::F32(places.map(|i| FLOATS[i % FLOATS.len()]).collect()),
            ValueType::F64 => Values::F64(places.map(|i| DOUBLES[i % DOUBLES.len()]).collect()),
            ValueType::I32 => Values::I32(places.map(|i| INTEGERS[i % INTEGERS.len()]).collect()),
            ValueType::Bool => Values::Bool(places.map(|i| (i % 2) as u8).collect()),
        }
    }

    fn exact(&self) -> Vec<f64> {
        match self {
            Values::F32(x) => x.iter().map(|x| f64::from(*x)).collect(),
            Values::F64(x) => x.clone(),
            Values::I32(x) => x.iter().map(|x| f64::from(*x)).collect(),
            Values::Bool(x) => x.iter().map(|x| f64::from(*x)).collect(),
        }
    }

    fn in_host<'a>(&'a self, name: &str, args: HostArgs<'a>) -> HostArgs<'a> {
        match self {
            Values::F32(x) => args.input(name, x),
            Values::F64(x) => args.input(name, x),
            Values::I32(x) => args.input(name, x),
            Values::Bool(x) => args.input(name, x),
        }
    }

    fn out_host<'a>(&'a mut self, name: &str, args: HostArgs<'a>) -> HostArgs<'a> {
        match self {
            Values::F32(x) => args.output(name, x),
            Values::F64(x) => args.output(name, x),
            Values::I32(x) => args.output(name, x),
            Values::Bool(x) => args.output(name, x),
        }
    }
}

/// Every combination of operands at their edges.
fn at_edges(types: &[ValueType]) -> Vec<Values> {
    const EDGES: usize = FLOATS.len();
    const POINTS: usize = (EDGES * EDGES * EDGES).next_multiple_of(256);
    let strides = [1, EDGES, EDGES * EDGES];
    types.iter().zip(strides).map(|(value, stride)| Values::of(*value, (0..POINTS).map(move |i| i / stride % EDGES))).collect()
}

/// Primitives that are exact, on operands of every type that they take: integers, conditions, zeros of either sign, NaN.
#[test]
fn exact_primitives_are_exact_at_edges() {
    let mut failures = Vec::new();
    for &op in Op::ALL {
        for (types, result) in op.row().signature.typings() {
            let row = op.row();
            if !row.is_exact(&types) && row.on_integers(&types).is_none() {
                continue;
            }
            let operands = at_edges(&types);
            let exact: Vec<Vec<f64>> = operands.iter().map(Values::exact).collect();
            let Some(got) = run_one(op, &types, result, &operands) else { return };
            for (i, got) in got.iter().enumerate() {
                let x: Vec<f64> = exact.iter().map(|x| x[i]).collect();
                let expected = match row.on_integers(&types) {
                    Some(eval) => f64::from(eval(&x.iter().map(|x| *x as i32).collect::<Vec<_>>())),
                    None => result.storage().round((row.eval)(&x)),
                };
                if expected.to_bits() != got.to_bits() && !(expected.is_nan() && got.is_nan()) {
                    failures.push(format!("{}{x:?} of {types:?} is {got}, not {expected}", row.name));
                    break;
                }
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// The error of the CPU's own library, in units in the last place: the truth is not known any better.
const LIBRARY: f64 = 2.0;

/// Primitives of doubles, over the domains of the table: dense points that no `f32` is.
#[test]
fn primitives_of_doubles_hold_their_bounds() {
    const POINTS: usize = 1 << 16;
    let mut failures = Vec::new();
    for &op in Op::ALL {
        let row = op.row();
        let types = vec![ValueType::F64; row.signature.arity()];
        let is_plain = matches!(row.signature, Signature::Same { gives: None, .. });
        if !is_plain || row.signature.result(&types).is_none() {
            continue;
        }
        let of = |operand: usize| {
            let intervals = Row::intervals(row.domain, operand);
            let at = move |i: usize| {
                let ([low, high], t) = (intervals[i % intervals.len()], (i * [1, 40_503, 9_973][operand] % POINTS) as f64);
                let t = (t + 0.1) / POINTS as f64;
                f64::from(low) * (1.0 - t) + f64::from(high) * t
            };
            Values::F64((0..POINTS).map(at).collect())
        };
        let operands: Vec<Values> = (0..types.len()).map(of).collect();
        let exact: Vec<Vec<f64>> = operands.iter().map(Values::exact).collect();
        let Some(got) = run_one(op, &types, ValueType::F64, &operands) else { return };
        let (mut worst, mut at) = (0.0f64, 0);
        for (i, got) in got.iter().enumerate() {
            let expected = (row.eval)(&exact.iter().map(|x| x[i]).collect::<Vec<_>>());
            let ulp = f64::EPSILON * expected.abs().max(f64::MIN_POSITIVE);
            let error = if *got == expected || got.is_nan() && expected.is_nan() { 0.0 } else { (got - expected).abs() / ulp };
            // NaN where a number is expected is worse than every number, and stays so.
            let error = if error.is_nan() { f64::INFINITY } else { error };
            if error > worst {
                (worst, at) = (error, i);
            }
        }
        println!("f64   {:<10} {worst:>8.3} ulp (bound {})", row.name, row.ulp_f64);
        let bound = if row.ulp_f64 == 0 { 0.0 } else { 2.0 * (f64::from(row.ulp_f64) + LIBRARY) };
        if worst > bound {
            let x: Vec<f64> = exact.iter().map(|x| x[at]).collect();
            failures.push(format!("{}{x:?}: {worst} units, bound {bound}", row.name));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// The values of one primitive on a GPU; without one those of the CPU reference.
fn run_one(op: Op, types: &[ValueType], result: ValueType, operands: &[Values]) -> Option<Vec<f64>> {
    const NAMES: [&str; 3] = ["x0", "x1", "x2"];
    let mut graph = Graph::new();
    let acc = graph.push(Node::Accumulator(ValueType::F32), None);
    let load = |(name, value): (&&str, &ValueType)| Node::load(*name, value.storage());
    let args: Vec<NodeId> = NAMES.iter().zip(types).map(load).map(|node| graph.push(node, None)).collect();
    let value = graph.push(Node::Apply { op, args }, None);
    graph.sink(Sink::new("d", value, SinkKind::Store(result.storage().into())), None);
    graph.sink(Sink::new("acc", acc, SinkKind::Store(F32.into())), None);
    let epilogue = Epilogue::from_graph(graph).unwrap();
    let gemm = Gemm::pointwise(F32, Order::RowMajor, &epilogue).math(Math::Exact);
    let count = operands[0].exact().len();
    let shape = Shape::new(count / 256, 256, 0);
    let zeros = vec![0f32; count];
    let mut copy = zeros.clone();
    let mut d = Values::of(result, 0..count);
    match rig()? {
        Rig::Gpu(device) => {
            let stream = device.context().new_stream().unwrap();
            let plan = gemm.plan(device, shape).unwrap();
            let a = stream.clone_htod(&zeros).unwrap();
            let mut copy = stream.clone_htod(&copy).unwrap();
            let (mut floats, mut doubles, mut integers, mut bytes) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
            for (name, x) in NAMES.iter().zip(operands) {
                match x {
                    Values::F32(x) => floats.push((name, stream.clone_htod(x).unwrap())),
                    Values::F64(x) => doubles.push((name, stream.clone_htod(x).unwrap())),
                    Values::I32(x) => integers.push((name, stream.clone_htod(x).unwrap())),
                    Values::Bool(x) => bytes.push((name, stream.clone_htod(x).unwrap())),
                }
            }
            let mut args = DeviceArgs::new().input("a", &a).output("acc", &mut copy);
            args = floats.iter().fold(args, |args, (name, x)| args.input(name, x));
            args = doubles.iter().fold(args, |args, (name, x)| args.input(name, x));
            args = integers.iter().fold(args, |args, (name, x)| args.input(name, x));
            args = bytes.iter().fold(args, |args, (name, x)| args.input(name, x));
            match &mut d {
                Values::F32(d) => {
                    let mut output = stream.clone_htod(d).unwrap();
                    plan.execute(&stream, &mut args.output("d", &mut output)).unwrap();
                    *d = stream.clone_dtoh(&output).unwrap();
                }
                Values::F64(d) => {
                    let mut output = stream.clone_htod(d).unwrap();
                    plan.execute(&stream, &mut args.output("d", &mut output)).unwrap();
                    *d = stream.clone_dtoh(&output).unwrap();
                }
                Values::I32(d) => {
                    let mut output = stream.clone_htod(d).unwrap();
                    plan.execute(&stream, &mut args.output("d", &mut output)).unwrap();
                    *d = stream.clone_dtoh(&output).unwrap();
                }
                Values::Bool(d) => {
                    let mut output = stream.clone_htod(d).unwrap();
                    plan.execute(&stream, &mut args.output("d", &mut output)).unwrap();
                    *d = stream.clone_dtoh(&output).unwrap();
                }
            }
        }
        Rig::StandIn(cache) => {
            if let Some(cache) = cache {
                gemm.compile(cache, postlude::target::Target::SM_90A, 132, shape).unwrap();
            }
            let args = HostArgs::new().input("a", &zeros).output("acc", &mut copy);
            let args = NAMES.iter().zip(operands).fold(args, |args, (name, x)| x.in_host(name, args));
            gemm.reference(shape, d.out_host("d", args)).unwrap();
        }
    }
    Some(d.exact())
}

/// The tolerance of an activation: absolute up to 1, relative beyond.
fn activations(math: Math, limit: f64) {
    let mut failures = Vec::new();
    for function in activation::ALL {
        let parameters = [1.25f32, 0.75];
        let epilogue = {
            let mut graph = Graph::new();
            let mut args = vec![graph.push(Node::Accumulator(ValueType::F32), None)];
            for i in 1..function.parameters.len() {
                args.push(graph.constant_f32(parameters[i - 1]));
            }
            let value = graph.push(Node::Call { function, args }, None);
            graph.sink(Sink::new("d", value, SinkKind::Store(F32.into())), None);
            Epilogue::from_graph(graph).unwrap()
        };
        let x = points(&[[-30.0, 30.0]]);
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
