//! What was chosen, with a reason for everything that was not.

use crate::ir::name::{meant, word};
use crate::plan::{Considered, Reason, Tile, Verdict};
use serde::Serialize;
use std::fmt;

/// The chosen tile, if any fits, and the verdict on each candidate.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Choice {
    chosen: Option<(Tile, i32)>,
    /// The estimated time of the chosen tile, where estimates have a unit.
    nanoseconds: Option<u64>,
    /// The same, also for a tile that the caller asked for.
    #[serde(skip)]
    estimated: Option<u64>,
    /// Every candidate that was considered.
    pub verdicts: Vec<Verdict>,
    /// The other tiles that fit, the best first.
    #[serde(skip)]
    others: Vec<(Tile, i32)>,
}

/// No tile has a name, or the one that has it does not fit the problem.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "no tile `{}` fits this problem{}; `explain()` lists those that do",
    word(name),
    meant(name, fitting.iter().map(String::as_str))
)]
pub struct UnknownTile {
    /// The name.
    pub name: String,
    /// The names of the tiles that fit, the best first.
    pub fitting: Vec<String>,
}

impl Choice {
    /// The tile and the group height of its rasterisation.
    pub fn chosen(&self) -> Option<(Tile, i32)> {
        self.chosen
    }

    /// The estimated nanoseconds of a launch, which are at least what memory takes; `None` where estimates only compare tiles.
    pub fn nanoseconds(&self) -> Option<u64> {
        self.nanoseconds
    }

    /// The estimated time of the tile, which compares plans of one problem.
    pub(crate) fn estimated(&self) -> Option<u64> {
        self.estimated
    }

    /// Whether the problem was also planned the other way round.
    #[cfg(feature = "cuda")]
    pub(crate) fn knows_other_way(&self) -> bool {
        self.verdicts.iter().any(|verdict| matches!(verdict.candidate, Considered::Turned(_)))
    }

    /// The fewest bytes of parameters among the candidates that were rejected because of them, if there is one.
    pub(super) fn fewest_parameters(&self) -> Option<usize> {
        let sizes = self.verdicts.iter().filter_map(|verdict| match verdict.reason {
            Reason::Parameters(size) => Some(size),
            _ => None,
        });
        sizes.min()
    }

    /// Every tile that fits the problem, with its rasterisation: the chosen one first, then by estimated time. A tuner
    /// measures these with [`Gemm::tile`](crate::Gemm::tile).
    pub fn candidates(&self) -> impl Iterator<Item = (Tile, i32)> + '_ {
        self.chosen.into_iter().chain(self.others.iter().copied())
    }

    /// The tile with a name, as `explain` prints it: `"sm80 128x128x32, 4 stages, 2x2 warps"`. For
    /// [`Gemm::tile`](crate::Gemm::tile).
    ///
    /// # Errors
    /// If no tile of that name fits the problem.
    pub fn named(&self, name: &str) -> Result<Tile, UnknownTile> {
        let named = |(tile, _): (Tile, i32)| Some(tile).filter(|tile| tile.to_string() == name);
        self.candidates().find_map(named).ok_or_else(|| UnknownTile {
            name: name.to_owned(),
            fitting: self.candidates().map(|(tile, _)| tile.to_string()).collect(),
        })
    }

    /// The same tiles, each with its estimated time in hundredths of the chosen one's.
    pub fn estimates(&self) -> impl Iterator<Item = (Tile, u64)> + '_ {
        let of = |tile: Tile| {
            let mut slower = self.verdicts.iter().filter(move |verdict| verdict.candidate == Considered::Tile(tile));
            slower.find_map(|verdict| if let Reason::Slower(times) = verdict.reason { Some(times) } else { None })
        };
        self.candidates().map(move |(tile, _)| (tile, of(tile).unwrap_or(100)))
    }

    /// Chooses among tiles that fit, with their rasterisation, the best first. `nanoseconds` is its estimated time, and
    /// `estimated` the same also for a tile that the caller asked for.
    pub(super) fn choose(&mut self, tiles: Vec<(Tile, i32)>, nanoseconds: Option<u64>, estimated: Option<u64>) {
        let mut tiles = tiles.into_iter();
        self.chosen = tiles.next();
        self.others = tiles.collect();
        (self.nanoseconds, self.estimated) = (nanoseconds, estimated);
    }

    /// Replaces the choice, and drops the other candidates.
    pub(super) fn settle(&mut self, tile: Tile, raster: i32, reason: impl Into<String>) {
        self.others.clear();
        self.chosen = Some((tile, raster));
        self.accept(tile, reason);
    }

    /// Notes that registers ran out, and what of the tile is compiled again.
    pub(super) fn relaxed(&mut self, tile: &Tile, what: &str) {
        self.accept(*tile, format!("registers ran out; compiled again {what}"));
    }

    /// The next best tile whose threads hold fewer accumulators, where registers ran out for good.
    pub(super) fn retreat(&mut self, tile: &Tile, suits: impl Fn(&Tile) -> bool) -> Option<(Tile, i32)> {
        let held = Tile::accumulators;
        let next = self.others.iter().position(|(other, _)| held(other) < held(tile) && suits(other))?;
        let next = self.others.remove(next);
        self.accept(next.0, "registers ran out with the one before");
        Some(next)
    }

    pub(super) fn reject(&mut self, candidate: Considered, reason: impl Into<Reason>) {
        self.verdicts.push(Verdict { candidate, chosen: false, reason: reason.into() });
    }

    /// Records that the rows are reduced where the product is computed.
    pub(super) fn whole_rows(&mut self, estimates: String) {
        self.verdicts.push(Verdict { candidate: Considered::Rows, chosen: true, reason: estimates.into() });
    }

    /// Why none of the tiles of an accepted width was chosen, or no mainloop, in words.
    pub(super) fn reason(&self, accepts: impl Fn(&Tile) -> bool) -> Option<String> {
        let fits = |verdict: &&Verdict| match verdict.candidate {
            Considered::Tile(tile) => accepts(&tile),
            Considered::Mainloop(mainloop) => mainloop.rules().is_staged(),
            _ => false,
        };
        self.verdicts.iter().find(fits).map(|verdict| verdict.reason.to_string())
    }

    /// Records the verdict on a split of K.
    pub(super) fn split(&mut self, parts: usize, chosen: bool, reason: String) {
        self.verdicts.push(Verdict { candidate: Considered::Split(parts), chosen, reason: reason.into() });
    }

    /// Records the estimate of the best tile of the other orientation.
    pub(super) fn turned(&mut self, tile: Tile, transposed: bool, time: u64, chosen: u64) {
        let [time, chosen] = [time, chosen].map(|nanoseconds| nanoseconds as f64 / 1e3);
        let way = if transposed { "transposed" } else { "as it is" };
        let words = format!("{way} the problem is estimated at {time:.1} us, as chosen at {chosen:.1} us");
        self.reject(Considered::Turned(tile), words);
    }

    pub(super) fn accept(&mut self, tile: Tile, reason: impl Into<Reason>) {
        self.verdicts.push(Verdict { candidate: Considered::Tile(tile), chosen: true, reason: reason.into() });
    }
}

/// How many of the slower tiles are listed one by one.
const SLOWER: usize = 8;

/// The verdicts in words. Only the best of the slower tiles are listed.
impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut slower = 0;
        for verdict in &self.verdicts {
            slower += usize::from(matches!(verdict.reason, Reason::Slower(_)));
            if slower <= SLOWER || !matches!(verdict.reason, Reason::Slower(_)) {
                let mark = if verdict.chosen { "*" } else { "-" };
                writeln!(f, "  {mark} {}: {}", verdict.candidate, verdict.reason)?;
            }
        }
        if slower > SLOWER { writeln!(f, "  - {} more, estimated to be slower still", slower - SLOWER) } else { Ok(()) }
    }
}
