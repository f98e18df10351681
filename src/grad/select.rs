//! The choice of what to save: the cheapest set of forward values from which the backward pass can be computed.
//!
//! The candidates are all values that depend on the forward accumulator (or on a matrix that the forward pass
//! overwrites) and on no incoming gradient. A derivative is such a value, and so is the condition of a mask. Everything
//! else is available anyway: coordinates, constants, scalars, operands. The choice is a minimum cut between the
//! accumulator and the values that incoming gradients are combined with, weighted in bits: 1 for a condition, nothing
//! for an output that the caller keeps. A value that jumps is [made once](super::decisions): behind a rounded value it
//! is a source, like the accumulator.

use super::cut::{NEVER, Network};
use super::decisions::{self, Fate};
use super::error::GradError;
use super::joint::{FORWARD, Folded};
use super::wrt::{Keep, Wrt};
use crate::check::{Checked, Role, Type};
use crate::dtype::{DType, ValueType};
use crate::ir::graph::{Node, NodeId};
use crate::ir::{Operand, Order, SinkKind};
use std::collections::HashMap;
use std::sync::Arc;

/// One value that the backward pass takes from the forward pass.
#[derive(Clone, Debug)]
pub(super) struct Selected {
    /// Its place in the folded graph.
    pub value: NodeId,
    /// How it lies in memory.
    pub operand: Operand,
    /// The output that equals the value, if the caller keeps one.
    pub output: Option<Arc<str>>,
    pub pinned: bool,
}

/// The cost and layout of a value that may be saved.
struct Candidate {
    weight: u64,
    dtype: DType,
    output: Option<(Arc<str>, Operand)>,
    pinned: bool,
}

/// The values to save, in order of the graph.
///
/// # Errors
/// If pins leave no choice, or name a value that does not exist.
pub(super) fn select(
    forward: &Checked,
    folded: &Folded,
    seeds: &[Arc<str>],
    wrt: &Wrt,
    (float, order): (DType, Order),
) -> Result<Vec<Selected>, GradError> {
    let graph = folded.checked.graph();
    let overwritten = |name: &str| forward.argument(name).is_some_and(|(_, a)| matches!(a.role, Role::Update(_)));
    let (mut upstream, mut saved) = (vec![false; graph.len()], vec![false; graph.len()]);
    let mut sources = Vec::new();
    for (id, node) in graph.nodes() {
        let i = id.index();
        match node {
            Node::Accumulator(_) => upstream[i] = true,
            Node::Load { name, .. } if seeds.contains(name) => upstream[i] = true,
            Node::Load { name, .. } if **name == *FORWARD || overwritten(name) => {
                saved[i] = true;
                sources.push(id);
            }
            _ => {
                upstream[i] = node.args().iter().any(|a| upstream[a.index()]);
                saved[i] = !upstream[i] && node.args().iter().any(|a| saved[a.index()]);
            }
        }
    }
    let known = known(forward, folded, wrt)?;
    let candidate = |id: NodeId| -> Candidate {
        let Type { value, axes } = folded.checked.type_of(id);
        let dtype = match value {
            // Results of reductions are few.
            ValueType::F32 if !axes.is_matrix() => DType::F32,
            ValueType::I32 | ValueType::Bool if !axes.is_matrix() => value.storage(),
            ValueType::F32 => float,
            ValueType::F64 => DType::F64,
            ValueType::I32 => DType::I32,
            ValueType::Bool => wrt.masks,
        };
        let of = |weight, dtype, output, pinned| Candidate { weight, dtype, output, pinned };
        match known.get(&id) {
            Some(Known::Output(name, operand)) => of(0, operand.dtype, Some((name.clone(), *operand)), false),
            Some(Known::Pinned(Keep::As(dtype))) => of(0, *dtype, None, true),
            Some(Known::Pinned(Keep::Recompute)) => of(NEVER, dtype, None, true),
            None => of(if axes.is_matrix() { dtype.bits() as u64 } else { 0 }, dtype, None, false),
        }
    };
    let mut network = Network::new(graph.nodes().map(|(id, _)| candidate(id).weight).collect());
    let fate = |id: NodeId| {
        let value = folded.checked.type_of(id).value;
        let real = value.is_float();
        Fate {
            pinned: matches!(known.get(&id), Some(Known::Pinned(Keep::Recompute))),
            real,
            exact: !real || candidate(id).dtype == value.storage(),
            kept: matches!(known.get(&id), Some(Known::Output(..))),
        }
    };
    sources.extend(decisions::made_once(graph, &saved, fate));
    sources.iter().for_each(|id| network.source(id.index()));
    let live = graph.live();
    for (id, node) in graph.nodes().filter(|(id, _)| live[id.index()]) {
        for arg in node.args().iter().filter(|a| saved[a.index()]) {
            if upstream[id.index()] { network.needed(arg.index()) } else { network.edge(arg.index(), id.index()) }
        }
    }
    let consumed = graph.sinks().iter().flat_map(|s| &s.values);
    consumed.filter(|value| saved[value.index()]).for_each(|value| network.needed(value.index()));
    let cut = network.cut().ok_or(GradError::Pinned)?;
    let ids: Vec<NodeId> = graph.nodes().map(|(id, _)| id).collect();
    let selected = cut.into_iter().map(|index| {
        let (id, Candidate { dtype, output, pinned, .. }) = (ids[index], candidate(ids[index]));
        let axes = folded.checked.type_of(id).axes;
        let operand = if axes.is_matrix() { Operand { order, ..Operand::from(dtype) } } else { dtype.over(axes) };
        let (output, operand) = output.map_or((None, operand), |(name, operand)| (Some(name), operand));
        Selected { value: id, operand, output, pinned }
    });
    Ok(selected.collect())
}

/// The user's statement about a value.
enum Known {
    Output(Arc<str>, Operand),
    Pinned(Keep),
}

fn known(forward: &Checked, folded: &Folded, wrt: &Wrt) -> Result<HashMap<NodeId, Known>, GradError> {
    let mut known = HashMap::new();
    for name in &wrt.kept {
        let sink = forward.graph().sinks().iter().find(|s| *s.name == **name && matches!(s.kind, SinkKind::Store(_)));
        let Some(sink) = sink else {
            let stores = forward.graph().sinks().iter().filter(|s| matches!(s.kind, SinkKind::Store(_)));
            let known = stores.map(|s| s.name.to_string()).collect();
            return Err(GradError::Unknown { name: name.clone(), what: "is stored and could be kept", known });
        };
        let (dtype, holds) = (sink.kind.operand().dtype, forward.type_of(sink.value()).value);
        if dtype.value_type() != holds {
            let cure = "keep an output that is stored in a format of its value's own type";
            return Err(GradError::Format { name: name.clone(), dtype, cure });
        }
        let index = sink.value().index();
        if let Some(id) = folded.of_user[index].or(folded.at_border[index]) {
            known.insert(id, Known::Output(sink.name.clone(), sink.kind.operand()));
        }
    }
    for (&value, &keep) in &wrt.pins {
        if value.index() >= forward.graph().len() {
            return Err(GradError::Pin(value.index()));
        }
        let holds = forward.type_of(value).value;
        if let Keep::As(dtype) = keep
            && dtype.value_type() != holds
        {
            let cure = "pin a value in a format of its own type";
            return Err(GradError::Format { name: value.to_string(), dtype, cure });
        }
        if let Some(id) = folded.of_user[value.index()] {
            known.insert(id, Known::Pinned(keep));
        }
    }
    Ok(known)
}
