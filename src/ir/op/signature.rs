//! The operands that a primitive takes and the result that it gives, as data.

use crate::dtype::ValueType::{self, Bool, F32, F64, I32};

/// The operands that a primitive takes and the result that it gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signature {
    /// Operands that all have the same one of these types.
    Same {
        /// How many operands.
        arity: usize,
        /// The types: all operands have the first, or all have the second, and so on.
        takes: &'static [ValueType],
        /// The result's type; `None` if it is that of the operands.
        gives: Option<ValueType>,
    },
    /// A truth value and two operands of one type, which is also the result's.
    Select,
    /// Any one operand; the result has the given type.
    Convert(ValueType),
}

const fn same(arity: usize, takes: &'static [ValueType]) -> Signature {
    Signature::Same { arity, takes, gives: None }
}

const fn gives(signature: Signature, to: ValueType) -> Signature {
    match signature {
        Signature::Same { arity, takes, .. } => Signature::Same { arity, takes, gives: Some(to) },
        other => other,
    }
}

/// Shorthands of the table.
pub(super) mod shorthands {
    use super::{Bool, F32, F64, I32, Signature, ValueType, gives, same};

    pub const fn integer(arity: usize) -> Signature {
        same(arity, &[I32])
    }
    /// Conditions, or integers bit by bit.
    pub const fn bitwise(arity: usize) -> Signature {
        same(arity, &[Bool, I32])
    }
    pub const COMPARE: Signature = gives(Signature::numeric(2), Bool);
    pub const EQUATE: Signature = gives(same(2, &[F32, F64, I32, Bool]), Bool);
    /// A condition on one floating-point number.
    pub const TEST: Signature = gives(float(1), Bool);
    /// A rounding to a precision below that of `f32`.
    pub const ROUNDS: Signature = gives(float(1), F32);
    pub const fn float(arity: usize) -> Signature {
        Signature::floating(arity)
    }
    pub const fn numeric(arity: usize) -> Signature {
        Signature::numeric(arity)
    }
    /// The bits of a number of one type, as a number of the other.
    pub const fn bits(from: &'static [ValueType], to: ValueType) -> Signature {
        gives(same(1, from), to)
    }
}

impl Signature {
    /// `f32` operands, `f32` result: the signature of custom primitives and of functions.
    pub const fn float(arity: usize) -> Signature {
        same(arity, &[F32])
    }

    /// Operands all `f32` or all `f64`; the result has their type.
    pub const fn floating(arity: usize) -> Signature {
        same(arity, &[F32, F64])
    }

    /// Operands all `f32`, all `f64` or all `i32`; the result has their type.
    pub const fn numeric(arity: usize) -> Signature {
        same(arity, &[F32, F64, I32])
    }

    /// The number of operands.
    pub const fn arity(self) -> usize {
        match self {
            Signature::Same { arity, .. } => arity,
            Signature::Select => 3,
            Signature::Convert(_) => 1,
        }
    }

    /// Whether an operand may be a floating-point number.
    pub(super) fn takes_floats(self) -> bool {
        match self {
            Signature::Same { takes, .. } => takes.contains(&F32),
            Signature::Select | Signature::Convert(_) => true,
        }
    }

    /// The result's type for operands of these types, as many as it takes; `None` if it does not take them.
    pub fn result(self, operands: &[ValueType]) -> Option<ValueType> {
        match (self, operands) {
            (Signature::Same { takes, gives, .. }, [first, rest @ ..]) => {
                let fits = takes.contains(first) && rest.iter().all(|t| t == first);
                fits.then_some(gives.unwrap_or(*first))
            }
            // A function without parameters: a constant.
            (Signature::Same { takes, gives, .. }, []) => gives.or(takes.first().copied()),
            (Signature::Select, [Bool, then, otherwise]) => (then == otherwise).then_some(*then),
            (Signature::Convert(to), _) => Some(to),
            _ => None,
        }
    }

    /// Every way to type the operands, with the result's type.
    pub fn typings(self) -> Vec<(Vec<ValueType>, ValueType)> {
        let ways = ValueType::ALL.into_iter().map(|t| match self {
            Signature::Select => vec![Bool, t, t],
            _ => vec![t; self.arity()],
        });
        ways.filter_map(|operands| self.result(&operands).map(|result| (operands, result))).collect()
    }
}
