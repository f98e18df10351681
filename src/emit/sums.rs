//! Sums of operands as the templates see them.

use super::param;
use super::printer::Printer;
use crate::ir::Side;
use crate::ir::axes::L;
use crate::plan::{self, FieldValue, KernelPlan, sets};
use serde::Serialize;

/// The sum of an operand's elements over K.
#[derive(Serialize)]
pub(super) struct OperandSum {
    index: usize,
    /// What it has in common with those for which the same tiles arrive: of the same operand, and batched as they are.
    set: usize,
    /// Whether it counts the arrivals of its set.
    counts: bool,
    /// Whether it is of A.
    of_a: bool,
    /// Whether there is a result for each batch entry.
    batched: bool,
    accumulates: bool,
    /// Storage type of the result.
    dtype: &'static str,
    /// Its address, batch entry included.
    base: String,
    /// Its slices and the counters of arrivals in the workspace.
    slices: String,
    arrivals: String,
    /// Which of the sums it is.
    node: String,
}

pub(super) fn operand_sums(plan: &KernelPlan, printer: &Printer) -> Vec<OperandSum> {
    let (reductions, sets) = (plan.program.reductions.len(), sets(&plan.program.reductions).len());
    let set = |sum: &plan::OperandSum| 2 * usize::from(sum.side == Side::B) + usize::from(sum.operand.axes.contains(L));
    let all = &plan.program.sums;
    let sums = all.iter().enumerate().map(|(index, sum)| OperandSum {
        index,
        set: set(sum),
        counts: !all[..index].iter().any(|other| set(other) == set(sum)),
        of_a: sum.side == Side::A,
        batched: sum.operand.axes.contains(L),
        accumulates: sum.accumulate,
        dtype: sum.operand.dtype.cuda(),
        base: printer.base(sum.argument, sum.operand),
        slices: param(FieldValue::Partials(reductions + index)),
        arrivals: param(FieldValue::Arrivals(sets + index)),
        node: format!("sum {index} of {}", sum.side.name()),
    });
    sums.collect()
}

/// All sums of operands.
#[derive(Serialize)]
pub(super) struct Sums {
    /// The sums of operands over K.
    operand_sums: Vec<OperandSum>,
    /// Whether there are any of A, and of B.
    sums_a: bool,
    sums_b: bool,
    /// Where blocks that share K leave their sums, and where they count arrivals, if they do.
    shared_sums: Option<String>,
    shared_arrivals: Option<String>,
}

impl Sums {
    pub fn of(plan: &KernelPlan, printer: &Printer<'_>) -> Sums {
        let has = |side: Side| plan.program.sums.iter().any(|sum| sum.side == side);
        // They are numbered last.
        let program = &plan.program;
        let last = |of: usize| plan.shares_sums().then_some(of + program.sums.len());
        Sums {
            operand_sums: operand_sums(plan, printer),
            sums_a: has(Side::A),
            sums_b: has(Side::B),
            shared_sums: last(program.reductions.len()).map(|i| param(FieldValue::Partials(i))),
            shared_arrivals: last(sets(&program.reductions).len()).map(|i| param(FieldValue::Arrivals(i))),
        }
    }
}
