//! Rules of sinks: which values may be stored or reduced, and in which formats.

use super::Type;
use super::diagnostic::{Diagnostic, FaultSite, Part};
use super::types::{ALONG_K, ELEMENT, along_k, four_bits};
use crate::dtype::{DType, ValueType};
use crate::ir::axes::{Axes, K, L};
use crate::ir::graph::{Graph, Node, Side};
use crate::ir::name::word;
use crate::ir::{Monoid, Operand, Reduction, SinkKind};

pub(super) fn check(graph: &Graph, types: &[Option<Type>], out: &mut Vec<Diagnostic>) {
    let stages = graph.stages();
    for (index, sink) in graph.sinks().iter().enumerate() {
        let new = |code, message: &str| Diagnostic::new(graph, code, FaultSite::Sink(index), message);
        let value = types.get(sink.value().index()).copied().flatten();
        if sink.kind.operand().axes.contains(K) {
            out.push(along_k(new("E0107", &format!("{} {ALONG_K}", sink.kind.operand()))));
            continue;
        }
        if sink.kind.operand().dtype.is_four_bits() {
            let message = format!("{} is a format of the product's operands alone", sink.kind.operand().dtype);
            out.push(four_bits(new("E0112", &message)));
            continue;
        }
        if let Node::Element(side, _) = graph.node(sink.value())
            && let Some(fault) = summed(*side, value.map(|value| value.value), sink.kind, &new)
        {
            out.push(fault);
            continue;
        }
        match sink.kind {
            SinkKind::Store(operand) if !operand.axes.is_matrix() && stages[sink.value().index()] == 0 => {
                out.push(
                    new("E0301", &format!("a store writes a matrix, not {operand}"))
                        .mark(Part::Format, "")
                        .help("store to `F16` or `F16.over(M | N)`; a vector result is a reduction's"),
                );
                continue;
            }
            SinkKind::Store(operand) => lost_axis(value, operand, &new, out),
            SinkKind::Bincount(operand) => {
                counted(value, operand, &new, out);
                continue;
            }
            SinkKind::Reduce(reduction) => {
                let values: Vec<Option<Type>> = sink.values.iter().map(|v| types.get(v.index()).copied().flatten()).collect();
                reduced(&values, reduction, &new, out);
            }
        }
        let monoid = if let SinkKind::Reduce(Reduction { monoid, .. }) = sink.kind { Some(monoid) } else { None };
        // If the monoid does not take the value, that is the fault, and the format of its result is a consequence.
        let takes = |v: &Type| monoid.is_none_or(|monoid| monoid.takes(0).contains(&v.value));
        let (Some(value), holds) = (value.filter(takes), sink.kind.operand().dtype.value_type()) else { continue };
        let gives = monoid.map_or(value.value, |monoid| monoid.gives(value.value));
        if !sink.kind.operand().dtype.takes(gives) {
            let format = sink.kind.operand().dtype;
            let (what, cure) = match monoid.filter(|_| gives != value.value) {
                Some(monoid) => (format!("`{}` gives {gives}, which is stored", monoid.name()), format!("store it as {gives}")),
                None => {
                    let word = if monoid.is_some() { "reduced" } else { "stored" };
                    let cure = format!("insert `.cast({:?})`, or store it as {gives}", holds.storage());
                    (format!("a value of type {gives} is {word}"), cure)
                }
            };
            out.push(
                new("E0303", &format!("{what} as {format}"))
                    .mark(Part::Format, &format!("holds {holds} values"))
                    .mark(Part::Operand(0), &value.to_string())
                    .help(&cure),
            );
        }
    }
}

/// A store that does not vary along an axis of its value would write one element several times.
fn lost_axis(value: Option<Type>, operand: Operand, new: &dyn Fn(&'static str, &str) -> Diagnostic, out: &mut Vec<Diagnostic>) {
    let Some(value) = value.filter(|v| !operand.axes.contains(v.axes)) else { return };
    let lost = value.axes.without(operand.axes);
    out.push(
        new("E0302", &format!("a value that varies along {lost} is stored as {operand}, which does not"))
            .mark(Part::Format, "")
            .mark(Part::Operand(0), &value.to_string())
            .help("let the stored matrix vary along the batch: `F16`, not `F16.over(M | N)` or `.shared()`"),
    );
}

/// The fault, if an element of an operand is used for anything but a sum over K.
fn summed(
    side: Side,
    value: Option<ValueType>,
    kind: SinkKind,
    new: &dyn Fn(&'static str, &str) -> Diagnostic,
) -> Option<Diagnostic> {
    let element = format!("`{}`, an element of an operand of the product,", side.name());
    if value == Some(ValueType::F64) {
        let help =
            "sum the operand in a pointwise operation of its own: `e.reduce(\"sums\", e.acc_f64(), Monoid::Sum, F64.over(N))`";
        return Some(new("E0311", &format!("{element} is an f64")).mark(Part::Operand(0), "f64").help(help));
    }
    let sum = match kind {
        SinkKind::Reduce(Reduction { monoid, operand, .. }) => monoid.takes_operands().then_some(operand),
        _ => None,
    };
    let Some(operand) = sum else {
        let word = match kind {
            SinkKind::Store(_) => "stored",
            SinkKind::Bincount(_) => "counted",
            SinkKind::Reduce(_) => "reduced by anything but `sum`",
        };
        return Some(
            new("E0204", &format!("{element} is {word}")).mark(Part::Operand(0), &side.axes().to_string()).help(ELEMENT),
        );
    };
    let axis = side.axis();
    (operand.axes.without(L) != axis).then(|| {
        let letter = if side == Side::A { "M" } else { "N" };
        new("E0308", &format!("the sum of {element} is {operand}"))
            .mark(Part::Format, &format!("not {axis} or {}", axis | L))
            .mark(Part::Operand(0), &side.axes().to_string())
            .help(&format!("sum it over K: to `F32.over({letter})`, or for each batch entry to `F32.over({letter}).batched()`"))
    })
}

/// A count of anything but indices, or into anything but one table.
fn counted(value: Option<Type>, operand: Operand, new: &dyn Fn(&'static str, &str) -> Diagnostic, out: &mut Vec<Diagnostic>) {
    if operand != DType::I32.pointer() {
        out.push(
            new("E0312", &format!("counts are a table of i32, not {operand}"))
                .mark(Part::Format, "")
                .help("count into `i32[]`, and give each vector's counts indices of their own: `column * bins + bin`"),
        );
    }
    if let Some(value) = value.filter(|value| value.value != ValueType::I32) {
        out.push(
            new("E0312", &format!("a value of type {} is counted, which is not an index", value.value))
                .mark(Part::Operand(0), &value.to_string())
                .help("insert `.cast(I32)`"),
        );
    }
}

fn reduced(
    values: &[Option<Type>],
    reduction: Reduction,
    new: &dyn Fn(&'static str, &str) -> Diagnostic,
    out: &mut Vec<Diagnostic>,
) {
    let Reduction { monoid, operand, accumulate, .. } = reduction;
    if operand.axes.contains(Axes::MNL) {
        out.push(
            new("E0305", &format!("a reduction to {operand} reduces over nothing"))
                .mark(Part::Format, "varies along every axis")
                .help("name the axes of the result, such as `F32.over(N)` for a reduction over M, or store the value"),
        );
    }
    if operand.dtype.is_packed() {
        out.push(
            new("E0307", &format!("a reduction's result is stored as {}, which shares bytes", operand.dtype))
                .mark(Part::Format, "")
                .help("use `Bool.over(..)`: whole bytes can be combined one by one"),
        );
    }
    let name = word(monoid.name());
    if accumulate && !monoid.accumulates() {
        out.push(
            new("E0309", &format!("`{name}` cannot accumulate onto memory: its result is not one more element"))
                .help("reduce without `.accumulate()`, and combine the results afterwards"),
        );
    }
    check_element(
        values,
        monoid,
        new,
        "reduce over one of M and N, or give the index: `e.reduce(name, [value, index], ..)`",
        out,
    );
}

/// Checks that values make an element of a reduction: as many as its monoid takes, and of its types. `indexed` is the
/// cure for a missing index.
pub(super) fn check_element(
    values: &[Option<Type>],
    monoid: Monoid,
    new: &dyn Fn(&'static str, &str) -> Diagnostic,
    indexed: &str,
    out: &mut Vec<Diagnostic>,
) {
    let name = word(monoid.name());
    if values.len() != monoid.arity() {
        let (is, takes) = (values.len(), monoid.arity());
        let plural = if takes == 1 { "value" } else { "values" };
        let cure = match monoid.is_indexed() && is == 1 {
            true => indexed,
            false => "give as many values as the monoid takes, in an array: `[x, y]`",
        };
        out.push(new("E0310", &format!("an element for `{name}` has {takes} {plural}, and {is} are given")).help(cure));
        return;
    }
    for (place, value) in values.iter().enumerate() {
        let takes = monoid.takes(place);
        let Some(value) = value.filter(|v| !takes.contains(&v.value)) else { continue };
        let cure = match (takes, value.value) {
            ([ValueType::Bool], _) => "compare: `.ne(0)`, `.gt(0.0)`",
            ([ValueType::I32], _) => "insert `.cast(I32)`",
            (_, ValueType::Bool) => {
                "use `Monoid::Max` for whether any holds, `Monoid::Min` for whether all do, `Monoid::Count` for how many"
            }
            (_, _) => "insert `.cast(F32)`",
        };
        let names: Vec<&str> = takes.iter().map(|t| t.name()).collect();
        let takes = names.split_last().map_or_else(String::new, |(last, others)| match others {
            [] => (*last).into(),
            _ => format!("{} or {last}", others.join(", ")),
        });
        out.push(
            new("E0306", &format!("`{name}` does not reduce values of type {}", value.value))
                .mark(Part::Operand(place), &format!("{value}, not {takes}"))
                .help(cure),
        );
    }
}
