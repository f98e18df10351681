//! Fold: replaces computable values by constants.
//!
//! Needs nothing. Leaves no bit-exact primitive whose operands are all constants, no select with a constant condition,
//! and nothing that a [law](crate::ir::op::Law) of the table replaces. Only rows with an error bound of 0 units in the
//! last place are folded: any other could give a value that differs from the GPU's. Integers are exact and always fold.

use super::rebuild;
use crate::check::Checked;
use crate::dtype::ValueType;
use crate::ir::graph::{BuiltAt, Constant, Graph, Node, NodeId};
use crate::ir::op::{Op, Rewrite, Signature};

/// Folds constants.
pub fn fold(checked: &Checked) -> Checked {
    rebuild(checked, place)
}

/// Adds a node over folded operands, or the node that it simplifies to.
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

/// The value of a primitive of constants, if every machine computes the same.
pub(crate) fn evaluate(op: Op, operands: &[Constant]) -> Option<Constant> {
    let row = op.row();
    let types: Vec<ValueType> = operands.iter().map(|c| c.value_type()).collect();
    if let Some(eval) = row.on_integers(&types) {
        let x: Vec<i32> = operands.iter().map(|c| c.value() as i32).collect();
        return Some(Constant::I32(eval(&x)));
    }
    let result = row.signature.result(&types)?;
    let values: Vec<f64> = operands.iter().map(|c| c.value()).collect();
    row.is_exact(&types).then(|| Constant::of(result, (row.eval)(&values)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::check;
    use crate::dtype::DType;
    use crate::ir::{Sink, SinkKind};

    /// Whether `op` is still present in `op(x, constant)`, folded.
    fn stays(op: Op, constant: Constant) -> bool {
        let mut graph = Graph::new();
        let value_type = constant.value_type();
        let x = graph.push(Node::load("x", value_type.storage()), None);
        let constant = graph.push(Node::Constant(constant), None);
        let value = graph.apply(op, &[x, constant]);
        let to: DType = value_type.storage();
        graph.sink(Sink::new("d", value, SinkKind::Store(to.into())), None);
        let folded = fold(&check(graph).unwrap());
        folded.graph().nodes().any(|(_, node)| matches!(node, Node::Apply { op: found, .. } if *found == op))
    }

    #[test]
    fn laws_hold_for_their_constant_and_not_for_its_neighbour() {
        let float = |x: f32| Constant::F32(x.to_bits());
        let (int, truth) = (Constant::I32, Constant::Bool);
        let rows = [
            // x + 0 is 0, not -0, where x is -0; x - -0 likewise.
            (Op::Add, float(-0.0), float(0.0)),
            (Op::Add, int(0), int(1)),
            (Op::Sub, float(0.0), float(-0.0)),
            (Op::Sub, int(0), int(1)),
            (Op::Mul, float(1.0), float(-1.0)),
            (Op::Mul, int(1), int(0)),
            (Op::Div, float(1.0), float(-1.0)),
            (Op::Div, int(1), int(0)),
            (Op::And, int(-1), int(1)),
            (Op::And, int(0), int(1)),
            (Op::Or, int(0), int(1)),
            (Op::Or, int(-1), int(1)),
            (Op::Xor, int(0), int(-1)),
            (Op::Xor, truth(false), truth(true)),
            (Op::Shl, int(0), int(1)),
            (Op::Shr, int(0), int(1)),
        ];
        for (op, gone, kept) in rows {
            assert!(!stays(op, gone), "{} {gone:?}", op.name());
            assert!(stays(op, kept), "{} {kept:?}", op.name());
        }
    }

    #[test]
    fn only_what_every_machine_computes_alike_is_folded() {
        let two = Constant::F32(2f32.to_bits());
        for &op in Op::ALL {
            let row = op.row();
            let arity = row.signature.arity();
            if row.signature.result(&vec![ValueType::F32; arity]).is_none() {
                continue;
            }
            assert_eq!(evaluate(op, &vec![two; arity]).is_some(), row.ulp == 0, "{}", op.name());
        }
    }
}
