// ---- mainloop: pointwise. The accumulator is a matrix in memory; memory bandwidth is the limit ----
//
// A block owns a BM x BN tile. A thread keeps its strip of columns for the whole tile and goes down the rows, several at a
// time: all loads of a pass are in flight before its first visit. BM, BN are powers of two, and THREADS is a multiple of BN /
// STRIP.
{% if parts > 1 %}//
// The accumulator is the sum of PARTS matrices, `batch_stride_a` apart and always added in their order.
constexpr int PARTS = {{ parts }};
{% endif %}namespace pointwise {

constexpr int STRIPS = BN / STRIP;                                 // of a row; one a thread
constexpr int ROWS_AT_ONCE = THREADS / STRIPS;
constexpr int VISITS = {% if pool %}BM < ROWS_AT_ONCE ? 1 : {% endif %}BM / ROWS_AT_ONCE;
{% if pool %}constexpr int PASS_LIMIT = 1;                            // a window is many loads
{% elif parts > 1 %}constexpr int PASS_LIMIT = visits_together(PARTS < 4 ? 2 : 1);
constexpr int TOGETHER = PARTS < 8 ? PARTS : 8;                 // parts whose loads are in flight together
{% else %}constexpr int PASS_LIMIT = visits_together(STRIP >= 4 ? 32 / STRIP : 8);
{% endif %}constexpr int PASS = VISITS < PASS_LIMIT ? VISITS : PASS_LIMIT; // visits whose loads are in flight together

static_assert(BN % STRIP == 0 && THREADS % STRIPS == 0, "one strip a thread");
static_assert({% if not pool %}BM % ROWS_AT_ONCE == 0 && {% endif %}VISITS % PASS == 0, "whole passes cover the tile");

// Tiles of so many rows have code of their own where they lie inside of the matrix.
constexpr bool IS_TALL = BM >= 64;

{% include "mainloop/existing.cuh" %}{% include "mainloop/inside.cuh" %}
{%- if pool %}{% include "mainloop/pool.cuh" %}{% endif %}
{%- if parts > 1 %}// The sum over the parts, in groups. The loads of a group are in flight together, wide or element by element.
DEVICE void load_sum(Vector (&sum)[VECTORS], const Element* from, i64 column_distance, i64 part_distance, int left) {
#pragma unroll 1
    for (int group = 0; group < PARTS; group += TOGETHER) {
        Vector parts[TOGETHER][VECTORS];
        if (left >= STRIP) {
#pragma unroll
            for (int i = 0; i < TOGETHER; ++i)
                if (PARTS % TOGETHER == 0 || group + i < PARTS)
                    load(parts[i], from + (group + i) * part_distance, column_distance, STRIP);
        } else {
#pragma unroll
            for (int i = 0; i < TOGETHER; ++i)
                if (PARTS % TOGETHER == 0 || group + i < PARTS)
                    load(parts[i], from + (group + i) * part_distance, column_distance, left);
        }
#pragma unroll
        for (int i = 0; i < TOGETHER; ++i) {
            if (PARTS % TOGETHER != 0 && group + i >= PARTS) break;
#pragma unroll
            for (int e = 0; e < STRIP; ++e) {
                Element& element = sum[e / WIDTH].elements[e % WIDTH];
                const Element part = parts[i][e / WIDTH].elements[e % WIDTH];
                element = group + i == 0 ? part : element + part;
            }
        }
    }
}

{% endif %}// INSIDE: the whole tile lies inside of the matrix.
template <bool INSIDE> DEVICE void visit(const Params& p, const TileValues& tile, int batch, int first, int column) {
    const Element* const accumulator =
        static_cast<const Element*>(p.a) + batch * p.batch_stride_a{% if packed_accumulator %} / 8{% endif %};
{% if not packed_accumulator %}    const i64 row_distance = ACC_ROW_MAJOR ? p.lda : 1;
    const i64 column_distance = ACC_ROW_MAJOR ? 1 : p.lda;
{% endif %}{% if pool %}    const int top = first;
{% endif %}    first += threadIdx.x / STRIPS;
    column += threadIdx.x % STRIPS * STRIP;
    ColumnValues columns = epilogue_column(p, tile, {first, column});

#pragma unroll 1
    for (int v = 0; v < VISITS; v += PASS) {
        RowValues rows[PASS];
        Fetched fetched[PASS];
{% if pool %}        Pool pooled[PASS];
{% else %}        Vector raw[PASS]{% if not packed_accumulator %}[VECTORS]{% endif %};
{% endif %}#pragma unroll
        for (int i = 0; i < PASS; ++i) {
            const int row = {% if pool %}row_of(p, top, v + i){% else %}first + (v + i) * ROWS_AT_ONCE{% endif %};
            assume<INSIDE>(p, {row, column});
{% if pool %}{% if reads_accumulator %}            pool(pooled[i], p, accumulator, top + (v + i) * ROWS_AT_ONCE, row, column);
{% endif %}{# -#}
{% elif not reads_accumulator %}            raw[i]{% if not packed_accumulator %}[0]{% endif %} = {};   // there may be no matrix
{% elif parts > 1 %}            load_sum(raw[i], accumulator + row * row_distance + column * column_distance, column_distance,
                     p.batch_stride_a, row < p.m ? p.n - column : 0);
{% elif packed_accumulator %}            read_matrix<0, ACC_ROW_MAJOR>(
                raw[i], {row, column}, accumulator, p.lda, p.m, p.n, false);
{% else %}            load(raw[i], accumulator + row * row_distance + column * column_distance, column_distance,
                 row < p.m ? p.n - column : 0);
{% endif %}            rows[i] = epilogue_row(p, tile, {row, column});
            fetched[i] = epilogue_fetch(p, tile, {row, column});
        }
#pragma unroll
        for (int i = 0; i < PASS; ++i) {
            const int row = {% if pool %}row_of(p, top, v + i){% else %}first + (v + i) * ROWS_AT_ONCE{% endif %};
            assume<INSIDE>(p, {row, column});
            Accum acc[STRIP];
#pragma unroll
            for (int e = 0; e < STRIP; ++e)
                acc[e] = {% if pool %}{% if reads_accumulator %}pooled[i].values[e]{% else %}0{% endif %};
{% else %}widen({% if packed_accumulator %}raw[i].elements[e]
                               {% else %}raw[i][e / WIDTH].elements[e % WIDTH]{% endif %});
{% endif %}            epilogue_visit(p, tile, columns, rows[i], fetched[i], {row, column}, acc);
            epilogue_row_end(p, tile, rows[i], {row, column});
        }
    }
    epilogue_column_end(p, tile, columns, {first, column});
}

} // namespace pointwise

extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS) postlude_kernel(const __grid_constant__ Params p) {
    begin_early();
    const TileOrigin tile = locate(p);
    if (tile.batch >= p.batch) return;
    const TileValues values = epilogue_begin(p, tile.batch);
    if (pointwise::IS_TALL && tile.row + BM <= p.m && tile.column + BN <= p.n && pointwise::is_wide(p))
        pointwise::visit<pointwise::IS_TALL>(pointwise::inside(p), values, tile.batch, tile.row, tile.column);
    else pointwise::visit<false>(p, values, tile.batch, tile.row, tile.column);
    if constexpr (EPILOGUE_SMEM > 0) __syncthreads();
    epilogue_end(p, values, tile);
}
