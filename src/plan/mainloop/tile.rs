//! Tiles: the configurations of each mainloop. The room of a mainloop says what its tiles need; `table` asks it.

use crate::problem::Shape;
use serde::{Deserialize, Serialize};

/// The largest number in a tile, except for the length of rows.
pub(super) const LARGEST: usize = 1 << 16;

/// Whether a tile is written without this number.
fn is_zero(number: &usize) -> bool {
    *number == 0
}

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
    /// For attention: warps share the queries of the tile, and go through a ring of `stages` blocks of keys and values.
    Attention {
        /// Keys of a block.
        keys: usize,
        /// Blocks of the ring.
        stages: usize,
        /// Elements of a query, filled up with zeros.
        width: usize,
        /// Whether four warps multiply together through `wgmma`, and not each by itself through `mma.sync`.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        wgmma: bool,
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
    /// For the gradient of the filters of few channels: lines of the images lie in shared memory beside those of dY. `warps_n`
    /// warps share the elements of a filter, `warps_k` times.
    BandsFilters {
        /// Lines of the images that the windows of the pixels reach, at most.
        lines: usize,
        /// Elements of such a line.
        line: usize,
        /// Elements of a filter, as the tile goes through them.
        terms: usize,
        /// Output pixels that are multiplied at a time.
        pixels: usize,
        /// Warps along the elements of a filter.
        warps_n: usize,
        /// Warps that have the same elements, and different pixels.
        warps_k: usize,
    },
    /// For convolutions with one channel to a filter. A thread has the same columns of `run` pixels side by side.
    Depthwise {
        /// Pixels of a thread at a time.
        run: usize,
        /// Taps of the window: its weights lie in shared memory.
        taps: usize,
    },
    /// For the gradient of such filters. A thread has `vector` channels of `run` output pixels side by side, and walks down the
    /// images.
    DepthwiseFilters {
        /// Channels of a thread.
        vector: usize,
        /// Threads side by side along the channels.
        lanes: usize,
        /// Output pixels of a thread side by side.
        run: usize,
        /// Rows of the window whose sums a thread has at a time.
        rows: usize,
        /// Rows and columns of the window.
        window: [usize; 2],
        /// Parts of K, each of which has a block.
        parts: usize,
    },
    /// For convolutions with one channel to a filter whose windows move without gaps. A block goes down the lines of an image. A
    /// thread has the same columns of `run` pixels.
    DepthwiseLines {
        /// Pixels of a thread: side by side, in as many rows as a line that is read becomes.
        run: usize,
        /// Threads along a row of output pixels.
        across: usize,
        /// Bands of rows of output pixels that a block has at a time.
        groups: usize,
        /// Rows of output pixels of a band.
        rows: usize,
        /// Lines that are in shared memory, or on their way, for each band.
        stages: usize,
        /// Pixels of such a line.
        line: usize,
        /// Taps of the window: its weights lie in shared memory.
        taps: usize,
    },
    /// All threads of a block, and of the other blocks of its cluster, share K.
    Gemv {
        /// Blocks of a cluster.
        cluster: usize,
        /// Steps whose weights lie in shared memory, or are on their way there. If weights have as many bits as activations,
        /// there are none: they go straight to registers.
        #[serde(default, skip_serializing_if = "is_zero")]
        stages: usize,
    },
    /// Rows are processed in batches.
    Pointwise,
    /// Threads share the rows of a tile. `span` equals `bn` if they hold a whole row, and is smaller if they read it
    /// again. Those of a whole matrix hold it if `together` rows of each thread are all that there are.
    Rows {
        /// Threads that share a row.
        group: usize,
        /// Columns of a row that they hold at a time.
        span: usize,
        /// Rows of which a thread holds a part at a time.
        together: usize,
        /// Whether the next rows are loaded while these are reduced.
        ahead: bool,
        /// Whether a tile is a whole matrix, so that something can be reduced over all of its rows and columns.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        whole: bool,
        /// Blocks of a cluster that share a row: each has as many columns, and as many threads.
        #[serde(default = "alone", skip_serializing_if = "is_alone")]
        cluster: usize,
        /// Batches of rows that are on their way to shared memory, and bytes of an element of all matrices that are read.
        #[serde(default, skip_serializing_if = "is_nothing")]
        copies: [usize; 2],
    },
    /// The blocks of a cluster share the rows of a tile, which has one or several groups of columns beside each other. Each
    /// thread has a strip of columns, and goes down its rows.
    Groups {
        /// Columns that are reduced together.
        band: usize,
        /// Blocks of a cluster.
        cluster: usize,
        /// Bytes of an element of all matrices that are read.
        bytes: usize,
        /// Strips that a thread reads from shared memory at a time.
        together: usize,
    },
}

const fn alone() -> usize {
    1
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
const fn is_alone(cluster: &usize) -> bool {
    *cluster == 1
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_nothing(copies: &[usize; 2]) -> bool {
    *copies == [0; 2]
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
    /// Tiles of a problem, as the kernel sees it.
    pub(in crate::plan) fn count(&self, shape: Shape) -> u64 {
        let tiles = shape.m.div_ceil(self.bm) as u64 * shape.n.div_ceil(self.bn) as u64;
        tiles.saturating_mul(shape.batch as u64)
    }
}
