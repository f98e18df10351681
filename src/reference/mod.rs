//! The CPU reference: it *defines* the meaning of an epilogue.
//!
//! Every other way to run a graph is measured against this one. It uses no device, plan or kernel. It replaces calls by
//! their bodies, walks the graph node by node, and computes every element of every output from the rows of the
//! [table](crate::ir::op).
//!
//! # The meaning of a graph
//!
//! For every output element (row, column, batch):
//!
//! 1. **The accumulator** is `sum over k of a[row, k] * b[k, column]`. Floating-point operands are widened to `f32`
//!    without loss, and multiplied and accumulated in `f32`, in an unspecified order (the product is a blocked `f32`
//!    GEMM). `f64` operands are multiplied and accumulated in `f64`. Integers multiply and accumulate in `i32` and
//!    wrap. With K = 0 the accumulator is zero. For a pointwise operation it is the element of `a` itself.
//!    An operand of eight or four bits beside one of 16 is widened like the other. With [scales](crate::problem::Blocks) along
//!    K an element is `(stored - zero) * scale`, rounded once to `f32`.
//!    A convolution's `a[row, k]` is the pixel under the window of the row's output pixel at the tap and channel of k, and 0
//!    beyond the image. Its `b[k, column]` is the column's filter there. The column's group says which channels those are.
//!    An attention's `a[row, k]` is the weight of a key for the row's query: the softmax of `scale * (query . key)` over the keys
//!    of the query's sequence that it sees. It is computed in `f64` and rounded once to `f32`, and 0 for other keys. Values
//!    of other sequences do not take part. With a [function of scores](crate::Scores) each score is rounded to `f32`, and the
//!    softmax is that of the function's results. Keys whose result is minus infinity have weight 0; if all have, so has the row.
//! 2. **Every node** has one value. A load is the operand's element at the coordinates that it varies along, widened.
//!    If the launch leaves the operand out, every element is the default, rounded to the operand's format. A coordinate
//!    is an `i32`, counted from the launch's origin. A primitive is its row's value, computed in `f64` and rounded once
//!    to `f32` unless it is an `f64`, or computed in wrapping `i32` arithmetic if its operands are integers. A
//!    reduction inside the graph combines its operand's elements along its axes, every element of the output once. It
//!    is computed in `f64`, like that of a sink, and rounded once to `f32` unless it is an `f64`. So a value never
//!    depends on what is stored.
//! 3. **Every store** rounds its value once, to nearest even, to the format of its operand, and writes it at the
//!    element's place. If a matrix is loaded and stored under one name, each element is read before it is written. A
//!    matrix that the batch shares is written once. In a bit format the bits from a run's end to the end of its last
//!    byte become 0.
//! 4. **Every reduction** combines its value's elements along the axes that its operand does not vary along, in `f64`,
//!    and rounds the result once to the operand's format. A product that is summed is not rounded before; integers
//!    wrap. An accumulating reduction takes the number in memory as one more element. A sum of an operand's elements
//!    goes over K, and over the batch unless its result is batched, also in `f64`.
//!
//! No other memory changes: neither the elements between one row's end and the next row, nor anything if an argument
//! does not fit. If M, N or the batch is empty, only reductions over an axis without extent write, and they write
//! identities.
//!
//! # The oracle
//!
//! [`Precision::F64`] omits every rounding except the last: the product and each primitive are computed in `f64`.
//! [`oracle`] omits the last rounding, too. It returns the values themselves, with the magnitude of each sum, so that a
//! test can bound the error of an `f32` evaluation.

mod attention;
mod eval;
mod gemm;
mod memory;
mod piece;
mod precision;
mod reduce;
mod rows;
mod tile;

pub use precision::Precision;

use crate::args::{
    ArgumentError, ArgumentErrors, ArgumentFault, Bound, HostArgs, Misfit, bind, fit_extents, fit_operation, slots,
};
use crate::check::Checked;
use crate::dtype::DType;
use crate::ir::axes::{Axes, L, M, N};
use crate::ir::{Node, Reduction, Sink, SinkKind};
use crate::pass::inline;
use crate::problem::{Operation, Shape};
use memory::{Arguments, Format, Strides};
use piece::Source;
use reduce::Reducer;
use rows::Rooms;
use std::sync::Arc;
use tile::{Counter, Job, Output, Targets, Task};

/// Evaluates an epilogue over an operation and writes its outputs.
///
/// ```
/// use postlude::prelude::*;
/// use postlude::Operation;
/// use postlude::reference::{Precision, run};
/// let epilogue = Epilogue::build(|e| e.store("d", (e.acc() + e.load("bias", F32.over(N))).relu(), F32))?;
/// let (a, b, bias) = ([1.0f32, 2.0, 3.0, 4.0], [1.0f32, 0.0, 0.0, 1.0], [-2.0f32, 0.5]);
/// let mut d = [0.0f32; 4];
/// let args = HostArgs::new().input("a", &a[..]).input("b", &b[..]).input("bias", &bias[..]).output("d", &mut d[..]);
/// run(Operation::product(F32, TT), epilogue.checked(), Shape::new(2, 2, 2), args, Precision::F32)?;
/// assert_eq!(d, [0.0, 2.5, 1.0, 4.5]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// Every argument that is missing, unknown or does not fit. Then nothing is written.
pub fn run(
    operation: Operation,
    epilogue: &Checked,
    shape: Shape,
    args: HostArgs<'_>,
    precision: Precision,
) -> Result<(), ArgumentErrors> {
    let bound = fit(operation, epilogue, shape, &args)?;
    let epilogue = &inline(epilogue);
    let task = Task { operation, epilogue, shape, precision };
    let mut rooms = Rooms::of(task);
    let mut arguments = Arguments::take(bound, args, epilogue, shape.batch);
    let done = rooms.reduce(task, &mut arguments);
    let mut targets = Targets::default();
    for sink in epilogue.graph().sinks() {
        let tensor = arguments.target(sink);
        let place = (tensor.memory, Format::Stored(tensor.dtype), tensor.strides);
        targets.add(epilogue, sink, &arguments, place);
    }
    Job::new(task, &arguments, targets, &done).run();
    Ok(())
}

impl Targets {
    /// Adds the target of a sink: an output, a reduction or counts.
    fn add(
        &mut self,
        epilogue: &Checked,
        sink: &Sink,
        arguments: &Arguments,
        (memory, format, strides): (usize, Format, Strides),
    ) {
        let source = Source::Value(sink.value());
        match sink.kind {
            SinkKind::Store(operand) => self.outputs.push(Output { source, memory, format, strides, axes: operand.axes }),
            SinkKind::Bincount(_) => {
                let (_, length) = arguments.table(&sink.name);
                self.counters.push(Counter { value: sink.value(), memory, format, length });
            }
            SinkKind::Reduce(Reduction { monoid, operand, .. }) => {
                let (value, factors) = (epilogue.type_of(sink.value()).value, epilogue.summed_product(monoid, sink.value()));
                let source = match epilogue.graph().node(sink.value()) {
                    Node::Element(side, _) => Source::Element(*side),
                    _ => factors.map_or(source, Source::Product),
                };
                let (axes, absolute, partials) = (operand.axes, false, Vec::new());
                let others = sink.values[1..].to_vec();
                let onto = sink.kind.accumulates().then(|| arguments.tensor(&sink.name, operand));
                let target = Reducer {
                    source,
                    others,
                    monoid,
                    absolute,
                    value,
                    axes,
                    band: None,
                    memory,
                    format,
                    strides,
                    onto,
                    partials,
                };
                self.reducers.push(target);
            }
        }
    }
}

/// The result of [`oracle`]: the value of every stored element before it is rounded.
#[derive(Clone, Debug)]
pub struct Oracle {
    /// One for each sink, in their order.
    pub outputs: Vec<Exact>,
    /// `sum over k of |a[row, k] * b[k, column]|`. The rounding error of the accumulator is proportional to it. It is 0
    /// if the accumulator is exact (integers, pointwise operations).
    pub magnitude: Exact,
    /// For each reduction among the sinks that adds numbers, under its name, the same reduction of its terms' absolute
    /// values. The rounding error of the sum is proportional to it.
    pub sums: Vec<Exact>,
}

/// One matrix of `f64` values for each batch entry, or the part of it along the axes of a reduction's result.
#[derive(Clone, Debug, PartialEq)]
pub struct Exact {
    /// The name of the output.
    pub name: Arc<str>,
    /// The values: entry after entry, each row-major and contiguous. An axis along which they do not vary has extent 1.
    pub values: Vec<f64>,
    strides: Strides,
}

impl Exact {
    fn new(name: &str, shape: Shape, kind: SinkKind) -> Exact {
        let axes = kind.operand().axes;
        let along = |axis, extent| if axes.contains(axis) { extent } else { 1 };
        let (rows, columns) = (along(M, shape.m), along(N, shape.n));
        // A store without batch entries writes nothing. A reduction without batch entries gives an identity.
        let stored = matches!(kind, SinkKind::Store(_));
        let entries = if axes.contains(L) || stored && shape.batch == 0 { shape.batch } else { 1 };
        let stride = |axis, stride| if axes.contains(axis) { stride } else { 0 };
        let strides = Strides { row: stride(M, columns), column: stride(N, 1), batch: stride(L, rows * columns), sequence: 0 };
        Exact { name: name.into(), values: vec![0.0; rows * columns * entries], strides }
    }

    /// The value at an element.
    ///
    /// # Panics
    /// If it lies outside the output.
    pub fn at(&self, row: usize, column: usize, batch: usize) -> f64 {
        self.values[self.strides.index(row, column, batch)]
    }
}

impl Oracle {
    /// The output of that name.
    pub fn output(&self, name: &str) -> Option<&Exact> {
        self.outputs.iter().find(|o| &*o.name == name)
    }
}

/// Evaluates in [`Precision::F64`] and returns the stored values unrounded. It takes the arguments of [`run`],
/// including outputs, and writes none of them.
///
/// # Errors
/// Those of [`run`].
pub fn oracle(operation: Operation, epilogue: &Checked, shape: Shape, args: &HostArgs<'_>) -> Result<Oracle, ArgumentErrors> {
    let bound = fit(operation, epilogue, shape, args)?;
    let epilogue = &inline(epilogue);
    let task = Task { operation, epilogue, shape, precision: Precision::F64 };
    let mut rooms = Rooms::of(task);
    let sinks = epilogue.graph().sinks();
    let mut outputs: Vec<Exact> = sinks.iter().map(|s| Exact::new(&s.name, shape, s.kind)).collect();
    let mut magnitude = Exact::new("magnitude", shape, SinkKind::Store(DType::F32.into()));
    let mut targets = Targets::default();
    let mut arguments = Arguments::view(bound, args, shape.batch);
    let done = rooms.reduce(task, &mut arguments);
    for (sink, exact) in sinks.iter().zip(&mut outputs) {
        if let SinkKind::Bincount(_) = sink.kind {
            exact.values = arguments.counts(&sink.name);
        }
        let memory = arguments.push(bytemuck::cast_slice_mut(&mut exact.values));
        targets.add(epilogue, sink, &arguments, (memory, Format::Exact, exact.strides));
    }
    let is_sum = |s: &&Sink| {
        let sum = matches!(s.kind, SinkKind::Reduce(Reduction { monoid, .. }) if monoid.adds());
        sum && epilogue.type_of(s.value()).value.is_float()
    };
    let mut sums: Vec<Exact> = sinks.iter().filter(is_sum).map(|s| Exact::new(&s.name, shape, s.kind)).collect();
    for (sink, exact) in sinks.iter().filter(is_sum).zip(&mut sums) {
        let memory = arguments.push(bytemuck::cast_slice_mut(&mut exact.values));
        targets.add(epilogue, sink, &arguments, (memory, Format::Exact, exact.strides));
        targets.reducers.last_mut().into_iter().for_each(|reducer| reducer.absolute = true);
    }
    // An exact accumulator has no magnitude, so the values stay 0.
    if operation.multiplies() && operation.accumulator().is_float() {
        let strides = magnitude.strides;
        let memory = arguments.push(bytemuck::cast_slice_mut(&mut magnitude.values));
        targets.outputs.push(Output { source: Source::Magnitude, memory, format: Format::Exact, strides, axes: Axes::MNL });
    }
    Job::new(task, &arguments, targets, &done).run();
    Ok(Oracle { outputs, magnitude, sums })
}

/// Matches the arguments to the needs of the operation and the epilogue. The result names each.
fn fit(
    operation: Operation,
    epilogue: &Checked,
    shape: Shape,
    args: &HostArgs<'_>,
) -> Result<Vec<(Arc<str>, Bound)>, ArgumentErrors> {
    fit_operation(operation, epilogue).and_then(|()| fit_extents(operation, shape)).map_err(|misfit| {
        let name = if let Misfit::NoProduct { side } = misfit { side.name() } else { "a" };
        ArgumentErrors(vec![ArgumentError { name: name.into(), fault: ArgumentFault::Misfit(misfit) }])
    })?;
    let slots = slots(operation, epilogue, shape);
    let bound = bind(&slots, shape, &memory::claims(args))?;
    Ok(slots.into_iter().map(|s| s.name).zip(bound).collect())
}
