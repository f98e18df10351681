//! The tiles for weights of fewer bits that Hopper's mainloop widens in registers, and their estimated times.

use super::few_rows::{CLOCK, STAGES, high};
use super::smem::{RING, stage_bytes};
use super::widened::{in_registers, panel_terms, scale_bytes};
use crate::dtype::DType;
use crate::plan::mainloop::rules::Asked;
use crate::plan::mainloop::sm90a::cost::{self, CostInputs, NANOSECONDS};
use crate::plan::{TMA_UNIT, Tile, TileShape};
use crate::problem::{Operation, Shape};
use crate::target::Gpu;

/// The most registers of a thread for sums and for two panels of an A that passes through registers.
pub(super) const MOST_BESIDE_A: usize = 192;

/// The registers of a thread for its sums, for those that are scaled, and for two panels of A.
pub(super) fn registers(tile: &Tile, operation: Operation) -> usize {
    let sums = if operation.is_scaled() { 2 } else { 1 };
    sums * tile.multiplied() + 32 * tile.consumer_rows() / 64
}

/// The most tiles that are examined for a problem.
const TILES: usize = 16;

/// The tiles with the shortest estimates for a problem, as the kernel sees it: as wide as the rows of B there are, or as a part
/// of them, with or without K in parts.
pub(super) fn tiles(inputs: &CostInputs<'_>) -> Vec<Tile> {
    let all = fitting(inputs.operation, inputs.shape).into_iter();
    let mut estimates: Vec<(Tile, f64)> = all.map(|tile| (tile, estimate(&tile, inputs))).collect();
    estimates.sort_by(|a, b| a.1.total_cmp(&b.1));
    estimates.truncate(TILES);
    estimates.into_iter().map(|(tile, _)| tile).collect()
}

/// All such tiles for which a thread has registers.
fn fitting(operation: Operation, Shape { n, .. }: Shape) -> Vec<Tile> {
    let most = if operation.is_scaled() { 160 } else { 256 };
    let by = |columns: usize| if columns > 96 { 16 } else { 8 };
    let widths = (1..=4).map(|times| n.div_ceil(times).max(1)).map(|columns| columns.next_multiple_of(by(columns)));
    let mut widths: Vec<usize> = widths.chain([16, 64, 128]).map(|width| width.min(most)).collect();
    widths.sort_unstable();
    widths.dedup();
    let shapes = widths.into_iter().flat_map(|width| {
        let parts = [1, 2, 4].into_iter().filter(move |parts| width.is_multiple_of(8 * parts));
        let shared = [64, 128, 256].into_iter().flat_map(move |rows| parts.clone().map(move |n| high(rows, width).in_parts(n)));
        shared.chain([Tile::ping_pong(64, width, 4), Tile::ping_pong(128, width, 4)])
    });
    let lengths: &[usize] = if operation.dtype().is_four_bits() { &[128, 256] } else { &[128] };
    let tiles = shapes.flat_map(|tile| lengths.iter().filter_map(move |bk| deep(tile, *bk, operation)));
    tiles.filter(|tile| registers(tile, operation) <= MOST_BESIDE_A).collect()
}

/// The tile with blocks of so many K elements, and with as many stages as fit, unless these are too few.
fn deep(tile: Tile, bk: usize, operation: Operation) -> Option<Tile> {
    let TileShape::Sm90a { consumers, schedule, cluster, splits_k, .. } = tile.shape else { return None };
    let partials = (tile.parts() - 1) * tile.bm * tile.bn * size_of::<f32>();
    let stage = stage_bytes(&tile, operation, bk) + scale_bytes(&tile, operation, bk);
    let stages = (RING.saturating_sub(partials) / stage).min(STAGES.1);
    let shape = TileShape::Sm90a { bk, stages, consumers, schedule, cluster, splits_k };
    (stages >= STAGES.0).then_some(Tile { shape, ..tile })
}

/// Bytes a nanosecond from memory, and those that one multiprocessor takes in.
const MEMORY: f64 = 4300.0;
const TAKEN_IN: f64 = 60.0;
/// Multiply-adds of a multiprocessor in a nanosecond.
const PRODUCTS: f64 = 2400.0;
/// Nanoseconds in which a consumer widens a panel of 64 rows, those that each consumer beside it adds, and those that each adds
/// to a stage; and the factor for zero points. From times on an H200 (`docs/measurements/0092-weights-in-registers.md`).
const PANEL: f64 = 96.0;
const PANEL_BESIDE: f64 = 44.0;
const STAGE: f64 = 120.0;
const SHIFTED: f64 = 1.2;
/// Nanoseconds of a launch, and of an exchange of sums.
const LAUNCH: f64 = 1500.0;
const EXCHANGE: f64 = 400.0;
/// The power of a sum of powers that is a smooth maximum.
const SMOOTH: f64 = 4.0;

/// Estimated cycles of a tile.
pub(super) fn estimate(tile: &Tile, inputs: &CostInputs<'_>) -> f64 {
    let waves = if cost::takes_turns(tile) { 1.0 } else { waves(tile, inputs.shape, inputs.gpu) };
    let epilogues = cost::epilogue(tile, inputs) * waves / CLOCK;
    (without_epilogue(tile, inputs.operation, inputs.shape, inputs.gpu) + epilogues) / NANOSECONDS
}

fn waves(tile: &Tile, Shape { m, n, batch, .. }: Shape, gpu: Gpu) -> f64 {
    let clusters = m.div_ceil(tile.bm).saturating_mul(n.div_ceil(tile.multiplied_columns())).saturating_mul(batch);
    clusters.div_ceil(tile.clusters_at_once(gpu.multiprocessors).max(1)) as f64
}

/// Estimated nanoseconds of a tile without its epilogues.
fn without_epilogue(tile: &Tile, operation: Operation, shape: Shape, gpu: Gpu) -> f64 {
    let TileShape::Sm90a { bk, consumers, .. } = tile.shape else { return f64::INFINITY };
    let Shape { m, n, k, batch } = shape;
    let (parts, columns, waves) = (tile.parts(), tile.multiplied_columns(), waves(tile, shape, gpu));
    let terms = k.div_ceil(parts).next_multiple_of(bk) as f64;
    let [of_a, of_b] = operation.dtypes().map(|dtype| dtype.bits() as f64 / 8.0);
    let entry = k as f64 * batch as f64;
    let memory = (m as f64 * entry * of_a + n as f64 * entry * of_b + m as f64 * n as f64 * batch as f64 * of_b) / MEMORY;
    let taken_in = waves * terms * (tile.bm as f64 * of_a + columns as f64 * of_b) / TAKEN_IN;
    let products = waves * terms * (tile.bm * columns) as f64 / PRODUCTS;
    // Ping-pong consumers widen in turns.
    let beside = if cost::takes_turns(tile) { 1.0 } else { consumers as f64 };
    let panels = terms / panel_terms(operation.multiplied()) as f64 * (tile.consumer_rows() / 64) as f64;
    let shifted = operation.scales()[0].is_some_and(|blocks| blocks.zero_points);
    let widened = waves
        * (panels * (PANEL + PANEL_BESIDE * beside) + terms / bk as f64 * STAGE * beside)
        * if shifted { SHIFTED } else { 1.0 };
    let longest = [memory, taken_in, products, widened].map(|time| time.powf(SMOOTH)).iter().sum::<f64>().powf(1.0 / SMOOTH);
    longest + LAUNCH + EXCHANGE * (parts as f64).log2()
}

/// Whether Hopper's mainloop reads weights of fewer bits in less than so many nanoseconds. Floats of eight bits without scales
/// are its own beside more than a few rows. So are eight bits beside bf16, where `gemv` was not measured.
pub(in crate::plan) fn reads_faster(asked: &Asked<'_>, than: f64) -> bool {
    let Asked { operation, shape, alignment, gpu, .. } = *asked;
    let (turned, seen) = match operation.widened() {
        Some(0) => (operation, shape),
        Some(_) => (operation.transposed(), shape.transposed()),
        None => return false,
    };
    if !in_registers(turned) || alignment.iter().any(|bytes| *bytes < TMA_UNIT) {
        return false;
    }
    let measured = match (turned.dtype().is_four_bits(), turned.is_scaled()) {
        (true, _) => MEASURED.0,
        (false, true) => MEASURED.1,
        (false, false) if turned.dtypes()[1] == DType::BF16 => return true,
        (false, false) if seen.n > FEW && turned.dtype().value_type().is_float() => return true,
        (false, false) => MEASURED.2,
    };
    fitting(turned, seen).iter().any(|tile| measured * without_epilogue(tile, turned, seen, gpu) < than)
}

/// The most rows beside which `gemv` reads floats of eight bits without scales faster.
const FEW: usize = 8;
/// Measured times over estimates beside up to 16 rows: of four bits, of eight bits with scales, and of eight bits without
/// (`docs/measurements/0096-bare-weights.md`).
const MEASURED: (f64, f64, f64) = (0.98, 0.94, 0.9);
