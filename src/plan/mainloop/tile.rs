//! Tiles: the configurations of each mainloop, whether a configuration is legal, and what it needs. The choice, the
//! launch and `explain` use one formula for shared memory.

use crate::dtype::DType;
use crate::ir::Order;
use crate::plan::{Mainloop, Parts, PlannedReduction, TMA_UNIT};
use crate::problem::{Layout, Operation};
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

/// The largest number in a tile, except for the length of rows.
const LARGEST: usize = 1 << 16;
const LONGEST_ROW: usize = 1 << 24;

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
                let ring = stages * (self.bm + self.bn) * bk * dtype.size();
                let (warp_m, warp_n, warps) = (self.bm / warps_m, self.bn / warps_n, warps_m * warps_n);
                // A warp's slab holds its whole part if the ring is large enough, otherwise a power-of-two fraction of
                // the rows.
                let bytes = |rows: usize| warps * rows * (warp_n + 8) * 4;
                let mut rows = warp_m;
                while rows % 32 == 0 && bytes(rows) > ring {
                    rows /= 2;
                }
                [ring.max(bytes(rows)), rows]
            }
            // A sum of every warp for each element, and the block's own sums if blocks add them up.
            TileShape::Gemv { cluster } => [word * self.bm * self.bn * (self.threads / 32 + usize::from(cluster > 1)), 0],
            // The states of a row's warps, twice: up to 32 bytes each.
            TileShape::Rows { group, .. } if group > 32 => [2 * self.threads, 0],
            TileShape::Sm90a { .. } | TileShape::Pointwise | TileShape::Rows { .. } => [0, 0],
        }
    }

    /// All numbers of the tile.
    fn numbers(&self) -> impl IntoIterator<Item = usize> {
        let shape = match self.shape {
            TileShape::Simt { bk, tm, tn } => [bk, tm, tn, 1, 1],
            TileShape::Sm80 { bk, stages, warps_m, warps_n } => [bk, stages, warps_m, warps_n, 1],
            TileShape::Sm90a { bk, stages, consumers, schedule: _, cluster: [m, n], splits_k: _ } => {
                [bk, stages, consumers, m, n]
            }
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
            _ => self.bm * self.bn / self.threads.max(1),
        }
    }

    /// Accumulators of a thread during the products.
    fn multiplied(&self) -> usize {
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
            TileShape::Sm80 { .. } => self.bm * self.bn / self.threads + 64,
            TileShape::Gemv { .. } => 40,
            TileShape::Sm90a { .. } | TileShape::Pointwise | TileShape::Rows { .. } => 32,
        };
        if self.cluster() > 1 && !target.has_clusters() {
            return Some(format!("{target} has no clusters"));
        }
        let registers = target.registers_per_multiprocessor() as usize / (self.threads * self.min_blocks);
        (registers < least).then(|| format!("leaves {registers} registers a thread, and needs about {least}"))
    }

    /// The mainloop's rule that the configuration breaks, if any. The templates state the rules as `static_assert`s.
    fn broken_rule(&self, operation: Operation, alignment: [usize; 2], strip: usize) -> Option<&'static str> {
        let Tile { bm, bn, threads, .. } = *self;
        if !self.numbers().into_iter().all(|number| (1..=LARGEST).contains(&number)) {
            return Some("every number of a tile is from 1 to 65536");
        }
        let strips = bn / strip;
        let whole_rows = |rows: usize| threads.is_multiple_of(strips) && rows > 0 && rows.is_multiple_of(threads / strips);
        let first_broken = |rules: &[(bool, &'static str)]| rules.iter().find(|(holds, _)| !holds).map(|(_, rule)| *rule);
        if let TileShape::Sm90a { bk, consumers, schedule, cluster, splits_k, .. } = self.shape {
            let ping_pong = schedule == Schedule::PingPong;
            let rows = self.consumer_rows();
            let (a, Some(layout)) = (operation.dtype(), operation.layout()) else { return Some("it multiplies") };
            let patches_rule = self.broken_rule_of_patches(operation);
            let halves = |extent: usize, k_major: bool, shared: usize| shared == 1 || !k_major || extent.is_multiple_of(16);
            return first_broken(&[
                (matches!(consumers, 1 | 2) && (!ping_pong || consumers == 2), "one or two consumers, two for ping-pong"),
                (
                    threads == 128 * (1 + consumers) && self.min_blocks == 1,
                    "a producer and the consumers, one block a multiprocessor",
                ),
                (rows > 0 && rows.is_multiple_of(64) && bm.is_multiple_of(rows) && bm <= 256, "a consumer's rows come by 64"),
                ((8..=256).contains(&self.multiplied_columns()) && bn.is_multiple_of(8), "8 to 256 columns, by 8"),
                (
                    !a.is_eight_bits() || a.sums_coarsely() || bn < 32 || bn.is_multiple_of(16),
                    "8, 16 or 24 columns, or more by 16, of integers",
                ),
                (self.multiplied() <= 200, "a thread holds at most 200 accumulators"),
                (bk > 0 && (bk * a.size()).is_multiple_of(128), "K comes by 128 bytes"),
                (!a.is_eight_bits() || layout == Layout::TN, "operands of eight bits lie with K contiguous"),
                (splits_k || matches!(cluster, [1, 1] | [2, 1] | [1, 2]), "a cluster is one block or two"),
                (!splits_k || matches!(cluster, [1, 2 | 4]), "two or four blocks along N share K"),
                (!splits_k || !ping_pong, "blocks that share K have consumers that share the tile"),
                (!splits_k || !a.is_eight_bits(), "blocks share K of 16-bit operands"),
                (
                    splits_k
                        || halves(bm, layout.a() == Order::RowMajor, cluster[1])
                            && halves(bn, layout.b() == Order::ColumnMajor, cluster[0]),
                    "blocks of a cluster fetch whole halves",
                ),
                (alignment.iter().all(|a| *a >= TMA_UNIT), "TMA copies operands aligned to 16 bytes"),
                (patches_rule.is_none(), patches_rule.unwrap_or_default()),
            ]);
        }
        if let TileShape::Rows { group, span, together, .. } = self.shape {
            let at_once = (threads / group.max(1)).max(1) * together.max(1);
            return first_broken(&[
                (
                    [threads, group, together].iter().all(|x| x.is_power_of_two()),
                    "threads, groups of them and rows together are powers of two",
                ),
                ((32..=1024).contains(&threads) && group <= threads, "a block has 32 to 1024 threads, and whole groups"),
                (
                    span > 0 && span.is_multiple_of((group * strip).max(8)) && bn.is_multiple_of(span),
                    "a group's strips cover a row in whole spans",
                ),
                (bn <= LONGEST_ROW, "a row has at most 16777216 columns"),
                (
                    bm.is_multiple_of(at_once) && (bn == span || bm == at_once),
                    "a tile has whole batches of rows, and one where they are read again",
                ),
            ]);
        }
        if bn < 8 || strip > bn || !bn.is_multiple_of(strip) || ![bm, bn, threads].iter().all(|x| x.is_power_of_two()) {
            return Some(
                "extents and threads are powers of two, strips divide the columns, and eight columns share a byte of a mask",
            );
        }
        match self.shape {
            TileShape::Simt { bk, tm, tn } => {
                let powers = [bk, tm, tn].iter().all(|x| x.is_power_of_two());
                let lanes_n = (bn / tn.max(1)).clamp(1, 8);
                first_broken(&[
                    (powers && tm >= 4 && tn >= 4 && bk >= 8, "a thread owns at least 4 x 4"),
                    ((32..=1024).contains(&threads) && threads * tm * tn == bm * bn, "whole warps own the tile"),
                    (bm.is_multiple_of(32 / lanes_n * tm) && bn.is_multiple_of(lanes_n * tn), "whole warps cover the tile"),
                    ((bm * bk).is_multiple_of(threads) && (bn * bk).is_multiple_of(threads), "threads share the loads evenly"),
                    (whole_rows(bm / (tm / 4).max(1)), "threads visit whole rows"),
                ])
            }
            TileShape::Sm80 { bk, stages, warps_m, warps_n } => {
                let (dtype, Some(layout)) = (operation.dtype(), operation.layout()) else { return Some("it multiplies") };
                let k_major = [layout.a() == Order::RowMajor, layout.b() == Order::ColumnMajor];
                let steps = bk * dtype.size() / 32;
                if dtype.is_eight_bits() && layout != Layout::TN {
                    return Some("operands of eight bits lie with K contiguous");
                }
                let operands = [(bm, k_major[0], alignment[0]), (bn, k_major[1], alignment[1])];
                first_broken(&[
                    (threads == 32 * warps_m * warps_n, "its warps are those of the block"),
                    (bm.is_multiple_of(16 * warps_m), "a warp's rows are whole fragments"),
                    ([32, 64, 128].contains(&(bn / warps_n)), "a warp's columns are 32, 64 or 128"),
                    (steps >= 2 && steps.is_multiple_of(2) && stages >= 2, "both double buffers have something to alternate"),
                    (
                        operands
                            .iter()
                            .all(|&(extent, k_major, align)| copies_evenly(extent, bk, k_major, align, dtype, threads)),
                        "copies cover a stage evenly",
                    ),
                ])
            }
            TileShape::Gemv { cluster } => {
                let (dtype, Some(layout)) = (operation.dtype(), operation.layout()) else { return Some("it multiplies") };
                let vector = 16 / dtype.size();
                let columns = if layout.b() == Order::ColumnMajor { bn } else { vector };
                first_broken(&[
                    ([1, 2, 4, 8].contains(&cluster), "a cluster has 1, 2, 4 or 8 blocks"),
                    ((32..=1024).contains(&threads), "a block has 32 to 1024 threads"),
                    (bn.is_multiple_of(columns) && bn / columns <= 32, "a warp covers the columns"),
                    (columns <= 16 && bm * columns <= 64, "a thread holds at most 64 sums"),
                    (bm * strips <= threads, "one strip a thread"),
                ])
            }
            TileShape::Sm90a { .. } | TileShape::Rows { .. } => None,
            TileShape::Pointwise => first_broken(&[(whole_rows(bm), "threads visit whole rows")]),
        }
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

/// Whether a block's threads copy one operand's part of a stage in whole passes. A row of that part is K long if K is
/// contiguous, otherwise M or N. Its copies are as wide as the operand's alignment.
fn copies_evenly(extent: usize, bk: usize, k_major: bool, align: usize, dtype: DType, threads: usize) -> bool {
    let (rows, row) = if k_major { (extent, bk * dtype.size()) } else { (bk, extent * dtype.size()) };
    let unit = align.clamp(4, 16);
    let bytes = threads * unit;
    let pass = bytes / row;
    (64..=1024).contains(&row)
        && row.is_power_of_two()
        && bytes.is_multiple_of(row)
        && rows.is_multiple_of(pass)
        && (pass.is_power_of_two() || pass.is_multiple_of(8))
        && (align >= 4 || (align == 2 && dtype.size() == 2))
}
