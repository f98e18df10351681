//! The kernel that copies unaligned operands.

use super::operands::Scaled;
use super::{RenderError, engine};
use crate::dtype::DType;
use crate::plan::Repack;
use crate::problem::Blocks;
use crate::source::Source;
use serde::Serialize;

/// The name of its entry.
const ENTRY: &str = "postlude_repack";

#[derive(Serialize)]
struct Context {
    element: &'static str,
    units: usize,
    threads: usize,
    transposes: bool,
    tile: usize,
    transposed_a: bool,
    transposed_b: bool,
    /// Whether one operand is widened, which one, and what it is in memory.
    widened: bool,
    second: bool,
    narrow: &'static str,
    k_contiguous: bool,
    scaled: Vec<Scaled>,
    scale: &'static str,
    zero_point: &'static str,
    eight_bits: bool,
}

/// The source of the kernel that copies operands. It depends on their format, and on which of them it transposes.
///
/// # Errors
/// Only if a template of this library is at fault.
pub fn render_repack(repack: &Repack) -> Result<Source, RenderError> {
    let engine = engine().as_ref().map_err(|e| RenderError(e.clone()))?;
    let [transposed_a, transposed_b] = repack.transposed;
    let widened = repack.widened;
    let blocks = widened.and_then(|widened| widened.blocks);
    let context = Context {
        // Copies look at no number, and of eight bits one byte is like another.
        element: if repack.dtype.is_eight_bits() { DType::Bool.cuda() } else { repack.dtype.cuda() },
        units: Repack::UNITS,
        threads: Repack::THREADS,
        transposes: transposed_a || transposed_b,
        tile: Repack::TILE,
        transposed_a,
        transposed_b,
        widened: widened.is_some(),
        second: widened.is_some_and(|widened| widened.operand == 1),
        narrow: widened.map_or("u8", |widened| widened.from.cuda()),
        k_contiguous: widened.is_some_and(|widened| widened.k_contiguous),
        scaled: blocks.into_iter().map(|blocks| Scaled::of(false, "w", blocks)).collect(),
        scale: blocks.map_or("float", |blocks| blocks.dtype.cuda()),
        zero_point: widened.map_or("u8", |widened| Blocks::zero_format(widened.from).cuda()),
        eight_bits: widened.is_some(),
    };
    let context = tera::Context::from_serialize(&context).map_err(|e| RenderError(e.to_string()))?;
    let text = engine.render("repack.cu", &context).map_err(|e| RenderError(e.to_string()))?;
    Ok(Source::new(text, ENTRY))
}
