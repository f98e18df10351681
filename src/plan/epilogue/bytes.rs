//! The bytes of an epilogue's matrices.

use crate::ir::{Operand, axes::L};
use crate::plan::epilogue::program::{InstrKind, Phase, Program};
use crate::problem::Shape;

/// Bytes of all matrices that an epilogue reads and writes, each once.
pub(in crate::plan) fn of_matrices(program: &Program, Shape { m, n, batch, .. }: Shape) -> usize {
    let bytes = |operand: &Operand| {
        let entries = if operand.axes.contains(L) { batch } else { 1 };
        operand.dtype.bytes(m.saturating_mul(n)).saturating_mul(entries)
    };
    let loads = || {
        program.of_phase(Phase::Visit).filter_map(|step| match &program.steps[step].kind {
            InstrKind::Load { argument, operand } => Some((*argument, operand)),
            _ => None,
        })
    };
    let updated = |argument: usize| loads().any(|(loaded, _)| loaded == argument);
    let stores = program.stores.iter().filter(|store| !updated(store.argument)).map(|store| &store.operand);
    loads()
        .map(|(_, operand)| operand)
        .chain(stores)
        .filter(|operand| operand.axes.is_matrix())
        .map(bytes)
        .fold(0, usize::saturating_add)
}
