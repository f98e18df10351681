//! What a kernel multiplies, as its template sees it: the formats of A and B, and the instructions for them.

use crate::dtype::ValueType;
use crate::plan::{KernelPlan, panel_terms};
use serde::Serialize;

/// The formats of a product's operands; without a product all of it is of no use.
#[derive(Serialize)]
pub(super) struct Operands {
    /// The element of B, and of either operand inside of what is for both: by a name of A's where they have one format.
    element_b: &'static str,
    element_of_either: &'static str,
    /// Whether B has a format of its own, and its type.
    mixed: bool,
    cuda_b: &'static str,
    /// The formats in instructions.
    instruction_a: &'static str,
    instruction_b: &'static str,
    /// Whether operands of eight bits are multiplied.
    eight_bits_multiplied: bool,
    /// Terms of K in 128 bytes.
    panel_terms: usize,
    /// Whether short sums are added up outside of the tensor cores.
    promotes: bool,
    /// Whether accumulators are integers, and their zero.
    integers: bool,
    zero: &'static str,
}

impl Operands {
    pub(super) fn of(plan: &KernelPlan) -> Operands {
        let ([a, b], mixed) = (plan.operation.dtypes(), plan.operation.is_mixed());
        let integers = plan.operation.accumulator() == ValueType::I32;
        Operands {
            element_b: if mixed { "ElementB" } else { "Element" },
            element_of_either: if mixed { "typename ElementOf<IS_A>::Type" } else { "Element" },
            mixed,
            cuda_b: b.cuda(),
            instruction_a: a.instruction(),
            instruction_b: b.instruction(),
            eight_bits_multiplied: plan.operation.multiplies() && a.is_eight_bits(),
            panel_terms: panel_terms(a),
            promotes: plan.promotes,
            integers,
            zero: if integers { "0" } else { "0.0f" },
        }
    }
}
