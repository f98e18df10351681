//! Rows: kernels that use the results of reductions along their rows.
//!
//! Each value has a *stage*: the number of reductions along the row behind it, one behind the other. Threads that share
//! a row read it once and hold it in registers, in the formats of memory. Each stage computes the terms of its
//! reductions from there, and combines them over the row. So memory is read once, and values that stages share are
//! computed again. A row that is too long to be held is read again for each stage, mostly from the L2 cache.
//!
//! Where something is reduced over all rows and columns, a block may hold a whole matrix, and each of its threads gets the
//! result.
//!
//! Behind a product, one kernel does both if a tile of Hopper's mainloop has whole rows: four lanes then hold a row as
//! accumulators. Otherwise several tiles share a row. There the product stores its accumulators, and a second kernel computes
//! the rows, like the kernel that adds up parts of K.
//!
//! What no block has all of is reduced by a kernel of its own, before the one that uses it (`passes.rs`).

use crate::check::Checked;
use crate::ir::axes::{Axes, M, N};
use crate::ir::{Node, Over};
use crate::plan::request::PlanRequest;
use crate::plan::transposed::lies_in_columns;
use crate::problem::{Operation, Shape};

/// Whether an epilogue uses the results of its own reductions.
pub(super) fn reduces(epilogue: &Checked) -> bool {
    epilogue.graph().nodes().any(|(_, node)| matches!(node, Node::Reduce { .. }))
}

/// What reductions inside the graph go over.
pub(super) fn reduced(epilogue: &Checked) -> Vec<Over> {
    let mut all = Vec::new();
    for (_, node) in epilogue.graph().nodes() {
        if let Node::Reduce { over, .. } = node
            && !all.contains(over)
        {
            all.push(*over);
        }
    }
    all
}

/// Whether one kernel computes the transposed problem, because reductions go over M, or over bands of rows.
///
/// # Errors
/// Why one kernel does not compute them.
pub(super) fn is_transposed(operation: Operation, epilogue: &Checked) -> Result<bool, String> {
    let all = reduced(epilogue);
    if let Some(other) = all.iter().find(|over| ![M, N, Axes::MN].contains(&over.axes)) {
        return Err(format!("one goes over {other}, and no block has all batch entries"));
    }
    // The axis along which blocks have all that a reduction takes.
    let along = |over: &Over| match over.band {
        Some((axis, _)) => Some(axis),
        None => Some(over.axes).filter(|axes| *axes != Axes::MN),
    };
    for over in &all {
        let differs = |other: &&Over| {
            let axes = along(over).zip(along(other)).is_some_and(|(one, other)| one != other);
            axes || over.band != other.band
        };
        if let Some(other) = all.iter().find(differs) {
            return Err(format!(
                "one goes over {over} and another over {other}, and blocks have rows, columns or bands of one kind"
            ));
        }
    }
    Ok(all.iter().find_map(along).map_or_else(|| lies_in_columns(operation, epilogue), |axis| axis == M))
}

/// The reductions that the kernels of a plan of several do themselves, beside all others: those over bands of rows, over rows, or
/// over columns.
pub(super) fn inside(request: &PlanRequest<'_>) -> Option<Over> {
    let all = reduced(request.epilogue);
    let lies = |axis| !goes_across_lines(request, axis == M);
    let bands = all.iter().copied().find(|over| over.band.is_some_and(|(axis, _)| over.axes == axis && lies(axis)));
    // Bands of what lies in memory are reduced from results over the other axis.
    let crosses = |axis| all.iter().any(|over| over.band.is_some_and(|(of, _)| of != axis));
    let rows = [N, M].into_iter().filter(|axis| all.contains(&Over::from(*axis)) && lies(*axis) && !crosses(*axis));
    let rows = rows.map(Over::from).next();
    bands.or(rows).filter(|_| request.operation.pooling().is_none())
}

/// Bytes of a matrix from which on it is not read across its lines.
const LARGE: usize = 1 << 20;

/// Whether the matrices are large and lie across the rows that threads would share: each line would be read in pieces.
pub(super) fn goes_across_lines(request: &PlanRequest<'_>, is_transposed: bool) -> bool {
    let Shape { m, n, batch, .. } = request.problem.shape;
    let elements = m.saturating_mul(n).saturating_mul(batch);
    let bytes = elements.saturating_mul(request.operation.accumulator().storage().size().min(request.operation.dtype().size()));
    bytes >= LARGE && lies_in_columns(request.operation, request.epilogue) != is_transposed
}
