//! The order of the tiles: in groups that share operands in the level-2 cache.

use super::choice::Request;
use super::{Tile, TileShape};

/// Where it makes no difference: measured flat from 2 to 64 on an H200 with `sm80` (8192^3) and `simt` (16384 x 16384 x 512).
const DEFAULT: i32 = 8;

/// What a group's rows of A may take of the level-2 cache, in bytes, and the fewest and the most rows. On an H200 what is
/// fetched twice costs power, and so clock: groups of half as many rows, or twice as many, were 1 to 4 % slower in long
/// slices, at K from 1024 to 8192 (`docs/performance.md`).
const BYTES: usize = 16 << 20;
const ROWS: (usize, usize) = (2048, 8192);

/// The group height of a tile: see [`Gemm::raster`](crate::Gemm::raster).
pub(super) fn group(tile: &Tile, request: &Request<'_>) -> i32 {
    match (request.preferences.raster, tile.shape) {
        (Some(group), _) => group.get(),
        (None, TileShape::Sm90a { cluster: [cluster, _], .. }) => {
            let (shape, size) = (request.shape, request.operation.dtype().size());
            let rows = (BYTES / (shape.k * size).max(1)).clamp(ROWS.0, ROWS.1);
            // Equal groups: a low one at the end would fetch B for little.
            let tiles = shape.m.div_ceil(tile.bm * cluster).max(1);
            let groups = tiles.div_ceil((rows / (tile.bm * cluster)).max(1));
            tiles.div_ceil(groups) as i32
        }
        (None, _) => DEFAULT,
    }
}
