//! The candidate tiles of all mainloops except Hopper's, with their measured times.

use crate::plan::Tile;

/// A tile, its times, and the problems it is meant for. Times are measured on an H200, and are comparable only within a
/// list (`docs/measurements/0003-tiles-of-sm80-and-simt.md`).
pub(in crate::plan) struct Candidate {
    /// The tile.
    pub tile: Tile,
    /// Time for each K element, with the tile alone on a multiprocessor.
    pub alone: f64,
    /// Time for each tile and K element with as many tiles resident as fit.
    pub full: f64,
    /// The beginning and end of a tile, in K elements.
    pub overhead: f64,
    /// The least and the most alignment of both operands for which it is considered, in bytes.
    pub alignment: (usize, usize),
    /// The most rows of a problem that it is meant for.
    pub rows: usize,
}

const fn candidate(tile: Tile, alone: f64, full: f64, overhead: f64) -> Candidate {
    Candidate { tile, alone, full, overhead, alignment: (1, 16), rows: usize::MAX }
}

impl Candidate {
    const fn aligned(self, least: usize, most: usize) -> Candidate {
        Candidate { alignment: (least, most), ..self }
    }

    const fn up_to_rows(self, rows: usize) -> Candidate {
        Candidate { rows, ..self }
    }

    const fn of_eight_bits(&self) -> Candidate {
        let Candidate { tile, alone, full, overhead, alignment, rows } = *self;
        Candidate { tile: tile.of_elements(1), alone, full, overhead, alignment, rows }
    }

    /// A tensor-core tile. Resident blocks share the tensor cores, so a tile takes the same share whether it is alone
    /// or not.
    const fn sm80(tile: Tile, time: f64, overhead: f64) -> Candidate {
        candidate(tile, time, time, overhead)
    }
}

/// Tiles of the tensor-core mainloop for 16-bit operands. Those with fewer stages come later, and need less shared
/// memory.
pub(in crate::plan) static SM80: [Candidate; 14] = [
    Candidate::sm80(Tile::sm80(128, 256, 64, 4, [2, 4], 1), 67.0, 400.0).aligned(4, 16),
    Candidate::sm80(Tile::sm80(128, 256, 64, 3, [2, 4], 1), 67.1, 400.0).aligned(4, 16),
    Candidate::sm80(Tile::sm80(128, 128, 64, 3, [2, 2], 2), 41.0, 110.0).aligned(8, 16),
    Candidate::sm80(Tile::sm80(128, 128, 32, 5, [2, 2], 2), 43.0, 110.0).aligned(8, 16),
    Candidate::sm80(Tile::sm80(128, 128, 32, 3, [2, 2], 2), 45.0, 110.0),
    Candidate::sm80(Tile::sm80(128, 64, 64, 4, [2, 2], 2), 26.0, 100.0).aligned(8, 16),
    Candidate::sm80(Tile::sm80(128, 64, 64, 3, [2, 2], 2), 26.5, 100.0).aligned(8, 16),
    Candidate::sm80(Tile::sm80(64, 64, 64, 6, [2, 2], 2), 17.0, 100.0).aligned(4, 16),
    Candidate::sm80(Tile::sm80(64, 64, 64, 4, [2, 2], 2), 17.5, 100.0).aligned(4, 16),
    Candidate::sm80(Tile::sm80(64, 64, 64, 3, [2, 2], 2), 18.0, 100.0).aligned(4, 16),
    Candidate::sm80(Tile::sm80(64, 64, 32, 4, [2, 2], 2), 18.5, 100.0),
    Candidate::sm80(Tile::sm80(64, 32, 128, 6, [4, 1], 1), 14.0, 100.0).aligned(8, 16).up_to_rows(64),
    Candidate::sm80(Tile::sm80(16, 64, 128, 6, [1, 2], 1), 12.0, 100.0).aligned(8, 16).up_to_rows(32),
    Candidate::sm80(Tile::sm80(16, 64, 128, 4, [1, 2], 1), 12.5, 100.0).aligned(8, 16).up_to_rows(32),
];

/// The same for operands of eight bits, with twice as many K elements in a stage. The times are those of 16 bits, and
/// are not measured.
pub(in crate::plan) static SM80_EIGHT_BITS: [Candidate; 8] = [
    SM80[0].of_eight_bits(),
    SM80[1].of_eight_bits(),
    SM80[2].of_eight_bits(),
    SM80[5].of_eight_bits(),
    SM80[7].of_eight_bits(),
    SM80[8].of_eight_bits(),
    SM80[11].of_eight_bits(),
    SM80[12].of_eight_bits(),
];

/// Tiles of the tensor-core mainloop for `f32` operands as tf32.
pub(in crate::plan) static SM80_TF32: [Candidate; 6] = [
    Candidate::sm80(Tile::sm80(128, 128, 32, 3, [2, 2], 2), 100.0, 110.0).aligned(8, 16),
    Candidate::sm80(Tile::sm80(128, 128, 16, 5, [2, 2], 2), 101.0, 110.0).aligned(8, 16),
    Candidate::sm80(Tile::sm80(128, 128, 32, 3, [2, 4], 1), 110.0, 110.0),
    Candidate::sm80(Tile::sm80(128, 128, 16, 3, [2, 2], 2), 105.0, 110.0).aligned(8, 16),
    Candidate::sm80(Tile::sm80(64, 64, 32, 4, [2, 2], 2), 40.0, 100.0),
    Candidate::sm80(Tile::sm80(64, 64, 32, 3, [2, 2], 1), 42.0, 100.0),
];

pub(in crate::plan) static SIMT: [Candidate; 5] = [
    candidate(Tile::simt(128, 128, 8, 8, 16, 2), 126.0, 97.0, 16.0),
    candidate(Tile::simt(128, 64, 8, 8, 8, 3), 70.0, 51.0, 16.0),
    candidate(Tile::simt(64, 64, 16, 8, 4, 4), 41.0, 31.0, 16.0),
    candidate(Tile::simt(32, 64, 16, 4, 4, 4), 30.0, 20.0, 16.0),
    candidate(Tile::simt(32, 32, 16, 4, 4, 6), 19.0, 10.8, 16.0),
];

/// Tiles for `f64`, whose accumulators take two registers each. The times are derived from those of `f32` by the cost
/// of multiply-adds, and are not measured.
pub(in crate::plan) static SIMT_F64: [Candidate; 4] = [
    candidate(Tile::simt(128, 64, 8, 8, 8, 2), 140.0, 102.0, 16.0),
    candidate(Tile::simt(64, 64, 16, 8, 4, 3), 82.0, 62.0, 16.0),
    candidate(Tile::simt(32, 64, 16, 4, 4, 4), 60.0, 40.0, 16.0),
    candidate(Tile::simt(32, 32, 16, 4, 4, 6), 38.0, 21.6, 16.0),
];

/// Tiles for few rows, if B has K contiguous. The times are those of a block.
pub(in crate::plan) static GEMV_K: [Candidate; 3] = [
    candidate(Tile::gemv(1, 8, 256, 4, 1), 1.0, 1.0, 0.0).up_to_rows(1),
    candidate(Tile::gemv(2, 8, 256, 3, 1), 1.1, 1.1, 0.0).up_to_rows(2),
    candidate(Tile::gemv(4, 8, 256, 2, 1), 1.3, 1.3, 0.0),
];

/// The same with N contiguous. Blocks have to be wide, so clusters share K where there would be too few blocks.
pub(in crate::plan) static GEMV_N: [Candidate; 6] = [
    candidate(Tile::gemv(1, 64, 512, 2, 2), 10.4, 7.5, 0.0).up_to_rows(1),
    candidate(Tile::gemv(1, 32, 256, 4, 1), 11.2, 8.4, 0.0).up_to_rows(1),
    candidate(Tile::gemv(2, 64, 256, 3, 2), 11.0, 7.8, 0.0).up_to_rows(2),
    candidate(Tile::gemv(4, 32, 256, 2, 2), 6.0, 6.0, 0.0),
    candidate(Tile::gemv(4, 64, 256, 2, 1), 19.8, 15.3, 0.0),
    candidate(Tile::gemv(4, 32, 256, 2, 1), 20.0, 15.5, 0.0),
];

/// Tiles for few rows beside weights of fewer bits. The times are those of a block, and are not measured.
pub(in crate::plan) static GEMV_WIDENED: [Candidate; 7] = [
    candidate(Tile::gemv(8, 32, 256, 2, 1), 1.4, 1.0, 0.0).up_to_rows(8),
    candidate(Tile::gemv(8, 16, 256, 2, 1), 0.8, 0.55, 0.0).up_to_rows(8),
    candidate(Tile::gemv(8, 64, 512, 1, 1), 2.2, 2.2, 0.0).up_to_rows(8),
    candidate(Tile::gemv(16, 64, 256, 1, 1), 2.3, 2.3, 0.0),
    candidate(Tile::gemv(16, 32, 256, 2, 1), 1.6, 1.2, 0.0),
    candidate(Tile::gemv(16, 16, 256, 2, 1), 1.0, 0.7, 0.0),
    candidate(Tile::gemv(16, 32, 512, 1, 1), 1.3, 1.3, 0.0),
];

/// Tiles of pointwise operations. These are bound by memory, so a tile costs its area. Smaller tiles are for problems
/// that do not fill the device, and for single-column strips, which need a thread for every column.
pub(in crate::plan) static POINTWISE: [Candidate; 3] = [
    candidate(Tile::pointwise(16, 256, 128), 4.0, 4.0, 1.0),
    candidate(Tile::pointwise(8, 256, 128), 2.1, 2.1, 1.0),
    candidate(Tile::pointwise(16, 128, 128), 2.1, 2.1, 1.0),
];

/// The same for outputs of up to 64 columns, of which wider tiles would leave threads without work.
pub(in crate::plan) static NARROW: [Candidate; 4] = [
    candidate(Tile::pointwise(32, 64, 128), 2.1, 2.1, 1.0),
    candidate(Tile::pointwise(16, 64, 128), 1.1, 1.1, 1.0),
    candidate(Tile::pointwise(64, 32, 128), 2.1, 2.1, 1.0),
    candidate(Tile::pointwise(32, 32, 128), 1.1, 1.1, 1.0),
];

/// The same for sums of several matrices. A thread reads these one by one, so the tiles have more blocks with fewer
/// threads.
pub(in crate::plan) static SUMS: [Candidate; 4] = [
    candidate(Tile::pointwise(16, 256, 128), 4.0, 4.0, 1.0),
    candidate(Tile::pointwise(8, 256, 128), 2.0, 2.0, 1.0),
    candidate(Tile::pointwise(8, 128, 128), 1.1, 1.1, 1.0),
    candidate(Tile::pointwise(4, 128, 64), 0.6, 0.6, 1.0),
];
