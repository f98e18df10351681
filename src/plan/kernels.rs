//! One kernel or two: a plan is one kernel, or a product and a kernel behind it, which adds up parts of K or reduces rows.

use crate::args::{fit_extents, fit_operation, slots};
use crate::check::Checked;
use crate::plan::launch::repack::{BANDWIDTH, LAUNCH};
use crate::plan::request::PlanRequest;
use crate::plan::split_k::{WORTHWHILE, best, in_parts, obstacle, terms_of_part};
use crate::plan::{KernelPlan, PlanError, Preferences, Problem, planner, rows};
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
    if rows::reduces(request.epilogue) && request.operation.multiplies() {
        return behind_product(request);
    }
    if rows::reduces(request.epilogue) && request.operation.pooling().is_some() {
        let why = "it stands behind a pool; store what the pool comes to, and reduce that with `Gemm::pointwise`".into();
        return Err(PlanError::Reduction { why });
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

/// Plans an epilogue that uses the results of its rows' reductions behind a product. If no tile has whole rows, the product
/// stores its accumulators.
fn behind_product(request: &PlanRequest<'_>) -> Result<KernelPlan, PlanError> {
    if request.epilogue.summed_operand().is_some() {
        let why = "it sums an operand of the product beside them".into();
        return Err(PlanError::Reduction { why });
    }
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
            let mut two = in_parts(request, 1, String::new())?;
            let why = match one {
                Err(why) => why,
                Ok(mut one) => {
                    let [whole, product] = [&one, two.product()].map(|plan| plan.choice.nanoseconds().unwrap_or(0) as f64);
                    let parts = product + second(&two, request.problem.shape);
                    let estimates = format!("in one kernel {:.1} us, in two {:.1} us", whole / 1e3, parts / 1e3);
                    if whole <= parts {
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
    let transposed = rows::is_transposed(request.epilogue).map_err(|error| error.to_string())?;
    let shape = request.problem.shape;
    let row = if transposed { shape.m } else { shape.n };
    if transposed && request.operation.convolution().is_some() {
        return Err("the images of a convolution are rows, and its reductions go over M".into());
    }
    if row > WIDEST {
        return Err(format!("a row lies in several tiles: it has {row} elements, and a tile up to {WIDEST}"));
    }
    planner::one(request).map_err(|error| match error {
        PlanError::NoTile(choice) => choice.reason(|tile| tile.bn >= row).unwrap_or_else(|| "no tile fits".into()),
        other => other.to_string(),
    })
}
