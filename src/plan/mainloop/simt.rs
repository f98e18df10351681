//! `simt`: single multiply-adds in full precision, for any operand (`templates/mainloop/simt.cuh`).

use super::candidates::{self, Candidate, candidate};
use super::rules::{Asked, Number, Rules, Tried, broken_powers, first_broken, visits, visits_whole_rows};
use super::tile::{Tile, TileShape};
use crate::dtype::DType;
use crate::plan::code::{Copied, Copies, Price, Priced};
use crate::plan::request::TileRequest;
use crate::problem::Operation;

/// Its rules.
pub(super) struct Simt;

impl Tile {
    pub(in crate::plan) const fn simt(bm: usize, bn: usize, bk: usize, tm: usize, tn: usize, min_blocks: usize) -> Tile {
        Tile { bm, bn, shape: TileShape::Simt { bk, tm, tn }, threads: bm / tm * (bn / tn), min_blocks }
    }
}

/// K elements of a stage, and rows and columns of a thread.
fn own(tile: &Tile) -> [usize; 3] {
    if let TileShape::Simt { bk, tm, tn } = tile.shape { [bk, tm, tn] } else { [1; 3] }
}

impl Rules for Simt {
    fn why_not(&self, asked: &Asked<'_>) -> Option<String> {
        asked.operation.layout().is_none().then(|| "the operation has no product".into())
    }

    fn candidates(&self, request: &TileRequest<'_>) -> Vec<Tried> {
        let list: &[Candidate] = if request.operation.dtype() == DType::F64 { &SIMT_F64 } else { &SIMT };
        candidates::tried(list, request)
    }

    fn nanoseconds(&self, dtype: DType) -> Option<f64> {
        (dtype == DType::F32).then_some(1.0)
    }

    fn broken_rule(&self, tile: &Tile, _: Operation, _: [usize; 2], strip: usize) -> Option<&'static str> {
        let (Tile { bm, bn, threads, .. }, [bk, tm, tn]) = (*tile, own(tile));
        if let Some(rule) = broken_powers(tile, strip) {
            return Some(rule);
        }
        let powers = [bk, tm, tn].iter().all(|x| x.is_power_of_two());
        let lanes_n = (bn / tn.max(1)).clamp(1, 8);
        first_broken(&[
            (powers && tm >= 4 && tn >= 4 && bk >= 8, "a thread owns at least 4 x 4"),
            ((32..=1024).contains(&threads) && threads * tm * tn == bm * bn, "whole warps own the tile"),
            (bm.is_multiple_of(32 / lanes_n * tm) && bn.is_multiple_of(lanes_n * tn), "whole warps cover the tile"),
            ((bm * bk).is_multiple_of(threads) && (bn * bk).is_multiple_of(threads), "threads share the loads evenly"),
            (visits_whole_rows(tile, strip, bm / (tm / 4).max(1)), "threads visit whole rows"),
        ])
    }

    fn numbers(&self, tile: &Tile) -> Vec<usize> {
        let [bk, tm, tn] = own(tile);
        vec![tile.bn, bk, tm, tn]
    }

    fn constants(&self, tile: &Tile, _: bool) -> Vec<Number> {
        let [bk, tm, tn] = own(tile);
        vec![("BK", bk), ("TM", tm), ("TN", tn)]
    }

    fn words(&self, tile: &Tile) -> String {
        let [bk, tm, tn] = own(tile);
        format!("x{bk}, {tm}x{tn} a thread")
    }

    /// A thread visits strips of one row group at a time.
    fn copies(&self, of: &Copied<'_>) -> Copies {
        let Copied { tile, strip, .. } = *of;
        let rows = tile.bm / (own(tile)[1] / 4).max(1);
        Copies::of_visits(strip, visits(tile, strip, rows).min(if strip >= 4 { 16 / strip } else { 8 }))
    }

    fn price(&self, of: &Priced<'_>) -> Price {
        let ([bk, tm, tn], Tile { bm, bn, threads, .. }) = (own(of.copied.tile), *of.copied.tile);
        let elements = ((bm + bn) * bk / threads.max(1)) as f64;
        let widened = ((bm * of.widening(0) + bn * of.widening(1)) * bk / threads.max(1)) as f64;
        let scaled = f64::from(u8::from(of.copied.operation.is_scaled()));
        let each = if of.copied.operation.dtype() == DType::I32 { 1.94 } else { 1.57 };
        let images = of.images([7.28, 8.16, 5.45]) * elements;
        let staged = 0.333 * widened + images + 62.4 * of.residues();
        let kernel = 288.0 + each * (tm * tn) as f64 + staged + 129.0 * scaled;
        Price { kernel, thousand: 181.0, load: 86.8, store: 60.2, reduction: 189.0, sum: 190.0 }
    }

    fn memory(&self, tile: &Tile, dtype: DType) -> [usize; 2] {
        let ([bk, tm, _], word) = (own(tile), dtype.value_type().storage().size());
        // Words of the accumulator's type; rows are padded by four. The slab holds one group of four rows of every thread.
        let stages = 2 * bk * (tile.bm + 4 + tile.bn + 4);
        let rows = tile.bm / (tm / 4);
        [word * stages.max(rows * (tile.bn + 4)), rows]
    }

    fn registers(&self, tile: &Tile, operation: Operation, _: usize) -> usize {
        let [_, tm, tn] = own(tile);
        let words = operation.accumulator().storage().size() / 4;
        words * (tm * tn + 2 * (tm + tn)) + 24
    }
}

static SIMT: [Candidate; 5] = [
    candidate(Tile::simt(128, 128, 8, 8, 16, 2), 126.0, 97.0, 16.0),
    candidate(Tile::simt(128, 64, 8, 8, 8, 3), 70.0, 51.0, 16.0),
    candidate(Tile::simt(64, 64, 16, 8, 4, 4), 41.0, 31.0, 16.0),
    candidate(Tile::simt(32, 64, 16, 4, 4, 4), 30.0, 20.0, 16.0),
    candidate(Tile::simt(32, 32, 16, 4, 4, 6), 19.0, 10.8, 16.0),
];

/// Tiles for `f64`, whose accumulators take two registers each. The times are derived from those of `f32` by the cost
/// of multiply-adds, and are not measured.
static SIMT_F64: [Candidate; 4] = [
    candidate(Tile::simt(128, 64, 8, 8, 8, 2), 140.0, 102.0, 16.0),
    candidate(Tile::simt(64, 64, 16, 8, 4, 3), 82.0, 62.0, 16.0),
    candidate(Tile::simt(32, 64, 16, 4, 4, 4), 60.0, 40.0, 16.0),
    candidate(Tile::simt(32, 32, 16, 4, 4, 6), 38.0, 21.6, 16.0),
];
