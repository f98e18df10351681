//! The rules of each mainloop's configurations. The templates state them as `static_assert`s.

use super::tile::{Schedule, Tile, TileShape};
use crate::dtype::DType;
use crate::ir::Order;
use crate::plan::TMA_UNIT;
use crate::problem::{Layout, Operation};

/// The largest number in a tile, except for the length of rows.
pub(super) const LARGEST: usize = 1 << 16;
const LONGEST_ROW: usize = 1 << 24;

impl Tile {
    /// The mainloop's rule that the configuration breaks, if any. The templates state the rules as `static_assert`s.
    pub(super) fn broken_rule(&self, operation: Operation, alignment: [usize; 2], strip: usize) -> Option<&'static str> {
        let Tile { bm, bn, threads, .. } = *self;
        if !self.numbers().into_iter().all(|number| (1..=LARGEST).contains(&number)) {
            return Some("every number of a tile is from 1 to 65536");
        }
        let strips = bn / strip;
        let whole_rows = |rows: usize| threads.is_multiple_of(strips) && rows > 0 && rows.is_multiple_of(threads / strips);
        let first_broken = |rules: &[(bool, &'static str)]| rules.iter().find(|(holds, _)| !holds).map(|(_, rule)| *rule);
        if let TileShape::Sm90a { bk, consumers, schedule, cluster, splits_k, .. } = self.shape {
            let ping_pong = schedule == Schedule::PingPong;
            let rows = self.consumer_rows();
            let (a, Some(layout)) = (operation.dtype(), operation.layout()) else { return Some("it multiplies") };
            let patches_rule = self.broken_rule_of_patches(operation);
            let halves = |extent: usize, k_major: bool, shared: usize| shared == 1 || !k_major || extent.is_multiple_of(16);
            return first_broken(&[
                (matches!(consumers, 1 | 2) && (!ping_pong || consumers == 2), "one or two consumers, two for ping-pong"),
                (
                    threads == 128 * (1 + consumers) && self.min_blocks == 1,
                    "a producer and the consumers, one block a multiprocessor",
                ),
                (rows > 0 && rows.is_multiple_of(64) && bm.is_multiple_of(rows) && bm <= 256, "a consumer's rows come by 64"),
                ((8..=256).contains(&self.multiplied_columns()) && bn.is_multiple_of(8), "8 to 256 columns, by 8"),
                (
                    !a.is_eight_bits() || a.sums_coarsely() || bn < 32 || bn.is_multiple_of(16),
                    "8, 16 or 24 columns, or more by 16, of integers",
                ),
                (self.multiplied() <= 200, "a thread holds at most 200 accumulators"),
                (bk > 0 && (bk * a.size()).is_multiple_of(128), "K comes by 128 bytes"),
                (!a.is_eight_bits() || layout == Layout::TN, "operands of eight bits lie with K contiguous"),
                (splits_k || matches!(cluster, [1, 1] | [2, 1] | [1, 2]), "a cluster is one block or two"),
                (!splits_k || matches!(cluster, [1, 2 | 4]), "two or four blocks along N share K"),
                (!splits_k || !ping_pong, "blocks that share K have consumers that share the tile"),
                (!splits_k || !a.is_eight_bits(), "blocks share K of 16-bit operands"),
                (
                    splits_k
                        || halves(bm, layout.a() == Order::RowMajor, cluster[1])
                            && halves(bn, layout.b() == Order::ColumnMajor, cluster[0]),
                    "blocks of a cluster fetch whole halves",
                ),
                (alignment.iter().all(|a| *a >= TMA_UNIT), "TMA copies operands aligned to 16 bytes"),
                (takes_scales(operation, bn), "each 64 columns of a tile lie in one block of scales"),
                (patches_rule.is_none(), patches_rule.unwrap_or_default()),
            ]);
        }
        if let TileShape::Rows { group, span, together, .. } = self.shape {
            let at_once = (threads / group.max(1)).max(1) * together.max(1);
            return first_broken(&[
                (
                    [threads, group, together].iter().all(|x| x.is_power_of_two()),
                    "threads, groups of them and rows together are powers of two",
                ),
                ((32..=1024).contains(&threads) && group <= threads, "a block has 32 to 1024 threads, and whole groups"),
                (
                    span > 0 && span.is_multiple_of((group * strip).max(8)) && bn.is_multiple_of(span),
                    "a group's strips cover a row in whole spans",
                ),
                (bn <= LONGEST_ROW, "a row has at most 16777216 columns"),
                (
                    bm.is_multiple_of(at_once) && (bn == span || bm == at_once),
                    "a tile has whole batches of rows, and one where they are read again",
                ),
            ]);
        }
        if matches!(self.shape, TileShape::Bands { .. } | TileShape::Depthwise { .. }) {
            return self.broken_rule_of_direct(operation, strip);
        }
        if bn < 8 || strip > bn || !bn.is_multiple_of(strip) || ![bm, bn, threads].iter().all(|x| x.is_power_of_two()) {
            return Some(
                "extents and threads are powers of two, strips divide the columns, and eight columns share a byte of a mask",
            );
        }
        match self.shape {
            TileShape::Simt { bk, tm, tn } => {
                let powers = [bk, tm, tn].iter().all(|x| x.is_power_of_two());
                let lanes_n = (bn / tn.max(1)).clamp(1, 8);
                first_broken(&[
                    (powers && tm >= 4 && tn >= 4 && bk >= 8, "a thread owns at least 4 x 4"),
                    ((32..=1024).contains(&threads) && threads * tm * tn == bm * bn, "whole warps own the tile"),
                    (bm.is_multiple_of(32 / lanes_n * tm) && bn.is_multiple_of(lanes_n * tn), "whole warps cover the tile"),
                    ((bm * bk).is_multiple_of(threads) && (bn * bk).is_multiple_of(threads), "threads share the loads evenly"),
                    (whole_rows(bm / (tm / 4).max(1)), "threads visit whole rows"),
                ])
            }
            TileShape::Sm80 { bk, stages, warps_m, warps_n } => {
                let (dtype, Some(layout)) = (operation.dtype(), operation.layout()) else { return Some("it multiplies") };
                let k_major = [layout.a() == Order::RowMajor, layout.b() == Order::ColumnMajor];
                let steps = bk * dtype.size() / 32;
                if dtype.is_eight_bits() && layout != Layout::TN {
                    return Some("operands of eight bits lie with K contiguous");
                }
                if operation.is_scaled() && !bk.is_multiple_of(128) {
                    return Some("a stage has whole pieces of 128 elements of K, which are scaled");
                }
                let operands = [(bm, k_major[0], alignment[0]), (bn, k_major[1], alignment[1])];
                first_broken(&[
                    (threads == 32 * warps_m * warps_n, "its warps are those of the block"),
                    (bm.is_multiple_of(16 * warps_m), "a warp's rows are whole fragments"),
                    ([32, 64, 128].contains(&(bn / warps_n)), "a warp's columns are 32, 64 or 128"),
                    (steps >= 2 && steps.is_multiple_of(2) && stages >= 2, "both double buffers have something to alternate"),
                    (
                        operands
                            .iter()
                            .all(|&(extent, k_major, align)| copies_evenly(extent, bk, k_major, align, dtype, threads)),
                        "copies cover a stage evenly",
                    ),
                ])
            }
            TileShape::Gemv { cluster } => {
                let (dtype, Some(layout)) = (operation.dtype(), operation.layout()) else { return Some("it multiplies") };
                if operation.widened().is_some() {
                    return first_broken(&of_widened_gemv(self, operation, cluster, bm * strips));
                }
                let vector = 16 / dtype.size();
                let columns = if layout.b() == Order::ColumnMajor { bn } else { vector };
                first_broken(&[
                    ([1, 2, 4, 8].contains(&cluster), "a cluster has 1, 2, 4 or 8 blocks"),
                    ((32..=1024).contains(&threads), "a block has 32 to 1024 threads"),
                    (bn.is_multiple_of(columns) && bn / columns <= 32, "a warp covers the columns"),
                    (columns <= 16 && bm * columns <= 64, "a thread holds at most 64 sums"),
                    (bm * strips <= threads, "one strip a thread"),
                ])
            }
            TileShape::Sm90a { .. } | TileShape::Rows { .. } | TileShape::Bands { .. } | TileShape::Depthwise { .. } => None,
            TileShape::Pointwise => first_broken(&[(whole_rows(bm), "threads visit whole rows")]),
        }
    }
}

/// Whether a block's threads copy one operand's part of a stage in whole passes. A row of that part is K long if K is
/// contiguous, otherwise M or N. Its copies are as wide as the operand's alignment.
fn copies_evenly(extent: usize, bk: usize, k_major: bool, align: usize, dtype: DType, threads: usize) -> bool {
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
