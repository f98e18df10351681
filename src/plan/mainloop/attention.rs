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
use crate::plan::code::Price;
use crate::plan::epilogue::reduce::Unit;
use crate::plan::request::TileRequest;
use crate::problem::{Attention as Of, Operation, Shape};
use crate::target::Target;
use serde::Serialize;

/// Its rules.
pub(super) struct Attention;

/// The most elements of a query for which there are registers.
const WIDEST: usize = 128;
/// The most rows of a tile.
const LARGEST_TILE: usize = 128;
/// Elements of a query, and columns of the values, that a kernel is made for.
const WIDTHS: [usize; 3] = [32, 64, WIDEST];

/// A number of an attention that kernels are launched with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AttentionField {
    /// Queries of a sequence.
    Queries,
    /// The same, filled up to whole tiles.
    TileQueries,
    /// Keys of a sequence.
    Keys,
    /// Elements of a query.
    Width,
    /// Whether a query sees only the keys up to its own position.
    Causal,
}

impl AttentionField {
    /// Every one.
    pub const ALL: [AttentionField; 5] = [
        AttentionField::Queries,
        AttentionField::TileQueries,
        AttentionField::Keys,
        AttentionField::Width,
        AttentionField::Causal,
    ];

    /// Its name in the parameter block.
    pub const fn name(self) -> &'static str {
        match self {
            AttentionField::Queries => "queries",
            AttentionField::TileQueries => "tile_queries",
            AttentionField::Keys => "keys",
            AttentionField::Width => "width",
            AttentionField::Causal => "causal",
        }
    }

    /// Its value for a launch on a shape with a tile of so many rows.
    pub fn value(self, of: &Of, shape: Shape, rows: usize) -> usize {
        let [queries, keys] = of.lengths(shape);
        match self {
            AttentionField::Queries => queries,
            AttentionField::TileQueries => queries.next_multiple_of(rows).max(rows),
            AttentionField::Keys => keys,
            AttentionField::Width => of.width(),
            AttentionField::Causal => usize::from(of.is_causal()),
        }
    }
}

/// The rows of a kernel's tiles in all sequences.
pub(in crate::plan) fn seen(operation: Operation, shape: Shape, rows: usize) -> Option<Shape> {
    let attention = operation.attention()?;
    Some(Shape { m: attention.padded_rows(shape, rows), ..shape })
}

/// Keys of a block, blocks in shared memory, elements of a query.
const fn own(tile: &Tile) -> [usize; 3] {
    if let TileShape::Attention { keys, stages, width, .. } = tile.shape { [keys, stages, width] } else { [1; 3] }
}

/// Whether a tile multiplies through `wgmma`.
const fn by_wgmma(tile: &Tile) -> bool {
    matches!(tile.shape, TileShape::Attention { wgmma: true, .. })
}

impl Tile {
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
    fn why_not(&self, asked: &Asked<'_>) -> Option<String> {
        let aligned = asked.alignment.iter().all(|bytes| *bytes >= 16);
        let unaligned = || (!aligned).then(|| "queries, keys and values have to begin at multiples of 16 bytes".into());
        obstacle(asked.operation, asked.target).or_else(unaligned).or_else(|| {
            let attention = asked.operation.attention()?;
            let gaps = attention.padded_rows(asked.shape, LARGEST_TILE) != asked.shape.m;
            (gaps && needs_order(asked.epilogue, Mainloop::Attention)).then(|| {
                let [queries, _] = attention.lengths(asked.shape);
                format!(
                    "the epilogue reduces along rows, counts or packs them, and sequences of {queries} queries are not whole tiles \
                     of {LARGEST_TILE}"
                )
            })
        })
    }

    fn candidates(&self, request: &TileRequest<'_>) -> Vec<Tried> {
        let Some(attention) = request.operation.attention() else { return Vec::new() };
        let (width, bn) = (width(attention.width()), width(request.shape.n));
        let tried = |bm: usize, warps: usize, keys: usize, min_blocks: usize, wgmma: bool| {
            // One swizzle serves wgmma: lines of 128 bytes.
            let [bn, width] = if wgmma { [bn, width].map(|x| x.max(64)) } else { [bn, width] };
            let shape = TileShape::Attention { keys, stages: if wgmma { 3 } else { 2 }, width, wgmma };
            let tile = Tile { bm, bn, shape, threads: 32 * warps, min_blocks };
            let m = attention.padded_rows(request.shape, bm);
            let padded = TileRequest { shape: Shape { m, ..request.shape }, ..*request };
            // A warp with 32 queries loads keys and values half as often.
            let share = if wgmma {
                0.6
            } else if bm / warps == 32 {
                1.0
            } else {
                1.2
            };
            let time = waves(&tile, &padded) * bm as f64 * share * (request.shape.k as f64 + 64.0);
            Tried { tile, obstacle: None, time: Some(time) }
        };
        let wide = width.max(bn) > 64;
        let resident = |blocks: usize| if wide { blocks.div_ceil(2) } else { blocks };
        let mut list = vec![
            tried(128, 4, 64, 2, false),
            tried(128, 8, 64, resident(2), false),
            tried(64, 4, 64, resident(4), false),
            tried(32, 2, 64, resident(6), false),
        ];
        if request.target.has_wgmma() {
            list.extend([tried(128, 8, 64, resident(2), true), tried(64, 4, 64, resident(4), true)]);
            list.extend([tried(128, 8, 128, 1, true), tried(64, 4, 128, resident(2), true)]);
        }
        list
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

    fn price(&self, _: &Tile) -> Price {
        Price { kernel: 260.0, thousand: 110.0, store: 36.0, word: 58.0, sum: 32.0 }
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
