//! Few tiles with a long K: too few to occupy the multiprocessors. So tiles are made that occupy them at once, or blocks of a
//! cluster share a tile's K.
//!
//! Each of those multiplies a part of K for the whole tile, sends the others its sums of their columns, and finishes its own
//! columns. That needs no second kernel and no memory, unlike a split of K into a batch, so it pays for short launches.
//!
//! The estimate counts nanoseconds: what memory and the L2 cache deliver, what one multiprocessor takes in and multiplies, and
//! how long blocks exchange sums. Its constants follow from times on an H200 (`docs/measurements/0082-one-wave.md`,
//! `docs/measurements/0083-parts-of-lines.md`, `docs/measurements/0098-blocks-and-stores.md`).

use crate::plan::mainloop::sm90a::cost::{CostInputs, NANOSECONDS};
use crate::plan::mainloop::sm90a::few_rows::{self, Overheads, deep, epilogues, high, smooth};
use crate::plan::{Tile, TileShape};
use crate::problem::{Operation, Shape};
use crate::target::{Gpu, GpuModel};
use std::iter;

/// The least K for which sharing it is tried, and the fewest K elements of a block.
const TERMS: usize = 1024;
const LEAST_TERMS: usize = 256;
/// The same of eight blocks, which wait longer for each other.
const LEAST_TERMS_OF_EIGHT: usize = 1024;
/// The most tiles that are examined for a problem.
const TILES: usize = 24;

/// Whether a problem has so few tiles of 128 x 128 that multiprocessors are idle.
pub(in crate::plan) fn applies(operation: Operation, shape: Shape, gpu: Gpu) -> bool {
    let tiles = shape.m.div_ceil(128).saturating_mul(shape.n.div_ceil(128)).saturating_mul(shape.batch);
    operation.patches().is_none()
        && operation.multiplied().size() == 2
        && shape.k >= TERMS
        && (1..=gpu.multiprocessors).contains(&tiles)
        && !few_rows::applies(operation, shape)
}

const HEIGHTS: [usize; 3] = [64, 128, 256];
const WIDTHS: [usize; 12] = [16, 32, 48, 64, 80, 96, 112, 128, 144, 160, 192, 256];
const PARTS: [usize; 5] = [1, 2, 3, 4, 8];

/// Whether tiles with all of K are made for a problem. Where K is not contiguous, the estimate takes them the wrong way round.
fn has_whole_tiles(inputs: &CostInputs<'_>) -> bool {
    inputs.operation.k_contiguous() == [true; 2]
}

/// The tiles with the shortest estimates that all run at once, with blocks that share K, operands or nothing.
pub(in crate::plan) fn tiles(inputs: &CostInputs<'_>) -> Vec<Tile> {
    let Shape { m, n, k, batch } = inputs.shape;
    let sizes = HEIGHTS.into_iter().flat_map(|height| WIDTHS.map(|width| [height, width]));
    let useful = sizes.filter(|[height, width]| *height < 2 * m.next_multiple_of(64) && *width < n.next_multiple_of(64) + 64);
    let least = if has_whole_tiles(inputs) { 1 } else { 2 };
    let all = useful.flat_map(|[height, width]| PARTS.map(|parts| (height, width, parts)));
    let shared = all.filter(|(_, width, parts)| {
        // Every block must finish at least eight columns.
        *parts >= least
            && width.is_multiple_of(8 * parts)
            && k >= parts * if *parts == 8 { LEAST_TERMS_OF_EIGHT } else { LEAST_TERMS }
    });
    let at_once = |tile: &Tile| {
        let TileShape::Sm90a { cluster: [along_m, along_n], .. } = tile.shape else { return false };
        let clusters = m.div_ceil(tile.bm * along_m).saturating_mul(n.div_ceil(tile.bn * along_n)).saturating_mul(batch);
        clusters <= tile.clusters_at_once(inputs.gpu.multiprocessors)
    };
    let clustered = |tile: Tile| {
        let pairs = [(2, 1), (1, 2)].into_iter().filter(move |_| tile.parts() == 1);
        iter::once(tile).chain(pairs.map(move |(along_m, along_n)| tile.clustered(along_m, along_n)))
    };
    let shared = shared.map(|(height, width, parts)| high(height, width).in_parts(parts)).flat_map(clustered).filter(at_once);
    let tiles = shared.flat_map(|tile| [128, 64].map(|bk| deep(tile, bk, inputs.operation))).flatten();
    let mut estimates: Vec<(Tile, f64)> = tiles.map(|tile| (tile, estimate(&tile, inputs))).collect();
    estimates.sort_by(|a, b| a.1.total_cmp(&b.1));
    estimates.truncate(TILES);
    estimates.into_iter().map(|(tile, _)| tile).collect()
}

/// Bytes a nanosecond from memory, of each GPU, and from the L2 cache.
const fn memory(gpu: GpuModel) -> f64 {
    match gpu {
        GpuModel::H200 => 4300.0,
        GpuModel::H100 => 3000.0,
    }
}
const L2: f64 = 18_200.0;
/// Bytes a nanosecond that one multiprocessor takes in, and products.
const TAKEN_IN: f64 = 115.0;
const PRODUCTS: f64 = 3370.0;
const OVERHEADS: Overheads = Overheads { launch: 100.0, full: 600.0, exchange: 60.0, exchanged: 17.0 };
/// The factors for blocks with all of K, if it is contiguous, and for those of a cluster that share what they fetch.
const WHOLE: f64 = 0.925;
const TIED: f64 = 1.11;
/// The power of the smooth maximum of all these times.
const SMOOTH: f64 = 4.0;

/// Factor for a ring of few stages, which runs empty.
const fn hurried(stages: usize) -> f64 {
    match stages {
        ..=3 => 1.23,
        4 => 1.065,
        _ => 1.0,
    }
}

/// The estimated time of any tile for such a problem, in the unit of [`cost::estimate`].
pub(in crate::plan) fn estimate(tile: &Tile, inputs: &CostInputs<'_>) -> f64 {
    let TileShape::Sm90a { bk, stages, cluster: [along_m, along_n], .. } = tile.shape else { return f64::INFINITY };
    let (shape, size) = (inputs.shape, inputs.operation.multiplied().size() as f64);
    let (parts, columns) = (tile.parts(), tile.multiplied_columns() as f64);
    let clusters = shape.m.div_ceil(tile.bm * along_m) * shape.n.div_ceil(tile.bn * along_n) * shape.batch;
    let waves = clusters.div_ceil(tile.clusters_at_once(inputs.gpu.multiprocessors)) as f64;
    let terms = shape.k.div_ceil(parts).next_multiple_of(bk) as f64;
    let [m, n, k, batch] = [shape.m, shape.n, shape.k, shape.batch].map(|x| x as f64);
    let memory = ((m + n) * k + m * n) * batch * size / memory(inputs.gpu.model);
    let blocks = (clusters * along_m * along_n) as f64;
    let lines = tile.bm as f64 + columns;
    // Blocks of a cluster that share no K share what they fetch.
    let [shared_m, shared_n] = if parts > 1 { [1.0, 1.0] } else { [along_m as f64, along_n as f64] };
    let from_l2 = blocks * (tile.bm as f64 / shared_n + columns / shared_m) * terms * size / L2;
    let taken_in = waves * lines * terms * size / TAKEN_IN;
    let products = waves * tile.bm as f64 * columns * terms / PRODUCTS;
    let [hidden, epilogue] = epilogues(tile, inputs, waves);
    let together = smooth([memory, from_l2, taken_in, products + hidden], SMOOTH);
    let whole = if parts == 1 && has_whole_tiles(inputs) { WHOLE } else { 1.0 };
    let tied = if parts == 1 && along_m * along_n > 1 { TIED } else { 1.0 };
    let filled = (blocks / inputs.gpu.multiprocessors as f64).min(1.0);
    (together * hurried(stages) * whole * tied + epilogue + OVERHEADS.of(tile, filled)) / NANOSECONDS
}
