//! Candidate tiles with measured times: those of all mainloops except Hopper's, each list in the room of its mainloop.

use super::rules::Tried;
use super::tile::Tile;
use crate::plan::request::TileRequest;
use crate::problem::Shape;
use crate::target::Gpu;

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

pub(super) const fn candidate(tile: Tile, alone: f64, full: f64, overhead: f64) -> Candidate {
    Candidate { tile, alone, full, overhead, alignment: (1, 16), rows: usize::MAX }
}

impl Candidate {
    pub(super) const fn aligned(self, least: usize, most: usize) -> Candidate {
        Candidate { alignment: (least, most), ..self }
    }

    pub(super) const fn up_to_rows(self, rows: usize) -> Candidate {
        Candidate { rows, ..self }
    }

    /// What becomes of it for a problem.
    fn tried(&self, request: &TileRequest<'_>) -> Tried {
        Tried { tile: self.tile, obstacle: self.unsuitable(request), time: Some(self.estimate(request)) }
    }

    /// Why a candidate is not meant for a problem.
    fn unsuitable(&self, request: &TileRequest<'_>) -> Option<String> {
        let least = request.alignment[0].min(request.alignment[1]);
        let (from, to) = self.alignment;
        if !(from..=to).contains(&least) {
            Some(format!("for operands aligned to {from} to {to} bytes, not {least}"))
        } else {
            (request.shape.m > self.rows).then(|| format!("for at most {} rows", self.rows))
        }
    }

    /// Relative time: full rounds of as many tiles as are resident, then the remaining tiles, which take at least as long
    /// as one tile alone.
    fn estimate(&self, request: &TileRequest<'_>) -> f64 {
        // A tile multiplies the channels of all groups that its columns are filters of.
        let groups = match request.operation.patches() {
            Some(patches) if self.tile.spans_groups(request.operation) => {
                self.tile.bn.div_ceil(patches.lines_of_group().max(1)) as f64
            }
            _ => 1.0,
        };
        self.time(request.shape, groups * request.shape.k as f64, request.gpu)
    }

    /// The same for a shape whose tiles multiply so many elements of K.
    pub(super) fn time(&self, shape: Shape, terms: f64, gpu: Gpu) -> f64 {
        let resident = self.tile.min_blocks as u64;
        let blocks = self.tile.count(shape).saturating_mul(self.tile.cluster() as u64);
        let on_one = blocks.div_ceil(gpu.multiprocessors as u64);
        let (rounds, left) = (on_one / resident, on_one % resident);
        let rest = if left > 0 { self.alone.max(left as f64 * self.full) } else { 0.0 };
        ((rounds * resident) as f64 * self.full + rest) * (terms + self.overhead)
    }
}

/// What becomes of a list of candidates for a problem.
pub(super) fn tried(candidates: &[Candidate], request: &TileRequest<'_>) -> Vec<Tried> {
    candidates.iter().map(|candidate| candidate.tried(request)).collect()
}
