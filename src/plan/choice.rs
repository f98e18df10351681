//! The choice of mainloop, tile and rasterisation, with a reason for everything that was not chosen.
//!
//! The mainloop follows from formats and target. Among its tiles the choice minimises estimated time: how many tiles a
//! multiprocessor gets, times what one takes, alone or among as many as are resident. Those times are measured.

use super::{Mainloop, Preferences, Tile};
use crate::dtype::DType;
use crate::problem::{Operation, Shape};
use crate::target::Target;
use serde::Serialize;
use std::fmt;

/// A candidate and what became of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Verdict {
    /// The candidate: a mainloop or a tile.
    pub candidate: String,
    /// Whether it was chosen.
    pub chosen: bool,
    /// Why, or why not.
    pub reason: String,
}

/// The chosen tile, if any fits, and the verdict on each candidate.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Choice {
    chosen: Option<(Tile, usize)>,
    /// Every candidate that was considered.
    pub verdicts: Vec<Verdict>,
}

impl Choice {
    /// The tile and the group height of its rasterisation.
    pub fn chosen(&self) -> Option<(Tile, usize)> {
        self.chosen
    }

    /// Notes that registers ran out, and that the tile now asks for fewer blocks to a multiprocessor.
    pub(super) fn relaxed(&mut self, tile: &Tile) {
        self.accept(tile, format!("registers ran out; compiled again for {} block(s) a multiprocessor", tile.min_blocks));
    }

    fn reject(&mut self, candidate: impl fmt::Display, reason: impl Into<String>) {
        self.verdicts.push(Verdict { candidate: candidate.to_string(), chosen: false, reason: reason.into() });
    }

    fn accept(&mut self, candidate: impl fmt::Display, reason: impl Into<String>) {
        self.verdicts.push(Verdict { candidate: candidate.to_string(), chosen: true, reason: reason.into() });
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for verdict in &self.verdicts {
            let mark = if verdict.chosen { "*" } else { "-" };
            writeln!(f, "  {mark} {}: {}", verdict.candidate, verdict.reason)?;
        }
        Ok(())
    }
}

/// What the choice depends on, as the kernel sees it.
pub(super) struct Request {
    pub operation: Operation,
    pub shape: Shape,
    pub alignment: [usize; 2],
    pub strip: usize,
    pub target: Target,
    pub multiprocessors: usize,
    pub preferences: Preferences,
}

/// A tile and what it takes: nanoseconds for each term of K on one multiprocessor, measured on an H200
/// (`docs/performance.md`). Other devices differ by a factor that all tiles share, roughly.
struct Candidate {
    tile: Tile,
    /// One tile alone on a multiprocessor.
    alone: f64,
    /// Each tile when as many are resident as fit.
    full: f64,
}

const fn candidate(tile: Tile, alone: f64, full: f64) -> Candidate {
    Candidate { tile, alone, full }
}

/// Tiles of the tensor-core mainloop for 16-bit operands.
static SM80: [Candidate; 4] = [
    candidate(Tile::sm80(128, 256, 64, 3, [2, 4], 1), 20.0, 20.0),
    candidate(Tile::sm80(128, 128, 64, 3, [2, 2], 2), 16.0, 11.0),
    candidate(Tile::sm80(64, 128, 64, 3, [2, 2], 2), 11.0, 7.0),
    candidate(Tile::sm80(64, 64, 64, 3, [2, 2], 2), 8.0, 5.0),
];

/// Tiles of the tensor-core mainloop for `f32` operands as tf32.
static SM80_TF32: [Candidate; 3] = [
    candidate(Tile::sm80(128, 128, 32, 3, [2, 2], 1), 32.0, 32.0),
    candidate(Tile::sm80(64, 128, 32, 3, [2, 2], 2), 22.0, 18.0),
    candidate(Tile::sm80(64, 64, 32, 3, [2, 2], 2), 16.0, 12.0),
];

static SIMT: [Candidate; 5] = [
    candidate(Tile::simt(128, 128, 8, 8, 16, 2), 126.0, 97.0),
    candidate(Tile::simt(128, 64, 8, 8, 8, 3), 70.0, 51.0),
    candidate(Tile::simt(64, 64, 16, 8, 4, 4), 41.0, 31.0),
    candidate(Tile::simt(32, 64, 16, 4, 4, 4), 30.0, 20.0),
    candidate(Tile::simt(32, 32, 16, 4, 4, 6), 19.0, 10.8),
];

/// Memory-bound: a tile costs its area. The second is for problems too small to fill the device with the first, the last
/// for strips of one column, of which 128 threads cover no more.
static POINTWISE: [Candidate; 3] = [
    candidate(Tile::pointwise(16, 256, 128), 4.0, 4.0),
    candidate(Tile::pointwise(8, 256, 128), 2.1, 2.1),
    candidate(Tile::pointwise(16, 128, 128), 2.2, 2.2),
];

pub(super) fn choose(request: &Request) -> Choice {
    let mut choice = Choice::default();
    let Some(mainloop) = mainloop(request, &mut choice) else { return choice };
    let dtype = request.operation.dtype();
    let candidates: &[Candidate] = match (mainloop, dtype) {
        (Mainloop::Sm80, DType::F32) => &SM80_TF32,
        (Mainloop::Sm80, _) => &SM80,
        (Mainloop::Simt, _) => &SIMT,
        (Mainloop::Pointwise, _) => &POINTWISE,
    };
    let wanted = request.preferences.tile;
    let forced = wanted.map(|tile| [candidate(tile, 1.0, 1.0)]);
    let candidates = forced.as_ref().map_or(candidates, |f| f.as_slice());
    let mut best: Option<(&Candidate, f64)> = None;
    let mut estimates = Vec::new();
    for candidate in candidates {
        if wanted.is_some() && candidate.tile.mainloop() != mainloop {
            choice.reject(candidate.tile, format!("it configures another mainloop than {mainloop}"));
        } else if let Some(obstacle) = candidate.tile.obstacle(dtype, request.strip, 0, request.target) {
            choice.reject(candidate.tile, obstacle);
        } else {
            let estimate = estimate(candidate, request);
            estimates.push((candidate, estimate));
            if best.is_none_or(|(_, least)| estimate < least) {
                best = Some((candidate, estimate));
            }
        }
    }
    let Some((chosen, least)) = best else { return choice };
    for (candidate, estimate) in estimates {
        if candidate.tile == chosen.tile {
            let tiles = tiles(&candidate.tile, request.shape);
            choice.accept(
                candidate.tile,
                format!("the least estimated time: {tiles} tiles on {} multiprocessors", request.multiprocessors),
            );
        } else {
            choice.reject(candidate.tile, format!("estimated at {:.2} times the chosen one", estimate / least));
        }
    }
    choice.chosen = Some((chosen.tile, raster(&chosen.tile, request)));
    choice
}

fn mainloop(request: &Request, choice: &mut Choice) -> Option<Mainloop> {
    let dtype = request.operation.dtype();
    let forced = request.preferences.mainloop.or(request.preferences.tile.map(|t| t.mainloop()));
    if let Operation::Pointwise { .. } = request.operation {
        if let Some(other) = forced.filter(|m| *m != Mainloop::Pointwise) {
            choice.reject(other, "a pointwise operation has no product");
            return None;
        }
        choice.accept(Mainloop::Pointwise, "the accumulator is a matrix in memory");
        return Some(Mainloop::Pointwise);
    }
    let obstacle = if !request.target.has_cp_async_and_mma16() {
        Some(format!("{} has no cp.async and mma.sync.m16n8k16", request.target))
    } else {
        match dtype {
            DType::F16 | DType::BF16 => None,
            DType::F32 if request.preferences.tf32 => None,
            DType::F32 => Some("f32 operands keep full precision unless tf32 is asked for".into()),
            other => Some(format!("operands of {other} have no tensor-core form here")),
        }
    };
    let tensor_cores = match (forced, obstacle) {
        (Some(Mainloop::Pointwise), _) => {
            choice.reject(Mainloop::Pointwise, "the operation is a product");
            return None;
        }
        (Some(Mainloop::Simt), _) => {
            choice.reject(Mainloop::Sm80, "simt was asked for");
            false
        }
        (Some(Mainloop::Sm80), Some(why)) => {
            choice.reject(Mainloop::Sm80, why);
            return None;
        }
        (None, Some(why)) => {
            choice.reject(Mainloop::Sm80, why);
            false
        }
        (_, None) => true,
    };
    if tensor_cores {
        let [a, b] = request.alignment;
        choice.accept(Mainloop::Sm80, format!("tensor cores; a is copied {a} bytes at a time, b {b}"));
        choice.reject(Mainloop::Simt, "tensor cores are faster");
        Some(Mainloop::Sm80)
    } else {
        choice.accept(Mainloop::Simt, "the mainloop for every operand");
        Some(Mainloop::Simt)
    }
}

fn tiles(tile: &Tile, shape: Shape) -> u64 {
    shape.m.div_ceil(tile.bm) as u64 * shape.n.div_ceil(tile.bn) as u64 * shape.batch as u64
}

/// Nanoseconds for each term of K: full rounds of as many tiles as are resident, then what is left, which takes at least
/// as long as one tile alone.
fn estimate(candidate: &Candidate, request: &Request) -> f64 {
    let resident = candidate.tile.min_blocks as u64;
    let on_one = tiles(&candidate.tile, request.shape).div_ceil(request.multiprocessors.max(1) as u64);
    let (rounds, left) = (on_one / resident, on_one % resident);
    let rest = if left > 0 { candidate.alone.max(left as f64 * candidate.full) } else { 0.0 };
    (rounds * resident) as f64 * candidate.full + rest
}

/// The group height that keeps operands in L2: about the square root of the tiles in flight, in rows of tiles.
fn raster(tile: &Tile, request: &Request) -> usize {
    let in_flight = (request.multiprocessors * tile.min_blocks) as f64;
    let ideal = (in_flight * tile.bn as f64 / tile.bm as f64).sqrt().round() as usize;
    ideal.clamp(1, 16).min(request.shape.m.div_ceil(tile.bm).max(1))
}
