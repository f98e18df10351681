//! The variance as a monoid, with which a plan replaces two reductions that wait for each other.
//!
//! A state has a count, a shift, and the sums of distances from that shift and of their squares. The shift of an element is
//! the element itself, so a thread adds distances from the first that it takes: sums of squares are lost to cancellation
//! where elements lie far from zero, and these lie near. States are combined by their means (Chan et al. 1979).

use super::custom_monoid::{Body, CustomMonoid};
use super::graph::{Constant, Graph, Node, NodeId};
use super::monoid::Monoid;
use super::op::Op;
use crate::dtype::ValueType::F32;
use std::sync::OnceLock;

/// The mean of squared distances of `f32` elements from their mean; NaN for no elements.
pub(crate) fn variance() -> Monoid {
    static DEFINED: OnceLock<Monoid> = OnceLock::new();
    *DEFINED.get_or_init(|| {
        let zero = Constant::F32(0);
        let bodies = [body(1, lift), body(8, combine), body(4, result)];
        Monoid::Custom(CustomMonoid::interned("variance", vec![F32], vec![zero; 4], bodies, Some(body(5, take))))
    })
}

/// The function that a closure writes over so many parameters.
fn body(parameters: usize, write: fn(&mut Graph, &[NodeId]) -> Vec<NodeId>) -> Body {
    let mut graph = Graph::new();
    let given: Vec<NodeId> = (0..parameters).map(|i| graph.push(Node::scalar(format!("x{i}"), F32), None)).collect();
    let results = write(&mut graph, &given);
    Body::new(graph, parameters, results)
}

fn lift(graph: &mut Graph, x: &[NodeId]) -> Vec<NodeId> {
    let [one, zero] = [1.0, 0.0].map(|x| graph.constant_f32(x));
    vec![one, x[0], zero, zero]
}

/// The state, and then the element.
fn take(graph: &mut Graph, x: &[NodeId]) -> Vec<NodeId> {
    let &[count, shift, sum, squares, element] = x else { return Vec::new() };
    let [one, zero] = [1.0, 0.0].map(|x| graph.constant_f32(x));
    let is_first = graph.apply(Op::Eq, &[count, zero]);
    let shift = graph.apply(Op::Select, &[is_first, element, shift]);
    let distance = graph.apply(Op::Sub, &[element, shift]);
    let square = graph.apply(Op::Mul, &[distance, distance]);
    let [count, sum, squares] = [(count, one), (sum, distance), (squares, square)].map(|(a, b)| graph.apply(Op::Add, &[a, b]));
    vec![count, shift, sum, squares]
}

/// The divisor, the mean, and the sum of squared distances from it.
fn settled(graph: &mut Graph, state: &[NodeId]) -> [NodeId; 3] {
    let &[count, shift, sum, squares] = state else { return [state[0]; 3] };
    let [one, zero] = [1.0, 0.0].map(|x| graph.constant_f32(x));
    let divisor = graph.apply(Op::Max, &[count, one]);
    let moved = graph.apply(Op::Div, &[sum, divisor]);
    let mean = graph.apply(Op::Add, &[shift, moved]);
    let too_much = graph.apply(Op::Mul, &[sum, moved]);
    let squares = graph.apply(Op::Sub, &[squares, too_much]);
    [divisor, mean, graph.apply(Op::Max, &[squares, zero])]
}

/// Where one state is empty, the other is the result: its share is 1, and that of the distance between them 0.
fn combine(graph: &mut Graph, x: &[NodeId]) -> Vec<NodeId> {
    let (a, b) = x.split_at(4);
    let ([_, mean, squares], [_, other, more]) = (settled(graph, a), settled(graph, b));
    let [one, zero] = [1.0, 0.0].map(|x| graph.constant_f32(x));
    let mut apply = |op, a, b| graph.apply(op, &[a, b]);
    let count = apply(Op::Add, a[0], b[0]);
    let divisor = apply(Op::Max, count, one);
    let [share, rest] = [a[0], b[0]].map(|of| apply(Op::Div, of, divisor));
    let distance = apply(Op::Sub, other, mean);
    let moved = apply(Op::Mul, distance, rest);
    let shift = apply(Op::Add, mean, moved);
    // In this order nothing overflows that is multiplied by 0.
    let [within, across] = [(share, distance), (b[0], distance)].map(|(a, b)| apply(Op::Mul, a, b));
    let between = apply(Op::Mul, within, across);
    let both = apply(Op::Add, squares, more);
    vec![count, shift, zero, apply(Op::Add, both, between)]
}

fn result(graph: &mut Graph, state: &[NodeId]) -> Vec<NodeId> {
    let [_, _, squares] = settled(graph, state);
    vec![graph.apply(Op::Div, &[squares, state[0]])]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(elements: &[f64], parts: usize) -> f64 {
        let monoid = variance();
        let states = elements.chunks(elements.len().div_ceil(parts).max(1)).map(|part| {
            let mut state = monoid.identity(F32);
            part.iter().for_each(|x| monoid.take(F32, &mut state, &[*x]));
            state
        });
        let mut all = monoid.identity(F32);
        states.for_each(|state| monoid.join(F32, &mut all, &state));
        monoid.result(&all, elements.len() as f64)
    }

    #[test]
    fn it_is_its_definition_in_every_grouping() {
        let elements: Vec<f64> = (0..97).map(|i| 1e6 + f64::from(i * i % 31)).collect();
        let mean = elements.iter().sum::<f64>() / 97.0;
        let exact = elements.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / 97.0;
        for parts in [1, 2, 5, 97, 200] {
            assert!((of(&elements, parts) - exact).abs() < 1e-8 * exact, "{parts} parts");
        }
        assert_eq!(of(&[3.0], 1), 0.0);
        assert_eq!(of(&[1e30; 8], 4), 0.0);
        assert!(of(&[], 1).is_nan() && of(&[1.0, f64::NAN, 2.0], 2).is_nan());
        assert!(of(&[1.0, f64::INFINITY], 1).is_nan());
    }

    #[test]
    fn it_obeys_the_laws() {
        let Monoid::Custom(monoid) = variance() else { panic!("it is not one of the table") };
        assert_eq!(monoid.broken_law(&[-2.5, 0.0, 0.25, 3.0, 1000.0].map(|x| vec![x])), None);
    }
}
