//! The rows, by kind.

mod anchors;
mod pointwise;
mod shapes;
mod windows;

use super::Operator;

/// Every row.
pub(super) static TABLES: [&[Operator]; 4] = [pointwise::ROWS, anchors::ROWS, windows::ROWS, shapes::ROWS];
