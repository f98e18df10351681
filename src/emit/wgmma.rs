//! The instruction that multiplies in a Hopper kernel.

use crate::plan::KernelPlan;
use serde::Serialize;

/// The tensor-core instruction of a Hopper kernel, with its accumulators written out as the assembler wants them.
#[derive(Serialize)]
pub(super) struct Wgmma {
    n: usize,
    registers: usize,
    dtype: &'static str,
    list: String,
    outputs: String,
}

impl Wgmma {
    pub(super) fn of(plan: &KernelPlan) -> Wgmma {
        let (n, registers) = (plan.tile.bn, plan.tile.bn / 2);
        let (mut list, mut outputs) = (String::with_capacity(6 * registers), String::with_capacity(14 * registers));
        // Hundreds of numbers, for which a formatter takes as long as for all the rest of a plan.
        for i in 0..registers {
            let comma = if i > 0 { ", " } else { "" };
            list.extend([comma, "%"]);
            push_number(&mut list, i);
            outputs.extend([comma, "\"+f\"(d["]);
            push_number(&mut outputs, i);
            outputs.push_str("])");
        }
        Wgmma { n, registers, dtype: plan.operation.dtype().name(), list: format!("{{ {list}}}"), outputs }
    }
}

fn push_number(text: &mut String, number: usize) {
    if number >= 10 {
        push_number(text, number / 10);
    }
    text.push(char::from(b'0' + (number % 10) as u8));
}
