//! Verdicts: what was considered for a plan, and why it was or was not chosen.

use crate::plan::{Mainloop, PARAMETER_LIMIT, Tile};
use serde::Serialize;
use std::fmt;

/// A candidate and what became of it. Put into words only when it is printed: there are dozens to a plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Verdict {
    /// The candidate.
    pub candidate: Considered,
    /// Whether it was chosen.
    pub chosen: bool,
    /// Why, or why not.
    pub reason: Reason,
}

/// What a verdict is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Considered {
    /// A mainloop.
    Mainloop(Mainloop),
    /// One of its tiles.
    Tile(Tile),
    /// So many parts of K.
    Split(usize),
    /// Reductions along rows in the product's own kernel.
    Rows,
    /// The best tile of the problem the other way round: transposed if the plan is not, or as it is if the plan is transposed.
    Turned(Tile),
}

impl fmt::Display for Considered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Considered::Mainloop(mainloop) => mainloop.fmt(f),
            Considered::Tile(tile) => tile.fmt(f),
            Considered::Split(parts) => write!(f, "split of K in {parts} parts"),
            Considered::Rows => f.write_str("rows in the kernel of the product"),
            Considered::Turned(tile) => write!(f, "{tile}, the other way round"),
        }
    }
}

/// The reason for a verdict.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// In words.
    Words(String),
    /// Its estimated time over that of the chosen candidate, in hundredths.
    Slower(u64),
    /// The bytes of its parameters, which are more than a launch passes.
    Parameters(usize),
}

impl<S: Into<String>> From<S> for Reason {
    fn from(words: S) -> Reason {
        Reason::Words(words.into())
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::Words(words) => f.write_str(words),
            Reason::Slower(times) => write!(f, "estimated at {}.{:02} times the chosen one", times / 100, times % 100),
            Reason::Parameters(size) => {
                write!(f, "{size} bytes of kernel parameters, of {PARAMETER_LIMIT}: too many arguments for it")
            }
        }
    }
}
