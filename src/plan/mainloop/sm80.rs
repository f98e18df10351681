//! `sm80`: tensor cores through `mma.sync`, fed by `cp.async` (`templates/mainloop/sm80.cuh`).

use super::candidates::{self, Candidate, candidate};
use super::rules::{Asked, Number, Rules, Tried, broken_powers, first_broken};
use super::scaled;
use super::tile::{Tile, TileShape};
use crate::dtype::DType;
use crate::ir::Order;
use crate::plan::Phase;
use crate::plan::code::{Copied, Copies, Price, Priced};
use crate::plan::epilogue::reduce::Unit;
use crate::plan::request::TileRequest;
use crate::problem::{Layout, Operation};

/// Its rules.
pub(super) struct Sm80;

impl Tile {
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

    /// Bytes of shared memory for so many, which the slabs of the epilogue overlay, and rows of a warp's slab: its whole
    /// part if there is room, otherwise a power-of-two fraction.
    pub(super) fn with_slabs(&self, room: usize, [warps_m, warps_n]: [usize; 2]) -> [usize; 2] {
        let (warp_m, warp_n, warps) = (self.bm / warps_m, self.bn / warps_n, warps_m * warps_n);
        let bytes = |rows: usize| warps * rows * (warp_n + 8) * 4;
        let mut rows = warp_m;
        while rows % 32 == 0 && bytes(rows) > room {
            rows /= 2;
        }
        [room.max(bytes(rows)), rows]
    }
}

impl Copied<'_> {
    /// Copies of the code of strips that go through slabs of so many rows. Matrices are fetched four visits ahead.
    pub(super) fn by_slabs(&self, [warps_m, warps_n]: [usize; 2], rows: usize) -> Copies {
        let (Tile { bm, bn, .. }, strip) = (*self.tile, self.strip);
        let strips = (bn / warps_n.max(1) / strip).max(1);
        let (lanes, fetches) = (strips.min(32), self.program.loads_of(Phase::Visit).next().is_some());
        let visits = rows.min(bm / warps_m.max(1)) * lanes / 32;
        let (visits, groups) = (visits.clamp(1, if fetches { 4 } else { 2 }), strips / lanes);
        Copies { visit: strip * visits * groups, column: strip * groups, row: visits, again: 1, limited: true }
    }
}

/// K elements of a stage, stages, and warps along M and N.
const fn own(tile: &Tile) -> [usize; 4] {
    if let TileShape::Sm80 { bk, stages, warps_m, warps_n } = tile.shape { [bk, stages, warps_m, warps_n] } else { [1; 4] }
}

/// A candidate. Resident blocks share the tensor cores, so a tile takes the same share whether it is alone or not.
const fn measured(tile: Tile, time: f64, overhead: f64) -> Candidate {
    candidate(tile, time, time, overhead)
}

/// A candidate with the same bytes of K in a stage, for elements of one byte.
const fn of_eight_bits(candidate: &Candidate) -> Candidate {
    let Candidate { tile, alone, full, overhead, alignment, rows } = *candidate;
    let [bk, stages, warps_m, warps_n] = own(&tile);
    let tile = Tile { shape: TileShape::Sm80 { bk: bk * 2, stages, warps_m, warps_n }, ..tile };
    Candidate { tile, alone, full, overhead, alignment, rows }
}

impl Rules for Sm80 {
    fn why_not(&self, asked: &Asked<'_>) -> Option<String> {
        let Asked { operation, target, preferences, .. } = *asked;
        let Some(layout) = operation.layout() else { return Some("the operation has no product".into()) };
        if let Some(why) = scaled::odd_blocks(operation) {
            return Some(why);
        }
        match operation.multiplied() {
            _ if !target.has_cp_async_and_mma16() => Some(format!("{target} has no cp.async and mma.sync.m16n8k16")),
            DType::F16 | DType::BF16 => None,
            dtype if dtype.is_eight_bits() && layout != Layout::TN => {
                Some(format!("operands of eight bits are multiplied with K contiguous, which is TN, and these are {layout}"))
            }
            DType::E4M3 | DType::E5M2 | DType::I8 | DType::U8 => None,
            DType::F32 if preferences.tf32 => None,
            DType::F32 => Some("f32 operands keep full precision unless tf32 is asked for".into()),
            other => Some(format!("operands of {other} have no tensor-core form here")),
        }
    }

    fn candidates(&self, request: &TileRequest<'_>) -> Vec<Tried> {
        let list: &[Candidate] = match request.operation.dtype() {
            DType::F32 => &SM80_TF32,
            dtype if dtype.is_eight_bits() => &SM80_EIGHT_BITS,
            _ => &SM80,
        };
        candidates::tried(list, request)
    }

    /// 4096^3 and 8192^3 take 322 and 2527 us in f16 (`docs/measurements/0001-mma-sync-against-cublaslt.md`).
    fn nanoseconds(&self, dtype: DType) -> Option<f64> {
        matches!(dtype, DType::F16 | DType::BF16).then_some(0.27)
    }

    fn broken_rule(&self, tile: &Tile, operation: Operation, alignment: [usize; 2], strip: usize) -> Option<&'static str> {
        let (Tile { bm, bn, threads, .. }, [bk, stages, warps_m, warps_n]) = (*tile, own(tile));
        if let Some(rule) = broken_powers(tile, strip) {
            return Some(rule);
        }
        let (dtype, Some(layout)) = (operation.dtype(), operation.layout()) else { return Some("it multiplies") };
        let k_major = [layout.a() == Order::RowMajor, layout.b() == Order::ColumnMajor];
        let steps = bk * dtype.size() / 32;
        if dtype.is_eight_bits() && layout != Layout::TN {
            return Some("operands of eight bits lie with K contiguous");
        }
        if operation.is_scaled() && !bk.is_multiple_of(128) {
            return Some("a stage has whole pieces of 128 elements of K, which are scaled");
        }
        let operands = [(bm, k_major[0], alignment[0]), (bn, k_major[1], alignment[1])];
        first_broken(&[
            (threads == 32 * warps_m * warps_n, "its warps are those of the block"),
            (bm.is_multiple_of(16 * warps_m), "a warp's rows are whole fragments"),
            ([32, 64, 128].contains(&(bn / warps_n)), "a warp's columns are 32, 64 or 128"),
            (steps >= 2 && steps.is_multiple_of(2) && stages >= 2, "both double buffers have something to alternate"),
            (
                operands.iter().all(|&(extent, k_major, align)| copies_evenly(extent, bk, k_major, align, dtype, threads)),
                "copies cover a stage evenly",
            ),
        ])
    }

    fn numbers(&self, tile: &Tile) -> Vec<usize> {
        [&[tile.bn][..], &own(tile)].concat()
    }

    fn constants(&self, tile: &Tile, _: bool) -> Vec<Number> {
        let [bk, stages, warps_m, warps_n] = own(tile);
        vec![("BK", bk), ("STAGES", stages), ("WARPS_M", warps_m), ("WARPS_N", warps_n)]
    }

    fn words(&self, tile: &Tile) -> String {
        let [bk, stages, warps_m, warps_n] = own(tile);
        format!("x{bk}, {stages} stages, {warps_m}x{warps_n} warps")
    }

    fn copies(&self, of: &Copied<'_>) -> Copies {
        let [.., warps_m, warps_n] = own(of.tile);
        of.by_slabs([warps_m, warps_n], self.memory(of.tile, of.operation.dtype())[1])
    }

    fn price(&self, of: &Priced<'_>) -> Price {
        let ([bk, _, warps_m, warps_n], Tile { bm, bn, threads, .. }) = (own(of.copied.tile), *of.copied.tile);
        let (warp_m, warp_n, size) = (bm / warps_m.max(1), bn / warps_n.max(1), of.copied.operation.dtype().size());
        // Words of operands that become f16 on the way.
        let words = if of.copied.operation.multiplied().is_float8() { (warp_m + warp_n) * bk / 128 } else { 0 };
        let word = if of.target.has_float8() { 0.0 } else { 4.94 };
        // Copies of less than 16 bytes.
        let copies = |extent: usize, bytes: usize| if bytes < 16 { extent * bk * size / (threads * bytes).max(1) } else { 0 };
        let copies = (copies(bm, of.alignment[0]) + copies(bn, of.alignment[1])) as f64;
        let staged = of.images([14.0; 3]) * copies + of.images([58.1, 251.0, 142.0]);
        // Rows that are found by their remainders.
        let each = if of.residues { 15.0 } else { 4.27 };
        let kernel = 180.0 + each * (warp_m * warp_n / 32) as f64 + word * words as f64 + staged;
        Price { kernel, thousand: 226.0, load: 135.0, store: 62.4, reduction: 177.0, sum: 210.0 }
    }

    fn memory(&self, tile: &Tile, dtype: DType) -> [usize; 2] {
        let [bk, stages, warps_m, warps_n] = own(tile);
        tile.with_slabs(stages * (tile.bm + tile.bn) * bk * dtype.size(), [warps_m, warps_n])
    }

    /// Accumulators, twice if they are scaled, two sets of fragments, and addresses.
    fn registers(&self, tile: &Tile, operation: Operation, _: usize) -> usize {
        let sets = if operation.is_scaled() { 2 } else { 1 };
        sets * tile.bm * tile.bn / tile.threads + 64
    }

    fn unit(&self, tile: &Tile, strip: usize) -> Unit {
        let [.., warps_n] = own(tile);
        Unit::of_warps(tile, warps_n, strip)
    }

    fn widens_copies(&self) -> bool {
        true
    }

    fn note(&self, operation: Operation) -> Option<&'static str> {
        let as_f16 = "multiplies    operands of eight floating-point bits as f16, which holds them: no faster than f16 is";
        operation.dtype().sums_coarsely().then_some(as_f16)
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

/// Tiles of the tensor-core mainloop for 16-bit operands. Those with fewer stages come later, and need less shared
/// memory.
static SM80: [Candidate; 14] = [
    measured(Tile::sm80(128, 256, 64, 4, [2, 4], 1), 67.0, 400.0).aligned(4, 16),
    measured(Tile::sm80(128, 256, 64, 3, [2, 4], 1), 67.1, 400.0).aligned(4, 16),
    measured(Tile::sm80(128, 128, 64, 3, [2, 2], 2), 41.0, 110.0).aligned(8, 16),
    measured(Tile::sm80(128, 128, 32, 5, [2, 2], 2), 43.0, 110.0).aligned(8, 16),
    measured(Tile::sm80(128, 128, 32, 3, [2, 2], 2), 45.0, 110.0),
    measured(Tile::sm80(128, 64, 64, 4, [2, 2], 2), 26.0, 100.0).aligned(8, 16),
    measured(Tile::sm80(128, 64, 64, 3, [2, 2], 2), 26.5, 100.0).aligned(8, 16),
    measured(Tile::sm80(64, 64, 64, 6, [2, 2], 2), 17.0, 100.0).aligned(4, 16),
    measured(Tile::sm80(64, 64, 64, 4, [2, 2], 2), 17.5, 100.0).aligned(4, 16),
    measured(Tile::sm80(64, 64, 64, 3, [2, 2], 2), 18.0, 100.0).aligned(4, 16),
    measured(Tile::sm80(64, 64, 32, 4, [2, 2], 2), 18.5, 100.0),
    measured(Tile::sm80(64, 32, 128, 6, [4, 1], 1), 14.0, 100.0).aligned(8, 16).up_to_rows(64),
    measured(Tile::sm80(16, 64, 128, 6, [1, 2], 1), 12.0, 100.0).aligned(8, 16).up_to_rows(32),
    measured(Tile::sm80(16, 64, 128, 4, [1, 2], 1), 12.5, 100.0).aligned(8, 16).up_to_rows(32),
];

/// The same for operands of eight bits, with twice as many K elements in a stage. The times are those of 16 bits, and
/// are not measured.
static SM80_EIGHT_BITS: [Candidate; 8] = [
    of_eight_bits(&SM80[0]),
    of_eight_bits(&SM80[1]),
    of_eight_bits(&SM80[2]),
    of_eight_bits(&SM80[5]),
    of_eight_bits(&SM80[7]),
    of_eight_bits(&SM80[8]),
    of_eight_bits(&SM80[11]),
    of_eight_bits(&SM80[12]),
];

/// Tiles of the tensor-core mainloop for `f32` operands as tf32.
static SM80_TF32: [Candidate; 6] = [
    measured(Tile::sm80(128, 128, 32, 3, [2, 2], 2), 100.0, 110.0).aligned(8, 16),
    measured(Tile::sm80(128, 128, 16, 5, [2, 2], 2), 101.0, 110.0).aligned(8, 16),
    measured(Tile::sm80(128, 128, 32, 3, [2, 4], 1), 110.0, 110.0),
    measured(Tile::sm80(128, 128, 16, 3, [2, 2], 2), 105.0, 110.0).aligned(8, 16),
    measured(Tile::sm80(64, 64, 32, 4, [2, 2], 2), 40.0, 100.0),
    measured(Tile::sm80(64, 64, 32, 3, [2, 2], 1), 42.0, 100.0),
];
