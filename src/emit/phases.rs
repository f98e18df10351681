//! The values, loads and stores of an epilogue by their phases, as a template sees them.

use super::printer::Printer;
use super::{Access, CountAccess, param};
use crate::ir::axes::{L, S};
use crate::plan::{FieldValue, InstrKind, Params, Phase, has_entries};
use serde::Serialize;

#[derive(Serialize)]
struct Pointer {
    name: String,
    declaration: String,
    base: String,
    /// Which entry it is.
    entry: &'static str,
    stride: String,
}

#[derive(Serialize)]
struct Member {
    declaration: String,
    node: String,
}

/// The epilogue.
#[derive(Serialize)]
pub(super) struct Phases {
    of_scores: bool,
    /// How many rows and columns there are.
    extent_m: &'static str,
    extent_n: &'static str,
    params: Vec<String>,
    batch_pointers: Vec<Pointer>,
    tile_members: Vec<Member>,
    column_members: Vec<Member>,
    row_members: Vec<Member>,
    fetches: Vec<Access>,
    tile: Vec<String>,
    column: Vec<String>,
    row: Vec<String>,
    visit: Vec<String>,
    column_loads: Vec<Access>,
    row_loads: Vec<Access>,
    tile_loads: Vec<Access>,
    stores: Vec<Access>,
    counts: Vec<CountAccess>,
}

impl Phases {
    pub fn of(params: &Params, printer: &Printer<'_>) -> Phases {
        let part = &printer.part;
        let program = part.program;
        let access = |step: usize| matches!(program.steps[step].kind, InstrKind::Load { .. }).then(|| printer.step_access(step));
        let loads = |phase: Phase| program.of_phase(phase).filter_map(access).collect();
        let members = |phase: Phase| {
            let kept = program.of_phase(phase).filter(|step| printer.is_member(*step));
            kept.map(|step| Member { declaration: printer.declaration(step), node: printer.note(step) }).collect()
        };
        let batch_pointers = part.arguments.iter().enumerate().filter_map(|(i, argument)| {
            let (i, operand) = (part.number(i), argument.role.operand().filter(|operand| has_entries(*operand))?);
            params.fields.iter().any(|f| f.value == FieldValue::Pointer(i)).then(|| Pointer {
                name: format!("p{i}"),
                declaration: format!("{}{}*", if argument.role.is_written() { "" } else { "const " }, operand.dtype.cuda()),
                base: param(FieldValue::Pointer(i)),
                entry: match (operand.axes.contains(S), operand.axes.contains(L)) {
                    (true, true) => "i64(sequence) * p.batch + batch",
                    (true, false) => "sequence",
                    _ => "batch",
                },
                stride: param(FieldValue::BatchStride(i)) + if operand.dtype.is_packed() { " / 8" } else { "" },
            })
        });
        let matrices = program.matrix_stores();
        Phases {
            of_scores: part.of_scores,
            extent_m: if part.of_scores { "p.queries" } else { "p.m" },
            extent_n: if part.of_scores { "p.keys" } else { "p.n" },
            params: params.fields.iter().map(|f| format!("{}{};", f.field_type.cuda(), f.value)).collect(),
            batch_pointers: batch_pointers.collect(),
            tile_members: members(Phase::Tile),
            column_members: members(Phase::Column),
            row_members: members(Phase::Row),
            fetches: loads(Phase::Visit),
            tile: printer.phase(Phase::Tile, 0),
            column: printer.phase(Phase::Column, 0),
            row: printer.phase(Phase::Row, 0),
            visit: printer.visit(&program.visit),
            column_loads: loads(Phase::Column),
            row_loads: loads(Phase::Row),
            tile_loads: loads(Phase::Tile),
            // The result of a function of scores is not stored.
            stores: matrices.filter(|_| !part.of_scores).map(|(i, s)| printer.store(i, s)).collect(),
            counts: program.counts.iter().enumerate().map(|(i, count)| printer.count(i, count)).collect(),
        }
    }
}
