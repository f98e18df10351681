//! Staging: the parts of the epilogue that pass through shared memory in the Hopper kernel, their offsets, and the one
//! formula for the kernel's shared memory.
//!
//! Tensor maps move matrices in chunks of 64 rows and up to 88 columns. Chunks that are read arrive ahead of the
//! consumers through a ring. Chunks that are written leave while the consumer goes on. Vectors come whole, a slice for
//! each tile. Bit masks do not have tensor maps: masks that are read use the same ring, and masks that are written are
//! collected until the tile is done. The mainloop's stages leave room for rings of some depth: see [`Staging::of`].

use crate::dtype::DType;
use crate::ir::Operand;
use crate::ir::axes::M;
use crate::plan::epilogue::operand_sums::lines;
use crate::plan::mainloop::patches;
use crate::plan::mainloop::sm90a::operand_maps::operand_maps;
use crate::plan::mainloop::sm90a::smem::{BARRIER, SharedLayout, SharedRegion, Sizes, scale_bytes, stage_bytes};
use crate::plan::{
    ArgumentRuns, InstrKind, MapSource, Parts, Phase, Program, Schedule, Swizzle, TMA_UNIT, TensorMap, Tile, TileShape,
    lies_along_columns,
};
use crate::problem::Operation;
use crate::target::Target;
use serde::Serialize;
use std::ops::RangeInclusive;

/// Rows of a chunk.
pub const CHUNK_ROWS: usize = 64;
/// The most columns of a chunk, unless it is half of a tile.
pub(in crate::plan) const MOST_CHUNK: usize = 64;
/// Rows of a chunk that belong to one warp.
const WARP_ROWS: usize = 16;

/// Chunks that a ping-pong consumer's loads should run ahead, unless its tile has fewer, and the fewest stages of the mainloop's
/// ring that are left for that (`docs/measurements/0097-small-tiles-of-convolutions.md`).
const LOADS_AHEAD: usize = 4;
const LEAST_STAGES: usize = 4;

/// The operands that pass through shared memory, and their offsets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Staging {
    /// Rows of a tile that belong to a consumer.
    pub rows: usize,
    /// Columns of a chunk.
    pub chunk: usize,
    /// Columns of a visit.
    pub strip: usize,
    /// Matrices that are read, by their step.
    pub loads: Vec<Staged>,
    /// Matrices that are written, by their store.
    pub stores: Vec<Staged>,
    /// Bit masks that are written, by their store.
    pub bits: Vec<Staged>,
    /// Vectors over M or N that are read, by their step.
    pub vectors: Vec<Staged>,
    /// Rings of chunks: one a consumer, or one that ping-pong consumers share.
    pub chunk_rings: usize,
    /// Chunks of a ring that loads may run ahead.
    pub load_stages: usize,
    /// Chunks of a ring whose stores may be in flight.
    pub store_buffers: usize,
    /// Rows of a chunk that are stored together: one warp's rows, so that it waits for no other warp, or all of them.
    pub store_rows: usize,
    /// Whether lanes copy their warp's results to memory in pieces of 16 bytes, instead of TMA.
    pub direct_store: bool,
    /// Whether a tile's results wait in registers and leave under the next tile's products.
    pub delayed_store: bool,
    /// The shared memory of a block.
    pub memory: SharedLayout,
    /// The tensor maps of the kernel: those of A and B, then those of the matrices.
    #[serde(skip)]
    pub maps: Vec<TensorMap>,
}

/// One operand of the epilogue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Staged {
    /// The step of a load, or the number of a store.
    pub of: usize,
    /// Its offset in the chunk or slice.
    pub at: usize,
    /// Its bytes there.
    pub bytes: usize,
    /// Its tensor map, if one can describe its chunks.
    pub map: Option<usize>,
}

/// Columns of a chunk: the largest power of two, up to 64, that divides a tile's columns. If that is only 16, a chunk
/// may be half of the tile, and if it is only 8 all of the tile, if the epilogue allows it. Lines of such chunks need
/// no swizzle, because they are an odd number of pieces of 16 or 32 bytes.
pub(in crate::plan) fn chunk_columns(tile: &Tile, program: &Program, runs: &[ArgumentRuns]) -> usize {
    let power = MOST_CHUNK.min(1 << tile.bn.trailing_zeros());
    let odd = match power {
        16 => tile.bn / 2,
        8 => tile.bn,
        _ => return power,
    };
    let pays = (17..=MOST_HALF).contains(&odd) && tile.accumulators() <= MOST_BESIDE_HALVES;
    if pays && takes_any_line(program, runs) { odd } else { power }
}

/// The most columns of half a tile, and the most accumulators that leave registers for a visit of a quarter of them.
const MOST_HALF: usize = 88;
const MOST_BESIDE_HALVES: usize = 128;

/// Whether chunks may have any number of columns. They may not if bits are moved by words, if elements are moved one by
/// one, or if sums are folded by halves.
fn takes_any_line(program: &Program, runs: &[ArgumentRuns]) -> bool {
    let any = |operand: Operand, argument: usize| {
        operand.dtype.size() >= 2 && runs[argument].alignment >= TMA_UNIT && runs[argument].whole
    };
    program.reductions.is_empty()
        && program.matrix_stores().all(|(_, store)| any(store.operand, store.argument))
        && program.loads_of(Phase::Visit).all(|(_, argument, operand)| any(operand, argument))
}

/// Columns of a visit: those that a lane holds of a chunk's row, or half of them if accumulators take most registers.
fn strip(tile: &Tile, chunk: usize) -> usize {
    if tile.accumulators() > 160 && chunk == 64 { chunk / 8 } else { chunk / 4 }
}

/// The accumulators of a thread whose store may be delayed: results wait in registers as 16 bits each, under the next
/// tile's products. The upper limit is the registers. Below the lower limit blocks are unlikely to have another tile.
const DEFERRED_ACCUMULATORS: RangeInclusive<usize> = 97..=128;
/// The fewest columns of a delayed chunk. Each chunk takes a block of K.
const DEFERRED_CHUNK: usize = 32;
/// The most issue slots of an element with a delayed store, because nothing hides them. No function takes so few in any
/// spelling.
const MOST_EXPOSED: u32 = 1;

/// Whether a matrix consists of whole [`TMA_UNIT`]s, in lines along N that a warp has whole.
fn has_whole_lines(operand: Operand, ArgumentRuns { alignment, whole }: ArgumentRuns) -> bool {
    lies_along_columns(operand.axes, operand.order) && alignment >= TMA_UNIT && whole
}

/// Pieces of 16 bytes in a line of a chunk with direct store: a warp copies whole lines.
const PIECES_OF_LINE: RangeInclusive<usize> = 1..=32;
/// The most accumulators of a thread with direct store. Larger tiles do not end sooner with it, and lack the registers.
const MOST_BESIDE_SHARES: usize = 96;

/// Whether lanes store a tile's results themselves. That takes instructions, but neither a fence nor a wait until TMA
/// has read the last chunk. So it ends sooner where an epilogue is exposed. Where products hide the epilogue it slows
/// these down (`docs/measurements/0030-direct-store.md`).
pub(in crate::plan) fn is_direct_store(tile: &Tile, program: &Program, runs: &[ArgumentRuns], chunk: usize) -> bool {
    let TileShape::Sm90a { schedule: Schedule::Cooperative, .. } = tile.shape else { return false };
    let mut matrices = program.matrix_stores().map(|(_, store)| store).filter(|store| !store.operand.dtype.is_packed());
    let in_pieces = |dtype: DType| {
        let line = chunk * dtype.size();
        line.is_multiple_of(16) && PIECES_OF_LINE.contains(&(line / 16))
    };
    tile.accumulators() <= MOST_BESIDE_SHARES
        && program.loads_of(Phase::Visit).next().is_none()
        && matrices.all(|store| in_pieces(store.operand.dtype) && has_whole_lines(store.operand, runs[store.argument]))
}

/// Whether a tile's results wait in registers and leave under the next tile's products. Consumers that share a tile end
/// it together, which exposes their epilogue. If it computes next to nothing, into one matrix of 16 bits, a delayed
/// store leaves only the conversion exposed.
pub(in crate::plan) fn delays_store(tile: &Tile, program: &Program, runs: &[ArgumentRuns]) -> bool {
    let TileShape::Sm90a { consumers: 2, schedule: Schedule::Cooperative, splits_k: false, .. } = tile.shape else {
        return false;
    };
    let [store] = program.stores.as_slice() else { return false };
    let dtype = store.operand.dtype;
    DEFERRED_ACCUMULATORS.contains(&tile.accumulators())
        && chunk_columns(tile, program, runs) >= DEFERRED_CHUNK
        && program.cost(false) <= MOST_EXPOSED
        && program.loads_of(Phase::Visit).next().is_none()
        && (dtype.size() == 2 && !dtype.is_packed() && has_whole_lines(store.operand, runs[store.argument]))
        && program.only_stores()
}

/// The operands that an epilogue stages, and the bytes of a chunk or a slice of each kind.
struct Needs {
    loads: Vec<Staged>,
    stores: Vec<Staged>,
    bits: Vec<Staged>,
    vectors: Vec<Staged>,
    store_rows: usize,
    direct_store: bool,
    load_bytes: usize,
    store_bytes: usize,
    bit_bytes: usize,
    vector_bytes: usize,
    maps: Vec<TensorMap>,
}

impl Needs {
    /// Places each operand in its chunk or slice, and adds its tensor map to `maps`, which begins with those of A and
    /// B. Rows that are `scattered` do not follow each other in memory, and have so many columns: their map has whole chunks.
    fn of(
        program: &Program,
        runs: &[ArgumentRuns],
        tile: &Tile,
        chunk: usize,
        mut maps: Vec<TensorMap>,
        scattered: Option<usize>,
    ) -> Needs {
        let direct_store = is_direct_store(tile, program, runs, chunk) && scattered.is_none();
        let mut matrix = |of, operand: Operand, argument: usize, read: bool, bytes: &mut usize| {
            let (map, size) = chunk_map(operand, argument, chunk);
            // Swizzle patterns repeat from multiples of 1024 bytes.
            let align = if operand.dtype.is_packed() { 16 } else { 1024 };
            let at = bytes.next_multiple_of(align);
            let ArgumentRuns { alignment, whole } = runs[argument];
            let along = lies_along_columns(operand.axes, operand.order);
            let described = scattered.is_none_or(|columns| along && columns.is_multiple_of(chunk));
            let source = scattered.map_or(MapSource::Argument(argument), |_| MapSource::Remainders(argument));
            let map = map.filter(|_| alignment >= TMA_UNIT && (read || !direct_store) && described).map(|map| TensorMap {
                source,
                required: read || whole,
                ..map
            });
            *bytes = at + size.next_multiple_of(align);
            maps.extend(map);
            Staged { of, at, bytes: size, map: map.map(|_| maps.len() - 1) }
        };
        let (mut load_bytes, mut store_bytes, mut vector_bytes) = (0, 0, 0);
        let loads = program
            .loads_of(Phase::Visit)
            .map(|(step, argument, operand)| matrix(step, operand, argument, true, &mut load_bytes));
        let loads: Vec<Staged> = loads.collect();
        if !loads.iter().all(|load| is_packed(program, load.of)) {
            load_bytes = load_bytes.next_multiple_of(1024);
        }
        let of_kind = |packed: bool| program.matrix_stores().filter(move |(_, store)| store.operand.dtype.is_packed() == packed);
        let stores: Vec<Staged> =
            of_kind(false).map(|(i, store)| matrix(i, store.operand, store.argument, false, &mut store_bytes)).collect();
        let by_warps = stores.iter().all(|staged| {
            let store = &program.stores[staged.of];
            direct_store || staged.map.is_some() && has_whole_lines(store.operand, runs[store.argument])
        });
        for map in stores.iter().filter_map(|staged| staged.map).filter(|_| by_warps) {
            maps[map].box_outer = WARP_ROWS;
        }
        let one_mask = tile.consumer_rows() * tile.bn / 8;
        let bits: Vec<Staged> =
            of_kind(true).enumerate().map(|(n, (i, _))| Staged { of: i, at: n * one_mask, bytes: one_mask, map: None }).collect();
        let vectors = program.loads_of(Phase::Column).chain(program.loads_of(Phase::Row)).map(|(step, _, operand)| {
            let extent = if operand.axes.contains(M) { tile.bm } else { tile.bn };
            let (at, bytes) = (vector_bytes, extent * operand.dtype.size());
            vector_bytes += bytes.next_multiple_of(16);
            Staged { of: step, at, bytes, map: None }
        });
        let vectors = vectors.collect();
        Needs {
            loads,
            stores,
            vectors,
            store_rows: if by_warps { WARP_ROWS } else { CHUNK_ROWS },
            direct_store,
            load_bytes,
            store_bytes,
            bit_bytes: bits.len() * one_mask,
            bits,
            vector_bytes: vector_bytes.next_multiple_of(128),
            maps,
        }
    }
}

impl Staging {
    /// Places the operands of an epilogue beside the stages of a tile, and lowers the number of stages to what fits.
    /// Chunks have at most `widest` columns: narrower ones need fewer registers for values along N.
    /// `runs` describes each argument: below 16 bytes of alignment it does not get a tensor map. A written argument
    /// whose runs are not whole also gets an element-wise path.
    ///
    /// # Errors The number of missing bytes, if not even two stages fit.
    pub(in crate::plan) fn of(
        program: &Program,
        operation: Operation,
        runs: &[ArgumentRuns],
        tile: &Tile,
        target: Target,
        widest: usize,
    ) -> Result<(Staging, usize), String> {
        let (TileShape::Sm90a { bk, stages: most, consumers, schedule, .. }, Some(layout)) = (tile.shape, operation.layout())
        else {
            return Err("it multiplies on Hopper".into());
        };
        let limit = target.shared_memory_per_block_opt_in() as usize;
        // Rows of one remainder do not follow each other in memory.
        let scattered = operation.patches().filter(|_| patches::has_residues(operation)).map(|patches| patches.shape().n);
        // The needs of chunks with this many columns, and the number of chunks in a tile.
        let of_chunks = |chunk: usize| {
            let needs = Needs::of(program, runs, tile, chunk, operand_maps(tile, operation, layout), scattered);
            let bytes = SharedRegion::ALL.map(|region| match region {
                SharedRegion::Stages => stage_bytes(tile, operation, bk),
                SharedRegion::Stores => needs.store_bytes,
                SharedRegion::Loads => needs.load_bytes,
                SharedRegion::Vectors => needs.vector_bytes,
                SharedRegion::Bits => needs.bit_bytes,
                SharedRegion::Parts => Parts::of(&program.reductions, tile, strip(tile, chunk)).bytes,
                // The fix-up of one tile's sums runs while the next tile's are taken.
                SharedRegion::Sums => 4 * lines(&program.sums, tile).iter().sum::<usize>(),
                SharedRegion::Partials => (tile.parts() - 1) * tile.consumer_rows() * tile.bn * size_of::<f32>(),
                SharedRegion::Scales => scale_bytes(tile, operation, bk),
                SharedRegion::Barriers => BARRIER,
            });
            let reduces = program.reductions.iter().any(|reduction| !reduction.is_total(tile));
            let sizes =
                Sizes { consumers, bytes, reduces, handed_over: delays_store(tile, program, runs) && scattered.is_none() };
            (needs, sizes, tile.consumer_rows() / CHUNK_ROWS * (tile.bn / chunk))
        };
        let whole = match chunk_columns(tile, program, runs) {
            MOST_CHUNK => MOST_CHUNK.min(widest),
            columns => columns,
        };
        let mut chunk = whole;
        let (mut needs, mut sizes, chunks) = of_chunks(whole);
        let (mut rings, mut memory) = sizes.fill(most, chunks, limit)?;
        // For ping-pong, a longer ring of stages is worth more than separate rings of chunks and wide chunks.
        let deeper = (rings.stages + 1..=most).rev().filter(|_| schedule == Schedule::PingPong);
        let widths = [whole, whole / 2].into_iter().filter(|width| *width == whole || whole == MOST_CHUNK);
        for (stages, width) in deeper.flat_map(|stages| widths.clone().map(move |width| (stages, width))) {
            let (its_needs, its_sizes, chunks) = of_chunks(width);
            if let Some(found) = its_sizes.in_common(stages, chunks, limit) {
                (chunk, needs, sizes, (rings, memory)) = (width, its_needs, its_sizes, found);
                break;
            }
        }
        let Needs { loads, stores, bits, vectors, store_rows, direct_store, maps, .. } = needs;
        let staging = Staging {
            rows: tile.consumer_rows(),
            chunk,
            strip: strip(tile, chunk),
            loads,
            stores,
            bits,
            vectors,
            chunk_rings: rings.chunk_rings,
            load_stages: rings.load_stages,
            store_buffers: rings.store_buffers,
            store_rows,
            direct_store,
            delayed_store: sizes.handed_over,
            memory,
            maps,
        };
        Ok((staging, rings.stages))
    }

    /// Whether ping-pong consumers share their chunk buffers.
    pub(in crate::plan) fn is_common(&self, tile: &Tile) -> bool {
        matches!(tile.shape, TileShape::Sm90a { consumers, .. } if self.chunk_rings < consumers)
    }

    /// Whether a ping-pong consumer's loads run so far ahead that it seldom waits for them, or the ring of operands should not be
    /// any shorter to make room for more.
    pub(in crate::plan) fn runs_ahead(&self, tile: &Tile) -> bool {
        let TileShape::Sm90a { stages, schedule: Schedule::PingPong, .. } = tile.shape else { return true };
        let chunks = self.rows / CHUNK_ROWS * (tile.bn / self.chunk);
        self.loads.is_empty() || stages <= LEAST_STAGES || self.load_stages >= chunks.min(LOADS_AHEAD)
    }

    /// The offset of a load's chunk or slice; 0 for a load that is not staged.
    pub(crate) fn of_load(&self, step: usize) -> usize {
        self.loads.iter().chain(&self.vectors).find(|s| s.of == step).map_or(0, |s| s.at)
    }

    /// The offset of a store's chunk.
    pub(crate) fn of_store(&self, store: usize) -> usize {
        self.stores.iter().chain(&self.bits).find(|s| s.of == store).map_or(0, |s| s.at)
    }

    /// The names and values of the template's constants.
    pub(crate) fn constants(&self) -> Vec<(&'static str, usize)> {
        let mut list = vec![
            ("LOADS_ARE_MAPPED", usize::from(self.loads.iter().all(|load| load.map.is_some()))),
            ("WARPGROUP_ROWS", self.rows),
            ("CHUNK", self.chunk),
            ("LOAD_STAGES", self.load_stages),
            ("STORE_BUFFERS", self.store_buffers),
            ("CHUNK_RINGS", self.chunk_rings),
            ("STORE_ROWS", self.store_rows),
            ("DELAYED_STORE", usize::from(self.delayed_store)),
        ];
        list.extend(self.memory.constants());
        list
    }
}

/// Whether a step loads bits.
fn is_packed(program: &Program, step: usize) -> bool {
    matches!(program.steps[step].kind, InstrKind::Load { operand, .. } if operand.dtype.is_packed())
}

/// The map of a chunk of a matrix, if its lines are long enough for one, and the chunk's bytes.
fn chunk_map(operand: Operand, argument: usize, chunk: usize) -> (Option<TensorMap>, usize) {
    let size = operand.dtype.size();
    let along = lies_along_columns(operand.axes, operand.order);
    let (lines, elements) = if along { (CHUNK_ROWS, chunk) } else { (chunk, CHUNK_ROWS) };
    if operand.dtype.is_packed() {
        return (None, lines * operand.dtype.bytes(elements));
    }
    // If a line is not a power of two, the box takes all of it.
    let line = elements * size;
    let pitch = if line > 128 && line.is_multiple_of(128) { 128 } else { line };
    let swizzle = match pitch {
        128 => Swizzle::B128,
        64 => Swizzle::B64,
        32 => Swizzle::B32,
        _ => Swizzle::None,
    };
    let map = TensorMap {
        source: MapSource::Argument(argument),
        dtype: operand.dtype,
        box_inner: pitch / size,
        box_outer: lines,
        swizzle,
        required: false,
    };
    ((pitch >= TMA_UNIT).then_some(map), lines * elements * size)
}
