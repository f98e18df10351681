//! Conversions to expressions: numbers, and the elements of reductions.

use super::expr::{Builder, Expr};
use crate::dtype::ValueType;
use crate::ir::graph::{Constant, Node};
use std::panic::Location;

/// A value that can be used as an expression: an expression, or a number.
///
/// A Rust literal with a decimal point is an `f64` unless something else gives it a type. A Rust `f64` takes the type
/// of its operand: beside an `f64` value it is an `f64` constant, otherwise the nearest `f32`. A number too large for
/// an `f32` stays an `f64`.
///
/// ```
/// # use postlude::prelude::*;
/// let epilogue = Epilogue::build(|e| {
///     let z = e.acc_f64() * 0.1; //                                     the f64 that is nearest to 0.1
///     let w = e.load("w", F32) * 0.1; //                                the f32
///     e.store("d", e.constant(0.1) * z + w.cast(F64), F64);
/// })?;
/// assert!(epilogue.to_string().contains("const f64 0.1") && epilogue.to_string().contains("const f32 0.1"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// To the left of an operator a number is an `f32` or an `i32`. If `f64` were allowed there too, Rust could not infer
/// the type of the 2.0 in `(2.0 * z).relu()`. Beside an `f64` value [`check`](crate::check) rejects such a number.
/// Write it on the right, or as `e.constant(2.0)`.
///
/// ```compile_fail,E0277
/// # use postlude::prelude::*;
/// # Epilogue::build(|e| {
/// e.store("d", 2.0f64 * e.acc_f64(), F64); // e.acc_f64() * 2.0, or e.constant(2.0) * e.acc_f64()
/// # }).unwrap();
/// ```
///
/// A region is not an expression before it is closed:
///
/// ```compile_fail
/// # use postlude::prelude::*;
/// # Epilogue::build(|e| {
/// e.store("d", e.acc().region(e.row().lt(3), |z| z.relu()), F32); // `.otherwise(|z| z)` is missing
/// # }).unwrap();
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an expression or a number",
    label = "expected an expression, a floating-point number, an `i32` or a `bool`",
    note = "a region has a value once it is closed: `z.region(condition, |z| ..).otherwise(|z| ..)`",
    note = "numbers are `f32`, `f64`, `i32` or `bool`: convert others with `as f32` or `as i32`, half-precision ones \
        with `.to_f32()`"
)]
pub trait IntoExpr<'g> {
    /// The expression, in the given builder.
    fn into_expr(self, builder: &'g Builder, built_at: &'static Location<'static>) -> Expr<'g>;

    /// The number, if its type is not decided yet.
    #[doc(hidden)]
    fn number(&self) -> Option<f64> {
        None
    }

    /// Whether it is an `f64` value.
    #[doc(hidden)]
    fn is_f64(&self) -> bool {
        false
    }

    /// The expression beside an `f64` value, or beside none.
    #[doc(hidden)]
    fn beside(self, f64: bool, builder: &'g Builder, built_at: &'static Location<'static>) -> Expr<'g>
    where
        Self: Sized,
    {
        match self.number().filter(|_| f64) {
            Some(x) => builder.push(Node::Constant(Constant::F64(x.to_bits())), Some(built_at)),
            None => Expr { number: None, ..self.into_expr(builder, built_at) },
        }
    }
}

impl<'g> IntoExpr<'g> for Expr<'g> {
    fn into_expr(self, builder: &'g Builder, built_at: &'static Location<'static>) -> Expr<'g> {
        if std::ptr::eq(self.builder, builder) {
            return self;
        }
        builder.foreign.borrow_mut().push(built_at);
        builder.adopt(self)
    }

    fn number(&self) -> Option<f64> {
        self.number
    }

    fn is_f64(&self) -> bool {
        self.builder.graph.borrow().value_type(self.id) == ValueType::F64
    }
}

impl<'g> IntoExpr<'g> for f64 {
    fn into_expr(self, builder: &'g Builder, built_at: &'static Location<'static>) -> Expr<'g> {
        let nearest = self as f32;
        // Infinity would be a different number.
        let stays = nearest.is_infinite() && self.is_finite();
        let constant = if stays { Constant::F64(self.to_bits()) } else { nearest.into() };
        Expr { number: Some(self), ..builder.push(Node::Constant(constant), Some(built_at)) }
    }

    fn number(&self) -> Option<f64> {
        Some(*self)
    }
}

impl<'g> IntoExpr<'g> for f32 {
    fn into_expr(self, builder: &'g Builder, built_at: &'static Location<'static>) -> Expr<'g> {
        builder.push(Node::Constant(Constant::F32(self.to_bits())), Some(built_at))
    }
}

impl<'g> IntoExpr<'g> for i32 {
    fn into_expr(self, builder: &'g Builder, built_at: &'static Location<'static>) -> Expr<'g> {
        builder.push(Node::Constant(Constant::I32(self)), Some(built_at))
    }
}

impl<'g> IntoExpr<'g> for bool {
    fn into_expr(self, builder: &'g Builder, built_at: &'static Location<'static>) -> Expr<'g> {
        builder.push(Node::Constant(Constant::Bool(self)), Some(built_at))
    }
}

/// A value that can be used as the element of a reduction: one value, or an array of the values that form it.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an element of a reduction",
    label = "expected an expression, a number, or an array of expressions",
    note = "write numbers in an array as `e.constant(1.0)`"
)]
pub trait IntoElement<'g> {
    /// The values, in the given builder.
    fn into_values(self, builder: &'g Builder, built_at: &'static Location<'static>) -> Vec<Expr<'g>>;
}

impl<'g, T: IntoExpr<'g>> IntoElement<'g> for T {
    fn into_values(self, builder: &'g Builder, built_at: &'static Location<'static>) -> Vec<Expr<'g>> {
        vec![self.into_expr(builder, built_at)]
    }
}

impl<'g, const A: usize> IntoElement<'g> for [Expr<'g>; A] {
    fn into_values(self, builder: &'g Builder, built_at: &'static Location<'static>) -> Vec<Expr<'g>> {
        self.map(|value| value.into_expr(builder, built_at)).to_vec()
    }
}
