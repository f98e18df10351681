//! How far an element may be from the oracle.
//!
//! The oracle gives the stored value `y` before its last rounding. The kernel's accumulator differs from the exact one
//! by rounding errors, bounded by the sum of the magnitudes of its K elements. Their effect on the epilogue is found by
//! evaluating it once more with the accumulator at either end of its interval. A few roundings of the epilogue itself,
//! or the error of its approximations, are added. An element passes if it lies between the two ends, each rounded to
//! the output's format.

use crate::case::Case;
use crate::layout::Buffer;
use postlude::args::{HostArgs, Tensor};
use postlude::check::Checked;
use postlude::dtype::ValueType;
use postlude::ir::axes::{L, M, N};
use postlude::ir::{Graph, Monoid, Node, NodeId, Order, Reduction, Sink, SinkKind};
use postlude::reference::{self, Exact, Oracle, Precision};
use postlude::{DType, Epilogue, Operation, Shape};

/// The tolerance of an epilogue.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The relative error of the elements of an operand that a copy rounds.
    pub copied: f64,
    /// Whether all of it is computed in `f64`. The oracle is too, and is as far off.
    pub double: bool,
    /// Whether approximations were used.
    pub fast: bool,
    /// Whether `f32` operands of more than 11 bits went through the tensor cores.
    pub tf32: bool,
    /// Whether tensor cores summed floating-point numbers of eight bits, a few terms at a time.
    pub coarse: bool,
    /// A factor on the epilogue's own error.
    pub slack: f64,
    /// Whether `f32` elements may be anything where the CPU's are far off, too: beside poles, and where large values cancel. They
    /// have to be few.
    pub steep: bool,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { copied: 0.0, double: false, fast: false, tf32: false, coarse: false, slack: 1.0, steep: false }
    }
}

impl Limits {
    /// Absolute for values up to 1, relative beyond.
    fn epilogue(&self) -> f64 {
        let own = if self.fast { 5e-5 } else { 1e-6 };
        self.slack * if self.double { 1e-14 } else { own }
    }

    /// The error of a rounding, relative to the number.
    fn epsilon(&self) -> f64 {
        if self.double { f64::EPSILON } else { f64::from(f32::EPSILON) }
    }

    /// Rounding errors of a sum of `k` products, relative to the sum of magnitudes.
    fn accumulator(&self, operation: Operation, k: usize) -> f64 {
        let tf32 = self.tf32 && operation.dtype() == DType::F32;
        // Each addition rounds once, in the tensor cores towards zero; tf32 operands are rounded to 11 bits first.
        (k + 4) as f64 * self.epsilon() * if self.double { 2.0 } else { 1.0 }
            + if tf32 { 2.0 * 2f64.powi(-11) } else { 0.0 }
            + if self.coarse { COARSE } else { 0.0 }
            + self.copied
    }
}

/// Compares every written buffer with the oracle.
pub fn compare(case: &Case, given: &[Buffer], got: &[Buffer], limits: Limits) -> Result<(), String> {
    let expected = Expected::of(case, given, limits)?;
    for buffer in got.iter().filter(|b| b.written) {
        let strayed = buffer.strayed();
        if !strayed.is_empty() {
            return Err(format!(
                "`{}`: {} bytes that are no element were written, first {}",
                buffer.name,
                strayed.len(),
                strayed[0]
            ));
        }
        let (mut wrong, mut count, mut all, mut steep) = (Vec::new(), 0usize, 0usize, 0usize);
        for (at, value) in buffer.elements() {
            let at = expected.place(&buffer.name, at);
            let (exact, range) = expected.range(&buffer.name, at, buffer.dtype);
            all += 1;
            steep += usize::from(matches!(range, Range::Steep));
            if !range.holds(value) {
                count += 1;
                if wrong.len() < 12 {
                    wrong.push(format!(
                        "  batch {}, row {}, column {}: {value}, expected {exact} in {range:?}",
                        at[0], at[1], at[2]
                    ));
                }
            }
        }
        if count > 0 {
            return Err(format!("`{}`: {count} of {all} elements are wrong\n{}", buffer.name, wrong.join("\n")));
        }
        if steep > 2 + all / MOST_ARE_NOT {
            return Err(format!("`{}`: {steep} of {all} elements are too steep to be compared", buffer.name));
        }
    }
    Ok(())
}

/// What a sum of 128 terms may be off by that tensor cores cut off at 13 bits, relative to the sum of their magnitudes:
/// four times what terms of one sign were measured to come to.
const COARSE: f64 = 2e-3;

/// One element in so many may be too steep.
const MOST_ARE_NOT: usize = 10;

/// The share of a kernel's tolerance by which `f32` on the CPU may be off before the element counts as too steep. Both
/// make errors of a similar size, and either may be lucky.
const SHARE: f64 = 1.0 / 64.0;

/// Values that pass.
#[derive(Clone, Copy, Debug)]
enum Range {
    Nan,
    Anything,
    /// Anything, since nothing can be said about it.
    Steep,
    Between(f64, f64),
}

impl Range {
    fn holds(self, value: f64) -> bool {
        match self {
            Range::Nan => value.is_nan(),
            Range::Anything | Range::Steep => true,
            Range::Between(low, high) => low <= value && value <= high,
        }
    }
}

struct Expected {
    exact: Oracle,
    /// With the accumulator at either end of its interval.
    ends: Vec<Oracle>,
    /// The definition's result, in `f32`.
    defined: Vec<Buffer>,
    limits: Limits,
    shape: Shape,
    /// The results of reductions, by name.
    reductions: Vec<(String, Reduction)>,
    /// The names of the sums of operands among these.
    summed: Vec<String>,
    /// Counts. An index near a border falls on either side of it; `counts.rs` compares them with the indices.
    counted: Vec<String>,
    /// How far each accumulator may be off.
    errors: Option<Exact>,
}

/// How steep an epilogue may be over its accumulator, where reductions are concerned.
const STEEPEST: f64 = 2.0;

impl Expected {
    fn of(case: &Case, given: &[Buffer], limits: Limits) -> Result<Expected, String> {
        let (operation, checked) = (case.gemm.operation(), case.gemm.epilogue().checked());
        let mut buffers = given.to_vec();
        let exact = reference::oracle(operation, checked, case.shape, &case.host(&mut buffers)).map_err(|e| e.to_string())?;
        let mut defined = given.to_vec();
        reference::run(operation, checked, case.shape, case.host(&mut defined), Precision::F32).map_err(|e| e.to_string())?;
        let reductions = checked.graph().sinks().iter().filter_map(|sink| match sink.kind {
            SinkKind::Reduce(reduction) => Some((sink.name.to_string(), reduction)),
            SinkKind::Store(_) | SinkKind::Bincount(_) => None,
        });
        let summed = checked.graph().sinks().iter().filter(|s| matches!(checked.graph().node(s.value()), Node::Element(..)));
        let summed: Vec<String> = summed.map(|sink| sink.name.to_string()).collect();
        let counted = checked.graph().sinks().iter().filter(|sink| matches!(sink.kind, SinkKind::Bincount(_)));
        let counted = counted.map(|sink| sink.name.to_string()).collect();
        let (mut ends, mut errors) = (Vec::new(), None);
        let rest = without_sums(checked);
        if let Some(rest) = rest
            && rest.checked().accumulator().is_some_and(ValueType::is_float)
            && operation.accumulator().is_float()
        {
            let product = product(case, given)?;
            let (sums, magnitudes) = (&product.outputs[0], &product.magnitude);
            let error = limits.accumulator(operation, case.shape.k);
            for sign in [-1.0, 1.0] {
                let moved = sums
                    .values
                    .iter()
                    .zip(&magnitudes.values)
                    .map(|(sum, magnitude)| sum + sign * (error * magnitude + limits.epsilon() * sum.abs()));
                ends.push(pointwise(case, given, &rest, &moved.collect::<Vec<_>>())?);
            }
            let mut each = product.magnitude;
            for (each, sum) in each.values.iter_mut().zip(&product.outputs[0].values) {
                *each = error * *each + limits.epsilon() * sum.abs();
            }
            errors = Some(each);
        }
        let reductions = reductions.collect();
        Ok(Expected { exact, ends, defined, limits, shape: case.shape, reductions, summed, counted, errors })
    }

    fn reduction(&self, name: &str) -> Option<Reduction> {
        self.reductions.iter().find(|(other, _)| other == name).map(|(_, reduction)| *reduction)
    }

    /// Batch entry, row and column of a buffer's element: a vector over M is a column.
    fn place(&self, name: &str, [batch, row, column]: [usize; 3]) -> [usize; 3] {
        let over_rows = self.reduction(name).is_some_and(|r| r.operand.axes.without(L) == M);
        if over_rows { [batch, column, row] } else { [batch, row, column] }
    }

    /// How far the result of a reduction may be from the exact one, before it is rounded: what its elements are off by, each
    /// in its own direction, and the rounding errors of combining them.
    fn reduced(&self, name: &str, Reduction { monoid, operand, .. }: Reduction, at: [usize; 3], exact: f64) -> f64 {
        let Shape { m, n, k, batch } = self.shape;
        let epsilon = self.limits.epsilon();
        // Errors of rounding have either sign.
        let combining = |count: f64| (count.sqrt() + 8.0) * epsilon;
        let terms = self.exact.sums.iter().find(|sum| *sum.name == *name).map_or(0.0, |sum| sum.at(at[1], at[2], at[0]));
        if self.summed.iter().any(|summed| summed == name) {
            return combining((if operand.axes.contains(L) { k } else { k * batch }) as f64) * terms;
        }
        let range = |axis, at, extent| if operand.axes.contains(axis) { at..at + 1 } else { 0..extent };
        let (mut count, mut sum, mut squares, mut most) = (0.0f64, 0.0f64, 0.0f64, 0.0f64);
        for l in range(L, at[0], batch) {
            for i in range(M, at[1], m) {
                for j in range(N, at[2], n) {
                    let error = self.errors.as_ref().map_or(0.0, |errors| STEEPEST * errors.at(i, j, l));
                    (count, sum, most) = (count + 1.0, sum + error, most.max(error));
                    squares += error * error;
                }
            }
        }
        let (own, combining) = (self.limits.epilogue(), combining(count));
        match monoid {
            Monoid::Sum => sum + combining * terms + own * terms.max(count),
            Monoid::Product => exact.abs() * (own * count + combining),
            Monoid::LogSumExp => most + combining + own * exact.abs().max(1.0),
            Monoid::Max | Monoid::Min | Monoid::AbsMax => most + own * exact.abs().max(1.0),
            Monoid::Mean => sum / count + combining * terms + own * terms.max(1.0),
            // |x + e|^2 - |x|^2 is 2xe + e^2, by Cauchy and Schwarz.
            Monoid::SumSquares => 2.0 * (squares * exact).sqrt() + squares + combining * exact + own * exact.max(count),
            Monoid::Norm2 => squares.sqrt() + (combining + own) * exact.max(1.0),
            // Integers are compared as such.
            Monoid::Count | Monoid::ArgMax | Monoid::ArgMin => 0.0,
            // Those of the tests are at most squares of a spread.
            Monoid::Variance | Monoid::Custom(_) => {
                4.0 * most.max(most * exact.abs().sqrt()) + (combining + own) * exact.abs().max(1.0)
            }
        }
    }

    fn range(&self, name: &str, [batch, row, column]: [usize; 3], dtype: DType) -> (f64, Range) {
        if self.counted.iter().any(|counted| counted == name) {
            return (0.0, Range::Anything);
        }
        let at = |oracle: &Oracle| oracle.output(name).map_or(f64::NAN, |o: &Exact| o.at(row, column, batch));
        let exact = at(&self.exact);
        let [_, outer, inner] = self.place(name, [batch, row, column]);
        let defined = self.defined.iter().find(|b| b.name == name).map_or(f64::NAN, |b| b.at(batch, outer, inner));
        let mut values = vec![exact, defined];
        values.extend(self.ends.iter().filter(|end| end.output(name).is_some()).map(at));
        let nans = values.iter().filter(|v| v.is_nan()).count();
        if nans == values.len() {
            return (exact, Range::Nan);
        }
        if nans > 0 {
            return (exact, Range::Anything);
        }
        // What saturates is the same from there on.
        if dtype.is_eight_bits() {
            let [least, most] = [f64::NEG_INFINITY, f64::INFINITY].map(|x| dtype.round(x));
            values.iter_mut().for_each(|x| *x = x.clamp(least, most));
        }
        let (low, high) = values.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), v| (l.min(*v), h.max(*v)));
        // Between the ends the epilogue may bulge a little; and it rounds, or approximates.
        let bulge = if (high - low).is_finite() { 0.25 * (high - low) } else { 0.0 };
        let own = match dtype.value_type() {
            ValueType::Bool => return (exact, Range::Between(low, high)),
            ValueType::I32 if !dtype.is_eight_bits() => {
                return (exact, Range::Between((low - bulge).floor(), (high + bulge).ceil()));
            }
            ValueType::I32 | ValueType::F32 | ValueType::F64 => self.limits.epilogue(),
        };
        let (low, high) = (low - bulge, high + bulge);
        let too_steep = |error: f64| self.limits.steep && dtype == DType::F32 && (defined - exact).abs() > SHARE * error;
        if let Some(reduction) = self.reduction(name).filter(|_| exact.is_finite()) {
            let error = self.reduced(name, reduction, [batch, row, column], exact);
            if too_steep(error) {
                return (exact, Range::Steep);
            }
            return (exact, Range::Between(dtype.round(low - error), dtype.round(high + error)));
        }
        let around = |x: f64| if x.is_finite() { own * x.abs().max(1.0) } else { 0.0 };
        if exact.is_finite() && too_steep(around(exact)) {
            return (exact, Range::Steep);
        }
        (exact, Range::Between(dtype.round(low - around(low)), dtype.round(high + around(high))))
    }
}

/// Arguments with the scalars of some names.
fn with_scalars<'a>(case: &Case, args: HostArgs<'a>, is_wanted: impl Fn(&str) -> bool) -> HostArgs<'a> {
    let mut own = case.clone();
    own.scalars.retain(|name, _| is_wanted(name));
    own.with_scalars(args)
}

/// The accumulator and its magnitude.
fn product(case: &Case, given: &[Buffer]) -> Result<Oracle, String> {
    let dtype = case.gemm.operation().accumulator().storage();
    let identity = Epilogue::build(|e| e.store("d", if dtype == DType::F64 { e.acc_f64() } else { e.acc() }, dtype));
    let identity = identity.map_err(|e| e.to_string())?;
    let mut operands: Vec<Buffer> =
        given.iter().filter(|b| case.gemm.epilogue().checked().argument(&b.name).is_none()).cloned().collect();
    let mut d = vec![0; dtype.bytes(case.shape.m * case.shape.n * case.shape.batch)];
    let args = operands.iter_mut().fold(HostArgs::new(), |args, b| {
        let name = b.name.clone();
        args.input(&name, b.host())
    });
    // A function of scores may have scalars.
    let args = with_scalars(case, args, |name| case.gemm.epilogue().checked().argument(name).is_none());
    let args = args.output("d", Tensor::of_bytes_mut(dtype, &mut d));
    reference::oracle(case.gemm.operation(), identity.checked(), case.shape, &args).map_err(|e| e.to_string())
}

/// The epilogue over another accumulator.
fn pointwise(case: &Case, given: &[Buffer], epilogue: &Epilogue, accumulator: &[f64]) -> Result<Oracle, String> {
    let mut others: Vec<Buffer> = given.iter().filter(|b| epilogue.checked().argument(&b.name).is_some()).cloned().collect();
    let dtype = case.gemm.operation().accumulator().storage();
    let mut a = vec![0; dtype.bytes(accumulator.len())];
    accumulator.iter().enumerate().for_each(|(i, x)| dtype.write(&mut a, i, *x));
    let mut own = case.clone();
    own.scalars.retain(|name, _| epilogue.checked().argument(name).is_some());
    let args = own.host(&mut others).input("a", Tensor::of_bytes(dtype, &a));
    let operation = Operation::Pointwise { dtype, order: Order::RowMajor };
    reference::oracle(operation, epilogue.checked(), case.shape, &args).map_err(|e| e.to_string())
}

/// The epilogue without the sums of operands, which have nothing to do with the accumulator; `None` if nothing is left.
fn without_sums(checked: &Checked) -> Option<Epilogue> {
    let from = checked.graph();
    let sinks: Vec<&Sink> = from.sinks().iter().filter(|s| !matches!(from.node(s.value()), Node::Element(..))).collect();
    let (mut rest, mut ids) = (Graph::new(), Vec::new());
    let mut live = vec![false; from.len()];
    sinks.iter().flat_map(|sink| &sink.values).for_each(|value| live[value.index()] = true);
    for (id, node) in from.nodes().rev().filter(|(_, node)| !matches!(node, Node::Element(..))) {
        if live[id.index()] {
            node.args().iter().for_each(|arg| live[arg.index()] = true);
        }
    }
    for (id, node) in from.nodes() {
        ids.push(if live[id.index()] { rest.push(node.map_args(|a: NodeId| ids[a.index()]), None) } else { id });
    }
    for sink in sinks {
        rest.sink(sink.map(|value| ids[value.index()]), None);
    }
    (!rest.sinks().is_empty()).then(|| Epilogue::from_graph(rest).expect("a part of a checked graph"))
}
