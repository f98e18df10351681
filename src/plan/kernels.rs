//! One kernel or two: a plan is one kernel, or a product and a kernel behind it, which adds up parts of K or reduces rows.

use crate::args::{fit_extents, fit_operation, slots};
use crate::check::{Checked, Role};
use crate::dtype::DType;
use crate::ir::{Axes, Order, Over};
use crate::pass::{self, Apart, Interim, Part};
use crate::plan::launch::repack::{BANDWIDTH, LAUNCH};
use crate::plan::request::PlanRequest;
use crate::plan::split_k::{WORTHWHILE, best, in_parts, obstacle, sums, terms_of_part};
use crate::plan::{KernelPlan, Math, Pass, Passes, PlanError, Preferences, Problem, Program, planner, rows};
use crate::problem::{Operation, Shape};
use crate::target::{Gpu, Target};
use std::num::NonZeroUsize;

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
        plan(&PlanRequest { operation, epilogue, problem, target, gpu, preferences, parts: 1 })
    }
}

/// Plans a problem. K is split if the caller asks for it, or if `sm90a` multiplies and the estimates expect it to pay.
/// The verdict states the estimates.
fn plan(request: &PlanRequest<'_>) -> Result<KernelPlan, PlanError> {
    if request.problem.shape.is_too_large() {
        return Err(PlanError::TooLarge(request.problem.shape));
    }
    if request.gpu.multiprocessors == 0 {
        return Err(PlanError::NoMultiprocessors(request.target));
    }
    let whole = || planner::one(request);
    if rows::reduces(request.epilogue) {
        return reducing(request);
    }
    match (request.preferences.split_k.map(NonZeroUsize::get), obstacle(request)) {
        (Some(1), _) => whole(),
        (Some(parts), Some(why)) => Err(PlanError::Split { parts, why }),
        (Some(parts), None) => {
            if let Err(why) = terms_of_part(request.operation, request.problem.shape.k, parts) {
                return Err(PlanError::Split { parts, why });
            }
            request.problem.check(&slots(request.operation, request.epilogue, request.problem.shape))?;
            in_parts(request, parts, "it was asked for".into())
        }
        (None, Some(_)) => whole(),
        (None, None) => {
            let mut whole = whole()?;
            if request.preferences.tile.is_some() {
                return Ok(whole);
            }
            let Some((parts, time, alone)) = best(request, &whole) else { return Ok(whole) };
            let pays = time < WORTHWHILE * alone;
            let [time, alone] = [time, alone].map(|nanoseconds| nanoseconds / 1e3);
            let estimates = format!("estimated at {time:.1} us, in one piece at {alone:.1} us");
            // Without a split a gradient of filters has few tiles and millions of terms: no estimate is as far off as that.
            let of_filters = request.operation.patches().is_some_and(|patches| !patches.are_rows());
            if pays && (whole.mainloop().rules().decides_splits() || of_filters) {
                return in_parts(request, parts, estimates);
            }
            let pays = if pays { "worth trying with `Gemm::split_k`" } else { "not worth it" };
            whole.choice.split(parts, false, format!("{pays}: {estimates}"));
            Ok(whole)
        }
    }
}

/// Plans an epilogue that uses the results of its own reductions.
fn reducing(request: &PlanRequest<'_>) -> Result<KernelPlan, PlanError> {
    let PlanRequest { operation, epilogue, .. } = *request;
    if let (Some(parts), Some(why)) = (request.preferences.split_k.map(NonZeroUsize::get), obstacle(request))
        && parts > 1
    {
        return Err(PlanError::Split { parts, why });
    }
    if epilogue.summed_operand().is_some() {
        let why = "it sums an operand of the product beside them".into();
        return Err(PlanError::Reduction { why });
    }
    let all = rows::reduced(epilogue).iter().any(|over| over.axes == Axes::MN);
    let across = |is_transposed| rows::goes_across_lines(request, is_transposed);
    match rows::is_transposed(operation, epilogue) {
        Err(why) => in_passes(request, why),
        Ok(_) if operation.pooling().is_some() => in_passes(request, "it stands behind a pool".into()),
        Ok(_) if all && operation.multiplies() => {
            in_passes(request, "one goes over M and N, and tiles of the product have parts of that".into())
        }
        Ok(is_transposed) if operation.multiplies() => behind_product(request, across(is_transposed)),
        // A tile is that of one kernel, or of the last of several.
        Ok(is_transposed) if request.preferences.tile.is_some() && (all || across(is_transposed)) => {
            let several = || in_passes(request, "the tile that was asked for is of the last kernel".into());
            planner::one(request).or_else(|error| several().map_err(|_| error))
        }
        Ok(_) if all => all_at_once(request),
        Ok(is_transposed) if across(is_transposed) => {
            in_passes(request, "the matrices lie across what is reduced, and are large".into())
        }
        Ok(_) => with_rows(request),
    }
}

/// Plans an epilogue that reduces rows of a matrix: in one kernel, or in several where no block has room for the sums of all
/// columns beside a row. Those read the matrix again, and its rows in pieces.
fn with_rows(request: &PlanRequest<'_>) -> Result<KernelPlan, PlanError> {
    match planner::one(request) {
        Err(PlanError::NoTile(choice)) if request.preferences.tile.is_none() => {
            let why = choice.reason(|_| true).unwrap_or_else(|| "no block has room for a row".into());
            in_passes_that_keep(request, None, why).map_err(|_| PlanError::NoTile(choice))
        }
        one => one,
    }
}

/// Plans an epilogue that reduces over all rows and columns of a matrix: in one kernel, whose blocks have a whole matrix each,
/// or in several.
fn all_at_once(request: &PlanRequest<'_>) -> Result<KernelPlan, PlanError> {
    let one = match planner::one(request) {
        Err(PlanError::NoTile(choice)) => {
            let why = choice.reason(|_| true).unwrap_or_else(|| "no block has a whole matrix".into());
            return in_passes(request, why);
        }
        one => one?,
    };
    let several = in_passes(request, String::new());
    let Ok(mut several) = several else { return Ok(one) };
    // Where the estimate of one kernel follows what was measured, that of several does, too.
    let measured = if one.choice.nanoseconds().is_some() { SLOWER } else { 1.0 };
    let [whole, parts] = [time_of_whole(&one, request), time_of_passes(&several, request) * measured];
    let estimates = format!("in one kernel {:.1} us, in {} {:.1} us", whole * 1e6, several.before.len() + 1, parts * 1e6);
    if whole <= parts {
        let mut one = one;
        one.choice.whole_rows(estimates);
        return Ok(one);
    }
    if let Some(passes) = &mut several.passes {
        passes.why = format!("several are estimated to be faster: {estimates}");
    }
    Ok(several)
}

/// What several kernels took, over what memory takes for them (`docs/measurements/0063-groups-in-clusters.md`).
const SLOWER: f64 = 1.4;

/// Bytes that one multiprocessor reads in a second while the others wait, and bytes that blocks find in the L2 cache again, at
/// twice the pace. Neither is fitted: matrices of a few kilobytes and of many megabytes do not depend on them.
const ALONE: f64 = 5e10;
const CACHED: f64 = 3e7;

/// Bytes of matrices that a kernel reads, and that it writes.
fn bytes(plan: &KernelPlan, shape: Shape) -> [f64; 2] {
    let elements = shape.m as f64 * shape.n as f64 * shape.batch as f64;
    let of = |dtype: DType| elements * dtype.bits() as f64 / 8.0;
    let matrices = |passes: &dyn Fn(Role) -> bool| {
        let passed = plan.arguments.iter().map(|argument| argument.role).filter(|role| passes(*role));
        passed.filter_map(Role::operand).filter(|o| o.axes.is_matrix()).map(|operand| of(operand.dtype)).sum::<f64>()
    };
    let read = matrices(&|role| matches!(role, Role::Input(_) | Role::Update(_)));
    let accumulators = if plan.operation.multiplies() { 0.0 } else { of(plan.operation.dtype()) };
    [read + accumulators, matrices(&Role::is_written)]
}

/// Estimated seconds of a kernel whose blocks have whole matrices.
fn time_of_whole(one: &KernelPlan, request: &PlanRequest<'_>) -> f64 {
    if let Some(nanoseconds) = one.choice.nanoseconds() {
        return nanoseconds as f64 * 1e-9;
    }
    let [read, written] = bytes(one, request.problem.shape);
    let seen = one.seen(request.problem.shape);
    let bands = one.program.band.map_or(1, |band| seen.n.div_ceil(band).max(1));
    let (entries, multiprocessors) = (bands * seen.batch.max(1), request.gpu.multiprocessors);
    let again = if one.tile.holds_rows() { 0.0 } else { one.program.stages.len() as f64 };
    let is_cached = read / entries as f64 * entries.min(multiprocessors) as f64 <= CACHED;
    let bytes = (read * (1.0 + again * if is_cached { 0.5 } else { 1.0 }) + written) / pace_of_lines(one);
    let turns = entries.div_ceil(multiprocessors) as f64;
    LAUNCH + (bytes / BANDWIDTH).max(bytes / entries as f64 * turns / ALONE)
}

/// The pace of a kernel by how much of a line the threads that share a row read together: 20 to 80 bytes of bands moved 0.11 to
/// 0.21 of what a copy does (`docs/measurements/0058-norms-of-channels.md`).
fn pace_of_lines(one: &KernelPlan) -> f64 {
    const LINE: f64 = 128.0;
    let Some(columns) = one.tile.columns_at_once(one.strip) else { return 1.0 };
    ((columns * one.operation.dtype().bits()) as f64 / 8.0 / LINE).clamp(0.1, 1.0)
}

/// Estimated seconds of several kernels.
fn time_of_passes(plan: &KernelPlan, request: &PlanRequest<'_>) -> f64 {
    let singles = plan.passes.iter().flat_map(|passes| &passes.passes).map(|pass| pass.single.is_some());
    let each = |(plan, single): (&KernelPlan, bool)| {
        let [read, written] = if single { [0.0; 2] } else { bytes(plan, request.problem.shape) };
        LAUNCH + (read + written) / BANDWIDTH
    };
    plan.before.iter().chain([plan]).zip(singles).map(each).sum::<f64>()
}

/// Plans several kernels: each reduces what no block has all of, for those behind it.
fn in_passes(request: &PlanRequest<'_>, why: String) -> Result<KernelPlan, PlanError> {
    in_passes_that_keep(request, rows::inside(request), why)
}

/// The same, where kernels do only the reductions over `inside` themselves.
fn in_passes_that_keep(request: &PlanRequest<'_>, inside: Option<Over>, why: String) -> Result<KernelPlan, PlanError> {
    let PlanRequest { operation, problem, preferences, .. } = *request;
    let shape = problem.shape;
    fit_operation(operation, request.epilogue)?;
    problem.check(&slots(operation, request.epilogue, shape))?;
    let mut epilogue = pass::fold(&pass::inline(request.epilogue));
    if !operation.multiplies() {
        // Both moments of a matrix are reduced as it is read once. A product computes its elements anyway, and has registers for
        // one of them.
        epilogue = pass::moments(&epilogue, |over| Some(over) != inside);
    }
    epilogue = pass::distribute(&epilogue);
    let refused = |beside| PlanError::Reduction { why: format!("{why}; {beside}") };
    let Apart { mut parts, mut interim } = pass::apart(&epilogue, |over| Some(over) == inside).map_err(refused)?;
    if interim.is_empty() {
        return Err(PlanError::Reduction { why });
    }
    let mut passes = Vec::new();
    let mut behind = operation;
    if operation.multiplies() {
        let sums = sums(operation, &epilogue);
        interim.push(Interim { name: pass::unused(&epilogue, interim.len()), operand: sums });
        // The product has parts of rows, so it does nothing that waits for them.
        let first = (!rows::reduces(&parts[0].epilogue)).then(|| parts.remove(0).epilogue);
        let stores = pass::with_accumulator(first.as_ref(), operation.accumulator(), &interim[interim.len() - 1]);
        passes.push(Pass { operation, epilogue: stores, reads_accumulators: false, single: None });
        behind = Operation::Pointwise { dtype: sums.dtype, order: sums.order };
    }
    passes.extend(parts.into_iter().map(|Part { epilogue, single }| Pass {
        // Bands of a single row have no accumulator.
        operation: if single.is_some() { Operation::Pointwise { dtype: DType::F32, order: Order::RowMajor } } else { behind },
        reads_accumulators: operation.multiplies() && epilogue.accumulator().is_some(),
        epilogue,
        single,
    }));
    let math = if preferences.math.is_fast(&Program::of(&epilogue)) { Math::Fast } else { Math::Exact };
    let passes = Passes { passes, interim, why };
    let own = if operation.multiplies() { 0 } else { passes.passes.len() - 1 };
    let plan_of = |(index, pass): (usize, &Pass)| {
        let preferences = match index == own {
            true => Preferences { math, ..preferences },
            false => Preferences { math, programmatic: preferences.programmatic, ..Preferences::default() },
        };
        let problem = passes.problem(pass, problem);
        let request =
            PlanRequest { operation: pass.operation, epilogue: &pass.epilogue, problem: &problem, preferences, ..*request };
        if pass.single.is_some() { planner::one(&request) } else { plan(&request) }
    };
    let mut plans = passes.passes.iter().enumerate().map(plan_of).collect::<Result<Vec<_>, _>>()?;
    // Kernels that read the same matrices go through them in turns of direction.
    let multiplies = operation.multiplies();
    let reading = plans.iter_mut().zip(&passes.passes).filter(|(_, pass)| pass.single.is_none() && !multiplies);
    reading.enumerate().for_each(|(turn, (plan, _))| plan.backwards = turn % 2 == 1);
    let Some(mut last) = plans.pop() else { return Err(PlanError::Reduction { why: passes.why }) };
    last.scratch = last.scratch.saturating_add(passes.layout(shape).1);
    (last.before, last.passes) = (plans, Some(Box::new(passes)));
    Ok(last)
}

/// Plans an epilogue that uses the results of its rows' reductions behind a product. If no tile has whole rows, the product
/// stores its accumulators. `across` says whether these would lie across what is reduced.
fn behind_product(request: &PlanRequest<'_>, across: bool) -> Result<KernelPlan, PlanError> {
    fit_operation(request.operation, request.epilogue)?;
    request.problem.check(&slots(request.operation, request.epilogue, request.problem.shape))?;
    match request.preferences.split_k.map(NonZeroUsize::get) {
        Some(parts) if parts > 1 => {
            let why = "the kernel that reduces rows adds up no parts".into();
            Err(PlanError::Split { parts, why })
        }
        _ => {
            let one = in_one(request);
            if let Ok(one) = &one
                && request.preferences.tile.is_some()
            {
                return Ok(one.clone());
            }
            if one.is_err() && across {
                return in_passes(request, "the accumulators lie across what is reduced, and are large".into());
            }
            let mut two = in_parts(request, 1, String::new())?;
            let why = match one {
                Err(why) => why,
                Ok(mut one) => {
                    let [whole, product] = [&one, two.product()].map(|plan| plan.choice.nanoseconds().unwrap_or(0) as f64);
                    let parts = product + second(&two, request.problem.shape);
                    let estimates = format!("in one kernel {:.1} us, in two {:.1} us", whole / 1e3, parts / 1e3);
                    if WORTHWHILE * whole <= parts {
                        one.choice.whole_rows(estimates);
                        return Ok(one);
                    }
                    format!("two are estimated to be faster: {estimates}")
                }
            };
            if let Some(split) = &mut two.split {
                split.why = why;
            }
            Ok(two)
        }
    }
}

/// Estimated nanoseconds of a kernel that reads what the product stores.
fn second(two: &KernelPlan, shape: Shape) -> f64 {
    let bytes = two.split.as_ref().map_or(0, |split| split.bytes(shape));
    1e9 * (LAUNCH + 2.0 * bytes as f64 / BANDWIDTH)
}

/// The most columns of a tile of Hopper's mainloop.
const WIDEST: usize = 256;

/// The plan of one kernel for a product and the rows behind it, or why there is none.
fn in_one(request: &PlanRequest<'_>) -> Result<KernelPlan, String> {
    let transposed = rows::is_transposed(request.operation, request.epilogue)?;
    let shape = request.problem.shape;
    let row = if transposed { shape.m } else { shape.n };
    if transposed && request.operation.convolution().is_some() {
        return Err("the images of a convolution are rows, and its reductions go over M".into());
    }
    if rows::reduced(request.epilogue).iter().any(|over| over.band.is_some()) {
        return Err("a row has several bands, and lanes combine whole rows".into());
    }
    if row > WIDEST {
        return Err(format!("a row lies in several tiles: it has {row} elements, and a tile up to {WIDEST}"));
    }
    planner::one(request).map_err(|error| match error {
        PlanError::NoTile(choice) => choice.reason(|tile| tile.bn >= row).unwrap_or_else(|| "no tile fits".into()),
        other => other.to_string(),
    })
}
