//! The methods of [`Expr`] that the table of primitives names, and Rust's operators.

use super::expr::{Builder, Expr};
use super::into::IntoExpr;
use crate::ir::Op;
use crate::ir::op::{primitive_methods, primitives};
use std::ops;
use std::panic::Location;

macro_rules! builder_method {
    ($(#[doc = $doc:expr])+ $(#[doc(alias = $alias:literal)])* $variant:ident) => {};
    ($(#[doc = $doc:expr])+ $(#[doc(alias = $alias:literal)])* $variant:ident $method:ident($($p:ident),*)) => {
        impl<'g> Expr<'g> {
            $(#[doc = $doc])+
            $(#[doc(alias = $alias)])*
            #[track_caller]
            #[allow(clippy::should_implement_trait, reason = "operators of Rust have other signatures")]
            #[allow(clippy::wrong_self_convention, reason = "a handle is copied")]
            pub fn $method(self $(, $p: impl IntoExpr<'g>)*) -> Expr<'g> {
                let at = Location::caller();
                let f64 = self.is_f64() $(|| $p.is_f64())*;
                let rest = [$($p.beside(f64, self.builder, at)),*];
                self.beside(f64, self.builder, at).apply(Op::$variant, &rest, at)
            }
        }
    };
}

primitive_methods! {}

/// A binary operator: of an expression and a value that converts to one, of a number and an expression, and in place.
macro_rules! operators {
    ($($tr:ident $method:ident $assign:ident $in_place:ident $op:ident [$($number:ty),*]),*) => { $(
        impl<'g, R: IntoExpr<'g>> ops::$tr<R> for Expr<'g> {
            type Output = Expr<'g>;
            #[track_caller]
            fn $method(self, right: R) -> Expr<'g> { self.binary(Op::$op, right, Location::caller()) }
        }
        impl<'g, R: IntoExpr<'g>> ops::$assign<R> for Expr<'g> {
            #[track_caller]
            fn $in_place(&mut self, right: R) { *self = self.binary(Op::$op, right, Location::caller()); }
        }
        $(impl<'g> ops::$tr<Expr<'g>> for $number {
            type Output = Expr<'g>;
            #[track_caller]
            fn $method(self, right: Expr<'g>) -> Expr<'g> {
                let at = Location::caller();
                self.into_expr(right.builder, at).binary(Op::$op, right, at)
            }
        })*
    )* };
}

operators! {
    Add add AddAssign add_assign Add [f32, i32],
    Sub sub SubAssign sub_assign Sub [f32, i32],
    Mul mul MulAssign mul_assign Mul [f32, i32],
    Div div DivAssign div_assign Div [f32, i32],
    Rem rem RemAssign rem_assign Rem [f32, i32],
    BitAnd bitand BitAndAssign bitand_assign And [bool, i32],
    BitOr bitor BitOrAssign bitor_assign Or [bool, i32],
    BitXor bitxor BitXorAssign bitxor_assign Xor [bool, i32],
    Shl shl ShlAssign shl_assign Shl [i32],
    Shr shr ShrAssign shr_assign Shr [i32]
}

impl<'g> ops::Not for Expr<'g> {
    type Output = Expr<'g>;
    #[track_caller]
    fn not(self) -> Expr<'g> {
        self.apply(Op::Not, &[], Location::caller())
    }
}

impl<'g> ops::Neg for Expr<'g> {
    type Output = Expr<'g>;
    #[track_caller]
    fn neg(self) -> Expr<'g> {
        self.apply(Op::Neg, &[], Location::caller())
    }
}

impl Builder {
    /// The sum of values, added from the first to the last; the constant 0.0 if there are none. An iterator's own `sum`
    /// has no builder for that constant.
    ///
    /// ```
    /// # use postlude::prelude::*;
    /// # Epilogue::build(|e| {
    /// let biases = e.sum(["b0", "b1", "b2"].map(|name| e.load(name, F32.over(N))));
    /// e.store("d", e.acc() + biases, F16);
    /// # }).unwrap();
    /// ```
    #[track_caller]
    pub fn sum<'g>(&'g self, values: impl IntoIterator<Item = impl IntoExpr<'g>>) -> Expr<'g> {
        let at = Location::caller();
        let values = values.into_iter().map(|x| x.into_expr(self, at));
        values.reduce(|sum, x| sum.binary(Op::Add, x, at)).unwrap_or_else(|| 0.0.into_expr(self, at))
    }
}

/// The types that an expression can be compared with by an operator that gives a `bool`. There are none, since the
/// value is known only on the GPU.
#[diagnostic::on_unimplemented(
    message = "an expression has no value while the graph is built: it cannot be compared by an operator, nor asked by `if`",
    label = "compared with an expression",
    note = "a method makes a condition of the graph: `z.gt(0.0)`, `.ge`, `.lt`, `.le`, `.eq`, `.ne`",
    note = "instead of `if` use `z.gt(0.0).select(then, otherwise)`, or `z.region(condition, |z| ..)`"
)]
pub trait ComparedByOperator: sealed::Never {}

mod sealed {
    pub trait Never {}
}

/// This comparison does not exist. The implementation provides its message:
///
/// ```compile_fail,E0277
/// # use postlude::prelude::*;
/// # Epilogue::build(|e| {
/// let z = e.acc();
/// e.store("d", if z > 0.0 { z } else { z * 0.1 }, F32); // z.gt(0.0).select(z, z * 0.1)
/// # }).unwrap();
/// ```
///
/// ```compile_fail,E0277
/// # use postlude::prelude::*;
/// # Epilogue::build(|e| {
/// let kept = e.acc() == 0.0; // e.acc().eq(0.0)
/// # e.store("d", e.acc(), F32);
/// # }).unwrap();
/// ```
impl<R: ComparedByOperator> PartialEq<R> for Expr<'_> {
    fn eq(&self, _: &R) -> bool {
        false
    }
}

/// This comparison does not exist: see [`PartialEq`](Expr#impl-PartialEq<R>-for-Expr<'_>).
impl<R: ComparedByOperator> PartialOrd<R> for Expr<'_> {
    fn partial_cmp(&self, _: &R) -> Option<std::cmp::Ordering> {
        None
    }
}
