constexpr int SLABS = WARP_M / SLAB_ROWS;

// A lane's row of a slab, and its first strip.
struct LanePlace { int lane, line, row, column; };

DEVICE void visit_whole_strips(const Params& p, const TileOrigin& tile, const Accum (&acc)[TILES_M][2 * PAIRS_N][4], Accum* slab,
                               const LanePlace& at) {
    // A lane without a strip loads what another one has, and stores nothing.
    const bool exists = at.column < p.n;
    const int existing = exists ? at.column : 0, first_row = exists ? at.row : p.m;
    const Params within = inside(p);
    auto strip_of = [&](int row) {
        const Strip strip{row, existing};
        __builtin_assume(strip.row >= 0);
        __builtin_assume(within.n - strip.column >= STRIP);
        __builtin_assume(strip.column + (STRIP - 1) < within.n);
        return strip;
    };
    const TileValues values = epilogue_begin(p, tile.batch);
    ColumnValues columns = epilogue_column(within, values, strip_of(first_row));
    RowValues rows[2][SLAB_VISITS];
    Fetched fetched[2][SLAB_VISITS];
    auto fetch = [&](int index) {
#pragma unroll
        for (int i = 0; i < SLAB_VISITS; ++i) {
            const Strip strip = strip_of(min(at.row + index * SLAB_ROWS + i * VISIT_ROWS, p.m - 1));
            assume<true>(within, strip);
            rows[index % 2][i] = epilogue_row(within, values, strip);
            fetched[index % 2][i] = epilogue_fetch(within, values, strip);
        }
    };
    fetch(0);
#pragma unroll
    for (int index = 0; index < SLABS; ++index) {
        __syncwarp();   // the lanes have read what lay in the slab
        store_slab(slab, at.lane, index, acc);
        // A load can't pass a store that may write what it reads.
        if (index + 1 < SLABS) fetch(index + 1);
        __syncwarp();
#pragma unroll
        for (int i = 0; i < SLAB_VISITS; ++i) {
            const Strip strip = strip_of(first_row + index * SLAB_ROWS + i * VISIT_ROWS);
            Accum elements[STRIP];
            load_strip(elements, slab, i * VISIT_ROWS + at.line, at.lane % LANES);
            epilogue_visit(within, values, columns, rows[index % 2][i], fetched[index % 2][i], strip, elements);
            epilogue_row_end(within, values, rows[index % 2][i], strip);
        }
    }
    epilogue_column_end(p, values, columns, {at.row, at.column});
    if constexpr (EPILOGUE_SMEM > 0) __syncthreads();   // all parts of reductions are there
    epilogue_end(p, values, tile);
}
