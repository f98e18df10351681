//! The functions that a kernel calls instead of inlining them: see [`Code`](crate::plan::Code).

use super::printer::Part;
use super::printer::{RESUME, substitute};
use crate::ir::Op;
use crate::plan::InstrKind;
use crate::source::STEP_MARKER;
use serde::Serialize;

/// One function.
#[derive(Serialize)]
pub(super) struct Call {
    name: String,
    parameters: String,
    /// What it returns.
    value: String,
    /// For a spelling that the user brought: the lines around it, by which the compiler's messages name the step.
    marks: Option<[String; 2]>,
}

/// The name of a primitive's function in the kernel.
pub(super) fn name(op: Op) -> String {
    format!("called_{}", op.name())
}

/// The name of a custom primitive's function: that of the first step with the same spelling.
pub(super) fn custom_name(part: &Part<'_>, spelling: &str) -> String {
    let first =
        part.program.steps.iter().position(|step| matches!(&step.kind, InstrKind::Custom { cuda, .. } if cuda == spelling));
    format!("called_custom{}", first.unwrap_or_default())
}

/// Every function that a part of a plan has called.
pub(super) fn calls(part: &Part<'_>) -> Vec<Call> {
    let names = |arity: usize| (0..arity).map(|i| format!("x{i}")).collect::<Vec<_>>();
    let call = |name: String, spelling: &str, arity: usize, marks| {
        let parameters = names(arity).iter().map(|name| format!("float {name}")).collect::<Vec<_>>().join(", ");
        Call { name, parameters, value: substitute(spelling, &names(arity)), marks }
    };
    let primitives = part.code.calls.iter().map(|op| call(name(*op), op.row().cuda, op.row().signature.arity(), None));
    let customs = part.program.steps.iter().enumerate().filter_map(|(step, value)| {
        let InstrKind::Custom { cuda, args, .. } = &value.kind else { return None };
        let name = custom_name(part, cuda);
        let is_first = part.code.calls_custom && name == format!("called_custom{step}");
        let marks = [format!("#line 1 \"{STEP_MARKER}{}\"", part.first_step + step), RESUME.to_owned()];
        is_first.then(|| call(name, cuda, args.len(), Some(marks)))
    });
    primitives.chain(customs).collect()
}
