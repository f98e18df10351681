//! The kernel that copies unaligned operands.

use super::{RenderError, engine};
use crate::plan::Repack;
use crate::source::Source;
use serde::Serialize;

/// The name of its entry.
const ENTRY: &str = "postlude_repack";

#[derive(Serialize)]
struct Context {
    element: &'static str,
    units: usize,
    threads: usize,
}

/// The source of the kernel that copies operands. It depends on their format alone.
///
/// # Errors
/// Only if a template of this library is at fault.
pub fn render_repack(repack: &Repack) -> Result<Source, RenderError> {
    let engine = engine().as_ref().map_err(|e| RenderError(e.clone()))?;
    let context = Context { element: repack.dtype.cuda(), units: Repack::UNITS, threads: Repack::THREADS };
    let context = tera::Context::from_serialize(&context).map_err(|e| RenderError(e.to_string()))?;
    let text = engine.render("repack.cu", &context).map_err(|e| RenderError(e.to_string()))?;
    Ok(Source::new(text, ENTRY))
}
