//! Regions: a different function in each part of the output.

use super::expr::Expr;
use super::into::IntoExpr;
use crate::ir::Op;
use std::panic::Location;

/// Cases of (condition, value), tried in order. [`Expr::region`] begins them, and [`Regions::otherwise`] closes them.
///
/// ```compile_fail
/// #![deny(unused_must_use)]
/// # use postlude::prelude::*;
/// # Epilogue::build(|e| {
/// e.acc().region(e.row().lt(3), |z| z.relu()); // has no value yet
/// e.store("d", e.acc(), F16);
/// # }).unwrap();
/// ```
#[derive(Debug)]
#[must_use = "a region has no value until it is closed by `otherwise`"]
pub struct Regions<'g> {
    subject: Expr<'g>,
    cases: Vec<(Expr<'g>, Expr<'g>)>,
    built_at: &'static Location<'static>,
}

impl<'g> Expr<'g> {
    /// Begins a region: where `condition` holds, the value is `function` of this one.
    ///
    /// If several conditions hold, the first counts. A condition made of coordinates and scalars costs nothing where it
    /// is uniform: only that arm's code runs.
    ///
    /// ```
    /// # use postlude::prelude::*;
    /// # Epilogue::build(|e| {
    /// let (z, row) = (e.acc(), e.row());
    /// let y = z.region(row.lt(128), |z| z.sigmoid()).region(row.lt(256), |z| z.relu()).otherwise(|z| z.tanh());
    /// # e.store("d", y, F16);
    /// # }).unwrap();
    /// ```
    #[track_caller]
    pub fn region(self, condition: Expr<'g>, function: impl FnOnce(Expr<'g>) -> Expr<'g>) -> Regions<'g> {
        Regions { subject: self, cases: vec![(condition, function(self))], built_at: Location::caller() }
    }
}

impl<'g> Regions<'g> {
    /// Adds a region.
    pub fn region(mut self, condition: Expr<'g>, function: impl FnOnce(Expr<'g>) -> Expr<'g>) -> Regions<'g> {
        self.cases.push((condition, function(self.subject)));
        self
    }

    /// The value where no condition holds.
    pub fn otherwise(self, function: impl FnOnce(Expr<'g>) -> Expr<'g>) -> Expr<'g> {
        // Each closure may have returned an expression of another builder. Such an expression is reported, not mixed
        // in.
        let own = |e: Expr<'g>| e.into_expr(self.subject.builder, self.built_at);
        let rest = own(function(self.subject));
        self.cases.into_iter().rev().fold(rest, |rest, (condition, value)| {
            let f64 = value.is_f64() || rest.is_f64();
            let arms = [own(value), rest].map(|arm| arm.beside(f64, self.subject.builder, self.built_at));
            own(condition).apply(Op::Select, &arms, self.built_at)
        })
    }
}
