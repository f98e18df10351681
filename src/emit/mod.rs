//! Emission: a plan printed as CUDA. A pure function of the plan; the only user of the template engine.
//!
//! Values are printed from the table's spellings (`printer`); everything around them is a template that loops and tests
//! booleans and never looks at an operator. Names in the text are ours (`v7`, `arg2`): no string of the user's reaches it,
//! except the spelling of a custom primitive, which the user's program brought.

mod printer;

use crate::ir::Coordinate;
use crate::ir::axes::{L, M};
use crate::ir::{Operand, Order};
use crate::plan::{KernelPlan, Phase, StepKind, lies_along_columns};
use crate::problem::Operation;
use crate::source::Source;
use printer::Printer;
use serde::Serialize;
use std::sync::OnceLock;
use tera::Tera;

/// The name of every kernel's entry.
pub const ENTRY: &str = "postlude_kernel";

macro_rules! templates {
    ($($name:literal),* $(,)?) => { [$(($name, include_str!(concat!("../../templates/", $name)))),*] };
}

static TEMPLATES: [(&str, &str); 13] = templates![
    "kernel.cu",
    "prelude/types.cuh",
    "prelude/memory.cuh",
    "prelude/math.cuh",
    "prelude/strip.cuh",
    "prelude/raster.cuh",
    "prelude/tensor_core.cuh",
    "epilogue/params.cuh",
    "epilogue/values.cuh",
    "epilogue/phases.cuh",
    "mainloop/simt.cuh",
    "mainloop/sm80.cuh",
    "mainloop/pointwise.cuh",
];

fn engine() -> &'static Result<Tera, String> {
    static ENGINE: OnceLock<Result<Tera, String>> = OnceLock::new();
    ENGINE.get_or_init(|| {
        let mut tera = Tera::new();
        tera.autoescape_on(Vec::<&'static str>::new());
        tera.add_raw_templates(TEMPLATES).map_err(|e| e.to_string())?;
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
    /// Type of the widened value.
    value_type: &'static str,
    /// Address of the operand, batch entry included.
    base: String,
    /// Leading dimension, if it is a matrix.
    ld: Option<String>,
    /// Whether the strip is a run of consecutive elements.
    along_strip: bool,
    /// Whether it varies along M.
    rows: bool,
    /// The flag that says whether wide accesses are aligned.
    wide: String,
    /// Where a mainloop that stages operands in shared memory keeps this one.
    staged_at: usize,
    /// Which node of the graph it is.
    node: String,
}

#[derive(Serialize)]
struct Pointer {
    name: String,
    declaration: String,
    base: String,
    stride: String,
}

#[derive(Serialize)]
struct Member {
    declaration: String,
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
    mainloop: &'static str,
    tensor_cores: bool,
    product: bool,
    element: &'static str,
    accumulator: &'static str,
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
    params: Vec<String>,
    batch_pointers: Vec<Pointer>,
    tile_members: Vec<Member>,
    column_members: Vec<Member>,
    row_members: Vec<Member>,
    fetches: Vec<Access>,
    tile: Vec<String>,
    column: Vec<String>,
    row: Vec<String>,
    visit: Vec<String>,
    column_loads: Vec<Access>,
    row_loads: Vec<Access>,
    tile_loads: Vec<Access>,
    stores: Vec<Access>,
}

/// The source of a plan's kernel.
///
/// # Errors
/// Only if a template of this library is at fault.
pub fn render(plan: &KernelPlan) -> Result<Source, RenderError> {
    let engine = engine().as_ref().map_err(|e| RenderError(e.clone()))?;
    let context = tera::Context::from_serialize(&context(plan)).map_err(|e| RenderError(e.to_string()))?;
    let text = engine.render("kernel.cu", &context).map_err(|e| RenderError(e.to_string()))?;
    Ok(Source::new(resume_lines(&text), ENTRY))
}

/// Gives the lines after a marked statement their own numbers back.
fn resume_lines(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for (index, line) in text.lines().enumerate() {
        if line == printer::RESUME {
            // The directive names the line that follows it; lines count from 1.
            out.push_str(&format!("#line {} \"kernel.cu\"", index + 2));
        } else {
            out.push_str(line);
        }
        out.push('\n');
    }
    out
}

fn context(plan: &KernelPlan) -> Context {
    let program = &plan.program;
    let printer = Printer::new(plan);
    let (a_k_major, b_k_major, acc_row_major) = match plan.operation {
        Operation::Product { layout, .. } => (layout.a() == Order::RowMajor, layout.b() == Order::ColumnMajor, true),
        Operation::Pointwise { order, .. } => (true, true, order == Order::RowMajor),
    };
    let access = |step: usize| match program.steps[step].kind {
        StepKind::Load { argument, operand } => Some(printer.access(step, argument, operand)),
        _ => None,
    };
    let loads = |phase: Phase| program.of_phase(phase).filter_map(access).collect();
    let members = |phase: Phase| {
        let list =
            program.of_phase(phase).map(|step| Member { declaration: printer.declaration(step), node: printer.note(step) });
        list.collect()
    };
    let batch_pointers = plan.arguments.iter().enumerate().filter_map(|(i, argument)| {
        let operand = argument.role.operand().filter(|o| o.axes.contains(L))?;
        plan.params.fields.iter().any(|f| f.name == format!("arg{i}")).then(|| Pointer {
            name: format!("p{i}"),
            declaration: format!("{}{}*", if argument.role.is_written() { "" } else { "const " }, operand.dtype.cuda()),
            base: format!("p.arg{i}"),
            stride: format!("p.arg{i}_batch_stride"),
        })
    });
    Context {
        about: vec![
            format!("{} for {}", plan.tile, plan.target),
            format!("math: {}; strips of {}", if plan.fast_math { "fast" } else { "exact" }, plan.strip),
        ],
        mainloop: plan.tile.mainloop().name(),
        tensor_cores: plan.tile.mainloop() == crate::plan::Mainloop::Sm80,
        product: matches!(plan.operation, Operation::Product { .. }),
        element: plan.operation.dtype().cuda(),
        accumulator: plan.operation.accumulator().cuda(),
        a_k_major,
        b_k_major,
        acc_row_major,
        a_align: plan.alignment[0],
        b_align: plan.alignment[1],
        strip: plan.strip,
        epilogue_smem: 0,
        visit_cost: program.cost() as usize * plan.strip,
        constants: plan.tile.constants().into_iter().map(|(name, value)| Constant { name, value }).collect(),
        params: plan.params.fields.iter().map(|f| format!("{}{};", f.field_type.cuda(), f.name)).collect(),
        batch_pointers: batch_pointers.collect(),
        tile_members: members(Phase::Tile),
        column_members: members(Phase::Column),
        row_members: members(Phase::Row),
        fetches: loads(Phase::Visit),
        tile: printer.phase(Phase::Tile),
        column: printer.phase(Phase::Column),
        row: printer.phase(Phase::Row),
        visit: printer.visit(),
        column_loads: loads(Phase::Column),
        row_loads: loads(Phase::Row),
        tile_loads: loads(Phase::Tile),
        stores: program.stores.iter().enumerate().map(|(i, s)| printer.store(i, s)).collect(),
    }
}

/// Where an operand's element lies: its base address and, for a matrix, its leading dimension.
fn place(printer: &Printer, value: String, node: String, argument: usize, operand: Operand) -> Access {
    let axes = operand.axes;
    let along_strip = lies_along_columns(axes, operand.order);
    Access {
        value,
        node,
        dtype: operand.dtype.cuda(),
        value_type: operand.dtype.value_type().cuda(),
        base: printer.base(argument, operand),
        ld: axes.is_matrix().then(|| format!("p.arg{argument}_ld")),
        along_strip,
        rows: axes.contains(M),
        wide: if along_strip { format!("p.arg{argument}_wide") } else { "0".into() },
        staged_at: 0,
    }
}

/// The expression of a coordinate inside a phase's function.
fn coordinate(coordinate: Coordinate) -> String {
    match coordinate {
        Coordinate::Row => "(s.row + p.origin_row)".into(),
        Coordinate::Column => "(s.at(i) + p.origin_column)".into(),
        Coordinate::Batch => "(t.batch + p.origin_batch)".into(),
    }
}
