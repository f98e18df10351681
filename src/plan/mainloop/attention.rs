//! `attention`: softmax of scores times values, on the tensor cores of `sm80` (`templates/mainloop/attention.cuh`).
//!
//! A block has some queries. It goes through the keys and values of their sequence in blocks, and keeps the largest score of
//! each query and the sum of its weights as it goes. So scores are never in memory.

use super::direct::waves;
use super::name::Mainloop;
use super::patches::needs_order;
use super::rules::{Asked, Number, Rules, Tried, first_broken};
use super::tile::{Tile, TileShape};
use crate::dtype::DType;
use crate::plan::Reason;
use crate::plan::code::{Copied, Copies, Price, Priced};
use crate::plan::epilogue::reduce::Unit;
use crate::plan::request::TileRequest;
use crate::problem::{Operation, Shape};
use crate::target::Target;

/// Its rules.
pub(super) struct Attention;

/// The most elements of a query for which there are registers.
const WIDEST: usize = 128;
/// The most rows of a tile.
const LARGEST_TILE: usize = 128;
/// Registers that a thread has at most, and those that a function of scores takes.
const MOST_REGISTERS: usize = 255;
const OF_FUNCTION: usize = 16;
/// Elements of a query, and columns of the values, that a kernel is made for.
const WIDTHS: [usize; 3] = [32, 64, WIDEST];

/// A candidate: queries of a block, warps, keys that it goes through at a time, blocks of a multiprocessor, how it multiplies,
/// and what a query costs, relative to others. Where there are two numbers, the second is for more than 64 elements or columns.
struct Shaped {
    bm: usize,
    warps: usize,
    keys: usize,
    blocks: [usize; 2],
    wgmma: bool,
    cost: [f64; 2],
}

const fn shaped(bm: usize, warps: usize, keys: usize, blocks: [usize; 2], wgmma: bool, cost: [f64; 2]) -> Shaped {
    Shaped { bm, warps, keys, blocks, wgmma, cost }
}

/// The candidates. Costs are those of 4096 and 2048 keys on an H200 (`docs/measurements/0055-attention.md`).
static SHAPED: [Shaped; 8] = [
    shaped(128, 4, 64, [2, 2], false, [1.0, 1.0]),
    shaped(128, 8, 64, [2, 1], false, [1.13, 1.28]),
    shaped(64, 4, 64, [4, 2], false, [1.10, 1.19]),
    shaped(32, 2, 64, [6, 3], false, [1.21, 1.38]),
    shaped(128, 8, 64, [2, 1], true, [0.87, 1.05]),
    shaped(64, 4, 64, [4, 2], true, [0.86, 0.95]),
    shaped(128, 8, 128, [1, 1], true, [1.17, 0.90]),
    shaped(64, 4, 128, [2, 1], true, [0.98, 1.39]),
];

/// Keys of a block, blocks in shared memory, elements of a query.
const fn own(tile: &Tile) -> [usize; 3] {
    if let TileShape::Attention { keys, stages, width, .. } = tile.shape { [keys, stages, width] } else { [1; 3] }
}

/// Whether a tile multiplies through `wgmma`.
const fn by_wgmma(tile: &Tile) -> bool {
    matches!(tile.shape, TileShape::Attention { wgmma: true, .. })
}

impl Tile {
    /// The queries whose scores a thread holds, and how many scores of each, if the tile is an attention's.
    pub(in crate::plan) fn held_scores(&self) -> Option<[usize; 2]> {
        match self.shape {
            // Four lanes hold the scores of a query.
            TileShape::Attention { keys, .. } => Some([4 * self.bm / self.threads.max(1), keys / 4]),
            _ => None,
        }
    }

    /// The keys that one `wgmma` multiplies, if the tile is an attention's that does.
    pub(crate) const fn keys_by_wgmma(&self) -> Option<usize> {
        match self.shape {
            TileShape::Attention { keys, wgmma: true, .. } => Some(keys),
            _ => None,
        }
    }
}

/// Why it cannot compute an operation.
fn obstacle(operation: Operation, target: Target) -> Option<String> {
    let Some(attention) = operation.attention() else { return Some("the operation is not an attention".into()) };
    let dtype = operation.dtype();
    if !matches!(dtype, DType::F16 | DType::BF16) {
        return Some(format!("it multiplies f16 and bf16, not {dtype}"));
    }
    if !target.has_cp_async_and_mma16() {
        return Some(format!("{target} has no cp.async and mma.sync.m16n8k16"));
    }
    (attention.width() > WIDEST).then(|| format!("queries have at most {WIDEST} elements, not {}", attention.width()))
}

/// The least width that a kernel is made for.
fn width(elements: usize) -> usize {
    WIDTHS.into_iter().find(|width| *width >= elements).unwrap_or(WIDEST)
}

impl Rules for Attention {
    fn attends(&self) -> bool {
        true
    }

    fn why_not(&self, asked: &Asked<'_>) -> Option<String> {
        let aligned = asked.alignment.iter().all(|bytes| *bytes >= 16);
        let unaligned = || (!aligned).then(|| "queries, keys and values have to begin at multiples of 16 bytes".into());
        obstacle(asked.operation, asked.target).or_else(unaligned).or_else(|| {
            let attention = asked.operation.attention()?;
            let gaps = attention.padded_rows(asked.shape, LARGEST_TILE) != asked.shape.m;
            (gaps && needs_order(asked.epilogue, Mainloop::Attention)).then(|| {
                let [queries, _] = attention.lengths(asked.shape);
                format!(
                    "the epilogue reduces along rows, counts or packs them, and sequences of {queries} queries are not whole \
                     tiles of {LARGEST_TILE}"
                )
            })
        })
    }

    fn candidates(&self, request: &TileRequest<'_>) -> Vec<Tried> {
        let Some(attention) = request.operation.attention() else { return Vec::new() };
        let (width, bn) = (width(attention.width()), width(request.shape.n));
        let wide = width.max(bn) > 64;
        let tried = |shape: &Shaped| {
            let &Shaped { bm, warps, keys, blocks, wgmma, cost } = shape;
            // One swizzle serves wgmma: lines of 128 bytes.
            let [bn, width] = if wgmma { [bn, width].map(|x| x.max(64)) } else { [bn, width] };
            let shape = TileShape::Attention { keys, stages: if wgmma { 3 } else { 2 }, width, wgmma };
            let min_blocks = blocks[usize::from(wide)];
            let tile = Tile { bm, bn, shape, threads: 32 * warps, min_blocks };
            let padded = Shape { m: attention.padded_rows(request.shape, bm), ..request.shape };
            let waves = waves(&tile, &TileRequest { shape: padded, ..*request });
            let time = waves * bm as f64 * cost[usize::from(wide)] * (request.shape.k as f64 + 64.0);
            Tried { tile, obstacle: None, time: Some(time) }
        };
        SHAPED.iter().filter(|shape| !shape.wgmma || request.target.has_wgmma()).map(tried).collect()
    }

    fn broken_rule(&self, tile: &Tile, operation: Operation, _: [usize; 2], strip: usize) -> Option<&'static str> {
        let (Tile { bm, bn, threads, .. }, [keys, stages, width]) = (*tile, own(tile));
        let Some(attention) = operation.attention() else { return Some("it is for attention") };
        let warps = threads / 32;
        first_broken(&[
            (threads.is_multiple_of(32) && (1..=32).contains(&warps), "a block has 1 to 32 warps"),
            (bm <= LARGEST_TILE, "a tile has at most 128 rows"),
            (bm.is_power_of_two() && warps > 0 && bm.is_multiple_of(16 * warps.max(1)), "a warp's rows are whole fragments"),
            (WIDTHS.contains(&bn) && strip <= bn, "it has 32, 64 or 128 columns"),
            (WIDTHS.contains(&width) && width >= attention.width(), "queries are padded to 32, 64 or 128 elements"),
            (keys.is_power_of_two() && (16..=128).contains(&keys), "a block has 16 to 128 keys"),
            ((2..=8).contains(&stages), "2 to 8 blocks of keys are in shared memory"),
            (
                !by_wgmma(tile) || warps.is_multiple_of(4) && bm == 16 * warps && stages >= 3 && width >= 64 && bn >= 64,
                "a warpgroup has 64 queries, lines have 128 bytes, and three blocks of keys are in shared memory",
            ),
        ])
    }

    fn fit(&self, tile: &Tile, request: &TileRequest<'_>) -> Result<Tile, Reason> {
        if by_wgmma(tile) && !request.target.has_wgmma() {
            return Err(format!("{} has no wgmma", request.target).into());
        }
        let function = request.operation.attention().and_then(|attention| attention.function());
        if function.is_some() && self.registers(tile, request.operation, request.strip) + OF_FUNCTION > MOST_REGISTERS {
            return Err("a thread has no registers left for a function of scores".into());
        }
        request.passes(0).map(|()| *tile)
    }

    fn numbers(&self, tile: &Tile) -> Vec<usize> {
        [&[tile.bn][..], &own(tile)].concat()
    }

    fn constants(&self, tile: &Tile, _: bool) -> Vec<Number> {
        let [keys, stages, width] = own(tile);
        vec![("KEYS", keys), ("STAGES", stages), ("WIDTH", width), ("WARPS_M", tile.threads / 32), ("WARPS_N", 1)]
    }

    fn words(&self, tile: &Tile) -> String {
        let [keys, stages, width] = own(tile);
        let multiplied = if by_wgmma(tile) { ", wgmma" } else { "" };
        format!(", {stages} blocks of {keys} keys of {width} elements, {} warps{multiplied}", tile.threads / 32)
    }

    fn copies(&self, of: &Copied<'_>) -> Copies {
        of.by_slabs([(of.tile.threads / 32).max(1), 1], self.memory(of.tile, of.operation.dtype())[1])
    }

    fn price(&self, of: &Priced<'_>) -> Price {
        let [keys, _, width] = own(of.copied.tile);
        let products = keys * (width + of.copied.tile.bn);
        Price { kernel: 261.0 + 0.0344 * products as f64, thousand: 166.0, load: 213.0, store: 86.9, reduction: 174.0, sum: 0.0 }
    }

    fn memory(&self, tile: &Tile, dtype: DType) -> [usize; 2] {
        let [keys, stages, width] = own(tile);
        let elements = tile.bm * width + stages * keys * (width + tile.bn);
        tile.with_slabs(elements.saturating_mul(dtype.size()), [(tile.threads / 32).max(1), 1])
    }

    /// Accumulators, the scores of a block of keys, fragments and addresses.
    fn registers(&self, tile: &Tile, _: Operation, _: usize) -> usize {
        let [keys, ..] = own(tile);
        tile.bm * (tile.bn + keys) / tile.threads.max(1) + 56
    }

    fn unit(&self, tile: &Tile, strip: usize) -> Unit {
        Unit::of_warps(tile, 1, strip)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The threads of a block hold each score of its queries once, four lanes those of a query.
    #[test]
    fn threads_hold_all_scores() {
        for Shaped { bm, warps, keys, wgmma, .. } in &SHAPED {
            let shape = TileShape::Attention { keys: *keys, stages: 2, width: 64, wgmma: *wgmma };
            let tile = Tile { bm: *bm, bn: 64, shape, threads: 32 * warps, min_blocks: 1 };
            let [queries, scores] = tile.held_scores().expect("an attention's tile");
            assert_eq!((queries * tile.threads, 4 * scores), (4 * bm, *keys), "{tile}");
            assert_eq!(tile.keys_by_wgmma(), wgmma.then_some(*keys), "{tile}");
        }
        let other = Tile::pointwise(16, 256, 128);
        assert_eq!((other.held_scores(), other.keys_by_wgmma()), (None, None));
    }
}
