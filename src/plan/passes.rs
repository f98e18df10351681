//! Passes: where kernels wait for what others reduce. What they leave for each other in memory that the plan owns, and where
//! each finds its arguments.

use crate::args::{Slot, slots};
use crate::check::Checked;
use crate::ir::axes::{Axes, L, M, N};
use crate::ir::{Operand, Order};
use crate::pass::Interim;
use crate::plan::Problem;
use crate::problem::{Operation, Shape};
use serde::Serialize;

/// Bytes that what lies in memory of the plan begins at multiples of, and its rows.
const BEGIN: usize = 256;
const ROW: usize = 16;

/// One kernel of several: its operation and its epilogue.
#[derive(Clone, Debug, Serialize)]
pub struct Pass {
    /// The operation as the user would see it.
    pub operation: Operation,
    /// The part of the user's epilogue that it computes.
    #[serde(skip)]
    pub epilogue: Checked,
    /// Whether its accumulator is what an earlier kernel has left: the last [`Interim`] of all.
    pub reads_accumulators: bool,
    /// The axis of which it takes a single row or column, if it reduces bands along the other.
    pub single: Option<Axes>,
}

/// The kernels of a plan, the last of which is the plan itself, and what they leave for each other.
#[derive(Clone, Debug, Serialize)]
pub struct Passes {
    /// All of them, in order.
    pub passes: Vec<Pass>,
    /// What they leave in memory: results of reductions, then the accumulators of a product.
    pub interim: Vec<Interim>,
    /// Why one kernel does not do it.
    pub why: String,
}

/// Where a kernel of several finds an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The argument of the user with this number.
    Given(usize),
    /// The [`Interim`] with this number.
    Interim(usize),
}

/// How an [`Interim`] lies in the memory of the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InterimLayout {
    /// Where it begins, in bytes.
    pub at: usize,
    /// Elements from run to run of a matrix.
    pub ld: usize,
    /// Elements from one batch entry to the next.
    pub batch_stride: usize,
}

impl Pass {
    /// The arguments of its launch.
    pub fn slots(&self, shape: Shape) -> Vec<Slot> {
        slots(self.operation, &self.epilogue, self.shape(shape))
    }

    /// The user's shape as it sees it.
    pub fn shape(&self, shape: Shape) -> Shape {
        match self.single {
            Some(axis) if axis == M => Shape { m: 1, ..shape },
            Some(_) => Shape { n: 1, ..shape },
            None => shape,
        }
    }
}

impl Passes {
    /// Where the kernel with a number finds its arguments, if these are the user's.
    pub fn places(&self, pass: usize, given: &[Slot], shape: Shape) -> Vec<Place> {
        let pass = &self.passes[pass];
        let place = |slot: Slot| {
            let of_plan = match &*slot.name {
                "a" if pass.reads_accumulators => Some(self.interim.len() - 1),
                name => self.interim.iter().position(|interim| interim.name == name),
            };
            let position = || given.iter().position(|other| other.name == slot.name).unwrap_or_default();
            of_plan.map_or_else(|| Place::Given(position()), Place::Interim)
        };
        pass.slots(shape).into_iter().map(place).collect()
    }

    /// The problem of one of the kernels: what the user's states of its arguments, and how those of the plan lie.
    pub(super) fn problem(&self, pass: &Pass, given: &Problem) -> Problem {
        let slots = pass.slots(given.shape);
        let problem = if pass.reads_accumulators { given.clone().without(&["a"]) } else { given.clone() };
        let of_plan = self.interim.iter().enumerate().filter_map(|(index, interim)| {
            let name = if pass.reads_accumulators && index + 1 == self.interim.len() { "a" } else { &*interim.name };
            let is_matrix = interim.operand.axes.is_matrix() && slots.iter().any(|slot| &*slot.name == name);
            is_matrix.then(|| (name, strides(interim.operand, given.shape)))
        });
        of_plan.fold(problem.only(pass.shape(given.shape), &slots), |problem, (name, [ld, batch_stride, _])| {
            let problem = problem.ld(name, ld);
            if batch_stride > 0 { problem.batch_stride(name, batch_stride) } else { problem }
        })
    }

    /// How all [`Interim`] lie in memory, and the bytes that they take.
    pub fn layout(&self, shape: Shape) -> (Vec<InterimLayout>, usize) {
        let mut at = 0;
        let mut place = |interim: &Interim| {
            let [ld, batch_stride, elements] = strides(interim.operand, shape);
            let layout = InterimLayout { at, ld, batch_stride };
            let bytes = interim.operand.dtype.bytes(elements).checked_next_multiple_of(BEGIN);
            at = bytes.and_then(|bytes| at.checked_add(bytes)).unwrap_or(usize::MAX);
            layout
        };
        let layouts = self.interim.iter().map(&mut place).collect();
        (layouts, at)
    }
}

/// Elements from run to run, from one batch entry to the next, and all of them.
pub(super) fn strides(operand: Operand, shape: Shape) -> [usize; 3] {
    let Operand { dtype, axes, order } = operand;
    let [m, n] = [(M, shape.m), (N, shape.n)].map(|(axis, extent)| if axes.contains(axis) { extent } else { 1 });
    let (ld, entry) = match (axes.without(L) == Axes::MN, order) {
        (true, Order::RowMajor) => (n.next_multiple_of(ROW / dtype.size()), m),
        (true, Order::ColumnMajor) => (m.next_multiple_of(ROW / dtype.size()), n),
        (false, _) => (0, m * n),
    };
    let entry = if ld > 0 { ld.saturating_mul(entry) } else { entry };
    let entries = if axes.contains(L) { shape.batch } else { 1 };
    [ld, if axes.contains(L) { entry } else { 0 }, entry.saturating_mul(entries)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType::{F16, F32};
    use crate::ir::axes::L as BATCH;

    #[test]
    fn runs_of_what_kernels_leave_are_whole_rows() {
        let shape = Shape::new(5, 9, 3).batched(2);
        assert_eq!(strides(F16.into(), shape), [16, 80, 160], "rows of 9, by 16 bytes");
        assert_eq!(strides(F16.column_major(), shape), [8, 72, 144], "columns of 5");
        assert_eq!(strides(F32.column_major(), shape), [8, 72, 144]);
        assert_eq!(strides(F32.over(Axes::MN), shape), [12, 0, 60], "one for every batch entry");
        assert_eq!(strides(F32.over(M), shape), [0, 0, 5]);
        assert_eq!(strides(F32.over(N | BATCH), shape), [0, 9, 18]);
        assert_eq!(strides(F32.into(), Shape::new(usize::MAX, 9, 3))[2], usize::MAX, "too large for memory, and no panic");
    }
}
