//! Rules of some mainloops' tiles that take more than a line.

use crate::dtype::DType;
use crate::plan::Tile;
use crate::problem::{Layout, Operation};

/// Whether a block's threads copy one operand's part of a stage in whole passes. A row of that part is K long if K is
/// contiguous, otherwise M or N. Its copies are as wide as the operand's alignment.
pub(super) fn copies_evenly(extent: usize, bk: usize, k_major: bool, align: usize, dtype: DType, threads: usize) -> bool {
    let (rows, row) = if k_major { (extent, bk * dtype.size()) } else { (bk, extent * dtype.size()) };
    let unit = align.clamp(4, 16);
    let bytes = threads * unit;
    let pass = bytes / row;
    (64..=1024).contains(&row)
        && row.is_power_of_two()
        && bytes.is_multiple_of(row)
        && rows.is_multiple_of(pass)
        && (pass.is_power_of_two() || pass.is_multiple_of(8))
        && (align >= 4 || (align == 2 && dtype.size() == 2))
}

/// The rules of `gemv` for weights of fewer bits. `strips` are those of a tile.
pub(super) fn of_widened_gemv(tile: &Tile, operation: Operation, cluster: usize, strips: usize) -> [(bool, &'static str); 5] {
    let Tile { bm, bn, threads, .. } = *tile;
    let lies = operation.widened() == Some(1) && operation.layout() == Some(Layout::TN);
    [
        (lies, "the operand of fewer bits is B, with K contiguous in both"),
        (matches!(bm, 8 | 16) && matches!(bn, 16 | 32 | 64), "8 or 16 rows by 16, 32 or 64 columns"),
        ([1, 2, 4, 8].contains(&cluster), "a cluster has 1, 2, 4 or 8 blocks"),
        ((32..=1024).contains(&threads), "a block has 32 to 1024 threads"),
        (strips <= threads, "one strip a thread"),
    ]
}

/// Whether Hopper's mainloop scales the operands of a product in tiles of this many columns: 64 columns, or all of the tile,
/// lie in one block.
pub(super) fn takes_scales(operation: Operation, bn: usize) -> bool {
    let whole = |lines: usize| lines == 1 || lines.is_multiple_of(64) && (bn.is_multiple_of(64) || 64 % bn == 0);
    !operation.is_scaled() || whole(operation.scales()[1].map_or(64, |blocks| blocks.lines))
}
