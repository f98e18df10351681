//! Reductions as the templates see them.

use super::printer::Printer;
use super::{Constant, monoids, param};
use crate::ir::axes::{Axes, L, M, N};
use crate::ir::graph;
use crate::plan::{
    FieldValue, InstrKind, KernelPlan, NOTE_BYTES, PlannedReduction, Program, SharedRegion, Unit, lies_along_columns, sets,
    shares_fixup,
};
use serde::Serialize;

/// A reduction.
#[derive(Serialize)]
pub(super) struct Reduction {
    index: usize,
    /// The member in which a thread keeps what it has taken in.
    name: String,
    /// The struct of the monoid.
    monoid: String,
    /// Words of its state.
    words: usize,
    /// What is taken in, inside a loop over `i`, and whether it is an element of the matrix.
    terms: String,
    counts: &'static str,
    /// Along what the result varies: N, M, neither or both.
    columns: bool,
    rows: bool,
    all: bool,
    elements: bool,
    /// Whether a consumer combines all of its tiles, and publishes once.
    total: bool,
    /// Where the unit's parts lie.
    parts_at: usize,
    /// Whether slices are added up as they arrive.
    added: bool,
    /// Whether units share its fix-up.
    shared: bool,
    /// The workspace.
    partials: String,
    /// The result.
    result_type: String,
    base: String,
    ld: String,
    /// The unit's block.
    block: String,
    block_index: usize,
    block_type: String,
    /// Which sink of the graph it is.
    node: String,
}

/// What results that vary along the same axes have in common.
#[derive(Serialize)]
pub(super) struct Block {
    index: usize,
    name: String,
    #[serde(rename = "type")]
    cuda_type: String,
    /// The counters of arrivals.
    arrivals: String,
    /// Whether units share the fix-up.
    shared: bool,
}

/// Whether a value is an `f32` that is never below zero, and whose NaN has no sign.
fn is_never_negative(program: &Program, step: usize) -> bool {
    let InstrKind::Apply { op, args } = &program.steps[step].kind else { return false };
    let of_constant = |arg: &usize| match program.steps[*arg].kind {
        InstrKind::Constant(graph::Constant::F32(bits)) => f32::from_bits(bits) >= 0.0,
        _ => false,
    };
    op.is_maximum() && args.iter().any(of_constant)
}

fn reductions(plan: &KernelPlan, printer: &Printer) -> Vec<Reduction> {
    let (sets, parts) = (sets(&plan.program.reductions), plan.parts());
    let inside = plan.tiles_lie_inside();
    let reduction = |(index, reduce): (usize, &PlannedReduction)| {
        let PlannedReduction { argument, operand, terms, value, monoid, accumulate, .. } = reduce;
        let (axes, block_index) = (operand.axes, sets.iter().position(|axes| *axes == operand.axes).unwrap_or_default());
        let are_sizes = terms.iter().all(|&term| is_never_negative(&plan.program, term));
        let terms: Vec<String> = terms.iter().map(|&term| printer.reference(term)).collect();
        let along_columns = lies_along_columns(axes, operand.order);
        Reduction {
            index,
            name: format!("partial{index}"),
            monoid: match monoid.row().and_then(|row| row.cuda_of_sizes) {
                Some(cuda) if are_sizes => cuda.into(),
                _ => monoids::name(plan, *monoid, *value),
            },
            words: monoid.words(*value),
            terms: terms.join(", "),
            counts: match axes.without(L) {
                _ if inside => "true",
                N => "s.row < p.m",
                M => "s.at(i) < p.n",
                _ => "s.row < p.m && s.at(i) < p.n",
            },
            columns: axes.without(L) == N,
            rows: axes.without(L) == M,
            all: axes.without(L) == Axes::NONE,
            elements: axes.is_matrix(),
            total: reduce.is_total(&plan.tile),
            parts_at: parts.at[index],
            added: reduce.adds_as_they_arrive(&plan.tile),
            shared: shares_fixup(axes, plan.helpers),
            partials: param(FieldValue::Partials(index)),
            result_type: format!("Result<{}, {along_columns}, {accumulate}>", operand.dtype.cuda()),
            base: printer.base(*argument, *operand),
            ld: if axes.is_matrix() { param(FieldValue::Ld(*argument)) } else { "0".into() },
            block: format!("block{block_index}"),
            block_index,
            block_type: block_type(axes),
            node: format!("reduce {index}"),
        }
    };
    plan.program.reductions.iter().enumerate().map(reduction).collect()
}

fn blocks(plan: &KernelPlan) -> Vec<Block> {
    let block = |(index, axes)| Block {
        index,
        name: format!("block{index}"),
        cuda_type: block_type(axes),
        arrivals: param(FieldValue::Arrivals(index)),
        shared: shares_fixup(axes, plan.helpers),
    };
    let totals =
        |axes: Axes| plan.program.reductions.iter().any(|reduce| reduce.operand.axes == axes && reduce.is_total(&plan.tile));
    sets(&plan.program.reductions).into_iter().enumerate().filter(|(_, axes)| !totals(*axes)).map(block).collect()
}

/// The counter of the consumers that have published their totals, if the plan has any.
fn total_arrivals(plan: &KernelPlan) -> Option<String> {
    let reductions = &plan.program.reductions;
    let total = reductions.iter().find(|reduce| reduce.is_total(&plan.tile))?;
    let set = sets(reductions).iter().position(|axes| *axes == total.operand.axes)?;
    Some(param(FieldValue::Arrivals(set)))
}

fn block_type(axes: Axes) -> String {
    format!("Block<{}, {}, {}>", axes.contains(M), axes.contains(N), axes.contains(L))
}

/// Names and numbers of a kernel that reduces.
pub(super) fn constants(plan: &KernelPlan) -> Vec<Constant> {
    if plan.program.reductions.is_empty() {
        return Vec::new();
    }
    let Unit { rows, columns, threads, row_lanes, row_sharers } = plan.tile.unit(plan.strip);
    let mainloop = || plan.tile.shared_memory(plan.operation.dtype(), 0).next_multiple_of(16);
    let at = plan.staging.as_ref().map_or_else(mainloop, |staging| staging.memory.of(SharedRegion::Parts).at);
    let list = [
        ("UNIT_ROWS", rows),
        ("UNIT_COLUMNS", columns),
        ("UNIT_THREADS", threads),
        ("ROW_LANES", row_lanes),
        ("ROW_SHARERS", row_sharers),
        ("AT_PARTS", at),
        ("NOTE_BYTES", NOTE_BYTES),
    ];
    let helpers = (plan.helpers > 0).then_some(("HELPERS", plan.helpers));
    list.into_iter().chain(helpers).map(|(name, value)| Constant { name, value }).collect()
}

/// All that a kernel reduces.
#[derive(Serialize)]
pub(super) struct Reduced {
    own_monoids: Vec<monoids::OwnMonoid>,
    reductions: Vec<Reduction>,
    /// Whether results are published tile by tile, and whether any is a total of all tiles.
    tile_reductions: bool,
    totals: bool,
    /// The counter of the consumers that have published their totals.
    total_arrivals: Option<String>,
    blocks: Vec<Block>,
    /// Whether units share the fix-up of some of them.
    shares_fixup: bool,
}

impl Reduced {
    pub fn of(plan: &KernelPlan, printer: &Printer<'_>) -> Reduced {
        let is_total = |reduce: &PlannedReduction| reduce.is_total(&plan.tile);
        Reduced {
            own_monoids: monoids::own(plan),
            reductions: reductions(plan, printer),
            tile_reductions: !plan.program.reductions.iter().all(is_total),
            totals: plan.program.reductions.iter().any(is_total),
            total_arrivals: total_arrivals(plan),
            blocks: blocks(plan),
            shares_fixup: plan.helpers > 0,
        }
    }
}
