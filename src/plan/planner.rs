//! The planner of one kernel: what is known of the problem (`analyse`), how a mainloop sees it (`Seen`), the tile (`choose`),
//! what passes through shared memory (`stage`), and all of it as a plan (`assemble`). A finished plan also changes its tile
//! here.

use crate::args::{Slot, fit_operation, slots};
use crate::check::{Argument, Checked};
use crate::ir::Order;
use crate::pass;
use crate::plan::choose;
use crate::plan::code::Copied;
use crate::plan::epilogue::fixup;
use crate::plan::epilogue::reduce::Extents;
use crate::plan::mainloop::patches;
use crate::plan::mainloop::sm90a::staging::MOST_CHUNK;
use crate::plan::mainloop::sm90a::{edges, few_rows, l2};
use crate::plan::request::{PlanRequest, TileRequest};
use crate::plan::transposed::prefers_transposed;
use crate::plan::{
    ArgumentRuns, Choice, Code, KernelPlan, Mainloop, Params, Phase, PlanError, PlannedScores, Program, Repack, Staging,
    TMA_UNIT, Tile, lies_along_columns, rows,
};
use crate::problem::{Attention, Operation, Shape};
use crate::target::Target;

/// Bytes of a cache line.
const LINE: usize = 128;

/// Plans one kernel. Its accumulator is that of the operation or, with several parts, the sum of that many matrices.
pub(super) fn one(request: &PlanRequest<'_>) -> Result<KernelPlan, PlanError> {
    let problem = Analysis::of(request)?;
    let mut choice = Choice::default();
    for mainloop in choose::mainloops(request, &problem.epilogue, problem.alignment, &mut choice) {
        let transposed = match mainloop {
            _ if problem.reduces => {
                rows::is_transposed(request.operation, &problem.epilogue).map_err(|why| PlanError::Reduction { why })?
            }
            _ => prefers_transposed(request, &problem.epilogue, mainloop),
        };
        let compares = !problem.reduces && request.preferences.transposed.is_none();
        let bound = mainloop.rules().other_way(request.operation, &problem.epilogue, request.problem.shape).filter(|_| compares);
        let before = bound.map(|bound| (bound, choice.clone()));
        match problem.plan(mainloop, transposed, choice) {
            Ok(plan) => {
                return Ok(match before {
                    Some((bound, before)) => problem.compared(plan, bound, before),
                    None => plan,
                });
            }
            Err(verdicts) => choice = *verdicts,
        }
    }
    Err(choice.fewest_parameters().map_or_else(|| PlanError::NoTile(Box::new(choice)), |size| PlanError::Parameters { size }))
}

/// What is known of a problem before a mainloop sees it. Alignments are properties of memory, so they are those of the
/// problem as the user sees it.
struct Analysis<'r> {
    request: &'r PlanRequest<'r>,
    /// Without calls, and folded.
    epilogue: Checked,
    slots: Vec<Slot>,
    /// The alignment of `a` and `b`.
    alignment: [usize; 2],
    /// Whether runs of `a` and `b` begin at cache lines.
    begins: [bool; 2],
    /// Whether the epilogue uses the results of its rows' reductions.
    reduces: bool,
}

impl<'r> Analysis<'r> {
    fn of(request: &'r PlanRequest<'r>) -> Result<Analysis<'r>, PlanError> {
        let PlanRequest { operation, problem, .. } = *request;
        fit_operation(operation, request.epilogue)?;
        let epilogue = pass::fold(&pass::inline(request.epilogue));
        let slots = slots(operation, &epilogue, problem.shape);
        problem.check(&slots)?;
        let begins_at_line = |name: &str| {
            let slot = slots.iter().find(|s| *s.name == *name);
            slot.is_none_or(|s| problem.run_distance(s).is_multiple_of(LINE))
        };
        let begins = [begins_at_line("a"), begins_at_line("b")];
        let reduces = rows::reduces(&epilogue);
        let mut analysis = Analysis { request, epilogue, slots, alignment: [16; 2], begins, reduces };
        let [a, b, keys] = ["a", "b", Attention::KEYS].map(|name| analysis.aligned(name));
        analysis.alignment = match operation {
            Operation::Product { .. } => [a, b],
            Operation::Attention { .. } => [a.min(keys), b],
            Operation::Convolution { .. } | Operation::ConvolutionGradient { .. } => patches::alignment(operation, [a, b]),
            Operation::Pool { .. } | Operation::Pointwise { .. } => [a; 2],
        };
        Ok(analysis)
    }

    /// Bytes that address and strides of an argument are multiples of.
    fn aligned(&self, name: &str) -> usize {
        self.slots.iter().find(|s| *s.name == *name).map_or(16, |s| self.request.problem.alignment(s))
    }

    /// The plan, or that of the other way round if the ratio of its estimate to the plan's is below a bound. The verdicts state
    /// the estimate of the way that was not taken. `before` is the choice as it was before the plan.
    fn compared(&self, mut plan: KernelPlan, bound: f64, before: Choice) -> KernelPlan {
        let time = |plan: &KernelPlan| plan.choice.estimated().unwrap_or(u64::MAX);
        let (own, other) = (time(&plan), Seen::by(plan.mainloop(), !plan.transposed, self));
        let Some((tile, least)) = choose::least(plan.mainloop(), &other.request(self.request)) else { return plan };
        let is_worthwhile = |time: u64| (time as f64) < bound * own as f64;
        // Most problems need no second plan.
        if !is_worthwhile(least) {
            plan.choice.turned(tile, !plan.transposed, least, own);
            return plan;
        }
        match self.plan(plan.mainloop(), !plan.transposed, before) {
            Ok(mut other) if is_worthwhile(time(&other)) => {
                other.choice.turned(plan.tile, plan.transposed, own, time(&other));
                other
            }
            Ok(other) => {
                plan.choice.turned(other.tile, other.transposed, time(&other), own);
                plan
            }
            Err(_) => plan,
        }
    }

    /// The plan with a mainloop, of the problem as it is or transposed, or the obstacles to it.
    fn plan(&self, mainloop: Mainloop, transposed: bool, mut choice: Choice) -> Result<KernelPlan, Box<Choice>> {
        let seen = Seen::by(mainloop, transposed, self);
        choose::choose(mainloop, &seen.request(self.request), &mut choice);
        match choice.chosen() {
            Some((tile, raster)) => Ok(seen.assemble(self, tile, raster, choice)),
            None => Err(Box::new(choice)),
        }
    }
}

/// A problem as a mainloop sees it: A and B are exchanged if it is transposed, and operands are copied if it cannot read them.
struct Seen {
    mainloop: Mainloop,
    transposed: bool,
    operation: Operation,
    shape: Shape,
    program: Program,
    scores: Option<PlannedScores>,
    arguments: Vec<Argument>,
    argument_runs: Vec<ArgumentRuns>,
    params: Params,
    strip: usize,
    /// The alignment of the operands in memory.
    alignment: [usize; 2],
    /// The alignment of what the kernel reads: the operands, or their copies.
    read: [usize; 2],
    repack: Option<Repack>,
    constant: [bool; 2],
    fast_math: bool,
    lockstep: bool,
    shifted_edges: bool,
    residues: bool,
    rows_begin_at_lines: [bool; 2],
}

impl Seen {
    fn by(mainloop: Mainloop, transposed: bool, problem: &Analysis<'_>) -> Seen {
        let Analysis { request, epilogue, .. } = problem;
        let PlanRequest { gpu, preferences, .. } = **request;
        let (user, rules) = (request.problem, mainloop.rules());
        let (seen, shape, operation) = if transposed {
            (pass::transpose(epilogue), user.shape.transposed(), request.operation.transposed())
        } else {
            (epilogue.clone(), user.shape, request.operation)
        };
        let [first, second] = if transposed { [1, 0] } else { [0, 1] };
        let alignment = if rules.takes_any_channels() {
            [problem.aligned("a"), problem.aligned("b")]
        } else {
            [problem.alignment[first], problem.alignment[second]]
        };
        // One state has both moments. Tiles of a product have registers for one of them.
        let merges = problem.reduces && !request.operation.multiplies();
        let seen = if merges { pass::moments(&seen, |_| true) } else { seen };
        let seen = if problem.reduces { pass::distribute(&pass::pick(&seen)) } else { seen };
        // There a thread keeps the powers of its elements in the place of accumulators.
        let keeps = problem.reduces && request.operation.multiplies();
        let seen = if keeps { pass::powers(&seen) } else { seen };
        let program = Program::of(&seen);
        let strip = strip(operation, &seen, rules.widest_strip(), |name| problem.aligned(name));
        // No strip crosses the border of a band.
        let strip = program.band.map_or(strip, |band| strip.min(1 << band.trailing_zeros().min(3)));
        let repack = Repack::of(mainloop, operation, alignment);
        let operation = repack.map_or(operation, |r| r.read(operation));
        // A copy is written right before the kernel runs, even if the original is constant.
        let copied = repack.map_or([false; 2], |r| r.operands);
        let read = [0, 1].map(|i| if copied[i] { alignment[i].max(TMA_UNIT) } else { alignment[i] });
        let constant = [preferences.constant[first] && !copied[0], preferences.constant[second] && !copied[1]];
        let arguments = seen.arguments().to_vec();
        let runs = |argument: &Argument| {
            let slot = problem.slots.iter().find(|s| *s.name == *argument.name);
            slot.map_or(ArgumentRuns { alignment: 16, whole: true }, |s| user.runs(s))
        };
        let argument_runs: Vec<ArgumentRuns> = arguments.iter().map(runs).collect();
        let fast_math = preferences.math.is_fast(&program);
        // What a convolution reads at a tap has just been read at the one before.
        let drifts = || operation.patches().is_none() && l2::drifts(shape, operation.multiplied().size(), gpu.multiprocessors);
        let lockstep = rules.is_staged() && preferences.lockstep.unwrap_or_else(drifts);
        let shifted_edges = rules.is_staged()
            && !operation.is_scaled()
            && edges::allows(&program, &arguments)
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
        let scores = PlannedScores::of(operation);
        let params = Params::of(operation, &arguments, &program, scores.as_ref(), lockstep, shifted_edges, rules.shares_sums());
        let rows_begin_at_lines = [problem.begins[first] || copied[0], problem.begins[second] || copied[1]];
        Seen {
            mainloop,
            transposed,
            operation,
            shape,
            program,
            scores,
            arguments,
            argument_runs,
            params,
            strip,
            alignment,
            read,
            repack,
            constant,
            fast_math,
            lockstep,
            shifted_edges,
            residues,
            rows_begin_at_lines,
        }
    }

    /// What the choice of its tile depends on.
    fn request(&self, request: &PlanRequest<'_>) -> TileRequest<'_> {
        let PlanRequest { target, gpu, preferences, parts, .. } = *request;
        let &Seen { operation, shape, strip, fast_math, rows_begin_at_lines, read: alignment, .. } = self;
        let Seen { program, argument_runs, params, .. } = self;
        TileRequest {
            operation,
            program,
            argument_runs,
            params,
            shape,
            alignment,
            rows_begin_at_lines,
            strip,
            target,
            gpu,
            preferences,
            fast_math,
            parts,
        }
    }

    /// The plan with a tile.
    fn assemble(self, problem: &Analysis<'_>, tile: Tile, raster: i32, choice: Choice) -> KernelPlan {
        let PlanRequest { target, gpu, preferences, .. } = *problem.request;
        let Seen { mainloop, operation, shape, program, argument_runs, fast_math, repack, constant, .. } = self;
        let (rules, reduces) = (mainloop.rules(), problem.reduces);
        let (staging, params) = stage(&tile, operation, &argument_runs, &program, self.params, target, MOST_CHUNK);
        let strip = staging.as_ref().map_or(self.strip, |s| s.strip);
        let helpers = fixup::helpers(&program, &tile, &Extents::of(&tile, strip, shape), gpu);
        let hidden = staging.is_some() && repack.is_none() && constant == [false; 2];
        KernelPlan {
            target,
            operation,
            transposed: self.transposed,
            fast_math,
            promotes: rules.is_staged() && preferences.promotes(operation),
            residues: self.residues,
            tile,
            strip,
            alignment: self.alignment,
            repack,
            split: None,
            passes: None,
            before: Vec::new(),
            scratch: repack.map_or(0, |r| r.bytes(operation, shape)),
            raster,
            gpu,
            code: Code::of(Copied { tile: &tile, operation, strip, program: &program, fast_math }),
            outgrows_cache: l2::outgrow(&program, shape),
            program,
            scores: self.scores.map(|scores| scores.on(&tile, fast_math)),
            arguments: self.arguments,
            argument_runs,
            maps: staging.as_ref().map_or_else(Vec::new, |s| s.maps.clone()),
            staging,
            params,
            lockstep: self.lockstep,
            helpers,
            extents: shape,
            backwards: false,
            shifted_edges: self.shifted_edges,
            // With copies before the kernel, an early start cost up to 15 %.
            programmatic: preferences.programmatic && target.has_programmatic_launches() && repack.is_none(),
            weights: few_rows::ahead(operation, shape).filter(|_| hidden && !reduces),
            rows_begin_at_lines: self.rows_begin_at_lines,
            constant,
            choice,
        }
    }
}

impl KernelPlan {
    /// Leaves more registers to a thread. It asks the compiler for fewer blocks to a multiprocessor, unless too few threads would
    /// be left where another tile holds less. If that is one already, it halves the epilogue's chunks, whose columns' values
    /// a thread holds. If that is done too, it takes the next best tile whose threads hold fewer accumulators. False if there is
    /// none.
    pub fn relax(&mut self) -> bool {
        if self.tile.min_blocks > 1 {
            let threads = (self.tile.min_blocks - 1) * self.tile.threads;
            if threads < self.tile.rules().fewest_threads(&self.tile)
                && let Some((tile, raster)) = self.choice.retreat(&self.tile, Tile::holds_rows)
            {
                self.set_tile(tile, raster, MOST_CHUNK);
                return true;
            }
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
        self.choice.retreat(&self.tile, |_| true).map(|(tile, raster)| self.set_tile(tile, raster, MOST_CHUNK)).is_some()
    }

    /// Bytes that a thread may spill and reload, stores and loads together: fewer blocks on a multiprocessor would cost more.
    pub fn tolerated_spills(&self) -> u32 {
        self.tile.rules().tolerated_spills(&self.tile)
    }

    /// Computes the elements of a strip one after the other, where the compiler gives up. ptxas 13.0 finds no predicates for some
    /// strips with many conditions of each element, on every target and at every level of optimisation. False where they are
    /// already, and on Hopper, whose visits index registers.
    pub fn roll(&mut self) -> bool {
        if self.staging.is_some() || self.strip == 1 || self.code.is_rolled(self.strip) {
            return false;
        }
        self.code.visit_unroll = 1;
        self.choice.relaxed(&self.tile, "with a strip's elements in a loop");
        true
    }

    /// Changes to a tile that fits, with chunks of at most `widest` columns, with everything that depends on it.
    fn set_tile(&mut self, tile: Tile, raster: i32, widest: usize) {
        let scores = self.scores.as_ref();
        let (operation, shares_sums) = (self.operation, tile.rules().shares_sums());
        let (lockstep, shifted_edges) = (self.lockstep, self.shifted_edges);
        let params = Params::of(operation, &self.arguments, &self.program, scores, lockstep, shifted_edges, shares_sums);
        let (staging, params) = stage(&tile, operation, &self.argument_runs, &self.program, params, self.target, widest);
        if let Some(staging) = &staging {
            (self.maps, self.strip) = (staging.maps.clone(), staging.strip);
        }
        let (strip, program, fast_math) = (self.strip, &self.program, self.fast_math);
        self.code = Code::of(Copied { tile: &tile, operation, strip, program, fast_math });
        self.scores = self.scores.take().map(|scores| scores.on(&tile, self.fast_math));
        self.helpers = fixup::helpers(&self.program, &tile, &Extents::of(&tile, strip, self.extents), self.gpu);
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
}

/// The staging of a tile's kernel, and the parameter block with the tensor maps that the staging adds.
fn stage(
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

/// The columns of a visit: as many as fill a 16-byte access to the narrowest row-major matrix, if every such matrix is
/// aligned to it, and `most` at the most. Where the epilogue has no such matrix, that is an existing accumulator.
fn strip(operation: Operation, epilogue: &Checked, most: usize, aligned: impl Fn(&str) -> usize) -> usize {
    let matrices = epilogue.arguments().iter().filter_map(|argument| {
        let operand = argument.role.operand()?;
        let along = operand.axes.is_matrix() && lies_along_columns(operand.axes, operand.order);
        along.then(|| (operand.dtype, aligned(&argument.name)))
    });
    // Bit masks allow strips of any width, wherever they begin.
    let (masks, matrices): (Vec<_>, Vec<_>) = matrices.partition(|(dtype, _)| dtype.is_packed());
    let mut matrices: Vec<_> = matrices.into_iter().map(|(dtype, aligned)| (dtype.size(), aligned)).collect();
    if let Operation::Pointwise { dtype, order: Order::RowMajor } = operation
        && matrices.is_empty()
        && masks.is_empty()
        && !dtype.is_packed()
        && aligned("a") == 16
    {
        matrices.push((dtype.size(), 16));
    }
    let narrowest = matrices.iter().map(|(size, ..)| *size).min().unwrap_or(if masks.is_empty() { 4 } else { 1 });
    let widest = (16 / narrowest).min(most);
    // The largest power of two whose accesses are aligned for every matrix. A lane always moves at least a word: fewer
    // columns measured slower even where words have to be moved in halves.
    let fits = |strip: &usize| matrices.iter().all(|(size, aligned)| aligned % (size * strip).min(16) == 0);
    [8, 4, 2, 1].into_iter().filter(|s| *s <= widest).find(fits).unwrap_or(1).max(4 / narrowest)
}
