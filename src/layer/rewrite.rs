//! Derived epilogues: with other output formats, with accumulating or quantised outputs, behind another product.

use crate::build::Epilogue;
use crate::check::Role;
use crate::dtype::{DType, ValueType};
use crate::error::LinearError;
use crate::ir::axes::{L, M, N};
use crate::ir::graph::{Graph, Node, NodeId, Side};
use crate::ir::{Monoid, Op, Operand, Reduce, Reduction, Sink, SinkKind};

/// The same epilogue with other formats for the sinks that `format` names.
pub(super) fn formats(epilogue: &Epilogue, format: impl Fn(&str) -> Option<DType>) -> Result<Epilogue, LinearError> {
    let (mut graph, ids) = copy(epilogue, |graph, node| graph.push(node, None));
    for sink in epilogue.graph().sinks() {
        let dtype = format(&sink.name).unwrap_or(sink.kind.operand().dtype);
        let kind = sink.kind.with_operand(Operand { dtype, ..sink.kind.operand() });
        graph.sink(Sink { kind, ..sink.map(|value| ids[value.index()]) }, None);
    }
    Ok(Epilogue::from_graph(graph)?)
}

/// The same epilogue, which adds to these outputs: a matrix is loaded and stored in place, and a reduction accumulates.
pub(super) fn accumulate(epilogue: &Epilogue, outputs: &[&str]) -> Result<Epilogue, LinearError> {
    let sinks = epilogue.graph().sinks();
    if let Some(name) = outputs.iter().find(|name| !sinks.iter().any(|s| *s.name == ***name)) {
        let known = sinks.iter().map(|s| s.name.to_string()).collect();
        return Err(LinearError::Output { name: (*name).into(), known });
    }
    let (mut graph, ids) = copy(epilogue, |graph, node| graph.push(node, None));
    for sink in sinks {
        let mut sink = sink.map(|value| ids[value.index()]);
        if outputs.contains(&&*sink.name) {
            let updates = matches!(epilogue.checked().argument(&sink.name), Some((_, a)) if matches!(a.role, Role::Update(_)));
            let refused = |why| Err(LinearError::Accumulate { name: sink.name.to_string(), why });
            match &mut sink.kind {
                SinkKind::Bincount(_) => {}
                SinkKind::Reduce(reduction) => *reduction = Reduction { accumulate: true, ..*reduction },
                SinkKind::Store(operand) if operand.dtype.value_type() == ValueType::Bool => {
                    return refused("it holds conditions, not numbers: leave it out");
                }
                SinkKind::Store(_) if updates => {
                    return refused("the epilogue already updates it in place: add there, or store to another name");
                }
                SinkKind::Store(operand) => {
                    let there = graph.push(Node::load(sink.name.clone(), *operand), None);
                    sink = sink.map(|value| graph.apply(Op::Add, &[value, there]));
                }
            }
        }
        graph.sink(sink, None);
    }
    Ok(Epilogue::from_graph(graph)?)
}

/// The same epilogue over the sum of its accumulator and a matrix.
pub(super) fn plus(epilogue: &Epilogue, name: &str, operand: Operand) -> Result<Epilogue, LinearError> {
    if !epilogue.graph().nodes().any(|(_, node)| matches!(node, Node::Accumulator(_))) {
        return Err(LinearError::NoProduct { name: name.into() });
    }
    behind_product(epilogue, |graph, accumulator| {
        let matrix = graph.push(Node::load(name, operand), None);
        graph.apply(Op::Add, &[accumulator, matrix])
    })
}

/// The same epilogue over its accumulator times scales, numbers in memory.
pub(super) fn scaled(epilogue: &Epilogue, scales: [&str; 2]) -> Result<Epilogue, LinearError> {
    behind_product(epilogue, |graph, accumulator| {
        let [first, second] = scales.map(|name| graph.push(Node::load(name, DType::F32.pointer()), None));
        let both = graph.apply(Op::Mul, &[first, second]);
        graph.apply(Op::Mul, &[accumulator, both])
    })
}

/// The same epilogue over something else than its accumulator, made from it.
fn behind_product(epilogue: &Epilogue, change: impl Fn(&mut Graph, NodeId) -> NodeId) -> Result<Epilogue, LinearError> {
    let (mut graph, ids) = copy(epilogue, |graph, node| {
        let accumulator = matches!(node, Node::Accumulator(_));
        let id = graph.push(node, None);
        if accumulator { change(graph, id) } else { id }
    });
    for sink in epilogue.graph().sinks() {
        graph.sink(sink.map(|value| ids[value.index()]), None);
    }
    Ok(Epilogue::from_graph(graph)?)
}

/// The same epilogue, which divides the matrix that it stores under a name by a scale, `NAME_scale`, stores it in eight bits, and
/// reduces the largest magnitude of what it divides into `NAME_amax`.
pub(super) fn quantized(epilogue: &Epilogue, name: &str, dtype: DType) -> Result<Epilogue, LinearError> {
    let sinks = epilogue.graph().sinks();
    let refused = |why| Err(LinearError::Quantize { name: name.into(), why });
    let operand = match sinks.iter().find(|sink| *sink.name == *name).map(|sink| sink.kind) {
        None => {
            let known = sinks.iter().map(|sink| sink.name.to_string()).collect();
            return Err(LinearError::Output { name: name.into(), known });
        }
        Some(SinkKind::Store(operand)) if operand.axes.is_matrix() && operand.dtype.value_type() == ValueType::F32 => operand,
        Some(_) => return refused("it is not a matrix of f32, f16 or bf16"),
    };
    if !dtype.is_eight_bits() {
        return refused("the format has no eight bits: take `E4M3`, `E5M2`, `I8` or `U8`");
    }
    if matches!(epilogue.checked().argument(name), Some((_, a)) if matches!(a.role, Role::Update(_))) {
        return refused("the epilogue adds to it in place: quantise what it comes to in a pass of its own");
    }
    let [scale_name, amax] = ["scale", "amax"].map(|what| format!("{name}_{what}"));
    if let Some(taken) = [&scale_name, &amax].into_iter().find(|name| epilogue.checked().argument(name).is_some()) {
        return Err(LinearError::Taken { name: taken.clone() });
    }
    let (mut graph, ids) = copy(epilogue, |graph, node| graph.push(node, None));
    let scale = graph.push(Node::load(scale_name.as_str(), DType::F32.pointer()), None);
    for sink in sinks {
        let sink = sink.map(|value| ids[value.index()]);
        if *sink.name != *name {
            graph.sink(sink, None);
            continue;
        }
        let largest = Reduce::from(Monoid::AbsMax).to(DType::F32.pointer());
        graph.sink(Sink::new(amax.as_str(), sink.value(), largest), None);
        let kind = SinkKind::Store(Operand { dtype, ..operand });
        let quotient = graph.apply(Op::Div, &[sink.value(), scale]);
        graph.sink(Sink { kind, ..sink.map(|_| quotient) }, None);
    }
    Ok(Epilogue::from_graph(graph)?)
}

/// The sinks that sum, over M and possibly the batch, the value that the epilogue stores under a name.
pub(super) fn sums_of(epilogue: &Epilogue, name: &str) -> Vec<Sink> {
    let sinks = epilogue.graph().sinks();
    let stored = sinks.iter().find(|sink| *sink.name == *name).map(Sink::value);
    let sums = |sink: &&Sink| match sink.kind {
        SinkKind::Reduce(Reduction { monoid, operand, .. }) => {
            monoid.takes_operands() && Some(sink.value()) == stored && operand.axes.without(L) == N
        }
        _ => false,
    };
    sinks.iter().filter(sums).cloned().collect()
}

/// The same epilogue, which also sums the elements of an operand over K, into sinks like these. Those of A vary along M, and each
/// batch entry has its own: it is a group of filters.
pub(super) fn with_sums(epilogue: &Epilogue, side: Side, sums: &[Sink]) -> Result<Epilogue, LinearError> {
    let (mut graph, ids) = copy(epilogue, |graph, node| graph.push(node, None));
    for sink in epilogue.graph().sinks() {
        graph.sink(sink.map(|value| ids[value.index()]), None);
    }
    let element = graph.push(Node::Element(side, ValueType::F32), None);
    for sink in sums {
        let operand = sink.kind.operand();
        let axes = if side == Side::A { M | L } else { operand.axes };
        let kind = sink.kind.with_operand(Operand { axes, ..operand });
        graph.sink(Sink { kind, ..sink.map(|_| element) }, None);
    }
    Ok(Epilogue::from_graph(graph)?)
}

/// The nodes of an epilogue, each placed again, with their new ids.
fn copy(epilogue: &Epilogue, mut place: impl FnMut(&mut Graph, Node) -> NodeId) -> (Graph, Vec<NodeId>) {
    let (mut graph, mut ids) = (Graph::new(), Vec::<NodeId>::new());
    for (_, node) in epilogue.graph().nodes() {
        let node = node.map_args(|a| ids[a.index()]);
        ids.push(place(&mut graph, node));
    }
    (graph, ids)
}
