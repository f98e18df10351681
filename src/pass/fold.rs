//! Fold: what can be computed now is a constant.
//!
//! Needs nothing. Leaves no bit-exact primitive whose operands are all constants, no select with a constant condition, and
//! nothing that a [law](crate::ir::op::Law) of the table replaces. Only rows with an error bound of 0 units in the last place are folded: any other would give a value the
//! GPU might not. Integers are exact and always fold.

use super::rebuild;
use crate::check::Checked;
use crate::dtype::ValueType;
use crate::ir::graph::{BuiltAt, Constant, Graph, Node, NodeId};
use crate::ir::op::{Op, Rewrite, Signature};

/// Folds constants.
pub fn fold(checked: &Checked) -> Checked {
    rebuild(checked, place)
}

/// Adds a node over operands that are folded already, or what it comes to.
pub(crate) fn place(graph: &mut Graph, node: Node, built_at: BuiltAt) -> NodeId {
    let constant = |graph: &Graph, id: NodeId| if let Node::Constant(c) = graph.node(id) { Some(*c) } else { None };
    if let Node::Apply { op, args } = &node {
        if op.row().signature == Signature::Select
            && let Some(condition) = constant(graph, args[0])
        {
            return args[if condition.value() != 0.0 { 1 } else { 2 }];
        }
        let operands: Option<Vec<Constant>> = args.iter().map(|a| constant(graph, *a)).collect();
        if let Some(value) = operands.and_then(|operands| evaluate(*op, &operands)) {
            return graph.push(Node::Constant(value), built_at);
        }
        match op.row().law.and_then(|law| law(graph, args)) {
            Some(Rewrite::Is(id)) => return id,
            Some(Rewrite::Becomes(node)) => return place(graph, node, built_at),
            None => {}
        }
    }
    graph.push(node, built_at)
}

/// The value of a primitive of constants, where every machine computes the same.
pub(crate) fn evaluate(op: Op, operands: &[Constant]) -> Option<Constant> {
    let row = op.row();
    let integers: Option<Vec<i32>> = operands.iter().map(|c| if let Constant::I32(x) = c { Some(*x) } else { None }).collect();
    if let (Signature::Numeric(_), Some(x), Some(eval)) = (row.signature, &integers, row.eval_i32) {
        return Some(Constant::I32(eval(x)));
    }
    let result = match row.signature {
        Signature::Float(_) | Signature::Numeric(_) => ValueType::F32,
        Signature::Compare | Signature::Logic(_) => ValueType::Bool,
        Signature::Select => operands[1].value_type(),
        Signature::Convert(to) => to,
    };
    let values: Vec<f64> = operands.iter().map(|c| c.value()).collect();
    (row.ulp == 0).then(|| Constant::of(result, (row.eval)(&values)))
}
