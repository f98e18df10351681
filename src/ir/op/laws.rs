//! Shorthands for the rows: for derivatives, which are graphs too, and for laws.

use super::{Op, Rewrite};
use crate::ir::graph::{Constant, Graph, Node, NodeId};

/// Shorthands for derivatives.
impl Graph {
    pub(super) fn f(&mut self, op: Op, args: &[NodeId]) -> NodeId {
        self.apply(op, args)
    }
    /// A constant of the type of another value.
    pub(super) fn k(&mut self, like: NodeId, x: f64) -> NodeId {
        self.constant_of(self.value_type(like), x)
    }
    pub(super) fn mul_(&mut self, a: NodeId, b: NodeId) -> NodeId {
        self.f(Op::Mul, &[a, b])
    }
    pub(super) fn neg_(&mut self, a: NodeId) -> NodeId {
        self.f(Op::Neg, &[a])
    }
    /// `1 - a^2`, which cancels nothing near -1 and 1.
    pub(super) fn one_less_square(&mut self, a: NodeId) -> NodeId {
        let one = self.k(a, 1.0);
        let (less, more) = (self.f(Op::Sub, &[one, a]), self.f(Op::Add, &[one, a]));
        self.mul_(less, more)
    }
    /// `g` if `|a|` is at most `limit`, otherwise 0.
    pub(super) fn within(&mut self, a: NodeId, limit: f64, g: NodeId) -> NodeId {
        let (size, limit, zero) = (self.f(Op::Abs, &[a]), self.k(a, limit), self.k(g, 0.0));
        let inside = self.f(Op::Le, &[size, limit]);
        self.f(Op::Select, &[inside, g, zero])
    }
    /// `sqrt(1 - a^2)`.
    pub(super) fn root_of_one_less_square(&mut self, a: NodeId) -> NodeId {
        let square = self.one_less_square(a);
        self.f(Op::Sqrt, &[square])
    }
}

/// Shorthands for laws.
impl Graph {
    /// Whether a value is this constant, bit for bit.
    pub(super) fn is(&self, id: NodeId, float: f32, integer: i32) -> bool {
        match self.node(id) {
            Node::Constant(Constant::F32(bits)) => *bits == float.to_bits(),
            Node::Constant(Constant::F64(bits)) => *bits == f64::from(float).to_bits(),
            Node::Constant(Constant::I32(x)) => *x == integer,
            _ => false,
        }
    }

    /// A constant whose bits are all 1 or all 0: a condition, or an integer.
    pub(super) fn truth(&self, id: NodeId) -> Option<bool> {
        match self.node(id) {
            Node::Constant(Constant::Bool(b)) => Some(*b),
            Node::Constant(Constant::I32(x @ (0 | -1))) => Some(*x == -1),
            _ => None,
        }
    }

    /// The operands, if the value is this primitive.
    pub(super) fn operands(&self, id: NodeId, of: Op) -> Option<&[NodeId]> {
        match self.node(id) {
            Node::Apply { op, args } if *op == of => Some(args),
            _ => None,
        }
    }

    /// `x op unit` and `unit op x` are `x`.
    pub(super) fn without(&self, x: &[NodeId], float: f32, integer: i32) -> Option<Rewrite> {
        let unit = |i: usize| self.is(x[i], float, integer);
        let kept = if unit(1) { Some(x[0]) } else { unit(0).then_some(x[1]) };
        kept.map(Rewrite::Is)
    }

    /// `op(op(x))` is `x`.
    pub(super) fn twice(&self, op: Op, x: &[NodeId]) -> Option<Rewrite> {
        self.operands(x[0], op).map(|inner| Rewrite::Is(inner[0]))
    }

    /// `x op unit` is `x`, `x op zero` is `zero`, `x op x` is `x`.
    pub(super) fn lattice(&self, x: &[NodeId], unit: bool) -> Option<Rewrite> {
        let decided = [x, &[x[1], x[0]]].into_iter().find_map(|x| Some(if self.truth(x[0])? == unit { x[1] } else { x[0] }));
        decided.or((x[0] == x[1]).then_some(x[0])).map(Rewrite::Is)
    }
}

impl Node {
    /// The operands in which the value is linear, each on its own. A sum of the value may take the other operands out.
    pub fn linear_in(&self) -> &'static [usize] {
        match self {
            Node::Apply { op: Op::Mul, .. } => &[0, 1],
            Node::Apply { op: Op::Div | Op::Neg, .. } => &[0],
            _ => &[],
        }
    }

    /// The two factors of a product. A sum of such products is one fused multiply-add an element.
    pub fn factors(&self) -> Option<[NodeId; 2]> {
        match self {
            Node::Apply { op: Op::Mul, args } => <[NodeId; 2]>::try_from(args.as_slice()).ok(),
            _ => None,
        }
    }

    /// The two terms of a sum or a difference, and whether it is a difference.
    pub fn addends(&self) -> Option<([NodeId; 2], bool)> {
        match self {
            Node::Apply { op: op @ (Op::Add | Op::Sub), args } => Some((args.as_slice().try_into().ok()?, *op == Op::Sub)),
            _ => None,
        }
    }
}

/// A truth value as a number.
pub(super) fn truth(b: bool) -> f64 {
    f64::from(u8::from(b))
}

/// The value of a primitive of integers, as numbers that represent them exactly.
pub(super) fn integers(value: fn(&[i32]) -> i32, x: &[f64]) -> f64 {
    f64::from(value(&x.iter().map(|x| *x as i32).collect::<Vec<_>>()))
}
