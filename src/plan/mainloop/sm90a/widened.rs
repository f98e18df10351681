//! Weights of fewer bits that Hopper's mainloop widens on their way, through registers: A, beside a B of 16 bits.

use crate::dtype::DType;
use crate::ir::Order;
use crate::plan::{MapSource, Swizzle, TensorMap, Tile, TileShape};
use crate::problem::{Blocks, Operation};

/// K elements in a panel of a stage: 128 bytes, which the swizzle spans.
pub(crate) const fn panel_terms(dtype: DType) -> usize {
    128 / dtype.size()
}

/// The most rows beside weights that are widened in registers. More rows multiply a copy.
pub(crate) const MOST_ROWS: usize = 512;

/// Whether the kernel widens A in registers, if its alignment allows that. Otherwise it multiplies a copy.
pub(crate) fn in_registers(operation: Operation) -> bool {
    let [a, b] = operation.scales();
    let in_panels = |blocks: Blocks| blocks.lines == 1 && blocks.terms.is_multiple_of(panel_terms(operation.multiplied()));
    operation.widened() == Some(0)
        && operation.layout().is_some_and(|layout| layout.a() == Order::RowMajor)
        && a.is_none_or(in_panels)
        && b.is_none()
}

/// Bytes of a line of A in a stage, which TMA fetches as one.
pub(crate) fn line(tile: &Tile, operation: Operation) -> usize {
    match tile.shape {
        TileShape::Sm90a { bk, .. } => operation.dtype().bytes(bk),
        _ => 0,
    }
}

/// Whether such lines can be swizzled, so that lanes meet in no bank.
pub(super) fn has_lines(tile: &Tile, operation: Operation) -> bool {
    matches!(line(tile, operation), 64 | 128)
}

/// The map of A as bytes, if A is widened.
pub(super) fn map(tile: &Tile, operation: Operation) -> Option<TensorMap> {
    let line = line(tile, operation);
    in_registers(operation).then_some(TensorMap {
        source: MapSource::Operand(0),
        dtype: operation.dtype(),
        box_inner: line,
        box_outer: tile.bm,
        swizzle: if line < 128 { Swizzle::B64 } else { Swizzle::B128 },
        required: true,
    })
}

/// Bytes of the scales and zero points of a stage. Where a number has less than four bytes, words of four hold those of the
/// rows, and the first may begin inside of one.
pub(super) fn scale_bytes(tile: &Tile, operation: Operation, bk: usize) -> usize {
    let Some(blocks) = operation.scales()[0] else { return 0 };
    let bytes = |format: DType| {
        let words = (tile.bm * format.size()).div_ceil(4) + usize::from(format.size() < 4);
        (4 * words).next_multiple_of(16)
    };
    let zeros = if blocks.zero_points { bytes(Blocks::zero_format(operation.dtype())) } else { 0 };
    bk / panel_terms(operation.multiplied()) * (bytes(blocks.dtype) + zeros)
}
