//! Rows: kernels that use the results of reductions along their rows.
//!
//! Each value has a *stage*: the number of reductions along the row behind it, one behind the other. Threads that share
//! a row read it once and hold it in registers, in the formats of memory. Each stage computes the terms of its
//! reductions from there, and combines them over the row. So memory is read once, and values that stages share are
//! computed again. A row that is too long to be held is read again for each stage, mostly from the L2 cache.
//!
//! Behind a product, one kernel does both if a tile of Hopper's mainloop has whole rows: four lanes then hold a row as
//! accumulators. Otherwise several tiles share a row. There the product stores its accumulators, and a second kernel computes
//! the rows, like the kernel that adds up parts of K.

use super::PlanError;
use crate::check::Checked;
use crate::ir::axes::{M, N};
use crate::ir::name::word;
use crate::ir::{Node, SinkKind};

/// Whether an epilogue uses the results of its own reductions.
pub(super) fn reduces(epilogue: &Checked) -> bool {
    epilogue.graph().nodes().any(|(_, node)| matches!(node, Node::Reduce { .. }))
}

/// Whether the kernel computes the transposed problem, because reductions go over M.
///
/// # Errors
/// If reductions go over anything else, or a vector is stored along the reduced axis.
pub(super) fn is_transposed(epilogue: &Checked) -> Result<bool, PlanError> {
    let refused = |why: String| PlanError::Reduction { why };
    let mut axes = epilogue.graph().nodes().filter_map(|(_, node)| match node {
        Node::Reduce { over, .. } => Some(*over),
        _ => None,
    });
    let over = axes.next().unwrap_or(N);
    if ![M, N].contains(&over) {
        return Err(refused(format!("one goes over {over}, and kernels have those over N alone or M alone")));
    }
    if let Some(other) = axes.find(|other| *other != over) {
        return Err(refused(format!("one goes over {over} and another over {other}, and a kernel has those over one axis")));
    }
    let vectors = epilogue.graph().sinks().iter().filter(|sink| matches!(sink.kind, SinkKind::Store(_)));
    let mut along = vectors.filter(|sink| {
        let axes = sink.kind.operand().axes;
        !axes.is_matrix() && axes.contains(over)
    });
    match along.next() {
        Some(sink) => Err(refused(format!("`{}` is a vector over {over}, the axis that is reduced over", word(&sink.name)))),
        None => Ok(over == M),
    }
}
