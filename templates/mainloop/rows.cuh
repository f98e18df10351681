// ---- mainloop: rows. The accumulator is a matrix in memory, and the epilogue uses the results of its rows' reductions ----
//
// GROUP threads share a row, SPAN columns of it at a time, each thread VISITS strips. A block has AT_ONCE * TOGETHER rows.
{% if whole %}// A tile is a whole matrix, because something is reduced over all of it.
{% endif %}{# -#}
{% if holds_rows %}// The threads hold a row in the format of memory, and every stage starts from there: memory is read once.
{% elif whole %}// It is larger than the threads can hold, so each stage reads it again.
{% else %}// A row is longer than the threads can hold, so each stage reads it again.
{% endif %}//
namespace rows {

constexpr int AT_ONCE = THREADS / GROUP, STEP = GROUP * STRIP, VISITS = SPAN / STEP;
// Strips whose vectors are loaded ahead. With one, loops stay rolled where a matrix is loaded. With two, edges lack registers.
template <bool INSIDE> constexpr int FORESIGHT = VISITS < 2 ? VISITS : {% if fetches %}2{% else %}INSIDE ? 2 : 1{% endif %};
constexpr int BATCH = AT_ONCE * TOGETHER;   // rows that a block has at a time

static_assert(THREADS % GROUP == 0 && SPAN % STEP == 0 && BN % SPAN == 0, "groups of threads cover rows in whole strips");
static_assert(BM % BATCH == 0, "a tile has whole batches of rows");

{% include "mainloop/held.cuh" %}{% if copies -%}
constexpr int PLACES = DEPTH * TOGETHER * VISITS * THREADS;   // of batches on their way
static_assert(AT_KEPT + PLACES * STRIP * BYTES <= MAINLOOP_SMEM, "the plan made room for batches on their way");
{% include "mainloop/kept.cuh" %}
// Each thread copies what it reads itself.
DEVICE int place_of(int stage, int i, int v) { return ((stage * TOGETHER + i) * VISITS + v) * THREADS + int(threadIdx.x); }
DEVICE void copy_batch(const Sources (&from)[TOGETHER], int stage) {
#pragma unroll
    for (int i = 0; i < TOGETHER; ++i)
#pragma unroll
        for (int v = 0; v < VISITS; ++v) copy_strip(from[i], v * STEP, place_of(stage, i, v));
}

{% endif %}{% if label_apart -%}
// Shows the strip that has a row's label to one of its threads, behind all other strips.
template <class VISIT> DEVICE void visit_label(
    const Params& p, const TileValues& t, const Held& held, const RowValues& r, const Strip& first, VISIT visit) {
    const u32 distance = epilogue_label(p, t, r) - u32(first.column), v = distance / u32(STEP);
    if (distance % u32(STEP) >= u32(STRIP) || v >= u32(VISITS)) return;
    Accum acc[STRIP];
    Fetched f;
    held.copy_strip(acc, f, int(v));
    const Strip s{first.row, first.column + int(v) * STEP};
    ColumnValues c = epilogue_column(p, t, s);
    visit(c, f, s, acc);
}

{% endif %}{% if holds_rows %}// The first row of a tile's batch.{% if interleaves %}
// Blocks take batches in turns: together they go through memory.{% endif %}
DEVICE int row_of(const Params& p, const TileOrigin& tile, int batch) {
{% if interleaves %}    return tile.row / BM * BATCH + batch * ((p.m + (BM - 1)) / BM);
{% else %}    return tile.row + batch;
{% endif %}}
// Whether each batch of a tile lies inside of the matrix{% if interleaves %}, or none of its rows does{% endif %}.
DEVICE bool has_whole_batches(const Params& p, const TileOrigin& tile) {
{% if interleaves %}    return p.m % BATCH == 0 || p.m / BATCH % ((p.m + (BM - 1)) / BM) != tile.row / BM;
{% else %}    return tile.row + BM <= p.m;
{% endif %}}

// INSIDE: the whole tile lies inside of the matrix.
template <bool INSIDE> {% endif %}DEVICE void visit(const Params& p, const TileValues& t, const TileOrigin& tile) {
    // Without a sign, so that compilers know that strips of one row are constants apart.
    const int first = GROUP == THREADS ? 0 : int(threadIdx.x / u32(GROUP));
{% if cluster_size > 1 %}    begin_arrivals(arrivals());
    int of_block = int(blockIdx.x % u32(CLUSTER)) * SPAN;
    asm volatile("" : "+r"(of_block));   // else its bits are put into the strips' one by one
    __builtin_assume(of_block >= 0 && of_block < BN);
{% endif %}    const int lane = {% if bands %}tile.column + {% endif %}{% if cluster_size > 1 %}of_block + {% endif %}{# -#}
        int(threadIdx.x % u32(GROUP)) * STRIP;
    int turn = 0;
{% if copies %}    constexpr bool COPIED = INSIDE && COPIES;
{% elif keeps_sums %}    constexpr bool COPIED = false;
{% endif %}{% if whole %}    const int width = {% if bands %}min(BN, p.n - tile.column){% else %}p.n{% endif %};
{% endif %}{% if holds_rows %}{% if keeps_sums %}#pragma unroll
    for (int v = 0; v < VISITS; ++v) {
        ColumnValues c = epilogue_column(p, t, {tile.row + first, lane + v * STEP});
        move_sums<true>(c, v);
    }
{% elif reductions %}    ColumnValues columns[VISITS];   // only their sums are kept
#pragma unroll
    for (int v = 0; v < VISITS; ++v) columns[v] = epilogue_column(p, t, {tile.row + first, lane + v * STEP});
{% endif %}{% if keeps_sums %}    Held held[TOGETHER];   // where a strip has been visited the next row's is loaded
    if constexpr (!COPIED) {
#pragma unroll
        for (int i = 0; i < TOGETHER; ++i) held[i].read<INSIDE>(p, t, {row_of(p, tile, 0) + i * AT_ONCE + first, lane});
    }
{% else %}    Held next[AHEAD ? TOGETHER : 1];   // loads in flight
{% endif %}{% if copies %}    Sources from[TOGETHER];
    const int apart = row_of(p, tile, BATCH) - row_of(p, tile, 0);   // from batch to batch
    int stage = 0;
{% if not keeps_sums %}    FetchedColumns vectors[VISITS];   // of all rows
{% endif %}    if constexpr (COPIED) {
{% if not keeps_sums %}#pragma unroll
        for (int v = 0; v < VISITS; ++v) vectors[v] = epilogue_fetch_columns(p, t, {tile.row + first, lane + v * STEP});
{% endif %}#pragma unroll
        for (int i = 0; i < TOGETHER; ++i) from[i] = {p, t, {row_of(p, tile, 0) + i * AT_ONCE + first, lane}};
#pragma unroll
        for (int d = 0; d < DEPTH; ++d) {
            if (d * BATCH < BM && row_of(p, tile, d * BATCH) < p.m) copy_batch(from, d);
            copy_async_commit();
#pragma unroll
            for (int i = 0; i < TOGETHER; ++i) from[i].advance(p, apart);
        }
    }
{% endif %}{% if copies or not keeps_sums %}    {# -#}
    constexpr bool LOADS_ROWS = {% if copies %}COPIED || {% endif %}{% if keeps_sums %}false{% else %}AHEAD{% endif %};
    RowValues next_rows[LOADS_ROWS ? TOGETHER : 1];
    if constexpr (LOADS_ROWS) {   // without braces NVRTC 13.0 drops what is behind the pragma
#pragma unroll
        for (int i = 0; i < TOGETHER; ++i) {
            const Strip s{row_of(p, tile, 0) + i * AT_ONCE + first, lane};
{% if not keeps_sums %}            {% if copies %}if constexpr (!COPIED) {% endif %}next[i].read<INSIDE>(p, t, s);
{% endif %}            next_rows[i] = epilogue_row(p, t, s);
        }
    }
{% endif -%}
#pragma unroll 1
    for (int batch = 0; batch < BM && row_of(p, tile, batch) < p.m; batch += BATCH) {
        const int row_of_batch = row_of(p, tile, batch);
        const auto strip = [&](int i, int v) { return Strip{row_of_batch + i * AT_ONCE + first, lane + v * STEP}; };
{% if copies and not keeps_sums %}        const auto fetched = [&](int v) {
            if constexpr (COPIED) return vectors[v];
            else return epilogue_fetch_columns(p, t, strip(0, v));
        };
{% endif %}{% if not keeps_sums %}        Held held[TOGETHER];
{% endif %}        RowValues rows[TOGETHER];
#pragma unroll
        for (int i = 0; i < TOGETHER; ++i) {
            const Strip s{row_of_batch + i * AT_ONCE + first, lane};
            if constexpr (INSIDE) __builtin_assume(s.row < p.m);
{% if copies %}            if constexpr (COPIED) {
                if (i == 0) copy_async_wait<DEPTH - 1>();
#pragma unroll
                for (int v = 0; v < VISITS; ++v) recall(held[i], v, place_of(stage, i, v));
                rows[i] = next_rows[i];
                continue;
            }
{% endif %}{% if not keeps_sums %}            if constexpr (AHEAD) {
                held[i] = next[i];
                rows[i] = next_rows[i];
                continue;
            }
            held[i].read<INSIDE>(p, t, s);
{% endif %}            rows[i] = epilogue_row(p, t, s);
        }
{% if copies or not keeps_sums %}        if constexpr (LOADS_ROWS) {
#pragma unroll
            for (int i = 0; i < TOGETHER; ++i) {
                const int behind = batch + BATCH < BM ? row_of(p, tile, batch + BATCH) : row_of_batch;
                const Strip s{(behind < p.m ? behind : row_of_batch) + i * AT_ONCE + first, lane};   // behind the last any
{% if not keeps_sums %}                {% if copies %}if constexpr (!COPIED) {% endif %}next[i].read<INSIDE>(p, t, s);
{% endif %}                next_rows[i] = epilogue_row(p, t, s);
            }
        }
{% endif -%}
{% for stage in stages %}{% for step in stage.steps %}{% if step.extremes %}        {# -#}
        // What the stage takes follows the elements' order.
        constexpr bool TAKES_EXTREMES_{{ stage.number }} = INSIDE && Pairs<Element>::EXIST && sizeof(Vector) % 4 == 0;
        if constexpr (TAKES_EXTREMES_{{ stage.number }}) {
#pragma unroll
            for (int i = 0; i < TOGETHER; ++i) {
                const Strip s = strip(i, 0);
                Accum acc[STRIP];
                held[i].template extremes<Element>(acc);
                ColumnValues c = epilogue_column(p, t, s);
                {{ step.name }}(p, t, c, rows[i], held[i].fetched[0], s, acc);
            }
        }
{% endif %}#pragma unroll
        for (int v = 0; v < VISITS; ++v) {
{% if step.extremes %}            if (TAKES_EXTREMES_{{ stage.number }}) break;
{% endif %}            if (!INSIDE && {% if bands %}tile.column + {% endif %}v * STEP >= p.n) break;
            ColumnValues c = epilogue_column(p, t, strip(0, v){% if copies and not keeps_sums %}, fetched(v){% endif %});
#pragma unroll
            for (int i = 0; i < TOGETHER; ++i) {
                const Strip s = strip(i, v);
                assume<INSIDE>(p, s);
                Accum acc[STRIP];
                held[i].widen_strip(acc, v);
                {{ step.name }}(p, t, c, rows[i], held[i].fetched[v], s, acc);
            }
        }
{% if not step.last %}        {% if step.extremes %}if constexpr (!TAKES_EXTREMES_{{ stage.number }}) {% endif %}{
#pragma unroll
            for (int i = 0; i < TOGETHER; ++i) held[i].disguise(u32(p.batch) >> 31);
        }
{% endif %}{% endfor -%}
{% if stage.has_label %}#pragma unroll
        for (int i = 0; i < TOGETHER; ++i)
            visit_label(p, t, held[i], rows[i], strip(i, 0),
                        [&](ColumnValues& c, const Fetched& f, const Strip& s, const Accum (&acc)[STRIP]) {
                            epilogue_take_label_{{ stage.number }}(p, t, c, rows[i], f, s, acc);
                        });
{% endif %}{% if stage.whole %}        epilogue_combine_{{ stage.number }}(p, width, rows, turn);
{% endif %}{% if cluster_size > 1 and stage.number == 1 %}        {# -#}
        {% if reductions %}if (batch == 0) {% endif %}wait_for_cluster();   // all of its blocks have started
{% endif %}{% if copies and loop.first %}        if constexpr (COPIED) {   // its strips are in registers by now
            const int behind = batch + DEPTH * BATCH;
            if (behind < BM && row_of(p, tile, behind) < p.m) copy_batch(from, stage);
            copy_async_commit();
#pragma unroll
            for (int i = 0; i < TOGETHER; ++i) from[i].advance(p, apart);
            stage = stage + 1 == DEPTH ? 0 : stage + 1;
        }
{% endif %}{% if loop.last %}        FetchedColumns ahead[VISITS];   // a load can't pass a store, which might write what it reads
#pragma unroll
        for (int v = 0; v < FORESIGHT<INSIDE>; ++v) ahead[v] = {# -#}
            {% if copies and not keeps_sums %}fetched(v){% else %}epilogue_fetch_columns(p, t, strip(0, v)){% endif %};
{% endif %}#pragma unroll
        for (int i = 0; i < TOGETHER; ++i) epilogue_reduce_{{ stage.number }}(p, t, rows[i], strip(i, 0), turn);
{% if renews %}#pragma unroll
        for (int i = 0; i < TOGETHER; ++i) held[i].renewed();
{% endif %}{% endfor %}#pragma unroll
        for (int v = 0; v < VISITS; ++v) {
            if (!INSIDE && {% if bands %}tile.column + {% endif %}v * STEP >= p.n) break;
            ColumnValues c = epilogue_column(p, t, strip(0, v), ahead[v]);
            if (v + FORESIGHT<INSIDE> < VISITS) {# -#}
                ahead[v + FORESIGHT<INSIDE>] = {% if copies and not keeps_sums %}fetched(v + FORESIGHT<INSIDE>){% else %}{# -#}
                    epilogue_fetch_columns(p, t, strip(0, v + FORESIGHT<INSIDE>)){% endif %};
{% if keeps_sums %}            move_sums<false>(c, v);
{% elif reductions %}            carry_sums(c, columns[v]);
{% endif %}#pragma unroll
            for (int i = 0; i < TOGETHER; ++i) {
                const Strip s = strip(i, v);
                assume<INSIDE>(p, s);
                Accum acc[STRIP];
                held[i].widen_strip(acc, v);
                epilogue_visit{% if visits_label_again %}<false>{% endif %}{# -#}
                    (p, t, c, rows[i], held[i].fetched[v], s, acc);
            }
{% if keeps_sums %}            move_sums<true>(c, v);
            if constexpr (!COPIED) {
#pragma unroll
                for (int i = 0; i < TOGETHER; ++i) {
                    const int behind = batch + (TOGETHER + i) * AT_ONCE;
                    held[i].read<INSIDE>(p, t, {tile.row + first + (behind < BM ? behind : batch), lane}, v, v + 1);
                }
            }
{% elif reductions %}            carry_sums(columns[v], c);
{% endif %}        }
#pragma unroll
        for (int i = 0; i < TOGETHER; ++i) {
            const int row = strip(i, 0).row;
{% if visits_label_again %}            visit_label(p, t, held[i], rows[i], {row, lane},
                        [&](ColumnValues& c, const Fetched& f, const Strip& s, const Accum (&acc)[STRIP]) {
                            epilogue_visit<true>(p, t, c, rows[i], f, s, acc);
                        });
{% endif %}            if (lane == {% if bands %}tile.column{% else %}0{% endif %}) {# -#}
                epilogue_store_row(p, t, rows[i], {row, lane});
            epilogue_row_end(p, t, rows[i], {row, lane});
        }
    }
{% if keeps_sums %}    ColumnValues columns[VISITS];
#pragma unroll
    for (int v = 0; v < VISITS; ++v) move_sums<false>(columns[v], v);
    __syncthreads();   // parts lie in the same memory
{% endif %}{% if reductions %}#pragma unroll
    for (int v = 0; v < VISITS; ++v) epilogue_column_end(p, t, columns[v], {tile.row + first, lane + v * STEP});
{% endif %}{% elif whole %}    RowValues all[1] = {epilogue_row(p, t, {first, lane})};   // only what all rows come to is kept
{% for stage in stages %}#pragma unroll 1
    for (int batch = 0; batch < p.m; batch += AT_ONCE * TOGETHER) {
        RowValues rows[TOGETHER];
#pragma unroll
        for (int i = 0; i < TOGETHER; ++i) {
            const Strip s{batch + i * AT_ONCE + first, lane};
            rows[i] = epilogue_row(p, t, s);
{% for before in stages %}{% if before.number < stage.number %}            carry_result_{{ before.number }}(rows[i], all[0]);
            epilogue_reduce_{{ before.number }}(p, t, rows[i], s, turn);
{% endif %}{% endfor %}        }
#pragma unroll 1
        for (int from = 0; from < width; from += SPAN) {
            Held held[TOGETHER];
#pragma unroll
            for (int i = 0; i < TOGETHER; ++i) held[i].read(p, t, {batch + i * AT_ONCE + first, from + lane});
#pragma unroll
            for (int i = 0; i < TOGETHER; ++i)
#pragma unroll
                for (int v = 0; v < VISITS; ++v) {
                    const Strip s{batch + i * AT_ONCE + first, from + lane + v * STEP};
                    ColumnValues c = epilogue_column(p, t, s);
                    Accum acc[STRIP];
                    held[i].widen_strip(acc, v);
                    epilogue_take_{{ stage.number }}(p, t, c, rows[i], held[i].fetched[v], s, acc);
                }
        }
#pragma unroll
        for (int i = 0; i < TOGETHER; ++i) add_state_{{ stage.number }}(all[0], rows[i]);
    }
    epilogue_combine_{{ stage.number }}(p, width, all, turn);
{% endfor %}#pragma unroll 1
    for (int row = first; row - first < p.m; row += AT_ONCE) {
        RowValues r = epilogue_row(p, t, {row, lane});
{% for stage in stages %}        carry_result_{{ stage.number }}(r, all[0]);
        epilogue_reduce_{{ stage.number }}(p, t, r, {row, lane}, turn);
{% endfor %}#pragma unroll 1
        for (int from = 0; from < width; from += SPAN) {
            Held held;
            held.read(p, t, {row, from + lane});
#pragma unroll
            for (int v = 0; v < VISITS; ++v) {
                const Strip s{row, from + lane + v * STEP};
                ColumnValues c = epilogue_column(p, t, s);
                Accum acc[STRIP];
                held.widen_strip(acc, v);
                epilogue_visit(p, t, c, r, held.fetched[v], s, acc);
            }
        }
        if (lane == {% if bands %}tile.column{% else %}0{% endif %}) epilogue_store_row(p, t, r, {row, lane});
    }
{% else %}    const int row = tile.row + first;
    RowValues r = epilogue_row(p, t, {row, lane});
{% for stage in stages %}#pragma unroll 1
    for (int from = 0; from < p.n; from += SPAN) {
        Held held;
        held.read(p, t, {row, from + lane});
#pragma unroll
        for (int v = 0; v < VISITS; ++v) {
            const Strip s{row, from + lane + v * STEP};
            ColumnValues c = epilogue_column(p, t, s);
            Accum acc[STRIP];
            held.widen_strip(acc, v);
            epilogue_take_{{ stage.number }}(p, t, c, r, held.fetched[v], s, acc);
        }
    }
    epilogue_reduce_{{ stage.number }}(p, t, r, {row, lane}, turn);
{% endfor %}#pragma unroll 1
    for (int from = 0; from < BN; from += SPAN) {   // the whole tile, because all of its columns have parts of sums
        Held held;
        held.read(p, t, {row, from + lane});
#pragma unroll
        for (int v = 0; v < VISITS; ++v) {
            const Strip s{row, from + lane + v * STEP};
            ColumnValues c = epilogue_column(p, t, s);
            Accum acc[STRIP];
            held.widen_strip(acc, v);
            epilogue_visit(p, t, c, r, held.fetched[v], s, acc);
            epilogue_column_end(p, t, c, s);
        }
    }
    if (lane == {% if bands %}tile.column{% else %}0{% endif %}) epilogue_store_row(p, t, r, {row, lane});
    epilogue_row_end(p, t, r, {row, lane});
{% endif %}}

} // namespace rows

extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS)
{% if cluster_size > 1 %}__cluster_dims__({{ cluster_size }}, 1, 1) {% endif %}postlude_kernel(const __grid_constant__ Params p) {
    begin_early();
{% if bands %}    const TileOrigin tile = locate(p);
{% else %}    const TileOrigin tile{int(blockIdx.x / CLUSTER) * BM, 0, int(blockIdx.z * gridDim.y + blockIdx.y)};   // any raster
{% endif -%}
    if (tile.batch >= p.batch) return;
    const TileValues values = epilogue_begin(p, tile.batch);
{% if holds_rows %}    if (rows::has_whole_batches(p, tile) && tile.column + BN <= p.n && rows::is_wide(p))
        rows::visit<true>(rows::inside(p), values, tile);
    else rows::visit<false>(p, values, tile);
{% else %}    rows::visit(p, values, tile);
{% endif %}    if constexpr (EPILOGUE_SMEM > 0) __syncthreads();
{% if cluster_size > 1 and reductions %}    {# -#}
    epilogue_end(p, values, {tile.row, int(blockIdx.x % u32(CLUSTER)) * SPAN, tile.batch});
{% else %}    epilogue_end(p, values, tile);
{% endif %}}
