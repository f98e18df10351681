//! Functions: named definitions over primitives. An activation is one.
//!
//! A call keeps its name in the graph, so that listings, JSON and profiles say `gelu_tanh`; its meaning is the body, which
//! the inline pass puts in its place before a kernel is planned or a value computed.

use super::graph::{Graph, NodeId};
use super::op::Adjoint;
use std::fmt;
use std::hash::{Hash, Hasher};

/// A named definition over primitives: arguments and result are `f32`.
pub struct Function {
    /// The name, in text, JSON and messages.
    pub name: &'static str,
    /// What it computes.
    pub doc: &'static str,
    /// The names of its parameters; the first is the value it is applied to.
    pub parameters: &'static [&'static str],
    /// The definition.
    pub body: fn(&mut Graph, &[NodeId]) -> NodeId,
    /// The derivative, where the one that follows from the body would need more to be saved or cancel: that of a sigmoid
    /// follows from its value.
    pub gradient: Option<Adjoint>,
}

/// A function is its name: the names in one table are distinct.
impl PartialEq for Function {
    fn eq(&self, other: &Function) -> bool {
        self.name == other.name
    }
}

impl Eq for Function {}

impl Hash for Function {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl fmt::Debug for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Function({})", self.name)
    }
}
