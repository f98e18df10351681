//! The shared memory of a Hopper block: its regions, the depths of its rings, and all offsets.

use crate::ir::Order;
use crate::plan::Tile;
use crate::problem::Operation;

/// Bytes of a stage of the mainloop's ring.
pub(in crate::plan) fn stage_bytes(tile: &Tile, operation: Operation, bk: usize) -> usize {
    let b_columns = match operation {
        // If N is contiguous, B comes in panels of 64 columns.
        _ if operation.layout().is_some_and(|layout| layout.b() == Order::RowMajor) => {
            tile.multiplied_columns().next_multiple_of(64)
        }
        _ => tile.multiplied_columns(),
    };
    (tile.bm + b_columns) * bk * operation.dtype().size()
}

/// Bytes of one element of each region of shared memory.
pub(in crate::plan) struct Sizes {
    pub consumers: usize,
    /// Bytes of a stage of the mainloop.
    pub ring: usize,
    /// Bytes of a consumer's chunk of all matrices that are read, and of all that are written.
    pub load: usize,
    pub store: usize,
    /// Bytes of a tile's vectors.
    pub vectors: usize,
    /// Bytes of a consumer's bit masks that are written, and of its parts of reductions.
    pub bits: usize,
    pub parts: usize,
    /// Whether tiles publish results of reductions, which need barriers of their own.
    pub reduces: bool,
    /// Bytes of a tile's sums of operands.
    pub sums: usize,
    /// Bytes of the sums that a consumer receives from the blocks that share K with its own.
    pub partials: usize,
    /// Whether a separate warp stores the results, which takes barriers for each buffer.
    pub handed_over: bool,
}

/// The number of elements in each ring.
#[derive(Clone, Copy)]
pub(in crate::plan) struct Rings {
    pub stages: usize,
    pub load_stages: usize,
    pub store_buffers: usize,
    /// Rings of chunks: one a consumer, or one that ping-pong consumers share.
    pub chunk_rings: usize,
}

/// The offset of each region, in order, and the end of the last one.
pub(in crate::plan) struct Places {
    pub stores: usize,
    pub loads: usize,
    pub vectors: usize,
    pub bits: usize,
    pub parts: usize,
    pub sums: usize,
    pub partials: usize,
    pub barriers: usize,
    pub end: usize,
}

/// The most chunks that a consumer's loads run ahead.
const MOST_LOAD_STAGES: usize = 12;

impl Sizes {
    fn places(&self, Rings { stages, load_stages, store_buffers, chunk_rings }: Rings) -> Places {
        let stores = stages * self.ring;
        let loads = stores + chunk_rings * store_buffers * self.store;
        let vectors = loads + chunk_rings * load_stages * self.load;
        let bits = vectors + 2 * self.vectors;
        let parts = bits + self.consumers * self.bits;
        let sums = parts + self.consumers * self.parts;
        let partials = if self.partials > 0 { (sums + 2 * self.sums).next_multiple_of(16) } else { sums + 2 * self.sums };
        let barriers = partials + self.consumers * self.partials;
        let of_chunks = 2 * chunk_rings * load_stages + if chunk_rings < self.consumers { 2 } else { 0 };
        let of_sums = 2 * self.consumers * usize::from(self.reduces) + if self.sums > 0 { 4 } else { 0 };
        let of_stores = if self.handed_over { 2 * chunk_rings * store_buffers } else { 0 };
        let of_partials = if self.partials > 0 { 2 * self.consumers } else { 0 };
        let count = 2 * stages + 6 + of_chunks + of_stores + of_sums + of_partials;
        Places { stores, loads, vectors, bits, parts, sums, partials, barriers, end: barriers + 8 * count }
    }

    fn rings(&self, stages: usize, load_stages: usize) -> Rings {
        Rings { stages, load_stages, store_buffers: 1, chunk_rings: self.consumers }
    }

    /// The rings that fit into `limit` bytes. First comes the whole ring of the mainloop, of `most` stages, then two
    /// chunks of loads. The rest deepens the rings of the epilogue, whose tiles have `chunks` chunks.
    ///
    /// # Errors The number of missing bytes, if not even two stages fit.
    pub fn fill(&self, most: usize, chunks: usize, limit: usize) -> Result<(Rings, Places), String> {
        let shallow = usize::from(self.load > 0);
        let deep = (3..=most).rev().map(|stages| self.rings(stages, 2 * shallow));
        let options = deep.chain([self.rings(3, shallow), self.rings(2, shallow)]);
        let found = options.filter(|rings| rings.stages <= most.max(2)).find(|rings| self.places(*rings).end <= limit);
        let lacking = || self.places(self.rings(2, shallow)).end.saturating_sub(limit);
        let found = found.ok_or_else(|| format!("with the epilogue's matrices it lacks {} bytes of shared memory", lacking()))?;
        Ok(self.deepened(found, chunks, limit))
    }

    /// The rings beside this many stages if consumers share one ring for their chunks, provided that two chunks each
    /// way fit.
    pub fn in_common(&self, stages: usize, chunks: usize, limit: usize) -> Option<(Rings, Places)> {
        let rings = Rings { chunk_rings: 1, store_buffers: 2, ..self.rings(stages, if self.load > 0 { 2 } else { 0 }) };
        (self.places(rings).end <= limit).then(|| self.deepened(rings, chunks, limit))
    }

    fn deepened(&self, mut found: Rings, chunks: usize, limit: usize) -> (Rings, Places) {
        let mut deepen = |deeper: fn(Rings) -> Rings, up_to: &dyn Fn(&Rings) -> bool| {
            while up_to(&found) && self.places(deeper(found)).end <= limit {
                found = deeper(found);
            }
        };
        let more_stores: fn(Rings) -> Rings = |rings| Rings { store_buffers: rings.store_buffers + 1, ..rings };
        let more_loads: fn(Rings) -> Rings = |rings| Rings { load_stages: rings.load_stages + 1, ..rings };
        // A second buffer for stores is worth more than a third chunk of loads.
        deepen(more_stores, &|rings| rings.store_buffers < 2);
        // A chunk of few bytes or few columns is consumed quickly, and takes as long to arrive as any other.
        deepen(more_loads, &|rings| self.load > 0 && rings.load_stages < chunks.clamp(4, MOST_LOAD_STAGES));
        // If chunks are narrow, the next one is written long before the store has read the one before.
        deepen(more_stores, &|rings| self.store > 0 && rings.store_buffers < chunks);
        (found, self.places(found))
    }
}
