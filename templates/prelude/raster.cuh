// ---- raster: which tile of the output a block computes ----
struct TileOrigin { int row, column, batch; };

// One block a tile: blockIdx.x counts the tiles of a batch entry, the other two dimensions the entries, of which the last may not
// exist. Tiles go in groups of p.raster tile rows, column by column inside a group: blocks that run together share operands in L2.
DEVICE TileOrigin locate(const Params& p) {
    const u32 tiles_m = u32(p.m - 1) / BM + 1, tiles_n = u32(p.n - 1) / BN + 1;
    const u32 per_group = p.raster * tiles_n, first = blockIdx.x / per_group * p.raster, inside = blockIdx.x % per_group;
    const u32 height = tiles_m - first < u32(p.raster) ? tiles_m - first : p.raster;
    return {int((first + inside % height) * BM), int(inside / height * BN), int(blockIdx.z * gridDim.y + blockIdx.y)};
}
