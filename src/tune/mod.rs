//! Tuning: finds the fastest of the tiles that fit a problem by running them on the present GPU.
//!
//! [`Plan::autotune`](crate::gemm::Plan::autotune) performs it. This module holds its options, its report, and the
//! record that is kept for the next plan.

mod agree;
mod record;

pub(crate) use agree::disagreement;
pub(crate) use record::{Record, Subject};

use crate::plan::Tile;
use crate::problem::Shape;
use std::fmt;
use std::time::Duration;

/// The extent of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Autotune {
    pub(crate) candidates: usize,
    pub(crate) rounds: usize,
    pub(crate) budget: Duration,
}

impl Default for Autotune {
    /// Six candidates, 21 rounds, five seconds.
    fn default() -> Autotune {
        Autotune { candidates: 6, rounds: 21, budget: Duration::from_secs(5) }
    }
}

impl Autotune {
    /// The default.
    pub fn new() -> Autotune {
        Autotune::default()
    }

    /// How many tiles to compare, the present one included: the best by estimate, each in up to three orders
    /// ([`Gemm::raster_group`](crate::Gemm::raster_group)).
    #[must_use]
    pub fn candidates(self, count: usize) -> Autotune {
        Autotune { candidates: count.max(1), ..self }
    }

    /// How often each is timed, at most.
    #[must_use]
    pub fn rounds(self, count: usize) -> Autotune {
        Autotune { rounds: count.max(1), ..self }
    }

    /// The time limit for everything, compiling included. A tile that is not compiled in the first half is not tried, nor one
    /// that has not run in the first three quarters. Rounds end with the time, except the first three.
    #[must_use]
    pub fn budget(self, time: Duration) -> Autotune {
        Autotune { budget: time, ..self }
    }
}

/// A median with the tenth and the ninetieth percentile.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// The tenth percentile.
    pub low: f64,
    /// The median.
    pub median: f64,
    /// The ninetieth percentile.
    pub high: f64,
}

impl Spread {
    /// The spread of some figures; `None` if there are none.
    pub(crate) fn of(figures: impl IntoIterator<Item = f64>) -> Option<Spread> {
        let mut sorted: Vec<f64> = figures.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        let last = sorted.len().checked_sub(1)?;
        // Rounded outwards: for few figures these are the extremes.
        Some(Spread { low: sorted[last / 10], median: sorted[last / 2], high: sorted[(9 * last).div_ceil(10)] })
    }
}

/// The outcome for a tile.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// It ran before, and still runs.
    Stays,
    /// It ran before, and another one is faster.
    Replaced,
    /// It is the fastest of the tiles that are faster than the present one by more than the spread, and than the present one
    /// differs from itself. It runs from now on.
    Wins,
    /// It is not faster by more than the spread, or not the fastest.
    Loses,
    /// Its results differ from those of the present tile, so it is never taken. If rounding does not explain the
    /// difference, please report it.
    Disagrees(String),
    /// It did not compile or could not be loaded.
    Fails(String),
    /// It was not tried.
    Untried(&'static str),
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Outcome::Stays => f.write_str("ran before, stays"),
            Outcome::Replaced => f.write_str("ran before"),
            Outcome::Wins => f.write_str("faster by more than the spread: taken"),
            Outcome::Loses => f.write_str("not faster by more than the spread, or not the fastest"),
            Outcome::Disagrees(how) => write!(f, "disagrees: {how}"),
            Outcome::Fails(why) => write!(f, "fails: {}", why.lines().next().unwrap_or_default()),
            Outcome::Untried(why) => write!(f, "not tried: {why}"),
        }
    }
}

/// What tuning compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The tile.
    pub tile: Tile,
    /// The height of its raster groups.
    pub raster: i32,
    /// Whether it computes the problem transposed ([`Gemm::transposed`](crate::Gemm::transposed)).
    pub transposed: bool,
}

impl fmt::Display for Candidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Candidate { tile, raster, transposed } = self;
        let (group, lines) = (raster.unsigned_abs(), if *raster > 0 { "rows" } else { "columns" });
        write!(f, "{tile}, groups of {group} {lines}{}", if *transposed { ", transposed" } else { "" })
    }
}

/// A tile in an order of tiles, and its outcome.
#[derive(Clone, Debug, PartialEq)]
pub struct Trial {
    /// The tile, its order, and which way round it computes the problem.
    pub candidate: Candidate,
    /// Microseconds a launch, if it was timed.
    pub time: Option<Spread>,
    /// Its time over the present tile's in the same round.
    pub ratio: Option<Spread>,
    /// The outcome.
    pub outcome: Outcome,
}

/// The result of tuning.
#[derive(Clone, Debug, PartialEq)]
pub struct Tuning {
    /// The GPU.
    pub gpu: String,
    /// The problem.
    pub shape: Shape,
    /// Every tile in every order. The tile that ran before comes first.
    pub trials: Vec<Trial>,
    /// The time of the present tile over its own in the same round: what a measurement can tell apart.
    pub twin: Option<Spread>,
    /// Rounds in which each was timed.
    pub rounds: usize,
    /// The duration of the search.
    pub elapsed: Duration,
    /// The directory of the record, or the reason why other processes will not find it.
    pub kept: Result<String, String>,
}

impl Tuning {
    /// The tile that runs from now on.
    pub fn winner(&self) -> Option<&Trial> {
        self.trials.iter().find(|trial| matches!(trial.outcome, Outcome::Wins | Outcome::Stays))
    }
}

impl fmt::Display for Tuning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Tuning { gpu, shape, trials, twin, rounds, elapsed, kept } = self;
        let seconds = elapsed.as_secs_f64();
        writeln!(f, "tuned         {shape} on {gpu}: {} trials, {rounds} rounds, {seconds:.1} s", trials.len())?;
        for trial in trials {
            let mark = if matches!(trial.outcome, Outcome::Wins | Outcome::Stays) { "*" } else { "-" };
            write!(f, "  {mark} {}: ", trial.candidate)?;
            if let Some(Spread { low, median, high }) = trial.time {
                write!(f, "{median:.2} us [{low:.2}, {high:.2}], ")?;
            }
            if let Some(Spread { low, median, high }) = trial.ratio {
                write!(f, "{median:.3} [{low:.3}, {high:.3}] of the present one, ")?;
            }
            writeln!(f, "{}", trial.outcome)?;
        }
        if let Some(Spread { low, median, high }) = twin {
            writeln!(f, "  the present one twice: {median:.3} [{low:.3}, {high:.3}]")?;
        }
        match kept {
            Ok(place) => writeln!(f, "  kept in {place}"),
            Err(why) => writeln!(f, "  not kept for other processes: {why}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_what_was_asked_for_and_never_nothing() {
        let numbers = |of: Autotune| (of.candidates, of.rounds, of.budget.as_secs());
        let new = Autotune::new();
        assert_eq!(numbers(new), (6, 21, 5));
        assert_eq!(numbers(new.candidates(9)), (9, 21, 5));
        assert_eq!(numbers(new.rounds(40)), (6, 40, 5));
        assert_eq!(numbers(new.budget(Duration::from_secs(1))), (6, 21, 1));
        assert_eq!(numbers(new.candidates(0).rounds(0)), (1, 1, 5));
    }

    #[test]
    fn spreads_are_rounded_outwards() {
        let spread = |low, median, high| Some(Spread { low, median, high });
        assert_eq!(Spread::of([]), None);
        assert_eq!(Spread::of([2.0]), spread(2.0, 2.0, 2.0));
        assert_eq!(Spread::of([3.0, 1.0, 2.0]), spread(1.0, 2.0, 3.0));
        assert_eq!(Spread::of((0..21).rev().map(f64::from)), spread(2.0, 10.0, 18.0));
    }
}
