//! Monoids: a reduction combines its elements with one. Each monoid is one row of a table: name, doc, operand types,
//! state and result. The enum, the names in text and JSON and the tests follow from it. A program's [own
//! monoids](CustomMonoid) are used like rows.

use super::constant::Constant;
use super::custom_monoid::CustomMonoid;
use super::graph::{Graph, NodeId};
use super::inner_adjoint::{self as inner, InnerAdjoint};
use super::op::Op;
use crate::dtype::ValueType;
use serde::{Serialize, Serializer};
use state::{NOWHERE, ahead, greatest, index, least, moments, one, two};
pub(super) use state::{larger, smaller};
use std::borrow::Cow;

mod state;

pub use state::State;

/// The gradient of an element, from the element and the gradient of the result.
pub type Adjoint = fn(&mut Graph, NodeId, NodeId) -> NodeId;

/// One row of the table.
#[derive(Debug)]
pub struct Row {
    /// The name, in text, JSON and messages.
    pub name: &'static str,
    /// What it computes.
    pub doc: &'static str,
    /// The types of the values that it reduces.
    pub takes: &'static [ValueType],
    /// Whether an element is a value and an index, an `i32`.
    pub indexed: bool,
    /// The type of the result, if it differs from that of the elements.
    pub gives: Option<ValueType>,
    /// The identity state, for one of the types that it takes.
    pub identity: fn(ValueType) -> State,
    /// Maps an element to a state. An element is a value, or a value and its index.
    pub lift: fn(&[f64]) -> State,
    /// Combines two states. The order matters only within rounding.
    pub combine: fn(State, State) -> State,
    /// The same for integers, if they wrap.
    pub wraps: Option<fn(i32, i32) -> i32>,
    /// The result, from a state and the number of its elements.
    pub result: fn(State, f64) -> f64,
    /// Whether the value in the result's memory can take part as one more element.
    pub accumulates: bool,
    /// Whether states are numbers that are added. Then they may be added in memory, as they arrive.
    pub adds: bool,
    /// Whether an `f32` product enters exactly, as one fused multiply-add.
    pub fuses: bool,
    /// Whether mainloops can reduce elements of an operand of the product with it.
    pub operands: bool,
    /// Issue slots of an element where its struct takes several at once, if it does for less.
    pub cost_of_many: Option<u32>,
    /// Whether that struct takes less where it goes over elements twice.
    pub foresees: bool,
    /// The gradient of an element, if it follows from the element alone.
    pub adjoint: Option<Adjoint>,
    /// The same for a reduction inside the graph, whose result is a value of the graph.
    pub inner_adjoint: Option<InnerAdjoint>,
    /// Its struct in `templates/prelude/monoids.cuh`, over the type of value.
    pub cuda: &'static str,
    /// The reduction of the same elements whose result a state has as well. If there is one, this one is a mean of functions of
    /// their distances from that, as a variance is.
    pub beside: Option<Monoid>,
    /// Its struct over `f32` that are never below zero, if that takes fewer instructions.
    pub cuda_of_sizes: Option<&'static str>,
    /// Numbers of a state: words of 4 bytes in that struct, of 8 over `f64`.
    pub words: usize,
    /// Issue slots of taking one element, roughly.
    pub cost: u32,
}

/// The defaults of a row: a state of one number, which is the element itself and also the result.
const NUMBER: Row = Row {
    name: "",
    doc: "",
    takes: &[F32, F64],
    indexed: false,
    gives: None,
    identity: |_| one(0.0),
    lift: |x| one(x[0]),
    combine: |a, _| a,
    wraps: None,
    result: |s, _| s[0],
    accumulates: true,
    adds: false,
    fuses: false,
    operands: false,
    cost_of_many: None,
    foresees: false,
    adjoint: None,
    inner_adjoint: None,
    cuda: "",
    beside: None,
    cuda_of_sizes: None,
    words: 1,
    cost: 1,
};

/// The defaults of a row that sums a function of each element. Its result is not an element.
const TURNED: Row = Row { combine: |a, b| one(a[0] + b[0]), accumulates: false, adds: true, ..NUMBER };

/// The defaults of a row whose elements are a value and an index.
const INDEXED: Row = Row {
    takes: &[F32, F64, I32],
    indexed: true,
    gives: Some(I32),
    lift: |x| two(x[0], x[1]),
    result: index,
    accumulates: false,
    words: 2,
    cost: 10,
    ..NUMBER
};

macro_rules! monoids {
    ($( $(#[doc = $doc:literal])+ $(#[doc(alias = $alias:literal)])* $variant:ident = $name:literal, $row:expr; )*) => {
        /// The monoid that combines the elements of a reduction.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Monoid {
            $( $(#[doc = $doc])+ $(#[doc(alias = $alias)])* $variant, )*
            /// A monoid that the program defines: see [`CustomMonoid::build`].
            Custom(&'static CustomMonoid),
        }

        impl Monoid {
            /// Every monoid of the table, in its order.
            pub const ALL: [Monoid; [$($name),*].len()] = [$(Monoid::$variant),*];

            /// The row of the table, or the program's definition.
            fn definition(self) -> Result<&'static Row, &'static CustomMonoid> {
                match self {
                    $( Monoid::$variant => {
                        static ROW: Row = Row { name: $name, doc: concat!($($doc),+), ..$row };
                        Ok(&ROW)
                    } )*
                    Monoid::Custom(custom) => Err(custom),
                }
            }
        }
    };
}

use ValueType::{Bool, F32, F64, I32};

monoids! {
    /// The sum; 0 for no elements. The sum of a product `a * b` uses the exact product, which a kernel computes with
    /// one fused multiply-add for each element. For `f64` values it uses the rounded product. Integers wrap.
    Sum = "sum", Row { takes: &[F32, F64, I32], combine: |a, b| one(a[0] + b[0]), wraps: Some(i32::wrapping_add), adds: true,
        fuses: true, operands: true, adjoint: Some(|_, _, gradient| gradient), inner_adjoint: Some(inner::of_sum),
        cuda: "Sum", ..NUMBER };
    /// The product; 1 for no elements. Integers wrap.
    #[doc(alias = "prod")]
    Product = "product", Row { takes: &[F32, F64, I32], identity: |_| one(1.0), combine: |a, b| one(a[0] * b[0]),
        wraps: Some(i32::wrapping_mul), cuda: "Product", ..NUMBER };
    /// The largest element; for no elements minus infinity, the least integer, or false. NaN if any element is NaN. For
    /// conditions it is whether any holds.
    #[doc(alias = "amax")]
    #[doc(alias = "any")]
    Max = "max", Row { takes: &[F32, F64, I32, Bool], identity: |t| one(least(t)), combine: |a, b| one(larger(a[0], b[0])),
        inner_adjoint: Some(inner::of_max), cuda: "Max", ..NUMBER };
    /// The smallest element; for no elements infinity, the largest integer, or true. NaN if any element is NaN. For
    /// conditions it is whether all hold.
    #[doc(alias = "amin")]
    #[doc(alias = "all")]
    Min = "min", Row { takes: &[F32, F64, I32, Bool], identity: |t| one(greatest(t)),
        combine: |a, b| one(smaller(a[0], b[0])), inner_adjoint: Some(inner::of_min), cuda: "Min", ..NUMBER };
    /// The largest absolute value; 0 for no elements. NaN if any element is NaN. The least integer, whose absolute
    /// value is not an `i32`, counts as the largest.
    AbsMax = "absmax", Row { takes: &[F32, F64, I32], lift: |x| one(x[0].abs()), combine: |a, b| one(larger(a[0], b[0])),
        inner_adjoint: Some(inner::of_absmax), cuda: "AbsMax", cuda_of_sizes: Some("MaxOfSizes"), cost: 2, ..NUMBER };
    /// log(sum of e^x), computed without overflow; minus infinity for no elements. A softmax is e^(x - this): see
    /// [`Expr::softmax_over`](crate::Expr::softmax_over).
    #[doc(alias = "softmax")]
    LogSumExp = "logsumexp", Row { identity: |_| one(f64::NEG_INFINITY), combine: |a, b| {
            let (high, low) = if a[0] > b[0] { (a[0], b[0]) } else { (b[0], a[0]) };
            // Equal infinities have no difference.
            let equal = high == low && high.is_infinite() || low == f64::NEG_INFINITY;
            one(if equal { larger(high, low) } else { high + (low - high).exp().ln_1p() })
        }, cost_of_many: Some(7), foresees: true, inner_adjoint: Some(inner::of_logsumexp), cuda: "LogSumExp", words: 2, cost: 24,
        ..NUMBER };
    /// The mean, the sum divided by the number of elements; NaN for no elements.
    #[doc(alias = "AVG")]
    Mean = "mean", Row { result: |s, count| s[0] / count,
        inner_adjoint: Some(inner::of_mean), cuda: "Mean", ..TURNED };
    /// The mean of squared distances from the mean; NaN for no elements. No digits are lost where elements lie far from zero.
    #[doc(alias = "VAR_POP")]
    Variance = "variance", Row { lift: |x| [1.0, x[0], 0.0 * x[0].abs(), 0.0], combine: moments, result: |s, _| s[2] / s[0],
        accumulates: false, cost_of_many: Some(4), inner_adjoint: Some(inner::of_variance), cuda: "Variance",
        beside: Some(Monoid::Mean), words: 4, cost: 8, ..NUMBER };
    /// The sum of squares; 0 for no elements. Squares are not rounded before they are added. An RMS norm divides by the
    /// root of their mean: see [`Expr::mean_square_over`](crate::Expr::mean_square_over).
    #[doc(alias = "rms_norm")]
    SumSquares = "sumsquares", Row { lift: |x| one(x[0] * x[0]),
        adjoint: Some(|graph, x, gradient| {
            let twice = graph.apply(Op::Add, &[x, x]);
            graph.apply(Op::Mul, &[twice, gradient])
        }), inner_adjoint: Some(inner::of_sum_squares), cuda: "SumSquares", ..TURNED };
    /// The Euclidean norm, the root of the sum of squares; 0 for no elements. In a kernel it overflows where that sum
    /// does, from 1.8e19 on.
    #[doc(alias = "vector_norm")]
    Norm2 = "norm2", Row { lift: |x| one(x[0] * x[0]), result: |s, _| s[0].sqrt(),
        inner_adjoint: Some(inner::of_norm2), cuda: "Norm2", ..TURNED };
    /// The number of elements that are true, as an `i32`, which wraps.
    #[doc(alias = "count_nonzero")]
    Count = "count", Row { takes: &[Bool], gives: Some(I32), wraps: Some(i32::wrapping_add), cuda: "Count", ..TURNED };
    /// The index of the largest element, as an `i32`; -1 for no elements. The smallest index wins among equals, and -0
    /// equals +0. NaN counts as larger than any number. The index is the element's [row or
    /// column](crate::Builder::reduce), or a value of the graph.
    ArgMax = "argmax", Row { identity: |t| two(least(t), NOWHERE), combine: |a, b| ahead(a, b, |x, y| x > y), cuda: "ArgMax",
        ..INDEXED };
    /// The index of the smallest element, as an `i32`; -1 for no elements. The smallest index wins among equals, and -0
    /// equals +0. NaN counts as smaller than any number. The index is the element's [row or
    /// column](crate::Builder::reduce), or a value of the graph.
    ArgMin = "argmin", Row { identity: |t| two(greatest(t), NOWHERE), combine: |a, b| ahead(a, b, |x, y| x < y), cuda: "ArgMin",
        ..INDEXED };
}

impl Monoid {
    /// The monoid that combines results of equally many elements each into the result of all of them, if one does.
    pub(crate) const fn of_results(self) -> Option<Monoid> {
        match self {
            Monoid::Sum | Monoid::SumSquares | Monoid::Count => Some(Monoid::Sum),
            Monoid::Max | Monoid::AbsMax => Some(Monoid::Max),
            Monoid::Product | Monoid::Mean | Monoid::Min | Monoid::LogSumExp | Monoid::Norm2 => Some(self),
            Monoid::Variance | Monoid::ArgMax | Monoid::ArgMin | Monoid::Custom(_) => None,
        }
    }

    /// The row of the table, unless the program defines it.
    pub fn row(self) -> Option<&'static Row> {
        self.definition().ok()
    }

    /// The definition, if it belongs to the program.
    pub fn custom(self) -> Option<&'static CustomMonoid> {
        self.definition().err()
    }

    /// The name in messages.
    pub fn name(self) -> &'static str {
        self.definition().map_or_else(|custom| custom.name(), |row| row.name)
    }

    /// The name in text and JSON. The name of a program's own monoid includes its fingerprint.
    pub fn word(self) -> Cow<'static, str> {
        self.definition().map_or_else(|custom| custom.word().into(), |row| row.name.into())
    }

    /// The monoid with that name in the table, if there is one.
    pub fn from_name(name: &str) -> Option<Monoid> {
        Monoid::ALL.into_iter().find(|m| m.name() == name)
    }

    /// The number of values in an element.
    pub fn arity(self) -> usize {
        self.definition().map_or_else(|custom| custom.takes().len(), |row| 1 + usize::from(row.indexed))
    }

    /// The types that the value at this place of an element may have.
    pub fn takes(self, place: usize) -> &'static [ValueType] {
        match self.definition() {
            Ok(row) if place == 0 => row.takes,
            Ok(row) => &[I32][..usize::from(row.indexed)],
            Err(custom) => custom.takes().get(place).map_or(&[], std::slice::from_ref),
        }
    }

    /// Whether an element is a value and an index.
    pub fn is_indexed(self) -> bool {
        self.row().is_some_and(|row| row.indexed)
    }

    /// The type of the result, for elements whose first value has this type.
    pub fn gives(self, value: ValueType) -> ValueType {
        self.definition().map_or_else(|custom| custom.gives(), |row| row.gives.unwrap_or(value))
    }

    /// Whether the value in the result's memory can take part as one more element.
    pub fn accumulates(self) -> bool {
        self.row().is_some_and(|row| row.accumulates)
    }

    /// Whether states are numbers that are added.
    pub fn adds(self) -> bool {
        self.row().is_some_and(|row| row.adds)
    }

    /// Whether an `f32` product enters exactly, as one fused multiply-add.
    pub fn fuses(self) -> bool {
        self.row().is_some_and(|row| row.fuses)
    }

    /// Whether mainloops can reduce elements of an operand of the product with it.
    pub fn takes_operands(self) -> bool {
        self.row().is_some_and(|row| row.operands)
    }

    /// The gradient of an element, if it follows from the element alone.
    pub fn adjoint(self) -> Option<Adjoint> {
        self.row().and_then(|row| row.adjoint)
    }

    /// The gradient of an element of a reduction inside a graph, if it follows from reductions over the same axes.
    pub fn inner_adjoint(self) -> Option<InnerAdjoint> {
        self.row().and_then(|row| row.inner_adjoint)
    }

    /// The reduction of the same elements whose result a state has as well, if there is one.
    pub fn beside(self) -> Option<Monoid> {
        self.row().and_then(|row| row.beside)
    }

    /// Words of 4 bytes in a kernel's state, for elements whose first value has this type.
    pub fn words(self, value: ValueType) -> usize {
        self.numbers() * if value == F64 { 2 } else { 1 }
    }

    /// Numbers in the CPU's state.
    pub fn numbers(self) -> usize {
        self.definition().map_or_else(|custom| custom.words(), |row| row.words)
    }

    /// Issue slots of taking one element, roughly.
    pub fn cost(self) -> u32 {
        self.definition().map_or_else(|custom| custom.cost(), |row| row.cost)
    }

    /// The same for an element of a strip that is reduced inside of the graph.
    pub(crate) fn cost_inside(self) -> u32 {
        self.row().and_then(|row| row.cost_of_many).unwrap_or_else(|| self.cost())
    }

    /// The identity state, for elements of a type.
    pub fn identity(self, value: ValueType) -> Vec<f64> {
        self.definition().map_or_else(|custom| custom.identity(), |row| (row.identity)(value)[..row.words].to_vec())
    }

    /// Combines a state with one element, in `f64`; integers wrap.
    pub fn take(self, value: ValueType, state: &mut [f64], element: &[f64]) {
        match self.definition() {
            Ok(row) => {
                let lifted = (row.lift)(element);
                let lifted = if value == I32 { lifted.map(|x| f64::from(x as i32)) } else { lifted };
                row.join(value, state, &lifted[..row.words]);
            }
            Err(custom) => custom.take(state, element),
        }
    }

    /// Combines a state with another one.
    pub fn join(self, value: ValueType, state: &mut [f64], other: &[f64]) {
        match self.definition() {
            Ok(row) => row.join(value, state, other),
            Err(custom) => custom.join(state, other),
        }
    }

    /// The result, from a state and the number of its elements.
    pub fn result(self, state: &[f64], count: f64) -> f64 {
        self.definition().map_or_else(|custom| custom.result(state), |row| (row.result)(padded(state), count))
    }

    /// Whether an element that comes twice changes nothing. Nothing is known of a program's own monoid.
    pub(crate) fn is_idempotent(self) -> bool {
        let Some(&value) = self.takes(0).first() else { return false };
        let again = |x: f64| {
            let (mut once, element) = (self.identity(value), [x, 0.0]);
            self.take(value, &mut once, &element[..self.arity()]);
            let mut twice = once.clone();
            self.take(value, &mut twice, &element[..self.arity()]);
            once == twice
        };
        self.custom().is_none() && [1.0, -1.5, 0.25, 3.0].into_iter().all(again)
    }

    /// Whether the smallest and the largest of some numbers come to the same as all of them.
    pub(crate) fn is_ordered(self) -> bool {
        self.is_idempotent() && self.arity() == 1
    }

    /// Whether the result for `c * x` is `c` times that for `x`, and the result for `x + y` the sum of both.
    pub(crate) fn is_linear(self) -> bool {
        self.adds() && self.keeps_one()
    }

    /// Whether a constant changes no state.
    pub(crate) fn ignores(self, constant: Constant) -> bool {
        let value = constant.value_type();
        let is_taken = self.arity() == 1 && self.takes(0).contains(&value) && self.custom().is_none();
        is_taken && self.row().is_some_and(|row| (row.lift)(&[constant.value()])[0] == (row.identity)(value)[0])
    }

    /// Whether it is the sum of its elements.
    pub(crate) fn is_sum(self) -> bool {
        self.is_linear() && !self.counts_elements()
    }

    /// Whether one number alone comes to itself.
    pub(crate) fn keeps_one(self) -> bool {
        let of_one = |x: f64| {
            let mut state = self.identity(F32);
            self.take(F32, &mut state, &[x]);
            self.result(&state, 1.0)
        };
        self.takes(0).contains(&F32) && self.arity() == 1 && [-1.5, 0.25, 3.0].into_iter().all(|x| of_one(x) == x)
    }

    /// Whether the result depends on the number of elements beside the state.
    pub(crate) fn counts_elements(self) -> bool {
        let state = vec![1.0; self.numbers()];
        self.result(&state, 1.0).to_bits() != self.result(&state, 2.0).to_bits()
    }

    /// The result for no elements.
    pub fn of_nothing(self, value: ValueType) -> f64 {
        self.result(&self.identity(value), 0.0)
    }
}

impl Row {
    fn join(&self, value: ValueType, state: &mut [f64], other: &[f64]) {
        let (a, b) = (padded(state), padded(other));
        let both = match self.wraps {
            Some(wraps) if self.gives.unwrap_or(value) == I32 => one(f64::from(wraps(a[0] as i32, b[0] as i32))),
            _ => (self.combine)(a, b),
        };
        state.copy_from_slice(&both[..self.words]);
    }
}

/// The numbers of a state. A row may use only some of them.
fn padded(state: &[f64]) -> State {
    std::array::from_fn(|i| state.get(i).copied().unwrap_or_default())
}

impl Serialize for Monoid {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.word())
    }
}

#[cfg(test)]
mod tests;
