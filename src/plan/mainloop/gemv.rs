//! `gemv`: few rows. B passes through registers once, in full precision (`templates/mainloop/gemv.cuh`).

use super::candidates::{self, Candidate, candidate};
use super::rules::{Asked, Number, Rules, Tried, broken_powers, first_broken};
use super::sm90a::few_rows::narrow_tiles_read_faster;
use super::sm90a::rules::Sm90a;
use super::sm90a::widened_tiles;
use super::tile::{Tile, TileShape};
use crate::dtype::DType;
use crate::ir::Order;
use crate::plan::code::{Price, Priced};
use crate::plan::request::TileRequest;
use crate::problem::{Layout, Operation, Shape};
use crate::target::Gpu;

/// Its rules.
pub(super) struct Gemv;

/// The most rows for which `gemv` is considered. Reading B bounds such a product, so tensor cores gain nothing.
const FEW: usize = 4;
/// The most rows if weights have fewer bits than activations.
const FEW_WIDENED: usize = 16;

impl Tile {
    pub(in crate::plan) const fn gemv(bm: usize, bn: usize, threads: usize, min_blocks: usize, cluster: usize) -> Tile {
        Tile { bm, bn, shape: TileShape::Gemv { cluster, stages: 0 }, threads, min_blocks }
    }

    /// For weights of fewer bits: with so many steps of them in shared memory, or on their way there.
    const fn ahead_by(self, stages: usize) -> Tile {
        Tile { shape: TileShape::Gemv { cluster: own(&self)[0], stages }, ..self }
    }
}

/// Blocks of a cluster, which share K, and steps of weights in shared memory.
const fn own(tile: &Tile) -> [usize; 2] {
    if let TileShape::Gemv { cluster, stages } = tile.shape { [cluster, stages] } else { [1, 0] }
}

/// Bytes of shared memory of Hopper's multiprocessors, and of those that the driver reserves in each block.
const MULTIPROCESSOR: usize = 228 << 10;
const RESERVED: usize = 1 << 10;
/// The most stages of weights.
const MOST_STAGES: usize = 16;

/// The most bytes of a step of a warp: 16 bytes of weights a lane from each line, and 64 bytes of each row.
const fn stage_bytes(tile: &Tile) -> usize {
    64 * tile.bn + 256 * tile.bm
}

/// Bytes of a column's scale and zero point, which a warp leaves behind its ring.
const NUMBERS: usize = 8;

impl Rules for Gemv {
    fn why_not(&self, asked: &Asked<'_>) -> Option<String> {
        let Asked { operation, shape, alignment, target, gpu, epilogue, forced, .. } = *asked;
        if !forced && operation.widened().is_none() && shape.m.min(shape.n) > FEW {
            return Some(format!("for at most {FEW} rows or columns"));
        }
        if let Some(weights) = operation.widened()
            && (if weights == 1 { shape.m } else { shape.n }) > FEW_WIDENED
        {
            return Some(format!("for at most {FEW_WIDENED} rows beside weights of fewer bits"));
        }
        let is_slower = || widened_tiles::reads_faster(asked, nanoseconds_beside_weights(operation, shape, gpu));
        if !forced && Sm90a.why_not(asked).is_none() && is_slower() {
            return Some("sm90a widens these weights in registers, and is estimated to read them faster".into());
        }
        if !forced && narrow_tiles_read_faster(operation, shape, alignment, target) {
            return Some("narrow tiles of sm90a read as fast, and multiply faster".into());
        }
        if epilogue.summed_operand().is_some() {
            return Some("it has no sums of operands".into());
        }
        let Some(layout) = operation.layout() else { return Some("the operation has no product".into()) };
        match operation.widened() {
            Some(_) if layout != Layout::TN => {
                return Some(format!("weights of fewer bits are read with K contiguous, which is TN, and these are {layout}"));
            }
            Some(_) if !target.has_cp_async_and_mma16() => return Some(format!("{target} has no mma.sync.m16n8k16")),
            None if operation.is_scaled() => return Some("it has no scales along K".into()),
            _ => {}
        }
        operation.patches().map(|_| "it reads matrices, and the operation is a convolution".into())
    }

    fn candidates(&self, request: &TileRequest<'_>) -> Vec<Tried> {
        // Whether K is the contiguous axis of B.
        let along_k = request.operation.layout().is_some_and(|layout| layout.b() == Order::ColumnMajor);
        let list: &[Candidate] = match request.operation.widened() {
            Some(weights) => of_weights(request.operation, weights),
            None if along_k => &GEMV_K,
            None => &GEMV_N,
        };
        candidates::tried(list, request)
    }

    fn broken_rule(&self, tile: &Tile, operation: Operation, _: [usize; 2], strip: usize) -> Option<&'static str> {
        let (Tile { bm, bn, threads, .. }, [cluster, stages]) = (*tile, own(tile));
        if let Some(rule) = broken_powers(tile, strip) {
            return Some(rule);
        }
        let strips = bn / strip;
        let (dtype, Some(layout)) = (operation.dtype(), operation.layout()) else { return Some("it multiplies") };
        if operation.widened().is_some() {
            return first_broken(&of_widened(tile, operation, bm * strips));
        }
        let vector = 16 / dtype.size();
        let columns = if layout.b() == Order::ColumnMajor { bn } else { vector };
        first_broken(&[
            ([1, 2, 4, 8].contains(&cluster), "a cluster has 1, 2, 4 or 8 blocks"),
            ((32..=1024).contains(&threads), "a block has 32 to 1024 threads"),
            (bn.is_multiple_of(columns) && bn / columns <= 32, "a warp covers the columns"),
            (columns <= 16 && bm * columns <= 64, "a thread holds at most 64 sums"),
            (bm * strips <= threads, "one strip a thread"),
            (stages == 0, "weights with as many bits as activations have no stages"),
        ])
    }

    fn numbers(&self, tile: &Tile) -> Vec<usize> {
        vec![tile.bn, own(tile)[0]]
    }

    fn constants(&self, tile: &Tile, _: bool) -> Vec<Number> {
        let [cluster, stages] = own(tile);
        let ring = (stages > 0).then_some(("STAGES", stages));
        [("CLUSTER", cluster)].into_iter().chain(ring).collect()
    }

    fn words(&self, tile: &Tile) -> String {
        let [cluster, stages] = own(tile);
        let stages = if stages > 0 { format!(", {stages} stages") } else { String::new() };
        let cluster = if cluster > 1 { format!(", cluster {cluster}") } else { String::new() };
        format!("{stages}, {} threads{cluster}", tile.threads)
    }

    /// Widened operands have a template of their own.
    fn price(&self, of: &Priced<'_>) -> Price {
        let (Tile { bm, bn, .. }, size) = (*of.copied.tile, of.copied.operation.dtype().size());
        let kernel = if of.copied.operation.widened().is_some() {
            // A warp has four matrices of weights at a time if there are 64 columns.
            let wide = match of.copied.operation.dtypes()[1].bits() {
                _ if bn < 64 => 0.0,
                4 => 1988.0,
                _ => 864.0,
            };
            71.5 * bm as f64 + wide
        } else {
            let [a_by_k, b_by_k] = of.copied.operation.k_contiguous();
            let vector = 16 / size.max(1);
            let [columns, terms] = if b_by_k { [bn, vector] } else { [vector, 8] };
            // Loads of less than a word.
            let pieces = |elements: usize, bytes: usize| if bytes.max(size) < 4 { elements * size / bytes.max(size) } else { 0 };
            let bytes_of_a = if a_by_k { of.alignment[0] } else { size };
            let loads = pieces(columns * terms, of.alignment[1]) + pieces(bm * terms, bytes_of_a);
            let widened = bm * columns * terms * (of.widening(0) + of.widening(1));
            let loads = if b_by_k { 0.044 * (loads * loads) as f64 } else { 1.25 * loads as f64 };
            loads + 4.75 * (bm * columns) as f64 + 0.105 * widened as f64
        };
        Price { kernel: 169.0 + kernel, thousand: 189.0, load: 20.4, store: 19.4, reduction: 126.0, sum: 0.0 }
    }

    /// A sum of every warp for each element, in the place of its ring, and the block's own sums if blocks add them up. Beside
    /// weights of fewer bits a multiprocessor has so many blocks and not more: those of the next kernel, which may begin early,
    /// would be shared out unevenly.
    fn memory(&self, tile: &Tile, dtype: DType) -> [usize; 2] {
        let ([cluster, stages], sums) = (own(tile), dtype.value_type().storage().size() * tile.bm * tile.bn);
        let ring = if stages > 0 { stages * stage_bytes(tile) + NUMBERS * tile.bn } else { 0 };
        let memory = tile.threads / 32 * sums.max(ring) + if cluster > 1 { sums } else { 0 };
        let one_more = MULTIPROCESSOR / (tile.min_blocks + 1) + 128 - RESERVED;
        [if stages > 0 { memory.max(one_more) } else { memory }, 0]
    }

    fn registers(&self, _: &Tile, _: Operation, _: usize) -> usize {
        40
    }

    /// A few bytes beside weights of fewer bits, where half as many blocks on a multiprocessor would cost much more.
    fn tolerated_spills(&self, tile: &Tile) -> u32 {
        if own(tile)[1] > 0 { 64 } else { 0 }
    }

    fn cluster(&self, tile: &Tile) -> usize {
        own(tile)[0]
    }

    fn shares_operands(&self) -> bool {
        false
    }

    /// The few rows of a GEMV are rows, and its weights are B, whatever its outputs are.
    fn prefers_transposed(&self, operation: Operation, shape: Shape) -> Option<bool> {
        match operation.widened() {
            Some(weights) => Some(weights == 0),
            None => (shape.m.min(shape.n) <= FEW).then_some(shape.m > shape.n),
        }
    }
}

/// The rules of `gemv` for weights of fewer bits. `strips` are those of a tile.
fn of_widened(tile: &Tile, operation: Operation, strips: usize) -> [(bool, &'static str); 6] {
    let (Tile { bm, bn, threads, .. }, [cluster, stages]) = (*tile, own(tile));
    let lies = operation.widened() == Some(1) && operation.layout() == Some(Layout::TN);
    [
        (lies, "the operand of fewer bits is B, with K contiguous in both"),
        (matches!(bm, 8 | 16) && matches!(bn, 16 | 32 | 64), "8 or 16 rows by 16, 32 or 64 columns"),
        ((1..=MOST_STAGES).contains(&stages), "weights have 1 to 16 stages"),
        ([1, 2, 4, 8].contains(&cluster), "a cluster has 1, 2, 4 or 8 blocks"),
        ((32..=1024).contains(&threads), "a block has 32 to 1024 threads"),
        (strips <= threads, "one strip a thread"),
    ]
}

/// Tiles for few rows, if B has K contiguous. The times are those of a block.
static GEMV_K: [Candidate; 3] = [
    candidate(Tile::gemv(1, 8, 256, 4, 1), 1.0, 1.0, 0.0).up_to_rows(1),
    candidate(Tile::gemv(2, 8, 256, 3, 1), 1.1, 1.1, 0.0).up_to_rows(2),
    candidate(Tile::gemv(4, 8, 256, 2, 1), 1.3, 1.3, 0.0),
];

/// The same with N contiguous. Blocks have to be wide, so clusters share K where there would be too few blocks.
static GEMV_N: [Candidate; 6] = [
    candidate(Tile::gemv(1, 64, 512, 2, 2), 10.4, 7.5, 0.0).up_to_rows(1),
    candidate(Tile::gemv(1, 32, 256, 4, 1), 11.2, 8.4, 0.0).up_to_rows(1),
    candidate(Tile::gemv(2, 64, 256, 3, 2), 11.0, 7.8, 0.0).up_to_rows(2),
    candidate(Tile::gemv(4, 32, 256, 2, 2), 6.0, 6.0, 0.0),
    candidate(Tile::gemv(4, 64, 256, 2, 1), 19.8, 15.3, 0.0),
    candidate(Tile::gemv(4, 32, 256, 2, 1), 20.0, 15.5, 0.0),
];

/// The factor for weights of eight bits that have scales.
const SCALED: f64 = 1.07;

/// The tiles beside weights of fewer bits: a lane has 16 bytes of a line in a step, or less if a group of four bits is short.
fn of_weights(operation: Operation, weights: usize) -> &'static [Candidate] {
    let whole = operation.scales()[weights].is_none_or(|blocks| blocks.terms.is_multiple_of(128));
    match operation.dtypes()[weights].is_four_bits() {
        true if whole => &GEMV_FOUR_BITS,
        true => &GEMV_SHORT_GROUPS,
        false if operation.is_scaled() => &GEMV_EIGHT_BITS[..GEMV_EIGHT_BITS.len() - 1],
        false => &GEMV_EIGHT_BITS,
    }
}

/// The estimated nanoseconds of the best tile beside weights of fewer bits.
fn nanoseconds_beside_weights(operation: Operation, shape: Shape, gpu: Gpu) -> f64 {
    let Some(weights) = operation.widened() else { return f64::INFINITY };
    let seen = if weights == 0 { shape.transposed() } else { shape };
    let suitable = of_weights(operation, weights).iter().filter(|candidate| seen.m <= candidate.rows);
    let eight_bits_scaled = operation.is_scaled() && !operation.dtypes()[weights].is_four_bits();
    let slower = if eight_bits_scaled { SCALED } else { 1.0 };
    suitable.map(|candidate| slower * candidate.time(seen, seen.k as f64, gpu)).fold(f64::INFINITY, f64::min)
}

/// Tiles for few rows beside weights of fewer bits. The times are nanoseconds of a block on an H200. One step on its way is
/// enough for four bits, since each tile of it is copied again as soon as it is read
/// (`docs/measurements/0096-bare-weights.md`).
static GEMV_FOUR_BITS: [Candidate; 8] = [
    candidate(Tile::gemv(8, 32, 256, 2, 1).ahead_by(1), 0.923, 0.527, 2350.0).up_to_rows(8),
    candidate(Tile::gemv(8, 32, 512, 1, 1).ahead_by(1), 0.568, 0.568, 4050.0).up_to_rows(8),
    candidate(Tile::gemv(8, 32, 128, 4, 1).ahead_by(1), 1.82, 0.546, 1070.0).up_to_rows(8),
    candidate(Tile::gemv(8, 16, 256, 2, 1).ahead_by(2), 0.9, 0.5, 3000.0).up_to_rows(8),
    candidate(Tile::gemv(16, 64, 256, 1, 1).ahead_by(1), 1.33, 1.33, 1800.0),
    candidate(Tile::gemv(16, 32, 256, 2, 1).ahead_by(1), 1.403, 0.751, 1960.0),
    candidate(Tile::gemv(16, 32, 512, 1, 1).ahead_by(1), 0.713, 0.713, 5580.0),
    candidate(Tile::gemv(16, 32, 128, 4, 1).ahead_by(1), 2.59, 0.79, 950.0),
];
/// The same beside eight bits. The last one is slower than others if there are scales.
static GEMV_EIGHT_BITS: [Candidate; 9] = [
    candidate(Tile::gemv(8, 32, 256, 2, 1).ahead_by(2), 1.35, 1.03, 900.0).up_to_rows(8),
    candidate(Tile::gemv(8, 32, 512, 1, 1).ahead_by(2), 0.99, 0.99, 2515.0).up_to_rows(8),
    candidate(Tile::gemv(8, 32, 128, 4, 1).ahead_by(2), 2.2, 0.95, 580.0).up_to_rows(8),
    candidate(Tile::gemv(8, 64, 512, 1, 1).ahead_by(1), 2.1, 2.1, 1000.0).up_to_rows(8),
    candidate(Tile::gemv(16, 64, 512, 1, 1).ahead_by(1), 2.3, 2.3, 1000.0),
    candidate(Tile::gemv(16, 32, 256, 2, 1).ahead_by(1), 1.73, 1.12, 1000.0),
    candidate(Tile::gemv(16, 32, 512, 1, 1).ahead_by(1), 1.07, 1.07, 2960.0),
    candidate(Tile::gemv(16, 32, 128, 4, 1).ahead_by(2), 2.8, 0.968, 600.0),
    candidate(Tile::gemv(16, 64, 256, 1, 1).ahead_by(2), 2.28, 2.28, 185.0),
];
/// The same beside four bits in groups of less than 128.
static GEMV_SHORT_GROUPS: [Candidate; 8] = [
    candidate(Tile::gemv(8, 64, 512, 1, 1).ahead_by(1), 1.7, 1.7, 1400.0).up_to_rows(8),
    candidate(Tile::gemv(8, 32, 256, 2, 1).ahead_by(2), 1.9, 1.0, 1000.0).up_to_rows(8),
    candidate(Tile::gemv(8, 32, 512, 1, 1).ahead_by(2), 1.15, 1.15, 1000.0).up_to_rows(8),
    candidate(Tile::gemv(8, 32, 128, 4, 1).ahead_by(2), 2.2, 0.9, 600.0).up_to_rows(8),
    candidate(Tile::gemv(16, 64, 512, 1, 1).ahead_by(1), 2.2, 2.2, 1100.0),
    candidate(Tile::gemv(16, 32, 256, 2, 1).ahead_by(1), 2.0, 1.04, 1000.0),
    candidate(Tile::gemv(16, 32, 512, 1, 1).ahead_by(1), 1.25, 1.25, 1000.0),
    candidate(Tile::gemv(16, 32, 128, 4, 1).ahead_by(2), 2.8, 1.05, 600.0),
];
