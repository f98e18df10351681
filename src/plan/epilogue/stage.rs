//! The visit of a strip, and stages: the reductions along rows whose results the same kernel uses.

use crate::check::Checked;
use crate::dtype::ValueType;
use crate::ir::axes::N;
use crate::ir::{Axes, Monoid, Node};
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

impl Item {
    /// Shows every value of a list and of its branches.
    pub(in crate::plan) fn walk(items: &[Item], see: &mut impl FnMut(usize)) {
        for item in items {
            match item {
                Item::Instr(step) => see(*step),
                Item::Branch { select, then, otherwise } => {
                    Item::walk(then, see);
                    Item::walk(otherwise, see);
                    see(*select);
                }
            }
        }
    }
}

/// The reductions along rows of one stage.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Stage {
    /// The values that the visit of a strip computes for it.
    pub visit: Vec<Item>,
    /// The same for reductions that take the element at the label alone, with whose column a row's others are compared.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub at_label: Vec<Item>,
    /// The reductions.
    pub reductions: Vec<RowReduce>,
}

impl Stage {
    /// Leaves out reductions whose results the states of others have as well.
    pub(super) fn merge(&mut self) {
        for reduction in std::mem::take(&mut self.reductions) {
            let has = |has: &RowReduce, other: &RowReduce| {
                has.beside.is_none()
                    && has.monoid.beside() == Some(other.monoid)
                    && (&has.terms, has.whole) == (&other.terms, other.whole)
            };
            match self.reductions.iter_mut().find(|other| has(other, &reduction) || has(&reduction, other)) {
                Some(other) if has(other, &reduction) => other.beside = Some(reduction.step),
                Some(other) => *other = RowReduce { beside: Some(other.step), ..reduction },
                None => self.reductions.push(reduction),
            }
        }
    }

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
    /// Whether it goes over all rows, too.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub whole: bool,
    /// The step that is the other result of its states, if the graph has both.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub beside: Option<usize>,
}

/// The axes along which each value varies inside of a band, where all that bands come to is one value.
pub(super) fn within_bands(checked: &Checked) -> Vec<Axes> {
    let mut within: Vec<Axes> = Vec::with_capacity(checked.graph().len());
    for (id, node) in checked.graph().nodes() {
        let joined = node.args().iter().fold(Axes::NONE, |axes, arg| axes | within[arg.index()]);
        within.push(match node {
            Node::Reduce { over, .. } => joined.without(over.axes),
            _ if node.args().is_empty() => checked.type_of(id).axes,
            _ => joined,
        });
    }
    within
}

/// The columns of a band, if reductions of the graph go over bands of columns.
pub(super) fn band(checked: &Checked) -> Option<usize> {
    let mut bands =
        checked.graph().nodes().map(|(_, node)| if let Node::Reduce { over, .. } = node { over.band_along(N) } else { None });
    bands.find_map(|band| band)
}
