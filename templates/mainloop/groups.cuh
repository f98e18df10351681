// ---- mainloop: groups. The accumulator is a matrix in memory, and the epilogue uses what groups of its columns come to ----
//
// A tile has all rows, and a group of BAND columns or several beside each other. The blocks of a cluster share the rows. Each
// thread has a strip of columns, and goes down the rows of its block. They are copied to shared memory in the formats of memory,
// and every stage starts from there: memory is read once.
namespace groups {

constexpr int STRIPS = BN / STRIP, AT_ONCE = THREADS / STRIPS, ROWS = BM / CLUSTER, PASSES = ROWS / AT_ONCE;
constexpr int VISITS = 1, STEP = 0;

static_assert(THREADS % STRIPS == 0 && THREADS % 32 == 0, "threads cover whole rows of a tile, in whole warps");
static_assert(BM % (CLUSTER * AT_ONCE) == 0, "blocks have as many rows, in whole passes");
static_assert(BN % BAND == 0 && BAND % STRIP == 0, "no strip crosses the border of a group");

{% include "mainloop/held.cuh" %}
constexpr int PLACES = ROWS * STRIPS, AT_KEPT = 0;
{% include "mainloop/kept.cuh" %}
static_assert(sizeof(Kept){% for load in fetches %} + sizeof(Raw<{{ load.dtype }}, STRIP>){% endfor %} <= STRIP * BYTES,
              "the plan made room for what is kept");
DEVICE int place_of(int pass) { return pass * THREADS + int(threadIdx.x); }
DEVICE void keep(const Held& held, int pass) {
    const int place = place_of(pass);
    Kept& kept = reinterpret_cast<Kept*>(smem)[place];
#pragma unroll
    for (int v = 0; v < VECTORS; ++v) kept.raw[v] = held.raw[0][v];
{% if fetches %}    u8* behind = smem + PLACES * sizeof(Kept);
{% for load in fetches %}    // {{ load.node }}
    reinterpret_cast<Raw<{{ load.dtype }}, STRIP>*>(behind)[place] = held.fetched[0].{{ load.value }};
    behind += PLACES * sizeof(Raw<{{ load.dtype }}, STRIP>);
{% endfor %}{% endif %}}

// Passes of one of four turns of copies.
constexpr int TURN = ((PASSES + 3) / 4 + TOGETHER - 1) / TOGETHER * TOGETHER;

// Waits for this thread's own copies of a turn.
DEVICE void wait_for_turn(int turn) {
    if (turn == 0) copy_async_wait<3>();
    else if (turn == 1) copy_async_wait<2>();
    else if (turn == 2) copy_async_wait<1>();
    else copy_async_wait<0>();
}

// INSIDE: all rows of the block and all columns of the tile lie inside of the matrix.
template <bool INSIDE> DEVICE void visit(const Params& p, const TileValues& t, const TileOrigin& tile, int first_row) {
    const int first = first_row + int(threadIdx.x) / STRIPS, column = tile.column + int(threadIdx.x) % STRIPS * STRIP;
    const int width = min(BAND, p.n - column / BAND * BAND);
    ColumnValues c = epilogue_column(p, t, {first, column});
    RowValues r[1] = {epilogue_row(p, t, {first, column})};   // nothing in it varies from row to row
    int turn = 0;
{% if cluster_size > 1 %}    begin_arrivals(arrivals());
{% endif %}    constexpr bool COPIED = INSIDE && COPIES;
    if constexpr (COPIED) {
#pragma unroll
        for (int from = 0; from < 4 * TURN; from += TURN) {
#pragma unroll 4
            for (int pass = from; pass < min(from + TURN, PASSES); ++pass)
                copy_strip({p, t, {first + pass * AT_ONCE, column}}, 0, place_of(pass));
            copy_async_commit();
        }
    }
{% for stage in stages %}#pragma unroll 1
    for (int pass = 0; pass < PASSES; pass += TOGETHER) {
        Held held[TOGETHER];
{% if stage.number == 1 %}        if (COPIED && pass % TURN == 0) wait_for_turn(pass / TURN);
{% endif %}#pragma unroll
        for (int i = 0; i < TOGETHER; ++i) {
            if (PASSES % TOGETHER != 0 && pass + i >= PASSES) break;
{% if stage.number == 1 %}            if constexpr (!COPIED) {
                held[i].read<INSIDE>(p, t, {first + (pass + i) * AT_ONCE, column});
                keep(held[i], pass + i);
            } else {% endif %}recall(held[i], 0, place_of(pass + i));
        }
#pragma unroll
        for (int i = 0; i < TOGETHER; ++i) {
            if (PASSES % TOGETHER != 0 && pass + i >= PASSES) break;
            const Strip s{first + (pass + i) * AT_ONCE, column};
            assume<INSIDE>(p, s);
            Accum acc[STRIP];
            held[i].widen_strip(acc, 0);
            epilogue_take_{{ stage.number }}(p, t, c, r[0], held[i].fetched[0], s, acc);
        }
    }
    epilogue_combine_{{ stage.number }}(p, width, r, turn);
    epilogue_reduce_{{ stage.number }}(p, t, r[0], {first, column}, turn);
{% endfor %}#pragma unroll 1
    for (int pass = 0; pass < PASSES; pass += TOGETHER) {
#pragma unroll
        for (int i = 0; i < TOGETHER; ++i) {
            if (PASSES % TOGETHER != 0 && pass + i >= PASSES) break;
            const Strip s{first + (pass + i) * AT_ONCE, column};
            assume<INSIDE>(p, s);
            Held held;
            recall(held, 0, place_of(pass + i));
            Accum acc[STRIP];
            held.widen_strip(acc, 0);
            epilogue_visit(p, t, c, r[0], held.fetched[0], s, acc);
        }
    }
    if (column == tile.column) epilogue_store_row(p, t, r[0], {first, column});
}

} // namespace groups

extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS)
{% if cluster_size > 1 %}__cluster_dims__({{ cluster_size }}, 1, 1) {% endif %}postlude_kernel(const __grid_constant__ Params p) {
    begin_early();
    const TileOrigin tile = locate(p, blockIdx.x / CLUSTER);
    if (tile.batch >= p.batch) return;
    const TileValues values = epilogue_begin(p, tile.batch);
    const int first = int(blockIdx.x % CLUSTER) * groups::ROWS;
    if (first + groups::ROWS <= p.m && tile.column + BN <= p.n && groups::is_wide(p))
        groups::visit<true>(groups::inside(p), values, tile, first);
    else groups::visit<false>(p, values, tile, first);
}
