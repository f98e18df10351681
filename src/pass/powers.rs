//! Powers: the logarithm of a sum of exponentials becomes the largest exponent plus the logarithm of a sum of powers, and a
//! softmax one of these powers over their sum. Threads that keep the powers of a row take one exponential of each element.
//!
//! Needs no calls. Only reductions of `f32` change. Results differ by roundings.

use super::rebuild;
use crate::check::Checked;
use crate::dtype::ValueType;
use crate::ir::graph::{BuiltAt, Graph, Node, NodeId};
use crate::ir::{Monoid, Op, Over};

/// A sum of powers: what is summed, the logarithm, a power, and the reciprocal of the sum.
struct Powers {
    of: NodeId,
    logarithm: NodeId,
    power: NodeId,
    share: NodeId,
}

/// Takes apart all logarithms of sums of exponentials.
pub fn powers(checked: &Checked) -> Checked {
    let mut all: Vec<Powers> = Vec::new();
    rebuild(checked, |graph, node, built_at| match &node {
        Node::Reduce { over, args, .. }
            if graph.value_type(args[0]) == ValueType::F32 && node == reduce(Monoid::LogSumExp, *over, args[0]) =>
        {
            let powers = Powers::of(graph, *over, args[0], built_at);
            let logarithm = powers.logarithm;
            all.push(powers);
            logarithm
        }
        Node::Apply { args, .. } if node == apply(Op::Exp, args) => {
            let less = |powers: &&Powers| *graph.node(args[0]) == apply(Op::Sub, &[powers.of, powers.logarithm]);
            match all.iter().find(less).map(|powers| [powers.power, powers.share]) {
                Some(factors) => graph.push(apply(Op::Mul, &factors), built_at),
                None => graph.push(node, built_at),
            }
        }
        _ => graph.push(node, built_at),
    })
}

fn apply(op: Op, args: &[NodeId]) -> Node {
    Node::Apply { op, args: args.to_vec() }
}

fn reduce(monoid: Monoid, over: Over, x: NodeId) -> Node {
    Node::Reduce { monoid, over, args: vec![x] }
}

impl Powers {
    fn of(graph: &mut Graph, over: Over, of: NodeId, built_at: BuiltAt) -> Powers {
        let largest = graph.push(reduce(Monoid::Max, over, of), built_at);
        // Infinity has no difference from itself. Beside infinity a finite exponent has a share of 0.
        let [zero, most] = [0.0, f32::MAX].map(|x| graph.constant_f32(x));
        let above = graph.apply(Op::Gt, &[largest, zero]);
        let bound = graph.apply(Op::Select, &[above, most, zero]);
        let finite = graph.apply(Op::IsFinite, &[largest]);
        let offset = graph.apply(Op::Select, &[finite, largest, bound]);
        let distance = graph.apply(Op::Sub, &[of, offset]);
        let power = graph.apply(Op::Exp, &[distance]);
        let sum = graph.push(reduce(Monoid::Sum, over, power), built_at);
        let share = graph.apply(Op::Recip, &[sum]);
        let of_sum = graph.apply(Op::Log, &[sum]);
        let logarithm = graph.apply(Op::Add, &[offset, of_sum]);
        Powers { of, logarithm, power, share }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::HostArgs;
    use crate::build::Epilogue;
    use crate::check::check;
    use crate::dtype::DType::F32;
    use crate::ir::axes::{L, M, N};
    use crate::ir::{Order, Sink, SinkKind};
    use crate::problem::{Operation, Shape};
    use crate::reference::{self, Precision};

    /// How many nodes of a kind are left of a function of an exponent and of the logarithm that the pass takes apart.
    fn left(function: impl Fn(&mut Graph, NodeId, NodeId) -> NodeId, is: impl Fn(&Node) -> bool) -> usize {
        let mut graph = Graph::new();
        let x = graph.push(Node::Accumulator(ValueType::F32), None);
        let logarithm = graph.push(Node::Reduce { monoid: Monoid::LogSumExp, over: N.into(), args: vec![x] }, None);
        let value = function(&mut graph, x, logarithm);
        graph.sink(Sink::new("d", value, SinkKind::Store(F32.into())), None);
        let apart = powers(&check(graph).unwrap());
        let live = apart.graph().live();
        apart.graph().nodes().filter(|(id, node)| live[id.index()] && is(node)).count()
    }

    /// A softmax of a row and its logarithm, as the graph says and as the pass has it.
    fn softmaxes(row: [f32; 4]) -> [[f32; 5]; 2] {
        let epilogue = Epilogue::build(|e| {
            let x = e.load("x", F32);
            let logarithm = x.logsumexp_over(N);
            e.store("share", (x - logarithm).exp(), F32);
            e.store("logarithm", logarithm, F32.over(M | L));
        });
        let checked = epilogue.unwrap().checked().clone();
        [checked.clone(), powers(&checked)].map(|checked| {
            let (mut share, mut logarithm) = ([0.0; 4], [0.0]);
            let args = HostArgs::new().input("x", &row).output("share", &mut share).output("logarithm", &mut logarithm);
            let operation = Operation::Pointwise { dtype: F32, order: Order::RowMajor };
            reference::run(operation, &checked, Shape::matrix(1, 4), args, Precision::F32).unwrap();
            [share[0], share[1], share[2], share[3], logarithm[0]]
        })
    }

    #[test]
    fn infinities_and_nans_stay() {
        const INFINITE: f32 = f32::INFINITY;
        for row in [
            [1.0, -2.0, 0.5, 3.0],
            [INFINITE, 1.0, -2.0, 0.0],
            [INFINITE, INFINITE, 1.0, -INFINITE],
            [-INFINITE; 4],
            [-INFINITE, 1.0, -INFINITE, 2.0],
            [f32::NAN, 1.0, 2.0, 3.0],
            [3e38, -3e38, 0.0, 1e30],
            [-3e38, -3e38, -3e38, -2e38],
        ] {
            let [as_defined, apart] = softmaxes(row);
            for (a, b) in as_defined.into_iter().zip(apart) {
                let same = a == b || a.is_nan() && b.is_nan() || (a - b).abs() <= 1e-6 * a.abs();
                assert!(same, "{row:?}: {as_defined:?} and {apart:?}");
            }
        }
    }

    #[test]
    fn a_softmax_takes_one_exponential() {
        let applied = |op: Op| move |node: &Node| *node == apply(op, node.args());
        let less = |graph: &mut Graph, x, logarithm| graph.apply(Op::Sub, &[x, logarithm]);
        let share = |graph: &mut Graph, x, logarithm| {
            let distance = less(graph, x, logarithm);
            graph.apply(Op::Exp, &[distance])
        };
        assert_eq!(left(share, applied(Op::Exp)), 1);
        assert_eq!(left(share, applied(Op::Log)), 0);
        assert_eq!(left(less, applied(Op::Log)), 1);
        let reduces =
            |of: Monoid| move |node: &Node| matches!(node, Node::Reduce { args, .. } if *node == reduce(of, N.into(), args[0]));
        assert_eq!(left(share, reduces(Monoid::LogSumExp)), 0);
        assert_eq!(left(less, reduces(Monoid::Sum)), 1);
    }
}
