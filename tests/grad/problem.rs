//! A small problem for any epilogue: arguments, a loss, and its gradients in two ways.

use crate::pairs::{detached, everything};
use postlude::check::{Argument, Role};
use postlude::dtype::ValueType;
use postlude::grad::{Pair, Wrt};
use postlude::ir::axes::{L, M, N};
use postlude::ir::{Operand, Order};
use postlude::reference::{Precision, oracle, run};
use postlude::{DType, Epilogue, HostArgs, Operation, Shape, Tensor};
use std::collections::BTreeMap;

pub const SHAPE: Shape = Shape::new(3, 5, 0).batched(2);
const ELEMENTS: usize = SHAPE.m * SHAPE.n * SHAPE.batch;
/// Elements of a table; some of the drawn small integers are outside of it.
const TABLE: usize = 3;

/// A step of differences: a power of two, so that `x + h` is exact.
const STEP: f64 = 1.0 / 512.0;

pub struct Numbers(pub u64);

impl Numbers {
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        self.0 >> 33
    }

    /// In (-2, 2), of few bits and never on a grid where kinks are.
    pub fn number(&mut self) -> f64 {
        (self.bits() % 4096) as f64 / 1024.0 - 2.0 + 1.0 / 2048.0
    }
}

/// Bytes of every argument and of `a`.
pub type Memory = BTreeMap<String, Vec<u8>>;

pub struct Problem {
    pub epilogue: Epilogue,
    pub pair: Pair,
    /// Inputs of the forward epilogue.
    pub inputs: Memory,
    pub scalars: BTreeMap<String, f64>,
    /// Incoming gradients by output.
    pub weights: BTreeMap<String, Vec<f64>>,
}

/// Elements of a contiguous operand, with room for the runs of bit masks.
fn elements(operand: Operand) -> usize {
    let along = |axis, extent| if operand.axes.contains(axis) { extent } else { 1 };
    let (m, n, batch) = (along(M, SHAPE.m), along(N, SHAPE.n), along(L, SHAPE.batch));
    let (outer, inner) = if operand.order == Order::RowMajor { (m, n) } else { (n, m) };
    outer * inner.next_multiple_of(operand.dtype.run()) * batch
}

fn filled(operand: Operand, mut value: impl FnMut() -> f64) -> Vec<u8> {
    let count = elements(operand);
    let mut bytes = vec![0; operand.dtype.bytes(count)];
    (0..count).for_each(|i| operand.dtype.write(&mut bytes, i, value()));
    bytes
}

fn operation(epilogue: &Epilogue) -> Operation {
    let dtype = epilogue.checked().accumulator().unwrap_or(ValueType::F32).storage();
    Operation::Pointwise { dtype, order: Order::RowMajor }
}

impl Problem {
    /// Random arguments, and the pair for everything that has a gradient; saved values are `f32`.
    pub fn new(epilogue: &Epilogue, seed: u64) -> Problem {
        Problem::with(epilogue, everything(epilogue), seed)
    }

    pub fn with(epilogue: &Epilogue, wrt: Wrt, seed: u64) -> Problem {
        let pair = epilogue.backward(wrt).unwrap_or_else(|e| panic!("{e}\n{epilogue}"));
        let mut numbers = Numbers(seed);
        let (mut inputs, mut scalars, mut weights) = (Memory::new(), BTreeMap::new(), BTreeMap::new());
        let mut value = |dtype: DType| match dtype.value_type() {
            ValueType::F32 | ValueType::F64 => numbers.number(),
            ValueType::I32 => (numbers.bits() % 9) as f64 - 4.0,
            ValueType::Bool => (numbers.bits() % 2) as f64,
        };
        let accumulator = operation(epilogue).dtype();
        inputs.insert("a".into(), filled(accumulator.into(), || value(accumulator)));
        for Argument { name, role, .. } in epilogue.arguments() {
            match role {
                Role::Scalar(t) => {
                    scalars.insert(name.to_string(), value(t.storage()));
                }
                Role::Input(operand) | Role::Update(operand) => {
                    inputs.insert(name.to_string(), filled(*operand, || value(operand.dtype)));
                }
                Role::Table(dtype) => {
                    let mut bytes = vec![0; dtype.bytes(TABLE)];
                    (0..TABLE).for_each(|index| dtype.write(&mut bytes, index, value(*dtype)));
                    inputs.insert(name.to_string(), bytes);
                }
                Role::Output(_) | Role::Counts(_) => {}
            }
        }
        let left_out = detached(epilogue);
        for sink in epilogue.graph().sinks().iter().filter(|s| !left_out.iter().any(|n| **n == *s.name)) {
            let operand = sink.kind.operand();
            if operand.dtype.value_type().is_float() {
                weights.insert(sink.name.to_string(), (0..elements(operand)).map(|_| value(DType::F32)).collect());
            }
        }
        Problem { epilogue: epilogue.clone(), pair, inputs, scalars, weights }
    }

    /// The same where the accumulator is 0, at which formulas that are put together from two halves meet; weights are
    /// not so small there that a kink would look smooth.
    pub fn at_zero(mut self) -> Problem {
        self.inputs.get_mut("a").expect("the accumulator").fill(0);
        self.weights.values_mut().flatten().for_each(|w| *w = w.abs().max(0.5).copysign(*w));
        self
    }

    /// Arguments over inputs and over room for outputs.
    fn args<'m>(&self, epilogue: &Epilogue, inputs: &'m Memory, outputs: &'m mut Memory) -> HostArgs<'m> {
        self.args_over(operation(epilogue).dtype(), epilogue, inputs, outputs)
    }

    /// The same where the accumulator has this format.
    fn args_over<'m>(&self, a: DType, epilogue: &Epilogue, inputs: &'m Memory, outputs: &'m mut Memory) -> HostArgs<'m> {
        let mut args = HostArgs::new();
        args = args.input("a", Tensor::of_bytes(a, &inputs["a"]));
        let mut room: BTreeMap<&str, &mut Vec<u8>> = outputs.iter_mut().map(|(n, b)| (n.as_str(), b)).collect();
        for Argument { name, role, .. } in epilogue.arguments() {
            args = match role {
                Role::Scalar(ValueType::F32) => args.scalar(name, self.scalars[&**name] as f32),
                Role::Scalar(ValueType::F64) => args.scalar(name, self.scalars[&**name]),
                Role::Scalar(ValueType::I32) => args.scalar(name, self.scalars[&**name] as i32),
                Role::Scalar(ValueType::Bool) => args.scalar(name, self.scalars[&**name] != 0.0),
                Role::Counts(_) => unreachable!("the graphs of these tests count nothing"),
                Role::Table(dtype) | Role::Input(Operand { dtype, .. }) => match inputs.get(&**name) {
                    Some(bytes) => args.input(name, Tensor::of_bytes(*dtype, bytes)),
                    None => args,
                },
                Role::Output(operand) | Role::Update(operand) => match room.remove(&**name) {
                    Some(bytes) => args.output(name, Tensor::of_bytes_mut(operand.dtype, bytes)),
                    None => args,
                },
            };
        }
        args
    }

    /// Memory for an epilogue's outputs: updates are initialised, the rest is poisoned.
    fn room(epilogue: &Epilogue, inputs: &Memory) -> Memory {
        let written = epilogue.arguments().iter().filter(|a| a.role.is_written());
        let room = written.map(|a| {
            let operand = a.role.operand().expect("what is written is memory");
            let poison = || vec![0xff; operand.dtype.bytes(elements(operand))];
            (a.name.to_string(), inputs.get(&*a.name).cloned().unwrap_or_else(poison))
        });
        room.collect()
    }

    /// The weighted sum of all outputs, in `f64`.
    pub fn loss(&self, inputs: &Memory) -> f64 {
        let mut room = Problem::room(&self.epilogue, inputs);
        let args = self.args(&self.epilogue, inputs, &mut room);
        let exact = oracle(operation(&self.epilogue), self.epilogue.checked(), SHAPE, &args).unwrap_or_else(|e| panic!("{e}"));
        let mut loss = 0.0;
        for (sink, output) in self.epilogue.graph().sinks().iter().zip(&exact.outputs) {
            let Some(weights) = self.weights.get(&*sink.name) else { continue };
            let places = places(sink.kind.operand());
            loss += output.values.iter().enumerate().map(|(i, x)| x * weights[places[i]]).sum::<f64>();
        }
        loss
    }

    /// The results of the pair's forward epilogue: its outputs and its saved values.
    pub fn forward(&self) -> (Memory, postlude::grad::Reserve<Vec<u8>>) {
        let forward = self.pair.forward();
        let mut room = Problem::room(forward, &self.inputs);
        room.retain(|name, _| !name.contains('@'));
        let mut reserve = self.pair.reserve().allocate(SHAPE);
        let args = self.args(forward, &self.inputs, &mut room).saving(&mut reserve);
        run(operation(forward), forward.checked(), SHAPE, args, Precision::F64).unwrap_or_else(|e| panic!("{e}\n{forward}"));
        (room, reserve)
    }

    /// Every gradient, in `f64`, in the order of its operand in memory.
    pub fn gradients(&self) -> BTreeMap<String, Vec<f64>> {
        let (left, reserve) = self.forward();
        let backward = self.pair.backward();
        // Values that the forward pass overwrote are lost.
        let mut inputs = self.inputs.clone();
        inputs.extend(left);
        let mut incoming = DType::F32;
        for (name, weights) in &self.weights {
            let sink = self.epilogue.graph().sinks().iter().find(|s| *s.name == **name).expect("a sink");
            let (name, operand) = if name == self.pair.through() {
                // The accumulator is row-major.
                ("a".to_owned(), Operand { order: Order::RowMajor, ..sink.kind.operand() })
            } else {
                (format!("upstream_{name}"), sink.kind.operand())
            };
            let from = places(sink.kind.operand());
            let to = places(operand);
            let dtype = operand.dtype.value_type().storage();
            let mut bytes = vec![0; dtype.bytes(weights.len())];
            from.iter().zip(&to).for_each(|(from, to)| dtype.write(&mut bytes, *to, weights[*from]));
            assert!(name == "a" || operand.dtype == dtype, "incoming gradients are f32 or f64 here");
            if name == "a" {
                incoming = dtype;
            }
            inputs.insert(name, bytes);
        }
        let mut room = Problem::room(backward, &Memory::new());
        let args = self.args_over(incoming, backward, &inputs, &mut room).saved(&reserve);
        let operation = Operation::Pointwise { dtype: incoming, order: Order::RowMajor };
        let exact = oracle(operation, backward.checked(), SHAPE, &args).unwrap_or_else(|e| panic!("{e}\n{backward}"));
        let sinks = backward.graph().sinks().iter().zip(exact.outputs);
        sinks
            .map(|(sink, exact)| {
                let places = places(sink.kind.operand());
                let mut values = vec![0.0; elements(sink.kind.operand())];
                exact.values.iter().enumerate().for_each(|(i, x)| values[places[i]] = *x);
                (sink.name.to_string(), values)
            })
            .collect()
    }

    /// The derivative of the loss by one element; `None` at a kink or a jump, or where it is steep or no number.
    pub fn difference(&mut self, name: &str, dtype: DType, index: usize) -> Option<f64> {
        let at = |this: &mut Problem, offset: f64| match this.scalars.get(name).copied() {
            Some(x) => {
                this.scalars.insert(name.into(), x + offset);
                let loss = this.loss(&this.inputs);
                this.scalars.insert(name.into(), x);
                loss
            }
            None => {
                let mut inputs = this.inputs.clone();
                let bytes = inputs.get_mut(name).expect("an input");
                let x = dtype.read(bytes, index);
                dtype.write(bytes, index, x + offset);
                this.loss(&inputs)
            }
        };
        let h = STEP;
        let y = [-2.0, -1.0, -0.5, -0.25, 0.0, 0.25, 0.5, 1.0, 2.0].map(|s| at(self, s * h));
        let wide = (8.0 * (y[7] - y[1]) - (y[8] - y[0])) / (12.0 * h);
        let narrow = (8.0 * (y[6] - y[2]) - (y[7] - y[1])) / (6.0 * h);
        let narrower = (8.0 * (y[5] - y[3]) - (y[6] - y[2])) / (3.0 * h);
        let (left, right) = ((y[4] - y[3]) / (0.25 * h), (y[5] - y[4]) / (0.25 * h));
        let scale = 1.0 + narrow.abs();
        let smooth = (wide - narrow).abs() <= 1e-6 * scale
            && (narrow - narrower).abs() <= 1e-6 * scale
            && (left - right).abs() <= 0.01 * (left.abs() + right.abs()) + 4.0 * h;
        let fits = y.iter().all(|y| y.abs() < 1e5) && smooth;
        fits.then_some(narrow)
    }

    fn accumulates(&self, name: &str) -> bool {
        self.epilogue.graph().sinks().iter().any(|s| *s.name == *name && s.kind.accumulates())
    }

    /// Compares gradients of elements (some of each argument) with differences; returns how many were smooth, and how many
    /// there were.
    pub fn check(&mut self, some: usize, tolerance: f64) -> (usize, usize) {
        let gradients = self.gradients();
        let (mut smooth, mut all) = (0, 0);
        let mut leaves = vec![("acc".to_owned(), "a".to_owned(), operation(&self.epilogue).dtype(), ELEMENTS)];
        for Argument { name, role, .. } in self.epilogue.arguments() {
            match role {
                Role::Scalar(value) if value.is_float() => leaves.push((name.to_string(), name.to_string(), value.storage(), 1)),
                // The present value of an accumulating reduction passes its gradient on unchanged, so it has none here.
                Role::Input(o) | Role::Update(o) if matches!(o.dtype, DType::F32 | DType::F64) && !self.accumulates(name) => {
                    leaves.push((name.to_string(), name.to_string(), o.dtype, elements(*o)));
                }
                _ => {}
            }
        }
        for (leaf, name, dtype, count) in leaves {
            let Some(found) = gradients.get(&format!("grad_{leaf}")) else {
                assert!(leaf == "acc" && self.epilogue.checked().accumulator() == Some(ValueType::I32), "no gradient of {leaf}");
                continue;
            };
            // The accumulator's gradient lies as its output does.
            let sink = self.pair.backward().graph().sinks().iter().find(|s| *s.name == *format!("grad_{leaf}")).expect("a sink");
            let (to, from) = (places(sink.kind.operand()), places(Operand { order: Order::RowMajor, ..sink.kind.operand() }));
            let step = count.div_ceil(some);
            for i in (0..count).step_by(step.max(1)) {
                all += 1;
                let at = if leaf == "acc" { from[i] } else { to[i] };
                let Some(expected) = self.difference(&name, dtype, at) else { continue };
                let got = found[to[i]];
                assert!(
                    (got - expected).abs() <= tolerance * (1.0 + expected.abs()),
                    "d/d{leaf}[{i}] is {got}, not {expected}\n{}\nforward\n{}\nbackward\n{}",
                    self.epilogue,
                    self.pair.forward(),
                    self.pair.backward()
                );
                smooth += 1;
            }
        }
        (smooth, all)
    }
}

/// For each element, in the order of rows, columns inside them, where it lies.
fn places(operand: Operand) -> Vec<usize> {
    let along = |axis, extent| if operand.axes.contains(axis) { extent } else { 1 };
    let (m, n, batch) = (along(M, SHAPE.m), along(N, SHAPE.n), along(L, SHAPE.batch));
    let mut out = Vec::new();
    for l in 0..batch {
        for i in 0..m {
            for j in 0..n {
                let inside = if operand.order == Order::RowMajor { i * n + j } else { j * m + i };
                out.push(l * m * n + inside);
            }
        }
    }
    out
}
