//! Which way round a problem is computed: as it is, or transposed, with A and B, M and N exchanged.

use crate::check::{Checked, Role};
use crate::ir::Order;
use crate::plan::Mainloop;
use crate::plan::request::PlanRequest;
use crate::problem::Operation;

/// The user's wish; otherwise whether most bytes of the epilogue's matrices lie column by column, unless the mainloop has a
/// reason of its own.
pub(super) fn prefers_transposed(request: &PlanRequest<'_>, epilogue: &Checked, mainloop: Mainloop) -> bool {
    let (operation, shape) = (request.operation, request.problem.shape);
    if operation.extents().is_some() || operation.attention().is_some() {
        return false; // mainloops know which operand the images are, or the queries
    }
    if let Some(wish) = request.preferences.transposed.filter(|_| operation.multiplies()) {
        return wish;
    }
    mainloop.rules().prefers_transposed(operation, shape).unwrap_or_else(|| lies_in_columns(operation, epilogue))
}

/// Whether most bytes of the matrices of an epilogue, and of an accumulator in memory, lie column by column.
pub(super) fn lies_in_columns(operation: Operation, epilogue: &Checked) -> bool {
    let (mut rows, mut columns) = (0, 0);
    let mut count = |order: Order, bits: usize| match order {
        Order::RowMajor => rows += bits,
        Order::ColumnMajor => columns += bits,
    };
    for argument in epilogue.arguments() {
        if let Some(operand) = argument.role.operand().filter(|o| o.axes.is_matrix()) {
            let passes = if matches!(argument.role, Role::Update(_)) { 2 } else { 1 };
            count(operand.order, passes * operand.dtype.bits());
        }
    }
    if let (Operation::Pointwise { dtype, order }, Some(_)) = (operation, epilogue.accumulator()) {
        count(order, dtype.bits());
    }
    columns > rows
}
