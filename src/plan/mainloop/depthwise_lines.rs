//! `depthwise_lines`: convolutions with one channel to a filter, and the gradients of their images, whose windows move in steps
//! without gaps (`templates/mainloop/depthwise_lines.cuh`). `depthwise` has all others.
//!
//! In the gradient of images under a window that moved by several pixels, lines of dY lie so many lines apart in an image of
//! zeros. A step makes as many rows of output pixels, each from the taps that its residue meets.
//!
//! A block goes down the lines of an image. They pass through a ring in shared memory, so memory is busy while threads
//! multiply. A thread holds the weights of two channels, and the sums of all rows of output pixels over a line. A block has one
//! tile, or takes its turn (`takes_turns`): then all blocks together go through memory from one end to the other.

use super::direct::{self, LONGEST_RUN, WIDEST_WINDOW};
use super::rules::{Asked, Number, Rules, Tried, first_broken};
use super::tile::{LARGEST, Tile, TileShape};
use crate::dtype::DType;
use crate::plan::Reason;
use crate::plan::code::{Copied, Copies, Price, Priced, widening};
use crate::plan::epilogue::program::Phase;
use crate::plan::epilogue::reduce::span_rows;
use crate::plan::request::TileRequest;
use crate::problem::{Operation, Patches, Windows};
use crate::target::Gpu;
use std::ops::RangeInclusive;

/// Its rules.
pub(super) struct DepthwiseLines;

/// Registers that a thread may take.
const MOST_REGISTERS: usize = 248;
/// The most pixels that a step makes of each pixel that is read.
const MOST_RESIDUES: usize = 16;
/// More of them where blocks go from tile to tile, and strips that do not exist are passed over without branches.
const REGISTERS_AHEAD: usize = 40;
/// Threads of a block that is tried.
const THREADS: RangeInclusive<usize> = 96..=640;
/// Bytes of shared memory that the system takes for each block.
const RESERVED: usize = 1024;
/// The most tiles that are tried.
const MOST_TILES: usize = 24;
/// Cycles of a launch beside its lines, and of one more round of blocks; bytes that a multiprocessor of an H200 moves in a cycle.
const START: f64 = 4450.0;
const NEXT_START: f64 = 140.0;
const BYTES: f64 = 33.0;
/// The most taps of windows under which memory is the limit.
const SMALL: usize = 9;
/// For large problems: bytes that a multiprocessor moves in a cycle at a copy's speed; bytes in the hands of all blocks up to
/// which the L2 cache keeps every line until the next band has read it, and from which it keeps none; bytes of a problem from
/// which parts of pixels cost a share of the time (`docs/measurements/0100-boxes-of-strided-rows.md`).
const COPIED: f64 = 18.2;
const KEPT: [f64; 2] = [35e6, 55e6];
const IN_PARTS: (usize, f64) = (200_000_000, 0.05);

/// The numbers of a tile's own part.
#[derive(Clone, Copy)]
struct Own {
    /// Output pixels of a thread at a time: side by side, in as many rows as a step makes.
    run: usize,
    /// Threads along a row of output pixels.
    across: usize,
    /// Bands of a block.
    groups: usize,
    /// Rows of output pixels of a band.
    rows: usize,
    /// Lines of the ring.
    stages: usize,
    /// Pixels of a line in shared memory.
    line: usize,
    /// Taps of the window.
    taps: usize,
}

impl Own {
    const fn of(tile: &Tile) -> Own {
        match tile.shape {
            TileShape::DepthwiseLines { run, across, groups, rows, stages, line, taps } => {
                Own { run, across, groups, rows, stages, line, taps }
            }
            _ => Own { run: 1, across: 1, groups: 1, rows: 1, stages: 2, line: 1, taps: 1 },
        }
    }

    const fn shape(self) -> TileShape {
        let Own { run, across, groups, rows, stages, line, taps } = self;
        TileShape::DepthwiseLines { run, across, groups, rows, stages, line, taps }
    }

    /// Whether runs make up rows of output pixels, and every thread has one.
    fn is_whole(&self, tile: &Tile, strip: usize, patches: &Patches) -> bool {
        let has_runs = self.groups * self.across * (tile.bn / strip.max(1)) == tile.threads;
        let Windows { grid, spread, .. } = patches.windows();
        has_runs && self.across * self.run == grid[1] * spread[0] && self.rows.is_multiple_of(spread[0])
    }

    /// Bytes of weights, and of the ring.
    fn memory(&self, bn: usize, dtype: DType) -> [usize; 2] {
        let weights = dtype.value_type().storage().size().saturating_mul(self.taps).saturating_mul(bn);
        let ring = [self.stages, self.groups, self.line, bn, dtype.size()];
        [weights.next_multiple_of(16), ring.into_iter().fold(1, usize::saturating_mul)]
    }
}

/// Why it cannot compute an operation.
fn obstacle(operation: Operation) -> Option<String> {
    let patches = match direct::of_one_channel(operation) {
        Ok(patches) => patches,
        Err(why) => return Some(why),
    };
    let (of, windows) = (patches.convolution.measures(), patches.windows());
    if windows.spread[0].saturating_mul(windows.spread[1]) > MOST_RESIDUES {
        Some(format!("a pixel that is read becomes {} x {} pixels", windows.spread[0], windows.spread[1]))
    } else if windows.dilation != [1; 2] {
        Some("the taps of a window lie apart".into())
    } else if windows.stride[0] > of.window[0] {
        Some("windows leave lines out".into())
    } else {
        (of.window[1] > WIDEST_WINDOW).then(|| format!("a thread holds all weights, and {} taps a row are many", of.window[1]))
    }
}

/// How many places the first tap lies ahead of the first line, or pixel, that a step meets in an image of zeros.
fn phases(windows: &Windows) -> [usize; 2] {
    [0, 1].map(|i| (-windows.begin[i]).rem_euclid(windows.spread[i].cast_signed()).cast_unsigned())
}

/// Lines, and pixels, under the output pixels of one step: those of a window, unless there are zeros between them.
fn under(patches: &Patches) -> [usize; 2] {
    let (of, windows) = (patches.convolution.measures(), patches.windows());
    let phases = phases(&windows);
    [0, 1].map(|i| (of.window[i] + windows.spread[i] - 2 - phases[i]) / windows.spread[i] + 1)
}

/// Pixels of a line, or lines, under so many output pixels along an axis.
fn reached(patches: &Patches, axis: usize, pixels: usize) -> usize {
    let Windows { stride, spread, .. } = patches.windows();
    let steps = pixels.div_ceil(spread[axis]).saturating_sub(1);
    steps.saturating_mul(stride[axis]).saturating_add(under(patches)[axis])
}

/// What a thread of a tile does.
struct Work {
    taps: usize,
    /// Lines and pixels under a step's output pixels, and from step to step.
    under: [usize; 2],
    stride: [usize; 2],
    /// Output pixels of a step.
    made: [usize; 2],
    /// Output pixels of a run, and those that have sums behind a line.
    run: usize,
    open: usize,
    strip: usize,
    /// 32-bit words of a sum, and instructions that widen an element.
    words: usize,
    widening: usize,
}

impl Work {
    fn of(patches: &Patches, operation: Operation, [run, strip]: [usize; 2]) -> Work {
        let words = operation.accumulator().storage().size() / 4;
        let (taps, windows, under) = (patches.convolution.taps(), patches.windows(), under(patches));
        let Windows { stride, spread: made, .. } = windows;
        // The last rows of a step may have no tap of the last line.
        let rows = (under[0].div_ceil(stride[0]) - 1) * made[0] + phases(&windows)[0] + 1;
        let open = rows.max(made[0]) * (run / made[0]);
        Work { taps, under, stride, made, run, open, strip, words, widening: widening(operation.dtype()) }
    }

    /// Pixels of a line under a run.
    const fn pixels(&self) -> usize {
        (self.run / (self.made[0] * self.made[1])).saturating_sub(1) * self.stride[1] + self.under[1]
    }

    /// Products of one output pixel and channel, about.
    const fn products(&self) -> usize {
        self.taps.div_ceil(self.made[0] * self.made[1])
    }

    /// Weights, sums of the open rows, a few pixels, copies and addresses.
    fn registers(&self) -> usize {
        let others = if self.made == [1; 2] { 40 } else { 20 };
        (self.taps + self.open + 4) * self.strip * self.words + others
    }

    /// Widened elements and products in the code: those of the first lines, and those of the loop.
    const fn seen(&self) -> [usize; 2] {
        let mut taps = self.products();
        let mut line = 0;
        while line + self.stride[0] < self.under[0] {
            taps += (line / self.stride[0] + 1) * self.under[1];
            line += 1;
        }
        let lines = if self.under[0] > self.stride[0] { self.under[0] } else { self.stride[0] };
        [lines * self.pixels() * self.strip, taps * self.run * self.strip]
    }

    /// Issue slots of a line, and of a step's output pixels behind it. `copies` are those of a thread in a line. Visits of a
    /// tile that is not `whole` have conditions.
    fn slots(&self, copies: usize, whole: bool) -> [usize; 2] {
        let line = self.pixels() * (1 + self.strip * self.widening) + 10 * copies + 6;
        let products = self.products() * self.strip * self.words;
        [line, self.run * (products + 5 * self.strip + if whole { 4 } else { 18 })]
    }
}

/// The tiles for a convolution, with estimates that compare them in cycles.
fn tiles(patches: &Patches, request: &TileRequest<'_>) -> Vec<(Tile, f64)> {
    let (operation, strip) = (request.operation, request.strip);
    let (dtype, [p, q]) = (operation.dtype(), patches.windows().grid);
    let (taps, Windows { stride, spread, .. }) = (patches.convolution.taps(), patches.windows());
    // A long epilogue needs a few registers of its own.
    let most = if request.program.cost(request.fast_math) > 8 { MOST_REGISTERS - 8 } else { MOST_REGISTERS };
    let has_steps = |rows: usize| p.is_multiple_of(rows) && (rows == p || rows.is_multiple_of(spread[0]));
    let bands: Vec<usize> = (1..=p.min(LARGEST)).filter(|rows| has_steps(*rows) && (*rows > 3 || *rows * 8 > p)).collect();
    let mut all = Vec::new();
    let mut across_before = 0;
    let steps = q.div_ceil(spread[1]);
    for side in (1..=(LONGEST_RUN / spread[1]).max(1)).rev() {
        let run = side * spread[1] * spread[0];
        let work = Work::of(patches, operation, [run, strip]);
        let across = steps.div_ceil(side);
        // The shortest run of so many threads leaves the fewest pixels over.
        if across == across_before || steps.div_ceil(across) != side || work.registers() > most {
            continue;
        }
        across_before = across;
        for bn in [144, 128, 112, 96, 80, 64, 48, 32, 16].into_iter().filter(|bn| *bn == 16 || bn / 2 < request.shape.n) {
            let lanes = bn / strip;
            if !takes_lanes(lanes, request) || across.saturating_mul(lanes) > *THREADS.end() {
                continue;
            }
            for groups in [1, 2, 4, 8, 16, 32].into_iter().filter(|groups| THREADS.contains(&(groups * across * lanes))) {
                for &rows in bands.iter().filter(|rows| groups * **rows * q <= LARGEST) {
                    let line = reached(patches, 1, across * side * spread[1]);
                    let own = Own { run, across, groups, rows, stages: 2 + 2 * stride[0], line, taps };
                    all.extend(tile(own, bn, &work, request, dtype));
                }
            }
        }
    }
    all.sort_by(|a, b| a.1.total_cmp(&b.1));
    all.truncate(MOST_TILES);
    all
}

/// Whether so many lanes of a row suit the epilogue: sums of columns take powers of two.
fn takes_lanes(lanes: usize, request: &TileRequest<'_>) -> bool {
    request.program.reductions.is_empty() || lanes.is_power_of_two()
}

/// How many words of one bank of shared memory a warp reads at once. Its lanes read consecutive words of so many strips, and
/// the next run begins `apart` words behind.
fn conflicts(lanes: usize, apart: usize) -> usize {
    let mut words: Vec<usize> = (0..32).map(|lane| lane / lanes * apart + lane % lanes).collect();
    words.sort_unstable();
    words.dedup();
    (0..32).map(|bank| words.iter().filter(|word| **word % 32 == bank).count()).max().unwrap_or(1)
}

/// A tile with its estimate, if a multiprocessor has room for it.
fn tile(own: Own, bn: usize, work: &Work, request: &TileRequest<'_>, dtype: DType) -> Option<(Tile, f64)> {
    let Own { run, across, groups, rows, line, .. } = own;
    let (patches, strip) = (direct::images(request.operation)?, request.strip);
    let q = patches.windows().grid[1];
    let threads = (groups * across * (bn / strip)).next_multiple_of(32);
    let memory: usize = own.memory(bn, dtype).iter().sum();
    let by_memory = (request.target.shared_memory_per_block_opt_in() as usize + RESERVED) / (memory + RESERVED);
    let copies = (groups * line * bn * dtype.size()).div_ceil(16 * threads);
    let mut tile = Tile { bm: groups * rows * q, bn, shape: own.shape(), threads, min_blocks: 1 };
    let &TileRequest { operation, program, fast_math, .. } = request;
    let copied = Copied { tile: &tile, operation, strip, program, fast_math };
    let (in_turns, own_registers) = (takes_turns(&copied), if work.made == [1; 2] { 0 } else { beside_sums(work, &copied) });
    let registers = work.registers() + own_registers + 8 * copies.saturating_sub(2);
    // The four parts of a multiprocessor have registers of their own.
    let fits = |blocks: &usize| {
        let taken = (threads * blocks).next_multiple_of(128) * registers.next_multiple_of(8);
        let fits_a_thread = own_registers == 0 || registers <= MOST_REGISTERS;
        fits_a_thread && taken <= request.target.registers_per_multiprocessor() as usize
    };
    tile.min_blocks = (1..=by_memory.min(8)).rev().find(fits)?;
    let min_blocks = tile.min_blocks;
    let (steps, lines) = (rows.div_ceil(work.made[0]), reached(&patches, 0, rows));
    let [of_line, of_row] = work.slots(copies, own.is_whole(&tile, strip, &patches));
    let weights = 38 * (own.taps * bn).div_ceil(threads);
    let slots = (lines * of_line + steps * of_row + weights) as f64;
    // A block by itself, and several beside each other: their warps share four schedulers, and shared memory
    // (`docs/measurements/0072-lines-in-shared-memory.md`).
    let warps = threads / 32;
    let reads = (lines
        * work.pixels()
        * conflicts(bn / strip, run * work.stride[1] / (work.made[0] * work.made[1]) * bn * dtype.size() / 4))
        as f64;
    let alone = 1.42 * slots + (lines * 370) as f64;
    let shared = |slots: f64, warps: usize| slots * warps.div_ceil(4) as f64 + 0.23 * reads * warps as f64;
    let beside = |blocks: usize| alone.max(shared(slots, warps * blocks));
    let blocks = tile.count(request.shape).div_ceil(request.gpu.multiprocessors as u64).max(1) as usize;
    let compute = (blocks / min_blocks) as f64 * beside(min_blocks)
        + if blocks.is_multiple_of(min_blocks) { 0.0 } else { beside(blocks % min_blocks) };
    let starts = START + (blocks.div_ceil(min_blocks) - 1) as f64 * NEXT_START;
    let read = patches.image_pixels() * patches.convolution.measures().channels * dtype.size();
    let written = request.shape.m * request.shape.n * dtype.size();
    let halo = work.under[0].saturating_sub(work.stride[0]) as f64 / (steps * work.stride[0]) as f64;
    if in_turns && own.taps <= SMALL && (read + written) as f64 > KEPT[0] {
        let tiles = [request.shape.m.div_ceil(tile.bm), request.shape.n.div_ceil(bn)];
        let parts = parts(&tile, tiles, request.gpu);
        // A block loads weights once, but begins tile after tile.
        let slots = (lines * of_line + steps * of_row + 70 * copies + 40) as f64;
        let blocks = (parts * tiles[1]).div_ceil(request.gpu.multiprocessors);
        let compute = tiles[0].div_ceil(parts) as f64 * shared(slots, warps * blocks);
        let held = (parts * tiles[1]) as f64 / (tiles[0] * tiles[1]) as f64 * (read + written) as f64;
        return Some((tile, START + together(compute, held, halo, (read + written, bn, threads), request)));
    }
    let again = 1.0 + 4.4 * halo; // lines that two bands read come from the L2 cache
    let pieces = if bn * dtype.size() <= 32 { 1.02 } else { 1.0 };
    let memory = (read as f64 * again + written as f64) * pieces / (BYTES * request.gpu.multiprocessors as f64);
    let large = 1.0 + 0.023 * threads.saturating_sub(256) as f64 / 256.0;
    Some((tile, large * (compute.max(memory) + 0.65 * compute.min(memory) + starts)))
}

/// Cycles of a large problem, whose blocks compute for so many, and hold so many bytes
/// (`docs/measurements/0080-compact-fronts.md`).
fn together(compute: f64, held: f64, halo: f64, (moved, bn, threads): (usize, usize, usize), request: &TileRequest<'_>) -> f64 {
    let lost = ((held - KEPT[0]) / (KEPT[1] - KEPT[0])).clamp(0.0, 1.0);
    let spread = 1.0 + 0.03 * lost + 0.04 * (held / KEPT[1]).max(1.0).log2();
    let bytes = bn.min(request.shape.n) * request.operation.dtype().size(); // of a pixel: whole lines of the cache, or not
    let cut_lines = if bytes.is_multiple_of(128) { 0.0 } else { 64.0 / (32 * bytes) as f64 };
    let pieces = if bn >= request.shape.n { 1.0 } else { 1.0 + cut_lines + if moved < IN_PARTS.0 { 0.0 } else { IN_PARTS.1 } };
    let cut = request.shape.n.next_multiple_of(bn) as f64 / request.shape.n as f64;
    let again = 1.0 + halo / 2.0 * lost;
    let memory = moved as f64 * again * spread * pieces * cut / (COPIED * request.gpu.multiprocessors as f64);
    let large = 1.0 + 0.025 * (threads.max(128) as f64 / 128.0).log2();
    (compute.powi(4) + (memory * large).powi(4)).powf(0.25)
}

/// Whether blocks go from tile to tile, as far as that was measured and gained: where windows move by one line, and are small.
/// Beside reductions, which a block then publishes once, windows of any size gained, where runs of several pixels make up rows.
fn takes_turns(of: &Copied<'_>) -> bool {
    let (own, reductions) = (Own::of(of.tile), &of.program.reductions);
    direct::images(of.operation).is_some_and(|patches| {
        let publishes_once = own.run > 1 && own.is_whole(of.tile, of.strip, &patches) && span_rows(reductions);
        let gains = if reductions.is_empty() { own.taps <= SMALL } else { publishes_once };
        gains && patches.windows().stride[0] == 1
    })
}

/// Whether a thread loads the matrices of a row before the row's last products, without conditions. Blocks that go from tile to
/// tile have another form of it. That takes fewer registers, which small windows need more, and has conditions where the last
/// channel cuts a tile.
fn loads_ahead(of: &Copied<'_>) -> bool {
    let reads = of.program.loads_of(Phase::Visit).next().is_some();
    let Some(patches) = direct::images(of.operation) else { return false };
    let own = Own::of(of.tile);
    let registers = Work::of(&patches, of.operation, [own.run, of.strip]).registers() + REGISTERS_AHEAD;
    reads && (!takes_turns(of) || (own.taps > SMALL && registers <= MOST_REGISTERS))
}

/// Registers beside those of a thread's sums, where a step makes several rows: those of a block in turns, and of matrices that
/// are loaded ahead.
fn beside_sums(work: &Work, of: &Copied<'_>) -> usize {
    let words = (work.strip * of.operation.dtype().size()).div_ceil(4);
    let ahead = if loads_ahead(of) { 4 * work.run * words } else { 0 };
    let long = if of.program.cost(of.fast_math) > 8 { 8 } else { 0 };
    let turns = if takes_turns(of) { 14 } else { 0 };
    turns + long + ahead * of.program.loads_of(Phase::Visit).count()
}

/// Blocks that go through the tiles of a column: as many as there is room for.
fn parts(tile: &Tile, [rows, columns]: [usize; 2], gpu: Gpu) -> usize {
    (gpu.multiprocessors.saturating_mul(tile.min_blocks) / columns.max(1)).clamp(1, rows.max(1))
}

impl Rules for DepthwiseLines {
    fn why_not(&self, asked: &Asked<'_>) -> Option<String> {
        if !asked.target.has_cp_async_and_mma16() {
            return Some(format!("{} has no cp.async", asked.target));
        }
        direct::is_part(asked).or_else(|| obstacle(asked.operation))
    }

    fn candidates(&self, request: &TileRequest<'_>) -> Vec<Tried> {
        let Some(patches) = direct::images(request.operation) else { return Vec::new() };
        tiles(&patches, request).into_iter().map(|(tile, time)| Tried { tile, obstacle: None, time: Some(time) }).collect()
    }

    fn broken_rule(&self, tile: &Tile, operation: Operation, alignment: [usize; 2], strip: usize) -> Option<&'static str> {
        let Some(patches) = direct::images(operation) else {
            return Some("it is for convolutions and gradients of their images");
        };
        let (Tile { bm, bn, threads, .. }, own, [p, q]) = (*tile, Own::of(tile), patches.windows().grid);
        let Own { run, across, groups, rows, stages, line, taps } = own;
        let [down, right] = patches.windows().spread;
        let side = run / down.max(1);
        first_broken(&[
            (obstacle(operation).is_none(), "each channel has a filter, and its windows move without gaps"),
            (alignment[0] >= 4, "a pixel's channels begin at words"),
            (bn >= 8 && bn.is_multiple_of(8) && bn.is_multiple_of(strip), "strips divide the columns, a multiple of eight"),
            (threads.is_multiple_of(32) && (32..=1024).contains(&threads), "a block has whole warps, up to 32"),
            (groups.saturating_mul(across).saturating_mul(bn / strip.max(1)) <= threads, "a thread has one strip of one run"),
            (run == side * down && side.is_multiple_of(right), "a run has output pixels of all residues"),
            (side <= 16 && across.saturating_mul(side) >= q, "runs cover a row of output pixels"),
            (rows > 0 && p.is_multiple_of(rows), "bands divide the rows of an image"),
            (rows == p || rows.is_multiple_of(down), "bands begin at rows of one residue"),
            (groups.saturating_mul(rows).saturating_mul(q) == bm, "a tile's rows are those of its bands"),
            ((2..=16).contains(&stages), "a ring has 2 to 16 lines"),
            (line == reached(&patches, 1, across.saturating_mul(side)), "a line holds the windows of all runs"),
            (taps == patches.convolution.taps(), "taps are those of the convolution's window"),
        ])
    }

    fn takes_turns(&self, of: &Copied<'_>) -> bool {
        takes_turns(of)
    }

    fn loads_ahead(&self, of: &Copied<'_>) -> bool {
        loads_ahead(of)
    }

    fn blocks(&self, tile: &Tile, tiles: [usize; 2], gpu: Gpu) -> Option<usize> {
        parts(tile, tiles, gpu).checked_mul(tiles[1])
    }

    fn fit(&self, tile: &Tile, request: &TileRequest<'_>) -> Result<Tile, Reason> {
        if !takes_lanes(tile.bn / request.strip, request) {
            return Err("reductions take strips whose number is a power of two".to_owned().into());
        }
        request.passes(0).map(|()| *tile)
    }

    fn numbers(&self, tile: &Tile) -> Vec<usize> {
        let Own { run, across, groups, rows, stages, line, taps } = Own::of(tile);
        vec![tile.bn, run, across, groups, rows, stages, line, taps]
    }

    fn constants(&self, tile: &Tile, _: bool) -> Vec<Number> {
        let Own { run, across, groups, rows, stages, line, .. } = Own::of(tile);
        vec![("RUN", run), ("ACROSS", across), ("GROUPS", groups), ("ROWS", rows), ("STAGES", stages), ("LINE", line)]
    }

    fn words(&self, tile: &Tile) -> String {
        let Own { run, groups, rows, stages, .. } = Own::of(tile);
        let bands = if groups == 1 { "a band".to_owned() } else { format!("{groups} bands") };
        format!(" of {bands} of {rows} rows, {} threads, {run} pixels each, {stages} stages", tile.threads)
    }

    /// Threads hold all weights of their channels.
    fn widest_strip(&self) -> usize {
        2
    }

    /// Tiles side by side read pieces of the same lines of the cache.
    fn raster(&self, _: &Tile, _: &TileRequest<'_>) -> Option<i32> {
        Some(1)
    }

    #[cfg_attr(not(feature = "cuda"), allow(dead_code, reason = "only what runs kernels orders tiles"))]
    fn shares_operands(&self) -> bool {
        false
    }

    fn price(&self, of: &Priced<'_>) -> Price {
        let Copied { tile, operation, strip, .. } = of.copied;
        let work = direct::images(operation).map(|patches| Work::of(&patches, operation, [Own::of(tile).run, strip]));
        let [widened, products] = work.map_or([0; 2], |work| work.seen());
        let kernel = 150.0 + 0.12 * (widened * of.widening(0)) as f64 + 0.9 * products as f64;
        Price { kernel, thousand: 184.0, load: 0.0, store: 66.9, reduction: 165.0, sum: 0.0 }
    }

    fn memory(&self, tile: &Tile, dtype: DType) -> [usize; 2] {
        [Own::of(tile).memory(tile.bn, dtype).into_iter().fold(0, usize::saturating_add), 0]
    }

    fn registers(&self, tile: &Tile, operation: Operation, strip: usize) -> usize {
        let Some(patches) = direct::images(operation) else { return 32 };
        Work::of(&patches, operation, [Own::of(tile).run, strip]).registers()
    }

    /// A thread goes from run to run. Four columns are the most of a visit.
    fn accumulators(&self, tile: &Tile) -> usize {
        Own::of(tile).run * 4
    }

    fn copies(&self, of: &Copied<'_>) -> Copies {
        Copies { limited: false, ..Copies::of_visits(of.strip, Own::of(of.tile).run) }
    }

    fn takes_any_channels(&self) -> bool {
        true
    }

    fn reads_spread(&self) -> bool {
        true
    }

    fn patch_constants(&self, operation: Operation) -> Vec<Number> {
        let mut all = direct::window(operation);
        if let Some(windows) = operation.patches().map(|patches| patches.windows()) {
            all.push(("STRIDE_Y", windows.stride[0]));
            let is_spread = windows.spread != [1; 2];
            all.extend(["PHASE_Y", "PHASE_X"].into_iter().zip(phases(&windows)).filter(|_| is_spread));
        }
        all
    }
}
