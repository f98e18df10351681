//! Fast spellings on every number of 16 bits and on a dense sample of the others. Their own arithmetic is exact to the
//! bit, and instructions are as inaccurate, up and down, as their documentation allows. The table's bounds have to hold
//! for all of that.

use crate::program::Program;
use postlude::args::{SlotKind, slots};
use postlude::build::activation;
use postlude::dtype::ValueType;
use postlude::ir::op::Row;
use postlude::ir::{Graph, Node, NodeId, Order, Sink, SinkKind};
use postlude::plan::Math;
use postlude::prelude::*;
use postlude::target::Target;
use postlude::{Epilogue, Gemm, HostArgs, Op, Operation};

/// Columns of the matrices, and rows of the most that one launch takes.
const COLUMNS: usize = 256;
const ROWS: usize = 512;

/// Every finite number of both formats of 16 bits, and of the others one in about 16000, of every magnitude.
fn points() -> Vec<f32> {
    let narrow = (0..=u16::MAX)
        .flat_map(|bits| [postlude::half::f16::from_bits(bits).to_f32(), postlude::half::bf16::from_bits(bits).to_f32()]);
    let wide = (0..1u32 << 18).map(|i| f32::from_bits((i << 14) | (i.wrapping_mul(40_503) & 0x3fff)));
    let mut points: Vec<f32> = narrow.chain(wide).filter(|x| x.is_finite()).collect();
    points.truncate(points.len() / COLUMNS * COLUMNS);
    points
}

/// Pairs of numbers that are special to some primitive, in whatever domain.
fn edges() -> Vec<[f32; 2]> {
    let edges = [0.0, -0.0, 1.0, -1.0, 0.5, 2.5, 2.0, -2.0, 3.0, -3.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN];
    edges.iter().flat_map(|x| edges.map(|y| [*x, y])).collect()
}

/// Second operands: others of the points, integers, numbers as large as the first, numbers from -10 to 10.
fn partners(x: &[f32]) -> Vec<f32> {
    let one = |i: usize| {
        let other = x[i.wrapping_mul(40_503) % x.len()];
        match i % 4 {
            0 => other,
            1 => (i / 4 % 21) as f32 - 10.0,
            2 => x[i] * (1.0 + (i % 97) as f32 / 31.0),
            _ => (i % 9973) as f32 / 498.65 - 10.0,
        }
    };
    (0..x.len()).map(one).collect()
}

/// The float primitives that have a fast spelling.
fn fast() -> Vec<Op> {
    Op::ALL.iter().copied().filter(|op| op.row().fast.is_some()).collect()
}

/// Stores of values over the accumulator and a second matrix.
fn epilogue(values: impl FnOnce(&mut Graph, [NodeId; 2]) -> Vec<(String, NodeId)>) -> Epilogue {
    let mut graph = Graph::new();
    let x = graph.push(Node::Accumulator(ValueType::F32), None);
    let y = graph.push(Node::load("y", F32), None);
    for (name, value) in values(&mut graph, [x, y]) {
        graph.sink(Sink::new(name, value, SinkKind::Store(F32.into())), None);
    }
    Epilogue::from_graph(graph).unwrap()
}

/// Runs the kernel with special-function instructions that err by `tilt`, and returns the values of every store. `None`
/// without a compiler.
fn run(name: &str, epilogue: &Epilogue, tilt: i32, x: &[f32], y: &[f32]) -> Option<Vec<Vec<f32>>> {
    let gemm = Gemm::pointwise(F32, Order::RowMajor, epilogue).math(Math::Fast);
    let shape = Shape::new(ROWS, COLUMNS, 0);
    let plan = gemm.kernel_plan(Target::SM_80, 108, shape).unwrap();
    let text = format!("static const int tilted = emulated::tilt = {tilt};\n{}", plan.source().unwrap().text());
    let program = Program::of(&format!("{name}_{}", tilt + 1), plan, &text).unwrap_or_else(|fault| panic!("{fault}"))?;
    let mut found: Vec<Vec<f32>> = Vec::new();
    for (x, y) in x.chunks(ROWS * COLUMNS).zip(y.chunks(ROWS * COLUMNS)) {
        let shape = Shape::new(x.len() / COLUMNS, COLUMNS, 0);
        let slots = slots(gemm.operation(), gemm.epilogue().checked(), shape);
        let of = |x: &[f32]| x.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>();
        let buffer = |slot: &postlude::args::Slot| match &slot.kind {
            SlotKind::Memory { written: true, .. } => vec![0xff; 4 * x.len()],
            _ => of(if &*slot.name == "y" { y } else { x }),
        };
        let before: Vec<Vec<u8>> = slots.iter().map(buffer).collect();
        let [launched, _] = program.launch(&slots, shape, 1, &before, 0.0).unwrap_or_else(|fault| panic!("{fault}"));
        let written = slots.iter().zip(&launched).filter(|(slot, _)| matches!(slot.kind, SlotKind::Memory { written: true, .. }));
        for (i, (_, bytes)) in written.enumerate() {
            let values = bytes.chunks(4).map(|b| f32::from_le_bytes(b.try_into().unwrap()));
            match found.get_mut(i) {
                Some(all) => all.extend(values),
                None => found.push(values.collect()),
            }
        }
    }
    Some(found)
}

/// The largest of some numbers, and where.
#[derive(Default)]
struct Worst(f64, [f32; 2]);

impl Worst {
    fn take(&mut self, value: f64, at: [f32; 2]) {
        if value > self.0 || value.is_nan() {
            *self = Worst(if value.is_nan() { f64::INFINITY } else { value }, at);
        }
    }
}

/// The error of a value: 0 where the value is the exact one rounded to `f32`, infinite where exactly one of both is NaN.
fn off(found: f32, exact: f64) -> f64 {
    let rounded = exact as f32;
    let same = rounded == found || rounded.is_nan() && found.is_nan();
    let error = (f64::from(found) - exact).abs();
    if same {
        0.0
    } else if error.is_nan() {
        f64::INFINITY
    } else {
        error
    }
}

#[test]
fn primitives_hold_what_the_table_states() {
    let (edges, points) = (edges(), points());
    let of = |operand: usize, points: &[f32]| -> Vec<f32> {
        let all = edges.iter().map(|edge| edge[operand]).chain(points.iter().copied());
        all.take((edges.len() + points.len()) / COLUMNS * COLUMNS).collect()
    };
    let (x, y) = (of(0, &points), of(1, &partners(&points)));
    let apply = |graph: &mut Graph, op: Op, [x, y]: [NodeId; 2]| {
        let args = [x, y];
        graph.apply(op, &args[..op.row().signature.arity()])
    };
    let epilogue = epilogue(|graph, args| {
        let of = |op: Op| (op.name().to_owned(), op);
        fast().into_iter().map(of).map(|(name, op)| (name, apply(graph, op, args))).collect()
    });
    let mut failures = Vec::new();
    for tilt in [-1, 0, 1] {
        let Some(found) = run("fast_primitives", &epilogue, tilt, &x, &y) else { return };
        for (op, found) in fast().into_iter().zip(&found) {
            let (row, mut relative, mut excess, mut tested) = (op.row(), Worst::default(), Worst::default(), 0);
            let fast = row.fast.unwrap();
            // Whatever the operand is, in the domain or not.
            let is_bounded = matches!(op, Op::Sin | Op::Cos | Op::Sinpi | Op::Cospi | Op::Tanh | Op::Erf);
            assert!(!is_bounded || !found.iter().any(|y| y.abs() > 1.0), "{} exceeds 1", row.name);
            let inside = |operand: usize, x: f32| Row::intervals(fast.domain, operand).iter().any(|[a, b]| *a <= x && x <= *b);
            for i in 0..x.len() {
                let is_binary = row.signature.arity() == 2;
                // Pairs of finite numbers are special; infinity and NaN are special alone.
                let is_edge = i < edges.len() && !(is_binary && !(x[i].is_finite() && y[i].is_finite()));
                if !is_edge && !(inside(0, x[i]) && (!is_binary || inside(1, y[i]))) {
                    continue;
                }
                let at = [x[i], y[i]];
                let exact = (row.eval)(&at.map(f64::from)[..row.signature.arity()]);
                let error = off(found[i], exact);
                excess.take((error - fast.absolute).min(error - fast.relative * exact.abs()), at);
                relative.take(if error > fast.absolute { error / exact.abs() } else { 0.0 }, at);
                tested += 1;
            }
            let Worst(found, at) = relative;
            println!("{:<8} {tilt:>2} {found:.2e} of {:.1e} at {at:?} ({tested})", row.name, fast.relative);
            assert!(tested > 2000, "{}: {tested} points", row.name);
            if excess.0 > 0.0 {
                failures.push(format!("{}: {:.2e} too much at {:?}", row.name, excess.0, excess.1));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// The size of a unit in the last place of an `f16` at a value.
fn unit(exact: f64) -> f64 {
    2f64.powf(exact.abs().log2().floor() - 10.0).max(2f64.powi(-24))
}

/// Units of `f16` that an activation may be off by, those of the smallest values included. Half of one is lost where it
/// is stored.
fn units(name: &str) -> Option<f64> {
    match name {
        "gelu" | "gelu_erf" | "elu" | "selu" | "celu" => Some(0.08),
        "softplus" | "mish" | "log_sigmoid" | "silu" | "sigmoid" => Some(0.02),
        _ => None,
    }
}

/// Activations are as far off as their primitives: absolute up to 1, relative beyond. `f16` is off by 2.4e-4 there.
#[test]
fn activations_are_nearer_than_16_bits_tell() {
    let x: Vec<f32> = points().into_iter().filter(|x| x.abs() <= 30.0).collect();
    let x = &x[..x.len() / COLUMNS * COLUMNS];
    let y = vec![0.0; x.len()];
    let call = |graph: &mut Graph, function: &'static postlude::ir::Function, x: NodeId| {
        let mut args = vec![x];
        args.extend([1.25, 0.75].iter().take(function.parameters.len() - 1).map(|p| graph.constant_f32(*p)));
        graph.push(Node::Call { function, args }, None)
    };
    let epilogue = epilogue(|graph, [x, y]| {
        let mut values: Vec<_> = activation::ALL.iter().map(|f| (f.name.to_owned(), call(graph, f, x))).collect();
        values.push(("unused".into(), y));
        values
    });
    let shape = Shape::new(x.len() / COLUMNS, COLUMNS, 0);
    let mut outputs = vec![vec![0f32; x.len()]; activation::ALL.len() + 1];
    let mut args = HostArgs::new().input("a", x).input("y", &y);
    for (name, output) in activation::ALL.iter().map(|f| f.name).chain(["unused"]).zip(&mut outputs) {
        args = args.output(name, output);
    }
    let operation = Operation::Pointwise { dtype: F32, order: Order::RowMajor };
    let oracle = postlude::reference::oracle(operation, epilogue.checked(), shape, &args).unwrap();
    drop(args);
    for tilt in [-1, 1] {
        let Some(found) = run("fast_activations", &epilogue, tilt, x, &y) else { return };
        for ((function, found), exact) in activation::ALL.iter().zip(&found).zip(&oracle.outputs) {
            let (mut worst, mut narrow) = (Worst::default(), Worst::default());
            for i in 0..x.len() {
                let exact = exact.values[i];
                narrow.take(off(found[i], exact) / unit(exact), [x[i], found[i]]);
                worst.take(off(found[i], exact) / exact.abs().max(1.0), [x[i], found[i]]);
            }
            println!("{:<20} {tilt:>2} {:.2e} at {:?}, {:.3} units of f16", function.name, worst.0, worst.1, narrow.0);
            let most = units(function.name).unwrap_or(f64::INFINITY);
            assert!(narrow.0 <= most, "{}: {} units at {:?}", function.name, narrow.0, narrow.1);
            assert!(worst.0 <= 3e-5, "{}: {:.2e} at {:?}", function.name, worst.0, worst.1);
        }
    }
}
