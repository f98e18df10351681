//! What the planner and the printer know of a mainloop. Each mainloop answers in a room of its own, and `table` lists the rooms.
//!
//! A method without a body is asked of every mainloop. The others have the answer of most.

use super::tile::Tile;
use crate::check::Checked;
use crate::dtype::DType;
use crate::ir::{Operand, Order};
use crate::plan::code::{Copied, Copies, Price, Priced};
use crate::plan::epilogue::reduce::Unit;
use crate::plan::request::TileRequest;
use crate::plan::{Preferences, Program, Reason};
use crate::problem::{Operation, Shape};
use crate::target::{Gpu, Target};

/// The inputs of the choice of a mainloop. Shape and alignment describe `a` and `b` as the user sees them.
pub(in crate::plan) struct Asked<'a> {
    pub operation: Operation,
    pub shape: Shape,
    pub alignment: [usize; 2],
    pub target: Target,
    pub gpu: Gpu,
    pub preferences: Preferences,
    pub epilogue: &'a Checked,
    /// Whether the caller asks for this mainloop, so that it need not pay.
    pub forced: bool,
}

/// A candidate tile: why it is not meant for a problem, and its estimated time, which compares it with other tiles of its
/// mainloop. Without a time it is estimated as it fits ([`Rules::estimate`]).
pub(in crate::plan) struct Tried {
    pub tile: Tile,
    pub obstacle: Option<String>,
    pub time: Option<f64>,
}

/// A constant of a template.
pub(in crate::plan) type Number = (&'static str, usize);

/// A mainloop.
pub(in crate::plan) trait Rules: Sync {
    /// Why it cannot compute an operation, or should not.
    fn why_not(&self, asked: &Asked<'_>) -> Option<String>;

    /// The tiles that may be chosen for a problem.
    fn candidates(&self, request: &TileRequest<'_>) -> Vec<Tried>;

    /// The rule that a tile breaks, if any. The templates state the rules as `static_assert`s.
    fn broken_rule(&self, tile: &Tile, operation: Operation, alignment: [usize; 2], strip: usize) -> Option<&'static str>;

    /// The numbers of a tile's own part, each of which has limits.
    fn numbers(&self, tile: &Tile) -> Vec<usize>;

    /// The template's constants. `sums` says whether operands are summed.
    fn constants(&self, tile: &Tile, sums: bool) -> Vec<Number>;

    /// A tile's own part in words, behind its rows and columns.
    fn words(&self, tile: &Tile) -> String;

    /// What a kernel costs the compiler.
    fn price(&self, of: &Priced<'_>) -> Price;

    /// The estimated time of a tile that the caller asked for, or that [`candidates`](Rules::candidates) gives none.
    fn estimate(&self, _tile: &Tile, _request: &TileRequest<'_>) -> f64 {
        f64::INFINITY
    }

    /// Nanoseconds of one unit of the estimates, where it was measured.
    fn nanoseconds(&self, _dtype: DType) -> Option<f64> {
        None
    }

    /// Whether its estimates decide if K is split. Those of others only say what is worth trying.
    fn decides_splits(&self) -> bool {
        false
    }

    /// The tile as it fits beside the epilogue's operands, or the reason why it does not fit.
    fn fit(&self, tile: &Tile, request: &TileRequest<'_>) -> Result<Tile, Reason> {
        request.passes(0).map(|()| *tile)
    }

    /// The most columns that one visit covers.
    fn widest_strip(&self) -> usize {
        8
    }

    /// Bytes of the mainloop's own shared memory, and rows of the slab through which accumulators pass.
    fn memory(&self, _tile: &Tile, _dtype: DType) -> [usize; 2] {
        [0, 0]
    }

    /// Registers that a thread needs, roughly.
    fn registers(&self, _tile: &Tile, _operation: Operation, _strip: usize) -> usize {
        32
    }

    /// The fewest threads of a multiprocessor with which a tile is better than the next one that holds less.
    fn fewest_threads(&self, _tile: &Tile) -> usize {
        0
    }

    /// Bytes that a thread may spill and reload, because fewer blocks on a multiprocessor would cost more.
    fn tolerated_spills(&self, _tile: &Tile) -> u32 {
        0
    }

    /// Accumulators that a thread has in the epilogue.
    fn accumulators(&self, tile: &Tile) -> usize {
        tile.bm * tile.bn / tile.threads.max(1)
    }

    /// Blocks of a cluster.
    fn cluster(&self, _tile: &Tile) -> usize {
        1
    }

    /// Rows and columns of what counts as one tile in the order of tiles.
    #[cfg_attr(not(feature = "cuda"), allow(dead_code, reason = "only what runs kernels orders tiles"))]
    fn rastered(&self, tile: &Tile) -> [usize; 2] {
        [tile.bm, tile.bn]
    }

    /// Blocks of a cluster that share K.
    fn parts(&self, _tile: &Tile) -> usize {
        1
    }

    /// Rows of the tile that a consumer computes.
    fn consumer_rows(&self, tile: &Tile) -> usize {
        tile.bm
    }

    /// How threads share the rows and columns of a tile.
    fn unit(&self, tile: &Tile, strip: usize) -> Unit {
        Unit::of_strips(tile, (tile.bn / strip).max(1))
    }

    /// The units of a block that go from tile to tile, combine totals themselves, and publish once.
    fn publishers(&self, _tile: &Tile) -> Option<usize> {
        None
    }

    /// How often the epilogue's code is in a kernel. Here a thread visits one strip.
    fn copies(&self, of: &Copied<'_>) -> Copies {
        Copies::of_visits(of.strip, 1)
    }

    /// The grid of a launch on so many rows and columns of tiles.
    fn grid(&self, tile: &Tile, [rows, columns]: [usize; 2], batch: usize, _gpu: Gpu) -> Option<[u32; 3]> {
        let tiles = rows.checked_mul(columns)?.checked_mul(tile.cluster())?;
        let slices = batch.div_ceil(65_535).max(1);
        let entries = batch.div_ceil(slices);
        let fits = tiles <= i32::MAX as usize && slices <= 65_535;
        fits.then_some([tiles as u32, entries as u32, slices as u32])
    }

    /// Whether blocks of `depthwise_lines` go from tile to tile, those that are next to each other through neighbouring tiles.
    fn takes_turns(&self, _: &Copied<'_>) -> bool {
        false
    }

    /// Whether a thread of `depthwise_lines` loads the matrices of a row of output pixels, without conditions, before it
    /// multiplies the row's last lines.
    fn loads_ahead(&self, _: &Copied<'_>) -> bool {
        false
    }

    /// How many blocks do that.
    fn blocks(&self, _tile: &Tile, _tiles: [usize; 2], _gpu: Gpu) -> Option<usize> {
        None
    }

    /// The group height of a tile in the order of tiles, if that makes a difference.
    fn raster(&self, _tile: &Tile, _request: &TileRequest<'_>) -> Option<i32> {
        None
    }

    /// Whether tiles share operands, so that their order matters.
    #[cfg_attr(not(feature = "cuda"), allow(dead_code, reason = "only what runs kernels orders tiles"))]
    fn shares_operands(&self) -> bool {
        true
    }

    /// Whether it reads images with zeros between their pixels as they are, and does not go through windows by their remainders.
    fn reads_spread(&self) -> bool {
        false
    }

    /// Whether it reads lines of images, under the windows of neighbouring pixels, from shared memory.
    fn reads_bands(&self) -> bool {
        false
    }

    /// Whether blocks share K, and add their sums up in the workspace.
    fn shares_sums(&self) -> bool {
        false
    }

    /// Bytes of the counters of arrivals and of the sums in the workspace, if they do.
    fn shared_sums(&self, _tile: &Tile, _operation: Operation, _shape: Shape) -> [usize; 2] {
        [0; 2]
    }

    /// Whether each block has one tile, and may wait behind it to share the fix-up of sums over M.
    fn shares_fixups(&self) -> bool {
        false
    }

    /// Whether it computes attentions, and nothing else.
    fn attends(&self) -> bool {
        false
    }

    /// Whether kernels are persistent, fetch by TMA, and stage the epilogue's operands in shared memory.
    fn is_staged(&self) -> bool {
        false
    }

    /// Whether it multiplies a copy of an operand of fewer bits, widened on the way.
    fn widens_copies(&self) -> bool {
        false
    }

    /// Whether what it reads of A at once are neighbouring channels of any groups.
    fn takes_any_channels(&self) -> bool {
        false
    }

    /// Whether it has to write a matrix in the order of rows.
    fn keeps_order(&self, operand: &Operand) -> bool {
        operand.dtype.is_packed() && operand.order == Order::ColumnMajor
    }

    /// Whether it computes the transposed problem, if the epilogue does not decide that.
    fn prefers_transposed(&self, _operation: Operation, _shape: Shape) -> Option<bool> {
        None
    }

    /// If a problem is planned both ways round: the ratio of estimates below which the way that is not preferred is taken.
    fn other_way(&self, _operation: Operation, _epilogue: &Checked, _shape: Shape) -> Option<f64> {
        None
    }

    /// The constants of a convolution's kernel.
    fn patch_constants(&self, _operation: Operation) -> Vec<Number> {
        Vec::new()
    }

    /// What `explain` adds on how an operation is multiplied.
    fn note(&self, _operation: Operation) -> Option<&'static str> {
        None
    }

    /// Whether a kernel that uses what rows or matrices come to holds these.
    fn holds_rows(&self, _tile: &Tile) -> bool {
        false
    }

    /// Whether threads go over the strips of a row that they hold as often as is of use: ahead of a stage for what it
    /// foresees, and behind all others to the strip that has the label.
    fn goes_over_strips(&self, _tile: &Tile) -> bool {
        false
    }

    /// Whether its threads widen rows that they hold again for each stage. The accumulator has a format.
    fn renews_rows(&self, _tile: &Tile, _program: &Program, _dtype: DType) -> bool {
        false
    }

    /// Whether its threads keep sums over M in shared memory from row to row. The accumulator has a format.
    fn keeps_sums(&self, _tile: &Tile, _program: &Program, _dtype: DType) -> bool {
        false
    }

    /// Bytes in which the warps that share a row leave the states of a stage, if one barrier combines all of them.
    fn place_of_states(&self) -> Option<usize> {
        None
    }

    /// How often a kernel with so many stages of reductions along rows reads its matrices, in words.
    fn reads_of_rows(&self, _tile: &Tile, _stages: usize) -> String {
        "held in registers, so that memory is read once".into()
    }
}

/// The first rule that does not hold.
pub(in crate::plan) fn first_broken(rules: &[(bool, &'static str)]) -> Option<&'static str> {
    rules.iter().find(|(holds, _)| !holds).map(|(_, rule)| *rule)
}

/// The rule of tiles whose extents are powers of two, if it is broken.
pub(in crate::plan) fn broken_powers(tile: &Tile, strip: usize) -> Option<&'static str> {
    let Tile { bm, bn, threads, .. } = *tile;
    (bn < 8 || strip > bn || !bn.is_multiple_of(strip) || ![bm, bn, threads].iter().all(|x| x.is_power_of_two()))
        .then_some("extents and threads are powers of two, strips divide the columns, and eight columns share a byte of a mask")
}

/// The visits of a thread to so many rows of a tile, if threads visit whole rows.
pub(in crate::plan) fn visits(tile: &Tile, strip: usize, rows: usize) -> usize {
    (rows * (tile.bn / strip) / tile.threads.max(1)).max(1)
}

/// Whether the threads of a block visit so many rows in whole rows.
pub(in crate::plan) fn visits_whole_rows(tile: &Tile, strip: usize, rows: usize) -> bool {
    let (strips, threads) = (tile.bn / strip, tile.threads);
    threads.is_multiple_of(strips) && rows > 0 && rows.is_multiple_of(threads / strips)
}
