//! The size of an epilogue's code, and how it is limited: compile time grows with the instructions that the compiler
//! sees.
//!
//! A mainloop inlines the epilogue for many elements side by side, up to 200 on Hopper. So a primitive's code appears
//! in the kernel that many times for each node that uses it. Two rules bound the product:
//!
//! - The library's long functions (sine, power, remainder) are *called* where an exact spelling needs them. Where the
//!   inlined code exceeds [`INLINED`], functions of medium length are called, too, and with them custom primitives. Where a
//!   kernel would fork at more than [`MOST_FORKS`] places, the functions that fork are called, too.
//! - Where one strip's code still exceeds [`STRIP_CODE`], a strip's elements share code: the loop over them stays a loop.
//!
//! The counts are estimates in machine instructions, from the `code` column of the tables.

use crate::dtype::{DType, ValueType};
use crate::ir::{CustomOp, Node, Op};
use crate::plan::epilogue::program::{Instr, Phase, Program, Store};
use crate::plan::{InstrKind, Item, PlannedCount, Stage, Tile};
use crate::problem::{GradientOf, Operation};
use crate::target::Target;
use serde::Serialize;
use std::time::Duration;

/// A function with at least this many instructions is always called where its exact spelling is used.
const LONG: u32 = 40;

/// A function with at least this many instructions is called if the inlined code exceeds [`INLINED`]. A call takes
/// about [`CALL`].
const MEDIUM: u32 = 12;

/// Instructions of a call: the argument, the jump, the result.
const CALL: u32 = 5;

/// Instructions that move an element between memory and a value.
const ACCESS: u32 = 2;

/// Instructions that round a number to eight bits, and read one, where the target has no instruction for that.
const NARROWED: usize = 16;
const WIDENED: usize = 5;

/// Instructions of inlined code beyond which functions of medium length are called.
const INLINED: usize = 6000;

/// Forks side by side, of visits that index registers, beyond which functions that fork are called. ptxas takes time with about
/// the power 2.6 of their number (`docs/measurements/0068-compile-outliers.md`).
const MOST_FORKS: usize = 128;

/// Instructions that one strip's elements may take side by side.
const STRIP_CODE: usize = 4096;

/// Issue slots up to which visits are unrolled side by side. More of them need too many registers and too much compile
/// time.
pub(super) const SIDE_BY_SIDE: usize = 2048;

/// Compile time in milliseconds: for a kernel without an epilogue, and for each thousand instructions of the epilogue,
/// each matrix that it loads, each store, each reduction and each sum of an operand. The numbers were fitted to random kernels
/// (`docs/jit_cache.md`).
pub(super) struct Price {
    pub kernel: f64,
    pub thousand: f64,
    pub load: f64,
    pub store: f64,
    pub reduction: f64,
    pub sum: f64,
}

/// Milliseconds of each issue slot with which a monoid takes an element in. It combines states in several places.
const SLOT: f64 = 6.1;

/// The inputs on which the copies of an epilogue's code in a kernel depend.
#[derive(Clone, Copy)]
pub(in crate::plan) struct Copied<'a> {
    pub tile: &'a Tile,
    pub operation: Operation,
    pub strip: usize,
    pub program: &'a Program,
    pub fast_math: bool,
}

/// The inputs on which a kernel's compile time depends.
pub(in crate::plan) struct Priced<'a> {
    pub copied: Copied<'a>,
    pub alignment: [usize; 2],
    pub target: Target,
    pub residues: bool,
    /// Matrices whose sum the accumulator is.
    pub parts: usize,
    pub code: &'a Code,
}

/// The estimated compile time of a kernel, on the machine on which the prices were measured. Scores of an attention add
/// instructions.
pub(super) fn compile_time(of: &Priced<'_>, of_scores: usize) -> Duration {
    let Copied { tile, program, .. } = of.copied;
    let Price { kernel, thousand, load, store, reduction, sum } = tile.rules().price(of);
    let times = |price: f64, count: usize| price * count as f64;
    let loads = times(load, program.loads_of(Phase::Visit).count());
    let slots: u32 = program.monoids().map(|(monoid, _)| monoid.cost()).sum();
    let reductions = times(reduction, program.reductions.len()) + SLOT * f64::from(slots);
    let ends = loads + times(store, program.stores.len()) + reductions + times(sum, program.sums.len());
    let instructions = of.instructions() + of_scores;
    Duration::from_secs_f64((kernel + times(thousand, instructions) / 1e3 + ends) / 1e3)
}

/// Instructions that an element of an operand takes to become a number to multiply. Assembly takes the compiler long, too.
pub(in crate::plan) const fn widening(dtype: DType) -> usize {
    match dtype {
        DType::F32 | DType::F64 | DType::I32 => 0,
        DType::E4M3 => 6,
        DType::E5M2 | DType::I8 => 2,
        DType::I4 | DType::U4 => 3,
        _ => 1,
    }
}

impl Priced<'_> {
    /// What [`widening`] says of an operand.
    pub fn widening(&self, operand: usize) -> usize {
        widening(self.copied.operation.dtypes()[operand])
    }

    /// One of three prices if images are read: by a convolution, by the gradient of its images, or by that of its filters.
    pub fn images(&self, [forward, of_images, of_filters]: [f64; 3]) -> f64 {
        match self.copied.operation.patches().map(|patches| patches.gradient) {
            None => 0.0,
            Some(None) => forward,
            Some(Some(GradientOf::Images)) => of_images,
            Some(Some(GradientOf::Filters)) => of_filters,
        }
    }

    /// Instructions of the epilogue in the kernel, roughly.
    pub fn instructions(&self) -> usize {
        self.code.instructions + self.unseen()
    }

    /// How often a kernel forks, and calls a function, in the code of its visits.
    pub fn jumps(&self) -> [f64; 2] {
        let (program, code, fast_math) = (self.copied.program, self.code, self.copied.fast_math);
        [program.forks(code, fast_math), program.called(code, fast_math)].map(|of_element| (code.copies * of_element) as f64)
    }

    /// The rows that the code of a visit finds by their remainders, side by side.
    pub fn residues(&self) -> f64 {
        let rows = || self.copied.tile.rules().copies(&self.copied).row;
        if self.residues { rows() as f64 } else { 0.0 }
    }

    /// Instructions of the visits that [`Code::instructions`] does not count: those that stages of reductions repeat, and
    /// conversions of eight bits for which the target has no instruction.
    fn unseen(&self) -> usize {
        let Priced { copied, target, code, .. } = *self;
        let Copied { strip, program, fast_math, .. } = copied;
        let repeated = program.repeated(code, fast_math);
        let stored = program.matrix_stores().filter(|(_, store)| store.operand.dtype.is_float8()).count();
        let loaded = program.loads_of(Phase::Visit).filter(|(_, _, operand)| operand.dtype == DType::E4M3).count();
        let converted = if target.has_float8() { 0 } else { NARROWED * stored + WIDENED * loaded };
        (code.copies * code.visit_unroll).div_ceil(strip) * (repeated + converted)
    }
}

/// The layout of an epilogue's code in a kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Code {
    /// The primitives whose exact spelling is called.
    pub calls: Vec<Op>,
    /// Whether custom primitives are called.
    pub calls_custom: bool,
    /// Whether functions that fork are called, in the program's own monoids too.
    pub calls_forks: bool,
    /// Elements of a strip whose code is unrolled side by side in the visit.
    pub visit_unroll: usize,
    /// The same for values along N.
    pub column_unroll: usize,
    /// Elements whose visits stand side by side.
    pub copies: usize,
    /// Instructions of the epilogue in the kernel, roughly.
    pub instructions: usize,
}

/// How many copies of the code of an element, a column or a row a kernel contains.
pub(super) struct Copies {
    pub visit: usize,
    pub column: usize,
    pub row: usize,
    /// How often the columns' code stands there again, for rows side by side.
    pub again: usize,
    /// Whether a mainloop unrolls fewer visits where these are long.
    pub limited: bool,
}

impl Copies {
    /// Those of a loop whose body has so many visits, or fewer where these are long.
    pub(super) fn of_visits(strip: usize, visits: usize) -> Copies {
        Copies { visit: strip * visits, column: strip, row: visits, again: 1, limited: true }
    }
}

impl Code {
    /// The layout of the code on a tile whose visits cover `strip` columns.
    pub(super) fn of(copied: Copied<'_>) -> Code {
        let Copied { tile, strip, program, fast_math, .. } = copied;
        Code::copied(program, &tile.rules().copies(&copied), tile.rules().is_staged(), strip, fast_math)
    }

    /// The layout of code with so many copies, each of which is unrolled if visits index registers.
    pub(super) fn copied(program: &Program, copies: &Copies, staged: bool, strip: usize, fast_math: bool) -> Code {
        let forks = program.forks(&Code::default(), fast_math);
        // One of each element, as in a sigmoid, is inlined on every tile.
        let calls_forks = staged && forks > 1 && copies.visit * forks > MOST_FORKS;
        let mut code = Code { visit_unroll: strip, column_unroll: strip, calls_forks, ..Code::default() };
        for least in [LONG, MEDIUM] {
            code.calls = program.callable(least, calls_forks, fast_math);
            code.calls_custom = calls_forks || least == MEDIUM;
            let [visit, column, row, once] =
                [Phase::Visit, Phase::Column, Phase::Row, Phase::Tile].map(|phase| program.length(phase, &code, fast_math));
            // Hopper's visits index registers, so each visit has its own copy of the code.
            code.visit_unroll = if staged { strip } else { unroll(strip, visit) };
            code.column_unroll = unroll(strip, column);
            // Mainloops that loop over visits unroll as many as fit into the limit. Calls are chosen as if all did, and computed
            // columns once.
            let limited = copies.visit.min((SIDE_BY_SIDE / visit.max(1)).max(strip));
            let inlined = |beside: usize, again: usize| {
                visit * (beside * code.visit_unroll).div_ceil(strip)
                    + column * (again * copies.column * code.column_unroll).div_ceil(strip)
                    + row * copies.row
                    + once
            };
            code.copies = if copies.limited { limited } else { copies.visit };
            code.instructions = inlined(code.copies, copies.again);
            if inlined(if staged { copies.visit } else { limited }, 1) <= INLINED {
                break;
            }
        }
        code
    }

    /// Whether a visit computes element by element, in a loop.
    pub(crate) fn is_rolled(&self, strip: usize) -> bool {
        self.visit_unroll < strip
    }
}

/// How many elements of a strip may be unrolled side by side, if the code of each has this length.
fn unroll(strip: usize, length: usize) -> usize {
    let mut most = strip;
    while most > 1 && most * length > STRIP_CODE {
        most /= 2;
    }
    most
}

impl Program {
    /// The primitives whose exact spellings are functions of at least this length, or fork if those are called.
    fn callable(&self, least: u32, forks: bool, fast_math: bool) -> Vec<Op> {
        let steps = (0..self.steps.len()).filter_map(|step| self.inlined(step, fast_math));
        let mut calls: Vec<Op> = steps.filter(|op| op.row().code >= least || forks && op.forks()).collect();
        if forks {
            calls.extend(self.forks_of_monoids());
        }
        calls.sort_unstable();
        calls.dedup();
        calls
    }

    /// How often the code of an element forks beside what is called. A division in a spelling that the program brought forks.
    fn forks(&self, code: &Code, fast_math: bool) -> usize {
        let of_step = |step: usize| match &self.steps[step].kind {
            InstrKind::Custom { cuda, .. } if !code.calls_custom => cuda.matches('/').count(),
            _ => usize::from(self.inlined(step, fast_math).is_some_and(|op| op.forks() && !code.calls.contains(&op))),
        };
        let of_monoids = if code.calls_forks { 0 } else { self.forks_of_monoids().count() };
        self.visited().map(of_step).sum::<usize>() + of_monoids
    }

    /// How often the code of an element calls a function.
    fn called(&self, code: &Code, fast_math: bool) -> usize {
        let is_called = |step: &usize| match self.steps[*step].kind {
            InstrKind::Custom { .. } => code.calls_custom,
            _ => self.inlined(*step, fast_math).is_some_and(|op| code.calls.contains(&op)),
        };
        let of_monoids = if code.calls_forks { self.forks_of_monoids().count() } else { 0 };
        self.visited().filter(is_called).count() + of_monoids
    }

    /// The steps that are computed for each element.
    fn visited(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.steps.len()).filter(|step| self.steps[*step].phase == Phase::Visit)
    }

    /// The primitives that fork where the program's own monoids take an element in.
    fn forks_of_monoids(&self) -> impl Iterator<Item = Op> + '_ {
        self.monoids().filter_map(|(monoid, _)| monoid.custom()).flat_map(|custom| custom.forks())
    }

    /// The primitive of a step that is spelled exactly, for `f32`.
    fn inlined(&self, step: usize, fast_math: bool) -> Option<Op> {
        let InstrKind::Apply { op, args } = &self.steps[step].kind else { return None };
        let is_float = args.first().is_some_and(|a| self.steps[*a].value == ValueType::F32);
        (is_float && !(fast_math && op.row().fast.is_some())).then_some(*op)
    }

    /// Whether a step takes `f64` operands. Their functions are inlined, and are about twice as long as those of `f32`.
    fn is_double(&self, step: usize) -> bool {
        self.args(step).first().is_some_and(|a| self.steps[*a].value == ValueType::F64)
    }

    /// Instructions of one element of a phase.
    fn length(&self, phase: Phase, code: &Code, fast_math: bool) -> usize {
        let steps = (0..self.steps.len()).filter(|s| self.steps[*s].phase == phase);
        let steps: usize = steps.map(|step| self.step_length(step, code, fast_math)).sum();
        let ends = if phase == Phase::Visit {
            let inside = self.stages.iter().flat_map(|stage| &stage.reductions).map(|r| r.monoid.cost_inside());
            let reductions: u32 = self.reductions.iter().map(|r| r.monoid.cost()).chain(inside).sum();
            (reductions + ACCESS * self.stores.len() as u32 + PlannedCount::COST * self.counts.len() as u32) as usize
        } else {
            0
        };
        steps + ends
    }

    /// Instructions of one step, for one element.
    fn step_length(&self, step: usize, code: &Code, fast_math: bool) -> usize {
        let length = match &self.steps[step].kind {
            InstrKind::Apply { op, .. } => match self.inlined(step, fast_math) {
                Some(op) if code.calls.contains(&op) => CALL,
                Some(op) => op.row().code,
                None if self.is_double(step) => 2 * op.row().code,
                None => op.row().fast.filter(|_| fast_math).map_or(op.row().cost, |fast| fast.code),
            },
            InstrKind::Custom { .. } if code.calls_custom => CALL,
            // A rough guess: ten characters for a call of a library function.
            InstrKind::Custom { cuda, .. } => CustomOp::COST.max(u32::try_from(2 * cuda.len()).unwrap_or(u32::MAX)),
            InstrKind::Load { .. } => ACCESS,
            InstrKind::Gather { .. } => Node::GATHER_COST,
            _ => 0,
        };
        length as usize
    }

    /// Instructions of one element that several stages repeat: each stage computes from the accumulator what it takes.
    fn repeated(&self, code: &Code, fast_math: bool) -> usize {
        let mut lists = vec![0usize; self.steps.len()];
        for items in self.stages.iter().map(|stage| &stage.visit).chain([&self.visit]) {
            Item::walk(items, &mut |step| lists[step] += 1);
        }
        (0..self.steps.len()).map(|step| lists[step].saturating_sub(1) * self.step_length(step, code, fast_math)).sum()
    }

    /// Whether a launch has to pass an argument to the kernel.
    pub(in crate::plan) fn uses(&self, argument: usize) -> bool {
        let loads = |s: &Instr| match s.kind {
            InstrKind::Scalar { argument: a } | InstrKind::Load { argument: a, .. } | InstrKind::Gather { argument: a, .. } => {
                a == argument
            }
            _ => false,
        };
        self.stores.iter().any(|s| s.argument == argument)
            || self.reductions.iter().any(|r| r.argument == argument)
            || self.sums.iter().any(|s| s.argument == argument)
            || self.counts.iter().any(|s| s.argument == argument)
            || self.steps.iter().any(loads)
    }

    /// The values that leave the program, each as often as it does.
    pub(in crate::plan) fn ends(&self) -> impl Iterator<Item = usize> + '_ {
        let reduced = self.reductions.iter().flat_map(|reduction| reduction.terms.iter().copied());
        self.stores.iter().map(|store| store.value).chain(reduced).chain(self.counts.iter().map(|count| count.value))
    }

    /// The stores of matrices, by their number. Vectors along rows are stored with what rows come to.
    pub(crate) fn matrix_stores(&self) -> impl Iterator<Item = (usize, &Store)> {
        self.stores.iter().enumerate().filter(|(_, store)| store.operand.axes.is_matrix())
    }

    /// Whether it has no output but stores: neither reductions nor counts nor sums of operands.
    pub(in crate::plan) fn only_stores(&self) -> bool {
        self.reductions.is_empty() && self.counts.is_empty() && self.sums.is_empty()
    }

    /// For each value of a phase, whether another phase, a store or a reduction uses it.
    pub(crate) fn leave(&self, phase: Phase) -> Vec<bool> {
        let mut leaves = vec![false; self.steps.len()];
        for (user, step) in self.steps.iter().enumerate() {
            for &arg in self.args(user) {
                leaves[arg] |= step.phase != phase && self.steps[arg].phase == phase;
            }
        }
        for value in self.ends().chain(self.stages.iter().flat_map(Stage::terms).copied()) {
            leaves[value] |= self.steps[value].phase == phase;
        }
        leaves
    }
}
