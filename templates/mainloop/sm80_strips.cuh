// ---- from accumulators to strips ----
// No thread needs what lies where the slabs are, once all of the block have met.
// Each warp passes its part through its own slab of shared memory, so that a thread owns STRIP consecutive columns and the
// lanes of a warp are adjacent. If the mainloop's memory has room for the parts of all warps, the slab holds the whole part,
// which frees the accumulators' registers for the epilogue. Otherwise it holds a power-of-two fraction of the rows at a time.
constexpr int SLAB_PITCH = WARP_N + 8;   // words from row to row: four rows of fragments fall into different banks
static_assert(WARPS * SLAB_ROWS * SLAB_PITCH * 4 <= MAINLOOP_SMEM, "the plan made room for slabs");
constexpr int STRIPS = WARP_N / STRIP, LANES = STRIPS < 32 ? STRIPS : 32;   // strips in a row of the slab, lanes along it
constexpr int GROUPS = STRIPS / LANES;                                      // strips of one lane in a row
constexpr int VISIT_ROWS = 32 / LANES, VISITS = WARP_M / VISIT_ROWS;        // rows that a warp visits at a time, and how often
constexpr int SLAB_VISITS = SLAB_ROWS / VISIT_ROWS;
{% if mainloop == "bands" -%}
// If matrices are aligned and no strip is cut, a strip exists or does not. Unless the epilogue is long, such tiles have code of
// their own for it: nothing branches, and accumulators leave their registers slab by slab.
constexpr bool HAS_WHOLE_STRIPS = GROUPS == 1 && visits_together(VISITS) == VISITS;
{% endif -%}
// Visits fetched together: four hide the latency of matrix loads. Without such loads two are enough, with half the code.
constexpr int MOST_AHEAD = {% if mainloop == "bands" %}HAS_WHOLE_STRIPS ? 1 : {% endif %}{# -#}
    visits_together(__is_empty(Fetched) ? 2 : 4);
constexpr int AHEAD = SLAB_VISITS < MOST_AHEAD ? SLAB_VISITS : MOST_AHEAD;
static_assert(WARP_M % SLAB_ROWS == 0 && SLAB_VISITS % AHEAD == 0, "slabs take a warp's part, and are visited in whole batches");

// Strips of eight are read in two halves of 16 bytes. All first halves of a row are contiguous, then all second halves, so that
// adjacent lanes read adjacent 16 bytes. The gap of four words keeps the fragments' writes free of bank conflicts.
constexpr int SECOND_HALVES = WARP_N / 2 + 4;
DEVICE constexpr int slab_word(int column) {
    return STRIP == 8 ? (column >> 2 & 1) * SECOND_HALVES + (column >> 3) * 4 + (column & 3) : column;
}

DEVICE void store_slab(Accum* slab, int lane, int index, const Accum (&acc)[TILES_M][2 * PAIRS_N][4]) {
    Accum* to = slab + lane / 4 * SLAB_PITCH + slab_word(lane % 4 * 2);
#pragma unroll
    for (int i = 0; i < TILES_M; ++i) {
        if (i * 16 / SLAB_ROWS != index) continue;
#pragma unroll
        for (int j = 0; j < 2 * PAIRS_N; ++j)
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                Raw<Accum, 2> pair;
                pair.elements[0] = acc[i][j][2 * half];
                pair.elements[1] = acc[i][j][2 * half + 1];
                store_wide(to + (i * 16 % SLAB_ROWS + half * 8) * SLAB_PITCH + slab_word(j * 8), pair);
            }
    }
}
DEVICE void load_strip(Accum (&strip)[STRIP], const Accum* slab, int row, int index) {
    constexpr int PIECE = STRIP < 4 ? STRIP : 4;
#pragma unroll
    for (int i = 0; i < STRIP / PIECE; ++i) {
        Raw<Accum, PIECE> piece;
        load_wide(piece, slab + row * SLAB_PITCH + (STRIP == 8 ? i * SECOND_HALVES + index * 4 : index * STRIP));
#pragma unroll
        for (int j = 0; j < PIECE; ++j) strip[i * PIECE + j] = piece.elements[j];
    }
}

{% if mainloop == "bands" %}{% include "mainloop/inside.cuh" %}
{% include "mainloop/band_strips.cuh" %}
{% endif -%}
DEVICE void run_epilogue(const Params& p, const TileOrigin& tile, const Accum (&acc)[TILES_M][2 * PAIRS_N][4], u8* slabs) {
    const int thread = thread_of_block(), lane = thread & 31, warp = thread >> 5;
    // If eight lanes' reads span two rows, these are two apart instead of one, so that they fall into different banks.
    const int line = lane / LANES, offset = STRIP == 8 && LANES == 4 ? (line & 1) << 1 | (line >> 1 & 1) | (line & 4) : line;
    const int first_row = tile.row + warp / WARPS_N * WARP_M + offset;
    const int first_column = tile.column + warp % WARPS_N * WARP_N + lane % LANES * STRIP;
    Accum* slab = reinterpret_cast<Accum*>(slabs) + warp * SLAB_ROWS * SLAB_PITCH;
{% if mainloop == "bands" %}    if (HAS_WHOLE_STRIPS && p.n % STRIP == 0 && is_wide(p)) {
        visit_whole_strips(p, tile, acc, slab, {lane, offset, first_row, first_column});
        return;
    }
{% endif %}
    const TileValues values = epilogue_begin(p, tile.batch);
    ColumnValues columns[GROUPS];
#pragma unroll
    for (int g = 0; g < GROUPS; ++g) columns[g] = epilogue_column(p, values, {first_row, first_column + g * LANES * STRIP});

    // Loads of later visits are issued before the first wait for shared memory.
    struct Batch {
        RowValues rows[AHEAD];
        Fetched fetched[AHEAD][GROUPS];
    } next;
    auto fetch = [&](int visit) {
#pragma unroll
        for (int i = 0; i < AHEAD; ++i) {
            const int row = {% if residues %}pixel_of(p, first_row + (visit + i) * VISIT_ROWS){# -#}
                {% elif attention %}query_at(p, tile, first_row + (visit + i) * VISIT_ROWS){# -#}
                {% else %}first_row + (visit + i) * VISIT_ROWS{% endif %};
            next.rows[i] = epilogue_row(p, values, {row, first_column});
#pragma unroll
            for (int g = 0; g < GROUPS; ++g)
                next.fetched[i][g] = epilogue_fetch(p, values, {row, first_column + g * LANES * STRIP});
        }
    };
    fetch(0);
    __syncthreads();   // the slabs may overlay the operands
    if constexpr (SLAB_ROWS == WARP_M) {
        store_slab(slab, lane, 0, acc);
        __syncwarp();
    }
#pragma unroll 1
    for (int visit = 0; visit < VISITS; visit += AHEAD) {
        if constexpr (SLAB_ROWS != WARP_M) {
            if (visit % SLAB_VISITS == 0) {
                __syncwarp();
                store_slab(slab, lane, visit / SLAB_VISITS, acc);
                __syncwarp();
            }
        }
        Batch now = next;
        if (visit + AHEAD < VISITS) fetch(visit + AHEAD);
#pragma unroll
        for (int i = 0; i < AHEAD; ++i) {
            const int row = {% if residues %}pixel_of(p, first_row + (visit + i) * VISIT_ROWS){# -#}
                {% elif attention %}query_at(p, tile, first_row + (visit + i) * VISIT_ROWS){# -#}
                {% else %}first_row + (visit + i) * VISIT_ROWS{% endif %};
#pragma unroll
            for (int g = 0; g < GROUPS; ++g) {
                Accum strip[STRIP];
                load_strip(strip, slab, ((visit + i) * VISIT_ROWS) % SLAB_ROWS + offset, lane % LANES + g * LANES);
                epilogue_visit(p, values, columns[g], now.rows[i], now.fetched[i][g],
                               {row, first_column + g * LANES * STRIP}, strip);
            }
            epilogue_row_end(p, values, now.rows[i], {row, first_column});
        }
    }
#pragma unroll
    for (int g = 0; g < GROUPS; ++g) epilogue_column_end(p, values, columns[g], {first_row, first_column + g * LANES * STRIP});
    if constexpr (EPILOGUE_SMEM > 0) __syncthreads();   // the slabs are free
    epilogue_end(p, values, tile);
}
