//! Tiles: the configurations of each mainloop, whether a configuration is legal, and what it needs. The choice, the
//! launch and `explain` use one formula for shared memory.

use super::rules::LARGEST;
use crate::dtype::DType;
use crate::plan::{Mainloop, Parts, PlannedReduction};
use crate::problem::Operation;
use crate::target::Target;
use serde::{Deserialize, Serialize};

/// A configuration of a mainloop. Extents are in elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tile {
    /// Rows of a block's tile.
    pub bm: usize,
    /// Columns of a block's tile.
    pub bn: usize,
    /// The part that depends on the mainloop.
    pub shape: TileShape,
    /// Threads of a block.
    pub threads: usize,
    /// Blocks of a multiprocessor that the compiler must leave registers for.
    pub min_blocks: usize,
}

/// The part of a tile that depends on the mainloop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum TileShape {
    /// A thread owns `tm` x `tn`; shared memory holds two stages of `bk`.
    Simt {
        /// K elements of a stage.
        bk: usize,
        /// Rows of a thread.
        tm: usize,
        /// Columns of a thread.
        tn: usize,
    },
    /// `warps_m` x `warps_n` warps share the tile; a ring of `stages` of `bk`.
    Sm80 {
        /// K elements of a stage.
        bk: usize,
        /// Stages of the ring.
        stages: usize,
        /// Warps along M.
        warps_m: usize,
        /// Warps along N.
        warps_n: usize,
    },
    /// A warpgroup fetches, `consumers` multiply; a ring of `stages` of `bk`.
    Sm90a {
        /// K elements of a stage.
        bk: usize,
        /// Stages of the ring; an upper limit until the epilogue's operands are placed beside it.
        stages: usize,
        /// Warpgroups that multiply.
        consumers: usize,
        /// How they share the work.
        schedule: Schedule,
        /// Blocks of a cluster along M and N. Neighbours fetch shared data once.
        cluster: [usize; 2],
        /// Whether the blocks of a cluster along N share K instead. Each block multiplies its part of K for the columns
        /// of all of them. Then they exchange their sums, and each finishes its own columns.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        splits_k: bool,
    },
    /// For convolutions of few channels: lines of the images lie in shared memory, beside all of the filters.
    /// `warps_m` x `warps_n` warps share the tile.
    Bands {
        /// Lines of the images that the windows of a tile reach, at most.
        lines: usize,
        /// Elements of such a line.
        line: usize,
        /// Elements of a filter, as the tile goes through them.
        terms: usize,
        /// Warps along M.
        warps_m: usize,
        /// Warps along N.
        warps_n: usize,
    },
    /// For convolutions with one channel to a filter. A thread has the same columns of `run` pixels side by side.
    Depthwise {
        /// Pixels of a thread at a time.
        run: usize,
        /// Taps of the window: its weights lie in shared memory.
        taps: usize,
    },
    /// All threads of a block, and of the other blocks of its cluster, share K.
    Gemv {
        /// Blocks of a cluster.
        cluster: usize,
    },
    /// Rows are processed in batches.
    Pointwise,
    /// Threads share the rows of a tile. `span` equals `bn` if they hold a whole row, and is smaller if they read it
    /// again.
    Rows {
        /// Threads that share a row.
        group: usize,
        /// Columns of a row that they hold at a time.
        span: usize,
        /// Rows of which a thread holds a part at a time.
        together: usize,
        /// Whether the next rows are loaded while these are reduced.
        ahead: bool,
    },
}

/// How the consumers of a block share the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Schedule {
    /// Each computes its own rows of every tile.
    Cooperative,
    /// They alternate between whole tiles: the epilogue of one runs under the products of the other.
    PingPong,
}

impl Tile {
    pub(in crate::plan) const fn simt(bm: usize, bn: usize, bk: usize, tm: usize, tn: usize, min_blocks: usize) -> Tile {
        Tile { bm, bn, shape: TileShape::Simt { bk, tm, tn }, threads: bm / tm * (bn / tn), min_blocks }
    }

    pub(in crate::plan) const fn sm80(
        bm: usize,
        bn: usize,
        bk: usize,
        stages: usize,
        warps: [usize; 2],
        min_blocks: usize,
    ) -> Tile {
        let [warps_m, warps_n] = warps;
        Tile { bm, bn, shape: TileShape::Sm80 { bk, stages, warps_m, warps_n }, threads: 32 * warps_m * warps_n, min_blocks }
    }

    pub(in crate::plan) const fn cooperative(bm: usize, bn: usize, stages: usize) -> Tile {
        let shape =
            TileShape::Sm90a { bk: 64, stages, consumers: 2, schedule: Schedule::Cooperative, cluster: [1, 1], splits_k: false };
        Tile { bm, bn, shape, threads: 384, min_blocks: 1 }
    }

    pub(in crate::plan) const fn ping_pong(bm: usize, bn: usize, stages: usize) -> Tile {
        let shape =
            TileShape::Sm90a { bk: 64, stages, consumers: 2, schedule: Schedule::PingPong, cluster: [1, 1], splits_k: false };
        Tile { bm, bn, shape, threads: 384, min_blocks: 1 }
    }

    /// One consumer, with twice the K elements in a stage: for narrow outputs, which wait for memory.
    pub(in crate::plan) const fn single(bm: usize, bn: usize, stages: usize) -> Tile {
        let shape =
            TileShape::Sm90a { bk: 128, stages, consumers: 1, schedule: Schedule::Cooperative, cluster: [1, 1], splits_k: false };
        Tile { bm, bn, shape, threads: 256, min_blocks: 1 }
    }

    /// The same tile with the same bytes of K in a stage, for elements of this size.
    pub(in crate::plan) const fn of_elements(self, size: usize) -> Tile {
        let shape = match self.shape {
            TileShape::Sm90a { bk, stages, consumers, schedule, cluster, splits_k } => {
                TileShape::Sm90a { bk: bk * 2 / size, stages, consumers, schedule, cluster, splits_k }
            }
            TileShape::Sm80 { bk, stages, warps_m, warps_n } => TileShape::Sm80 { bk: bk * 2 / size, stages, warps_m, warps_n },
            other => other,
        };
        Tile { shape, ..self }
    }

    pub(in crate::plan) const fn clustered(self, along_m: usize, along_n: usize) -> Tile {
        match self.shape {
            TileShape::Sm90a { bk, stages, consumers, schedule, .. } => {
                let cluster = [along_m, along_n];
                let shape = TileShape::Sm90a { bk, stages, consumers, schedule, cluster, splits_k: false };
                Tile { shape, ..self }
            }
            _ => self,
        }
    }

    /// The tile of a cluster of this many blocks that share K. Each block finishes its part of the columns.
    pub(in crate::plan) const fn in_parts(self, parts: usize) -> Tile {
        match self.shape {
            TileShape::Sm90a { bk, stages, consumers, schedule, .. } => {
                let cluster = [1, parts];
                let shape = TileShape::Sm90a { bk, stages, consumers, schedule, cluster, splits_k: parts > 1 };
                Tile { bn: self.bn / parts, shape, ..self }
            }
            _ => self,
        }
    }

    pub(in crate::plan) const fn gemv(bm: usize, bn: usize, threads: usize, min_blocks: usize, cluster: usize) -> Tile {
        Tile { bm, bn, shape: TileShape::Gemv { cluster }, threads, min_blocks }
    }

    pub(in crate::plan) const fn pointwise(bm: usize, bn: usize, threads: usize) -> Tile {
        Tile { bm, bn, shape: TileShape::Pointwise, threads, min_blocks: 1 }
    }

    /// The mainloop it configures.
    pub const fn mainloop(&self) -> Mainloop {
        match self.shape {
            TileShape::Simt { .. } => Mainloop::Simt,
            TileShape::Sm80 { .. } => Mainloop::Sm80,
            TileShape::Sm90a { .. } => Mainloop::Sm90a,
            TileShape::Bands { .. } => Mainloop::Bands,
            TileShape::Depthwise { .. } => Mainloop::Depthwise,
            TileShape::Gemv { .. } => Mainloop::Gemv,
            TileShape::Pointwise => Mainloop::Pointwise,
            TileShape::Rows { .. } => Mainloop::Rows,
        }
    }

    /// Blocks of a cluster.
    pub const fn cluster(&self) -> usize {
        match self.shape {
            TileShape::Sm90a { cluster: [m, n], .. } => m * n,
            TileShape::Gemv { cluster } => cluster,
            _ => 1,
        }
    }

    /// Clusters that run at the same time, if each block fills a multiprocessor. Clusters of four leave some
    /// multiprocessors of a group of 16 or 18 idle: they reach 120 of an H200's 132.
    pub(in crate::plan) fn clusters_at_once(&self, multiprocessors: usize) -> usize {
        let reached = if self.cluster() > 2 { multiprocessors.saturating_mul(10) / 11 } else { multiprocessors };
        (reached / self.cluster()).max(1)
    }

    /// Blocks of a cluster that share K; 1 if each block has all of it.
    pub const fn parts(&self) -> usize {
        match self.shape {
            TileShape::Sm90a { splits_k: true, cluster: [_, parts], .. } => parts,
            _ => 1,
        }
    }

    /// Columns that a block multiplies: those of the tile, or of all blocks that share K with it.
    pub const fn multiplied_columns(&self) -> usize {
        self.bn * self.parts()
    }

    /// Bytes of dynamic shared memory of a block, for mainloops that stage nothing: the mainloop's stages, which the
    /// epilogue's slabs overlay, then, aligned to 16 bytes, the memory of the epilogue's reductions.
    pub fn shared_memory(&self, dtype: DType, epilogue: usize) -> usize {
        let [mainloop, _] = self.own_memory(dtype);
        if epilogue == 0 { mainloop } else { mainloop.next_multiple_of(16) + epilogue }
    }

    /// Bytes of the mainloop's own memory, and rows of the slab through which accumulators pass.
    fn own_memory(&self, dtype: DType) -> [usize; 2] {
        let word = dtype.value_type().storage().size();
        match self.shape {
            TileShape::Simt { bk, tm, .. } => {
                // Words of the accumulator's type; rows are padded by four. The slab holds one group of four rows of
                // every thread.
                let stages = 2 * bk * (self.bm + 4 + self.bn + 4);
                let rows = self.bm / (tm / 4);
                [word * stages.max(rows * (self.bn + 4)), rows]
            }
            TileShape::Sm80 { bk, stages, warps_m, warps_n } => {
                self.with_slabs(stages * (self.bm + self.bn) * bk * dtype.size(), [warps_m, warps_n])
            }
            TileShape::Bands { warps_m, warps_n, .. } => {
                let [slabs, rows] = self.with_slabs(0, [warps_m, warps_n]);
                [self.band_memory(dtype.size()) + slabs, rows]
            }
            TileShape::Depthwise { taps, .. } => [word * taps * self.bn, 0],
            // A sum of every warp for each element, and the block's own sums if blocks add them up.
            TileShape::Gemv { cluster } => [word * self.bm * self.bn * (self.threads / 32 + usize::from(cluster > 1)), 0],
            // The states of a row's warps, twice: up to 32 bytes each.
            TileShape::Rows { group, .. } if group > 32 => [2 * self.threads, 0],
            TileShape::Sm90a { .. } | TileShape::Pointwise | TileShape::Rows { .. } => [0, 0],
        }
    }

    /// Bytes of shared memory for so many, which the slabs of the epilogue overlay, and rows of a warp's slab: its whole
    /// part if there is room, otherwise a power-of-two fraction.
    fn with_slabs(&self, room: usize, [warps_m, warps_n]: [usize; 2]) -> [usize; 2] {
        let (warp_m, warp_n, warps) = (self.bm / warps_m, self.bn / warps_n, warps_m * warps_n);
        let bytes = |rows: usize| warps * rows * (warp_n + 8) * 4;
        let mut rows = warp_m;
        while rows % 32 == 0 && bytes(rows) > room {
            rows /= 2;
        }
        [room.max(bytes(rows)), rows]
    }

    /// All numbers of the tile.
    pub(super) fn numbers(&self) -> impl IntoIterator<Item = usize> {
        let shape = match self.shape {
            TileShape::Simt { bk, tm, tn } => [bk, tm, tn, 1, 1],
            TileShape::Sm80 { bk, stages, warps_m, warps_n } => [bk, stages, warps_m, warps_n, 1],
            TileShape::Sm90a { bk, stages, consumers, schedule: _, cluster: [m, n], splits_k: _ } => {
                [bk, stages, consumers, m, n]
            }
            TileShape::Bands { lines, line, terms, warps_m, warps_n } => [lines, line, terms, warps_m, warps_n],
            TileShape::Depthwise { run, taps } => [run, taps, 1, 1, 1],
            TileShape::Gemv { cluster } => [cluster, 1, 1, 1, 1],
            TileShape::Pointwise => [1; 5],
            // Rows may be longer than other tiles are wide.
            TileShape::Rows { group, together, span, .. } => [group, together, span.min(LARGEST), 1, 1],
        };
        let columns = if matches!(self.shape, TileShape::Rows { .. }) { self.bn.min(LARGEST) } else { self.bn };
        [self.bm, columns, self.threads, self.min_blocks].into_iter().chain(shape)
    }

    /// Rows of the tile that a consumer computes.
    pub(in crate::plan) fn consumer_rows(&self) -> usize {
        match self.shape {
            TileShape::Sm90a { schedule: Schedule::Cooperative, consumers, .. } => self.bm / consumers.max(1),
            _ => self.bm,
        }
    }

    /// Accumulators that a thread has in the epilogue.
    pub(in crate::plan) fn accumulators(&self) -> usize {
        match self.shape {
            TileShape::Sm90a { .. } => self.consumer_rows() * self.bn / 128,
            // A row that is read again is not held to the end.
            TileShape::Rows { span, .. } if span < self.bn => 0,
            TileShape::Rows { group, span, together, .. } => span / group.max(1) * together,
            // A thread goes from run to run. Eight columns are the most of a visit.
            TileShape::Depthwise { run, .. } => run * 8,
            _ => self.bm * self.bn / self.threads.max(1),
        }
    }

    /// Accumulators of a thread during the products.
    pub(super) fn multiplied(&self) -> usize {
        self.accumulators().saturating_mul(self.parts())
    }

    /// Why the configuration cannot run, if it cannot.
    pub(in crate::plan) fn obstacle(
        &self,
        operation: Operation,
        reductions: &[PlannedReduction],
        alignment: [usize; 2],
        strip: usize,
        target: Target,
    ) -> Option<String> {
        let rule = self.broken_rule(operation, alignment, strip).map(|rule| format!("breaks the mainloop's rule: {rule}"));
        if rule.is_some() {
            return rule;
        }
        let needs = self.shared_memory(operation.dtype(), Parts::of(reductions, self, strip).bytes);
        let has = target.shared_memory_per_block_opt_in() as usize;
        if needs > has {
            return Some(format!("needs {needs} bytes of shared memory; {target} has {has}"));
        }
        // A thread holds its accumulators, two sets of fragments and addresses.
        let words = operation.accumulator().storage().size() / 4;
        let least = match self.shape {
            TileShape::Simt { tm, tn, .. } => words * (tm * tn + 2 * (tm + tn)) + 24,
            TileShape::Sm80 { .. } if operation.is_scaled() => 2 * self.bm * self.bn / self.threads + 64,
            TileShape::Sm80 { .. } | TileShape::Bands { .. } => self.bm * self.bn / self.threads + 64,
            TileShape::Depthwise { run, .. } => words * run * strip + 40,
            TileShape::Gemv { .. } => 40,
            TileShape::Sm90a { .. } | TileShape::Pointwise | TileShape::Rows { .. } => 32,
        };
        if self.cluster() > 1 && !target.has_clusters() {
            return Some(format!("{target} has no clusters"));
        }
        let registers = target.registers_per_multiprocessor() as usize / (self.threads * self.min_blocks);
        (registers < least).then(|| format!("leaves {registers} registers a thread, and needs about {least}"))
    }

    /// The names and values of the templates' constants, beyond the common ones. `sums` says whether operands are
    /// summed.
    pub(crate) fn constants(&self, dtype: DType, sums: bool) -> Vec<(&'static str, usize)> {
        let [memory, slab_rows] = self.own_memory(dtype);
        let mut list = vec![("BM", self.bm), ("BN", self.bn)];
        match self.shape {
            TileShape::Simt { bk, tm, tn } => list.extend([("BK", bk), ("TM", tm), ("TN", tn)]),
            TileShape::Sm80 { bk, stages, warps_m, warps_n } => {
                list.extend([("BK", bk), ("STAGES", stages), ("WARPS_M", warps_m), ("WARPS_N", warps_n)]);
            }
            TileShape::Sm90a { bk, stages, consumers, schedule, cluster: [cluster_m, cluster_n], splits_k: _ } => {
                let ping_pong = usize::from(schedule == Schedule::PingPong);
                // Three warpgroups have 168 registers a thread. The producer gives some to the warpgroups that hold
                // accumulators. To sum operands it needs more than 24.
                let [producer, consumer] = if self.multiplied() > 160 && !sums { [24, 240] } else { [40, 232] };
                list.extend([("BK", bk), ("STAGES", stages), ("CONSUMERS", consumers), ("PING_PONG", ping_pong)]);
                list.extend([("CLUSTER_M", cluster_m), ("CLUSTER_N", cluster_n)]);
                list.extend([("PRODUCER_REGISTERS", producer), ("CONSUMER_REGISTERS", consumer)]);
            }
            TileShape::Bands { lines, line, terms, warps_m, warps_n } => {
                list.extend([("LINES", lines), ("LINE", line), ("TERMS", terms)]);
                list.extend([("WARPS_M", warps_m), ("WARPS_N", warps_n)]);
            }
            TileShape::Depthwise { run, .. } => list.push(("RUN", run)),
            TileShape::Gemv { cluster } => list.push(("CLUSTER", cluster)),
            TileShape::Pointwise => {}
            TileShape::Rows { group, span, together, ahead } => {
                list.extend([("GROUP", group), ("SPAN", span), ("TOGETHER", together), ("AHEAD", usize::from(ahead))])
            }
        }
        list.extend([("THREADS", self.threads), ("MIN_BLOCKS", self.min_blocks)]);
        list.extend([("MAINLOOP_SMEM", memory), ("SLAB_ROWS", slab_rows)].into_iter().filter(|(_, number)| *number > 0));
        list
    }
}
