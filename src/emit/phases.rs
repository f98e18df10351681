//! The values, loads and stores of an epilogue by their phases, as a template sees them.

use super::printer::Printer;
use super::{Access, CountAccess, param};
use crate::ir::axes::L;
use crate::plan::{FieldValue, InstrKind, KernelPlan, Phase};
use serde::Serialize;

#[derive(Serialize)]
struct Pointer {
    name: String,
    declaration: String,
    base: String,
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
    pub fn of(plan: &KernelPlan, printer: &Printer<'_>) -> Phases {
        let program = &plan.program;
        let access = |step: usize| matches!(program.steps[step].kind, InstrKind::Load { .. }).then(|| printer.step_access(step));
        let loads = |phase: Phase| program.of_phase(phase).filter_map(access).collect();
        let members = |phase: Phase| {
            let kept = program.of_phase(phase).filter(|step| printer.is_member(*step));
            kept.map(|step| Member { declaration: printer.declaration(step), node: printer.note(step) }).collect()
        };
        let batch_pointers = plan.arguments.iter().enumerate().filter_map(|(i, argument)| {
            let operand = argument.role.operand().filter(|o| o.axes.contains(L))?;
            plan.params.fields.iter().any(|f| f.value == FieldValue::Pointer(i)).then(|| Pointer {
                name: format!("p{i}"),
                declaration: format!("{}{}*", if argument.role.is_written() { "" } else { "const " }, operand.dtype.cuda()),
                base: param(FieldValue::Pointer(i)),
                stride: param(FieldValue::BatchStride(i)) + if operand.dtype.is_packed() { " / 8" } else { "" },
            })
        });
        let matrices = program.matrix_stores();
        Phases {
            params: plan.params.fields.iter().map(|f| format!("{}{};", f.field_type.cuda(), f.value)).collect(),
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
            stores: matrices.map(|(i, s)| printer.store(i, s)).collect(),
            counts: program.counts.iter().enumerate().map(|(i, count)| printer.count(i, count)).collect(),
        }
    }
}
