//! The choice among Hopper's tiles: which there are, and what each is estimated to take.
//!
//! The estimate counts clock cycles, and for launches that heat the device what they cost in clock. Its form is that of
//! the kernel. There are two sets of numbers. The one for operands whose rows begin at lines was fitted to every tile on
//! 26 shapes, most of them powers of two, in short and in long slices. The other one was fitted to a survey of shapes
//! that nobody picked, of which most have rows that begin anywhere. `tests/choices/fit.rs` holds both against that survey
//! (`docs/measurements/0042-survey-of-tiles.md`).

use crate::plan::choice::tiles as count_tiles;
use crate::plan::epilogue::program::{Phase, Program};
use crate::plan::mainloop::patches;
use crate::plan::mainloop::sm90a::staging::{chunk_columns, delays_store, is_direct_store};
use crate::plan::{ArgumentRuns, Schedule, Tile, TileShape};
use crate::problem::{Layout, Operation, Shape};
use crate::target::{Gpu, GpuModel};
use serde::Serialize;

/// The tiles, each with the most stages that may fit. Blocks that fetch enough come alone and in pairs along M; those of
/// half a narrow output's columns also in pairs along N, which fetch its larger operand once.
static TILES: [Tile; 24] = [
    Tile::ping_pong(128, 192, 5),
    Tile::ping_pong(128, 176, 5),
    Tile::ping_pong(128, 160, 6),
    Tile::ping_pong(128, 128, 6),
    Tile::ping_pong(64, 256, 5),
    Tile::ping_pong(192, 128, 5),
    Tile::cooperative(128, 256, 4),
    Tile::cooperative(256, 128, 4),
    Tile::cooperative(256, 192, 3),
    Tile::cooperative(128, 240, 4),
    Tile::cooperative(128, 224, 4),
    Tile::cooperative(128, 208, 5),
    Tile::cooperative(128, 192, 5),
    Tile::cooperative(128, 176, 5),
    Tile::cooperative(128, 160, 6),
    Tile::cooperative(128, 144, 6),
    Tile::cooperative(128, 128, 6),
    Tile::cooperative(128, 112, 7),
    Tile::cooperative(128, 96, 7),
    Tile::cooperative(128, 80, 8),
    Tile::cooperative(128, 64, 8),
    Tile::single(64, 128, 4),
    Tile::single(64, 64, 6),
    Tile::single(64, 32, 8),
];
/// Tiles for outputs that are no wider, which are not shared.
static NARROW_TILES: [Tile; 2] = [Tile::single(64, 16, 10), Tile::single(64, 8, 10)];

/// Every tile that may be chosen, for operands whose elements have this size.
pub(in crate::plan) fn tiles(size: usize) -> impl Iterator<Item = Tile> {
    let pairs = TILES.iter().filter(|tile| tile.bn >= 64).map(|tile| tile.clustered(2, 1));
    let across = TILES.iter().filter(|tile| tile.bn == 64).map(|tile| tile.clustered(1, 2));
    TILES.iter().chain(&NARROW_TILES).copied().chain(pairs).chain(across).map(move |tile| tile.of_elements(size))
}

/// Declares the model: a field for each number, with its value where rows of both operands begin at lines and where they
/// do not, and all of them by name.
macro_rules! model {
    ($($(#[$doc:meta])* $name:ident: $at_lines:literal, $across_lines:literal;)*) => {
        /// What Hopper's tiles cost: the numbers of the estimate, most of them in clock cycles.
        ///
        /// The form of the estimate is that of the kernel. `cargo xtask fit-tiles` fits the numbers to measured tiles.
        #[derive(Clone, Copy, Debug, PartialEq, Serialize)]
        pub struct CostModel {
            $($(#[$doc])* pub $name: f64,)*
        }

        impl CostModel {
            /// Of an H200, where rows of both operands begin at multiples of 128 bytes: lines of the level-2 cache.
            pub const H200: CostModel = CostModel { $($name: $at_lines,)* };

            /// Of an H200, where they do not: what blocks fetch costs more, and more of it is seen.
            pub const H200_ACROSS_LINES: CostModel = CostModel { $($name: $across_lines,)* };

            /// Every number with its name.
            pub fn parameters(&mut self) -> Vec<(&'static str, &mut f64)> {
                vec![$((stringify!($name), &mut self.$name),)*]
            }
        }
    };
}

impl CostModel {
    /// Of an H100 likewise: not fitted, but the H200's with what the H100's memory moves.
    pub const H100: CostModel = CostModel { from_memory: SLOWER_MEMORY * CostModel::H200.from_memory, ..CostModel::H200 };

    /// Of an H100, where rows do not begin at lines.
    pub const H100_ACROSS_LINES: CostModel =
        CostModel { from_memory: SLOWER_MEMORY * CostModel::H200_ACROSS_LINES.from_memory, ..CostModel::H200_ACROSS_LINES };

    /// The model for a GPU, and for whether rows of both operands begin at lines.
    pub const fn of(model: GpuModel, rows_begin_at_lines: bool) -> &'static CostModel {
        match (model, rows_begin_at_lines) {
            (GpuModel::H200, true) => &CostModel::H200,
            (GpuModel::H200, false) => &CostModel::H200_ACROSS_LINES,
            (GpuModel::H100, true) => &CostModel::H100,
            (GpuModel::H100, false) => &CostModel::H100_ACROSS_LINES,
        }
    }
}

/// The bandwidth of an H100's memory over that of an H200's: 3.35 over 4.8 TB/s.
const SLOWER_MEMORY: f64 = 0.7;

model! {
    /// How much longer one consumer takes than two.
    single: 1.08, 1.249;
    /// How much longer blocks with two consumers take that wait for each other in a cluster.
    clustered: 1.005, 1.125;
    /// The same of blocks with one consumer.
    clustered_single: 1.05, 1.188;
    /// How much longer clusters take where sharing saves nothing: enough to rule them out.
    unshared: 1.3, 1.0;
    /// Cycles that a cluster takes to begin together.
    rendezvous: 250.0, 578.0;
    /// Cycles of an epilogue before and after its elements: barriers, the way through shared memory.
    epilogue: 1100.0, 1128.0;
    /// The same where a block has one consumer.
    epilogue_single: 1100.0, 1663.0;
    /// Cycles of each chunk of an epilogue.
    chunk: 180.0, 312.6;
    /// The same where lanes store their chunks themselves.
    chunk_direct: 180.0, 493.8;
    /// Cycles of each chunk for every bit mask that is written and every reduction, which are also missing from the
    /// products that they hide under; for a matrix that is read, of those chunks which are only there because they are
    /// narrower than 64 columns.
    besides: 30.0, 30.0;
    /// How much longer an epilogue takes under the products of another tile.
    under_products: 2.5, 2.5;
    /// Cycles that a chunk of a matrix that is read adds there.
    read: 100.0, 100.0;
    /// Cycles until what an epilogue has written has left the place where the next epilogue's chunks go.
    handover: 1000.0, 1000.0;
    /// Cycles until the products of a tile run again behind an epilogue that nothing covers.
    restart: 200.0, 0.0;
    /// Issue slots of an element beside those of its own values: conversion, store, accumulator.
    element: 3.0, 20.33;
    /// The part of the values' own cost that counts where they are spelled fast, since special-function instructions run
    /// beside others.
    fast: 0.3, 1.176;
    /// The cost up to which that holds. Nothing heavier was measured, and heavier epilogues belong on tiles that leave
    /// them registers.
    fast_limit: 64.0, 64.0;
    /// Cycles between the products of one tile and of the next where results leave under those, for each chunk that does.
    delayed_store: 150.0, 603.3;
    /// The least cycles of products that a chunk needs to leave under.
    delayed_block: 1024.0, 1025.0;
    /// Cycles of each block of K beside its products.
    block: 0.0, 2.437;
    /// How much longer one consumer's epilogue takes than its share of two.
    alone: 1.2, 1.073;
    /// Cycles of a launch before its first and after its last tile.
    launch: 4500.0, 1500.0;
    /// Cycles that are added where the next launch's blocks do not find room beside this one's.
    launch_behind: 0.0, 1257.0;
    /// Bytes a cycle that all multiprocessors fetch from L2.
    from_l2: 23000.0, 5445.0;
    /// Bytes a cycle that come from memory, where blocks ask for the same ones more than once.
    from_memory: 5000.0, 4354.0;
    /// The part of that fetching which nothing covers.
    exposed: 0.0, 0.285;
    /// Bytes a cycle that one multiprocessor takes in.
    into_shared: 1000000000.0, 65.0;
    /// How long clusters along M take over what the rest says, where K is contiguous in both operands.
    clustered_m: 1.0, 0.8914;
    /// The same of clusters along N.
    clustered_n: 1.0, 0.8523;
    /// The same of clusters along M, in the other layouts.
    clustered_m_other: 1.0, 0.72;
    /// The same of clusters along N, in the other layouts.
    clustered_n_other: 1.0, 0.826;
    /// Cycles from which on a launch is large enough for the device's limit of power to show, where such launches follow
    /// each other.
    powered: 200000.0, 635700.0;
    /// What that costs as a part of the whole for each element read from L2 for a multiply-add.
    read_from_l2: 3.0, 29.6;
    /// The same for each element written to shared memory for one.
    written_to_shared: 5.0, 0.0;
}

/// Bytes of K by which a multiprocessor's tensor cores multiply and add in a cycle: 2048 elements of 16 bits, 4096 of eight.
const MULTIPLY_ADDS: f64 = 4096.0;
/// How much longer products take whose sums are promoted, and the most accumulators of a thread that has them twice.
const PROMOTED: f64 = 1.04;
const MOST_PROMOTED: usize = 96;

/// Bytes a cycle that one multiprocessor takes in of a convolution's images, through im2col maps, and of its filters; and how
/// much longer tiles take of whose columns more than a third lies behind the filters
/// (`docs/measurements/0046-convolutions.md`).
const OF_IMAGES: f64 = 47.0;
const OF_FILTERS: f64 = 92.0;
const WASTED: f64 = 1.8;

/// Nanoseconds of a cycle: between launches that fill the device for 100 us, which come to 1.2 estimated cycles a
/// nanosecond, and short ones of few blocks, which come to 1.7.
pub(in crate::plan) const NANOSECONDS: f64 = 1.0 / 1.4;

/// What an estimate depends on beside the tile, as the kernel sees it.
#[derive(Clone, Copy)]
pub(in crate::plan) struct CostInputs<'r> {
    pub operation: Operation,
    pub program: &'r Program,
    pub argument_runs: &'r [ArgumentRuns],
    pub shape: Shape,
    pub gpu: Gpu,
    pub fast_math: bool,
    /// Whether runs of both operands begin at multiples of 128 bytes, as far as is known.
    pub rows_begin_at_lines: bool,
    /// Whether the tensor cores' sums of a few elements of K are added up outside of them.
    pub promotes: bool,
}

/// Why a tile has no room for sums that are promoted, if they are: beside those of the tensor cores a thread holds its own.
pub(in crate::plan) fn lacks_room(tile: &Tile, promotes: bool) -> Option<String> {
    let (held, is_hopper) = (tile.accumulators(), matches!(tile.shape, TileShape::Sm90a { .. }));
    (is_hopper && promotes && held > MOST_PROMOTED).then(|| {
        format!(
            "a thread would hold {held} sums twice, to promote them; at most {MOST_PROMOTED}, unless \
             `Gemm::fast_accumulation` is allowed"
        )
    })
}

/// What a tile is estimated to take, in cycles.
struct Cycles {
    /// Terms of K, with those that make up whole blocks.
    terms: f64,
    product: f64,
    epilogue: f64,
    /// Of the epilogue what is missing from the products that it hides under.
    besides: f64,
    /// Of the epilogue what the elements' values take.
    values: f64,
    chunks: f64,
    /// Matrices that the epilogue reads.
    loads: f64,
    delayed_store: bool,
}

/// What a Hopper tile takes: of its own, and of what is to be computed.
fn of_tile(tile: &Tile, inputs: &CostInputs<'_>, model: &CostModel) -> Option<Cycles> {
    let TileShape::Sm90a { bk, consumers, schedule, .. } = tile.shape else { return None };
    let program = inputs.program;
    let area = (tile.bm * tile.bn) as f64;
    let blocks_m = tile.bm / 64 / if schedule == Schedule::PingPong { 1 } else { consumers };
    let chunk = chunk_columns(tile, program, inputs.argument_runs);
    let chunks = blocks_m * (tile.bn / chunk);
    let delayed_store = delays_store(tile, program, inputs.argument_runs);
    let size = inputs.operation.dtype().size();
    let k = match inputs.operation {
        Operation::Convolution { convolution, .. } => patches::padded_terms(&convolution, size, inputs.shape),
        _ => inputs.shape.k,
    };
    let terms = k.next_multiple_of(bk.min(128 / size)) as f64;
    let product = (terms * size as f64 * area / MULTIPLY_ADDS + (terms / bk as f64).ceil() * model.block)
        * if inputs.promotes { PROMOTED } else { 1.0 }
        * if consumers == 1 { model.single } else { 1.0 }
        * if tile.cluster() > 1 { if consumers == 1 { model.clustered_single } else { model.clustered } } else { 1.0 };
    let cost = f64::from(program.cost(inputs.fast_math));
    let of_element = if inputs.fast_math && cost <= model.fast_limit { model.fast * cost } else { cost };
    let values = of_element * area / 128.0;
    let chunks = chunks as f64;
    let masks = program.stores.iter().filter(|store| store.operand.dtype.is_packed()).count();
    let loads = program.loads_of(Phase::Visit).count() as f64;
    let narrower = chunks - (blocks_m * tile.bn) as f64 / 64.0;
    let besides = model.besides * ((masks + program.reductions.len()) as f64 * chunks + loads * narrower);
    let direct = is_direct_store(tile, program, inputs.argument_runs, chunk);
    let begin = if consumers == 1 { model.epilogue_single } else { model.epilogue };
    let epilogue =
        begin + if direct { model.chunk_direct } else { model.chunk } * chunks + besides + model.element * area / 128.0 + values;
    Some(Cycles { terms, product, epilogue, besides, values, chunks, loads, delayed_store })
}

/// Whether a tile's epilogue is over before the next tile's products are, so that the next epilogue may wait for it.
pub(in crate::plan) fn hides(tile: &Tile, inputs: &CostInputs<'_>) -> bool {
    let model = CostModel::of(inputs.gpu.model, inputs.rows_begin_at_lines);
    let Some(Cycles { product, epilogue, chunks, loads, .. }) = of_tile(tile, inputs, model) else { return false };
    model.under_products * (epilogue + model.read * loads * chunks) + model.handover < product
}

/// Cycles of a tile's epilogue.
pub(in crate::plan) fn epilogue(tile: &Tile, inputs: &CostInputs<'_>) -> f64 {
    let model = CostModel::of(inputs.gpu.model, inputs.rows_begin_at_lines);
    of_tile(tile, inputs, model).map_or(0.0, |cycles| cycles.epilogue)
}

/// Whether a tile's epilogue runs under the products of another.
pub(in crate::plan) const fn takes_turns(tile: &Tile) -> bool {
    matches!(tile.shape, TileShape::Sm90a { schedule: Schedule::PingPong, .. })
}

/// Estimated cycles.
pub(in crate::plan) fn estimate(tile: &Tile, inputs: &CostInputs<'_>, model: &CostModel) -> f64 {
    let TileShape::Sm90a { schedule, cluster: [cluster_m, cluster_n], .. } = tile.shape else { return f64::INFINITY };
    let Some(Cycles { terms, product, epilogue, besides, values, chunks, delayed_store, .. }) = of_tile(tile, inputs, model)
    else {
        return f64::INFINITY;
    };
    let (shape, size) = (inputs.shape, inputs.operation.dtype().size());
    let whole = Tile { bm: tile.bm * cluster_m, bn: tile.bn * cluster_n, ..*tile };
    let (clustered, clusters) = (cluster_m * cluster_n, count_tiles(&whole, shape) as f64);
    let (blocks, multiprocessors) = (clusters * clustered as f64, inputs.gpu.multiprocessors);
    let waves = (clusters / (multiprocessors / clustered).max(1) as f64).ceil();
    let area = (tile.bm * tile.bn) as f64;
    let compute = match schedule {
        // Only what an element takes is seen of an epilogue, and the way out of the last one.
        Schedule::Cooperative if delayed_store => {
            waves * (product.max(model.delayed_block * chunks) + model.delayed_store * chunks + values) + epilogue
        }
        // An epilogue runs under the next product; only the last one is seen.
        Schedule::PingPong => waves * (product + besides).max(model.alone * epilogue) + model.alone * epilogue,
        Schedule::Cooperative => waves * (product + epilogue + model.restart),
    };
    let narrow = shape.m.min(shape.n) <= crate::plan::transposed::NARROW;
    let l2 = model.from_l2;
    let bytes = |lines: usize, sharing: usize| blocks * lines as f64 / sharing as f64 * terms * size as f64;
    // The larger operand of a narrow output, which are the rows of its tiles, comes from memory.
    let fetch = bytes(tile.bm, cluster_n) / if narrow { l2.min(model.from_memory) } else { l2 } + bytes(tile.bn, cluster_m) / l2;
    let taken_in = match inputs.operation {
        Operation::Convolution { .. } => {
            waves * terms * size as f64 * (tile.bm as f64 / OF_IMAGES + tile.multiplied_columns() as f64 / OF_FILTERS)
        }
        _ => waves * terms * ((tile.bm + tile.bn) * size) as f64 / model.into_shared,
    };
    // A smooth maximum: what is nearly as long as the longest still shows.
    let smooth = |times: &[f64]| times.iter().map(|time| time.powi(4)).sum::<f64>().powf(0.25);
    let longest = match inputs.operation {
        // Products hide what is taken in of images, or wait for it.
        Operation::Convolution { .. } => smooth(&[compute, fetch]).max(taken_in),
        _ => smooth(&[compute, fetch, taken_in]),
    };
    // Of short launches the next one's blocks are there already, if there is room for them.
    let fills = 2.0 * blocks > multiprocessors as f64;
    let total = longest
        + model.exposed * fetch
        + model.launch
        + if fills { model.launch_behind } else { 0.0 }
        + if clustered > 1 { model.rendezvous } else { 0.0 };
    let written = (tile.bm + tile.bn) as f64 / area;
    // Blocks whose consumers take turns get from L2 together what they ask for at the same time, also without being a pair.
    let sharing_m = if schedule == Schedule::PingPong { 2 } else { cluster_m };
    let read = (tile.bm as f64 / cluster_n as f64 + tile.bn as f64 / sharing_m as f64) / area;
    let powered = 1.0 + model.read_from_l2 * read + model.written_to_shared * written;
    let factor = |applies: bool, factor: f64| if applies { factor } else { 1.0 };
    let in_vain = shape.n.next_multiple_of(whole.bn) - shape.n;
    let is_wasted = inputs.operation.convolution().is_some() && 3 * in_vain > shape.n.next_multiple_of(whole.bn);
    let other = inputs.operation.layout() != Some(Layout::TN);
    total
        * factor(is_wasted, WASTED)
        * factor(total > model.powered, powered)
        * factor(cluster_m > 1, if other { model.clustered_m_other } else { model.clustered_m })
        * factor(cluster_n > 1, if other { model.clustered_n_other } else { model.clustered_n })
        // A narrow output waits for its larger operand, not for what a pair along M could share.
        * factor(narrow && cluster_m > 1, model.unshared)
}
