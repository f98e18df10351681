//! The tensor-core instruction of a Hopper kernel, written out for the assembler.

use crate::dtype::{DType, ValueType};
use crate::plan::KernelPlan;
use serde::Serialize;

/// The tensor-core instruction of a Hopper kernel, with its accumulators written out as the assembler wants them.
#[derive(Serialize)]
pub(super) struct Wgmma {
    n: usize,
    registers: usize,
    dtype: &'static str,
    dtype_b: &'static str,
    /// K elements: 32 bytes of them.
    terms: usize,
    list: String,
    outputs: String,
    /// The registers of an A that is in some, behind the accumulators.
    list_a: String,
}

impl Wgmma {
    pub(super) fn of(plan: &KernelPlan) -> Wgmma {
        let integers = plan.operation.accumulator() == ValueType::I32;
        let Accumulators { n, registers, list, outputs } =
            Accumulators::of(plan.tile.multiplied_columns(), if integers { "\"+r\"(d[" } else { "\"+f\"(d[" }, push_number);
        let list_a = format!("{{%{}, %{}, %{}, %{}}}", registers, registers + 1, registers + 2, registers + 3);
        let multiplied = plan.operation.multiplied();
        let formats = if plan.operation.widened().is_some() { [multiplied; 2] } else { plan.operation.dtypes() };
        let [dtype, dtype_b] = formats.map(DType::instruction);
        Wgmma { n, registers, dtype, dtype_b, terms: 32 / multiplied.size(), list, outputs, list_a }
    }
}

/// The accumulators of an instruction with `n` columns: those of one thread.
#[derive(Serialize)]
struct Accumulators {
    n: usize,
    registers: usize,
    list: String,
    outputs: String,
}

impl Accumulators {
    /// `place` writes the place of an accumulator between the brackets of an array, which `array` opens.
    fn of(n: usize, array: &str, place: fn(&mut String, usize)) -> Accumulators {
        let registers = n / 2;
        let (mut list, mut outputs) = (String::with_capacity(6 * registers), String::with_capacity(14 * registers));
        // Hundreds of numbers, for which a formatter takes as long as for all the rest of a plan.
        for i in 0..registers {
            let comma = if i > 0 { ", " } else { "" };
            list.extend([comma, "%"]);
            push_number(&mut list, i);
            outputs.extend([comma, array]);
            place(&mut outputs, i);
            outputs.push_str("])");
        }
        Accumulators { n, registers, list: format!("{{ {list}}}"), outputs }
    }
}

/// The two instructions of an attention: queries by keys, and weights by values.
#[derive(Serialize)]
pub(super) struct AttentionWgmma {
    dtype: &'static str,
    keys: Accumulators,
    values: Accumulators,
}

impl AttentionWgmma {
    /// Those of a plan that multiplies so.
    pub(super) fn of(plan: &KernelPlan) -> Option<AttentionWgmma> {
        let keys = plan.tile.keys_by_wgmma()?;
        // Four accumulators of a lane lie in eight columns.
        let place = |text: &mut String, i: usize| {
            push_number(text, i / 4);
            text.push_str("][");
            push_number(text, i % 4);
        };
        let of = |n| Accumulators::of(n, "\"+f\"(d[", place);
        Some(AttentionWgmma { dtype: plan.operation.dtype().instruction(), keys: of(keys), values: of(plan.tile.bn) })
    }
}

fn push_number(text: &mut String, number: usize) {
    if number >= 10 {
        push_number(text, number / 10);
    }
    text.push(char::from(b'0' + (number % 10) as u8));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An instruction of `n` columns has `n / 2` accumulators a thread, and names each once.
    #[test]
    fn accumulators_are_numbered_in_order() {
        for n in [8, 16, 24, 64, 200, 256] {
            let Accumulators { registers, list, outputs, .. } = Accumulators::of(n, "\"+f\"(d[", push_number);
            assert_eq!(registers, n / 2);
            let numbers: Vec<String> = (0..n / 2).map(|i| format!("%{i}")).collect();
            assert_eq!(list, format!("{{ {}}}", numbers.join(", ")));
            let places: Vec<String> = (0..n / 2).map(|i| format!("\"+f\"(d[{i}])")).collect();
            assert_eq!(outputs, places.join(", "));
        }
    }
}
