//! Emission: a plan printed as CUDA. A pure function of the plan; the only user of the template engine.
//!
//! Values are printed from the table's spellings (`printer`); everything around them is a template that loops and tests
//! booleans and never looks at an operator. Names in the text are ours (`v7`, `arg2`): no string of the user's reaches it,
//! except the spelling of a custom primitive, which the user's program brought.

mod calls;
mod hopper;
mod monoids;
mod operands;
mod patches;
mod phases;
mod printer;
mod reduce;
mod repack;
mod rows;
mod scores;
mod sums;
mod templates;
mod wgmma;

pub use repack::render_repack;

use crate::ir::Coordinate;
use crate::ir::axes::M;
use crate::ir::{Operand, Order};
use crate::plan::{self, FieldValue, InstrKind, KernelPlan, Staging, has_wide, lies_along_columns};
use crate::problem::{Layout, Operation};
use crate::source::Source;
use operands::Operands;
use printer::{Part, Printer};
use serde::Serialize;
use std::fmt::Write as _;
use std::sync::OnceLock;
use tera::Tera;

/// The name of every kernel's entry.
pub const ENTRY: &str = "postlude_kernel";

fn engine() -> &'static Result<Tera, String> {
    static ENGINE: OnceLock<Result<Tera, String>> = OnceLock::new();
    ENGINE.get_or_init(|| {
        let mut tera = Tera::new();
        tera.autoescape_on(Vec::<&'static str>::new());
        // Whatever the line ends of this checkout are: the text is what kernels are cached by.
        tera.add_raw_templates(templates::ALL.iter().map(|(name, text)| (*name, text.replace('\r', ""))))
            .map_err(|e| e.to_string())?;
        Ok(tera)
    })
}

/// Why a plan could not be printed: a defect of this library, not of the plan.
#[derive(Clone, Debug, thiserror::Error)]
#[error("a template does not fit its plan (please report this): {0}")]
pub struct RenderError(String);

/// A load or store as a template sees it.
#[derive(Serialize)]
struct Access {
    /// The value's name.
    value: String,
    /// Storage type.
    dtype: &'static str,
    /// Type of the widened value, or of the one that is stored.
    value_type: &'static str,
    /// Address of the operand, batch entry included.
    base: String,
    /// Leading dimension, if it is a matrix.
    ld: Option<String>,
    /// Whether the strip is a run of consecutive elements.
    along_strip: bool,
    /// Whether it varies along M.
    rows: bool,
    /// Whether its elements are bits.
    packed: bool,
    /// The flag that says whether wide accesses are aligned.
    wide: String,
    /// What every element is where a launch leaves the operand out, if it may.
    default: Option<String>,
    /// The address that is null then.
    given: String,
    /// Where a mainloop that stages operands in shared memory keeps this one.
    staged_at: usize,
    /// Which node of the graph it is.
    node: String,
}

/// A table of counts as a template sees it.
#[derive(Serialize)]
struct CountAccess {
    /// The index of the entry that grows.
    value: String,
    /// Address of the table.
    base: String,
    /// The number of its entries.
    length: String,
    /// Which count it is.
    node: String,
}

#[derive(Serialize)]
struct Constant {
    name: &'static str,
    value: usize,
}

#[derive(Serialize)]
struct Context {
    about: Vec<String>,
    fast: bool,
    mainloop: &'static str,
    /// Whether it reads images from bands of lines.
    reads_bands: bool,
    product: bool,
    #[serde(flatten)]
    patches: patches::Reads,
    /// Whether the accumulator is an attention.
    attention: bool,
    attention_wgmma: Option<wgmma::AttentionWgmma>,
    /// What scores of an attention become, as functions in a namespace of their own.
    scores: Option<String>,
    /// Whether these leave some blocks of keys hidden that a tile knows.
    bounded: bool,
    /// Where a block of keys begins, and ends.
    block_key: &'static str,
    block_end: &'static str,
    /// Whether the accumulator is a pool of images.
    pool: bool,
    /// Whether it runs under the end of the kernels before it.
    /// Of how many matrices a pointwise kernel's accumulator is the sum.
    parts: usize,
    cluster_size: usize,
    /// Whether tiles are computed in the opposite order.
    backwards: bool,
    /// Whether the blocks of a cluster share K.
    splits_k: bool,
    /// Whether a launch fetches the weights of few rows ahead, which are A or B.
    weights_a: bool,
    weights_b: bool,
    constant_a: bool,
    constant_b: bool,
    element: &'static str,
    #[serde(flatten)]
    operands: Operands,
    accumulator: &'static str,
    /// Bytes of one.
    accumulator_bytes: usize,
    /// Whether any value is an `f64`.
    doubles: bool,
    /// Whether any format is a number of eight bits.
    eight_bits: bool,
    /// Whether any operand has elements of one bit.
    packed: bool,
    packed_accumulator: bool,
    /// Whether a launch may leave out an operand that is loaded.
    optional: bool,
    /// Whether the epilogue reads the accumulator.
    reads_accumulator: bool,
    a_k_major: bool,
    b_k_major: bool,
    acc_row_major: bool,
    a_align: usize,
    b_align: usize,
    strip: usize,
    epilogue_smem: usize,
    /// Issue slots of one visit, roughly.
    visit_cost: usize,
    constants: Vec<Constant>,
    /// The functions that are called.
    calls: Vec<calls::Call>,
    /// Whether the program's own monoids call some of them, which then come first.
    monoids_call: bool,
    #[serde(flatten)]
    hopper_kernel: hopper::Hopper,
    #[serde(flatten)]
    phases: phases::Phases,
    #[serde(flatten)]
    reduced: reduce::Reduced,
    #[serde(flatten)]
    rows: rows::Rows,
    #[serde(flatten)]
    sums: sums::Sums,
}

/// The source of a plan's kernel.
///
/// # Errors
/// Only if a template of this library is at fault.
pub fn render(plan: &KernelPlan) -> Result<Source, RenderError> {
    let engine = engine().as_ref().map_err(|e| RenderError(e.clone()))?;
    let scores = scores::render(plan, engine)?;
    let context = tera::Context::from_serialize(&context(plan, scores)).map_err(|e| RenderError(e.to_string()))?;
    // Sources that outgrow it are moved, which takes longer than most loops of their templates.
    let mut text = Vec::with_capacity(96 << 10);
    engine.render_to("kernel.cu", &context, &mut text).map_err(|e| RenderError(e.to_string()))?;
    let mut text = String::from_utf8(text).map_err(|e| RenderError(e.to_string()))?;
    if plan.steps().any(|step| matches!(step.kind, InstrKind::Custom { .. })) {
        text = resume_lines(&text);
    }
    if !text.ends_with('\n') {
        text.push('\n');
    }
    Ok(Source::new(text, ENTRY).expecting(plan.compile_time()))
}

/// Gives the lines after a marked statement their own numbers back. From mark to mark: they are few.
fn resume_lines(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + text.len() / 8);
    let (mut line, mut rest, mut scanned) = (1, text, 0);
    // A sign that few lines begin with is found faster than a line.
    while let Some(at) = rest[scanned..].find('#').map(|at| scanned + at) {
        let marked = rest[at..].strip_prefix(printer::RESUME).and_then(|after| after.strip_prefix('\n'));
        let (Some(after), true) = (marked, at == 0 || rest.as_bytes()[at - 1] == b'\n') else {
            scanned = at + 1;
            continue;
        };
        // The directive names the line that follows it; lines count from 1.
        line += rest[..at].bytes().filter(|byte| *byte == b'\n').count() + 1;
        out.push_str(&rest[..at]);
        let _ = writeln!(out, "#line {line} \"kernel.cu\"");
        (rest, scanned) = (after, 0);
    }
    out + rest
}

fn context(plan: &KernelPlan, scores: Option<String>) -> Context {
    let program = &plan.program;
    let printer = Printer::new(Part::of_epilogue(plan));
    let (a_k_major, b_k_major, acc_row_major) = match plan.operation {
        Operation::Pool { .. } => (true, true, true),
        Operation::Pointwise { order, .. } => (true, true, order == Order::RowMajor),
        product => {
            let layout = product.layout().unwrap_or(Layout::TN);
            (layout.a() == Order::RowMajor, layout.b() == Order::ColumnMajor, true)
        }
    };
    let bounded = plan.scores.as_ref().is_some_and(|scores| !scores.bounds.is_empty());
    let packed_accumulator = !plan.operation.multiplies() && plan.operation.dtype().is_packed();
    let mut constants = plan.tile.constants(plan.operation.dtype(), !program.sums.is_empty());
    constants.extend(plan.tile.patch_constants(plan.operation));
    constants.extend(plan.operation.pooling().iter().flat_map(plan::pool_constants));
    constants.extend(plan.staging.iter().flat_map(Staging::constants));
    if !program.sums.is_empty() {
        constants.push(("MOST_PARTS", plan::MOST_PARTS));
    }
    let constants = constants.into_iter().map(|(name, value)| Constant { name, value });
    Context {
        about: vec![
            format!("{} for {}", plan.tile, plan.target),
            format!("math: {}; strips of {}", if plan.fast_math { "fast" } else { "exact" }, plan.strip),
        ],
        fast: plan.fast_math,
        mainloop: plan.tile.mainloop().name(),
        reads_bands: plan.reads_bands(),
        parts: plan.split.as_ref().map_or(1, |split| split.parts),
        cluster_size: plan.tile.cluster(),
        backwards: plan.backwards,
        splits_k: plan.tile.parts() > 1,
        weights_a: plan.weights == Some(0),
        weights_b: plan.weights == Some(1),
        constant_a: plan.constant[0],
        constant_b: plan.constant[1],
        product: plan.operation.multiplies(),
        patches: patches::Reads::of(plan),
        attention: plan.operation.attention().is_some(),
        attention_wgmma: wgmma::AttentionWgmma::of(plan),
        scores,
        bounded,
        block_key: if bounded { "keys.base + block * KEYS" } else { "block * KEYS" },
        block_end: if bounded { "keys.base + (block + 1) * KEYS" } else { "(block + 1) * KEYS" },
        pool: plan.operation.pooling().is_some(),
        element: plan.operation.dtype().cuda(),
        operands: Operands::of(plan),
        accumulator: plan.operation.accumulator().cuda(),
        accumulator_bytes: plan.operation.accumulator().storage().size(),
        doubles: plan.has_doubles(),
        eight_bits: plan.has_eight_bits(),
        packed: packed_accumulator || plan.all_arguments().any(|a| a.role.operand().is_some_and(|o| o.dtype.is_packed())),
        packed_accumulator,
        optional: [Some(Part::of_epilogue(plan)), Part::of_scores(plan)].into_iter().flatten().any(|part| part.is_optional()),
        reads_accumulator: program.steps.iter().any(|step| matches!(step.kind, InstrKind::Accumulator)),
        a_k_major,
        b_k_major,
        acc_row_major,
        a_align: plan.alignment[0],
        b_align: plan.alignment[1],
        strip: plan.strip,
        epilogue_smem: plan.parts().bytes,
        visit_cost: program.cost(plan.fast_math) as usize * plan.strip,
        constants: constants.chain(reduce::constants(plan)).collect(),
        calls: calls::calls(&Part::of_epilogue(plan)),
        monoids_call: plan.code.calls_forks,
        hopper_kernel: hopper::Hopper::of(plan, &printer),
        phases: phases::Phases::of(&plan.params, &printer),
        reduced: reduce::Reduced::of(plan, &printer),
        rows: rows::Rows::of(plan, &printer),
        sums: sums::Sums::of(plan, &printer),
    }
}

/// What a launch puts into a field.
fn param(value: FieldValue) -> String {
    format!("p.{value}")
}

/// Where an operand's element lies: its base address and, for a matrix, its leading dimension.
fn place(printer: &Printer, value: String, node: String, argument: usize, operand: Operand, staged_at: usize) -> Access {
    let axes = operand.axes;
    let along_strip = lies_along_columns(axes, operand.order);
    Access {
        value,
        node,
        dtype: operand.dtype.cuda(),
        value_type: operand.dtype.value_type().cuda(),
        base: printer.base(argument, operand),
        ld: axes.is_matrix().then(|| param(FieldValue::Ld(printer.part.number(argument)))),
        along_strip,
        rows: axes.contains(M),
        packed: operand.dtype.is_packed(),
        wide: if has_wide(operand) { param(FieldValue::Wide(printer.part.number(argument))) } else { "0".into() },
        default: printer.default(argument).map(printer::literal),
        given: param(FieldValue::Pointer(printer.part.number(argument))),
        staged_at,
    }
}

/// The expression of a coordinate inside a phase's function. Those of scores are counted from 0.
fn coordinate(coordinate: Coordinate, of_scores: bool) -> String {
    match coordinate {
        Coordinate::Sequence => "t.sequence".into(),
        Coordinate::Row if of_scores => "s.row".into(),
        Coordinate::Column if of_scores => "s.at(i)".into(),
        Coordinate::Batch if of_scores => "t.batch".into(),
        Coordinate::Row => "(s.row + p.origin_row)".into(),
        Coordinate::Column => "(s.at(i) + p.origin_column)".into(),
        Coordinate::Batch => "(t.batch + p.origin_batch)".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_get_their_numbers_back() {
        let mark = printer::RESUME;
        for text in [
            String::from("a\nb\n"),
            String::from("a\n# b\n#"),
            format!("{mark}\na\n"),
            format!("a\n  {mark}\n#pragma\n{mark}\n{mark}\nb\n{mark} x\n{mark}\n"),
            format!("\u{e4}\n{mark}\n\u{e4}"),
        ] {
            let numbered = text.lines().enumerate().map(|(index, line)| match line == mark {
                true => format!("#line {} \"kernel.cu\"\n", index + 2),
                false => format!("{line}\n"),
            });
            let numbered: String = numbered.collect();
            let expected = if text.ends_with('\n') { &numbered } else { numbered.trim_end_matches('\n') };
            assert_eq!(resume_lines(&text), expected, "{text}");
        }
    }
}
