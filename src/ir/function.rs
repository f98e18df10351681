//! Functions: named definitions over primitives. An activation is one.
//!
//! A call keeps its name in the graph, so that listings, JSON and profiles say `gelu_tanh`; its meaning is the body, which
//! the inline pass puts in its place before a kernel is planned or a value computed.

use super::graph::{Graph, Node, NodeId};
use super::name::word;
use super::op::Adjoint;
use crate::dtype::ValueType;
use std::fmt;
use std::hash::{Hash, Hasher};

/// A named definition over primitives: arguments and result are `f32`.
pub struct Function {
    /// The name, in text, JSON and messages: one word, which no primitive and no activation has.
    pub name: &'static str,
    /// What it computes.
    pub doc: &'static str,
    /// The names of its parameters; the first is the value it is applied to.
    pub parameters: &'static [&'static str],
    /// The definition: one `f32` value of the arguments and constants, over primitives and functions that do not call this one.
    pub body: fn(&mut Graph, &[NodeId]) -> NodeId,
    /// The derivative, where the one that follows from the body would need more to be saved or cancel: that of a sigmoid
    /// follows from its value.
    ///
    /// It has to be the derivative of the body. Equal values are one, so another one would also be taken wherever else the body's value is
    /// computed. What is meant to have another derivative than its own (a straight-through estimator, a gradient reversal) is
    /// a [`CustomOp`](super::CustomOp) with a [`partial`](super::CustomOp::partial), which is a value of its own.
    pub gradient: Option<Adjoint>,
}

impl Function {
    /// The body by itself: a graph whose first values stand for the arguments, and the result.
    pub(crate) fn apart(&self) -> (Graph, NodeId) {
        let mut graph = Graph::new();
        let parameters: Vec<NodeId> = (0..self.parameters.len()).map(|i| graph.push(parameter(i), None)).collect();
        let result = (self.body)(&mut graph, &parameters);
        (graph, result)
    }
}

/// A placeholder that no body can make: a scalar without a name.
fn parameter(index: usize) -> Node {
    Node::Scalar { name: format!("\u{0}{index}").into(), value_type: ValueType::F32 }
}

/// A function is one definition: of two that only share a name neither stands for the other.
impl PartialEq for Function {
    fn eq(&self, other: &Function) -> bool {
        std::ptr::eq(self, other)
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
        write!(f, "Function({})", word(self.name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_of_one_name_are_two_nodes() {
        const TWICE: Function = Function {
            name: "same",
            doc: "Twice the value.",
            parameters: &["x"],
            body: |graph, args| graph.apply(crate::ir::Op::Add, &[args[0], args[0]]),
            gradient: None,
        };
        static ONE: Function = TWICE;
        static OTHER: Function = Function { body: |_, args| args[0], ..TWICE };
        let mut graph = Graph::new();
        let acc = graph.push(Node::Accumulator(ValueType::F32), None);
        let [one, again, other] = [&ONE, &ONE, &OTHER].map(|function| graph.push(Node::Call { function, args: vec![acc] }, None));
        assert_eq!(one, again);
        assert_ne!(one, other);
    }
}
