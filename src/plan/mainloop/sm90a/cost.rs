//! The choice among Hopper's tiles: which there are, and what each is estimated to take.
//!
//! The estimate counts clock cycles, and for launches that heat the device what they cost in clock. Its form is that of the
//! kernel; its constants were fitted to the times of every tile on 26 shapes from 512^3 to 16384 x 16384 x 1024 and from 16
//! to 16384 rows (bias and relu, TN), on seven of them also to those with the identity and with gelu, and on six to long
//! slices; a few were then set by hand. On all of them it picked one within 3 % of the best before blocks in turns came to be taken alone;
//! others are not held against it yet (`docs/performance.md`).

use crate::plan::choice::{TileRequest, tiles as count_tiles};
use crate::plan::epilogue::program::Phase;
use crate::plan::mainloop::sm90a::staging::{chunk_columns, delays_store};
use crate::plan::{Schedule, Tile, TileShape};

/// The tiles, each with the most stages that may fit. Blocks that fetch enough come alone and in pairs along M; those of half a narrow
/// output's columns also in pairs along N, which fetch its larger operand once.
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

/// Every tile that may be chosen.
pub(in crate::plan) fn tiles() -> impl Iterator<Item = Tile> {
    let pairs = TILES.iter().filter(|tile| tile.bn >= 64).map(|tile| tile.clustered(2, 1));
    let across = TILES.iter().filter(|tile| tile.bn == 64).map(|tile| tile.clustered(1, 2));
    TILES.iter().chain(&NARROW_TILES).copied().chain(pairs).chain(across)
}

/// Elements that a multiprocessor's tensor cores multiply and add in a cycle.
const MULTIPLY_ADDS: f64 = 2048.0;
/// How much longer one consumer takes than two.
const SINGLE: f64 = 1.08;
/// How much longer blocks take that wait for each other in a cluster: with two consumers, and with one.
const CLUSTERED: [f64; 2] = [1.005, 1.05];
/// How much longer pairs take where sharing saves nothing: enough to leave them alone.
const UNSHARED: f64 = 1.3;
/// Cycles that a cluster takes to begin and to end together.
const RENDEZVOUS: f64 = 250.0;
/// Cycles of an epilogue before and after its elements, and of each chunk: barriers, the way through shared memory.
const EPILOGUE: f64 = 1100.0;
const CHUNK: f64 = 180.0;
/// Cycles of each chunk for every bit mask that is written and every reduction, which are also missing from the products that they
/// hide under; of a matrix that is read, of those chunks which are only there because they are narrower than 64 columns.
const BESIDES: f64 = 30.0;
/// How much longer an epilogue takes under the products of another tile, with what a chunk of a matrix that is read adds; and cycles
/// until what it has written has left the place where the next epilogue's chunks go (`docs/performance.md`).
const UNDER_PRODUCTS: f64 = 2.5;
const READ: f64 = 100.0;
const HANDOVER: f64 = 1000.0;
/// Cycles until the products of a tile run again behind an epilogue that nothing covers.
const RESTART: f64 = 200.0;
/// Issue slots of an element beside those of its own values: conversion, store, accumulator.
const ELEMENT: f64 = 3.0;
/// What part of the values' own cost counts where they are spelled fast, since special-function instructions run beside others; and
/// up to which cost, for nothing heavier was measured, and what is heavier belongs on tiles that leave it registers.
const FAST: (f64, f64) = (0.3, 64.0);
/// Cycles that the products of one tile and of the next are apart where results leave under those, for each chunk that does.
const DELAYED_STORE: f64 = 150.0;
/// How much longer one consumer's epilogue takes than its share of two.
const ALONE: f64 = 1.2;
/// Cycles of a launch before its first and after its last tile.
const LAUNCH: f64 = 4500.0;
/// Bytes a cycle that all multiprocessors fetch from L2 where rows begin at multiples of 128 bytes.
const FROM_L2: f64 = 23_000.0;
/// The same where they do not.
const FROM_L2_ACROSS_LINES: f64 = 4_970.0;
/// Bytes a cycle that come from memory, where blocks ask for the same ones more than once.
const FROM_MEMORY: f64 = 5_000.0;
/// Cycles from which on a launch is large enough for the device's limit of power to show, where such launches follow each
/// other; and what that costs as a part of the whole, for each element read from L2 for a multiply-add, and for each
/// element written to shared memory for one.
const POWERED: f64 = 2e5;
const READ_FROM_L2: f64 = 3.0;
const WRITTEN_TO_SHARED: f64 = 5.0;

/// Of a cycle: between launches that fill the device for 100 us, which come to 1.2 estimated cycles a nanosecond, and short ones of
/// few blocks, which come to 1.7.
pub(in crate::plan) const NANOSECONDS: f64 = 1.0 / 1.4;

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
fn of_tile(tile: &Tile, request: &TileRequest<'_>) -> Option<Cycles> {
    let TileShape::Sm90a { bk, consumers, schedule, .. } = tile.shape else { return None };
    let program = request.program;
    let area = (tile.bm * tile.bn) as f64;
    let blocks_m = tile.bm / 64 / if schedule == Schedule::PingPong { 1 } else { consumers };
    let chunks = blocks_m * (tile.bn / chunk_columns(tile, program, request.argument_runs));
    let delayed_store = delays_store(tile, program, request.argument_runs);
    // A chunk that leaves under products needs a block of K.
    let terms = request.shape.k.next_multiple_of(bk.min(64)).max(if delayed_store { chunks * bk } else { 0 }) as f64;
    let product = terms * area / MULTIPLY_ADDS
        * if consumers == 1 { SINGLE } else { 1.0 }
        * if tile.cluster() > 1 { CLUSTERED[usize::from(consumers == 1)] } else { 1.0 };
    let cost = f64::from(program.cost(request.fast_math));
    let of_element = if request.fast_math && cost <= FAST.1 { FAST.0 * cost } else { cost };
    let values = of_element * area / 128.0;
    let chunks = chunks as f64;
    let masks = program.stores.iter().filter(|store| store.operand.dtype.is_packed()).count();
    let loads = program.loads_of(Phase::Visit).count() as f64;
    let narrower = chunks - (blocks_m * tile.bn) as f64 / 64.0;
    let besides = BESIDES * ((masks + program.reductions.len()) as f64 * chunks + loads * narrower);
    let epilogue = EPILOGUE + CHUNK * chunks + besides + ELEMENT * area / 128.0 + values;
    Some(Cycles { terms, product, epilogue, besides, values, chunks, loads, delayed_store })
}

/// Whether a tile's epilogue is over before the next tile's products are, so that the next epilogue may wait for it.
pub(in crate::plan) fn hides(tile: &Tile, request: &TileRequest<'_>) -> bool {
    let Some(Cycles { product, epilogue, chunks, loads, .. }) = of_tile(tile, request) else { return false };
    UNDER_PRODUCTS * (epilogue + READ * loads * chunks) + HANDOVER < product
}

/// Cycles of a tile's epilogue.
pub(in crate::plan) fn epilogue(tile: &Tile, request: &TileRequest<'_>) -> f64 {
    of_tile(tile, request).map_or(0.0, |cycles| cycles.epilogue)
}

/// Whether a tile's epilogue runs under the products of another.
pub(in crate::plan) const fn takes_turns(tile: &Tile) -> bool {
    matches!(tile.shape, TileShape::Sm90a { schedule: Schedule::PingPong, .. })
}

/// Estimated cycles.
pub(in crate::plan) fn estimate(tile: &Tile, request: &TileRequest<'_>) -> f64 {
    let TileShape::Sm90a { schedule, cluster: [cluster_m, cluster_n], .. } = tile.shape else { return f64::INFINITY };
    let Some(Cycles { terms, product, epilogue, besides, values, chunks, delayed_store, .. }) = of_tile(tile, request) else {
        return f64::INFINITY;
    };
    let (shape, size) = (request.shape, request.operation.dtype().size());
    let whole = Tile { bm: tile.bm * cluster_m, bn: tile.bn * cluster_n, ..*tile };
    let clusters = count_tiles(&whole, shape) as f64;
    let blocks = clusters * (cluster_m * cluster_n) as f64;
    let waves = (blocks / request.multiprocessors as f64).ceil();
    let clustered = cluster_m * cluster_n > 1;
    let area = (tile.bm * tile.bn) as f64;
    let compute = match schedule {
        // Only what an element takes is seen of an epilogue, and the way out of the last one.
        Schedule::Cooperative if delayed_store => waves * (product + DELAYED_STORE * chunks + values) + epilogue,
        // An epilogue runs under the next product; only the last one is seen.
        Schedule::PingPong => waves * (product + besides).max(ALONE * epilogue) + ALONE * epilogue,
        Schedule::Cooperative => waves * (product + epilogue + RESTART),
    };
    let narrow = shape.m.min(shape.n) <= crate::plan::NARROW;
    let l2 = if request.rows_begin_at_lines { FROM_L2 } else { FROM_L2_ACROSS_LINES };
    let bytes = |lines: usize, sharing: usize| blocks * lines as f64 / sharing as f64 * terms * size as f64;
    // The larger operand of a narrow output, which are the rows of its tiles, comes from memory.
    let fetch = bytes(tile.bm, cluster_n) / if narrow { l2.min(FROM_MEMORY) } else { l2 } + bytes(tile.bn, cluster_m) / l2;
    // A smooth maximum: what is nearly as long as the longer of the two still shows.
    let total = (compute.powi(4) + fetch.powi(4)).powf(0.25) + LAUNCH + if clustered { RENDEZVOUS } else { 0.0 };
    let written = (tile.bm + tile.bn) as f64 / area;
    // Blocks whose consumers take turns get from L2 together what they ask for at the same time, also without being a pair.
    let sharing_m = if schedule == Schedule::PingPong { 2 } else { cluster_m };
    let read = (tile.bm as f64 / cluster_n as f64 + tile.bn as f64 / sharing_m as f64) / area;
    let powered = 1.0 + READ_FROM_L2 * read + WRITTEN_TO_SHARED * written;
    let total = if total > POWERED { total * powered } else { total };
    // A narrow output waits for its larger operand, not for what a pair along M could share.
    if narrow && cluster_m > 1 && request.rows_begin_at_lines { total * UNSHARED } else { total }
}
