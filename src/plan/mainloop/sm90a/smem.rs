//! The shared memory of a Hopper block: its regions, the depths of its rings, and all offsets.

use crate::ir::Order;
use crate::plan::Tile;
use crate::plan::mainloop::sm90a::widened::{self, panel_terms};
use crate::problem::Operation;
use serde::Serialize;

/// The most bytes of shared memory for a ring of stages. The rest is the least that an epilogue stages.
pub(super) const RING: usize = 224 << 10;

/// Bytes of a stage of the mainloop's ring.
pub(in crate::plan) fn stage_bytes(tile: &Tile, operation: Operation, bk: usize) -> usize {
    let [a, b] = operation.dtypes();
    a.bytes(tile.bm * bk) + b.bytes(held_columns(tile, operation) * bk)
}

/// Columns of B in a stage: those of the tile, and up to a panel of 64 if N is contiguous.
pub(super) fn held_columns(tile: &Tile, operation: Operation) -> usize {
    let columns = tile.multiplied_columns();
    let by_panels = operation.layout().is_some_and(|layout| layout.b() == Order::RowMajor);
    if by_panels { columns.next_multiple_of(64) } else { columns }
}

/// Columns of a tile that share a scale, if a block of scales has more than one.
pub(super) const SCALED_COLUMNS: usize = 64;

/// Bytes of the scales along K of a stage's panels.
pub(in crate::plan) fn scale_bytes(tile: &Tile, operation: Operation, bk: usize) -> usize {
    if operation.widened().is_some() {
        return widened::scale_bytes(tile, operation, bk); // a copy, which has them already, has none
    }
    let [a, b] = operation.scales();
    let rows = if a.is_some() { tile.bm } else { 0 };
    let columns = match b {
        Some(blocks) if blocks.lines == 1 => tile.bn,
        Some(_) => tile.bn.div_ceil(SCALED_COLUMNS),
        None => 0,
    };
    bk / panel_terms(operation.multiplied()) * ((rows + columns) * size_of::<f32>()).next_multiple_of(16)
}

/// What lies in shared memory, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SharedRegion {
    /// Stages of the mainloop.
    Stages,
    /// Chunks of all matrices that are written.
    Stores,
    /// Chunks of all matrices that are read.
    Loads,
    /// A tile's slices of all vectors.
    Vectors,
    /// A consumer's bit masks that are written.
    Bits,
    /// A consumer's parts of reductions.
    Parts,
    /// A tile's sums of operands.
    Sums,
    /// The sums that a consumer receives from the blocks that share K with its own.
    Partials,
    /// The scales along K of a stage, in `f32`: one for each row of a tile, and one for each of its columns or for every 64.
    Scales,
    /// Barriers.
    Barriers,
}

impl SharedRegion {
    /// All of them, in their order.
    pub const ALL: [SharedRegion; 10] = [
        SharedRegion::Stages,
        SharedRegion::Stores,
        SharedRegion::Loads,
        SharedRegion::Vectors,
        SharedRegion::Bits,
        SharedRegion::Parts,
        SharedRegion::Sums,
        SharedRegion::Partials,
        SharedRegion::Scales,
        SharedRegion::Barriers,
    ];

    /// The template's constants for an element's bytes and for the region's offset. It computes the others itself, or checks
    /// them against these.
    const fn names(self) -> [Option<&'static str>; 2] {
        match self {
            SharedRegion::Stages => [None, None],
            SharedRegion::Stores => [Some("STORE_BYTES"), Some("AT_STORES")],
            SharedRegion::Loads => [Some("LOAD_BYTES"), Some("AT_LOADS")],
            SharedRegion::Vectors => [Some("VECTOR_BYTES"), Some("AT_VECTORS")],
            SharedRegion::Bits => [Some("BIT_BYTES"), Some("AT_BITS")],
            // The reductions' own constants have them: they are a unit's on every mainloop.
            SharedRegion::Parts => [None, None],
            SharedRegion::Sums => [Some("SUM_BYTES"), Some("AT_SUMS")],
            SharedRegion::Partials => [Some("PARTIAL_BYTES"), Some("AT_PARTIALS")],
            SharedRegion::Scales => [Some("SCALE_BYTES"), Some("AT_SCALES")],
            SharedRegion::Barriers => [None, Some("AT_BARRIERS")],
        }
    }

    /// What its offset is a multiple of, beyond where the region before it ends.
    const fn alignment(self) -> usize {
        if let SharedRegion::Partials | SharedRegion::Scales = self { 16 } else { 1 }
    }
}

/// Where a region lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Extent {
    /// Its offset.
    pub at: usize,
    /// Bytes of one element.
    pub bytes: usize,
    /// Elements.
    pub count: usize,
}

/// The shared memory of a block: the one list of its regions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct SharedLayout([Extent; SharedRegion::ALL.len()]);

impl SharedLayout {
    /// Where a region lies.
    pub const fn of(&self, region: SharedRegion) -> Extent {
        self.0[region as usize]
    }

    /// Bytes of all of it.
    pub const fn end(&self) -> usize {
        let last = self.0[self.0.len() - 1];
        last.at + last.bytes * last.count
    }

    /// The names and values of the template's constants.
    pub(in crate::plan) fn constants(&self) -> Vec<(&'static str, usize)> {
        use SharedRegion::{Barriers, Bits, Loads, Partials, Scales, Stores, Sums, Vectors};
        let bytes = |region: SharedRegion| region.names()[0].map(|name| (name, self.of(region).bytes));
        let at = |region: SharedRegion| region.names()[1].map(|name| (name, self.of(region).at));
        let always = [Loads, Stores, Bits, Vectors].into_iter().filter_map(bytes);
        let always =
            always.chain([Stores, Loads, Vectors, Bits, Barriers].into_iter().filter_map(at)).chain([("AT_END", self.end())]);
        // Few kernels have these.
        let others = [Partials, Sums, Scales].into_iter().filter(|region| self.of(*region).bytes > 0);
        always.chain(others.flat_map(|region| bytes(region).into_iter().chain(at(region)))).collect()
    }
}

/// Bytes of one element of each region, and what else decides how many elements there are.
pub(in crate::plan) struct Sizes {
    pub consumers: usize,
    /// Bytes of an element of each region, in the order of the regions. A barrier has eight.
    pub bytes: [usize; SharedRegion::ALL.len()],
    /// Whether tiles publish results of reductions, which need barriers of their own.
    pub reduces: bool,
    /// Whether a separate warp stores the results, which takes barriers for each buffer.
    pub handed_over: bool,
}

/// Bytes of a barrier.
pub(in crate::plan) const BARRIER: usize = 8;

/// The number of elements in each ring.
#[derive(Clone, Copy)]
pub(in crate::plan) struct Rings {
    pub stages: usize,
    pub load_stages: usize,
    pub store_buffers: usize,
    /// Rings of chunks: one a consumer, or one that ping-pong consumers share.
    pub chunk_rings: usize,
}

/// The most chunks that a consumer's loads run ahead.
const MOST_LOAD_STAGES: usize = 12;

impl Sizes {
    fn bytes(&self, region: SharedRegion) -> usize {
        self.bytes[region as usize]
    }

    /// The elements of a region.
    fn count(&self, region: SharedRegion, Rings { stages, load_stages, store_buffers, chunk_rings }: Rings) -> usize {
        match region {
            SharedRegion::Stages | SharedRegion::Scales => stages,
            SharedRegion::Stores => chunk_rings * store_buffers,
            SharedRegion::Loads => chunk_rings * load_stages,
            // One is filled while the other is read.
            SharedRegion::Vectors | SharedRegion::Sums => 2,
            SharedRegion::Bits | SharedRegion::Parts | SharedRegion::Partials => self.consumers,
            SharedRegion::Barriers => {
                let of_chunks = 2 * chunk_rings * load_stages + if chunk_rings < self.consumers { 2 } else { 0 };
                let has = |region: SharedRegion| self.bytes(region) > 0;
                let of_sums = 2 * self.consumers * usize::from(self.reduces) + if has(SharedRegion::Sums) { 4 } else { 0 };
                let of_stores = if self.handed_over { 2 * chunk_rings * store_buffers } else { 0 };
                let of_partials = if has(SharedRegion::Partials) { 2 * self.consumers } else { 0 };
                2 * stages + 6 + of_chunks + of_stores + of_sums + of_partials
            }
        }
    }

    fn layout(&self, rings: Rings) -> SharedLayout {
        let mut end = 0usize;
        SharedLayout(SharedRegion::ALL.map(|region| {
            let (bytes, count) = (self.bytes(region), self.count(region, rings));
            let at = if bytes > 0 { end.next_multiple_of(region.alignment()) } else { end };
            end = at + bytes * count;
            Extent { at, bytes, count }
        }))
    }

    fn rings(&self, stages: usize, load_stages: usize) -> Rings {
        Rings { stages, load_stages, store_buffers: 1, chunk_rings: self.consumers }
    }

    /// The rings that fit into `limit` bytes. First comes the whole ring of the mainloop, of `most` stages, then two
    /// chunks of loads. The rest deepens the rings of the epilogue, whose tiles have `chunks` chunks.
    ///
    /// # Errors The number of missing bytes, if not even two stages fit.
    pub fn fill(&self, most: usize, chunks: usize, limit: usize) -> Result<(Rings, SharedLayout), String> {
        let shallow = usize::from(self.bytes(SharedRegion::Loads) > 0);
        let deep = (3..=most).rev().map(|stages| self.rings(stages, 2 * shallow));
        let options = deep.chain([self.rings(3, shallow), self.rings(2, shallow)]);
        let found = options.filter(|rings| rings.stages <= most.max(2)).find(|rings| self.layout(*rings).end() <= limit);
        let lacking = || self.layout(self.rings(2, shallow)).end().saturating_sub(limit);
        let found = found.ok_or_else(|| format!("with the epilogue's matrices it lacks {} bytes of shared memory", lacking()))?;
        Ok(self.deepened(found, chunks, limit))
    }

    /// The rings beside this many stages if consumers share one ring for their chunks, provided that two chunks each
    /// way fit.
    pub fn in_common(&self, stages: usize, chunks: usize, limit: usize) -> Option<(Rings, SharedLayout)> {
        let ahead = if self.bytes(SharedRegion::Loads) > 0 { 2 } else { 0 };
        let rings = Rings { chunk_rings: 1, store_buffers: 2, ..self.rings(stages, ahead) };
        (self.layout(rings).end() <= limit).then(|| self.deepened(rings, chunks, limit))
    }

    fn deepened(&self, mut found: Rings, chunks: usize, limit: usize) -> (Rings, SharedLayout) {
        let mut deepen = |deeper: fn(Rings) -> Rings, up_to: &dyn Fn(&Rings) -> bool| {
            while up_to(&found) && self.layout(deeper(found)).end() <= limit {
                found = deeper(found);
            }
        };
        let more_stores: fn(Rings) -> Rings = |rings| Rings { store_buffers: rings.store_buffers + 1, ..rings };
        let more_loads: fn(Rings) -> Rings = |rings| Rings { load_stages: rings.load_stages + 1, ..rings };
        // A second buffer for stores is worth more than a third chunk of loads.
        deepen(more_stores, &|rings| rings.store_buffers < 2);
        // A chunk of few bytes or few columns is consumed quickly, and takes as long to arrive as any other.
        deepen(more_loads, &|rings| self.bytes(SharedRegion::Loads) > 0 && rings.load_stages < chunks.clamp(4, MOST_LOAD_STAGES));
        // If chunks are narrow, the next one is written long before the store has read the one before.
        deepen(more_stores, &|rings| self.bytes(SharedRegion::Stores) > 0 && rings.store_buffers < chunks);
        (found, self.layout(found))
    }
}
