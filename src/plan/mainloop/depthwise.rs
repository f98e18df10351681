//! `depthwise`: convolutions with one channel to a filter, and the gradients of their images
//! (`templates/mainloop/depthwise.cuh`). The room beside this one, `depthwise_filters`, has the gradients of their filters.
//!
//! Each filter reads one channel, so tensor cores have nothing to multiply. A thread has the same few channels of some pixels
//! side by side, and goes through the pixels under their windows row by row.

use super::direct::{self, LONGEST_RUN, WIDEST_WINDOW, waves};
use super::rules::{Asked, Number, Rules, Tried, first_broken};
use super::tile::{Tile, TileShape};
use crate::dtype::DType;
use crate::plan::code::{Copied, Copies, Price, Priced, widening};
use crate::plan::request::TileRequest;
use crate::problem::{Operation, Patches};

/// Its rules.
pub(super) struct Depthwise;

/// Registers that a thread may take for the pixels of its run.
const RUN_REGISTERS: usize = 216;
/// The most instructions of such a thread's widened pixels and products: about three seconds of compiling.
const MOST_CODE: f64 = 3000.0;

/// Pixels of a thread at a time, and taps of the window.
fn own(tile: &Tile) -> [usize; 2] {
    if let TileShape::Depthwise { run, taps } = tile.shape { [run, taps] } else { [1; 2] }
}

/// Why it cannot compute an operation.
fn obstacle(operation: Operation) -> Option<String> {
    let of = match direct::of_one_channel(operation) {
        Ok(patches) => patches.convolution.measures(),
        Err(why) => return Some(why),
    };
    let wide = of.window[1] > WIDEST_WINDOW;
    wide.then(|| format!("a thread holds a row of the window, and {} taps are more than {WIDEST_WINDOW}", of.window[1]))
}

/// Widened pixels and products in the code of a thread. The compiler sees the lines under a window in up to three places, each
/// with and without the end of the channels.
fn seen(patches: &Patches, run: usize, strip: usize, widening: usize) -> [f64; 2] {
    let [height, width] = patches.convolution.measures().window;
    let places = 2 * if height == 1 { 1 } else { 2 + height % 2 };
    [direct::pixels_under(patches, run) * widening, run * width].map(|elements| (places * strip * elements) as f64)
}

/// Whether the code of a run is short enough to be compiled.
fn is_compiled_soon(patches: &Patches, run: usize, strip: usize, widening: usize) -> bool {
    let [widened, products] = seen(patches, run, strip, widening);
    0.4 * widened + 1.46 * products <= MOST_CODE
}

/// The tiles for a convolution, with estimates that compare them.
fn tiles(patches: &Patches, dtype: DType, request: &TileRequest<'_>) -> Vec<(Tile, f64)> {
    const THREADS: usize = 128;
    let (windows, [_, q]) = (patches.windows(), patches.windows().grid);
    let (strip, size) = (request.strip, dtype.size());
    // Sums, a row of the window, two lines of pixels, addresses.
    let registers = |run: usize| {
        let words = dtype.value_type().storage().size() / 4;
        (run + patches.convolution.measures().window[1]) * strip * words
            + 2 * direct::pixels_under(patches, run) * (strip * size).div_ceil(4)
            + 24
    };
    let is_short = |run: usize| registers(run) <= RUN_REGISTERS && is_compiled_soon(patches, run, strip, widening(dtype));
    // Runs do not cross the end of a row of output pixels.
    let fits = |run: &usize| q.is_multiple_of(*run) && (*run == 1 || is_short(*run));
    let taps = patches.convolution.taps();
    let mut all = Vec::new();
    for run in (1..=LONGEST_RUN).rev().filter(fits).take(3) {
        for bn in [64, 32, 16].into_iter().filter(|bn| bn / strip <= 32 && bn >= &strip) {
            for passes in [1, 2, 4] {
                let bm = THREADS / (bn / strip) * run * passes;
                let min_blocks = (65_536 / (THREADS * registers(run).next_multiple_of(8))).clamp(1, 8);
                let tile = Tile { bm, bn, shape: TileShape::Depthwise { run, taps }, threads: THREADS, min_blocks };
                // Columns behind the last channel; pixels that are read for few windows; few warps, unless windows are large;
                // short pieces of a line of the cache; weights that each tile loads; tiles that lie far apart
                // (`docs/measurements/0071-depthwise-tiles.md`).
                let columns = (request.shape.n.div_ceil(bn) * bn) as f64 / request.shape.n.max(1) as f64;
                let under = 1.0 + 0.6 * direct::pixels_under(patches, run) as f64 / (run * windows.stride[1]) as f64;
                let warps = 1.0 + [0.6, 0.27, 0.04, 0.0][min_blocks.min(4) - 1] * (9.0 / taps as f64).min(1.0);
                let pieces = [1.1, 1.05, 1.0][(bn * size / 64).min(2)];
                let weights = 1.0 + 0.25 * taps as f64 / bm as f64;
                let apart = 1.0 + 0.03 * (passes - 1) as f64;
                let tiles = tile.count(request.shape).max(1) as f64;
                let idle = waves(&tile, request) * request.gpu.multiprocessors as f64 / tiles;
                all.push((tile, columns * under * warps * pieces * weights * apart * idle));
            }
        }
    }
    all
}

impl Rules for Depthwise {
    fn why_not(&self, asked: &Asked<'_>) -> Option<String> {
        direct::is_part(asked).or_else(|| obstacle(asked.operation))
    }

    fn candidates(&self, request: &TileRequest<'_>) -> Vec<Tried> {
        let Some(patches) = direct::images(request.operation) else { return Vec::new() };
        let tiles = tiles(&patches, request.operation.dtype(), request).into_iter();
        tiles.map(|(tile, time)| Tried { tile, obstacle: None, time: Some(time) }).collect()
    }

    fn broken_rule(&self, tile: &Tile, operation: Operation, _: [usize; 2], strip: usize) -> Option<&'static str> {
        let Some(patches) = direct::images(operation) else {
            return Some("it is for convolutions and gradients of their images");
        };
        let (Tile { bm, bn, threads, .. }, [run, taps], [_, q]) = (*tile, own(tile), patches.windows().grid);
        let threads_of_row = (bn / strip).max(1);
        let at_once = (threads / threads_of_row).max(1) * run;
        first_broken(&[
            direct::strips(tile, strip),
            (obstacle(operation).is_none(), "in its convolutions each channel has a filter, with few taps in a row"),
            (threads.is_power_of_two() && (32..=1024).contains(&threads), "a block has 32 to 1024 threads"),
            (threads.is_multiple_of(threads_of_row), "threads visit whole rows"),
            (run <= 16 && (q.is_multiple_of(run)), "runs divide a row of output pixels"),
            (bm.is_multiple_of(at_once), "a tile has whole runs of all threads"),
            (taps == patches.convolution.taps(), "taps are those of the convolution's window"),
        ])
    }

    fn numbers(&self, tile: &Tile) -> Vec<usize> {
        [&[tile.bn][..], &own(tile)].concat()
    }

    fn constants(&self, tile: &Tile, _: bool) -> Vec<Number> {
        vec![("RUN", own(tile)[0])]
    }

    fn words(&self, tile: &Tile) -> String {
        format!(", {} threads, {} pixels each", tile.threads, own(tile)[0])
    }

    fn reads_spread(&self) -> bool {
        true
    }

    fn price(&self, of: &Priced<'_>) -> Price {
        let Copied { tile, operation, strip, .. } = of.copied;
        let seen = direct::images(operation).map(|patches| seen(&patches, own(tile)[0], strip, of.widening(0)));
        let [widened, products] = seen.unwrap_or_default();
        let kernel = 135.0 + 0.119 * widened + 1.65 * products;
        Price { kernel, thousand: 184.0, load: 0.0, store: 66.9, reduction: 165.0, sum: 0.0 }
    }

    fn memory(&self, tile: &Tile, dtype: DType) -> [usize; 2] {
        [dtype.value_type().storage().size() * own(tile)[1] * tile.bn, 0]
    }

    fn registers(&self, tile: &Tile, operation: Operation, strip: usize) -> usize {
        operation.accumulator().storage().size() / 4 * own(tile)[0] * strip + 40
    }

    /// A thread goes from run to run. Eight columns are the most of a visit.
    fn accumulators(&self, tile: &Tile) -> usize {
        own(tile)[0] * 8
    }

    fn copies(&self, of: &Copied<'_>) -> Copies {
        Copies { limited: false, ..Copies::of_visits(of.strip, own(of.tile)[0]) }
    }

    fn takes_any_channels(&self) -> bool {
        true
    }

    fn patch_constants(&self, operation: Operation) -> Vec<Number> {
        direct::window(operation)
    }
}
