//! The L2 cache under a large product: what is kept there, and whether blocks read the same data at the same time.
//!
//! Tiles that are computed at the same time share operands. Each operand is read from memory once if it stays in the
//! cache from one use to the next, and if blocks go through K together. Memory that is read twice costs power, and
//! above some 2048^3 power limits a product's speed (`docs/measurements/0016-l2-reuse.md`).

use crate::plan::epilogue::bytes;
use crate::plan::mainloop::sm90a::cost;
use crate::plan::mainloop::sm90a::few_rows::{ROWS, TERMS};
use crate::plan::request::TileRequest;
use crate::plan::{CHUNK_ROWS, KernelPlan, Program, Schedule, Staging, TileShape};
use crate::problem::Shape;

/// Bytes of the L2 cache of an H100 and an H200.
const CACHE: usize = 50 << 20;

/// Bytes of the L2 cache that a group's rows of A may take. On an H200, data that is fetched twice costs power, and so
/// clock speed: groups of half or twice as many rows were 1 to 4 % slower in long slices
/// (`docs/measurements/0007-raster-groups.md`).
const GROUP_BYTES: usize = 16 << 20;
/// The fewest and the most rows. At K = 1024, twice the most rows are 0.3 to 0.6 % slower.
const GROUP_ROWS: (usize, usize) = (2048, 4096);

/// Elements of a typical tile of a large product.
const TILE: usize = 128 * 192;
/// The fewest tiles of a block from which blocks drift apart. With 16 to 21 tiles, lockstep did not change the bytes
/// read from memory.
const ROUNDS: usize = 24;

/// Rows of D that are stored together where K is short: columns, if D lies column by column. Blocks that run at once then write
/// whole lines of it, and memory takes them faster (`docs/measurements/0098-blocks-and-stores.md`).
const STORED_ROWS: usize = 512;

/// The group of tiles, or clusters, of so many rows and columns: rows of tiles, or columns if it is negative.
pub(super) fn group([rows_of_tile, columns_of_tile]: [usize; 2], request: &TileRequest<'_>) -> i32 {
    let TileRequest { operation, program, shape, .. } = *request;
    let equal = |extent: usize, of_tile: usize, most: usize| {
        // Make the groups equal: a small group at the end would fetch B for few rows.
        let tiles = extent.div_ceil(of_tile).max(1);
        let groups = tiles.div_ceil((most / of_tile).max(1));
        tiles.div_ceil(groups) as i32
    };
    match (cost::is_short(operation, shape), bytes::lie_in_columns(program)) {
        (true, true) => -equal(shape.n, columns_of_tile, STORED_ROWS),
        (true, false) => equal(shape.m, rows_of_tile, STORED_ROWS),
        _ => {
            let row = (shape.k * operation.multiplied().size()).max(1);
            equal(shape.m, rows_of_tile, (GROUP_BYTES / row).clamp(GROUP_ROWS.0, GROUP_ROWS.1))
        }
    }
}

/// Whether blocks drift apart, so that lockstep pays. They do if their reads during one tile exceed the cache, so that
/// a late block no longer finds what the others have read, and if there are enough tiles to fall behind. At 65536 x
/// 8192 x 16384 drifting blocks read 53 to 68 GB from memory, and blocks in lockstep 20 GB.
pub(in crate::plan) fn drifts(shape: Shape, size: usize, multiprocessors: usize) -> bool {
    let together = multiprocessors.saturating_mul(TILE);
    let lines = 2 * together.isqrt();
    let entry = shape.m.saturating_mul(shape.n);
    // Blocks at different batch entries share no data.
    entry >= together
        && lines.saturating_mul(shape.k).saturating_mul(size) > CACHE
        && entry.saturating_mul(shape.batch) / together.max(1) >= ROUNDS
}

/// Whether the epilogue's matrices exceed the cache, so that no later access finds them there.
pub(in crate::plan) fn outgrow(program: &Program, shape: Shape) -> bool {
    bytes::of_matrices(program, shape) > CACHE
}

/// The eviction priority of the lines that an access brings into the L2 cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Priority {
    /// Least recently used first: the default.
    Normal,
    /// Before lines of any other priority: `evict_first`.
    EvictFirst,
}

impl Priority {
    /// The cache policy of an access. `EvictFirst` is that of `createpolicy.fractional.L2::evict_first`, which a test
    /// on the GPU compares. `Normal` is the policy without a request, as CUTLASS passes it. `L2::evict_normal` is a
    /// different policy, and with it products took up to 18 % longer (`docs/measurements/0016-l2-reuse.md`).
    pub const fn policy(self) -> u64 {
        match self {
            Priority::Normal => 0x1000_0000_0000_0000,
            Priority::EvictFirst => 0x12f0_0000_0000_0000,
        }
    }

    const fn first_if(condition: bool) -> Priority {
        if condition { Priority::EvictFirst } else { Priority::Normal }
    }
}

/// The cache priorities of launches on one shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Priorities {
    /// The priorities of A and B, as the kernel sees them.
    pub operands: [Priority; 2],
    /// The priority of the epilogue's matrices.
    pub matrices: Priority,
    /// The operand that is the weights of few rows, if it takes half of the cache or more.
    pub weights: Option<usize>,
}

impl Priorities {
    /// Whether lines that a tensor map's boxes touch are fetched in pairs, the second line for the neighbouring box.
    /// Matrices that are evict-first do not keep that line until the box's turn: a residual at 8192 x 8192 x 1024 read
    /// 237 MB from memory in pairs, and 205 MB line by line. Pairs do not speed up the weights of few rows either: line
    /// by line 48 x 3584 x 18944 takes 2 to 3.5 % less time (`docs/measurements/0044-few-rows.md`).
    #[cfg(feature = "cuda")]
    pub(crate) fn fetches_pairs(&self, source: crate::plan::MapSource) -> bool {
        match source {
            crate::plan::MapSource::Operand(operand) => self.weights != Some(operand),
            crate::plan::MapSource::Patches | crate::plan::MapSource::Filters => true,
            crate::plan::MapSource::Argument(_) | crate::plan::MapSource::Remainders(_) => self.matrices == Priority::Normal,
        }
    }
}

impl KernelPlan {
    /// Whether a Hopper consumer goes through the chunks of a tile row by row instead of column by column. It does if
    /// the epilogue reads matrices that exceed the cache, and a row is two chunks: silu times a matrix at 4096^3 then
    /// costs 0.5 to 1.0 % instead of 1.5. With three chunks it costs more (`docs/measurements/0018-l2-promotion.md`).
    pub fn chunks_by_rows(&self) -> bool {
        let in_turns = matches!(self.tile.shape, TileShape::Sm90a { schedule: Schedule::PingPong, .. });
        let is_pair = |s: &Staging| !s.loads.is_empty() && s.rows == 2 * CHUNK_ROWS && self.tile.bn == 2 * s.chunk;
        // Sums over M are taken down the columns. A split epilogue covers half of the columns.
        let by_columns = !self.program.reductions.is_empty() || self.program.splits_epilogue(self.fast_math);
        in_turns && self.outgrows_cache && !by_columns && self.staging.as_ref().is_some_and(is_pair)
    }

    /// The weights of few rows, if they take half of the cache or more, and whether tiles read them once and go first. Behind a
    /// short K the results take as much of the cache, and the operand is faster without a priority
    /// (`docs/measurements/0100-boxes-of-strided-rows.md`).
    fn weights(&self, Shape { m, n, k, .. }: Shape) -> Option<(usize, bool)> {
        let TileShape::Sm90a { cluster: [along_m, along_n], .. } = self.tile.shape else { return None };
        if self.operation.patches().is_some() {
            return None;
        }
        let (operand, longer, rows, of_tile) =
            if m > n { (0, m, n, self.tile.bn * along_n) } else { (1, n, m, self.tile.bm * along_m) };
        let bytes = longer.saturating_mul(k).saturating_mul(self.operation.multiplied().size());
        (rows <= ROWS && bytes >= CACHE / 2).then_some((operand, rows <= of_tile && k >= TERMS))
    }

    /// The cache priorities of launches on a shape. The epilogue's matrices are evict-first if they exceed the cache.
    /// So is the operand that streams past a group of tiles, if the group's own lines would stay otherwise. If K is
    /// short, D takes more of the cache than that operand does; if K is long, not even the group's own lines fit; and one row of
    /// tiles reads the operand once. For a batch the rule considers one entry, because the next entry may read the same operand
    /// again.
    pub fn priorities(&self, shape: Shape) -> Priorities {
        let seen = self.seen(shape);
        let Shape { m, n, k, .. } = seen;
        let size = self.operation.multiplied().size();
        let matrices = bytes::of_matrices(&self.program, Shape { batch: 1, ..seen });
        let mut operands = [Priority::Normal; 2];
        if let TileShape::Sm90a { cluster: [along_m, along_n], .. } = self.tile.shape {
            let (passing, line, extent) =
                if self.raster > 0 { (1, self.tile.bm * along_m, m) } else { (0, self.tile.bn * along_n, n) };
            let lines = line.saturating_mul(self.raster.unsigned_abs() as usize).min(extent);
            let all = (m.saturating_add(n)).saturating_mul(k).saturating_mul(size).saturating_add(matrices);
            let stays = lines.saturating_mul(k).saturating_mul(size) <= GROUP_BYTES;
            // The pixels of a convolution are read again for the taps beside, and its filters by all tiles.
            let once = self.operation.patches().is_none();
            operands[passing] = Priority::first_if(once && all > CACHE && stays && k > lines && extent > line);
        }
        let weights = self.weights(seen);
        if let Some((operand, true)) = weights {
            operands[operand] = Priority::EvictFirst;
        }
        Priorities {
            operands,
            weights: weights.map(|(operand, _)| operand),
            matrices: Priority::first_if(outgrow(&self.program, seen)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Epilogue;
    use crate::build::recipes;
    use crate::dtype::DType::{F16, F32};
    use crate::gemm::Gemm;
    use crate::ir::{Monoid, axes::N};
    use crate::problem::Layout::TN;
    use crate::target::Target;

    fn plan(shape: Shape) -> KernelPlan {
        Gemm::new(F16, TN, &recipes::identity(F16).unwrap()).kernel_plan(Target::SM_90A, 132, shape).unwrap()
    }

    #[test]
    fn whose_chunks_go_row_by_row() {
        let of = |epilogue: &Epilogue, shape| {
            let plan = Gemm::new(F16, TN, epilogue).kernel_plan(Target::SM_90A, 132, shape).unwrap();
            assert_eq!(plan.explain().contains("row by row"), plan.chunks_by_rows());
            (plan.tile.bn, plan.chunks_by_rows())
        };
        let residual = recipes::residual(F16, F16, |z| z).unwrap();
        let summed = Epilogue::build(|e| {
            let z = e.acc() + e.load("c", F16);
            e.reduce("sum", z, Monoid::Sum, F32.over(N));
            e.store("d", z, F16);
        });
        assert_eq!(of(&residual, Shape::new(4096, 4096, 4096)), (128, true));
        assert_eq!(of(&residual, Shape::new(2048, 2048, 2048)), (128, false), "the matrices fit");
        let in_place = Epilogue::build(|e| e.store("d", e.acc() + e.load("d", F16), F16)).unwrap();
        assert_eq!(of(&in_place, Shape::new(4096, 4096, 4096)), (128, false), "one matrix, which fits");
        assert_eq!(of(&in_place, Shape::new(8192, 4096, 4096)), (128, true), "one matrix, which does not");
        assert_eq!(of(&residual, Shape::new(8192, 8192, 8192)), (192, false), "three chunks beside each other");
        assert!(!of(&recipes::identity(F16).unwrap(), Shape::new(8192, 8192, 2048)).1, "nothing is read");
        assert!(!of(&summed.unwrap(), Shape::new(4096, 4096, 4096)).1, "sums over M go down the columns");
    }

    #[test]
    fn who_stores_together() {
        let groups = |shape: Shape, transposed: bool| {
            let gemm = Gemm::new(F16, TN, &recipes::identity(F16).unwrap()).transposed(transposed);
            let plan = gemm.kernel_plan(Target::SM_90A, 132, shape).unwrap();
            let [rows, columns] = plan.tile.rules().rastered(&plan.tile);
            (plan.raster, if transposed { columns } else { rows })
        };
        for transposed in [false, true] {
            let (group, of_tile) = groups(Shape::new(8192, 8192, 64), transposed);
            let lines = of_tile * group.unsigned_abs() as usize;
            assert!(lines <= 512 && (group < 0) == transposed, "{lines} lines of D in groups of {group}");
        }
        assert!(groups(Shape::new(8192, 8192, 512), true).0 > 0, "a longer K");
    }

    #[test]
    fn what_passes_by() {
        use Priority::{EvictFirst, Normal};
        let of = |m, n, k| {
            let shape = Shape::new(m, n, k);
            let Priorities { operands, matrices, .. } = plan(shape).priorities(shape);
            (operands, matrices)
        };
        assert_eq!(of(2048, 2048, 2048), ([Normal; 2], Normal), "everything fits");
        assert_eq!(of(4096, 14336, 4096), ([Normal, EvictFirst], EvictFirst));
        assert_eq!(of(8192, 8192, 8192), ([Normal; 2], EvictFirst), "a group's rows do not fit");
        assert_eq!(of(8192, 8192, 1024), ([Normal; 2], EvictFirst), "D is most of what comes by");
        assert_eq!(of(4096, 4096, 4096), ([Normal, EvictFirst], Normal), "D fits");
        let shape = Shape::new(4096, 14336, 4096);
        let columns = KernelPlan { raster: -8, ..plan(shape) };
        assert_eq!(columns.priorities(shape).operands, [EvictFirst, Normal], "groups of columns pass A by");
        #[cfg(feature = "cuda")]
        for (shape, pairs) in [(Shape::new(4096, 4096, 4096), true), (shape, false)] {
            use crate::plan::MapSource::{Argument, Operand};
            let priorities = plan(shape).priorities(shape);
            let fetched = [Operand(0), Operand(1), Argument(0)].map(|source| priorities.fetches_pairs(source));
            assert_eq!(fetched, [true, true, pairs], "{shape}: the operand that goes first comes back a block of K later");
        }
        let weights = |m, n, k| {
            let shape = Shape::new(m, n, k);
            let plan = plan(shape);
            let Priorities { operands, weights, .. } = plan.priorities(shape);
            // The weights are the second operand, and the first of the transposed problem.
            weights.map(|operand| (operand == usize::from(!plan.transposed), operands[operand], operands[1 - operand]))
        };
        assert_eq!(weights(48, 18944, 3584), Some((true, EvictFirst, Normal)), "weights that are read once");
        assert_eq!(weights(48, 4096, 14336), Some((true, EvictFirst, Normal)));
        assert_eq!(weights(48, 1024, 4096), None, "the next launch finds them in the cache");
        assert_eq!(weights(2048, 2048, 16384), None, "many tiles read both operands");
        for (m, n, k) in [(802_816, 64, 256), (802_816, 128, 128)] {
            assert_eq!(of(m, n, k), ([Normal; 2], EvictFirst), "a short K: one row of tiles");
        }
        let batch = Shape::new(1024, 1024, 4096).batched(32);
        assert_eq!(plan(batch).priorities(batch).matrices, EvictFirst, "all entries count");
        let shared = Shape::new(512, 2048, 4096).batched(64);
        assert_eq!(plan(shared).priorities(shared).operands, [Normal; 2], "the next entry may come back to B");
        let large = Shape::new(4096, 14336, 4096).batched(2);
        assert_eq!(plan(large).priorities(large).operands, [Normal, EvictFirst], "an entry is larger than the cache");
    }

    #[test]
    fn who_drifts() {
        let of = |m, n, k| drifts(Shape::new(m, n, k), 2, 132);
        assert!(of(65536, 8192, 16384) && of(8192, 28672, 8192));
        assert!(!of(8192, 8192, 8192), "few tiles");
        assert!(!of(65536, 65536, 4096), "a tile's share of K stays in the cache");
        assert!(!drifts(Shape::new(512, 512, 16384).batched(500), 2, 132), "several entries at a time");
        assert!(drifts(Shape::new(8192, 8192, 16384).batched(2), 2, 132), "the second entry's blocks drift on");
        assert!(!drifts(Shape::new(1, 1, 1), 2, 0) && drifts(Shape::new(usize::MAX, usize::MAX, usize::MAX), 2, 132));
        let told = [(8192, 8192), (65536, 16384)].map(|(m, k)| plan(Shape::new(m, 8192, k)).explain().contains("lockstep"));
        assert_eq!(told, [false, true]);
    }
}
