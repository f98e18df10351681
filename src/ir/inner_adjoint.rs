//! Gradients of the elements of a reduction inside a graph, from the gradient of its result: a column of the table of
//! monoids.
//!
//! The gradient of a value that does not vary along an axis is the sum along that axis over the output's elements. So
//! the gradient of a result is summed along the axes of the reduction, before the elements get theirs.

use super::graph::{Coordinate, Graph, Node, NodeId};
use super::monoid::Monoid;
use super::op::Op;
use super::over::Over;

/// A reduction inside a graph: its axes, the values of an element, and its result.
#[derive(Clone, Copy, Debug)]
pub struct Reduced<'r> {
    /// The axes.
    pub over: Over,
    /// The values of an element.
    pub args: &'r [NodeId],
    /// The node itself.
    pub result: NodeId,
}

/// The gradient of an element, from the gradient of the result at each element of the output. `None` if it does not
/// follow from reductions over the same axes.
pub type InnerAdjoint = fn(&mut Graph, Reduced<'_>, NodeId) -> Option<NodeId>;

impl Reduced<'_> {
    /// A reduction of values along the same axes.
    fn reduce(self, graph: &mut Graph, monoid: Monoid, args: Vec<NodeId>) -> NodeId {
        graph.push(Node::Reduce { monoid, over: self.over, args }, graph.built_at(self.result))
    }

    fn sum(self, graph: &mut Graph, gradient: NodeId) -> NodeId {
        self.linear(graph, Monoid::Sum, gradient)
    }

    /// The sum or the mean of a gradient along the same axes. Factors that do not vary along them are taken out, as in
    /// a calculation by hand: each is multiplied once for all of the elements.
    fn linear(self, graph: &mut Graph, monoid: Monoid, gradient: NodeId) -> NodeId {
        let (mut inside, mut scales) = (gradient, Vec::new());
        loop {
            let node = graph.node(inside);
            let varies = |at: usize| graph.axes(node.args()[at]).without(self.over.axes) != graph.axes(node.args()[at]);
            let alone = |at: &usize| varies(*at) && (0..node.args().len()).all(|other| other == *at || !varies(other));
            let Some(at) = node.linear_in().iter().copied().find(alone) else { break };
            scales.push((node.clone(), at));
            inside = node.args()[at];
        }
        let mut result = self.reduce(graph, monoid, vec![inside]);
        for (scale, at) in scales.into_iter().rev() {
            let mut place = 0..;
            let scaled = scale.map_args(|a| if place.next() == Some(at) { result } else { a });
            result = graph.push(scaled, graph.built_at(self.result));
        }
        result
    }

    /// The gradient of the first of the elements whose `key` is the largest or, with [`Monoid::ArgMin`], the least; 0
    /// for the others.
    fn at_first(self, graph: &mut Graph, by: Monoid, key: NodeId, gradient: NodeId) -> Option<NodeId> {
        let coordinate = Coordinate::along(self.over.axes)?;
        let place = graph.push(Node::Coordinate(coordinate), graph.built_at(self.result));
        let first = self.reduce(graph, by, vec![key, place]);
        let (sum, is_first) = (self.sum(graph, gradient), graph.apply(Op::Eq, &[place, first]));
        let zero = graph.constant_of(graph.value_type(sum), 0.0);
        Some(graph.apply(Op::Select, &[is_first, sum, zero]))
    }
}

pub(super) fn of_sum(graph: &mut Graph, of: Reduced<'_>, gradient: NodeId) -> Option<NodeId> {
    Some(of.sum(graph, gradient))
}

pub(super) fn of_mean(graph: &mut Graph, of: Reduced<'_>, gradient: NodeId) -> Option<NodeId> {
    Some(of.linear(graph, Monoid::Mean, gradient))
}

pub(super) fn of_variance(graph: &mut Graph, of: Reduced<'_>, gradient: NodeId) -> Option<NodeId> {
    let (mean, share) = (of.reduce(graph, Monoid::Mean, of.args.to_vec()), of.linear(graph, Monoid::Mean, gradient));
    let (distance, twice) = (graph.apply(Op::Sub, &[of.args[0], mean]), graph.apply(Op::Add, &[share; 2]));
    Some(graph.apply(Op::Mul, &[distance, twice]))
}

pub(super) fn of_max(graph: &mut Graph, of: Reduced<'_>, gradient: NodeId) -> Option<NodeId> {
    of.at_first(graph, Monoid::ArgMax, of.args[0], gradient)
}

pub(super) fn of_min(graph: &mut Graph, of: Reduced<'_>, gradient: NodeId) -> Option<NodeId> {
    of.at_first(graph, Monoid::ArgMin, of.args[0], gradient)
}

pub(super) fn of_absmax(graph: &mut Graph, of: Reduced<'_>, gradient: NodeId) -> Option<NodeId> {
    let size = graph.apply(Op::Abs, &[of.args[0]]);
    let there = of.at_first(graph, Monoid::ArgMax, size, gradient)?;
    let sign = graph.apply(Op::Sign, &[of.args[0]]);
    Some(graph.apply(Op::Mul, &[there, sign]))
}

/// An element's share is its softmax, which the epilogue often computes anyway.
pub(super) fn of_logsumexp(graph: &mut Graph, of: Reduced<'_>, gradient: NodeId) -> Option<NodeId> {
    let (sum, less) = (of.sum(graph, gradient), graph.apply(Op::Sub, &[of.args[0], of.result]));
    let share = graph.apply(Op::Exp, &[less]);
    Some(graph.apply(Op::Mul, &[share, sum]))
}

pub(super) fn of_sum_squares(graph: &mut Graph, of: Reduced<'_>, gradient: NodeId) -> Option<NodeId> {
    let (sum, twice) = (of.sum(graph, gradient), graph.apply(Op::Add, &[of.args[0]; 2]));
    Some(graph.apply(Op::Mul, &[twice, sum]))
}

/// It is 0 if all elements are 0.
pub(super) fn of_norm2(graph: &mut Graph, of: Reduced<'_>, gradient: NodeId) -> Option<NodeId> {
    let (sum, zero) = (of.sum(graph, gradient), graph.constant_of(graph.value_type(of.result), 0.0));
    let (is_zero, scale) = (graph.apply(Op::Eq, &[of.result, zero]), graph.apply(Op::Div, &[sum, of.result]));
    let scale = graph.apply(Op::Select, &[is_zero, zero, scale]);
    Some(graph.apply(Op::Mul, &[of.args[0], scale]))
}
