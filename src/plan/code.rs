//! How much code an epilogue is, and how it is kept short: what a compiler takes grows with the instructions that it sees.
//!
//! A mainloop inlines the epilogue for many elements side by side, up to 200 on Hopper. So the code of a primitive stands in the
//! kernel as often as that, times the nodes that use it. Two rules bound the product:
//!
//! - The library's long functions (sine, power, remainder) are *called* where an exact spelling needs them. Where the inlined code
//!   exceeds [`INLINED`], functions of medium length are called, too.
//! - Where one strip's code still exceeds [`STRIP_CODE`], a strip's elements share code: the loop over them stays a loop.
//!
//! The counts are estimates in machine instructions, from the `code` column of the tables.

use super::program::{Phase, Program, Store};
use super::{Mainloop, StepKind, Tile, TileShape};
use crate::dtype::ValueType;
use crate::ir::{CustomOp, Op};
use serde::Serialize;
use std::time::Duration;

/// Instructions from which on a function is called wherever its exact spelling is used.
const LONG: u32 = 40;

/// Instructions from which on a function is called where inlined code exceeds [`INLINED`]. A call takes about [`CALL`] of them.
const MEDIUM: u32 = 12;

/// Instructions of a call in the code: the argument, the jump, the result.
const CALL: u32 = 5;

/// Instructions of inlined code beyond which functions of medium length are called.
const INLINED: usize = 12_000;

/// Instructions that one strip's elements may take side by side.
const STRIP_CODE: usize = 4096;

/// Issue slots up to which visits stand side by side. Beyond, they take registers, and long to compile.
pub(super) const SIDE_BY_SIDE: usize = 2048;

/// The most elements whose visits stand side by side on mainloops that loop over visits, and the most visits.
const ELEMENTS: usize = 32;
const VISITS: usize = 8;

/// How the code of an epilogue is laid out in a kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Code {
    /// The primitives whose exact spelling is called.
    pub calls: Vec<Op>,
    /// Elements of a strip whose code stands side by side, in the visit.
    pub visit_unroll: usize,
    /// The same for values along N.
    pub column_unroll: usize,
    /// Instructions of the epilogue in the kernel, roughly.
    pub instructions: usize,
}

/// How often an element's, or a row's, code stands in a kernel.
struct Copies {
    visit: usize,
    column: usize,
    row: usize,
}

impl Copies {
    fn of(tile: &Tile, strip: usize, halved: bool) -> Copies {
        match tile.shape {
            // Every accumulator of a thread, two of every eight columns, two of every sixteen rows.
            TileShape::Sm90a { .. } => {
                let halves = if halved { 2 } else { 1 };
                Copies {
                    visit: tile.accumulators() / halves,
                    column: tile.bn / 4 / halves,
                    row: tile.accumulators() * 4 / tile.bn,
                }
            }
            TileShape::Gemv { .. } => Copies { visit: strip, column: strip, row: 1 },
            _ => {
                let visits = (ELEMENTS / strip).min(VISITS);
                Copies { visit: strip * visits, column: strip, row: visits }
            }
        }
    }
}

impl Code {
    /// How the code is laid out on a tile whose visits cover `strip` columns.
    pub(super) fn of(program: &Program, tile: &Tile, strip: usize, fast_math: bool) -> Code {
        let copies = Copies::of(tile, strip, program.is_halved());
        let staged = matches!(tile.shape, TileShape::Sm90a { .. });
        let mut code = Code { calls: Vec::new(), visit_unroll: strip, column_unroll: strip, instructions: 0 };
        for least in [LONG, MEDIUM] {
            code.calls = program.callable(least, fast_math);
            let length = |phase| program.length(phase, &code.calls, fast_math);
            let (visit, column) = (length(Phase::Visit), length(Phase::Column));
            // Hopper's visits index registers, so that the code of each stands by itself.
            code.visit_unroll = if staged { strip } else { unroll(strip, visit) };
            code.column_unroll = unroll(strip, column);
            // Mainloops that loop over visits put so many side by side as are short.
            let beside = if staged { copies.visit } else { copies.visit.min((SIDE_BY_SIDE / visit.max(1)).max(strip)) };
            code.instructions = visit * (beside * code.visit_unroll).div_ceil(strip)
                + column * (copies.column * code.column_unroll).div_ceil(strip)
                + length(Phase::Row) * copies.row
                + length(Phase::Tile);
            if code.instructions <= INLINED {
                break;
            }
        }
        code
    }

    /// What compiling a kernel is estimated to take, on the machine that the constants were measured on.
    pub(super) fn compile_time(&self, mainloop: Mainloop) -> Duration {
        let (base, each) = match mainloop {
            Mainloop::Pointwise => (80.0, 0.06),
            Mainloop::Gemv => (110.0, 0.06),
            Mainloop::Simt => (220.0, 0.06),
            Mainloop::Sm80 => (330.0, 0.06),
            Mainloop::Sm90a => (280.0, 0.12),
        };
        Duration::from_secs_f64((base + each * self.instructions as f64) / 1e3)
    }

    /// Whether a visit computes element by element, in a loop.
    pub(crate) fn is_rolled(&self, strip: usize) -> bool {
        self.visit_unroll < strip
    }
}

/// How many elements may stand side by side, of a strip, whose code is of this length.
fn unroll(strip: usize, length: usize) -> usize {
    let mut most = strip;
    while most > 1 && most * length > STRIP_CODE {
        most /= 2;
    }
    most
}

impl Program {
    /// The primitives whose exact spellings are functions of at least this length.
    fn callable(&self, least: u32, fast_math: bool) -> Vec<Op> {
        let mut calls: Vec<Op> =
            (0..self.steps.len()).filter_map(|step| self.inlined(step, fast_math)).filter(|op| op.row().code >= least).collect();
        calls.sort_unstable();
        calls.dedup();
        calls
    }

    /// The primitive of a step that is spelled exactly, for `f32`.
    fn inlined(&self, step: usize, fast_math: bool) -> Option<Op> {
        let StepKind::Apply { op, args } = &self.steps[step].kind else { return None };
        let is_float = args.first().is_some_and(|a| self.steps[*a].value == ValueType::F32);
        (is_float && !(fast_math && op.row().fast.is_some())).then_some(*op)
    }

    /// Instructions of one element of a phase.
    fn length(&self, phase: Phase, calls: &[Op], fast_math: bool) -> usize {
        let of_step = |step: usize| match &self.steps[step].kind {
            StepKind::Apply { op, .. } => match self.inlined(step, fast_math) {
                Some(op) if calls.contains(&op) => CALL,
                Some(op) => op.row().code,
                None if op.row().fast.is_some() => CALL,
                None => op.row().cost,
            },
            StepKind::Custom { cuda, .. } => CustomOp::COST.max(u32::try_from(cuda.len() / 4).unwrap_or(u32::MAX)),
            _ => 0,
        };
        let steps: usize = (0..self.steps.len()).filter(|s| self.steps[*s].phase == phase).map(|s| of_step(s) as usize).sum();
        let ends = if phase == Phase::Visit {
            self.reductions.iter().map(|r| r.monoid.row().cost as usize).sum::<usize>() + self.stores.len()
        } else {
            0
        };
        steps + ends
    }

    /// The values of a phase that are used outside it: by other phases, stores and reductions.
    pub(crate) fn leave(&self, phase: Phase) -> Vec<bool> {
        let mut leaves = vec![false; self.steps.len()];
        for (user, step) in self.steps.iter().enumerate() {
            for &arg in self.args(user) {
                leaves[arg] |= step.phase != phase && self.steps[arg].phase == phase;
            }
        }
        let stored = self.stores.iter().map(|Store { value, .. }| *value);
        for value in stored.chain(self.reductions.iter().flat_map(|r| r.terms.iter().copied())) {
            leaves[value] |= self.steps[value].phase == phase;
        }
        leaves
    }
}
