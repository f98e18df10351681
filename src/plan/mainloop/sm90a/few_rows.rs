//! Few rows behind wide weights: the tiles of such products, and what they are estimated to take.
//!
//! The weights come from memory once, and all else is to keep them coming: blocks with equal work on nearly all multiprocessors, rings that
//! fill shared memory, and no second kernel. So tiles are made for the problem instead of picked from a list. They are exactly as wide as
//! the rows there are; as high as lets one wave of blocks cover the weights; or, where K is long and tiles are few, shared by a cluster
//! whose blocks have a part of K each. Either side may be the columns of the tile: [`KernelPlan`](crate::plan::KernelPlan) plans both ways.
//!
//! The estimate counts nanoseconds: what memory delivers, what a multiprocessor takes in, and products, of which the longest shows most.
//! Its constants follow from times on an H200 (`docs/measurements/few-rows.md`).

use crate::plan::choice::TileRequest;
use crate::plan::mainloop::sm90a::cost::{self, NANOSECONDS};
use crate::plan::mainloop::sm90a::staging::stage_bytes;
use crate::plan::{KernelPlan, Tile, TileShape};
use crate::problem::Shape;

/// The most rows that are few.
const ROWS: usize = 256;
/// The least bytes of weights, from which on their way from memory is what a product's time is made of; and the least K, below which a
/// tile's ring does not fill.
const WEIGHTS: usize = 6 << 20;
const TERMS: usize = 512;
/// Bytes of shared memory that a ring of stages takes at most: what is left beside the least that an epilogue stages.
const RING: usize = 224 << 10;
/// The most stages that are worth their barriers.
const STAGES: usize = 16;

/// Whether a product's time is that of reading the operand on its longer side.
pub(in crate::plan) fn applies(shape: Shape, size: usize) -> bool {
    let (rows, features) = (shape.m.min(shape.n), shape.m.max(shape.n));
    (1..=ROWS).contains(&rows)
        && features >= 4 * rows
        && shape.k >= TERMS
        && [shape.k, shape.batch, size].into_iter().fold(features, usize::saturating_mul) >= WEIGHTS
}

/// Bytes a nanosecond that memory delivers, how much longer it takes where multiprocessors have unequal work for each whole share that the
/// busiest has too much, and bytes a nanosecond that one multiprocessor takes in.
const MEMORY: f64 = 4450.0;
const UNEQUAL: f64 = 0.2;
const TAKEN_IN: f64 = 110.0;
/// Multiply-adds a nanosecond of one multiprocessor beside so many copies, and how much longer one consumer takes than two.
const PRODUCTS: f64 = 2048.0 * 1.75 / 1.25;
const SINGLE: f64 = 1.08;
/// Nanoseconds of a launch, and of the exchange of sums for each doubling of parts.
const LAUNCH: f64 = 2500.0;
const EXCHANGE: f64 = 800.0;
/// Cycles a nanosecond, in which epilogues are reckoned.
const CLOCK: f64 = 1.75;
/// How much longer blocks take that go from tile to tile, and those of a cluster that share what they fetch.
const TURNS: f64 = 1.02;
const TIED: f64 = 1.08;

/// How much longer a ring takes of so many stages, so many bytes together, and blocks of K of a length: few stages are emptied at once, few
/// bytes are few under way, and short blocks wait more often.
fn hurried(stages: usize, ring: usize, bk: usize) -> f64 {
    let few = match stages {
        ..=2 => 1.15,
        3 => 1.02,
        _ => 1.0,
    };
    let shallow = 1.0 + 0.3 * (1.0 - ring as f64 / 150e3).max(0.0);
    few * shallow * if bk < 128 { 1.015 } else { 1.0 }
}

/// The tiles that are made for a problem, as the kernel sees it, with blocks of K of each length that leaves enough of them.
pub(in crate::plan) fn tiles(request: &TileRequest<'_>) -> Vec<Tile> {
    let Shape { m, n, .. } = request.shape;
    let tiles = if m >= n { upright(m, n) } else { lying(m, n, request.multiprocessors) };
    let deep = |tile: Tile, bk: usize| {
        let TileShape::Sm90a { consumers, schedule, cluster, splits_k, .. } = tile.shape else { return None };
        let partials = (tile.parts() - 1) * tile.bm * tile.bn * size_of::<f32>();
        let stages = (RING.saturating_sub(partials) / stage_bytes(&tile, request.operation, bk)).min(STAGES);
        let shape = TileShape::Sm90a { bk, stages, consumers, schedule, cluster, splits_k };
        (stages * bk >= 192 && stages >= 3).then_some(Tile { shape, ..tile })
    };
    tiles.into_iter().flat_map(|tile| LENGTHS.map(|bk| deep(tile, bk))).flatten().collect()
}

/// The lengths of blocks of K.
const LENGTHS: [usize; 3] = [256, 128, 64];

/// So many columns, rounded up to what chunks divide well.
fn width(columns: usize) -> usize {
    let by = match columns {
        ..=96 => 8,
        ..=176 => 16,
        _ => 32,
    };
    columns.max(1).next_multiple_of(by)
}

/// The weights are rows of the tile, as many as its height; the few rows are its columns.
fn upright(features: usize, rows: usize) -> Vec<Tile> {
    let heights = |width: usize| {
        [
            Tile::single(64, width, 4),
            Tile::cooperative(128, width, 4),
            Tile::single(192, width, 4),
            Tile::cooperative(256, width, 4),
        ]
    };
    let halves = (rows > 96).then(|| width(rows.div_ceil(2)));
    let mut tiles: Vec<Tile> = [Some(width(rows)), halves].into_iter().flatten().flat_map(heights).collect();
    // Every block finishes eight columns at least.
    let parts = |tile: fn(usize) -> Tile, parts: usize| tile(rows.next_multiple_of(8 * parts)).in_parts(parts);
    tiles.extend([parts(|width| Tile::single(64, width, 4), 2), parts(|width| Tile::single(64, width, 4), 4)]);
    tiles.extend([parts(|width| Tile::cooperative(128, width, 4), 2), parts(|width| Tile::cooperative(128, width, 4), 4)]);
    tiles.retain(|tile| tile.bm <= features.next_multiple_of(64));
    tiles
}

/// The few rows are rows of the tile, the weights its columns: as many as make one equal wave, or two or three.
fn lying(rows: usize, features: usize, multiprocessors: usize) -> Vec<Tile> {
    let of = |width: usize| match rows {
        ..=64 => Tile::single(64, width, 4),
        ..=128 => Tile::cooperative(128, width, 4),
        ..=192 => Tile::single(192, width, 4),
        _ => Tile::cooperative(256, width, 4),
    };
    let widths =
        (1..=3).map(|waves| width(features.div_ceil(multiprocessors.max(1) * waves))).filter(|width| (16..=256).contains(width));
    widths.map(of).collect()
}

/// What a tile is estimated to take, in the unit of [`cost::estimate`].
pub(in crate::plan) fn estimate(tile: &Tile, request: &TileRequest<'_>) -> f64 {
    let TileShape::Sm90a { bk, stages, consumers, cluster: [along_m, along_n], .. } = tile.shape else { return f64::INFINITY };
    let (shape, size) = (request.shape, request.operation.dtype().size() as f64);
    let parts = tile.parts();
    let [across, along] = [shape.m.div_ceil(tile.bm * along_m), shape.n.div_ceil(tile.bn * along_n)];
    let clusters = across * along * shape.batch;
    let at_once = tile.clusters_at_once(request.multiprocessors);
    let waves = clusters.div_ceil(at_once) as f64;
    let terms = shape.k.div_ceil(parts).next_multiple_of(bk) as f64;
    // Blocks of K that a multiprocessor without work could have taken.
    let unequal = waves * request.multiprocessors as f64 / (clusters * along_m * along_n) as f64 - 1.0;
    let bytes = ((shape.m + shape.n) as f64 * shape.k as f64 + (shape.m * shape.n) as f64) * size * shape.batch as f64;
    let memory = bytes / MEMORY * (1.0 + UNEQUAL * unequal);
    // Neighbours of a cluster have half of what they share from each other.
    let [shared_m, shared_n] = if parts > 1 { [1, 1] } else { [along_m, along_n] };
    let columns = tile.multiplied_columns() as f64;
    let taken_in = waves * (tile.bm as f64 / shared_n as f64 + columns / shared_m as f64) * terms * size / TAKEN_IN;
    let alone = if consumers == 1 { SINGLE } else { 1.0 };
    let products = waves * tile.bm as f64 * columns * terms * alone / PRODUCTS;
    let together = (memory.powi(4) + taken_in.powi(4) + products.powi(4)).powf(0.25);
    let ring = stages * stage_bytes(tile, request.operation, bk);
    // Multicast ties rings to the slowest of their blocks, which pays only where blocks have several tiles.
    let tied = if parts == 1 && along_m * along_n > 1 && waves < 2.0 { TIED } else { 1.0 };
    let waits = tied * hurried(stages, ring, bk);
    let turns = if waves > 1.0 { TURNS } else { 1.0 };
    let epilogue = cost::epilogue(tile, request) * if cost::takes_turns(tile) { 1.0 } else { waves } / CLOCK;
    let exchange = EXCHANGE * (parts as f64).log2();
    (together * waits * turns + epilogue + exchange + LAUNCH) / NANOSECONDS
}

/// The plan with the shorter estimate of two, one of which is of the transposed problem; its verdicts say what the other would take.
pub(in crate::plan) fn better(first: KernelPlan, second: Option<KernelPlan>) -> KernelPlan {
    let Some(second) = second else { return first };
    let time = |plan: &KernelPlan| plan.choice.estimated().unwrap_or(u64::MAX);
    let (mut better, other) = if time(&second) < time(&first) { (second, first) } else { (first, second) };
    better.choice.turned(other.tile, other.transposed, time(&other), time(&better));
    better
}
