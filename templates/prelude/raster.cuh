// ---- raster: which tile of the output a block computes ----
struct TileOrigin { int row, column, batch; };

// Tiles of one matrix. Every tile has elements of its own in memory, so 32 bits count them.
DEVICE u32 tile_count(const Params& p) { return (u32(p.m - 1) / BM + 1) * (u32(p.n - 1) / BN + 1); }

// Tiles in groups of p.raster tile rows, column by column inside a group: blocks that run together share operands in L2.
DEVICE TileOrigin locate(const Params& p, u32 index, u32 batch) {
    const u32 tiles_m = u32(p.m - 1) / BM + 1, tiles_n = u32(p.n - 1) / BN + 1;
    const u32 per_group = p.raster * tiles_n, first = index / per_group * p.raster, inside = index % per_group;
    const u32 height = tiles_m - first < u32(p.raster) ? tiles_m - first : p.raster;
    return {int((first + inside % height) * BM), int(inside / height * BN), int(batch)};
}
