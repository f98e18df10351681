// ---- raster: which tile of the output a block computes ----
struct TileOrigin { int row, column, batch; };

// Number `index` of an `across` x `along` grid of tiles, in groups of `group` lines, one group after the other: tiles that are
// computed at the same time share operands in L2.
DEVICE void place_in_groups(u32 index, u32 across, u32 along, u32 group, u32& a, u32& b) {
    const u32 per_group = group * along, first = index / per_group * group, inside = index % per_group;
    const u32 height = across - first < group ? across - first : group;
    a = first + inside % height;
    b = inside / height;
}
// Row and column of a tile in the order of the raster: groups of p.raster rows, or of -p.raster columns.
DEVICE void place_tile(const Params& p, u32 index, u32 rows, u32 columns, u32& row, u32& column) {
    const bool by_rows = p.raster > 0;   // one piece of code for both, because divisions are long
    u32 a, b;
    place_in_groups(index, by_rows ? rows : columns, by_rows ? columns : rows, by_rows ? p.raster : -p.raster, a, b);
    row = by_rows ? a : b;
    column = by_rows ? b : a;
}
// One block or cluster for each tile: blockIdx.x counts the tiles of a batch entry, and the other two dimensions the entries.
// The last entries may not exist.
DEVICE TileOrigin locate(const Params& p, u32 index) {
    u32 row, column;
    place_tile(p, index, u32(p.m - 1) / BM + 1, u32(p.n - 1) / BN + 1, row, column);
    return {int(row * BM), int(column * BN), int(blockIdx.z * gridDim.y + blockIdx.y)};
}
{% if backwards %}// What the kernel before this one has read last comes first.
DEVICE TileOrigin locate(const Params& p) {
    TileOrigin tile = locate(p, gridDim.x - 1 - blockIdx.x);
    if (tile.batch < p.batch) tile.batch = p.batch - 1 - tile.batch;
    return tile;
}
{% else %}DEVICE TileOrigin locate(const Params& p) { return locate(p, blockIdx.x); }
{% endif %}