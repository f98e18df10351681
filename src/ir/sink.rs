//! Sinks: the nodes with effects.
//!
//! A sink consumes one value of the graph and writes memory. Today there is one kind, the store; a reduction, a bit mask
//! or a quantised store is another variant of [`SinkKind`] with its own parameters, and needs nothing of a mainloop that
//! the fragment contract does not already promise.

use super::graph::NodeId;
use super::operand::Operand;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// One effect of the epilogue.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Sink {
    /// The argument's name. The name of a loaded matrix updates that matrix in place.
    pub name: Arc<str>,
    /// The value it consumes.
    pub value: NodeId,
    /// What it does with it.
    pub kind: SinkKind,
}

/// What a sink does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SinkKind {
    /// Writes every element, rounded once to the operand's format.
    Store(Operand),
}

impl SinkKind {
    /// The operand it writes.
    pub const fn operand(self) -> Operand {
        match self {
            SinkKind::Store(operand) => operand,
        }
    }

    /// The same sink seen from the transposed problem.
    #[must_use]
    pub const fn transposed(self) -> SinkKind {
        match self {
            SinkKind::Store(operand) => SinkKind::Store(operand.transposed()),
        }
    }

    /// The same sink with its operand in the one way it is written in a graph.
    #[must_use]
    pub(crate) const fn canonical(self) -> SinkKind {
        match self {
            SinkKind::Store(operand) => SinkKind::Store(operand.canonical()),
        }
    }

    /// The word it begins with in text and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            SinkKind::Store(_) => "store",
        }
    }
}
