//! `bands`: convolutions of few channels (`templates/mainloop/bands.cuh`).
//!
//! The rows of a tile are neighbouring output pixels, so their windows lie in a few lines of the images. A block copies these
//! lines into shared memory once, and takes every tap of every window from there. So it reads each line once, and multiplies
//! no zeros: K runs over the taps of a row of the window as they lie.

use super::direct::{self, waves};
use super::rules::{Asked, Number, Rules, Tried, first_broken};
use super::tile::{Tile, TileShape};
use crate::dtype::DType;
use crate::plan::code::{Copied, Copies, Price, Priced};
use crate::plan::epilogue::reduce::Unit;
use crate::plan::request::TileRequest;
use crate::problem::{ConvShape, Convolution, Operation};
use crate::target::{Gpu, Target};

/// Its rules.
pub(super) struct Bands;

/// The most channels for which bands are chosen: those of more come by im2col maps, or 16 bytes at a time.
const FEW_CHANNELS: usize = 16;
/// The most K elements of a filter in shared memory.
const MOST_TERMS: usize = 400;

/// Lines, elements of a line, elements of a filter, and warps along M and N.
fn own(tile: &Tile) -> [usize; 5] {
    match tile.shape {
        TileShape::Bands { lines, line, terms, warps_m, warps_n } => [lines, line, terms, warps_m, warps_n],
        _ => [1; 5],
    }
}

/// Why it cannot compute an operation, or, unless it is `forced`, should not.
fn obstacle(operation: Operation, target: Target, forced: bool) -> Option<String> {
    let Operation::Convolution { dtype, convolution } = operation else {
        return Some("the operation is not a convolution".into());
    };
    let few = (!forced && convolution.measures().channels > FEW_CHANNELS).then(|| format!("for at most {FEW_CHANNELS} channels"));
    beyond_bands(dtype, &convolution, target).or(few)
}

/// Why the windows of a convolution are not read from bands.
pub(super) fn beyond_bands(dtype: DType, convolution: &Convolution, target: Target) -> Option<String> {
    let of = convolution.measures();
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
    (terms > MOST_TERMS).then(|| format!("a filter lies in shared memory, and {terms} elements are more than {MOST_TERMS}"))
}

/// K as bands go through it: pairs of elements, row by row of the window, in whole steps of 16.
pub(super) const fn terms(of: &ConvShape) -> usize {
    (of.window[0] * (of.window[1] * of.channels + lean(of)).next_multiple_of(2)).next_multiple_of(16)
}

/// How many copies of a line there are. In the second one elements lie one further to the left, for windows that begin at
/// odd elements: pairs are read as words.
pub(super) const fn copies(of: &ConvShape) -> usize {
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
pub(super) fn line(convolution: &Convolution) -> usize {
    let (of, [_, q]) = (convolution.measures(), convolution.output());
    let pixels = (q.max(1) - 1) * of.stride[1] + span(&of, 1);
    (lead(&of) - of.padding[2] * of.channels + pixels * of.channels + 1).next_multiple_of(8)
}

/// Lines, without copies, that the windows of so many neighbouring pixels reach at most. Tiles of whole rows begin where a row
/// does.
fn lines(convolution: &Convolution, pixels: usize) -> usize {
    let [_, q] = convolution.output();
    let whole = pixels.is_multiple_of(q.max(1));
    lines_of_rows(convolution, if whole { pixels / q.max(1) } else { rows_of(convolution, pixels) })
}

/// Rows that so many neighbouring pixels lie in at most.
pub(super) fn rows_of(convolution: &Convolution, pixels: usize) -> usize {
    let [_, q] = convolution.output();
    (pixels + q.max(1) - 2) / q.max(1) + 1
}

/// Lines that the windows of neighbouring rows reach at most. Images follow each other with all lines that their windows reach.
pub(super) fn lines_of_rows(convolution: &Convolution, rows: usize) -> usize {
    let (of, [p, _]) = (convolution.measures(), convolution.output());
    let p = p.max(1);
    let borders = (rows + p - 2) / p;
    (rows - 1) * of.stride[0] + borders * span(&of, 0).saturating_sub(of.stride[0]) + span(&of, 0)
}

/// The tiles for a convolution, with estimates that compare them.
fn tiles(convolution: &Convolution, request: &TileRequest<'_>) -> Vec<(Tile, f64)> {
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

impl Rules for Bands {
    fn why_not(&self, asked: &Asked<'_>) -> Option<String> {
        direct::is_part(asked).or_else(|| obstacle(asked.operation, asked.target, asked.forced))
    }

    fn candidates(&self, request: &TileRequest<'_>) -> Vec<Tried> {
        let Operation::Convolution { convolution, .. } = request.operation else { return Vec::new() };
        let tiles = tiles(&convolution, request).into_iter();
        tiles.map(|(tile, time)| Tried { tile, obstacle: None, time: Some(time) }).collect()
    }

    fn broken_rule(&self, tile: &Tile, operation: Operation, _: [usize; 2], strip: usize) -> Option<&'static str> {
        let Operation::Convolution { convolution, .. } = operation else { return Some("it is for convolutions") };
        let (Tile { bm, bn, threads, .. }, [all, length, k, warps_m, warps_n]) = (*tile, own(tile));
        let of = convolution.measures();
        let copies = copies(&of);
        first_broken(&[
            direct::strips(tile, strip),
            (obstacle(operation, Target::SM_80, true).is_none(), "its convolutions have few channels"),
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

    fn numbers(&self, tile: &Tile) -> Vec<usize> {
        [&[tile.bn][..], &own(tile)].concat()
    }

    fn constants(&self, tile: &Tile, _: bool) -> Vec<Number> {
        let [lines, line, terms, warps_m, warps_n] = own(tile);
        vec![("LINES", lines), ("LINE", line), ("TERMS", terms), ("WARPS_M", warps_m), ("WARPS_N", warps_n)]
    }

    fn words(&self, tile: &Tile) -> String {
        let [lines, line, terms, warps_m, warps_n] = own(tile);
        format!("x{terms}, {lines} lines of {line} elements, {warps_m}x{warps_n} warps")
    }

    fn copies(&self, of: &Copied<'_>) -> Copies {
        let [.., warps_m, warps_n] = own(of.tile);
        of.by_slabs([warps_m, warps_n], self.memory(of.tile, of.operation.dtype())[1])
    }

    fn price(&self, of: &Priced<'_>) -> Price {
        let [_, _, terms, warps_m, warps_n] = own(of.copied.tile);
        let fragments = of.copied.tile.bm / warps_m.max(1) * (of.copied.tile.bn / warps_n.max(1)) / 128;
        let kernel = 911.0 + 1.35 * terms as f64 + 7.84 * fragments as f64;
        Price { kernel, thousand: 248.0, load: 182.0, store: 74.2, reduction: 207.0, sum: 0.0 }
    }

    /// Filters, places of pairs, and for two tiles places of rows, and lines. Slabs are behind them.
    fn memory(&self, tile: &Tile, dtype: DType) -> [usize; 2] {
        let ([lines, line, terms, warps_m, warps_n], size) = (own(tile), dtype.size());
        let [slabs, rows] = tile.with_slabs(0, [warps_m, warps_n]);
        let filters = tile.bn.saturating_mul((terms + 8) * size);
        let bands = filters + terms * 4 + 2 * tile.bm * 4 + 2 * lines.saturating_mul(line * size);
        [bands + slabs, rows]
    }

    fn registers(&self, tile: &Tile, _: Operation, _: usize) -> usize {
        tile.bm * tile.bn / tile.threads + 64
    }

    fn unit(&self, tile: &Tile, strip: usize) -> Unit {
        let [.., warps_n] = own(tile);
        Unit::of_warps(tile, warps_n, strip)
    }

    /// Each block keeps its columns.
    fn grid(&self, tile: &Tile, [rows, columns]: [usize; 2], _: usize, gpu: Gpu) -> Option<[u32; 3]> {
        let lines = (gpu.multiprocessors * tile.min_blocks / columns.max(1)).clamp(1, rows.max(1));
        let blocks = lines.checked_mul(columns)?;
        (blocks <= i32::MAX as usize).then_some([blocks as u32, 1, 1])
    }

    fn reads_bands(&self) -> bool {
        true
    }

    fn patch_constants(&self, operation: Operation) -> Vec<Number> {
        constants(operation)
    }
}

/// The constants of a kernel that reads bands.
pub(super) fn constants(operation: Operation) -> Vec<Number> {
    let Some(patches) = operation.patches() else { return Vec::new() };
    let of = patches.convolution.measures();
    let bands = [("CHANNELS", of.channels), ("COPIES", copies(&of)), ("LEAN", lean(&of)), ("LEAD", lead(&of))];
    direct::window(operation).into_iter().chain(bands).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Convolutions with windows of many kinds.
    fn all() -> impl Iterator<Item = Convolution> {
        let windows = [[1, 1], [3, 3], [2, 5], [7, 2]];
        let moves = [([1, 1], [1, 1]), ([2, 2], [1, 1]), ([3, 1], [2, 1]), ([1, 3], [1, 2]), ([4, 4], [1, 1])];
        let each = windows.into_iter().flat_map(move |window| moves.map(|(stride, dilation)| (window, stride, dilation)));
        each.flat_map(|(window, stride, dilation)| {
            [(1, [0; 4]), (2, [1; 4]), (3, [3, 0, 1, 2]), (4, [0, 2, 3, 1])].map(|(channels, padding)| {
                let shape = ConvShape::new(3, [13, 11, channels], [8, window[0], window[1]]);
                Convolution::new(shape.stride(stride).dilation(dilation).padding_of(padding)).unwrap()
            })
        })
    }

    /// The first and the last line of the windows of some output pixels, where images follow each other.
    fn reached(convolution: &Convolution, [begin, end]: [usize; 2]) -> [usize; 2] {
        let (of, [p, q]) = (convolution.measures(), convolution.output());
        let of_image = (p - 1) * of.stride[0] + (of.window[0] - 1) * of.dilation[0] + 1;
        let line = |pixel: usize, tap: usize| pixel / q / p * of_image + pixel / q % p * of.stride[0] + tap * of.dilation[0];
        [line(begin, 0), line(end - 1, of.window[0] - 1)]
    }

    #[test]
    fn lines_are_those_that_windows_reach() {
        for convolution in all() {
            let (of, [p, q]) = (convolution.measures(), convolution.output());
            let pixels = 9 * p * q;
            for bm in [1, 2, 5, q, 2 * q, 16, p * q].into_iter().filter(|bm| *bm <= pixels) {
                let step = if bm.is_multiple_of(q) { bm } else { 1 };
                let reached = |begin: usize| reached(&convolution, [begin, begin + bm]);
                let most = (0..=pixels - bm).step_by(step).map(|begin| reached(begin)[1] + 1 - reached(begin)[0]).max().unwrap();
                let planned = lines(&convolution, bm);
                assert!(most <= planned, "{of}: {bm} pixels reach {most} lines, not {planned}");
                // Tiles of whole rows need not cross the end of an image where they could.
                assert!(step > 1 || of.stride[0] > span(&of, 0) || most == planned, "{of}: {bm}, {most} and {planned}");
            }
        }
    }

    #[test]
    fn pairs_of_windows_begin_at_words_of_a_copy_and_lie_in_a_line() {
        for convolution in all() {
            let (of, [_, q]) = (convolution.measures(), convolution.output());
            let (first, behind) = (lead(&of) - of.padding[2] * of.channels, lean(&of));
            let run = of.window[1] * of.channels + behind;
            for window in 0..q {
                let begin = first + window * of.stride[1] * of.channels;
                assert!(begin >= behind, "{of}: it begins in the line");
                // The second copy has each element one place further to the left.
                assert!((0..copies(&of)).any(|copy| (begin - behind - copy).is_multiple_of(2)), "{of}: window {window}");
                let last = begin + ((of.window[1] - 1) * of.dilation[1] + 1) * of.channels;
                assert!(last < line(&convolution), "{of}: {last} of {}", line(&convolution));
                assert!(window + 1 < q || line(&convolution) < last + 9, "{of}: no more pieces than that");
            }
            assert!(lead(&of).is_multiple_of(8) && line(&convolution).is_multiple_of(8));
            let pairs = of.window[0] * run.div_ceil(2);
            assert_eq!(terms(&of), (2 * pairs).div_ceil(16) * 16, "{of}");
        }
    }
}
