//! Stages of reductions along rows as the templates see them.

use super::printer::Printer;
use super::{Access, monoids};
use crate::ir::axes::{L, M, N};
use crate::plan::{self, KernelPlan, Phase, RowReduce};
use serde::Serialize;

/// What is reduced along rows at once, and what rows have of it.
#[derive(Serialize)]
pub(super) struct Stage {
    /// From 1.
    number: usize,
    visit: Vec<String>,
    /// The functions that take a strip, one behind the other for all strips.
    steps: Vec<Step>,
    /// The same for what is reduced of the strip that has the label.
    at_label: Vec<String>,
    has_label: bool,
    reductions: Vec<Reduction>,
    /// The monoid of all of them and its state, if they are combined at one barrier.
    together: Option<String>,
    states: String,
    /// The values of a row that follow.
    row: Vec<String>,
    /// Whether any of them goes over all rows, too.
    whole: bool,
    /// Whether later stages may use what this one computes of an element, instead of computing it again.
    keeps: bool,
}

/// A function that takes a strip.
#[derive(Serialize)]
struct Step {
    name: String,
    /// What it calls of monoids that foresee.
    takes: &'static str,
    last: bool,
    /// Whether the smallest and the largest element of the accumulator stand for all of them.
    extremes: bool,
}

/// A reduction along the row.
#[derive(Serialize)]
struct Reduction {
    /// The member in which a thread keeps what it has taken in.
    name: String,
    /// The struct of the monoid.
    monoid: String,
    /// What is taken in, inside a loop over `i`.
    terms: String,
    /// The member that gets the result, and its name alone.
    result: String,
    field: String,
    /// Its part of a state of all of the stage.
    place: String,
    /// The other result of its state, if the graph has both.
    beside: Option<Beside>,
    /// Whether it goes over all rows, too.
    whole: bool,
    /// Whether it takes the element at the label alone.
    at_label: bool,
    /// The type of what it takes, whether it takes a strip at once, and whether in several steps.
    value: &'static str,
    strips: bool,
    foresees: bool,
    node: String,
}

/// The other result of a reduction's state.
#[derive(Serialize)]
struct Beside {
    /// The member that gets it, and its name alone.
    result: String,
    field: String,
    node: String,
}

/// A vector, or one number, that is stored.
#[derive(Serialize)]
pub(super) struct VectorStore {
    #[serde(flatten)]
    access: Access,
    /// Whether it has an element for each row, for each column, and for each batch entry: else the first of them writes it.
    by_row: bool,
    by_column: bool,
    by_entry: bool,
}

pub(super) fn stages(plan: &KernelPlan, printer: &Printer) -> Vec<Stage> {
    let of_stages = printer.of_stages();
    let stage = |(index, stage): (usize, &plan::Stage)| {
        let mut reductions: Vec<Reduction> = stage.reductions.iter().map(|reduction| of(plan, printer, reduction)).collect();
        let (together, states) = if plan.combines_together(stage) { together(&mut reductions) } else { (None, String::new()) };
        Stage {
            number: index + 1,
            visit: of_stages.visit(&stage.visit),
            at_label: of_stages.visit(&stage.at_label),
            steps: steps(plan, index + 1, stage),
            has_label: reductions.iter().any(|reduction| reduction.at_label),
            together,
            reductions,
            states,
            row: printer.phase(Phase::Row, index + 1),
            whole: stage.reductions.iter().any(|reduction| reduction.whole),
            keeps: plan.program.keeps(stage),
        }
    };
    plan.program.stages.iter().enumerate().map(stage).collect()
}

/// The functions of a stage: one, or two where threads have all strips at hand and a monoid has use for it.
fn steps(plan: &KernelPlan, number: usize, stage: &plan::Stage) -> Vec<Step> {
    let step = |word, takes, last, extremes| Step { name: format!("epilogue_{word}_{number}"), takes, last, extremes };
    let foresees = |reduction: &RowReduce| reduction.monoid.row().is_some_and(|row| row.foresees);
    let is_ordered = |reduction: &RowReduce| reduction.monoid.is_ordered();
    if plan.goes_over_strips() && stage.reductions.iter().any(foresees) {
        let extremes = plan.has_extremes(stage, foresees);
        vec![step("foresee", "foresee", false, extremes), step("take", "take_foreseen", true, false)]
    } else {
        let extremes = stage.reductions.iter().all(is_ordered) && plan.has_extremes(stage, is_ordered);
        vec![step("take", "take_all", true, extremes)]
    }
}

/// The monoid of all reductions, and its state. Each gets its place in it.
fn together(reductions: &mut [Reduction]) -> (Option<String>, String) {
    let last = reductions.len().saturating_sub(1);
    let (mut monoid, mut states) = (String::new(), String::new());
    for (i, reduction) in reductions.iter_mut().enumerate().rev() {
        let state = format!("r.{}", reduction.name);
        if i == last {
            (monoid, states) = (reduction.monoid.clone(), state);
        } else {
            (monoid, states) = (format!("Both<{}, {monoid}>", reduction.monoid), format!("{{{state}, {states}}}"));
        }
        let path = vec!["second"; i].into_iter().chain((i != last).then_some("first"));
        reduction.place = path.collect::<Vec<_>>().join(".");
    }
    (Some(monoid), states)
}

fn of(plan: &KernelPlan, printer: &Printer, reduction: &RowReduce) -> Reduction {
    let RowReduce { step, terms, value, monoid, whole, beside } = reduction;
    let field = |step: usize| format!("v{step}");
    Reduction {
        name: format!("state{step}"),
        monoid: monoids::name(plan, *monoid, *value),
        terms: terms.iter().map(|&term| printer.reference(term)).collect::<Vec<_>>().join(", "),
        result: printer.reference(*step),
        field: field(*step),
        place: String::new(),
        beside: beside.map(|step| Beside { result: printer.reference(step), field: field(step), node: printer.note(step) }),
        whole: *whole,
        at_label: plan.program.takes_label(reduction),
        value: value.cuda(),
        strips: monoid.row().is_some_and(|row| row.cost_of_many.is_some()),
        foresees: monoid.row().is_some_and(|row| row.foresees),
        node: printer.note(*step),
    }
}

/// The stores of vectors, in order of the plan's: those that are written with what a row comes to, or the others.
fn stores(plan: &KernelPlan, printer: &Printer, with_rows: bool) -> Vec<VectorStore> {
    let has_rows = !plan.program.stages.is_empty();
    let stores = plan.program.stores.iter().enumerate().filter(|(_, store)| !store.operand.axes.is_matrix());
    let store = stores.filter(|(_, store)| (has_rows && !store.operand.axes.contains(N)) == with_rows).map(|(index, store)| {
        let [by_row, by_column, by_entry] = [M, N, L].map(|axis| store.operand.axes.contains(axis));
        VectorStore { access: printer.store(index, store), by_row, by_column, by_entry }
    });
    store.collect()
}

/// What is reduced along rows, and stored with what rows come to.
#[derive(Serialize)]
pub(super) struct Rows {
    /// What is reduced along rows before the visit.
    stages: Vec<Stage>,
    /// Whether the states of several reductions are combined at one barrier.
    combines_together: bool,
    row_stores: Vec<VectorStore>,
    /// What a visit stores beside matrices.
    strip_stores: Vec<VectorStore>,
    /// Whether the threads that share a row hold it.
    holds_rows: bool,
    /// Whether they widen it again for each stage.
    renews: bool,
    /// Whether they go over it ahead of a stage, and whether they need its extremes alone for a stage.
    foresees: bool,
    extremes: bool,
    /// The column with which all columns of a row are compared, if there is one.
    label: Option<String>,
    /// Whether the strip that has it is reduced by itself, and whether it is visited again.
    label_apart: bool,
    visits_label_again: bool,
    /// Whether they keep sums over M in shared memory from row to row.
    keeps_sums: bool,
    /// Whether the next batches of rows are on their way to shared memory.
    copies: bool,
    /// Whether blocks take the rows in turns, batch by batch.
    interleaves: bool,
    /// Whether anything is reduced over all rows and columns before the visit.
    whole: bool,
    /// Whether a tile has a band of columns, instead of all.
    bands: bool,
}

impl Rows {
    pub fn of(plan: &KernelPlan, printer: &Printer<'_>) -> Rows {
        let stages = stages(plan, printer);
        let whole = stages.iter().any(|stage| stage.whole);
        let [row_stores, strip_stores] = [true, false].map(|with_rows| stores(plan, printer, with_rows));
        let [holds_rows, renews, keeps_sums] = [plan.tile.holds_rows(), plan.renews_rows(), plan.keeps_sums()];
        let [label_apart, visits_label_again] = plan.visits_label();
        let foresees = stages.iter().any(|stage| stage.steps.len() > 1);
        let extremes = stages.iter().flat_map(|stage| &stage.steps).any(|step| step.extremes);
        let has_label = stages.iter().any(|stage| stage.has_label);
        let combines_together = stages.iter().any(|stage| stage.together.is_some());
        Rows {
            stages,
            combines_together,
            row_stores,
            strip_stores,
            holds_rows,
            renews,
            foresees,
            extremes,
            label: plan.program.label().map(|column| printer.reference(column)),
            label_apart: label_apart && (visits_label_again || has_label),
            visits_label_again,
            keeps_sums,
            copies: plan.tile.copies_rows(),
            interleaves: plan.interleaves_rows(),
            whole,
            bands: plan.program.band.is_some(),
        }
    }
}
