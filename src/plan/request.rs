//! What is asked of the planner: a problem, and of the choice of a tile: the problem as a kernel sees it.

use crate::check::Checked;
use crate::plan::{ArgumentRuns, PARAMETER_LIMIT, Params, Preferences, Problem, Program, Reason};
use crate::problem::{Operation, Shape};
use crate::target::{Gpu, Target};

/// The inputs of a plan.
#[derive(Clone, Copy)]
pub(super) struct PlanRequest<'r> {
    pub operation: Operation,
    pub epilogue: &'r Checked,
    pub problem: &'r Problem,
    pub target: Target,
    pub gpu: Gpu,
    pub preferences: Preferences,
    /// The number of matrices whose sum is a pointwise operation's accumulator.
    pub parts: usize,
}

/// The inputs of the choice, as the kernel sees them.
pub(super) struct TileRequest<'r> {
    pub operation: Operation,
    pub program: &'r Program,
    pub argument_runs: &'r [ArgumentRuns],
    /// The parameter block without tensor maps.
    pub params: &'r Params,
    pub shape: Shape,
    pub alignment: [usize; 2],
    /// Whether rows of each operand begin at multiples of 128 bytes, as far as is known.
    pub rows_begin_at_lines: [bool; 2],
    pub strip: usize,
    pub target: Target,
    pub gpu: Gpu,
    pub preferences: Preferences,
    pub fast_math: bool,
    /// The number of matrices whose sum is a pointwise kernel's accumulator.
    pub parts: usize,
}

impl TileRequest<'_> {
    /// Whether the kernel promotes the tensor cores' partial sums.
    pub fn promotes(&self) -> bool {
        self.preferences.promotes(self.operation)
    }

    /// Whether the parameter block has room for so many tensor maps.
    pub fn passes(&self, maps: usize) -> Result<(), Reason> {
        match self.params.size_with(maps) {
            size if size > PARAMETER_LIMIT => Err(Reason::Parameters(size)),
            _ => Ok(()),
        }
    }
}
