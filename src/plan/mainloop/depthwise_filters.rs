//! `depthwise_filters`: the gradient of the filters of convolutions with one channel to a filter
//! (`templates/mainloop/depthwise_filters.cuh`).
//!
//! Each filter has a few elements, and each of them is a sum over all output pixels. So K is what blocks share: a thread
//! walks down a part of the images with all sums of its channels in registers, and reads each line once. Blocks leave their sums
//! in the workspace, and the last one adds them up.

use super::direct::{self, LONGEST_RUN, WIDEST_WINDOW};
use super::rules::{Asked, Number, Rules, Tried, first_broken};
use super::tile::{Tile, TileShape};
use crate::dtype::DType;
use crate::plan::code::{Price, Priced};
use crate::plan::request::TileRequest;
use crate::problem::{GradientOf, Operation, Patches, Shape};
use crate::target::Gpu;

/// Its rules.
pub(super) struct DepthwiseFilters;

/// Registers that a thread may take.
const MOST_REGISTERS: usize = 216;
/// The most taps. All sums of a block lie in shared memory.
const MOST_TAPS: usize = 512;

/// The numbers of a tile's own part.
#[derive(Clone, Copy)]
struct Own {
    /// Channels of a thread.
    vector: usize,
    /// Threads side by side along the channels.
    lanes: usize,
    /// Output pixels of a thread side by side.
    run: usize,
    /// Rows of the window whose sums a thread has at a time.
    rows: usize,
    /// Rows and columns of the window.
    window: [usize; 2],
    /// Parts of K.
    parts: usize,
}

impl Own {
    const fn of(tile: &Tile) -> Own {
        match tile.shape {
            TileShape::DepthwiseFilters { vector, lanes, run, rows, window, parts } => {
                Own { vector, lanes, run, rows, window, parts }
            }
            _ => Own { vector: 1, lanes: 1, run: 1, rows: 1, window: [1; 2], parts: 1 },
        }
    }

    const fn channels(&self) -> usize {
        self.vector * self.lanes
    }

    /// Sums of a block.
    const fn sums(&self) -> usize {
        self.window[0].saturating_mul(self.window[1]).saturating_mul(self.channels())
    }
}

/// The convolution, if the operation is the gradient of its filters.
fn patches_of(operation: Operation) -> Option<Patches> {
    operation.patches().filter(|patches| patches.gradient == Some(GradientOf::Filters))
}

/// Why it cannot compute an operation.
fn obstacle(operation: Operation) -> Option<String> {
    let Some(patches) = patches_of(operation) else {
        return Some("the operation is not the gradient of a convolution's filters".into());
    };
    let (of, taps) = (patches.convolution.measures(), patches.convolution.taps());
    if let Err(why) = direct::has_one_channel(&patches) {
        Some(why)
    } else if of.window[1] > WIDEST_WINDOW {
        Some(format!("a thread holds a row of the window, and {} taps are more than {WIDEST_WINDOW}", of.window[1]))
    } else {
        (taps > MOST_TAPS).then(|| format!("a block has all sums of a filter, and {taps} are more than {MOST_TAPS}"))
    }
}

/// What a thread does for a row of its run of output pixels.
struct Step<'p> {
    patches: &'p Patches,
    /// Bytes of an element, and words of a sum.
    sizes: [usize; 2],
    own: Own,
}

impl Step<'_> {
    /// Pixels of a line under the run, lines that stay for the next row, and lines that are loaded.
    fn lines(&self) -> [usize; 3] {
        let of = self.patches.convolution.measures();
        let keeps = of.dilation[0] == 1 && of.stride[0] < self.own.rows;
        let kept = if keeps { self.own.rows - of.stride[0] } else { 0 };
        [direct::pixels_under(self.patches, self.own.run), kept, self.own.rows - kept]
    }

    fn registers(&self) -> usize {
        let ([size, words], Own { vector, run, rows, window, .. }) = (self.sizes, self.own);
        let ([under, _, fresh], raw) = (self.lines(), (vector * size).div_ceil(4));
        let sums = rows * window[1] * vector * words;
        sums + (rows + fresh) * under * raw + run * (raw + vector * words) + vector * words + 40
    }

    /// Issue slots: products, conversions, loads with their addresses and conditions.
    fn slots(&self) -> usize {
        let ([size, words], Own { vector, run, rows, window, .. }) = (self.sizes, self.own);
        let [under, _, fresh] = self.lines();
        let converted = if size < 4 { vector * (rows * under + run) } else { 0 };
        rows * window[1] * run * vector * words + converted + 4 * (fresh * under + run) + 24
    }
}

/// The tiles for a convolution, with estimates that compare them in cycles.
fn tiles(patches: &Patches, operation: Operation, request: &TileRequest<'_>) -> Vec<(Tile, f64)> {
    let (of, [height, q]) = (patches.convolution.measures(), patches.windows().grid);
    let (size, sum) = (operation.dtype().size(), operation.accumulator().storage().size());
    let wide = |vector: &usize| vector * size <= 16;
    let runs = (1..=LONGEST_RUN).rev().filter(|run| q.is_multiple_of(*run));
    let mut all = Vec::new();
    for (vector, run) in [8, 4, 2, 1].into_iter().filter(wide).flat_map(|vector| runs.clone().map(move |run| (vector, run))) {
        let step = |rows: usize| {
            let own = Own { vector, lanes: 1, run, rows, window: of.window, parts: 1 };
            Step { patches, sizes: [size, sum / 4], own }
        };
        // As many rows of the window at a time as fit, in equal turns.
        let Some(most) = (1..=of.window[0]).rev().find(|rows| step(*rows).registers() <= MOST_REGISTERS) else { continue };
        let turns = of.window[0].div_ceil(most);
        let step = step(of.window[0].div_ceil(turns));
        for (lanes, threads) in
            [32, 16, 8, 4, 2].into_iter().flat_map(|lanes| [512, 256, 128].map(move |threads| (lanes, threads)))
        {
            // Estimated at 124 of 128, a kernel spilled four.
            if threads * (step.registers() + 6) > 65_536 || !(4..=128).contains(&(lanes * vector)) {
                continue;
            }
            let min_blocks = (65_536 / (threads * step.registers().next_multiple_of(8))).clamp(1, 1536 / threads);
            let tiles = of.groups.div_ceil(lanes * vector).max(1);
            let resident = request.gpu.multiprocessors * min_blocks;
            let rows = (of.images * (q / run)).div_ceil(threads / lanes) * height;
            let parts = (resident / tiles).clamp(1, rows.clamp(1, 1 << 14));
            let own = Own { lanes, parts, ..step.own };
            let tile = tile(own, threads, min_blocks, request);
            let steps = (rows.div_ceil(parts) * turns) as f64;
            let waves = (tiles * parts).div_ceil(resident) as f64;
            // Slots of four schedulers; memory with a line on its way; a step waits for memory once.
            let warps = (threads / 32) as f64;
            let slots = steps * step.slots() as f64 * min_blocks as f64 * warps / 4.0;
            let waits = steps * LATENCY;
            // Short pieces of a line of the cache; few warps.
            let pieces = [1.3, 1.05, 1.0][(lanes * vector * size / 64).min(2)];
            let few = [1.15, 1.08, 1.0][(min_blocks * threads / 256).saturating_sub(1).min(2)];
            let read = (patches.image_pixels() * of.channels + patches.shape().k * of.filters) * size;
            let memory = pieces * few * read as f64 / BYTES / waves;
            let ends = 1500.0 + LATENCY * (parts as f64 * own.sums() as f64 / (threads * 32) as f64);
            all.push((tile, waves * (slots.max(waits).max(memory) + 0.1 * (slots + waits)) + ends));
        }
    }
    all.sort_by(|a, b| a.1.total_cmp(&b.1));
    all.truncate(MOST_TILES);
    all
}

/// The most tiles that are tried.
const MOST_TILES: usize = 24;
/// Cycles that a load from memory takes under load, and bytes that memory delivers in a cycle of an H200.
const LATENCY: f64 = 900.0;
const BYTES: f64 = 2300.0;

fn tile(own: Own, threads: usize, min_blocks: usize, request: &TileRequest<'_>) -> Tile {
    let bn = own.window.iter().product::<usize>().next_power_of_two().clamp(8.max(request.strip), 64);
    let Own { vector, lanes, run, rows, window, parts } = own;
    let shape = TileShape::DepthwiseFilters { vector, lanes, run, rows, window, parts };
    Tile { bm: threads / (bn / request.strip), bn, shape, threads, min_blocks }
}

impl Rules for DepthwiseFilters {
    fn why_not(&self, asked: &Asked<'_>) -> Option<String> {
        if asked.epilogue.summed_operand().is_some() {
            return Some("it has no sums of operands".into());
        }
        direct::is_part(asked).or_else(|| obstacle(asked.operation))
    }

    fn candidates(&self, request: &TileRequest<'_>) -> Vec<Tried> {
        let Some(patches) = patches_of(request.operation) else { return Vec::new() };
        let tiles = tiles(&patches, request.operation, request).into_iter();
        tiles.map(|(tile, time)| Tried { tile, obstacle: None, time: Some(time) }).collect()
    }

    fn broken_rule(&self, tile: &Tile, operation: Operation, _: [usize; 2], strip: usize) -> Option<&'static str> {
        let Some(patches) = patches_of(operation) else { return Some("it is for gradients of filters") };
        let (Tile { bm, bn, threads, .. }, own, [_, q]) = (*tile, Own::of(tile), patches.windows().grid);
        let Own { vector, lanes, run, rows, window, .. } = own;
        first_broken(&[
            direct::strips(tile, strip),
            (obstacle(operation).is_none(), "in its convolutions each channel has a filter, with few taps in a row"),
            (threads.is_power_of_two() && (32..=1024).contains(&threads), "a block has 32 to 1024 threads"),
            (bm * (bn / strip) == threads, "threads visit a tile once"),
            (lanes.is_power_of_two() && lanes <= 32, "threads along the channels are a part of a warp"),
            (vector.is_power_of_two() && vector <= 16, "a thread has up to 16 channels, a power of two"),
            (own.channels() >= 4, "a block's sums are pieces of 16 bytes"),
            (run <= 16 && q.is_multiple_of(run), "runs divide a row of output pixels"),
            (window == patches.convolution.measures().window, "the window is the convolution's"),
            (rows <= window[0], "rows at a time are some of the window's"),
        ])
    }

    fn numbers(&self, tile: &Tile) -> Vec<usize> {
        let Own { vector, lanes, run, rows, window: [y, x], parts } = Own::of(tile);
        vec![tile.bn, vector, lanes, run, rows, y, x, parts]
    }

    fn constants(&self, tile: &Tile, _: bool) -> Vec<Number> {
        let Own { vector, lanes, run, rows, parts, .. } = Own::of(tile);
        vec![("VECTOR", vector), ("LANES", lanes), ("RUN", run), ("ROWS", rows), ("PARTS", parts)]
    }

    fn words(&self, tile: &Tile) -> String {
        let (own, threads) = (Own::of(tile), tile.threads);
        let Own { vector, run, rows, window, parts, .. } = own;
        let turns = if rows < window[0] { format!(", {rows} rows of the window at a time") } else { String::new() };
        format!(
            " of {} channels, {threads} threads, {vector} channels of {run} pixels each{turns}, K in {parts} parts",
            own.channels()
        )
    }

    fn price(&self, of: &Priced<'_>) -> Price {
        let own = Own::of(of.copied.tile);
        let lines = patches_of(of.copied.operation).map(|patches| Step { patches: &patches, sizes: [1; 2], own }.lines());
        let ([under, kept, fresh], Own { vector, run, rows, .. }) = (lines.unwrap_or([1; 3]), own);
        let widened = (rows * under + run) * vector * of.widening(0);
        let loads = ((kept + 2 * fresh) * under + 2 * run) * vector;
        let kernel = 155.0 + 0.31 * widened as f64 + 8.0 * loads as f64;
        Price { kernel, thousand: 111.0, load: 0.0, store: 15.0, reduction: 185.0, sum: 0.0 }
    }

    /// The block's sums, and those of its warps.
    fn memory(&self, tile: &Tile, dtype: DType) -> [usize; 2] {
        let own = Own::of(tile);
        let at_once = (tile.threads / 32).saturating_mul(own.rows * own.window[1] * own.channels()).max(own.sums());
        [dtype.value_type().storage().size().saturating_mul(own.sums().saturating_add(at_once)), 0]
    }

    fn registers(&self, tile: &Tile, operation: Operation, _: usize) -> usize {
        let Own { vector, rows, window, .. } = Own::of(tile);
        operation.accumulator().storage().size() / 4 * rows * window[1] * vector + 32
    }

    /// Eight columns are the most of a visit.
    fn accumulators(&self, _: &Tile) -> usize {
        8
    }

    /// The parts of K of one tile of channels after the other's.
    fn grid(&self, tile: &Tile, [rows, columns]: [usize; 2], batch: usize, _: Gpu) -> Option<[u32; 3]> {
        let own = Own::of(tile);
        let blocks = batch.div_ceil(own.channels()).checked_mul(own.parts)?;
        (blocks <= i32::MAX as usize).then_some([if rows * columns > 0 { blocks as u32 } else { 0 }, 1, 1])
    }

    fn takes_any_channels(&self) -> bool {
        true
    }

    fn shares_sums(&self) -> bool {
        true
    }

    /// A counter for each tile of channels, and the sums of each block.
    fn shared_sums(&self, tile: &Tile, operation: Operation, shape: Shape) -> [usize; 2] {
        let own = Own::of(tile);
        let (tiles, sum) = (shape.batch.div_ceil(own.channels()), operation.accumulator().storage().size());
        [tiles.saturating_mul(4), tiles.saturating_mul(own.parts).saturating_mul(own.sums()).saturating_mul(sum)]
    }

    fn patch_constants(&self, operation: Operation) -> Vec<Number> {
        let Some(patches) = operation.patches() else { return Vec::new() };
        let of = patches.convolution.measures();
        let down = [("STRIDE_Y", of.stride[0]), ("DILATION_Y", of.dilation[0])];
        direct::window(operation).into_iter().chain(down).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problem::{ConvShape, Convolution};

    /// The work of a step, counted one by one.
    #[test]
    fn a_step_has_slots_for_what_it_does() {
        for (stride, dilation) in [(1, 1), (2, 1), (1, 2), (3, 1)] {
            let shape = ConvShape::new(2, [40, 40, 32], [32, 5, 3]).groups(32).stride([stride; 2]).dilation([dilation; 2]);
            let convolution = Convolution::new(shape).expect("a convolution");
            let operation = Operation::ConvolutionGradient { dtype: DType::F32, convolution, of: GradientOf::Filters };
            let patches = patches_of(operation).expect("the gradient of its filters");
            for (sizes, vector, run, rows) in [([4, 1], 4, 2, 5), ([8, 2], 2, 4, 3), ([2, 1], 8, 1, 2), ([1, 1], 4, 3, 1)] {
                let own = Own { vector, lanes: 8, run, rows, window: [5, 3], parts: 1 };
                let step = Step { patches: &patches, sizes, own };
                // Columns of the image that windows of the run cover, and lines that the row before has not read.
                let columns = |pixel: usize| (0..3).map(move |tap| pixel * stride + tap * dilation);
                let under = (0..run).flat_map(columns).collect::<std::collections::HashSet<_>>().len();
                let fresh = if dilation == 1 { (0..rows).filter(|row| row + stride >= rows).count() } else { rows };
                assert_eq!(step.lines(), [under, rows - fresh, fresh], "{shape}, {rows} rows, {run} pixels");
                let mut slots = 24;
                for _row in 0..rows {
                    for _pixel in 0..run {
                        for _tap in 0..3 {
                            slots += vector * sizes[1];
                        }
                    }
                }
                for _pixel in 0..fresh * under + run {
                    slots += 4;
                }
                if sizes[0] < 4 {
                    slots += vector * (rows * under + run);
                }
                assert_eq!(step.slots(), slots, "{shape}, {rows} rows, {run} pixels");
            }
        }
    }
}
