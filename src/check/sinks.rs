//! Rules of sinks: what may be stored, reduced, and in which format.

use super::Type;
use super::diagnostic::{Diagnostic, Part, Place};
use super::types::{ALONG_K, ELEMENT, along_k};
use crate::dtype::ValueType;
use crate::ir::axes::{Axes, K, L};
use crate::ir::graph::{Graph, Node, Side};
use crate::ir::{Monoid, Operand, Reduction, SinkKind};

pub(super) fn check(graph: &Graph, types: &[Option<Type>], out: &mut Vec<Diagnostic>) {
    for (index, sink) in graph.sinks().iter().enumerate() {
        let new = |code, message: &str| Diagnostic::new(graph, code, Place::Sink(index), message);
        let value = types.get(sink.value.index()).copied().flatten();
        if sink.kind.operand().axes.contains(K) {
            out.push(along_k(new("E0107", &format!("{} {ALONG_K}", sink.kind.operand()))));
            continue;
        }
        if let Node::Element(side, _) = graph.node(sink.value)
            && let Some(fault) = summed(*side, sink.kind, &new)
        {
            out.push(fault);
            continue;
        }
        match sink.kind {
            SinkKind::Store(operand) if !operand.axes.is_matrix() => {
                out.push(
                    new("E0301", &format!("a store writes a matrix, not {operand}"))
                        .mark(Part::Format, "")
                        .help("store to `F16` or `F16.over(M | N)`; a vector result is a reduction's"),
                );
                continue;
            }
            SinkKind::Store(operand) => lost_axis(value, operand, &new, out),
            SinkKind::Reduce(reduction) => reduced(value, reduction, &new, out),
        }
        // A monoid that does not take the value is the fault; which format its result has is a consequence.
        let takes = |v: &Type| !matches!(sink.kind, SinkKind::Reduce(r) if !r.monoid.row().takes.contains(&v.value));
        let (Some(value), operand) = (value.filter(takes), sink.kind.operand()) else { continue };
        if operand.dtype.value_type() != value.value {
            let holds = operand.dtype.value_type();
            let word = if matches!(sink.kind, SinkKind::Store(_)) { "stored" } else { "reduced" };
            out.push(
                new("E0303", &format!("a value of type {} is {word} as {}", value.value, operand.dtype))
                    .mark(Part::Format, &format!("holds {holds} values"))
                    .mark(Part::Operand(0), &value.to_string())
                    .help(&format!("insert `.cast({:?})`, or store it as {}", holds.storage(), value.value)),
            );
        }
    }
}

/// A store that does not vary along an axis of its value would write one element many times.
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

/// What is done to an element of an operand but to sum it over K, if that is anything else.
fn summed(side: Side, kind: SinkKind, new: &dyn Fn(&'static str, &str) -> Diagnostic) -> Option<Diagnostic> {
    let element = format!("`{}`, an element of an operand of the product,", side.name());
    let SinkKind::Reduce(Reduction { monoid: Monoid::Sum, operand, .. }) = kind else {
        let word = if matches!(kind, SinkKind::Store(_)) { "stored" } else { "reduced by anything but `sum`" };
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

fn reduced(value: Option<Type>, reduction: Reduction, new: &dyn Fn(&'static str, &str) -> Diagnostic, out: &mut Vec<Diagnostic>) {
    let Reduction { monoid, operand, .. } = reduction;
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
    let Some(value) = value.filter(|v| !monoid.row().takes.contains(&v.value)) else { return };
    let takes: Vec<&str> = monoid.row().takes.iter().map(|t| t.name()).collect();
    let cure = match value.value {
        ValueType::Bool => {
            "use `Monoid::Max` for whether any holds, `Monoid::Min` for whether all do; to count, insert `.cast(I32)`"
        }
        ValueType::F32 | ValueType::I32 => "insert `.cast(F32)`",
    };
    out.push(
        new("E0306", &format!("`{}` does not reduce values of type {}", Monoid::name(monoid), value.value))
            .mark(Part::Operand(0), &format!("{value}, not {}", takes.join(" or ")))
            .help(cure),
    );
}
