//! Moments: the mean of squared distances from a mean becomes a variance, which does not wait for that mean. So one pass over
//! memory reduces both, and rows take both from one state.
//!
//! Needs no calls. Only reductions of `f32` that the caller names change. Results differ by roundings.

use super::rebuild;
use crate::check::Checked;
use crate::dtype::ValueType;
use crate::ir::graph::{Graph, Node, NodeId};
use crate::ir::{Monoid, Op, Over};

/// Merges the moments of values, where `merges` holds for what they are reduced over.
pub fn moments(checked: &Checked, merges: impl Fn(Over) -> bool) -> Checked {
    rebuild(checked, |graph, node, built_at| {
        let centred = match &node {
            Node::Reduce { over, args, .. } if merges(*over) && node == mean(*over, args[0]) => {
                centred(graph, *over, args[0]).map(|x| Node::Reduce { monoid: Monoid::Variance, over: *over, args: vec![x] })
            }
            _ => None,
        };
        graph.push(centred.unwrap_or(node), built_at)
    })
}

fn mean(over: Over, x: NodeId) -> Node {
    Node::Reduce { monoid: Monoid::Mean, over, args: vec![x] }
}

/// The value of whose distances from its own mean this is the square.
fn centred(graph: &Graph, over: Over, square: NodeId) -> Option<NodeId> {
    let distance = *graph.node(square).args().first()?;
    let &[x, from] = graph.node(distance).args() else { return None };
    let is = |id, op, args: [NodeId; 2]| *graph.node(id) == Node::Apply { op, args: args.to_vec() };
    let fits = graph.value_type(square) == ValueType::F32
        && is(square, Op::Mul, [distance; 2])
        && is(distance, Op::Sub, [x, from])
        && *graph.node(from) == mean(over, x);
    fits.then_some(x)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::check;
    use crate::dtype::DType::F32;
    use crate::ir::axes::N;
    use crate::ir::{Sink, SinkKind};

    /// A reduction over rows of squared distances from `from` of the value, as the pass leaves it.
    fn left(monoid: Monoid, from: Monoid, merges: bool) -> Vec<Monoid> {
        let mut graph = Graph::new();
        let x = graph.push(Node::Accumulator(ValueType::F32), None);
        let of = |monoid, x| Node::Reduce { monoid, over: N.into(), args: vec![x] };
        let centre = graph.push(of(from, x), None);
        let distance = graph.apply(Op::Sub, &[x, centre]);
        let square = graph.apply(Op::Mul, &[distance, distance]);
        let moment = graph.push(of(monoid, square), None);
        graph.sink(Sink::new("d", moment, SinkKind::Store(F32.into())), None);
        let merged = moments(&check(graph).unwrap(), |_| merges);
        let live = merged.graph().live();
        let nodes = merged.graph().nodes().filter(|(id, _)| live[id.index()]);
        nodes.filter_map(|(_, node)| if let Node::Reduce { monoid, .. } = node { Some(*monoid) } else { None }).collect()
    }

    #[test]
    fn means_of_squared_distances_from_the_mean_alone_are_variances() {
        assert_eq!(left(Monoid::Mean, Monoid::Mean, true), [Monoid::Variance]);
        assert_eq!(left(Monoid::Mean, Monoid::Mean, false), [Monoid::Mean, Monoid::Mean]);
        assert_eq!(left(Monoid::Sum, Monoid::Mean, true), [Monoid::Mean, Monoid::Sum]);
        assert_eq!(left(Monoid::Max, Monoid::Mean, true), [Monoid::Mean, Monoid::Max]);
        assert_eq!(left(Monoid::Mean, Monoid::Max, true), [Monoid::Max, Monoid::Mean]);
    }
}
