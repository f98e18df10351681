//! The table of mainloops, and what a tile says of itself: it asks the room of its mainloop. The choice, the launch and
//! `explain` use one formula for shared memory.

use super::attention::Attention;
use super::bands::Bands;
use super::bands_filters::BandsFilters;
use super::depthwise::Depthwise;
use super::depthwise_filters::DepthwiseFilters;
use super::depthwise_lines::DepthwiseLines;
use super::gemv::Gemv;
use super::groups::Groups;
use super::name::Mainloop;
use super::pointwise::Pointwise;
use super::rows::Rows;
use super::rules::{Number, Rules};
use super::simt::Simt;
use super::sm80::Sm80;
use super::sm90a::rules::Sm90a;
use super::tile::{LARGEST, Tile, TileShape};
use crate::dtype::DType;
use crate::plan::epilogue::reduce::Unit;
use crate::problem::Operation;
use crate::target::Target;
use std::fmt;

impl Mainloop {
    /// What is known of it.
    pub(in crate::plan) fn rules(self) -> &'static dyn Rules {
        match self {
            Mainloop::Simt => &Simt,
            Mainloop::Sm80 => &Sm80,
            Mainloop::Sm90a => &Sm90a,
            Mainloop::Attention => &Attention,
            Mainloop::Bands => &Bands,
            Mainloop::BandsFilters => &BandsFilters,
            Mainloop::Depthwise => &Depthwise,
            Mainloop::DepthwiseFilters => &DepthwiseFilters,
            Mainloop::DepthwiseLines => &DepthwiseLines,
            Mainloop::Gemv => &Gemv,
            Mainloop::Pointwise => &Pointwise,
            Mainloop::Rows => &Rows,
            Mainloop::Groups => &Groups,
        }
    }
}

impl Tile {
    /// The mainloop it configures.
    pub const fn mainloop(&self) -> Mainloop {
        match self.shape {
            TileShape::Simt { .. } => Mainloop::Simt,
            TileShape::Sm80 { .. } => Mainloop::Sm80,
            TileShape::Sm90a { .. } => Mainloop::Sm90a,
            TileShape::Attention { .. } => Mainloop::Attention,
            TileShape::Bands { .. } => Mainloop::Bands,
            TileShape::BandsFilters { .. } => Mainloop::BandsFilters,
            TileShape::Depthwise { .. } => Mainloop::Depthwise,
            TileShape::DepthwiseFilters { .. } => Mainloop::DepthwiseFilters,
            TileShape::DepthwiseLines { .. } => Mainloop::DepthwiseLines,
            TileShape::Gemv { .. } => Mainloop::Gemv,
            TileShape::Pointwise => Mainloop::Pointwise,
            TileShape::Rows { .. } => Mainloop::Rows,
            TileShape::Groups { .. } => Mainloop::Groups,
        }
    }

    /// What is known of its mainloop.
    pub(in crate::plan) fn rules(&self) -> &'static dyn Rules {
        self.mainloop().rules()
    }

    /// Blocks of a cluster.
    pub fn cluster(&self) -> usize {
        self.rules().cluster(self)
    }

    /// Clusters that run at the same time, if each block fills a multiprocessor. Clusters of four leave some
    /// multiprocessors of a group of 16 or 18 idle: they reach 120 of an H200's 132.
    pub(in crate::plan) fn clusters_at_once(&self, multiprocessors: usize) -> usize {
        let reached = match self.cluster() {
            ..=2 => multiprocessors,
            // 39 clusters of three ran at once on 132 multiprocessors, and 40 did not.
            3 => multiprocessors.saturating_mul(8) / 9,
            _ => multiprocessors.saturating_mul(10) / 11,
        };
        (reached / self.cluster()).max(1)
    }

    /// Blocks of a cluster that share K; 1 if each block has all of it.
    pub fn parts(&self) -> usize {
        self.rules().parts(self)
    }

    /// Columns that a block multiplies: those of the tile, or of all blocks that share K with it.
    pub fn multiplied_columns(&self) -> usize {
        self.bn * self.parts()
    }

    /// Rows of the tile that a consumer computes.
    pub(in crate::plan) fn consumer_rows(&self) -> usize {
        self.rules().consumer_rows(self)
    }

    /// Accumulators that a thread has in the epilogue.
    pub(in crate::plan) fn accumulators(&self) -> usize {
        self.rules().accumulators(self)
    }

    /// Accumulators of a thread during the products.
    pub(in crate::plan) fn multiplied(&self) -> usize {
        self.accumulators().saturating_mul(self.parts())
    }

    /// The units of a tile that is visited in strips of `strip` columns.
    pub(crate) fn unit(&self, strip: usize) -> Unit {
        self.rules().unit(self, strip)
    }

    /// Bytes of dynamic shared memory of a block, for mainloops that stage nothing: the mainloop's stages, which the
    /// epilogue's slabs overlay, then, aligned to 16 bytes, the memory of the epilogue's reductions.
    pub fn shared_memory(&self, dtype: DType, epilogue: usize) -> usize {
        let [mainloop, _] = self.rules().memory(self, dtype);
        if epilogue == 0 { mainloop } else { mainloop.next_multiple_of(16) + epilogue }
    }

    /// The mainloop's rule that the configuration breaks, if any.
    fn broken_rule(&self, operation: Operation, alignment: [usize; 2], strip: usize) -> Option<&'static str> {
        let numbers = [self.bm, self.threads, self.min_blocks].into_iter().chain(self.rules().numbers(self));
        if !numbers.into_iter().all(|number| (1..=LARGEST).contains(&number)) {
            return Some("every number of a tile is from 1 to 65536");
        }
        self.rules().broken_rule(self, operation, alignment, strip)
    }

    /// Why the configuration cannot run, if it cannot. `epilogue` says how many bytes of shared memory its reductions take.
    pub(in crate::plan) fn obstacle(
        &self,
        operation: Operation,
        epilogue: impl FnOnce() -> usize,
        alignment: [usize; 2],
        strip: usize,
        target: Target,
    ) -> Option<String> {
        let rule = self.broken_rule(operation, alignment, strip).map(|rule| format!("breaks the mainloop's rule: {rule}"));
        if rule.is_some() {
            return rule;
        }
        let needs = self.shared_memory(operation.dtype(), epilogue());
        let has = target.shared_memory_per_block_opt_in() as usize;
        if needs > has {
            return Some(format!("needs {needs} bytes of shared memory; {target} has {has}"));
        }
        let least = self.rules().registers(self, operation, strip);
        if self.cluster() > 1 && !target.has_clusters() {
            return Some(format!("{target} has no clusters"));
        }
        let registers = target.registers_per_multiprocessor() as usize / (self.threads * self.min_blocks);
        (registers < least).then(|| format!("leaves {registers} registers a thread, and needs about {least}"))
    }

    /// The names and values of the templates' constants, beyond the common ones. `sums` says whether operands are
    /// summed.
    pub(crate) fn constants(&self, dtype: DType, sums: bool) -> Vec<Number> {
        let [memory, slab_rows] = self.rules().memory(self, dtype);
        let mut list = vec![("BM", self.bm), ("BN", self.bn)];
        list.extend(self.rules().constants(self, sums));
        list.extend([("THREADS", self.threads), ("MIN_BLOCKS", self.min_blocks)]);
        list.extend([("MAINLOOP_SMEM", memory), ("SLAB_ROWS", slab_rows)].into_iter().filter(|(_, number)| *number > 0));
        list
    }

    /// What kernels of its mainloop know of a convolution when they are compiled.
    pub(crate) fn patch_constants(&self, operation: Operation) -> Vec<Number> {
        self.rules().patch_constants(operation)
    }
}

impl fmt::Display for Tile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}x{}{}", self.mainloop(), self.bm, self.bn, self.rules().words(self))
    }
}
