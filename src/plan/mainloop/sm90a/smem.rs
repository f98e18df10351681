//! The shared memory of a Hopper block: what lies there, how deep its rings are, and where each begins.

/// Bytes of what lies in shared memory, each once.
pub(in crate::plan) struct Sizes {
    pub consumers: usize,
    /// Of a stage of the mainloop.
    pub ring: usize,
    /// Of a chunk of every matrix that is read, and that is written, of a consumer.
    pub load: usize,
    pub store: usize,
    /// Of a tile's vectors.
    pub vectors: usize,
    /// Of a consumer's bit masks that are written, and of its parts of reductions.
    pub bits: usize,
    pub parts: usize,
    /// Whether tiles publish results of reductions, which need barriers of their own.
    pub reduces: bool,
    /// Of a tile's sums of operands.
    pub sums: usize,
    /// Of a consumer's sums that come from blocks which share K with its own.
    pub partials: usize,
    /// Whether a warp of its own sends what is written, which takes barriers for each buffer.
    pub handed_over: bool,
}

/// How many of each.
#[derive(Clone, Copy)]
pub(in crate::plan) struct Rings {
    pub stages: usize,
    pub load_stages: usize,
    pub store_buffers: usize,
    /// Of chunks: one a consumer, or one that consumers in turns have in common.
    pub chunk_rings: usize,
}

/// Where each begins, one behind the other, and where they end.
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

/// Chunks of a consumer that its loads are ahead at most.
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

    /// The rings that fit into so many bytes: first comes the whole ring of the mainloop, of `most` stages, then two
    /// chunks of loads, and what is left deepens the rings of the epilogue, whose tiles have so many `chunks`.
    ///
    /// # Errors
    /// How many bytes are lacking, if not even two stages fit.
    pub fn fill(&self, most: usize, chunks: usize, limit: usize) -> Result<(Rings, Places), String> {
        let shallow = usize::from(self.load > 0);
        let deep = (3..=most).rev().map(|stages| self.rings(stages, 2 * shallow));
        let options = deep.chain([self.rings(3, shallow), self.rings(2, shallow)]);
        let found = options.filter(|rings| rings.stages <= most.max(2)).find(|rings| self.places(*rings).end <= limit);
        let lacking = || self.places(self.rings(2, shallow)).end.saturating_sub(limit);
        let found = found.ok_or_else(|| format!("with the epilogue's matrices it lacks {} bytes of shared memory", lacking()))?;
        Ok(self.deepened(found, chunks, limit))
    }

    /// The rings beside so many stages if consumers have one for their chunks in common, where two chunks each way fit.
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
        // A second buffer for what is written is worth more than a third chunk of what is read.
        deepen(more_stores, &|rings| rings.store_buffers < 2);
        // A chunk of few bytes, or of few columns, is soon done with, and takes as long to come as any.
        deepen(more_loads, &|rings| self.load > 0 && rings.load_stages < chunks.clamp(4, MOST_LOAD_STAGES));
        // Where a chunk is narrow the next one is written long before its store has been read.
        deepen(more_stores, &|rings| self.store > 0 && rings.store_buffers < chunks);
        (found, self.places(found))
    }
}
