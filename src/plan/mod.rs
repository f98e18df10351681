//! Plans: everything that decides a kernel, as plain data.
//!
//! [`KernelPlan::new`] turns a checked epilogue, an operation and a problem into a plan for one target, and `emit`
//! prints it. A plan holds no pointers. Extents enter only through decisions: tile order and scratch size. One kernel
//! serves every problem of its class (format, layout, alignment, tile). M, N, K, leading dimensions, addresses and
//! scalars are parameters of the launch.

mod choice;
mod code;
mod epilogue;
mod error;
mod explain;
mod launch;
mod mainloop;
mod preferences;
mod rows;
mod split_k;
mod transposed;
mod verdict;

pub use choice::Choice;
pub use code::Code;
pub(crate) use epilogue::operand_sums::MOST_PARTS;
pub use epilogue::operand_sums::OperandSum;
pub use epilogue::program::{Instr, InstrKind, Item, Phase, Program, Store};
pub use epilogue::reduce::{Parts, PlannedCount, PlannedReduction, Unit, Workspace};
pub use error::PlanError;
pub use launch::maps::{MapSource, Swizzle, TMA_UNIT, TensorMap};
pub use launch::params::{Field, FieldType, FieldValue, LIMIT as PARAMETER_LIMIT, Params};
pub use launch::problem::{ArgumentRuns, Problem, Strides};
pub use launch::repack::{Repack, Widened};
pub use mainloop::name::Mainloop;
pub use mainloop::patches::PatchField;
pub use mainloop::sm90a::cost::CostModel;
pub use mainloop::sm90a::l2::{Priorities, Priority};
pub use mainloop::sm90a::staging::{CHUNK_ROWS, Staged, Staging};
pub use mainloop::tile::{Schedule, Tile, TileShape};
pub use preferences::{Math, Preferences};
pub use rows::{RowReduce, Stage};
pub use split_k::SplitK;
pub use verdict::{Considered, Reason, Verdict};

pub(crate) use epilogue::reduce::{NOTE_BYTES, sets};
pub(crate) use launch::params::{has_wide, lies_along_columns};
pub use launch::problem::alignment;
use mainloop::patches;
#[cfg(feature = "cuda")]
pub(crate) use mainloop::patches::corners;
pub(crate) use mainloop::pool::constants as pool_constants;
use mainloop::sm90a::staging::MOST_CHUNK;
pub(crate) use mainloop::sm90a::staging::panel_terms;

use crate::args::{fit_extents, fit_operation, slots};
use crate::check::{Argument, Checked};
use crate::dtype::{DType, ValueType};
use crate::pass;
use crate::problem::{Operation, ScaleField, Shape};
use crate::target::{Gpu, Target};
use mainloop::sm90a::{cost::CostInputs, few_rows};
use serde::Serialize;
use split_k::PlanRequest;
use std::time::Duration;
use transposed::prefers_transposed;

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
    /// Bytes of the copies, or of the sums of parts, for the planned extents.
    pub scratch: usize,
    /// Group height of the rasterisation in tiles: rows, or columns if it is negative.
    pub raster: i32,
    /// The GPU that it is planned for: its multiprocessors and its cost model.
    pub gpu: Gpu,
    /// The epilogue, with its values placed in phases.
    pub program: Program,
    /// How its code is laid out.
    pub code: Code,
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
    /// Whether edge tiles are shifted: the last tiles of rows and columns end where the output does, and overlap the
    /// tiles before them.
    pub shifted_edges: bool,
    /// Whether the epilogue's matrices exceed the L2 cache, on the shape that the plan was made for.
    pub outgrows_cache: bool,
    /// Whether a launch may begin while the one before it in the stream still runs (programmatic stream serialisation).
    /// The kernel itself waits before it touches memory.
    pub programmatic: bool,
    /// Whether runs of both operands begin at multiples of 128 bytes, as far as is known: lines of the L2 cache.
    pub rows_begin_at_lines: bool,
    /// Whether the kernel may read `a` and `b` before earlier launches are done.
    pub constant: [bool; 2],
    /// The weights of few rows, if the kernel prefetches their beginning into the L2 cache before earlier launches are
    /// done.
    pub weights: Option<usize>,
    /// Why this tile was chosen and not another.
    pub choice: Choice,
}

impl KernelPlan {
    /// Plans a kernel for a class of problems.
    ///
    /// # Errors
    /// If the epilogue does not fit the operation, if the problem has strides that no launch could take, or if the
    /// target lacks a feature or has no multiprocessors.
    pub fn new(
        operation: Operation,
        epilogue: &Checked,
        problem: &Problem,
        target: Target,
        gpu: impl Into<Gpu>,
        preferences: Preferences,
    ) -> Result<KernelPlan, PlanError> {
        let gpu = gpu.into();
        fit_extents(operation, problem.shape)?;
        let operation = operation.simplest();
        split_k::plan(&PlanRequest { operation, epilogue, problem, target, gpu, preferences, parts: 1 })
    }

    /// Plans one kernel. Its accumulator is that of the operation or, with several parts, the sum of that many
    /// matrices.
    fn whole(request: &PlanRequest<'_>) -> Result<KernelPlan, PlanError> {
        let PlanRequest { operation, epilogue, problem, target, gpu, preferences, parts } = *request;
        fit_operation(operation, epilogue)?;
        let epilogue = pass::fold(&pass::inline(epilogue));
        // Alignments are properties of memory, so they come from the problem as the user sees it.
        let slots = slots(operation, &epilogue, problem.shape);
        problem.check(&slots)?;
        let aligned = |name: &str| slots.iter().find(|s| *s.name == *name).map_or(16, |s| problem.alignment(s));
        let alignment = match operation {
            Operation::Product { .. } => [aligned("a"), aligned("b")],
            Operation::Convolution { .. } | Operation::ConvolutionGradient { .. } => {
                patches::alignment(operation, [aligned("a"), aligned("b")])
            }
            Operation::Pool { .. } | Operation::Pointwise { .. } => [aligned("a"); 2],
        };
        let begins_at_line = |name: &str| {
            let slot = slots.iter().find(|s| *s.name == *name);
            slot.is_none_or(|s| problem.run_distance(s).is_multiple_of(LINE))
        };
        let begins = [begins_at_line("a"), begins_at_line("b")];
        let mut choice = Choice::default();
        let reduces = rows::reduces(&epilogue);
        let usable = choice::mainloops(operation, problem.shape, alignment, target, preferences, &epilogue, &mut choice);
        // The plan with a mainloop, of the problem as it is or transposed, or the obstacles to it.
        let attempt = |mainloop: Mainloop, transposed: bool, mut choice: Choice| {
            let (seen, shape, operation) = if transposed {
                (pass::transpose(&epilogue), problem.shape.transposed(), operation.transposed())
            } else {
                (epilogue.clone(), problem.shape, operation)
            };
            let [first, second] = if transposed { [1, 0] } else { [0, 1] };
            // What is read of A at once are neighbouring channels, of any groups.
            let pixels = mainloop == Mainloop::Depthwise;
            let alignment = if pixels { [aligned("a"), aligned("b")] } else { [alignment[first], alignment[second]] };
            let seen = if reduces { pass::spread(&seen) } else { seen };
            let program = Program::of(&seen);
            let strip = strip(&seen, |name| aligned(name));
            let repack = Repack::of(mainloop, operation, alignment);
            let operation = repack.map_or(operation, |r| r.read(operation));
            let is_copied = |i: usize| repack.is_some_and(|repack| repack.operands[i]);
            let read = [0, 1].map(|i| if is_copied(i) { alignment[i].max(TMA_UNIT) } else { alignment[i] });
            // A copy is written right before the kernel runs, even if the original is constant.
            let copied = repack.map_or([false; 2], |r| r.operands);
            let constant = [preferences.constant[first] && !copied[0], preferences.constant[second] && !copied[1]];
            let arguments = seen.arguments().to_vec();
            let runs = |argument: &Argument| {
                let slot = slots.iter().find(|s| *s.name == *argument.name);
                slot.map_or(ArgumentRuns { alignment: 16, whole: true }, |s| problem.runs(s))
            };
            let argument_runs: Vec<ArgumentRuns> = arguments.iter().map(runs).collect();
            let fast_math = preferences.math.is_fast(&program);
            // What a convolution reads at a tap has just been read at the one before.
            let drifts = || {
                let matrices = operation.patches().is_none();
                matrices && mainloop::sm90a::l2::drifts(shape, operation.dtype().size(), gpu.multiprocessors)
            };
            let lockstep = mainloop == Mainloop::Sm90a && preferences.lockstep.unwrap_or_else(drifts);
            let shifted_edges = mainloop == Mainloop::Sm90a
                && !operation.is_scaled()
                && mainloop::sm90a::edges::allows(&program, &arguments)
                && !patches::has_residues(operation);
            let residues = patches::goes_by_residues(operation, &seen, mainloop);
            // Each row meets a part of the taps.
            let shape = match operation.patches().filter(|_| residues) {
                Some(of) => {
                    let (rows, [down, right]) = (patches::padded_rows(&of, 1), of.windows().spread);
                    Shape { m: rows, k: shape.k.div_ceil(down * right), ..shape }
                }
                None => shape,
            };
            let params = Params::of(operation, &arguments, &program, lockstep, shifted_edges);
            let rows_begin_at_lines = (begins[first] || copied[0]) && (begins[second] || copied[1]);
            let request = choice::TileRequest {
                operation,
                program: &program,
                argument_runs: &argument_runs,
                params: &params,
                shape,
                alignment: read,
                rows_begin_at_lines,
                strip,
                target,
                gpu,
                preferences,
                fast_math,
                parts,
            };
            choice::choose(mainloop, &request, &mut choice);
            let Some((tile, raster)) = choice.chosen() else { return Err(Box::new(choice)) };
            let promotes = mainloop == Mainloop::Sm90a && choice::promotes(operation, preferences);
            let (staging, params) = staged(&tile, operation, &argument_runs, &program, params, target, MOST_CHUNK);
            let outgrows_cache = mainloop::sm90a::l2::outgrow(&program, shape);
            let strip = staging.as_ref().map_or(strip, |s| s.strip);
            let code = Code::of(&program, &tile, strip, fast_math);
            let hidden = staging.is_some() && repack.is_none() && constant == [false; 2];
            Ok(KernelPlan {
                target,
                operation,
                transposed,
                fast_math,
                promotes,
                residues,
                tile,
                strip,
                alignment,
                repack,
                split: None,
                scratch: repack.map_or(0, |r| r.bytes(operation, shape)),
                raster,
                gpu,
                program,
                code,
                arguments,
                argument_runs,
                maps: staging.as_ref().map_or_else(Vec::new, |s| s.maps.clone()),
                staging,
                params,
                lockstep,
                shifted_edges,
                outgrows_cache,
                // With copies before the kernel, an early start cost up to 15 %.
                programmatic: preferences.programmatic && waits(tile.mainloop(), parts > 1) && repack.is_none(),
                weights: few_rows::ahead(operation, shape).filter(|_| hidden && !reduces),
                rows_begin_at_lines,
                constant,
                choice,
            })
        };
        for mainloop in usable {
            let transposed = match mainloop {
                _ if reduces => rows::is_transposed(&epilogue)?,
                _ => prefers_transposed(operation, &epilogue, mainloop, problem.shape),
            };
            let few = !reduces && few_rows::applies(operation, problem.shape);
            let before = (few && mainloop == Mainloop::Sm90a).then(|| choice.clone());
            match attempt(mainloop, transposed, choice) {
                Ok(plan) => {
                    return Ok(few_rows::better(plan, before.and_then(|before| attempt(mainloop, !transposed, before).ok())));
                }
                Err(verdicts) => choice = *verdicts,
            }
        }
        Err(choice.fewest_parameters().map_or_else(|| PlanError::NoTile(Box::new(choice)), |size| PlanError::Parameters { size }))
    }

    /// The estimated compile time of the kernel, on a processor like the one on which the estimate was fitted.
    pub fn compile_time(&self) -> Duration {
        code::compile_time(&self.tile, &self.code, &self.program)
    }

    /// A model's estimate for one of Hopper's tiles on a shape, in cycles; infinity for tiles of other mainloops.
    pub fn tile_cycles(&self, tile: &Tile, shape: Shape, model: &CostModel) -> f64 {
        let &KernelPlan { operation, ref program, ref argument_runs, gpu, fast_math, rows_begin_at_lines, .. } = self;
        let shape = self.seen(shape);
        let promotes = self.promotes;
        let inputs = CostInputs { operation, program, argument_runs, shape, gpu, fast_math, rows_begin_at_lines, promotes };
        mainloop::sm90a::cost::estimate(tile, &inputs, model)
    }

    /// Bytes of dynamic shared memory a block takes.
    pub fn shared_memory(&self) -> usize {
        let unstaged = || self.tile.shared_memory(self.operation.dtype(), self.parts().bytes);
        self.staging.as_ref().map_or_else(unstaged, |s| s.shared_memory)
    }

    /// The offsets of the parts of reductions in shared memory.
    pub fn parts(&self) -> Parts {
        Parts::of(&self.program.reductions, &self.tile, self.strip)
    }

    /// Whether a Hopper consumer goes through the chunks of a tile row by row instead of column by column. It does if
    /// the epilogue reads matrices that exceed the cache, and a row is two chunks: silu times a matrix at 4096^3 then
    /// costs 0.5 to 1.0 % instead of 1.5. With three chunks it costs more (`docs/measurements/0018-l2-promotion.md`).
    pub fn chunks_by_rows(&self) -> bool {
        let in_turns = matches!(self.tile.shape, TileShape::Sm90a { schedule: Schedule::PingPong, .. });
        let is_pair = |s: &Staging| !s.loads.is_empty() && s.rows == 2 * CHUNK_ROWS && self.tile.bn == 2 * s.chunk;
        // Sums over M are taken down the columns. A split epilogue covers half of the columns.
        let by_columns = !self.program.reductions.is_empty() || self.program.splits_epilogue(self.fast_math);
        in_turns && self.outgrows_cache && !by_columns && self.staging.as_ref().is_some_and(is_pair)
    }

    /// Whether the kernel moves an argument only in pieces of 16 bytes.
    #[cfg(feature = "cuda")]
    pub(crate) fn needs_pieces(&self, argument: usize) -> bool {
        let is_written = |staged: &Staged| self.program.stores[staged.of].argument == argument;
        self.maps.iter().any(|map| map.required && map.source == MapSource::Argument(argument))
            || self.staging.as_ref().is_some_and(|staging| staging.direct_store && staging.stores.iter().any(is_written))
    }

    /// Whether any value of the kernel, or its accumulator, is an `f64`.
    pub(crate) fn has_doubles(&self) -> bool {
        let is_double = |step: &Instr| step.value == ValueType::F64;
        self.operation.accumulator() == ValueType::F64 || self.program.steps.iter().any(is_double)
    }

    /// Whether any format of the kernel is a number of eight bits.
    pub(crate) fn has_eight_bits(&self) -> bool {
        let rounds = |step: &Instr| match step.kind {
            InstrKind::Apply { op, .. } => op.row().format.is_some(),
            _ => false,
        };
        let mut formats = self.arguments.iter().filter_map(|argument| argument.role.dtype());
        let mut multiplied =
            self.operation.dtypes().into_iter().chain(ScaleField::of(self.operation).map(|s| s.format(self.operation)));
        formats.any(DType::is_eight_bits)
            || multiplied.any(|dtype| dtype.is_eight_bits() || dtype.is_four_bits())
            || self.program.steps.iter().any(rounds)
    }

    /// The device memory that reductions need for launches on a shape.
    pub fn workspace(&self, shape: Shape) -> Workspace {
        Workspace::of(self, shape)
    }

    /// The alignment of wide accesses to an operand, in bytes: that of a strip, or of a chunk's line for masks that
    /// pass through shared memory.
    #[cfg(feature = "cuda")]
    pub(crate) fn wide_access(&self, operand: crate::ir::Operand) -> usize {
        let staged = self.staging.as_ref().filter(|_| operand.dtype.is_packed());
        let line = |s: &Staging| if lies_along_columns(operand.axes, operand.order) { s.chunk } else { CHUNK_ROWS };
        operand.dtype.bytes(staged.map_or(self.strip, line)).min(16)
    }

    /// Leaves more registers to a thread. It asks the compiler for fewer blocks to a multiprocessor. If that is one already,
    /// it halves the epilogue's chunks, whose columns' values a thread holds. If that is done too, it takes the next best tile
    /// whose threads hold fewer accumulators. False if there is none.
    pub fn relax(&mut self) -> bool {
        if self.tile.min_blocks > 1 {
            self.tile.min_blocks -= 1;
            self.choice.relaxed(&self.tile, &format!("for {} block(s) a multiprocessor", self.tile.min_blocks));
            return true;
        }
        let has_columns = self.program.of_phase(Phase::Column).next().is_some();
        if has_columns && self.staging.as_ref().is_some_and(|staging| staging.chunk == MOST_CHUNK) {
            self.set_tile(self.tile, self.raster, MOST_CHUNK / 2);
            self.choice.relaxed(&self.tile, &format!("with chunks of {} columns", MOST_CHUNK / 2));
            return true;
        }
        self.choice.retreat(&self.tile).map(|(tile, raster)| self.set_tile(tile, raster, MOST_CHUNK)).is_some()
    }

    /// Changes to a tile that fits, with chunks of at most `widest` columns, with everything that depends on it.
    fn set_tile(&mut self, tile: Tile, raster: i32, widest: usize) {
        let params = Params::of(self.operation, &self.arguments, &self.program, self.lockstep, self.shifted_edges);
        let (staging, params) = staged(&tile, self.operation, &self.argument_runs, &self.program, params, self.target, widest);
        if let Some(staging) = &staging {
            (self.maps, self.strip) = (staging.maps.clone(), staging.strip);
        }
        self.code = Code::of(&self.program, &tile, self.strip, self.fast_math);
        (self.tile, self.raster, self.staging, self.params) = (tile, raster, staging, params);
    }

    /// The same plan with another of the tiles that fit it, and without others to fall back on. `None` if the tile is
    /// not one of them.
    pub fn with_tile(&self, tile: Tile, raster: i32, reason: impl Into<String>) -> Option<KernelPlan> {
        if matches!(raster, 0 | i32::MIN) || !self.choice.candidates().any(|(fitting, _)| fitting == tile) {
            return None;
        }
        let mut plan = self.clone();
        plan.set_tile(tile, raster, MOST_CHUNK);
        plan.choice.settle(tile, raster, reason);
        Some(plan)
    }

    /// The user's shape as the kernel sees it.
    pub fn seen(&self, shape: Shape) -> Shape {
        match self.operation.patches().filter(|_| self.residues) {
            Some(patches) => Shape { m: patches::padded_rows(&patches, self.tile.bm), ..shape },
            None if self.transposed => shape.transposed(),
            None => shape,
        }
    }

    /// Whether the kernel itself waits for the one before it, and so may begin while that one still runs.
    pub(crate) fn waits(&self) -> bool {
        waits(self.tile.mainloop(), self.split.is_some())
    }

    /// The grid of a launch: the tiles of one batch entry, and the entries in two dimensions, which may count more
    /// entries than the batch has. A persistent kernel has as many blocks as there is work and room for. `None` if
    /// there are more tiles than a grid can count.
    pub fn grid(&self, shape: Shape) -> Option<[u32; 3]> {
        let shape = self.seen(shape);
        let (rows, columns) = (shape.m.div_ceil(self.tile.bm), shape.n.div_ceil(self.tile.bn));
        if let TileShape::Sm90a { cluster: [m, n], .. } = self.tile.shape {
            let work = rows.div_ceil(m).checked_mul(columns.div_ceil(n))?.checked_mul(shape.batch)?;
            let clusters = work.min(self.tile.clusters_at_once(self.gpu.multiprocessors));
            return (work <= i32::MAX as usize).then_some([(clusters * m * n) as u32, 1, 1]);
        }
        if let TileShape::Bands { .. } = self.tile.shape {
            // Each block keeps its columns.
            let lines = (self.gpu.multiprocessors * self.tile.min_blocks / columns.max(1)).clamp(1, rows.max(1));
            let blocks = lines.checked_mul(columns)?;
            return (blocks <= i32::MAX as usize).then_some([blocks as u32, 1, 1]);
        }
        let tiles = rows.checked_mul(columns)?.checked_mul(self.tile.cluster())?;
        let slices = shape.batch.div_ceil(65_535).max(1);
        let entries = shape.batch.div_ceil(slices);
        let fits = tiles <= i32::MAX as usize && slices <= 65_535;
        fits.then_some([tiles as u32, entries as u32, slices as u32])
    }
}

/// Whether a mainloop's kernels execute `griddepcontrol.wait` before every access to memory. Kernels that add up parts
/// of K do.
const fn waits(mainloop: Mainloop, adds_parts: bool) -> bool {
    matches!(mainloop, Mainloop::Sm90a | Mainloop::Gemv) || adds_parts
}

/// The staging of a tile's kernel, and the parameter block with the tensor maps that the staging adds.
fn staged(
    tile: &Tile,
    operation: Operation,
    runs: &[ArgumentRuns],
    program: &Program,
    params: Params,
    target: Target,
    widest: usize,
) -> (Option<Staging>, Params) {
    let staging = Staging::of(program, operation, runs, tile, target, widest).ok().map(|(staging, _)| staging);
    let maps = staging.as_ref().map_or(0, |s| s.maps.len());
    (staging, params.with_maps(maps))
}

/// Bytes of a cache line.
const LINE: usize = 128;

/// The columns of a visit: as many as fill a 16-byte access to the narrowest row-major matrix, if every such matrix is
/// aligned to it.
fn strip(epilogue: &Checked, aligned: impl Fn(&str) -> usize) -> usize {
    let matrices = epilogue.arguments().iter().filter_map(|argument| {
        let operand = argument.role.operand()?;
        let along = operand.axes.is_matrix() && lies_along_columns(operand.axes, operand.order);
        along.then(|| (operand.dtype, aligned(&argument.name)))
    });
    // Bit masks allow strips of any width, wherever they begin.
    let (masks, matrices): (Vec<_>, Vec<_>) = matrices.partition(|(dtype, _)| dtype.is_packed());
    let matrices: Vec<_> = matrices.into_iter().map(|(dtype, aligned)| (dtype.size(), aligned)).collect();
    let narrowest = matrices.iter().map(|(size, ..)| *size).min().unwrap_or(if masks.is_empty() { 4 } else { 1 });
    let widest = (16 / narrowest).min(8);
    // The largest power of two whose accesses are aligned for every matrix. A lane always moves at least a word: fewer
    // columns measured slower even where words have to be moved in halves.
    let fits = |strip: &usize| matrices.iter().all(|(size, aligned)| aligned % (size * strip).min(16) == 0);
    [8, 4, 2, 1].into_iter().filter(|s| *s <= widest).find(fits).unwrap_or(1).max(4 / narrowest)
}
