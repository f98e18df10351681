//! The choice among Hopper's tiles: the list of tiles, and the estimated time of each.
//!
//! The estimate counts clock cycles. For launches that heat the device it adds the cost in clock speed. Its form is
//! that of the kernel, and its numbers are in `cost_model.rs`.

use crate::plan::epilogue::bytes;
use crate::plan::epilogue::program::{Phase, Program};
use crate::plan::mainloop::patches;
use crate::plan::mainloop::sm90a::smem::{RING, stage_bytes};
use crate::plan::mainloop::sm90a::staging::{CHUNK_ROWS, chunk_columns, delays_store, is_direct_store};
use crate::plan::request::TileRequest;
use crate::plan::{ArgumentRuns, CostModel, Schedule, Tile, TileShape};
use crate::problem::{Layout, Operation, Shape};
use crate::target::Gpu;

/// The tiles, each with the most stages that may fit. Tiles of at least 64 columns are also tried in clusters 2x1.
/// Those of 64 columns are also tried in clusters 1x2, which fetch the larger operand of a narrow output once.
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
/// Tiles for narrower outputs, which are not clustered.
static NARROW_TILES: [Tile; 2] = [Tile::single(64, 16, 10), Tile::single(64, 8, 10)];

/// Small tiles for a short K, where a tile is little but its epilogue: one consumer's runs beside the other's loads.
static SHORT_TILES: [Tile; 4] =
    [Tile::ping_pong(64, 128, 6), Tile::ping_pong(64, 192, 6), Tile::ping_pong(128, 64, 6), Tile::ping_pong(192, 64, 6)];

/// Bytes of a ring of stages for a short K. It needs few stages, and the chunks of the epilogue's matrices gain from the room
/// (`docs/measurements/0095-shallow-rings.md`).
const SHORT_RING: usize = 128 << 10;

/// The tile with few stages if K is short: as many as fit into such a ring, or as K has blocks.
fn shallow(tile: Tile, inputs: &CostInputs<'_>) -> Tile {
    let TileShape::Sm90a { bk, stages, consumers, schedule, cluster, splits_k } = tile.shape else { return tile };
    if !inputs.is_short_at_lines() {
        return tile;
    }
    let enough = (SHORT_RING / stage_bytes(&tile, inputs.operation, bk)).max(inputs.shape.k.div_ceil(bk)).max(2);
    let shape = TileShape::Sm90a { bk, stages: stages.min(enough), consumers, schedule, cluster, splits_k };
    Tile { shape, ..tile }
}

/// Small tiles for convolutions, whose images take longer to come than to multiply: one consumer's epilogue runs meanwhile. Tall
/// ones bring the fewest lines of filters for each line of images.
static CONVOLUTION_TILES: [Tile; 5] = [
    Tile::ping_pong(256, 64, 5),
    Tile::ping_pong(192, 64, 6),
    Tile::ping_pong(128, 64, 8),
    Tile::ping_pong(64, 128, 8),
    Tile::ping_pong(64, 192, 6),
];

/// The tiles that are tried beside those of all problems. Gradients of filters, whose images are columns, were not timed.
fn small_tiles(inputs: &CostInputs<'_>) -> &'static [Tile] {
    match inputs.operation.patches() {
        Some(patches) if patches.are_rows() => &CONVOLUTION_TILES,
        _ if inputs.is_short_at_lines() => &SHORT_TILES,
        _ => &[],
    }
}

/// Every tile that may be chosen.
pub(in crate::plan) fn tiles(inputs: CostInputs<'_>) -> impl Iterator<Item = Tile> {
    let size = inputs.operation.multiplied().size();
    let small = small_tiles(&inputs);
    let pairs = TILES.iter().filter(|tile| tile.bn >= 64).map(|tile| tile.clustered(2, 1));
    let across = TILES.iter().filter(|tile| tile.bn == 64).map(|tile| tile.clustered(1, 2));
    // Small tiles come first, and are taken where several have the same estimate, that of images: their epilogues are hidden.
    let all = small.iter().chain(&TILES).chain(&NARROW_TILES).copied().chain(pairs).chain(across);
    all.map(move |tile| shallow(tile.of_elements(size), &inputs))
}

/// Bytes of K that a multiprocessor's tensor cores multiply and add in a cycle: 1024 elements of tf32, 2048 of 16 bits,
/// 4096 of eight.
const MULTIPLY_ADDS: f64 = 4096.0;
/// Products whose sums are promoted: the factor of their time, the cycles that a consumer waits for the last sums of a panel
/// before it can add them, and the most accumulators of a thread that holds them twice.
const PROMOTED: f64 = 1.04;
const PROMOTION: f64 = 190.0;
const MOST_PROMOTED: usize = 96;

/// Cycles of a block beyond K, which a delayed store adds for each of its chunks that K has no block for.
const EMPTY_BLOCK: f64 = 1000.0;

/// Bytes a cycle that one multiprocessor takes in of a convolution's images, through im2col maps, and of its filters
/// (`docs/measurements/0047-convolutions.md`).
const OF_IMAGES: f64 = 47.0;
const OF_FILTERS: f64 = 92.0;
/// Factors, of products and of convolutions, for tiles with more than a third of their columns outside of the matrix.
const WASTED: [f64; 2] = [1.12, 1.8];

/// Nanoseconds of an estimated cycle. Launches that fill the device for 100 us have 1.2 estimated cycles a nanosecond,
/// and short launches of few blocks have 1.7. This value lies between the two.
pub(in crate::plan) const NANOSECONDS: f64 = 1.0 / CostModel::CYCLES;

/// The extent up to which an output is narrow.
pub(super) const NARROW: usize = 128;

/// The inputs of an estimate beside the tile, as the kernel sees them.
#[derive(Clone, Copy)]
pub(in crate::plan) struct CostInputs<'r> {
    pub operation: Operation,
    pub program: &'r Program,
    pub argument_runs: &'r [ArgumentRuns],
    pub shape: Shape,
    pub gpu: Gpu,
    pub fast_math: bool,
    /// Whether runs of each operand begin at multiples of 128 bytes, as far as is known.
    pub rows_begin_at_lines: [bool; 2],
    /// Whether the kernel adds up the tensor cores' sums of a few K elements itself.
    pub promotes: bool,
}

impl<'r> CostInputs<'r> {
    pub fn of(request: &TileRequest<'r>) -> CostInputs<'r> {
        let &TileRequest { operation, program, argument_runs, shape, gpu, fast_math, rows_begin_at_lines, .. } = request;
        let promotes = request.promotes();
        CostInputs { operation, program, argument_runs, shape, gpu, fast_math, rows_begin_at_lines, promotes }
    }

    /// Whether K is short and rows begin at cache lines.
    pub fn is_short_at_lines(&self) -> bool {
        is_short(self.operation, self.shape) && self.rows_begin_at_lines == [true; 2]
    }

    /// The model that is for them.
    pub fn model(&self) -> &'static CostModel {
        if self.is_short_at_lines() {
            return &CostModel::SHORT;
        }
        CostModel::of(self.gpu.model, self.rows_begin_at_lines == [true; 2])
    }
}

/// Why a tile has no registers for promoted sums, if sums are promoted: a thread holds its own sums beside those of the
/// tensor cores.
pub(in crate::plan) fn lacks_room(tile: &Tile, promotes: bool) -> Option<String> {
    let (held, is_hopper) = (tile.accumulators(), matches!(tile.shape, TileShape::Sm90a { .. }));
    (is_hopper && promotes && held > MOST_PROMOTED).then(|| {
        format!(
            "a thread would hold {held} sums twice, to promote them; at most {MOST_PROMOTED}, unless \
             `Gemm::fast_accumulation` is allowed"
        )
    })
}

/// The accumulators of a thread beyond which they take most registers.
const CROWDED: usize = 160;

/// The estimated cycles of a tile.
struct Cycles {
    /// K, rounded up to whole blocks.
    terms: f64,
    product: f64,
    epilogue: f64,
    /// The part of the epilogue that slows down the products which hide it.
    besides: f64,
    /// The part of the epilogue that computes the elements' values.
    values: f64,
    chunks: f64,
    /// Matrices that the epilogue reads.
    loads: f64,
    delayed_store: bool,
}

/// The estimated cycles of a Hopper tile.
fn of_tile(tile: &Tile, inputs: &CostInputs<'_>, model: &CostModel) -> Option<Cycles> {
    let TileShape::Sm90a { bk, stages, consumers, schedule, .. } = tile.shape else { return None };
    let program = inputs.program;
    let area = (tile.bm * tile.bn) as f64;
    let blocks_m = tile.bm / 64 / if schedule == Schedule::PingPong { 1 } else { consumers };
    let chunk = chunk_columns(tile, program, inputs.argument_runs);
    let chunks = blocks_m * (tile.bn / chunk);
    let delayed_store = delays_store(tile, program, inputs.argument_runs);
    let size = inputs.operation.multiplied().size();
    let k = inputs.operation.patches().map_or(inputs.shape.k, |of| patches::padded_terms(&of, size, inputs.shape));
    let terms = k.next_multiple_of(bk.min(128 / size)) as f64;
    let multiplied = terms * size as f64 * area / MULTIPLY_ADDS;
    // A consumer multiplies a panel, waits for its sums and adds them. Meanwhile only the other consumer multiplies.
    let promoted = if inputs.promotes {
        multiplied / consumers as f64 + terms * size as f64 / 128.0 * (PROMOTION + tile.accumulators() as f64)
    } else {
        0.0
    };
    let product = (multiplied.max(promoted) + (terms / bk as f64).ceil() * model.block)
        * if inputs.promotes { PROMOTED } else { 1.0 }
        * if consumers == 1 { model.single } else { 1.0 }
        * if tile.cluster() > 1 { if consumers == 1 { model.clustered_single } else { model.clustered } } else { 1.0 };
    let cost = f64::from(program.cost(inputs.fast_math) + program.cost_of_stages(inputs.fast_math));
    let of_element = if inputs.fast_math && cost <= model.fast_limit { model.fast * cost } else { cost };
    let values = of_element * area / 128.0;
    let chunks = chunks as f64;
    let masks = program.stores.iter().filter(|store| store.operand.dtype.is_packed()).count();
    let stores = (program.stores.len() - masks) as f64;
    let loads = program.loads_of(Phase::Visit).count() as f64;
    let narrower = chunks - (blocks_m * tile.bn) as f64 / 64.0;
    let besides = model.besides * (masks + program.reductions.len()) as f64 * chunks
        + (model.part_read * loads + model.part_written * stores) * narrower;
    let direct = is_direct_store(tile, program, inputs.argument_runs, chunk);
    let begin = if consumers == 1 { model.epilogue_single } else { model.epilogue };
    let epilogue =
        begin + if direct { model.chunk_direct } else { model.chunk } * chunks + besides + model.element * area / 128.0 + values;
    // The share of all consumers' chunks that shared memory has no room for beside the stages.
    let matrices = program.loads_of(Phase::Visit).map(|(_, _, operand)| operand).chain(program.stores.iter().map(|s| s.operand));
    let needed =
        consumers as f64 * chunks * (CHUNK_ROWS * chunk * matrices.map(|operand| operand.dtype.bits()).sum::<usize>() / 8) as f64;
    let room = RING.saturating_sub(stages * stage_bytes(tile, inputs.operation, bk)) as f64;
    let lacking = if direct { 0.0 } else { (1.0 - room / needed).max(0.0) };
    let epilogue = epilogue + model.wait * loads * chunks * (1.0 + model.starved * lacking);
    let epilogue = epilogue * if tile.accumulators() > CROWDED { 1.0 + model.crowded } else { 1.0 };
    Some(Cycles { terms, product, epilogue, besides, values, chunks, loads, delayed_store })
}

/// Whether a tile's epilogue ends before the next tile's products do, so that the next epilogue may wait for it.
pub(in crate::plan) fn hides(tile: &Tile, inputs: &CostInputs<'_>) -> bool {
    let model = inputs.model();
    let Some(Cycles { product, epilogue, chunks, loads, .. }) = of_tile(tile, inputs, model) else { return false };
    model.under_products * (epilogue + model.read * loads * chunks) + model.handover < product
}

/// Cycles of a tile's epilogue.
pub(in crate::plan) fn epilogue(tile: &Tile, inputs: &CostInputs<'_>) -> f64 {
    let model = inputs.model();
    of_tile(tile, inputs, model).map_or(0.0, |cycles| cycles.epilogue)
}

/// Whether a tile's epilogue runs under the products of another.
pub(in crate::plan) const fn takes_turns(tile: &Tile) -> bool {
    matches!(tile.shape, TileShape::Sm90a { schedule: Schedule::PingPong, .. })
}

/// Bytes of K up to which it is short.
const SHORT: usize = 512;

/// Whether a product has so short a K that its tiles are little but their epilogues.
pub(in crate::plan) fn is_short(operation: Operation, shape: Shape) -> bool {
    operation.patches().is_none() && shape.k * operation.multiplied().size() <= SHORT
}

/// The most tiles of 128 x 128, and the least K, for which a product is planned both ways. Both ways were not measured with
/// narrow outputs, nor with a shorter K, where epilogues decide (`docs/measurements/0067-both-ways-round.md`).
const FEW_TILES: usize = 1024;
const LEAST_TERMS: usize = 1024;

/// Whether a product has so few tiles that their size decides the time. Tiles have heights by 64 and widths by 8, so the
/// transposed problem has tiles that divide the other extent.
pub(in crate::plan) fn has_few_waves(operation: Operation, shape: Shape) -> bool {
    let tiles = shape.m.div_ceil(128).saturating_mul(shape.n.div_ceil(128)).saturating_mul(shape.batch);
    let is_long_and_wide = shape.k >= LEAST_TERMS && shape.m.min(shape.n) > NARROW;
    operation.patches().is_none() && is_long_and_wide && (1..=FEW_TILES).contains(&tiles)
}

/// Estimated cycles.
pub(in crate::plan) fn estimate(tile: &Tile, inputs: &CostInputs<'_>, model: &CostModel) -> f64 {
    let TileShape::Sm90a { bk, stages, schedule, cluster: [cluster_m, cluster_n], .. } = tile.shape else { return f64::INFINITY };
    let Some(Cycles { terms, product, epilogue, besides, values, chunks, delayed_store, .. }) = of_tile(tile, inputs, model)
    else {
        return f64::INFINITY;
    };
    let (shape, size) = (inputs.shape, inputs.operation.multiplied().size());
    let whole = Tile { bm: tile.bm * cluster_m, bn: tile.bn * cluster_n, ..*tile };
    let (clustered, clusters) = (cluster_m * cluster_n, whole.count(shape) as f64);
    let (blocks, multiprocessors) = (clusters * clustered as f64, inputs.gpu.multiprocessors);
    let waves = (clusters / (multiprocessors / clustered).max(1) as f64).ceil();
    let (area, blocks_of_k) = ((tile.bm * tile.bn) as f64, (terms / bk as f64).ceil());
    let compute = match schedule {
        // Only the cost of an element and the end of the last epilogue are exposed.
        Schedule::Cooperative if delayed_store => {
            let empty = EMPTY_BLOCK * (chunks - blocks_of_k).max(0.0);
            waves * (product.max(model.delayed_block * chunks) + empty + model.delayed_store * chunks + values) + epilogue
        }
        // An epilogue runs under the next product. Only the last one is exposed.
        Schedule::PingPong => {
            let alone = model.alone * epilogue;
            waves * (product + besides).max(model.paired * alone) + alone
        }
        Schedule::Cooperative => waves * (product + epilogue + model.restart),
    };
    let narrow = shape.m.min(shape.n) <= NARROW;
    let l2 = model.from_l2;
    let bytes = |lines: usize, sharing: usize| blocks * lines as f64 / sharing as f64 * terms * size as f64;
    let matrices = bytes::of_matrices(inputs.program, shape) as f64;
    // The larger operand of a narrow output is the rows of its tiles, and comes from memory.
    let fetch = bytes(tile.bm, cluster_n) / if narrow { l2.min(model.from_memory) } else { l2 }
        + (bytes(tile.bn, cluster_m) + model.beside_operands * matrices) / l2;
    let patches = inputs.operation.patches();
    let taken_in = match patches {
        Some(patches) => {
            let (lines, columns) = (tile.bm as f64, tile.multiplied_columns() as f64);
            let (images, filters) = if patches.are_rows() { (lines, columns) } else { (columns, lines) };
            waves * terms * size as f64 * (images / OF_IMAGES + filters / OF_FILTERS)
        }
        None => waves * terms * ((tile.bm + tile.bn) * size) as f64 / model.into_shared,
    };
    // A smooth maximum: a cost close to the longest still adds to the total.
    let smooth = |times: &[f64]| times.iter().map(|time| time.powi(4)).sum::<f64>().powf(0.25);
    let longest = match patches {
        // Products hide what is taken in of images, or wait for it.
        Some(_) => smooth(&[compute, fetch]).max(taken_in),
        None => {
            let delivered = blocks * ((tile.bm + tile.bn) * size) as f64 * terms / model.delivered;
            let ring = 1.0 + model.ring * (2.0 - stages as f64 / blocks_of_k).max(0.0);
            smooth(&[compute, fetch, taken_in]).max(delivered) * ring
        }
    };
    // If there is room, the next launch's blocks start while a short launch still runs.
    let fills = 2.0 * blocks > multiprocessors as f64;
    let total = longest
        + model.exposed * fetch
        + model.launch
        + if fills { model.launch_behind } else { 0.0 }
        + if clustered > 1 { model.rendezvous } else { 0.0 };
    let written = (tile.bm + tile.bn) as f64 / area;
    // Ping-pong consumers fetch the same data from L2 at the same time even without a cluster.
    let sharing_m = if schedule == Schedule::PingPong { 2 } else { cluster_m };
    let read = (tile.bm as f64 / cluster_n as f64 + tile.bn as f64 / sharing_m as f64) / area;
    let powered = 1.0 + model.read_from_l2 * read + model.written_to_shared * written;
    let factor = |applies: bool, factor: f64| if applies { factor } else { 1.0 };
    let in_vain = shape.n.next_multiple_of(whole.bn) - shape.n;
    let is_wasted = 3 * in_vain > shape.n.next_multiple_of(whole.bn);
    let wasted = WASTED[usize::from(patches.is_some())];
    let other = inputs.operation.layout() != Some(Layout::TN);
    total
        * factor(is_wasted, wasted)
        * factor(total > model.powered, powered)
        * factor(cluster_m > 1, if other { model.clustered_m_other } else { model.clustered_m })
        * factor(cluster_n > 1, if other { model.clustered_n_other } else { model.clustered_n })
        // A narrow output waits for its larger operand. A cluster along M would share only the other one.
        * factor(narrow && cluster_m > 1, model.unshared)
}
