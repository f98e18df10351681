//! The functions that a kernel calls instead of inlining them: see [`Code`](crate::plan::Code).

use super::printer::substitute;
use crate::ir::Op;
use crate::plan::KernelPlan;
use serde::Serialize;

/// One function.
#[derive(Serialize)]
pub(super) struct Call {
    name: String,
    parameters: String,
    /// What it returns.
    value: String,
}

/// The function's name in the kernel.
pub(super) fn name(op: Op) -> String {
    format!("called_{}", op.name())
}

/// Every function that the plan has called.
pub(super) fn calls(plan: &KernelPlan) -> Vec<Call> {
    let call = |&op: &Op| {
        let names: Vec<String> = (0..op.row().signature.arity()).map(|i| format!("x{i}")).collect();
        let parameters = names.iter().map(|name| format!("float {name}")).collect::<Vec<_>>().join(", ");
        Call { name: name(op), parameters, value: substitute(op.row().cuda, &names) }
    };
    plan.code.calls.iter().map(call).collect()
}
