//! Stages of reductions along rows as the templates see them.

use super::printer::Printer;
use super::{Access, monoids};
use crate::ir::axes::{L, M};
use crate::plan::{KernelPlan, Phase, RowReduce};
use serde::Serialize;

/// What is reduced along rows at once, and what rows have of it.
#[derive(Serialize)]
pub(super) struct Stage {
    /// From 1.
    number: usize,
    visit: Vec<String>,
    reductions: Vec<Reduction>,
    /// The values of a row that follow.
    row: Vec<String>,
    /// Whether later stages may use what this one computes of an element, instead of computing it again.
    keeps: bool,
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
    /// The member that gets the result.
    result: String,
    node: String,
}

/// A vector that rows store.
#[derive(Serialize)]
pub(super) struct RowStore {
    #[serde(flatten)]
    access: Access,
    /// Whether it has an element for each row, and whether for each batch entry: else the first of them writes it.
    by_row: bool,
    by_entry: bool,
}

pub(super) fn stages(plan: &KernelPlan, printer: &Printer) -> Vec<Stage> {
    let stage = |(index, stage): (usize, &crate::plan::Stage)| Stage {
        number: index + 1,
        visit: printer.visit(&stage.visit),
        reductions: stage.reductions.iter().map(|reduction| of(plan, printer, reduction)).collect(),
        row: printer.phase(Phase::Row, index + 1),
        keeps: plan.program.keeps(stage),
    };
    plan.program.stages.iter().enumerate().map(stage).collect()
}

fn of(plan: &KernelPlan, printer: &Printer, reduction: &RowReduce) -> Reduction {
    let RowReduce { step, terms, value, monoid } = reduction;
    Reduction {
        name: format!("state{step}"),
        monoid: monoids::name(plan, *monoid, *value),
        terms: terms.iter().map(|&term| printer.reference(term)).collect::<Vec<_>>().join(", "),
        result: printer.reference(*step),
        node: printer.note(*step),
    }
}

/// The stores of vectors, in order of the plan's.
pub(super) fn stores(plan: &KernelPlan, printer: &Printer) -> Vec<RowStore> {
    let stores = plan.program.stores.iter().enumerate().filter(|(_, store)| !store.operand.axes.is_matrix());
    let store = stores.map(|(index, store)| {
        let axes = store.operand.axes;
        RowStore { access: printer.store(index, store), by_row: axes.contains(M), by_entry: axes.contains(L) }
    });
    store.collect()
}

/// What is reduced along rows, and stored with what rows come to.
#[derive(Serialize)]
pub(super) struct Rows {
    /// What is reduced along rows before the visit.
    stages: Vec<Stage>,
    row_stores: Vec<RowStore>,
    /// Whether the threads that share a row hold it.
    holds_rows: bool,
}

impl Rows {
    pub fn of(plan: &KernelPlan, printer: &Printer<'_>) -> Rows {
        Rows { stages: stages(plan, printer), row_stores: stores(plan, printer), holds_rows: plan.tile.holds_rows() }
    }
}
