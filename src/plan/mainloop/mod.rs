//! The mainloops: a room for each, which answers `rules`, the list of rooms (`table`), and what several share.

pub(super) mod attention;
pub(super) mod bands;
pub(super) mod bands_filters;
pub(super) mod candidates;
pub(super) mod depthwise;
pub(super) mod depthwise_filters;
pub(super) mod depthwise_lines;
pub(super) mod direct;
pub(super) mod gemv;
pub(super) mod groups;
pub(super) mod name;
pub(super) mod patches;
pub(super) mod pointwise;
pub(super) mod pool;
pub(super) mod rows;
mod rows_parts;
pub(super) mod rules;
pub(super) mod scaled;
pub(super) mod simt;
pub(super) mod sm80;
pub(super) mod sm90a;
pub(super) mod table;
mod tall;
pub(super) mod tile;
