//! Coordinates: where an element of the output lies, or a score.

use super::axes::{Axes, L, M, N, S};
use serde::{Deserialize, Serialize};

/// A coordinate of the output element, or of a score.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Coordinate {
    /// Along M.
    Row,
    /// Along N.
    Column,
    /// Along L.
    Batch,
    /// Along S: which of an attention's sequences it is.
    Sequence,
}

impl Coordinate {
    /// Every coordinate.
    pub const ALL: [Coordinate; 4] = [Coordinate::Row, Coordinate::Column, Coordinate::Batch, Coordinate::Sequence];
    /// Those of an output, which a launch counts from an origin.
    pub const OF_OUTPUT: [Coordinate; 3] = [Coordinate::Row, Coordinate::Column, Coordinate::Batch];

    /// The axis along which it counts elements.
    pub const fn axis(self) -> Axes {
        match self {
            Coordinate::Row => M,
            Coordinate::Column => N,
            Coordinate::Batch => L,
            Coordinate::Sequence => S,
        }
    }

    /// The coordinate along an axis, if this is a single axis.
    pub(crate) fn along(axis: Axes) -> Option<Coordinate> {
        Coordinate::ALL.into_iter().find(|coordinate| coordinate.axis() == axis)
    }

    /// The name in text and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Coordinate::Row => "row",
            Coordinate::Column => "column",
            Coordinate::Batch => "batch",
            Coordinate::Sequence => "sequence",
        }
    }
}
