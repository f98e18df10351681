//! The mainloops that only convolutions have, and that read images directly: `bands` and `depthwise`. Their tiles are made
//! for the convolution.
//!
//! **Bands.** The rows of a tile are neighbouring output pixels, so their windows lie in a few lines of the images. A block
//! copies these lines into shared memory once, and takes every tap of every window from there. So it reads each line once, and
//! multiplies no zeros: K runs over the taps of a row of the window as they lie.
//!
//! **Depthwise.** Each filter reads one channel, so tensor cores have nothing to multiply. A thread has the same few channels of
//! some pixels side by side, and goes through the pixels under their windows row by row.

use super::tile::{Tile, TileShape};
use crate::dtype::DType;
use crate::plan::Mainloop;
use crate::plan::choice::TileRequest;
use crate::problem::{ConvShape, Convolution, Operation};
use crate::target::Target;

/// The most channels for which bands are chosen: those of more come by im2col maps, or 16 bytes at a time.
const FEW_CHANNELS: usize = 16;
/// The most K elements of a filter in shared memory.
const MOST_TERMS: usize = 400;
/// The most pixels of a depthwise thread side by side, and registers that it may take for them.
const LONGEST_RUN: usize = 8;
const RUN_REGISTERS: usize = 216;
/// The widest window of such a thread.
const WIDEST_WINDOW: usize = 9;
/// The most blocks of a multiprocessor that are worth waiting for: what a grid has to fill.
const BLOCKS: usize = 4;

/// Why a mainloop cannot compute an operation, or, unless it is `forced`, should not.
pub(in crate::plan) fn why_not(mainloop: Mainloop, operation: Operation, target: Target, forced: bool) -> Option<String> {
    let Operation::Convolution { dtype, convolution } = operation else {
        return Some("the operation is not a convolution".into());
    };
    let of = convolution.measures();
    if mainloop == Mainloop::Depthwise {
        let wide = of.window[1] > WIDEST_WINDOW;
        return if convolution.channels_of_group() != 1 || convolution.filters_of_group() != 1 {
            Some("it is for convolutions in which each channel has a filter of its own".into())
        } else {
            wide.then(|| format!("a thread holds a row of the window, and {} taps are more than {WIDEST_WINDOW}", of.window[1]))
        };
    }
    if !matches!(dtype, DType::F16 | DType::BF16) {
        return Some(format!("it multiplies f16 and bf16, not {dtype}"));
    }
    if !target.has_cp_async_and_mma16() {
        return Some(format!("{target} has no mma.sync.m16n8k16"));
    }
    if of.groups > 1 {
        return Some("its filters read all channels".into());
    }
    if of.dilation[1] > 1 && of.window[1] > 1 && of.channels % 2 == 1 {
        return Some("the taps of a row of the window lie apart, and their channels are not pairs".into());
    }
    let terms = terms(&of);
    if terms > MOST_TERMS {
        return Some(format!("a filter lies in shared memory, and {terms} elements are more than {MOST_TERMS}"));
    }
    (!forced && of.channels > FEW_CHANNELS).then(|| format!("for at most {FEW_CHANNELS} channels"))
}

/// K as bands go through it: pairs of elements, row by row of the window, in whole steps of 16.
const fn terms(of: &ConvShape) -> usize {
    (of.window[0] * (of.window[1] * of.channels + lean(of)).next_multiple_of(2)).next_multiple_of(16)
}

/// How many copies of a line there are. In the second one elements lie one further to the left, for windows that begin at
/// odd elements: pairs are read as words.
const fn copies(of: &ConvShape) -> usize {
    if (of.stride[1] * of.channels).is_multiple_of(2) { 1 } else { 2 }
}

/// How many elements each window begins before its first one, if all of them begin at odd elements: pairs do not.
const fn lean(of: &ConvShape) -> usize {
    if copies(of) == 1 { of.padding[2] * of.channels % 2 } else { 0 }
}

/// Elements of a line before the image's first: padding on the left, in whole pieces of 16 bytes.
const fn lead(of: &ConvShape) -> usize {
    (of.padding[2] * of.channels).next_multiple_of(8)
}

/// Pixels that a window spans.
const fn span(of: &ConvShape, i: usize) -> usize {
    (of.window[i] - 1) * of.dilation[i] + 1
}

/// Elements of a line: those under the windows of a row of output pixels, in whole pieces of 16 bytes.
fn line(convolution: &Convolution) -> usize {
    let (of, [_, q]) = (convolution.measures(), convolution.output());
    let pixels = (q.max(1) - 1) * of.stride[1] + span(&of, 1);
    (lead(&of) - of.padding[2] * of.channels + pixels * of.channels + 1).next_multiple_of(8)
}

/// Lines, without copies, that the windows of so many neighbouring pixels reach at most. Images follow each other with all
/// lines that their windows reach.
fn lines(convolution: &Convolution, pixels: usize) -> usize {
    let (of, [p, q]) = (convolution.measures(), convolution.output());
    let (p, q) = (p.max(1), q.max(1));
    // Tiles of whole rows begin where a row does.
    let rows = if pixels.is_multiple_of(q) { pixels / q } else { (pixels + q - 2) / q + 1 };
    let borders = (rows + p - 2) / p;
    (rows - 1) * of.stride[0] + borders * span(&of, 0).saturating_sub(of.stride[0]) + span(&of, 0)
}

/// The tiles for a convolution, with estimates that compare them.
pub(in crate::plan) fn tiles(mainloop: Mainloop, request: &TileRequest<'_>) -> Vec<(Tile, f64)> {
    let Operation::Convolution { dtype, convolution } = request.operation else { return Vec::new() };
    match mainloop {
        Mainloop::Bands => band_tiles(&convolution, request),
        _ => depthwise_tiles(&convolution, dtype, request),
    }
}

fn band_tiles(convolution: &Convolution, request: &TileRequest<'_>) -> Vec<(Tile, f64)> {
    let of = convolution.measures();
    let (terms, line) = (terms(&of), line(convolution));
    let make = |bm: usize, bn: usize, [warps_m, warps_n]: [usize; 2], min_blocks: usize| {
        let lines = copies(&of) * lines(convolution, bm);
        let shape = TileShape::Bands { lines, line, terms, warps_m, warps_n };
        let tile = Tile { bm, bn, shape, threads: 32 * warps_m * warps_n, min_blocks };
        // Issue slots: products, pieces of lines and of filters, and the way of accumulators to the epilogue.
        let each = bm * bn / 256 * (terms / 16) + lines * line / 24 + bn * terms / 96 + bm * bn / 24;
        (tile, waves(&tile, request) * each as f64)
    };
    let wide = [([8, 1], 256, 2), ([4, 1], 256, 2), ([4, 1], 128, 3), ([2, 1], 64, 6)];
    let mut all: Vec<_> = wide.iter().map(|&(warps, bm, blocks)| make(bm, 64, warps, blocks)).collect();
    all.extend([([4, 1], 256, 3), ([8, 1], 256, 2), ([4, 1], 128, 4)].map(|(warps, bm, blocks)| make(bm, 32, warps, blocks)));
    all
}

/// Full rounds of as many tiles as are resident, a part of one as it fills the multiprocessors, and at least one tile.
fn waves(tile: &Tile, request: &TileRequest<'_>) -> f64 {
    let tiles = crate::plan::choice::tiles(tile, request.shape) as f64;
    let at_once = (request.gpu.multiprocessors * tile.min_blocks.min(BLOCKS)) as f64;
    let on_one = tiles / request.gpu.multiprocessors as f64;
    on_one.max((tiles / at_once).ceil().min(2.0))
}

fn depthwise_tiles(convolution: &Convolution, dtype: DType, request: &TileRequest<'_>) -> Vec<(Tile, f64)> {
    const THREADS: usize = 128;
    let (of, [_, q]) = (convolution.measures(), convolution.output());
    let (strip, size) = (request.strip, dtype.size());
    // Sums, a row of the window, two lines of pixels, addresses.
    let registers = |run: usize| {
        let words = dtype.value_type().storage().size() / 4;
        (run + of.window[1]) * strip * words + 2 * pixels_under(&of, run) * (strip * size).div_ceil(4) + 24
    };
    // Runs do not cross the end of a row of output pixels.
    let fits = |run: &usize| q.is_multiple_of(*run) && (registers(*run) <= RUN_REGISTERS || *run == 1);
    let taps = convolution.taps();
    let mut all = Vec::new();
    for run in (1..=LONGEST_RUN).rev().filter(fits).take(3) {
        for bn in [64, 32, 16].into_iter().filter(|bn| bn / strip <= 32 && bn >= &strip) {
            for passes in [1, 2, 4] {
                let bm = THREADS / (bn / strip) * run * passes;
                let min_blocks = (65_536 / (THREADS * registers(run).next_multiple_of(8))).clamp(1, 8);
                let tile = Tile { bm, bn, shape: TileShape::Depthwise { run, taps }, threads: THREADS, min_blocks };
                // Columns behind the last channel; pixels that are read for few windows; few warps; short pieces of a line of the
                // cache; tiles that lie far apart (`docs/measurements/0049-few-channels.md`).
                let columns = (request.shape.n.div_ceil(bn) * bn) as f64 / request.shape.n.max(1) as f64;
                let under = 1.0 + 0.6 * pixels_under(&of, run) as f64 / (run * of.stride[1]) as f64;
                let warps = [1.6, 1.27, 1.04, 1.0][min_blocks.min(4) - 1];
                let pieces = if bn * size < 128 { 1.02 } else { 1.0 };
                let apart = 1.0 + 0.03 * (passes - 1) as f64;
                let tiles = crate::plan::choice::tiles(&tile, request.shape).max(1) as f64;
                let idle = waves(&tile, request) * request.gpu.multiprocessors as f64 / tiles;
                all.push((tile, columns * under * warps * pieces * apart * idle));
            }
        }
    }
    all
}

/// Pixels of a line that a run of windows reads.
fn pixels_under(of: &ConvShape, run: usize) -> usize {
    let mut under: Vec<usize> =
        (0..run).flat_map(|q| (0..of.window[1]).map(move |s| q * of.stride[1] + s * of.dilation[1])).collect();
    under.sort_unstable();
    under.dedup();
    under.len()
}

impl Tile {
    /// Bytes of filters, places of pairs, and for two tiles places of rows, and lines.
    pub(super) fn band_memory(&self, size: usize) -> usize {
        let TileShape::Bands { lines, line, terms, .. } = self.shape else { return 0 };
        self.bn.saturating_mul((terms + 8) * size) + terms * 4 + 2 * self.bm * 4 + 2 * lines.saturating_mul(line * size)
    }

    /// The rule that a tile for convolutions breaks, if any.
    pub(super) fn broken_rule_of_direct(&self, operation: Operation, strip: usize) -> Option<&'static str> {
        let Operation::Convolution { convolution, .. } = operation else { return Some("it is for convolutions") };
        let Tile { bm, bn, threads, .. } = *self;
        let (of, [_, q]) = (convolution.measures(), convolution.output());
        let first_broken = |rules: &[(bool, &'static str)]| rules.iter().find(|(holds, _)| !holds).map(|(_, rule)| *rule);
        let strips = (bn >= 8 && bn.is_power_of_two() && bn.is_multiple_of(strip), "strips divide the columns, a power of two");
        match self.shape {
            TileShape::Bands { lines: all, line: length, terms: k, warps_m, warps_n } => {
                let copies = copies(&of);
                first_broken(&[
                    strips,
                    (why_not(Mainloop::Bands, operation, Target::SM_80, true).is_none(), "its convolutions have few channels"),
                    (threads == 32 * warps_m * warps_n && threads <= 1024, "its warps are those of the block"),
                    (bm.is_power_of_two() && bm.is_multiple_of(16 * warps_m), "a warp's rows are whole fragments"),
                    (bn.is_multiple_of(warps_n) && [32, 64, 128].contains(&(bn / warps_n)), "a warp's columns are 32, 64 or 128"),
                    (k == terms(&of), "K is that of the convolution's filters"),
                    (length >= line(&convolution) && length.is_multiple_of(8), "a line holds a row of windows, by 16 bytes"),
                    (
                        all >= copies * lines(&convolution, bm) && all.is_multiple_of(copies),
                        "lines hold what the windows of a tile reach",
                    ),
                ])
            }
            TileShape::Depthwise { run, taps } => {
                let threads_of_row = (bn / strip).max(1);
                let at_once = (threads / threads_of_row).max(1) * run;
                first_broken(&[
                    strips,
                    (
                        why_not(Mainloop::Depthwise, operation, Target::SM_80, true).is_none(),
                        "in its convolutions each channel has a filter, with few taps in a row",
                    ),
                    (threads.is_power_of_two() && (32..=1024).contains(&threads), "a block has 32 to 1024 threads"),
                    (threads.is_multiple_of(threads_of_row), "threads visit whole rows"),
                    (run <= 16 && (q.is_multiple_of(run)), "runs divide a row of output pixels"),
                    (bm.is_multiple_of(at_once), "a tile has whole runs of all threads"),
                    (taps == convolution.taps(), "taps are those of the convolution's window"),
                ])
            }
            _ => None,
        }
    }

    /// What kernels of these mainloops know of a convolution when they are compiled.
    pub(crate) fn patch_constants(&self, operation: Operation) -> Vec<(&'static str, usize)> {
        let Some(convolution) = operation.convolution() else { return Vec::new() };
        let of = convolution.measures();
        let window =
            [("WINDOW_Y", of.window[0]), ("WINDOW_X", of.window[1]), ("STRIDE_X", of.stride[1]), ("DILATION_X", of.dilation[1])];
        match self.shape {
            TileShape::Bands { .. } => {
                let bands = [("CHANNELS", of.channels), ("COPIES", copies(&of)), ("LEAN", lean(&of)), ("LEAD", lead(&of))];
                window.into_iter().chain(bands).collect()
            }
            TileShape::Depthwise { .. } => window.into(),
            _ => Vec::new(),
        }
    }
}
