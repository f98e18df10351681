//! The visit of a strip, and stages: the reductions along rows whose results the same kernel uses.

use crate::dtype::ValueType;
use crate::ir::Monoid;
use serde::Serialize;

/// What the visit of a strip does, in order.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Item {
    /// Compute a value.
    Instr(usize),
    /// A select as a branch: the values that only its arms need, then the select itself.
    Branch {
        /// The select.
        select: usize,
        /// The values that only the first arm needs.
        then: Vec<Item>,
        /// The values that only the second arm needs.
        otherwise: Vec<Item>,
    },
}

/// The reductions along rows of one stage.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Stage {
    /// The values that the visit of a strip computes for it.
    pub visit: Vec<Item>,
    /// The reductions.
    pub reductions: Vec<RowReduce>,
}

impl Stage {
    /// The values that its reductions take.
    pub(in crate::plan) fn terms(&self) -> impl Iterator<Item = &usize> {
        self.reductions.iter().flat_map(|reduction| &reduction.terms)
    }
}

/// A reduction along the row whose result the same kernel uses.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RowReduce {
    /// The step that is its result.
    pub step: usize,
    /// The values of an element: one, the two factors of a product that is summed without being rounded, or as many as
    /// the monoid takes.
    pub terms: Vec<usize>,
    /// The type of the first of them.
    pub value: ValueType,
    /// The monoid that combines values.
    pub monoid: Monoid,
}
