//! The shared memory of a Hopper block: what lies there, how deep its rings are, and where each begins.

/// Bytes of what lies in shared memory, each once.
pub(super) struct Sizes {
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
    /// Whether there are reductions, which need barriers of their own.
    pub reduces: bool,
    /// Of a tile's sums of operands.
    pub sums: usize,
}

/// How many of each.
#[derive(Clone, Copy)]
pub(super) struct Rings {
    pub stages: usize,
    pub load_stages: usize,
    pub store_buffers: usize,
}

/// Where each begins, one behind the other, and where they end.
pub(super) struct Places {
    pub stores: usize,
    pub loads: usize,
    pub vectors: usize,
    pub bits: usize,
    pub parts: usize,
    pub sums: usize,
    pub barriers: usize,
    pub end: usize,
}

/// Chunks of a consumer that its loads are ahead at most.
const MOST_LOAD_STAGES: usize = 12;

impl Sizes {
    fn places(&self, Rings { stages, load_stages, store_buffers }: Rings) -> Places {
        let stores = stages * self.ring;
        let loads = stores + self.consumers * store_buffers * self.store;
        let vectors = loads + self.consumers * load_stages * self.load;
        let bits = vectors + 2 * self.vectors;
        let parts = bits + self.consumers * self.bits;
        let sums = parts + self.consumers * self.parts;
        let barriers = sums + 2 * self.sums;
        let of_consumer = 2 * (load_stages + usize::from(self.reduces));
        let count = 2 * stages + 6 + self.consumers * of_consumer + if self.sums > 0 { 4 } else { 0 };
        Places { stores, loads, vectors, bits, parts, sums, barriers, end: barriers + 8 * count }
    }

    /// The rings that fit into so many bytes: first comes the whole ring of the mainloop, of `most` stages, then two chunks of loads, and
    /// what is left deepens the rings of the epilogue, whose tiles have so many `chunks`.
    ///
    /// # Errors
    /// How many bytes are lacking, if not even two stages fit.
    pub fn fill(&self, most: usize, chunks: usize, limit: usize) -> Result<(Rings, Places), String> {
        let fits = |rings: &Rings| self.places(*rings).end <= limit;
        let shallow = usize::from(self.load > 0);
        let rings = |stages, load_stages| Rings { stages, load_stages, store_buffers: 1 };
        let options = (3..=most).rev().map(|stages| rings(stages, 2 * shallow)).chain([rings(3, shallow), rings(2, shallow)]);
        let Some(mut found) = options.filter(|rings| rings.stages <= most.max(2)).find(fits) else {
            let lacking = self.places(rings(2, shallow)).end.saturating_sub(limit);
            return Err(format!("with the epilogue's matrices it lacks {lacking} bytes of shared memory"));
        };
        let mut deepen = |deeper: fn(Rings) -> Rings, up_to: &dyn Fn(&Rings) -> bool| {
            while up_to(&found) && fits(&deeper(found)) {
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
        Ok((found, self.places(found)))
    }
}
