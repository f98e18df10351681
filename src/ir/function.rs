//! Functions: named definitions over primitives. An activation is one.
//!
//! A call keeps its name in the graph, so that listings, JSON and profiles say `gelu_tanh`. Its meaning is the body.
//! The inline pass replaces the call with it before a kernel is planned or a value is computed.

use super::graph::{BuiltAt, Constant, Graph, Node, NodeId};
use super::name::word;
use super::op::Adjoint;
use crate::dtype::ValueType;
use std::fmt;
use std::hash::{Hash, Hasher};

/// A named definition over primitives. Arguments and result are `f32`. The function is also defined over `f64`
/// arguments if its body is, that is, if the body takes its constants in the type of the arguments, like an
/// activation's. It is also defined over integers if the body's primitives take integers and its constants are whole
/// numbers: `relu` of `i32` is `max(x, 0)`.
pub struct Function {
    /// The name in text, JSON and messages: one word that is not the name of a primitive or an activation.
    pub name: &'static str,
    /// What the function computes.
    pub doc: &'static str,
    /// The names of its parameters. The first is the value that it is applied to.
    pub parameters: &'static [&'static str],
    /// The definition: one `f32` value of the arguments and constants, over primitives and functions that do not call this one.
    pub body: fn(&mut Graph, &[NodeId]) -> NodeId,
    /// The derivative, if the one that follows from the body would save more or cancel: that of a sigmoid follows from
    /// its value.
    ///
    /// It must be the derivative of the body. Equal values are one node, so a different derivative would also apply
    /// wherever else the body's value is computed. A function with a deliberately different derivative (a
    /// straight-through estimator, a gradient reversal) is a [`CustomOp`](super::CustomOp) with a
    /// [`partial`](super::CustomOp::partial), whose value is distinct.
    pub gradient: Option<Adjoint>,
}

impl Function {
    /// The body alone, over arguments of one type: a graph whose first values stand for the arguments, and the result.
    /// Over integers its whole constants are integers.
    pub(crate) fn apart(&self, value: ValueType) -> (Graph, NodeId) {
        let mut graph = Graph::new();
        let parameters: Vec<NodeId> = (0..self.parameters.len()).map(|i| graph.push(parameter(i, value), None)).collect();
        let result = (self.body)(&mut graph, &parameters);
        if value == ValueType::I32 { integral(&graph, result) } else { (graph, result) }
    }
}

/// Adds a node. In place of a call it adds the function's body, and passes the function, its arguments and its result
/// to `called`.
pub(crate) fn expand(
    graph: &mut Graph,
    node: Node,
    built_at: BuiltAt,
    called: &mut dyn FnMut(&'static Function, &[NodeId], NodeId),
) -> NodeId {
    let Node::Call { function, args } = node else { return graph.push(node, built_at) };
    // The body goes into a separate graph, whose first nodes stand for the arguments, and from there node by node,
    // because it may call other functions.
    let (body, result) = function.apart(args.first().map_or(ValueType::F32, |a| graph.value_type(*a)));
    let mut ids: Vec<NodeId> = args.clone();
    for (_, inner) in body.nodes().skip(args.len()) {
        let inner = inner.map_args(|a| ids[a.index()]);
        let id = expand(graph, inner, built_at, called);
        ids.push(id);
    }
    let result = ids[result.index()];
    called(function, &args, result);
    result
}

/// The same body with integers in place of constants that are whole numbers.
fn integral(body: &Graph, result: NodeId) -> (Graph, NodeId) {
    let mut graph = Graph::new();
    let mut ids: Vec<NodeId> = Vec::new();
    for (id, node) in body.nodes() {
        let node = match node {
            Node::Constant(Constant::F32(bits)) if whole(f32::from_bits(*bits)) => {
                Node::Constant(Constant::I32(f32::from_bits(*bits) as i32))
            }
            node => node.map_args(|a| ids[a.index()]),
        };
        ids.push(graph.push(node, body.built_at(id)));
    }
    // Another rule reports a body that returns a value of another graph.
    (graph, ids.get(result.index()).copied().unwrap_or(result))
}

fn whole(x: f32) -> bool {
    f64::from(x as i32) == f64::from(x)
}

/// A placeholder that no body can make: a scalar without a name.
fn parameter(index: usize, value_type: ValueType) -> Node {
    Node::scalar(format!("\u{0}{index}"), value_type)
}

/// A function is one definition. Two functions that only share a name are different.
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
