//! The joint graph: the forward values and, after the sweep, the gradients made from them.
//!
//! The accumulator of the backward epilogue is an incoming gradient. Until the reserve is planned, the forward
//! accumulator is a load under a name that no argument can have.

use super::error::GradError;
use super::masks;
use crate::check::{Checked, Type};
use crate::dtype::ValueType;
use crate::ir::function::expand;
use crate::ir::graph::{Graph, Node, NodeId};
use crate::ir::{Function, Sink};
use crate::pass;
use std::collections::HashMap;
use std::sync::Arc;

/// The name of the forward accumulator in a joint graph.
pub(super) const FORWARD: &str = "\0acc";

/// A function's own derivative: the function and its arguments.
pub(super) type Rule = (&'static Function, Vec<NodeId>);

/// The forward values of an epilogue, calls replaced by their bodies.
pub(super) struct Joint {
    pub graph: Graph,
    /// Types of the forward values.
    pub types: Vec<Type>,
    /// Values of functions with a derivative of their own.
    pub rules: HashMap<NodeId, Rule>,
    /// For each value of the epilogue, the value in this graph.
    pub of_user: Vec<NodeId>,
}

impl Joint {
    pub fn new(forward: &Checked) -> Result<Joint, GradError> {
        let (mut graph, mut rules) = (Graph::new(), HashMap::new());
        // It exists even if nothing depends on it. Its gradient is then 0.
        graph.push(accumulator(forward.accumulator().unwrap_or(ValueType::F32)), None);
        let mut of_user: Vec<NodeId> = Vec::new();
        let mut lost = None;
        for (id, node) in forward.graph().nodes() {
            let built_at = forward.graph().built_at(id);
            let node = match node.map_args(|a| of_user[a.index()]) {
                Node::Accumulator(value) => accumulator(value),
                other => other,
            };
            of_user.push(expand(&mut graph, node, built_at, &mut |function, args, result| {
                if function.gradient.is_some() {
                    // A rule belongs to a value, and this value is the argument's.
                    if args.contains(&result) && pass::is_argument(function) {
                        lost.get_or_insert(GradError::Argument { function: function.name, built_at });
                    }
                    rules.insert(result, (function, args.to_vec()));
                }
            }));
        }
        if let Some(error) = lost {
            return Err(error);
        }
        let checked = Checked::rebuilt(graph, Vec::new());
        let types = checked.graph().nodes().map(|(id, _)| checked.type_of(id)).collect();
        Ok(Joint { graph: checked.graph().clone(), types, rules, of_user })
    }
}

/// The forward accumulator.
fn accumulator(value: ValueType) -> Node {
    Node::load(FORWARD, value.storage())
}

/// A joint graph with its sinks after folding, and the places of the epilogue's values.
pub(super) struct Folded {
    pub checked: Checked,
    /// For each value of the epilogue, the value in this graph, if the backward pass is related to it.
    pub of_user: Vec<Option<NodeId>>,
    /// For each value of the epilogue, the condition of a ReLU that equals it everywhere except at the border.
    pub at_border: Vec<Option<NodeId>>,
}

impl Joint {
    /// Folds constants, applies the laws of the table, joins nested masks into one, and makes regions outermost.
    /// `incoming` are the names of gradients that are loaded.
    pub fn fold(&self, sinks: Vec<Sink>, incoming: &[Arc<str>]) -> Folded {
        let mut joint = self.graph.clone();
        sinks.into_iter().for_each(|sink| joint.sink(sink, None));
        let live = joint.live();
        let (mut graph, mut regions) = (Graph::new(), masks::Placed::new());
        let mut ids: Vec<Option<NodeId>> = Vec::new();
        for (id, node) in joint.nodes() {
            let operand = |a: NodeId| ids[a.index()].unwrap_or(a);
            let node = node.map_args(operand);
            let placed = live[id.index()].then(|| masks::place(&mut graph, node, joint.built_at(id), incoming, &mut regions));
            ids.push(placed);
        }
        for sink in joint.sinks() {
            graph.sink(sink.map(|value| ids[value.index()].unwrap_or(value)), None);
        }
        let here = |id: NodeId| ids[id.index()].or_else(|| masks::of_relu(&graph, joint.node(id), |a| ids[a.index()]));
        let of_user = self.of_user.iter().map(|id| here(*id)).collect();
        let border = |id: NodeId| masks::at_relu(&graph, joint.node(id), |a| ids[a.index()]);
        let at_border = self.of_user.iter().map(|id| border(*id)).collect();
        Folded { checked: Checked::rebuilt(graph, Vec::new()), of_user, at_border }
    }
}
