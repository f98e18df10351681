//! What primitives say of conditions and of sums of integers: enough to find out which elements a condition leaves.

use super::Op;

/// A primitive whose result is a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Condition {
    /// It holds if both operands do.
    Both,
    /// It holds if an operand does.
    Either,
    /// It holds if its operand does not.
    Opposite,
    /// It holds if the first operand is less than the second one, equal to it, or greater: each is said.
    Compares([bool; 3]),
}

impl Op {
    /// The condition that it is, of conditions or of integers.
    pub(crate) const fn condition(self) -> Option<Condition> {
        Some(match self {
            Op::And => Condition::Both,
            Op::Or => Condition::Either,
            Op::Not => Condition::Opposite,
            Op::Lt => Condition::Compares([true, false, false]),
            Op::Le => Condition::Compares([true, true, false]),
            Op::Eq => Condition::Compares([false, true, false]),
            Op::Ne => Condition::Compares([true, false, true]),
            Op::Ge => Condition::Compares([false, true, true]),
            Op::Gt => Condition::Compares([false, false, true]),
            _ => return None,
        })
    }

    /// The factors of two operands whose sum it is.
    pub(crate) const fn sum_of(self) -> Option<[i64; 2]> {
        match self {
            Op::Add => Some([1, 1]),
            Op::Sub => Some([1, -1]),
            _ => None,
        }
    }
}
