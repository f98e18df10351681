//! What is particular to one element of a row: the one at its label, with which all columns are compared.
//!
//! A condition that holds at the label alone would be computed for every element, and it seldom holds. Threads that hold their
//! strips compute it for the strip that has the label, behind all others. Also: which values have their extremes where the
//! accumulator has its own.

use crate::ir::axes::N;
use crate::ir::graph::Constant;
use crate::ir::op::Signature;
use crate::plan::{InstrKind, Item, Program, RowReduce};

impl Program {
    pub(super) fn is_select(&self, step: usize) -> bool {
        matches!(&self.steps[step].kind, InstrKind::Apply { op, .. } if op.row().signature == Signature::Select)
    }

    /// The column, one for all of a row, at which alone a condition holds.
    fn only_column(&self, condition: usize) -> Option<usize> {
        let InstrKind::Apply { op, args } = &self.steps[condition].kind else { return None };
        let counts = |step: usize| matches!(self.steps[step].kind, InstrKind::Coordinate(along) if along.axis() == N);
        let [a, b] = *args.first_chunk()?;
        let column = if counts(a) { b } else { a };
        (op.is_equality() && counts(a) != counts(b) && !self.steps[column].phase.is_array()).then_some(column)
    }

    /// The column with which all columns of a row are compared, if there is one: a label.
    pub(crate) fn label(&self) -> Option<usize> {
        (0..self.steps.len()).find_map(|step| self.only_column(step))
    }

    /// Whether a condition holds at the label alone.
    pub(crate) fn is_at_label(&self, condition: usize) -> bool {
        self.only_column(condition).is_some_and(|column| self.label() == Some(column))
    }

    /// Whether nothing but the element at the label changes what a reduction comes to.
    pub(crate) fn takes_label(&self, reduction: &RowReduce) -> bool {
        let [term] = reduction.terms[..] else { return false };
        if self.is_select(term) {
            let args = self.args(term);
            let is_identity = matches!(self.steps[args[2]].kind, InstrKind::Constant(c) if reduction.monoid.ignores(c));
            return is_identity && self.is_at_label(args[0]);
        }
        self.is_at_label(term) && reduction.monoid.ignores(Constant::Bool(false))
    }

    /// Whether a value of elements only rises or only falls with the accumulator along a row: a linear function of it, and of
    /// values that all elements of a row share. With `alone` it is the accumulator alone.
    pub(crate) fn follows_accumulator(&self, step: usize, alone: bool) -> bool {
        match &self.steps[step].kind {
            InstrKind::Accumulator => true,
            InstrKind::Apply { op, args } if !alone => {
                let mut of_elements = args.iter().filter(|&&arg| self.steps[arg].phase.is_array() || self.is_coordinate(arg));
                let (first, second) = (of_elements.next(), of_elements.next());
                let is_linear = !op.row().products.is_empty();
                is_linear && second.is_none() && first.is_some_and(|&arg| self.follows_accumulator(arg, alone))
            }
            _ => false,
        }
    }

    fn is_coordinate(&self, step: usize) -> bool {
        matches!(self.steps[step].kind, InstrKind::Coordinate(_))
    }

    /// Whether visits may assume that no element of a strip is at the label, and the strip that has it is visited again:
    /// nothing but stores comes of a visit.
    pub(crate) fn can_visit_label_again(&self) -> bool {
        let mut depends = false;
        Item::walk(&self.visit, &mut |step| depends |= self.is_at_label(step));
        depends && self.only_stores() && self.stores.iter().all(|store| !store.operand.dtype.is_packed())
    }
}
