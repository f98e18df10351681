//! Rules of functions of scores, and of the axis that only they have.

use super::diagnostic::{Diagnostic, Diagnostics, FaultSite, Part, Severity};
use super::{Checked, Findings, accept, inspect};
use crate::dtype::{DType, ValueType};
use crate::ir::axes::{Axes, S};
use crate::ir::graph::{BuiltAt, Coordinate, Graph, Node};
use crate::ir::{Function, Operand, Sink, SinkKind};
use std::panic::Location;

/// The name of a function's result among its sinks.
pub(crate) const RESULT: &str = "scores";

/// The operand of the result.
pub(crate) const fn result() -> Operand {
    DType::F32.over(Axes::MNL.union(S))
}

/// Checks a function of scores, as [`check_built`](super::check_built) checks an epilogue.
///
/// # Errors
/// Every broken rule, in the order of the listing.
pub(crate) fn check_scores(
    graph: Graph,
    activations: &[&'static Function],
    built_at: BuiltAt,
    foreign: &[&'static Location<'static>],
) -> Result<Checked, Diagnostics> {
    let Findings { mut faults, types, arguments } = inspect(&graph, activations, built_at, foreign, Severity::Error);
    rules(&graph, &mut faults);
    faults.sort_by_key(Diagnostic::order);
    accept(graph, Findings { faults, types, arguments })
}

fn rules(graph: &Graph, out: &mut Vec<Diagnostic>) {
    for (id, node) in graph.nodes() {
        let new = |code, message: &str| Diagnostic::new(graph, code, FaultSite::Node(id), message);
        match node {
            Node::Reduce { .. } => out.push(
                new("E0402", "a function of scores reduces them, and no kernel has all scores of a row at a time")
                    .mark(Part::Subject, "")
                    .help("reduce in the epilogue behind the attention, or load what scores come to"),
            ),
            Node::Accumulator(value) if *value != ValueType::F32 => out.push(
                new("E0403", &format!("the score is an f32, and not of type {value}")).mark(Part::Format, "").help("use `acc()`"),
            ),
            Node::Element(side, _) => out.push(
                new("E0403", &format!("a function of scores reads `{}`, an element of an operand", side.name()))
                    .mark(Part::Subject, "")
                    .help("use `acc()`, the score of a query and a key"),
            ),
            Node::Load { name, .. } if **name == *RESULT => out.push(
                new("E0401", &format!("`{RESULT}` is the name of the result, and is loaded"))
                    .mark(Part::Subject, "")
                    .help("give the argument another name: scores are never in memory"),
            ),
            _ => {}
        }
    }
    for (index, sink) in graph.sinks().iter().enumerate() {
        let Sink { name, kind, .. } = sink;
        if index == 0 && **name == *RESULT && *kind == SinkKind::Store(result()) {
            continue;
        }
        let word = kind.name();
        out.push(
            Diagnostic::new(graph, "E0401", FaultSite::Sink(index), &format!("a function of scores has a {word} of its own"))
                .mark(Part::Subject, "")
                .help(&format!("end it with `store \"{RESULT}\" {}, %value` and nothing else", result())),
        );
    }
}

/// Reports what varies along the sequences of an attention in a graph that is not a function of scores.
pub(super) fn refuse_sequences(graph: &Graph, out: &mut Vec<Diagnostic>) {
    let along = |operand: Operand| operand.axes.contains(S);
    let nodes = graph.nodes().filter(|(_, node)| match node {
        Node::Load { operand, .. } => along(*operand),
        Node::Coordinate(coordinate) => *coordinate == Coordinate::Sequence,
        _ => false,
    });
    let sinks = graph.sinks().iter().enumerate().filter(|(_, sink)| along(sink.kind.operand()));
    let places = nodes.map(|(id, _)| FaultSite::Node(id)).chain(sinks.map(|(index, _)| FaultSite::Sink(index)));
    out.extend(places.map(|place| {
        Diagnostic::new(graph, "E0113", place, "an epilogue has no sequences: only functions of scores vary along S")
            .mark(Part::Subject, "")
            .help("name axes of the output, which are M, N and L; rows of all sequences follow each other along M")
    }));
    out.sort_by_key(Diagnostic::order);
}
