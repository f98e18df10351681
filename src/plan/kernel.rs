//! The plan of a kernel: everything that decides it, as plain data, and what follows from that for a launch.

use crate::check::Argument;
use crate::dtype::{DType, ValueType};
use crate::ir::Operand;
use crate::ir::axes::M;
#[cfg(feature = "cuda")]
use crate::plan::Staged;
use crate::plan::code::{self, Code, Copied, Priced};
use crate::plan::epilogue::workspace::Publishing;
use crate::plan::launch::attention;
use crate::plan::mainloop::patches;
use crate::plan::mainloop::sm90a::cost::{self, CostInputs};
use crate::plan::passes::Passes;
use crate::plan::{
    ArgumentRuns, CHUNK_ROWS, Choice, CostModel, Instr, InstrKind, Mainloop, Params, Parts, PlannedScores, Program, Repack,
    RowReduce, Stage, Staging, TensorMap, Tile, Workspace, lies_along_columns,
};
use crate::problem::{Operation, ScaleField, Shape};
use crate::target::{Gpu, Target};
use serde::Serialize;
use std::time::Duration;

/// Everything that decides a kernel.
#[derive(Clone, Debug, Serialize)]
pub struct KernelPlan {
    /// The GPU architecture that it is compiled for.
    pub target: Target,
    /// The operation as the kernel sees it.
    pub operation: Operation,
    /// Whether the kernel computes the transposed problem: A and B, M and N, rows and columns exchanged.
    pub transposed: bool,
    /// Whether approximations are used.
    pub fast_math: bool,
    /// Whether the kernel itself adds up, in `f32`, the tensor cores' sums of 128 K elements.
    pub promotes: bool,
    /// Whether the rows of a gradient of images come by their remainders by the forward window's steps.
    pub residues: bool,
    /// The mainloop and its configuration.
    pub tile: Tile,
    /// Consecutive columns of one visit.
    pub strip: usize,
    /// Bytes that address, leading dimension and batch stride of `a` and `b` are multiples of.
    pub alignment: [usize; 2],
    /// The operands that a launch copies into aligned rows first.
    pub repack: Option<Repack>,
    /// The product that leaves one sum for each part of K. This kernel adds them up; its accumulator is then a matrix.
    pub split: Option<SplitK>,
    /// The kernels that run before this one, and what they leave for it, if blocks wait for what others reduce.
    pub passes: Option<Box<Passes>>,
    /// The plans of these kernels.
    pub before: Vec<KernelPlan>,
    /// Bytes of the copies, of the sums of parts, or of what kernels leave for each other, for the planned extents.
    pub scratch: usize,
    /// Group height of the rasterisation in tiles: rows, or columns if it is negative.
    pub raster: i32,
    /// The GPU that it is planned for: its multiprocessors and its cost model.
    pub gpu: Gpu,
    /// The epilogue, with its values placed in phases.
    pub program: Program,
    /// How its code is laid out.
    pub code: Code,
    /// What scores of an attention become, if they do not stay as they are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scores: Option<PlannedScores>,
    /// The epilogue's arguments, as the kernel sees them.
    #[serde(skip)]
    pub arguments: Vec<Argument>,
    /// How each argument lies in memory.
    pub argument_runs: Vec<ArgumentRuns>,
    /// The parts of the epilogue that pass through shared memory, if the mainloop stages them.
    pub staging: Option<Staging>,
    /// The tensor maps that a launch passes.
    pub maps: Vec<TensorMap>,
    /// The parameter block.
    pub params: Params,
    /// Whether the blocks of a persistent kernel run in lockstep: they wait for each other between tiles, so that
    /// memory is read once for all of them.
    pub lockstep: bool,
    /// Units that wait for the others of their block of sums over M, to share its fix-up; 0 if the last unit to arrive does it
    /// alone.
    pub helpers: usize,
    /// The extents that it was made for, as the kernel sees them.
    #[serde(skip)]
    pub extents: Shape,
    /// Whether edge tiles are shifted: the last tiles of rows and columns end where the output does, and overlap the
    /// tiles before them.
    pub shifted_edges: bool,
    /// Whether tiles are computed in the opposite order, because the kernel before this one has read the same matrices: what that
    /// one has read last lies in the L2 cache.
    pub backwards: bool,
    /// Whether the epilogue's matrices exceed the L2 cache, on the shape that the plan was made for.
    pub outgrows_cache: bool,
    /// Whether a launch may begin while the one before it in the stream still runs (programmatic stream serialisation).
    /// The kernel itself waits before it touches memory.
    pub programmatic: bool,
    /// Whether runs of each operand begin at multiples of 128 bytes, as far as is known: lines of the L2 cache.
    pub rows_begin_at_lines: [bool; 2],
    /// Whether the kernel may read `a` and `b` before earlier launches are done.
    pub constant: [bool; 2],
    /// The weights of few rows, if the kernel prefetches their beginning into the L2 cache before earlier launches are
    /// done.
    pub weights: Option<usize>,
    /// Why this tile was chosen and not another.
    pub choice: Choice,
}

/// The product of a plan of two kernels: one that splits K, or one whose second kernel reduces rows.
#[derive(Clone, Debug, Serialize)]
pub struct SplitK {
    /// The number of parts of K; 1 if rows are reduced.
    pub parts: usize,
    /// The operation as the user sees it.
    pub operation: Operation,
    /// The layout of the sums of the parts.
    pub sums: Operand,
    /// The kernel that multiplies, with a batch entry for each part.
    pub product: Box<KernelPlan>,
    /// Why the rows are not reduced in the product's own kernel.
    pub why: String,
}

impl KernelPlan {
    /// The estimated compile time of the kernel, on a processor like the one on which the estimate was fitted.
    pub fn compile_time(&self) -> Duration {
        let of_scores = self.scores.as_ref().map_or(0, |scores| scores.code.instructions);
        let &KernelPlan { alignment, target, ref code, .. } = self;
        let copied = self.copied();
        let (residues, parts) = (self.residues, self.split.as_ref().map_or(1, |split| split.parts));
        code::compile_time(&Priced { copied, alignment, target, residues, parts, code }, of_scores)
    }

    /// A model's estimate for one of Hopper's tiles on a shape, in cycles; infinity for tiles of other mainloops.
    pub fn tile_cycles(&self, tile: &Tile, shape: Shape, model: &CostModel) -> f64 {
        let &KernelPlan { operation, ref program, ref argument_runs, gpu, fast_math, rows_begin_at_lines, .. } = self;
        let shape = self.seen(shape);
        let promotes = self.promotes;
        let inputs = CostInputs { operation, program, argument_runs, shape, gpu, fast_math, rows_begin_at_lines, promotes };
        cost::estimate(tile, &inputs, model)
    }

    /// Bytes of dynamic shared memory a block takes.
    pub fn shared_memory(&self) -> usize {
        let unstaged = || self.tile.shared_memory(self.operation.dtype(), self.parts().bytes);
        self.staging.as_ref().map_or_else(unstaged, |s| s.memory.end())
    }

    /// The offsets of the parts of reductions in shared memory.
    pub fn parts(&self) -> Parts {
        Parts::of(&self.program.reductions, &self.tile, self.strip)
    }

    /// Whether the kernel moves an argument only in pieces of 16 bytes.
    #[cfg(feature = "cuda")]
    pub(crate) fn needs_pieces(&self, argument: usize) -> bool {
        let is_written = |staged: &Staged| self.program.stores[staged.of].argument == argument;
        self.maps.iter().any(|map| map.required && map.source.argument() == Some(argument))
            || self.staging.as_ref().is_some_and(|staging| staging.direct_store && staging.stores.iter().any(is_written))
    }

    /// The values of the epilogue and of what scores become.
    pub fn steps(&self) -> impl Iterator<Item = &Instr> {
        self.program.steps.iter().chain(self.scores.iter().flat_map(|scores| &scores.program.steps))
    }

    /// The arguments of the epilogue, then those of what scores become: parameters number them in this order.
    pub fn all_arguments(&self) -> impl Iterator<Item = &Argument> {
        self.arguments.iter().chain(self.scores.iter().flat_map(|scores| &scores.arguments))
    }

    /// The slot of an argument with a number, if those of the epilogue begin at slot `operands`.
    pub fn slot_of(&self, argument: usize, operands: usize) -> usize {
        match argument.checked_sub(self.arguments.len()) {
            // Those of a function of scores lie behind queries, values and keys.
            Some(of_scores) => 3 + of_scores,
            None => operands + argument,
        }
    }

    /// The bytes that a wide access to an argument with a number has to be aligned to.
    pub fn wide_access_to(&self, argument: usize) -> usize {
        let operand = self.all_arguments().nth(argument).and_then(|argument| argument.role.operand());
        let Some(operand) = operand else { return 16 };
        if argument < self.arguments.len() { self.wide_access(operand) } else { PlannedScores::wide_access(operand) }
    }

    /// Whether any value of the kernel, or its accumulator, is an `f64`.
    pub(crate) fn has_doubles(&self) -> bool {
        let is_double = |step: &Instr| step.value == ValueType::F64;
        self.operation.accumulator() == ValueType::F64 || self.steps().any(is_double)
    }

    /// Whether any format of the kernel is a number of eight bits.
    pub(crate) fn has_eight_bits(&self) -> bool {
        let rounds = |step: &Instr| match step.kind {
            InstrKind::Apply { op, .. } => op.row().format.is_some(),
            _ => false,
        };
        let mut formats = self.all_arguments().filter_map(|argument| argument.role.dtype());
        let mut multiplied =
            self.operation.dtypes().into_iter().chain(ScaleField::of(self.operation).map(|s| s.format(self.operation)));
        formats.any(DType::is_eight_bits)
            || multiplied.any(|dtype| dtype.is_eight_bits() || dtype.is_four_bits())
            || self.steps().any(rounds)
    }

    /// The device memory that reductions need for launches on a shape.
    pub fn workspace(&self, shape: Shape) -> Workspace {
        let blocks = self.grid(shape).map_or(usize::MAX, |[blocks, ..]| blocks as usize);
        let &KernelPlan { ref program, ref tile, strip, lockstep, operation, helpers, .. } = self;
        let (shape, rules) = (self.seen(shape), tile.rules());
        let shared_sums = rules.shares_sums().then(|| rules.shared_sums(tile, operation, shape));
        Workspace::of(&Publishing { program, tile, strip, shape, blocks, lockstep, shared_sums, helpers })
    }

    /// Whether threads widen rows that they hold again for each stage.
    pub(crate) fn renews_rows(&self) -> bool {
        self.tile.rules().renews_rows(&self.tile, &self.program, self.operation.dtype())
    }

    /// Whether threads go over the strips that they hold as often as is of use.
    pub(crate) fn goes_over_strips(&self) -> bool {
        self.tile.rules().goes_over_strips(&self.tile)
    }

    /// Whether blocks take the rows in turns, instead of neighbouring rows each: they reduce down columns alone. Where each reads
    /// a place of its own, a large matrix takes up to 1.5 times as long.
    pub(crate) fn interleaves_rows(&self) -> bool {
        let down = self.program.reductions.iter().all(|reduction| !reduction.operand.axes.contains(M));
        down && !self.keeps_sums() && !self.program.reductions.is_empty()
    }

    /// Whether the accumulator's extremes come to the same as all of its elements, for those reductions of a stage that are
    /// asked for.
    pub(crate) fn has_extremes(&self, stage: &Stage, asked: impl Fn(&RowReduce) -> bool) -> bool {
        let has_pairs = self.operation.dtype().size() == 2;
        // A monoid that is ordered sees no other elements. An infinite factor makes NaN of one that is 0.
        let follows = |reduction: &RowReduce| {
            let is_ordered = reduction.monoid.is_ordered();
            reduction.terms.iter().all(|&term| self.program.follows_accumulator(term, is_ordered))
        };
        self.goes_over_strips() && has_pairs && stage.reductions.iter().filter(|reduction| asked(reduction)).all(follows)
    }

    /// Whether the strip that has the label is reduced by itself, and whether it is visited again by itself.
    pub(crate) fn visits_label(&self) -> [bool; 2] {
        let apart = self.goes_over_strips();
        [apart, apart && self.program.can_visit_label_again()]
    }

    /// Whether one barrier combines the states of all reductions of a stage, so that it has a place for all of them.
    pub(crate) fn combines_together(&self, stage: &Stage) -> bool {
        let bytes: usize = stage.reductions.iter().map(|reduction| 4 * reduction.monoid.words(reduction.value)).sum();
        self.tile.rules().place_of_states().is_some_and(|place| bytes <= place)
            && stage.reductions.len() > 1
            && !stage.reductions.iter().any(|reduction| reduction.whole)
            && !self.has_doubles()
    }

    /// Whether threads keep sums over M in shared memory from row to row.
    pub(crate) fn keeps_sums(&self) -> bool {
        self.tile.rules().keeps_sums(&self.tile, &self.program, self.operation.dtype())
    }

    /// Whether its mainloop reads lines of images from shared memory.
    pub(crate) fn reads_bands(&self) -> bool {
        self.tile.rules().reads_bands()
    }

    /// Whether blocks share K, and add their sums up in the workspace.
    pub(crate) fn shares_sums(&self) -> bool {
        self.tile.rules().shares_sums()
    }

    /// The alignment of wide accesses to an operand, in bytes: that of a strip, or of a chunk's line for masks that
    /// pass through shared memory.
    pub(crate) fn wide_access(&self, operand: crate::ir::Operand) -> usize {
        let staged = self.staging.as_ref().filter(|_| operand.dtype.is_packed());
        let line = |s: &Staging| if lies_along_columns(operand.axes, operand.order) { s.chunk } else { CHUNK_ROWS };
        operand.dtype.bytes(staged.map_or(self.strip, line)).min(16)
    }

    /// The user's shape as the kernel sees it.
    pub fn seen(&self, shape: Shape) -> Shape {
        if let Some(padded) = attention::seen(self.operation, shape, self.tile.bm) {
            return padded;
        }
        match self.operation.patches().filter(|_| self.residues) {
            Some(patches) => Shape { m: patches::padded_rows(&patches, self.tile.bm), ..shape },
            None if self.transposed => shape.transposed(),
            None => shape,
        }
    }

    /// The grid of a launch: the tiles of one batch entry, and the entries in two dimensions, which may count more
    /// entries than the batch has. A persistent kernel has as many blocks as there is work and room for. `None` if
    /// there are more tiles than a grid can count.
    pub fn grid(&self, shape: Shape) -> Option<[u32; 3]> {
        let shape = self.seen(shape);
        let (rows, columns) = (shape.m.div_ceil(self.tile.bm), shape.n.div_ceil(self.tile.bn));
        let (rules, tiles) = (self.tile.rules(), [rows, columns]);
        let grid = rules.grid(&self.tile, tiles, shape.batch, self.gpu)?;
        let blocks = self.takes_turns().then(|| rules.blocks(&self.tile, tiles, self.gpu)).flatten();
        Some(blocks.map_or(grid, |blocks| [blocks as u32, grid[1], grid[2]]))
    }

    /// Whether blocks of `depthwise_lines` go from tile to tile.
    pub(crate) fn takes_turns(&self) -> bool {
        self.tile.rules().takes_turns(&self.copied())
    }

    /// Whether threads of `depthwise_lines` load matrices ahead of a row's last products, without conditions.
    pub(crate) fn loads_ahead(&self) -> bool {
        self.tile.rules().loads_ahead(&self.copied())
    }

    fn copied(&self) -> Copied<'_> {
        let &KernelPlan { ref tile, operation, strip, ref program, fast_math, .. } = self;
        Copied { tile, operation, strip, program, fast_math }
    }

    /// The plan of the kernel that multiplies: this one, unless K is split or another kernel runs before.
    pub fn product(&self) -> &KernelPlan {
        match (&self.split, self.before.first()) {
            (Some(split), _) => &split.product,
            (None, Some(first)) if first.operation.multiplies() || first.split.is_some() => first.product(),
            (None, _) => self,
        }
    }

    /// The plans of all kernels that run before this one, each with the shape that it sees of the user's.
    pub fn earlier(&self, shape: Shape) -> Vec<(&KernelPlan, Shape)> {
        let product = self.split.iter().map(|split| (&*split.product, split.shape(shape)));
        let passes = self.passes.iter().flat_map(|passes| &passes.passes);
        let before = self.before.iter().zip(passes).flat_map(|(plan, pass)| {
            let shape = pass.shape(shape);
            plan.earlier(shape).into_iter().chain([(plan, shape)])
        });
        product.chain(before).collect()
    }

    /// The mainloop that multiplies.
    pub fn mainloop(&self) -> Mainloop {
        self.product().tile.mainloop()
    }
}
