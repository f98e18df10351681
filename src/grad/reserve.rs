//! The reserve: the plan of the values that a forward launch saves, in bytes and in words.

use super::select::Selected;
use crate::args::{Reserve, ReserveTag};
use crate::build::Epilogue;
use crate::dtype::ValueType;
use crate::ir::axes::{L, M, N};
use crate::ir::graph::{Node, NodeId};
use crate::ir::{Operand, Order, fnv1a, text};
use crate::problem::Shape;
use std::fmt::Write;
use std::sync::Arc;

/// The values that a forward launch saves for the backward one.
///
/// It is the cheapest set of values from which the backward pass can be computed. Conditions take 1 bit an element.
/// Numbers take the bits of the output's format (of `f32` with [`Wrt::exact`](super::Wrt::exact), and behind an integer
/// product). Outputs that the caller keeps anyway ([`Wrt::keeps`](super::Wrt::keeps)), coordinates, and everything that
/// follows from arguments take nothing. Among equally cheap sets it is the one that leaves least to recompute.
///
/// If a number is saved in fewer bits than it has, conditions on it are saved as well: the backward pass follows the
/// decisions of the forward pass, and does not decide again by a rounded number.
///
/// A saved number is rounded once, to nearest even. A number that is too large for `f16` becomes infinite, as in an
/// output, and one that is too small loses digits. For a reciprocal the saved value is its slope, the square of the
/// output. If such intermediate values leave the format's range, save them in `f32`
/// ([`Wrt::exact`](super::Wrt::exact)), or keep the output.
#[derive(Clone, Debug)]
pub struct ReservePlan {
    fingerprint: u64,
    values: Vec<Saved>,
    free: Vec<Free>,
    /// The primitives that the backward pass recomputes, as sorted words of the listing, and their issue slots.
    recomputed: (Vec<String>, u32),
}

/// One value that the backward pass takes from the forward pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Saved {
    /// The name of the argument: an output of the forward epilogue, an input of the backward one.
    pub name: Arc<str>,
    /// How it lies in memory.
    pub operand: Operand,
    /// Whether it is an output of the epilogue that the caller keeps.
    pub is_output: bool,
    /// Its line in the listing of the forward epilogue.
    pub value: String,
    /// Why this value was chosen.
    pub why: &'static str,
}

/// A value of the forward pass that the backward pass needs, but that does not have to be saved: it follows from
/// coordinates and arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Free {
    /// Its line in the listing of the backward epilogue.
    pub value: String,
    /// Its origin.
    pub why: &'static str,
}

/// Why buffers cannot be a reserve.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReserveError {
    /// The wrong number of buffers.
    #[error(
        "the reserve has {needs} values, and {got} buffers were given: pass one for each of `ReservePlan::values` that is not \
         an output"
    )]
    Count {
        /// Values to save.
        needs: usize,
        /// Buffers given.
        got: usize,
    },
}

pub(super) fn fingerprint(texts: &[String]) -> u64 {
    fnv1a(texts.iter().flat_map(|t| t.bytes().chain([0])))
}

impl ReservePlan {
    pub(super) fn new(
        (forward, backward): (&Epilogue, &Epilogue),
        selected: &[Selected],
        names: &[Arc<str>],
        values: &[NodeId],
        incoming: &[Arc<str>],
        fingerprint: u64,
    ) -> ReservePlan {
        let saved = selected.iter().zip(names).zip(values).map(|((selected, name), value)| {
            let of = forward.checked().type_of(*value);
            let why = match of.value {
                _ if selected.output.is_some() => "an output that the caller keeps",
                _ if selected.pinned => "pinned",
                ValueType::Bool => "a condition",
                _ if matches!(forward.graph().node(*value), Node::Accumulator(_)) => "the accumulator",
                _ if forward.graph().sinks().iter().any(|s| s.value() == *value && s.name != *name) => "the output",
                _ => "a value that the rest follows from",
            };
            let line = text::node_line(forward.graph(), *value, Some(&of.to_string())).text;
            Saved { name: name.clone(), operand: selected.operand, is_output: selected.output.is_some(), value: line, why }
        });
        let values: Vec<Saved> = saved.collect();
        let (free, recomputed) = besides(backward, &values, incoming);
        ReservePlan { fingerprint, values, free, recomputed }
    }

    /// Each value.
    pub fn values(&self) -> &[Saved] {
        &self.values
    }

    /// The values that take no memory: conditions on coordinates, and values that follow from arguments.
    pub fn free(&self) -> &[Free] {
        &self.free
    }

    /// The values that take memory of their own.
    fn own(&self) -> impl Iterator<Item = &Saved> {
        self.values.iter().filter(|v| !v.is_output)
    }

    /// Whether nothing has to be saved.
    pub fn is_empty(&self) -> bool {
        self.own().next().is_none()
    }

    /// A fingerprint of both epilogues and of this plan. The names of the arguments contain its lower half.
    pub fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    /// Bits for each element of the output.
    pub fn bits_per_element(&self) -> usize {
        self.own().map(|v| bits(v.operand)).sum()
    }

    /// Bytes for a problem; `usize::MAX` if they exceed that.
    pub fn bytes(&self, shape: Shape) -> usize {
        self.own().fold(0, |sum, v| bytes(v.operand, shape).saturating_add(sum))
    }

    /// Memory on the host for a problem.
    ///
    /// # Panics
    /// If the host lacks memory for these [`bytes`](ReservePlan::bytes).
    pub fn allocate(&self, shape: Shape) -> Reserve<Vec<u8>> {
        let values = self.own().map(|v| (v.name.clone(), v.operand.dtype, vec![0; bytes(v.operand, shape)]));
        Reserve::new(ReserveTag { fingerprint: self.fingerprint, shape }, values.collect())
    }

    /// A reserve over buffers of your own, one for each value that is not an output, in order: on a device
    /// `CudaSlice<u8>`s with the bytes that [`sizes`](ReservePlan::sizes) states.
    ///
    /// # Errors
    /// If there are more or fewer buffers. The launch checks that each buffer is long enough.
    pub fn over<T>(&self, shape: Shape, buffers: Vec<T>) -> Result<Reserve<T>, ReserveError> {
        let (needs, got) = (self.own().count(), buffers.len());
        if needs != got {
            return Err(ReserveError::Count { needs, got });
        }
        let values = self.own().zip(buffers).map(|(v, buffer)| (v.name.clone(), v.operand.dtype, buffer));
        Ok(Reserve::new(ReserveTag { fingerprint: self.fingerprint, shape }, values.collect()))
    }

    /// Bytes of each buffer for a problem.
    pub fn sizes(&self, shape: Shape) -> Vec<usize> {
        self.own().map(|v| bytes(v.operand, shape)).collect()
    }

    /// The plan in words: the saved values with their sizes, the free values, and the recomputed ones.
    pub fn explain(&self, shape: Shape) -> String {
        let mut out = String::new();
        let count = |bits: usize| format!("{bits} bit{}", if bits == 1 { "" } else { "s" });
        let _ =
            writeln!(out, "reserve       {} an element, {} bytes for {shape}", count(self.bits_per_element()), self.bytes(shape));
        for value in &self.values {
            let bits = if value.is_output { 0 } else { bits(value.operand) };
            let Saved { name, operand, value, why, .. } = value;
            let _ = writeln!(out, "  {name}  {operand}, {}: {why}\n    {value}", count(bits));
        }
        if !self.free.is_empty() {
            let _ = writeln!(out, "free          in the listing of the backward epilogue");
        }
        for Free { value, why } in &self.free {
            let _ = writeln!(out, "  0 bits: {why}\n    {value}");
        }
        let (words, cost) = &self.recomputed;
        if words.is_empty() {
            let _ = writeln!(out, "recomputed    nothing");
        } else {
            let _ = writeln!(out, "recomputed    {}: about {cost} issue slots an element", words.join(", "));
        }
        out
    }
}

/// Bits for each element of the output; none for a value along a row or a column.
pub(super) fn bits(operand: Operand) -> usize {
    if operand.axes.is_matrix() { operand.dtype.bits() } else { 0 }
}

/// Bytes of a contiguous matrix, or of a vector of reduction results.
fn bytes(operand: Operand, shape: Shape) -> usize {
    let along = |axis, extent| if operand.axes.contains(axis) { extent } else { 1 };
    let shape = Shape { m: along(M, shape.m), n: along(N, shape.n), batch: along(L, shape.batch), ..shape };
    let (outer, inner) = match operand.order {
        Order::RowMajor if operand.axes.contains(N) => (shape.m, shape.n),
        Order::RowMajor | Order::ColumnMajor => (shape.n, shape.m),
    };
    let line = operand.dtype.bytes(inner.checked_next_multiple_of(operand.dtype.run()).unwrap_or(usize::MAX));
    line.saturating_mul(outer).saturating_mul(shape.batch)
}

/// The values of a backward epilogue beside the saved ones: the recomputed values and the free ones.
fn besides(backward: &Epilogue, saved: &[Saved], incoming: &[Arc<str>]) -> (Vec<Free>, (Vec<String>, u32)) {
    let graph = backward.graph();
    let (mut upstream, mut forward) = (vec![false; graph.len()], vec![false; graph.len()]);
    // Whether coordinates, and whether arguments, are behind a value.
    let mut origins = vec![(false, false); graph.len()];
    let (mut free, mut words, mut cost) = (vec![false; graph.len()], Vec::new(), 0);
    for (id, node) in graph.nodes() {
        let any = |of: &[bool]| node.args().iter().any(|a| of[a.index()]);
        let known = matches!(node, Node::Load { name, .. } if saved.iter().any(|s| s.name == *name));
        let comes_in = matches!(node, Node::Load { name, .. } if incoming.contains(name));
        upstream[id.index()] = comes_in || matches!(node, Node::Accumulator(_)) || any(&upstream);
        forward[id.index()] = known || !upstream[id.index()] && any(&forward);
        let own =
            (matches!(node, Node::Coordinate(_)), matches!(node, Node::Load { .. } | Node::Gather { .. } | Node::Scalar { .. }));
        origins[id.index()] = node.args().iter().fold(own, |(coordinates, arguments), arg| {
            let (c, a) = origins[arg.index()];
            (coordinates || c, arguments || a)
        });
        if upstream[id.index()] || forward[id.index()] {
            // A value is free if another kind of value uses it.
            for arg in node.args().iter().map(|arg| arg.index()) {
                free[arg] |= !upstream[arg] && !forward[arg] && origins[arg] != (false, false);
            }
        }
        if forward[id.index()] && !known {
            words.push(node.mnemonic().to_owned());
            cost += node.cost();
        }
    }
    words.sort_unstable();
    words.dedup();
    let free = graph.nodes().filter(|(id, _)| free[id.index()]).map(|(id, node)| {
        let of = backward.checked().type_of(id);
        let why = match (of.value == ValueType::Bool, origins[id.index()]) {
            (true, (true, false)) => "a condition on coordinates",
            (true, (true, true)) => "a condition on coordinates and arguments",
            (true, _) => "a condition on arguments",
            (_, (true, false)) => "from coordinates",
            (_, (true, true)) => "from coordinates and arguments",
            _ if node.args().is_empty() => "an argument",
            _ => "from arguments",
        };
        Free { value: text::node_line(graph, id, Some(&of.to_string())).text, why }
    });
    (free.collect(), (words, cost))
}
