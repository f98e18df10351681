//! `groups`: no product. Blocks of a cluster hold whole matrices, or groups of their columns, in shared memory
//! (`templates/mainloop/groups.cuh`).
//!
//! Neighbouring groups share a block, so that lanes read whole lines of memory where a group has a few bytes of each row.

use super::rules::{Asked, Number, Rules, Tried, first_broken};
use super::tile::{Tile, TileShape};
use crate::dtype::DType;
use crate::ir::axes::M;
use crate::plan::code::{Copied, Copies, Price, Priced};
use crate::plan::launch::repack::{BANDWIDTH, LAUNCH};
use crate::plan::request::TileRequest;
use crate::plan::{Instr, InstrKind, Phase, Program, Reason, Store};
use crate::problem::Operation;

/// Its rules.
pub(super) struct Groups;

/// Columns of a group, blocks of a cluster, bytes of an element of all matrices, and strips on their way together.
fn own(tile: &Tile) -> [usize; 4] {
    match tile.shape {
        TileShape::Groups { band, cluster, bytes, together } => [band, cluster, bytes, together],
        _ => [1; 4],
    }
}

/// Bytes of a thread that are read from shared memory at a time.
const FLIGHT: usize = 32;
/// The most strips of those: each has code of its own.
const MOST_FLIGHT: usize = 8;
/// Bytes of the state of a reduction, and words of it.
const STATE: usize = 16;
const STATE_WORDS: usize = STATE / 4;
/// Blocks of a cluster.
const CLUSTERS: [usize; 4] = [1, 2, 4, 8];
/// Threads of a block.
const LEAST_THREADS: usize = 128;
const MOST_THREADS: usize = 512;
const WARP: usize = 32;
/// Bytes of the strips of all threads of a multiprocessor that keep it busy, and elements of a thread beside which little counts
/// what it does once.
const ENOUGH: f64 = 10_240.0;
const FEW_ELEMENTS: f64 = 64.0;
/// The fewest rows of a thread for which blocks share a tile.
const LEAST_PASSES: usize = 8;
/// Registers of a thread beside the strips that it has at a time, roughly, and registers of a multiprocessor.
const BESIDE: usize = 40;
const REGISTERS: usize = 65_536;
/// The most threads of a multiprocessor, its shared memory, and what a block takes of that for itself.
const RESIDENT: usize = 2048;
const SHARED: usize = 228 << 10;
const OF_BLOCK: usize = 1 << 10;
/// Bytes that memory is read in.
const SECTOR: usize = 32;
/// Bytes of a matrix that registers of one block hold better, if its rows have at least so many bytes.
const FEW: usize = 64 << 10;
const WIDE_ROW: usize = 128;
/// Tiles that are worth a comparison.
const BEST: usize = 8;

/// Strips of a tile's row.
fn strips(tile: &Tile, strip: usize) -> usize {
    (tile.bn / strip.max(1)).max(1)
}

/// Strips that a thread loads together of so many: a divisor of all, if there is one of at least half as many as it may be.
fn together(passes: usize, bytes_of_strip: usize) -> usize {
    let most = (FLIGHT / bytes_of_strip.max(1)).clamp(1, MOST_FLIGHT).min(passes.max(1));
    (most.div_ceil(2)..=most).rev().find(|few| passes.is_multiple_of(*few)).unwrap_or(most)
}

/// Bytes of an element of all matrices that are read.
fn bytes_of_element(program: &Program, operation: Operation) -> usize {
    let loads = program.loads_of(Phase::Visit).map(|(_, _, operand)| operand.dtype.size());
    operation.dtype().size() + loads.sum::<usize>()
}

/// Whether any value that is computed once a row varies from row to row, or is stored for each.
fn varies_by_row(program: &Program) -> bool {
    let mut varies = vec![false; program.steps.len()];
    for (step, instr) in program.steps.iter().enumerate() {
        let is_row = instr.phase == Phase::Row;
        varies[step] = is_row && (instr.stage == 0 || program.args(step).iter().any(|arg| varies[*arg]));
    }
    let stored = |store: &Store| store.operand.axes.contains(M) && !store.operand.axes.is_matrix();
    (0..varies.len()).any(|step| varies[step] && !program.is_inline(step)) || program.stores.iter().any(stored)
}

/// Why it does not compute an epilogue.
fn why_not(request: &TileRequest<'_>) -> Option<&'static str> {
    let TileRequest { program, operation, .. } = request;
    let [_, all] = program.reduces_all();
    let packed = |step: &Instr| matches!(step.kind, InstrKind::Load { operand, .. } if operand.dtype.is_packed());
    let has_masks = operation.dtype().is_packed()
        || program.steps.iter().any(packed)
        || program.stores.iter().any(|store| store.operand.dtype.is_packed());
    let words = program.stages.iter().flat_map(|stage| &stage.reductions).map(|r| r.monoid.words(r.value));
    if !all {
        Some("something is reduced over less than all rows")
    } else if !program.reductions.is_empty() {
        Some("something is reduced behind what whole matrices come to")
    } else if has_masks {
        Some("a matrix has elements of one bit")
    } else if varies_by_row(program) {
        Some("a value varies along rows alone")
    } else if words.max().unwrap_or(0) > STATE_WORDS {
        Some("a reduction has a state of more than 16 bytes")
    } else {
        None
    }
}

/// The tiles that the shared memory of a cluster holds.
fn tiles(request: &TileRequest<'_>, bytes: usize) -> Vec<Tile> {
    let TileRequest { program, shape, strip, .. } = *request;
    let columns = shape.n.max(1);
    let band = program.band.unwrap_or_else(|| columns.div_ceil(strip).saturating_mul(strip));
    let mut tiles = Vec::new();
    for groups in 1..=columns.div_ceil(band) {
        let of_row = groups.saturating_mul(band) / strip;
        if of_row > MOST_THREADS {
            break;
        }
        let least = of_row / gcd(of_row, WARP) * WARP;
        if band % strip != 0 || least > MOST_THREADS {
            continue;
        }
        for threads in (1..=MOST_THREADS / least).map(|times| times * least).filter(|threads| *threads >= LEAST_THREADS) {
            for cluster in CLUSTERS {
                let at_once = threads / of_row;
                let passes = shape.m.max(1).div_ceil(cluster * at_once);
                let together = together(passes, strip * bytes);
                let shape = TileShape::Groups { band, cluster, bytes, together };
                let tile = Tile { bm: cluster * at_once * passes, bn: groups * band, shape, threads, min_blocks: 1 };
                let shared = memory(&tile) + OF_BLOCK;
                let registers = BESIDE + together * strip * bytes / 4;
                let min_blocks = (SHARED / shared).min(REGISTERS / (registers * threads)).min(RESIDENT / threads);
                // Less shared memory than that of a cluster of fewer blocks is not needed.
                if min_blocks > 0 && (cluster == 1 || passes >= LEAST_PASSES) {
                    tiles.push(Tile { min_blocks, ..tile });
                }
            }
        }
    }
    tiles
}

/// Bytes of shared memory: what a block holds, the states of its threads, two of each block for each group, and mbarriers.
fn memory(tile: &Tile) -> usize {
    let [band, cluster, bytes, _] = own(tile);
    let states = tile.threads + 2 * (tile.bn / band.max(1)) * cluster + 1;
    (tile.bm / cluster.max(1)).saturating_mul(tile.bn * bytes).saturating_add(states * STATE)
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

impl Rules for Groups {
    fn why_not(&self, asked: &Asked<'_>) -> Option<String> {
        if !asked.target.has_cp_async_and_mma16() {
            return Some(format!("{} has no cp.async", asked.target));
        }
        asked.operation.layout().map(|_| "the operation is a product".into())
    }

    fn candidates(&self, request: &TileRequest<'_>) -> Vec<Tried> {
        if why_not(request).is_some() {
            return Vec::new();
        }
        let bytes = bytes_of_element(request.program, request.operation);
        let of_row = request.program.band.unwrap_or(request.shape.n).saturating_mul(bytes);
        let is_held =
            request.preferences.mainloop.is_none() && of_row >= WIDE_ROW && of_row.saturating_mul(request.shape.m) <= FEW;
        let obstacle = is_held.then(|| "registers of a block hold what is reduced".to_owned());
        let mut tiles: Vec<(Tile, f64)> =
            tiles(request, bytes).into_iter().map(|tile| (tile, self.estimate(&tile, request))).collect();
        tiles.sort_by(|a, b| a.1.total_cmp(&b.1));
        let tried = |(tile, time)| Tried { tile, obstacle: obstacle.clone(), time: Some(time) };
        tiles.into_iter().take(BEST).map(tried).collect()
    }

    fn broken_rule(&self, tile: &Tile, _: Operation, _: [usize; 2], strip: usize) -> Option<&'static str> {
        let (Tile { bm, bn, threads, .. }, [band, cluster, ..]) = (*tile, own(tile));
        let of_row = strips(tile, strip);
        first_broken(&[
            (CLUSTERS.contains(&cluster), "a cluster has 1, 2, 4 or 8 blocks"),
            ((WARP..=1024).contains(&threads) && threads.is_multiple_of(WARP), "a block has 32 to 1024 threads, in whole warps"),
            (bn.is_multiple_of(band) && band.is_multiple_of(strip.max(1)), "a tile has whole groups, and these whole strips"),
            (threads.is_multiple_of(of_row), "threads cover whole rows of a tile"),
            (bm.is_multiple_of(cluster * (threads / of_row).max(1)), "blocks have as many rows, in whole passes"),
        ])
    }

    fn numbers(&self, tile: &Tile) -> Vec<usize> {
        [tile.bn].into_iter().chain(own(tile)).collect()
    }

    fn constants(&self, tile: &Tile, _: bool) -> Vec<Number> {
        let [band, cluster, bytes, together] = own(tile);
        vec![("BAND", band), ("CLUSTER", cluster), ("BYTES", bytes), ("TOGETHER", together)]
    }

    fn words(&self, tile: &Tile) -> String {
        let [band, cluster, ..] = own(tile);
        let blocks = if cluster > 1 { format!(", cluster {cluster}") } else { String::new() };
        format!(" in groups of {band}, {} threads{blocks}, held in shared memory", tile.threads)
    }

    /// Each element that a thread has at a time is read for each stage and stored, by code of its own, which there is twice: with
    /// and without edges. The rest is fitted to five norms, not to random epilogues.
    fn price(&self, of: &Priced<'_>) -> Price {
        let ([.., together], stages) = (own(of.copied.tile), &of.copied.program.stages);
        let elements = 2.0 * (of.copied.strip * together) as f64;
        let inside = stages.iter().flat_map(|stage| &stage.reductions).map(|r| r.monoid.words(r.value)).sum::<usize>() as f64;
        let read = ((stages.len() + 1) * (1 + of.widening(0))) as f64;
        let kernel = 490.0 + elements * (0.25 * read + 0.12 * inside);
        Price { kernel, thousand: 330.0, load: 0.0, store: 7.0 + 1.8 * elements, reduction: 0.0, sum: 0.0 }
    }

    /// Fitted to 42 tiles of three norms on an H100 and an H200 (`docs/measurements/0063-groups-in-clusters.md`).
    fn estimate(&self, tile: &Tile, request: &TileRequest<'_>) -> f64 {
        let TileRequest { shape, program, gpu, strip, .. } = *request;
        let [_, cluster, bytes, _] = own(tile);
        let elements = shape.m as f64 * shape.n as f64 * shape.batch as f64;
        let stored = program.stores.iter().filter(|store| store.operand.axes.is_matrix());
        let written: usize = stored.map(|store| store.operand.dtype.size()).sum();
        let blocks = (tile.count(shape) as f64 * cluster as f64).max(1.0);
        let unfilled = ((gpu.multiprocessors * tile.min_blocks) as f64 / blocks).max(1.0);
        let size = request.operation.dtype().size();
        // Two blocks write parts of the same sectors, and memory is read in pairs of these.
        let of_row = tile.bn * size;
        let lines = match of_row {
            _ if !of_row.is_multiple_of(SECTOR) => 1.0 + 40.0 / of_row as f64,
            _ if !of_row.is_multiple_of(2 * SECTOR) => 1.03,
            _ => 1.0,
        };
        let overlap = 1.0 + 0.8 / (tile.min_blocks as f64).powi(2);
        let meeting = 1.0 + 0.06 * (cluster as f64).log2();
        // Few threads with narrow strips issue too little, and threads of few elements spend their time on what they do once.
        let together = (tile.threads * tile.min_blocks * strip * size) as f64;
        let idle = 1.0 + 0.28 * (1.0 - together / ENOUGH).max(0.0);
        let of_thread = (tile.bm / cluster * tile.bn / tile.threads).max(1) as f64;
        let once = 1.0 + 0.23 * (FEW_ELEMENTS / of_thread - 1.0).max(0.0);
        // Tiles that the edge of the matrix cuts run slower code: all of them, or the last ones of their rows.
        let cut = match [shape.m == tile.bm, shape.n.is_multiple_of(tile.bn)] {
            [false, _] => 1.0,
            [true, false] => 1.0 / shape.n.div_ceil(tile.bn) as f64,
            [true, true] => 0.0,
        };
        let moved = elements * (bytes + written) as f64 / BANDWIDTH;
        let slower = lines * overlap * meeting * idle * once * (1.0 + cut) * (0.5 + 0.5 * unfilled);
        (LAUNCH + moved * slower) * 1e9
    }

    /// Estimates are nanoseconds.
    fn nanoseconds(&self, _: DType) -> Option<f64> {
        Some(1.0)
    }

    fn fit(&self, tile: &Tile, request: &TileRequest<'_>) -> Result<Tile, Reason> {
        let TileRequest { program, shape, operation, .. } = *request;
        let [band, _, bytes, _] = own(tile);
        if let Some(why) = why_not(request) {
            return Err(why.into());
        }
        if program.band.is_some_and(|columns| columns != band) {
            return Err(format!("has groups of {band} columns, and the problem's have others").into());
        }
        if program.band.is_none() && (band != tile.bn || shape.n > band) {
            return Err(format!("has {band} columns, and matrices of {} are reduced", shape.n).into());
        }
        if shape.m > tile.bm {
            return Err(format!("has {} rows, and the problem {}", tile.bm, shape.m).into());
        }
        let reads = bytes_of_element(program, operation);
        if reads != bytes {
            return Err(format!("holds {bytes} bytes of each element, and {reads} are read").into());
        }
        request.passes(0).map(|()| *tile)
    }

    fn holds_rows(&self, _: &Tile) -> bool {
        true
    }

    fn memory(&self, tile: &Tile, _: DType) -> [usize; 2] {
        [memory(tile), 0]
    }

    fn accumulators(&self, tile: &Tile) -> usize {
        own(tile)[3]
    }

    fn cluster(&self, tile: &Tile) -> usize {
        own(tile)[1]
    }

    fn copies(&self, of: &Copied<'_>) -> Copies {
        Copies { visit: of.strip * own(of.tile)[3], column: of.strip, row: 1, again: 1, limited: false }
    }

    fn shares_operands(&self) -> bool {
        false
    }

    fn reads_of_rows(&self, tile: &Tile, _: usize) -> String {
        let [_, cluster, ..] = own(tile);
        let blocks = if cluster > 1 { format!("{cluster} blocks") } else { "one block".into() };
        format!("held in shared memory of {blocks}, so that memory is read once")
    }
}
