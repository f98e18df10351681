//! Few rows behind wide weights: the tiles of such products, and their estimated times.
//!
//! The weights come from memory once, and the kernel must keep them coming: with blocks of equal work on nearly all
//! multiprocessors, rings that fill shared memory, and no second kernel. So tiles are made for the problem instead of
//! picked from a list. They are exactly as wide as the rows. They are as high as one equal wave over the weights needs.
//! Or, if K is long and tiles are few, a cluster shares a tile and each block has a part of K. Either side may be the
//! columns of the tile: [`KernelPlan`](crate::plan::KernelPlan) plans both ways.
//!
//! The estimate counts nanoseconds. It combines memory reads, the input of a multiprocessor, and products; the longest
//! of the three dominates. Its constants follow from times on an H200 (`docs/measurements/0044-few-rows.md`,
//! `docs/measurements/0086-few-rows-across-lines.md`, `docs/measurements/0098-blocks-and-stores.md`).

use crate::dtype::DType;
use crate::plan::mainloop::sm90a::cost::{self, CostInputs, NANOSECONDS};
use crate::plan::mainloop::sm90a::smem::{RING, held_columns, stage_bytes};
use crate::plan::{TMA_UNIT, Tile, TileShape};
use crate::problem::{Layout, Operation, Shape};
use crate::target::Target;

/// The most rows that count as few.
pub(in crate::plan) const ROWS: usize = 256;
/// The least bytes of weights for which reading them dominates a product's time, and the least K for which a tile's
/// ring fills.
const WEIGHTS: usize = 6 << 20;
pub(super) const TERMS: usize = 512;
/// The fewest stages, and the most that are worth their barriers.
pub(super) const STAGES: (usize, usize) = (3, 16);
/// The most tiles that are examined for a problem.
const TILES: usize = 24;

/// Whether reading the operand on its longer side dominates a product's time.
pub(in crate::plan) fn applies(operation: Operation, shape: Shape) -> bool {
    // A convolution reads its images again for each tap.
    operation.patches().is_none() && are_few(shape, operation.multiplied().size())
}

fn are_few(shape: Shape, size: usize) -> bool {
    let (rows, features) = (shape.m.min(shape.n), shape.m.max(shape.n));
    (1..=ROWS).contains(&rows) && features >= 4 * rows && shape.k >= TERMS && bytes_of_weights(shape, size) >= WEIGHTS
}

/// The least bytes of weights for which the kernel prefetches their beginning into the L2 cache while earlier launches
/// still run. At 64 x 8192 x 8192 and 48 x 18944 x 3584 that saves 3 and 4.5 %, and at 16 x 4096 x 4096 it costs 14 %.
const AHEAD: usize = 80 << 20;

/// The operand that is the weights, if prefetching its beginning pays.
pub(in crate::plan) fn ahead(operation: Operation, shape: Shape) -> Option<usize> {
    (applies(operation, shape) && bytes_of_weights(shape, operation.multiplied().size()) >= AHEAD)
        .then_some(usize::from(shape.m < shape.n))
}

fn bytes_of_weights(shape: Shape, size: usize) -> usize {
    [shape.k, shape.batch, size].into_iter().fold(shape.m.max(shape.n), usize::saturating_mul)
}

/// Bytes a nanosecond from memory, and the factor for each further tile that reads the same weights.
const MEMORY: f64 = 6000.0;
const AGAIN: f64 = 0.62;
/// Bytes a nanosecond that a block draws from memory in a wave on more than half of the multiprocessors, as fitted: about 40 were
/// measured. Two multiprocessors share a way to memory. Up to half of them have one each. As soon as two blocks share one, both
/// are slower, and all wait for them: 70 blocks with weights of 84 MB take 30.8 us, 66 take 22.7, and 132 take 20.8
/// (`docs/measurements/0098-blocks-and-stores.md`).
const DRAWN: f64 = 50.7;
/// The power of both these times' smooth maximum.
const OF_MEMORY: f64 = 6.6;
/// The part of the time that a block takes in operands across lines if blocks leave half of the multiprocessors to the next
/// launch.
const HALF: f64 = 0.74;
/// Multiply-adds a nanosecond of one multiprocessor beside so many copies, of 16 bits; half as many of tf32.
const PRODUCTS: f64 = 2460.0;
const OVERHEADS: Overheads = Overheads { launch: 200.0, full: 468.0, exchange: 10.0, exchanged: 12.8 };
/// Cycles a nanosecond, for epilogues.
pub(super) const CLOCK: f64 = 1.75;
/// Factor for tiles that reach beyond the rows, for the square of the share of their lines that does: copies of lines
/// outside of the matrix are no faster than others.
const PADDED: f64 = 3.0;
/// Nanoseconds, and a factor in one wave, for blocks of a cluster that share what they fetch. The factor for blocks with all of
/// K whose tiles have this many rows of weights or more.
const TIED: (f64, f64) = (4280.0, 1.10);
const TALL: (usize, f64) = (192, 1.117);

/// Bytes a nanosecond that one multiprocessor takes in of an operand. A run of 128 bytes that begins inside a line of the
/// cache comes from two lines.
const fn taken_in(k_contiguous: bool, begins_at_lines: bool) -> f64 {
    match (k_contiguous, begins_at_lines) {
        (true, true) => 81.6,
        (false, true) => 92.0,
        (true, false) => 44.1,
        (false, false) => 34.1,
    }
}

/// The power of the smooth maximum of memory, input and products.
const SMOOTH: f64 = 8.0;

/// Factor for the stages and bytes of a ring. A ring of few stages runs empty, which costs in proportion to the
/// products' share of the memory time. A ring of few bytes keeps too few bytes in flight.
fn hurried(stages: usize, ring: usize, products: f64) -> f64 {
    let few = match stages {
        ..=2 => 0.15,
        3 => 0.04 * products.min(1.0),
        4 => 0.02 * products.min(1.0),
        _ => 0.0,
    };
    (1.0 + few) * (1.0 + 0.28 * (1.0 - ring as f64 / 200e3).max(0.0))
}

/// The tiles with the shortest estimates for a problem, as the kernel sees it. Each is tried with several lengths of a
/// block of K, as long as enough stages fit.
pub(in crate::plan) fn tiles(inputs: &CostInputs<'_>) -> Vec<Tile> {
    let Shape { m, n, .. } = inputs.shape;
    let tiles = if m >= n { upright(m, n) } else { lying(m, n, inputs.gpu.multiprocessors) };
    let lengths = |tile: &Tile| if tile.bm == 64 && tile.multiplied_columns() <= 16 { [256, 128] } else { [128, 64] };
    let tiles = tiles.into_iter().flat_map(|tile| lengths(&tile).map(|bk| deep(tile, bk, inputs.operation))).flatten();
    let mut estimates: Vec<(Tile, f64)> = tiles.map(|tile| (tile, estimate(&tile, inputs))).collect();
    estimates.sort_by(|a, b| a.1.total_cmp(&b.1));
    estimates.truncate(TILES);
    estimates.into_iter().map(|(tile, _)| tile).collect()
}

/// The tile with blocks of so many K elements, and with as many stages as fit, unless these are too few.
pub(super) fn deep(tile: Tile, bk: usize, operation: Operation) -> Option<Tile> {
    let TileShape::Sm90a { consumers, schedule, cluster, splits_k, .. } = tile.shape else { return None };
    let partials = (tile.parts() - 1) * tile.bm * tile.bn * size_of::<f32>();
    let stages = (RING.saturating_sub(partials) / stage_bytes(&tile, operation, bk)).min(STAGES.1);
    let shape = TileShape::Sm90a { bk, stages, consumers, schedule, cluster, splits_k };
    (stages >= STAGES.0).then_some(Tile { shape, ..tile })
}

/// This many columns, rounded up to a multiple that chunks divide well.
fn width(columns: usize) -> usize {
    let by = match columns {
        0..=96 => 8,
        97..=176 => 16,
        _ => 32,
    };
    columns.max(1).next_multiple_of(by)
}

/// The tile of a height, with as many consumers as can share its rows.
pub(super) const fn high(rows: usize, columns: usize) -> Tile {
    if rows.is_multiple_of(128) { Tile::cooperative(rows, columns, 4) } else { Tile::single(rows, columns, 4) }
}

const HEIGHTS: [usize; 4] = [64, 128, 192, 256];

/// The weights are the rows of the tile. The few rows are its columns: all of them, or a half or a third.
fn upright(features: usize, rows: usize) -> Vec<Tile> {
    let heights = HEIGHTS.into_iter().filter(|height| *height <= features.next_multiple_of(64));
    let widths = [(1, 0), (2, 96), (3, 128)].into_iter().filter(|(_, beyond)| rows > *beyond);
    let widths: Vec<usize> = widths.map(|(share, _)| width(rows.div_ceil(share))).collect();
    let whole = heights.clone().flat_map(|height| widths.iter().map(move |width| high(height, *width)));
    // Two halves of the rows share the weights, as those across lines gain from.
    let halves = |height| (rows > 8).then(|| high(height, width(rows.div_ceil(2))).clustered(1, 2));
    // Every block must finish at least eight columns.
    let parts = |height| [2, 4].map(|parts| high(height, rows.next_multiple_of(8 * parts)).in_parts(parts));
    // Two tiles share the few rows.
    let pairs = heights.clone().flat_map(|height| widths.iter().map(move |width| high(height, *width).clustered(2, 1)));
    whole.chain(heights.clone().filter_map(halves)).chain(heights.clone().flat_map(parts)).chain(pairs).collect()
}

/// The few rows are the rows of the tile, and the weights its columns: as many as make one equal wave, or two or three
/// waves, or one wave of blocks that share K in clusters of two or four. Two tiles may share the few rows.
fn lying(rows: usize, features: usize, multiprocessors: usize) -> Vec<Tile> {
    let of = |height: usize, waves: usize, parts: usize| {
        let across = (multiprocessors.saturating_mul(waves) / parts / rows.div_ceil(height)).max(1);
        let columns = width(features.div_ceil(across)).next_multiple_of(8 * parts);
        (16..=256).contains(&columns).then(|| high(height, columns).in_parts(parts))
    };
    let heights = HEIGHTS.into_iter().filter(|height| *height <= rows.next_multiple_of(64));
    let whole =
        heights.flat_map(|height| [(1, 1), (2, 1), (3, 1), (1, 2), (1, 4)].map(|(waves, parts)| of(height, waves, parts)));
    let whole: Vec<Tile> = whole.flatten().collect();
    let pairs = whole.clone().into_iter().filter(|tile| tile.parts() == 1).map(|tile| tile.clustered(1, 2));
    whole.into_iter().chain(pairs).collect()
}

/// The estimated time of a tile, in the unit of [`cost::estimate`].
pub(in crate::plan) fn estimate(tile: &Tile, inputs: &CostInputs<'_>) -> f64 {
    let TileShape::Sm90a { bk, stages, cluster: [along_m, along_n], .. } = tile.shape else { return f64::INFINITY };
    let (shape, size) = (inputs.shape, inputs.operation.multiplied().size() as f64);
    let parts = tile.parts();
    let [across, along] = [shape.m.div_ceil(tile.bm * along_m), shape.n.div_ceil(tile.bn * along_n)];
    let clusters = across.saturating_mul(along).saturating_mul(shape.batch);
    let at_once = tile.clusters_at_once(inputs.gpu.multiprocessors);
    let waves = clusters.div_ceil(at_once) as f64;
    let terms = shape.k.div_ceil(parts).next_multiple_of(bk) as f64;
    let (entry, rows) = (shape.k as f64 * size * shape.batch as f64, shape.m.min(shape.n));
    // The number of tiles that read the same weights, and the weights including these repeated reads.
    let upright = shape.m >= shape.n;
    let readers = if upright { along } else { across };
    let weights = shape.m.max(shape.n) as f64 * (1.0 + AGAIN * (readers - 1) as f64);
    let bytes = (weights + rows as f64) * entry + shape.m as f64 * shape.n as f64 * shape.batch as f64 * size;
    let blocks = clusters.saturating_mul(along_m * along_n);
    let last = blocks.saturating_sub((waves as usize).saturating_sub(1).saturating_mul(at_once * along_m * along_n));
    let crowded = if 2 * last > inputs.gpu.multiprocessors { waves } else { waves - 1.0 };
    let drawn = crowded * weights * entry / blocks as f64 / DRAWN;
    let memory = smooth([bytes / MEMORY, drawn], OF_MEMORY);
    // Blocks of a cluster get half of what they share from each other.
    let [shared_m, shared_n] = if parts > 1 { [1, 1] } else { [along_m, along_n] };
    let columns = tile.multiplied_columns() as f64;
    let held = [tile.bm, held_columns(tile, inputs.operation)];
    let (at_lines, contiguous) = (inputs.rows_begin_at_lines, inputs.operation.k_contiguous());
    let lines = |i: usize, shared: usize| held[i] as f64 / shared as f64 / taken_in(contiguous[i], at_lines[i]);
    let filled = (blocks as f64 / inputs.gpu.multiprocessors as f64).min(1.0);
    let overlaps = filled <= 0.5 && at_lines != [true; 2];
    let taken_in = waves * (lines(0, shared_n) + lines(1, shared_m)) * terms * size * of_those([(overlaps, HALF)]);
    let slower = [(size > 2.0, size / 2.0), (overlaps, HALF)];
    let products = waves * tile.bm as f64 * columns * terms / PRODUCTS * of_those(slower);
    let [hidden, epilogue] = epilogues(tile, inputs, waves);
    let together = smooth([memory, taken_in, products + hidden], SMOOTH);
    let ring = stages * stage_bytes(tile, inputs.operation, bk);
    // Multicast ties rings to the slowest block.
    let tied = parts == 1 && along_m * along_n > 1;
    let slower = [(tied && waves < 2.0, TIED.1), (upright && parts == 1 && tile.bm >= TALL.0, TALL.1)];
    let beyond = if upright { along * tile.bn * along_n } else { across * tile.bm * along_m } - rows;
    let part = beyond as f64 / readers as f64 / (tile.bm as f64 + columns);
    let padded = 1.0 + PADDED * part * part;
    let overheads = OVERHEADS.of(tile, filled) + if tied { TIED.0 } else { 0.0 };
    let streamed = together * hurried(stages, ring, products / memory) * of_those(slower) * padded;
    (streamed + epilogue + overheads) / NANOSECONDS
}

/// Nanoseconds of a block's epilogues in so many waves: all but the last one, which run while the next tile's operands come, and
/// the last one.
pub(super) fn epilogues(tile: &Tile, inputs: &CostInputs<'_>, waves: f64) -> [f64; 2] {
    let epilogue = cost::epilogue(tile, inputs) / CLOCK;
    let turns = if cost::takes_turns(tile) { 1.0 } else { waves };
    [(turns - 1.0) * epilogue, epilogue]
}

/// A smooth maximum: the root of a sum of powers.
pub(super) fn smooth<const N: usize>(times: [f64; N], power: f64) -> f64 {
    times.map(|time| time.powf(power)).iter().sum::<f64>().powf(1.0 / power)
}

/// What a kernel takes beside its products and its epilogue, in nanoseconds.
pub(super) struct Overheads {
    /// A launch on up to half of the multiprocessors, and how much longer one on all of them takes: the next launch's blocks
    /// begin beside those of a launch that leaves half of the multiprocessors free.
    pub launch: f64,
    pub full: f64,
    /// The exchange of sums for each doubling of parts, and the bytes a nanosecond of received sums.
    pub exchange: f64,
    pub exchanged: f64,
}

impl Overheads {
    /// Those of blocks on a share of the multiprocessors.
    pub fn of(&self, tile: &Tile, filled: f64) -> f64 {
        let parts = tile.parts();
        let come = ((parts - 1) * tile.bm * tile.bn * size_of::<f32>()) as f64;
        let exchange = self.exchange * (parts as f64).log2() + come / self.exchanged;
        exchange + self.launch + self.full * (2.0 * filled - 1.0).max(0.0)
    }
}

/// The product of the factors that apply.
fn of_those<const N: usize>(factors: [(bool, f64); N]) -> f64 {
    factors.into_iter().filter(|(applies, _)| *applies).map(|(_, factor)| factor).product()
}

/// Whether Hopper's narrow tiles read the larger operand as fast as `gemv`. They do if they need no copies, except for
/// one row or column against an operand with K contiguous.
pub(in crate::plan) fn narrow_tiles_read_faster(
    operation: Operation,
    shape: Shape,
    alignment: [usize; 2],
    target: Target,
) -> bool {
    if operation.widened().is_some() || operation.is_scaled() {
        return false;
    }
    let (dtype, layout) = (operation.multiplied(), operation.layout());
    let k_contiguous = operation.k_contiguous()[usize::from(shape.m <= shape.n)];
    let multiplies = matches!(dtype, DType::F16 | DType::BF16) || dtype.is_eight_bits() && layout == Some(Layout::TN);
    let tensor_cores = target.has_wgmma() && multiplies && layout.is_some();
    tensor_cores && alignment.iter().all(|bytes| *bytes >= TMA_UNIT) && (shape.m.min(shape.n) > 1 || !k_contiguous)
}
