//! `pointwise`: no product. The accumulator is a matrix in memory, a sum of several, or a pool
//! (`templates/mainloop/pointwise.cuh`).

use super::candidates::{self, Candidate, candidate};
use super::rules::{Asked, Number, Rules, Tried, broken_powers, first_broken, visits_whole_rows};
use super::tile::{Tile, TileShape};
use crate::plan::code::Price;
use crate::plan::request::TileRequest;
use crate::problem::Operation;

/// Its rules.
pub(super) struct Pointwise;

impl Tile {
    pub(in crate::plan) const fn pointwise(bm: usize, bn: usize, threads: usize) -> Tile {
        Tile { bm, bn, shape: TileShape::Pointwise, threads, min_blocks: 1 }
    }
}

impl Rules for Pointwise {
    fn why_not(&self, asked: &Asked<'_>) -> Option<String> {
        asked.operation.layout().map(|_| "the operation is a product".into())
    }

    fn candidates(&self, request: &TileRequest<'_>) -> Vec<Tried> {
        let list: &[Candidate] = match () {
            () if request.parts > 1 => &SUMS,
            () if request.wants_narrow_tiles() => &NARROW,
            () => &POINTWISE,
        };
        candidates::tried(list, request)
    }

    fn broken_rule(&self, tile: &Tile, _: Operation, _: [usize; 2], strip: usize) -> Option<&'static str> {
        let whole = || first_broken(&[(visits_whole_rows(tile, strip, tile.bm), "threads visit whole rows")]);
        broken_powers(tile, strip).or_else(whole)
    }

    fn numbers(&self, tile: &Tile) -> Vec<usize> {
        vec![tile.bn]
    }

    fn constants(&self, _: &Tile, _: bool) -> Vec<Number> {
        Vec::new()
    }

    fn words(&self, _: &Tile) -> String {
        String::new()
    }

    fn price(&self, _: &Tile) -> Price {
        Price { kernel: 50.0, thousand: 48.0, store: 18.0, word: 54.0, sum: 0.0 }
    }

    fn shares_operands(&self) -> bool {
        false
    }
}

/// Tiles of pointwise operations. These are bound by memory, so a tile costs its area. Smaller tiles are for problems
/// that do not fill the device, and for single-column strips, which need a thread for every column.
static POINTWISE: [Candidate; 3] = [
    candidate(Tile::pointwise(16, 256, 128), 4.0, 4.0, 1.0),
    candidate(Tile::pointwise(8, 256, 128), 2.1, 2.1, 1.0),
    candidate(Tile::pointwise(16, 128, 128), 2.1, 2.1, 1.0),
];

/// The same for outputs of up to 64 columns, of which wider tiles would leave threads without work.
static NARROW: [Candidate; 4] = [
    candidate(Tile::pointwise(32, 64, 128), 2.1, 2.1, 1.0),
    candidate(Tile::pointwise(16, 64, 128), 1.1, 1.1, 1.0),
    candidate(Tile::pointwise(64, 32, 128), 2.1, 2.1, 1.0),
    candidate(Tile::pointwise(32, 32, 128), 1.1, 1.1, 1.0),
];

/// The same for sums of several matrices. A thread reads these one by one, so the tiles have more blocks with fewer
/// threads.
static SUMS: [Candidate; 4] = [
    candidate(Tile::pointwise(16, 256, 128), 4.0, 4.0, 1.0),
    candidate(Tile::pointwise(8, 256, 128), 2.0, 2.0, 1.0),
    candidate(Tile::pointwise(8, 128, 128), 1.1, 1.1, 1.0),
    candidate(Tile::pointwise(4, 128, 64), 0.6, 0.6, 1.0),
];
