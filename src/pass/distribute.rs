//! Distribute: a sum or mean of `r * x + s * y` becomes `r` times that of `x`, plus `s` times that of `y`, where `r` and `s` come
//! from other reductions and are the same for all summed elements. Then it waits for none of them, and one pass over a row
//! reduces everything. A layer norm's gradient is such a case.
//!
//! Needs no calls. A difference stays, and so does a distance from a reduction, as in the mean of `x - mean(x)`: it is summed for
//! what a difference of sums would lose. Only reductions of `f32` change. Results differ by roundings.

use super::rebuild_reductions;
use crate::check::Checked;
use crate::dtype::ValueType;
use crate::ir::graph::{BuiltAt, Graph, Node, NodeId};
use crate::ir::{Monoid, Op, Over};

/// Sums that replace one, at the most: each of them takes registers and a place beside the others.
const MOST: usize = 3;
/// Nodes that are looked at for one sum, at the most: a document may chain any number of them.
const MOST_NODES: usize = 64;

/// Distributes all sums that wait for other reductions, where no sum waits behind it.
pub fn distribute(checked: &Checked) -> Checked {
    rebuild_reductions(checked, Monoid::is_linear, distributed)
}

/// A part of a linear function: a value that is summed, and the factors of its sum.
struct Term {
    of: NodeId,
    factors: Vec<NodeId>,
    negative: bool,
}

struct Terms<'g> {
    graph: &'g mut Graph,
    levels: &'g [usize],
    over: Over,
    /// The level of the reduced value.
    waits: usize,
    found: Vec<Term>,
    looked_at: usize,
}

impl Terms<'_> {
    fn varies(&self, id: NodeId) -> bool {
        self.over.varies(self.graph.axes(id))
    }

    fn waits(&self, id: NodeId) -> bool {
        // Nodes that this pass has added are products of values that do not wait.
        self.levels.get(id.index()).is_some_and(|level| *level == self.waits)
    }

    /// Adds the terms of a value, times factors. `None` if it is not such a function.
    fn take(&mut self, id: NodeId, factors: &[NodeId], negative: bool) -> Option<()> {
        self.looked_at += 1;
        if !self.varies(id) || self.looked_at > MOST_NODES {
            return None;
        }
        let (products, args): (_, Vec<NodeId>) = match self.graph.node(id) {
            Node::Apply { op, args } => (op.row().products, args.clone()),
            _ => (&[][..], Vec::new()),
        };
        // What is the same for all summed elements is a factor, whatever it waits for.
        let has_factor = || products.len() == 1 && products[0].1.iter().any(|&i| !self.varies(args[i]));
        if !self.waits(id) && !has_factor() {
            self.found.push(Term { of: id, factors: factors.to_vec(), negative });
            return Some(());
        }
        if products.is_empty() {
            return None;
        }
        products.iter().try_for_each(|(subtracted, operands)| {
            let operands: Vec<NodeId> = operands.iter().map(|&i| args[i]).collect();
            self.product(&operands, factors, negative != *subtracted)
        })
    }

    fn product(&mut self, operands: &[NodeId], factors: &[NodeId], negative: bool) -> Option<()> {
        let (vary, same): (Vec<NodeId>, Vec<NodeId>) = operands.iter().partition(|&&id| self.varies(id));
        let factors = [factors, &same].concat();
        if let [of] = vary[..] {
            return self.take(of, &factors, negative);
        }
        if vary.iter().any(|&id| self.waits(id)) {
            return None;
        }
        let of = vary.into_iter().reduce(|a, b| self.graph.apply(Op::Mul, &[a, b]))?;
        self.found.push(Term { of, factors, negative });
        Some(())
    }
}

/// The sums of the terms, each times its factors, if the value is a linear function that waits.
fn distributed(
    graph: &mut Graph,
    levels: &[usize],
    (monoid, over, value): (Monoid, Over, NodeId),
    built_at: BuiltAt,
) -> Option<NodeId> {
    let waits = levels[value.index()];
    if waits == 0 || over.band.is_some() || graph.value_type(value) != ValueType::F32 {
        return None;
    }
    let mut terms = Terms { graph, levels, over, waits, found: Vec::new(), looked_at: 0 };
    terms.take(value, &[], false)?;
    let found = terms.found;
    if found.iter().any(|term| term.negative != found[0].negative) {
        return None;
    }
    let mut sums: Vec<(NodeId, Option<NodeId>)> = Vec::new();
    for Term { of, factors, negative } in found {
        let product = factors.into_iter().reduce(|a, b| graph.apply(Op::Mul, &[a, b]));
        let factor = match (product, negative) {
            (product, false) => product,
            (Some(product), true) => Some(graph.apply(Op::Neg, &[product])),
            (None, true) => Some(graph.constant_f32(-1.0)),
        };
        match sums.iter_mut().find(|(summed, _)| *summed == of) {
            Some((_, before)) => {
                let [a, b] = [*before, factor].map(|factor| factor.unwrap_or_else(|| graph.constant_f32(1.0)));
                *before = Some(graph.apply(Op::Add, &[a, b]));
            }
            None => sums.push((of, factor)),
        }
    }
    if sums.len() > MOST {
        return None;
    }
    sums.into_iter().fold(None, |total, (of, factor)| {
        let sum = graph.push(Node::Reduce { monoid, over, args: vec![of] }, built_at);
        Some(match (total, factor) {
            (None, None) => sum,
            (None, Some(factor)) => graph.apply(Op::Mul, &[factor, sum]),
            (Some(total), None) => graph.apply(Op::Add, &[total, sum]),
            (Some(total), Some(factor)) => graph.apply(Op::Fma, &[factor, sum, total]),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::check;
    use crate::dtype::DType::F32;
    use crate::ir::axes::{M, N};
    use crate::ir::{Sink, SinkKind};
    use crate::pass::count_waiting;

    /// The reductions over rows that are live in a graph, as the pass leaves it, each with how many it waits for.
    fn left(value: impl FnOnce(&mut Graph, NodeId, NodeId) -> NodeId) -> Vec<usize> {
        let mut graph = Graph::new();
        let x = graph.push(Node::Accumulator(ValueType::F32), None);
        let y = graph.push(Node::load("y", F32), None);
        let summed = value(&mut graph, x, y);
        let sum = graph.push(Node::Reduce { monoid: Monoid::Mean, over: N.into(), args: vec![summed] }, None);
        let out = graph.apply(Op::Sub, &[summed, sum]);
        let out = graph.apply(Op::Add, &[out, y]);
        graph.sink(Sink::new("d", out, SinkKind::Store(F32.into())), None);
        let after = distribute(&check(graph).unwrap());
        let (graph, live) = (after.graph(), after.graph().live());
        let mut levels = Vec::new();
        count_waiting(graph, &mut levels);
        let nodes = graph.nodes().filter(|(id, node)| live[id.index()] && matches!(node, Node::Reduce { .. }));
        nodes.map(|(id, _)| levels[id.index()] - 1).collect()
    }

    fn sum(graph: &mut Graph, monoid: Monoid, x: NodeId) -> NodeId {
        graph.push(Node::Reduce { monoid, over: N.into(), args: vec![x] }, None)
    }

    #[test]
    fn sums_of_a_linear_function_of_sums_wait_for_nothing() {
        // A layer norm's gradient: `r * y + m * x + m * x`, where `m` is a mean of `x * y`.
        let of_norm = left(|graph, x, y| {
            let r = graph.push(Node::load("r", F32.over(M)), None);
            let both = graph.apply(Op::Mul, &[x, y]);
            let m = sum(graph, Monoid::Mean, both);
            let part = graph.apply(Op::Mul, &[m, x]);
            let first = graph.apply(Op::Fma, &[y, r, part]);
            graph.apply(Op::Add, &[first, part])
        });
        assert_eq!(of_norm, [0; 3], "the mean of both, that of y, and that of x");
        let scaled = left(|graph, x, y| {
            let m = sum(graph, Monoid::Max, y);
            let less = graph.apply(Op::Sub, &[x, y]);
            let negative = graph.apply(Op::Neg, &[less]);
            graph.apply(Op::Mul, &[negative, m])
        });
        assert_eq!(scaled, [0; 2], "one sum of a value that does not wait");
    }

    #[test]
    fn others_wait() {
        let distance = left(|graph, x, _| {
            let mean = sum(graph, Monoid::Mean, x);
            graph.apply(Op::Sub, &[x, mean])
        });
        assert_eq!(distance, [0, 1], "a distance from a mean");
        let exponential = left(|graph, x, _| {
            let most = sum(graph, Monoid::Max, x);
            let less = graph.apply(Op::Mul, &[x, most]);
            graph.apply(Op::Exp2, &[less])
        });
        assert_eq!(exponential, [0, 1], "not linear");
        let difference = left(|graph, x, y| {
            let mean = sum(graph, Monoid::Mean, x);
            let scaled = graph.apply(Op::Mul, &[mean, x]);
            graph.apply(Op::Sub, &[scaled, y])
        });
        assert_eq!(difference, [0, 1], "a difference of two that vary");
        let chain = left(|graph, x, _| {
            let mean = sum(graph, Monoid::Mean, x);
            (0..1000).fold(x, |x, _| graph.apply(Op::Mul, &[mean, x]))
        });
        assert_eq!(chain, [0, 1], "a chain that is too long to look at");
        let product = left(|graph, x, y| {
            let mean = sum(graph, Monoid::Mean, x);
            let scaled = graph.apply(Op::Mul, &[mean, x]);
            graph.apply(Op::Mul, &[scaled, y])
        });
        assert_eq!(product, [0, 1], "a product of two that vary, of which one waits");
    }
}
