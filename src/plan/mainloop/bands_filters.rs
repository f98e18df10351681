//! `bands_filters`: the gradient of the filters of convolutions of few channels (`templates/mainloop/bands_filters.cuh`).
//!
//! K are output pixels, and neighbouring ones have their windows in a few lines of the images, as in `bands`. A block has all
//! elements of its filters. So each line of dY is read once, and each line of the images once for every tile of filters.

use super::bands::{self, beyond_bands};
use super::direct;
use super::rules::{Asked, Number, Rules, Tried, first_broken};
use super::tile::{Tile, TileShape};
use crate::dtype::DType;
use crate::plan::code::{Price, Priced};
use crate::plan::request::TileRequest;
use crate::problem::{Convolution, GradientOf, Operation};
use crate::target::Target;

/// Its rules.
pub(super) struct BandsFilters;

/// The fewest channels that other mainloops copy 16 bytes at a time.
const MANY_CHANNELS: usize = 8;
/// Threads of a block.
const THREADS: usize = 512;

/// The numbers of a tile's own part.
#[derive(Clone, Copy)]
struct Own {
    lines: usize,
    line: usize,
    terms: usize,
    pixels: usize,
    warps_n: usize,
    warps_k: usize,
}

impl Own {
    const fn of(tile: &Tile) -> Own {
        match tile.shape {
            TileShape::BandsFilters { lines, line, terms, pixels, warps_n, warps_k } => {
                Own { lines, line, terms, pixels, warps_n, warps_k }
            }
            _ => Own { lines: 1, line: 1, terms: 16, pixels: 16, warps_n: 1, warps_k: 1 },
        }
    }

    /// Pieces of 16 elements of a filter that a warp has.
    const fn elements(&self) -> usize {
        (self.terms / 16).div_ceil(self.warps_n)
    }
}

/// The convolution, if the operation is the gradient of its filters.
fn convolution_of(operation: Operation) -> Option<Convolution> {
    let patches = operation.patches().filter(|patches| patches.gradient == Some(GradientOf::Filters));
    patches.map(|patches| patches.convolution)
}

/// Why it cannot compute an operation.
fn obstacle(operation: Operation, alignment: usize, target: Target) -> Option<String> {
    let Some(convolution) = convolution_of(operation) else {
        return Some("the operation is not the gradient of a convolution's filters".into());
    };
    let unaligned = || (alignment < 16).then(|| format!("lines of dY come by 16 bytes, and are aligned to {alignment}"));
    beyond_bands(operation.dtype(), &convolution, target).or_else(unaligned)
}

/// The lines under so many pixels that begin anywhere.
fn lines(convolution: &Convolution, pixels: usize) -> usize {
    bands::copies(&convolution.measures()) * bands::lines_of_rows(convolution, bands::rows_of(convolution, pixels))
}

/// The tiles for a convolution, with their estimated times in nanoseconds.
fn tiles(convolution: &Convolution, request: &TileRequest<'_>) -> Vec<(Tile, f64)> {
    const CLOCK: f64 = 1.7;
    let of = convolution.measures();
    let (terms, line) = (bands::terms(&of), bands::line(convolution));
    let mut all = Vec::new();
    for (bm, pixels) in [128, 64, 32, 16].into_iter().flat_map(|bm| [256, 128, 64].map(move |pixels| (bm, pixels))) {
        let warps = THREADS / 32;
        // Up to 64 sums of a thread.
        let most = (128 / bm).clamp(1, 4);
        let warps_n = (terms / 16).div_ceil(most);
        if warps_n > warps {
            continue;
        }
        let warps_k = (warps / warps_n).min(pixels / 16);
        let own = Own { lines: lines(convolution, pixels), line, terms, pixels, warps_n, warps_k };
        let bn = request.shape.n.next_power_of_two().max(THREADS * request.strip / bm).max(8);
        let Own { lines, .. } = own;
        let shape = TileShape::BandsFilters { lines, line, terms, pixels, warps_n, warps_k };
        let tile = Tile { bm, bn, shape, threads: THREADS, min_blocks: 1 };
        // Cycles of a step of 16 pixels: products, reads of shared memory, and what is copied there.
        let products = (own.elements() * warps_n * bm / 8) as f64 * 1.7;
        let reads = (warps_n * (1 + 4 * own.elements() + bm / 4)) as f64;
        let copies = (16 * bm * 2 + lines * line * 32 / pixels) as f64 / 64.0;
        let warps = warps as f64 / (warps_n * warps_k) as f64;
        let steps = (request.shape.k.div_ceil(pixels) * pixels / 16) as f64;
        let rounds = tile.count(request.shape).div_ceil(request.gpu.multiprocessors as u64) as f64;
        all.push((tile, rounds * (3000.0 + steps * (products.max(reads + copies) * warps.sqrt() * 1.25) / CLOCK)));
    }
    all
}

impl Rules for BandsFilters {
    fn why_not(&self, asked: &Asked<'_>) -> Option<String> {
        if asked.epilogue.summed_operand().is_some() {
            return Some("it has no sums of operands".into());
        }
        let many = || {
            let channels = convolution_of(asked.operation).map_or(0, |convolution| convolution.measures().channels);
            (!asked.forced && channels >= MANY_CHANNELS).then(|| format!("for fewer than {MANY_CHANNELS} channels"))
        };
        obstacle(asked.operation, asked.alignment[0], asked.target).or_else(many)
    }

    fn candidates(&self, request: &TileRequest<'_>) -> Vec<Tried> {
        let Some(convolution) = convolution_of(request.operation) else { return Vec::new() };
        let tiles = tiles(&convolution, request).into_iter();
        tiles.map(|(tile, time)| Tried { tile, obstacle: None, time: Some(time) }).collect()
    }

    /// Estimates are nanoseconds.
    fn nanoseconds(&self, _: DType) -> Option<f64> {
        Some(1.0)
    }

    fn broken_rule(&self, tile: &Tile, operation: Operation, alignment: [usize; 2], strip: usize) -> Option<&'static str> {
        let Some(convolution) = convolution_of(operation) else { return Some("it is for gradients of filters") };
        let (Tile { bm, bn, threads, .. }, own) = (*tile, Own::of(tile));
        let Own { lines: all, line, terms, pixels, warps_n, warps_k } = own;
        let of = convolution.measures();
        let strips = (bn / strip).max(1);
        first_broken(&[
            direct::strips(tile, strip),
            (
                obstacle(operation, alignment[0], Target::SM_80).is_none(),
                "its convolutions have few channels, and dY whole pieces",
            ),
            (threads.is_power_of_two() && (32..=1024).contains(&threads), "a block has 32 to 1024 threads"),
            (threads >= 32 * warps_n * warps_k, "its warps are some of the block's"),
            (bm.is_power_of_two() && (16..=128).contains(&bm), "a tile has 16 to 128 filters"),
            (bn >= convolution.taps() * of.channels, "a tile has all elements of a filter"),
            (threads.is_multiple_of(strips) && bm.is_multiple_of(threads / strips), "threads visit whole rows"),
            (own.elements() * bm <= 256, "a thread has at most 128 sums"),
            (pixels.is_multiple_of(16) && warps_k <= pixels / 16, "pixels are whole steps, and some for each warp"),
            (terms == bands::terms(&of), "K is that of the convolution's filters"),
            (line >= bands::line(&convolution) && line.is_multiple_of(8), "a line holds a row of windows, by 16 bytes"),
            (
                all >= lines(&convolution, pixels) && all.is_multiple_of(bands::copies(&of)),
                "lines hold what the windows of the pixels reach",
            ),
        ])
    }

    fn numbers(&self, tile: &Tile) -> Vec<usize> {
        let Own { lines, line, terms, pixels, warps_n, warps_k } = Own::of(tile);
        vec![tile.bn, lines, line, terms, pixels, warps_n, warps_k]
    }

    fn constants(&self, tile: &Tile, _: bool) -> Vec<Number> {
        let Own { lines, line, terms, pixels, warps_n, warps_k } = Own::of(tile);
        vec![("LINES", lines), ("LINE", line), ("TERMS", terms), ("BK", pixels), ("WARPS_N", warps_n), ("WARPS_K", warps_k)]
    }

    fn words(&self, tile: &Tile) -> String {
        let Own { lines, line, pixels, warps_n, warps_k, .. } = Own::of(tile);
        format!("x{pixels}, {lines} lines of {line} elements, {warps_n} warps, {warps_k} times")
    }

    fn price(&self, of: &Priced<'_>) -> Price {
        let fragments = Own::of(of.copied.tile).elements() * of.copied.tile.bm / 16;
        Price { kernel: 880.0 + 104.0 * fragments as f64, thousand: 330.0, load: 0.0, store: 22.0, reduction: 66.0, sum: 0.0 }
    }

    /// For two sets of pixels their places, lines and lines of dY; later all sums.
    fn memory(&self, tile: &Tile, dtype: DType) -> [usize; 2] {
        let (Own { lines, line, pixels, .. }, size) = (Own::of(tile), dtype.size());
        let pixel = 4 + tile.bm.saturating_mul(size);
        let buffers = 2 * (pixels.saturating_mul(pixel) + lines.saturating_mul(line.saturating_mul(size)));
        [buffers.max(tile.bm.saturating_mul(tile.bn).saturating_mul(4)), 0]
    }

    fn registers(&self, tile: &Tile, _: Operation, _: usize) -> usize {
        Own::of(tile).elements() * tile.bm / 2 + 48
    }

    /// Eight columns are the most of a visit.
    fn accumulators(&self, _: &Tile) -> usize {
        8
    }

    fn reads_bands(&self) -> bool {
        true
    }

    fn patch_constants(&self, operation: Operation) -> Vec<Number> {
        bands::constants(operation)
    }
}
