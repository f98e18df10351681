//! Transpose: the epilogue as the transposed problem sees it.
//!
//! D^T = B^T A^T: exchanging A with B and M with N turns a column-major output into a row-major one, which the mainloops
//! store in wide, coalesced accesses. Needs nothing. Leaves rows where columns were and the reverse: coordinates, axes of
//! vectors, orders of matrices, elements of A where those of B were,
//! reductions over rows where they went over columns. Applying it twice gives the graph back.

use crate::check::{Argument, Checked, Role};
use crate::ir::Sink;
use crate::ir::graph::{Coordinate, Graph, Node};

/// Exchanges M and N.
pub fn transpose(checked: &Checked) -> Checked {
    let old = checked.graph();
    let mut graph = Graph::new();
    let mut ids = Vec::with_capacity(old.len());
    for (id, node) in old.nodes() {
        let node = match node.map_args(|a| ids[a.index()]) {
            Node::Coordinate(Coordinate::Row) => Node::Coordinate(Coordinate::Column),
            Node::Coordinate(Coordinate::Column) => Node::Coordinate(Coordinate::Row),
            Node::Load { name, operand, default } => Node::Load { name, operand: operand.transposed(), default },
            Node::Element(side, value) => Node::Element(side.transposed(), value),
            Node::Reduce { monoid, over, args } => Node::Reduce { monoid, over: over.transposed(), args },
            other => other,
        };
        ids.push(graph.push(node, old.built_at(id)));
    }
    for (index, sink) in old.sinks().iter().enumerate() {
        let sink = Sink { kind: sink.kind.transposed(), ..sink.map(|value| ids[value.index()]) };
        graph.sink(sink, old.sink_built_at(index));
    }
    let turn = |role: Role| match role {
        Role::Scalar(_) | Role::Table(_) | Role::Counts(_) => role,
        Role::Input(operand) => Role::Input(operand.transposed()),
        Role::Output(operand) => Role::Output(operand.transposed()),
        Role::Update(operand) => Role::Update(operand.transposed()),
    };
    let arguments = checked.arguments().iter().map(|a| Argument { role: turn(a.role), ..a.clone() });
    Checked::rebuilt(graph, arguments.collect())
}
