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
    /// The other tiles that fit, the best first.
    #[serde(skip)]
    others: Vec<Tile>,
}

impl Choice {
    /// The tile and the group height of its rasterisation.
    pub fn chosen(&self) -> Option<(Tile, usize)> {
        self.chosen
    }

    /// Every tile that fits the problem, the chosen one first, then by estimated time: what a tuner would measure with
    /// [`Gemm::tile`](crate::Gemm::tile).
    pub fn candidates(&self) -> impl Iterator<Item = Tile> + '_ {
        self.chosen.map(|(tile, _)| tile).into_iter().chain(self.others.iter().copied())
    }

    /// Notes that registers ran out, and that the tile now asks for fewer blocks to a multiprocessor.
    pub(super) fn relaxed(&mut self, tile: &Tile) {
        self.accept(tile, format!("registers ran out; compiled again for {} block(s) a multiprocessor", tile.min_blocks));
    }

    /// The next best tile whose threads hold fewer accumulators, where registers ran out for good.
    pub(super) fn retreat(&mut self, tile: &Tile) -> Option<Tile> {
        let held = |tile: &Tile| tile.bm * tile.bn / tile.threads;
        let next = self.others.iter().position(|other| held(other) < held(tile)).map(|at| self.others.remove(at))?;
        self.accept(next, "registers ran out with the one before");
        Some(next)
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

/// A tile, what it takes, and for which problems it is meant. Times are measured on an H200 and relative to each other
/// within a list (`docs/performance.md`).
struct Candidate {
    tile: Tile,
    /// Time of each term of K, with one tile alone on a multiprocessor.
    alone: f64,
    /// The same for each tile when as many are resident as fit.
    full: f64,
    /// Terms of K that a tile's beginning and end cost.
    overhead: f64,
    /// The least alignment of both operands, in bytes, from which it is worth considering, and the most.
    alignment: (usize, usize),
    /// The most rows of a problem it is meant for.
    rows: usize,
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

    /// A tensor-core tile: resident blocks share the tensor cores, so a tile takes its share whether alone or not.
    const fn sm80(tile: Tile, time: f64, overhead: f64) -> Candidate {
        candidate(tile, time, time, overhead)
    }
}

/// Tiles of the tensor-core mainloop for 16-bit operands, with fewer stages further down for less shared memory.
static SM80: [Candidate; 14] = [
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

/// Tiles of the tensor-core mainloop for `f32` operands as tf32.
static SM80_TF32: [Candidate; 6] = [
    Candidate::sm80(Tile::sm80(128, 128, 32, 3, [2, 2], 2), 100.0, 110.0).aligned(8, 16),
    Candidate::sm80(Tile::sm80(128, 128, 16, 5, [2, 2], 2), 101.0, 110.0).aligned(8, 16),
    Candidate::sm80(Tile::sm80(128, 128, 32, 3, [2, 4], 1), 110.0, 110.0),
    Candidate::sm80(Tile::sm80(128, 128, 16, 3, [2, 2], 2), 105.0, 110.0).aligned(8, 16),
    Candidate::sm80(Tile::sm80(64, 64, 32, 4, [2, 2], 2), 40.0, 100.0),
    Candidate::sm80(Tile::sm80(64, 64, 32, 3, [2, 2], 1), 42.0, 100.0),
];

static SIMT: [Candidate; 5] = [
    candidate(Tile::simt(128, 128, 8, 8, 16, 2), 126.0, 97.0, 16.0),
    candidate(Tile::simt(128, 64, 8, 8, 8, 3), 70.0, 51.0, 16.0),
    candidate(Tile::simt(64, 64, 16, 8, 4, 4), 41.0, 31.0, 16.0),
    candidate(Tile::simt(32, 64, 16, 4, 4, 4), 30.0, 20.0, 16.0),
    candidate(Tile::simt(32, 32, 16, 4, 4, 6), 19.0, 10.8, 16.0),
];

/// Memory-bound: a tile costs its area. Smaller ones are for problems that do not fill the device, and for single-column
/// strips, which need a thread for every column.
static POINTWISE: [Candidate; 3] = [
    candidate(Tile::pointwise(16, 256, 128), 4.0, 4.0, 1.0),
    candidate(Tile::pointwise(8, 256, 128), 2.1, 2.1, 1.0),
    candidate(Tile::pointwise(16, 128, 128), 2.1, 2.1, 1.0),
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
    let forced = wanted.map(|tile| [candidate(tile, 1.0, 1.0, 0.0)]);
    let candidates = forced.as_ref().map_or(candidates, |f| f.as_slice());
    let mut best: Option<(&Candidate, f64)> = None;
    let mut estimates = Vec::new();
    for candidate in candidates {
        if wanted.is_some() && candidate.tile.mainloop() != mainloop {
            choice.reject(candidate.tile, format!("it configures another mainloop than {mainloop}"));
        } else if let Some(obstacle) = obstacle(candidate, request) {
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
    let mut others: Vec<_> = estimates.iter().filter(|(other, _)| other.tile != chosen.tile).collect();
    others.sort_by(|a, b| a.1.total_cmp(&b.1));
    choice.others = others.into_iter().map(|(other, _)| other.tile).collect();
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
    choice.chosen = Some((chosen.tile, RASTER));
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

fn obstacle(candidate: &Candidate, request: &Request) -> Option<String> {
    let least = request.alignment[0].min(request.alignment[1]);
    let (from, to) = candidate.alignment;
    if !(from..=to).contains(&least) {
        Some(format!("for operands aligned to {from} to {to} bytes, not {least}"))
    } else if request.shape.m > candidate.rows {
        Some(format!("for at most {} rows", candidate.rows))
    } else {
        candidate.tile.obstacle(request.operation, request.alignment, request.strip, request.target)
    }
}

/// Relative time: full rounds of as many tiles as are resident, then what is left, which takes at least as long as one
/// tile alone.
fn estimate(candidate: &Candidate, request: &Request) -> f64 {
    let resident = candidate.tile.min_blocks as u64;
    let on_one = tiles(&candidate.tile, request.shape).div_ceil(request.multiprocessors.max(1) as u64);
    let (rounds, left) = (on_one / resident, on_one % resident);
    let rest = if left > 0 { candidate.alone.max(left as f64 * candidate.full) } else { 0.0 };
    ((rounds * resident) as f64 * candidate.full + rest) * (request.shape.k as f64 + candidate.overhead)
}

/// The group height: operands of tiles that run together stay in L2. Measured flat from 2 to 64 on the H200.
const RASTER: usize = 8;
