//! What a kernel multiplies, as its template sees it: the formats of A and B, and the instructions for them.

use crate::dtype::{DType, ValueType};
use crate::plan::{KernelPlan, panel_terms, passes_registers, widened};
use crate::problem::Blocks;
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
    /// Whether Hopper's tensor cores read them with K contiguous only.
    lies_along_k: bool,
    /// Terms of K in 128 bytes.
    panel_terms: usize,
    /// Half of them.
    half_panel: usize,
    /// Whether a Hopper kernel reads A through registers.
    passes_registers: bool,
    /// Whether it widens A there, bytes of a line of A in a stage, and whether its rows have scales and zero points.
    widened_a: bool,
    a_line: usize,
    numbers: bool,
    shifted_a: bool,
    /// The formats of scales and zero points, if one of the operands has any.
    scale_type: &'static str,
    zero_type: &'static str,
    /// Whether short sums are added up outside of the tensor cores.
    promotes: bool,
    /// Whether accumulators are integers, and their zero.
    integers: bool,
    zero: &'static str,
    /// Whether an operand of eight or four bits is widened beside one of 16, and what its elements are.
    widened: bool,
    widens: &'static str,
    /// -1, twice, in A's format of 16 bits.
    minus_one: &'static str,
    /// The operands with scales along K; those of B, its zero points, and K elements of its blocks.
    scaled: Vec<Scaled>,
    scaled_b: bool,
    shifted_b: bool,
    terms_b: usize,
    /// Whether an element is more than what is stored for it.
    dequantised: bool,
}

/// The blocks of an operand.
#[derive(Serialize)]
pub(super) struct Scaled {
    is_a: bool,
    name: &'static str,
    zero: bool,
    terms: usize,
    lines: usize,
}

impl Scaled {
    pub(super) fn of(is_a: bool, name: &'static str, blocks: Blocks) -> Scaled {
        Scaled { is_a, name, zero: blocks.zero_points, terms: blocks.terms, lines: blocks.lines }
    }
}

impl Operands {
    pub(super) fn of(plan: &KernelPlan) -> Operands {
        let ([a, b], mixed) = (plan.operation.dtypes(), plan.operation.is_mixed());
        let integers = plan.operation.accumulator() == ValueType::I32;
        let widened = plan.operation.widened();
        let [of_a, of_b] = plan.operation.scales();
        let (multiplied, widened_a) = (plan.operation.multiplied(), plan.staging.is_some() && widened.is_some());
        let scaled: Vec<Scaled> = ["a", "b"]
            .into_iter()
            .zip(plan.operation.scales())
            .filter_map(|(name, blocks)| Some(Scaled::of(name == "a", name, blocks?)))
            .collect();
        Operands {
            element_b: if mixed { "ElementB" } else { "Element" },
            element_of_either: if mixed { "typename ElementOf<IS_A>::Type" } else { "Element" },
            mixed,
            cuda_b: b.cuda(),
            instruction_a: a.instruction(),
            instruction_b: b.instruction(),
            eight_bits_multiplied: plan.operation.multiplies() && multiplied.is_eight_bits(),
            lies_along_k: multiplied.lies_along_k(),
            panel_terms: panel_terms(multiplied),
            half_panel: panel_terms(multiplied) / 2,
            passes_registers: plan.staging.is_some() && passes_registers(plan.operation),
            widened_a,
            a_line: widened::line(&plan.tile, plan.operation),
            numbers: widened_a && of_a.is_some(),
            shifted_a: of_a.is_some_and(|blocks| blocks.zero_points),
            scale_type: of_a.or(of_b).map_or("", |blocks| blocks.dtype.cuda()),
            zero_type: Blocks::zero_format(if of_a.is_some() { a } else { b }).cuda(),
            promotes: plan.promotes,
            integers,
            zero: if integers { "0" } else { "0.0f" },
            widened: widened.is_some(),
            widens: match widened.map(|i| plan.operation.dtypes()[i]) {
                Some(DType::I4 | DType::U4) => "nibbles",
                Some(DType::I8 | DType::U8) => "integers",
                _ => "floats",
            },
            minus_one: if multiplied == DType::BF16 { "0xbf80bf80" } else { "0xbc00bc00" },
            dequantised: widened.is_some() || !scaled.is_empty(),
            scaled,
            scaled_b: of_b.is_some(),
            shifted_b: of_b.is_some_and(|blocks| blocks.zero_points),
            terms_b: of_b.map_or(0, |blocks| blocks.terms),
        }
    }
}
