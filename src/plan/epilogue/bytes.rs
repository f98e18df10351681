//! The bytes of an epilogue's matrices, and of the operands in front of it.

use crate::ir::{Operand, Order, axes::L};
use crate::plan::epilogue::program::{InstrKind, Phase, Program};
use crate::problem::{Operation, Shape};

/// Bytes of both operands of one entry of a batch, each once: of a convolution, images and filters.
pub(in crate::plan) fn of_operands(operation: Operation, Shape { m, n, k, .. }: Shape) -> f64 {
    let lines = [m, n].map(|lines| lines as f64 * k as f64);
    let elements = operation.patches().map_or(lines, |patches| {
        let images = (patches.image_pixels() * patches.channels()) as f64;
        if patches.are_rows() { [images, lines[1]] } else { [lines[0], images] }
    });
    let bits = operation.dtypes().map(|dtype| dtype.bits() as f64);
    (elements[0] * bits[0] + elements[1] * bits[1]) / 8.0
}

/// The matrices that an epilogue reads and writes, each once.
fn matrices(program: &Program) -> impl Iterator<Item = &Operand> {
    let loads = || {
        program.of_phase(Phase::Visit).filter_map(|step| match &program.steps[step].kind {
            InstrKind::Load { argument, operand } => Some((*argument, operand)),
            _ => None,
        })
    };
    let updated = move |argument: usize| loads().any(|(loaded, _)| loaded == argument);
    let stores = program.stores.iter().filter(move |store| !updated(store.argument)).map(|store| &store.operand);
    loads().map(|(_, operand)| operand).chain(stores).filter(|operand| operand.axes.is_matrix())
}

/// Bytes of all matrices that an epilogue reads and writes, each once.
pub(in crate::plan) fn of_matrices(program: &Program, Shape { m, n, batch, .. }: Shape) -> usize {
    let bytes = |operand: &Operand| {
        let entries = if operand.axes.contains(L) { batch } else { 1 };
        operand.dtype.bytes(m.saturating_mul(n)).saturating_mul(entries)
    };
    matrices(program).map(bytes).fold(0, usize::saturating_add)
}

/// Whether most bits of these matrices lie column by column, as a kernel sees them.
pub(in crate::plan) fn lie_in_columns(program: &Program) -> bool {
    let bits = |order: Order| matrices(program).filter(|of| of.order == order).map(|of| of.dtype.bits()).sum::<usize>();
    bits(Order::ColumnMajor) > bits(Order::RowMajor)
}
