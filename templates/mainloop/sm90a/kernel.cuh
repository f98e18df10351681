// ---- mainloop for Hopper: persistent blocks, a producer warpgroup that fills a ring by TMA, consumers with wgmma ----
// Cooperative consumers share a tile; each has BM / CONSUMERS rows of it. Ping-pong consumers alternate between whole tiles, so
// that one's epilogue runs under the other's products. A cluster of two blocks computes neighbouring tiles and fetches shared
// data once. The producer's first warp fetches the operands, the second the epilogue's vectors.
{% if delayed_store %}// The others store what the consumers have written; no matrices are read.
{% else %}// The others fetch the epilogue's matrices.
{% endif -%}
{% if operand_sums %}// The last warp sums operands instead.
{% endif -%}
constexpr int CLUSTER = CLUSTER_M * CLUSTER_N;
{% if splits_k %}// Blocks of a cluster share K: each multiplies its part of K for the columns of all of them.
constexpr int PARTS = CLUSTER_N, MULTIPLIED = BN * PARTS;
{% endif -%}
constexpr int PANELS = BK / {{ panel_terms }};                                         // 128 bytes of K each
// Bytes of a panel.
{% if widened_a %}constexpr int A_LINE = {{ a_line }};   // of all panels of a stage
{% endif %}constexpr int A_BYTES = {% if widened_a %}BM * A_LINE / PANELS{% else %}BM * 128{% endif %}, {# -#}
              B_BYTES = B_K_MAJOR ? {{ multiplied }} * 128 : ({{ multiplied }} + 63) / 64 * 8192;
constexpr int PANEL_BYTES = A_BYTES + B_BYTES, STAGE_BYTES = PANELS * PANEL_BYTES;
constexpr int BLOCKS_M = WARPGROUP_ROWS / 64, CHUNKS_N = BN / CHUNK;
// Chunks of a consumer and tile, {% if row_order %}row by row{% else %}column by column{% endif %}.
constexpr int CHUNKS = CHUNKS_N * BLOCKS_M;
// Threads that stage the epilogue's matrices: one if TMA does it all.
constexpr int LOADERS = LOADS_ARE_MAPPED ? 1 : 64, LOADER_WARPS = (LOADERS + 31) / 32;
constexpr int STRIPS = CHUNK / (4 * STRIP);                               // visits of a lane in a row of a chunk
// Whether accumulators are zeroed before a tile, so that they are not live before it: the assembler does not see that the first
// product overwrites them. The epilogue before needs the registers for reductions, for what stages keep, for masks, and for
// matrices that are read beside the most accumulators.
constexpr bool CLEARED = {% if reductions or stages or operand_sums or staged_bits or eight_bits %}true
    {% else %}LOAD_BYTES > 0 && BLOCKS_M * (BN / 2) > 160{% endif %};
static_assert(THREADS == 128 * (1 + CONSUMERS) && BK % {{ panel_terms }} == 0 && WARPGROUP_ROWS % 64 == 0 && BN % CHUNK == 0,
              "whole pieces");
static_assert(STAGES * STAGE_BYTES == AT_STORES, "stages as large as the plan reckoned");
constexpr bool SHARED_CHUNKS = CHUNK_RINGS < CONSUMERS;
static_assert(!SHARED_CHUNKS || PING_PONG, "consumers whose epilogues follow each other");
static_assert(!PING_PONG || (CONSUMERS == 2 && CLUSTER <= 2), "two consumers take turns");
{% if splits_k %}static_assert(CLUSTER_M == 1 && !PING_PONG && !DELAYED_STORE, "blocks that share K share nothing else");
{% endif -%}

// Barriers, behind everything else: each stage filled and emptied; the turn of a ping-pong consumer; the vectors and each chunk
// of matrices filled and emptied; and, if ping-pong consumers share chunk buffers, the other consumer's chunks stored.
constexpr u32 FULL = AT_BARRIERS, EMPTY = FULL + STAGES * 8, TURN = EMPTY + STAGES * 8, VECTORS_FULL = TURN + 16,
              VECTORS_EMPTY = VECTORS_FULL + 16, LOADS_FULL = VECTORS_EMPTY + 16,
              LOADS_EMPTY = LOADS_FULL + CHUNK_RINGS * LOAD_STAGES * 8,
              CHUNKS_LEFT = LOADS_EMPTY + CHUNK_RINGS * LOAD_STAGES * 8, CHUNKS_END = CHUNKS_LEFT + (SHARED_CHUNKS ? 16 : 0);
{% if splits_k %}// For each consumer: the sums of other blocks have arrived; and those of the tile before have been read.
constexpr u32 PARTIALS_FULL = CHUNKS_END, PARTIALS_EMPTY = PARTIALS_FULL + CONSUMERS * 8;
constexpr u32 PARTIALS_END = PARTIALS_EMPTY + CONSUMERS * 8;
{% endif -%}
{% if tile_reductions %}// For each consumer: it has published a tile's results; and it is known which blocks these complete.
constexpr u32 HANDED_IN = {% if splits_k %}PARTIALS_END{% else %}CHUNKS_END{% endif %}, ANNOUNCED = HANDED_IN + CONSUMERS * 8;
{% if not operand_sums %}static_assert(ANNOUNCED + CONSUMERS * 8 == AT_END, "as many barriers as the plan made room for");
{% endif %}{% elif delayed_store %}// For each buffer of a consumer: a chunk has been written there, and stored from there.
constexpr u32 WRITTEN = CHUNKS_END, SENT = WRITTEN + CONSUMERS * STORE_BUFFERS * 8;
static_assert(SENT + CONSUMERS * STORE_BUFFERS * 8 == AT_END, "as many barriers as the plan made room for");
{% elif not operand_sums %}static_assert({% if splits_k %}PARTIALS_END{% else %}CHUNKS_END{% endif %} == AT_END,
                                         "as many barriers as the plan made room for");
{% endif %}{% if operand_sums %}// For two tiles: their sums of operands are complete, and on their way to the result.
constexpr u32 SUMS_FULL = {% if tile_reductions %}ANNOUNCED + CONSUMERS * 8{% else %}CHUNKS_END{% endif %};
constexpr u32 SUMS_EMPTY = SUMS_FULL + 16;
static_assert(SUMS_EMPTY + 16 == AT_END, "as many barriers as the plan made room for");
{% endif %}
DEVICE int thread_of_warpgroup() { return thread_of_block() & 127; }

// The tiles of a block, in the order in which its warps process them.
struct Tiles {
    u32 next, turns = 1;   // one of every `turns` of the block's tiles
    TileOrigin tile;
{% if residues %}    TileClass of;
{% endif %}{% if gathers_a %}    Window window;         // at the tile's first row
    int channel;           // the first one that its columns read
{% endif %}{% if turned %}    int own_column;        // its first one, among those of its group
{% endif %}
    DEVICE Tiles() : next(this_block() / CLUSTER) {}
    // Rows and columns of tiles of a batch entry. A cluster counts as one tile.
    static DEVICE u32 rows_of(const Params& p) { return (fresh(p.m - 1) / BM + CLUSTER_M) / CLUSTER_M; }
    static DEVICE u32 columns_of(const Params& p) { return (fresh(p.n - 1) / BN + CLUSTER_N) / CLUSTER_N; }
    // Advances to the next tile, and returns whether there is one. With one consumer, a branch here makes ptxas assume that
    // warps have diverged, and it computes the products' descriptors in vector registers. With two consumers, omitting the
    // branch costs registers.
    DEVICE bool advance(const Params& p) {
        const u32 rows = rows_of(p), columns = columns_of(p), per_entry = rows * columns;
        if constexpr (CONSUMERS > 1)
            if (next >= per_entry * u32(p.batch)) return false;
        const bool more = CONSUMERS > 1 || next < per_entry * u32(p.batch);
        place(p, rows, columns, per_entry);
        return more;
    }
    DEVICE void place(const Params& p, u32 rows, u32 columns, u32 per_entry) {
        u32 row, column;
        place_tile(p, next % per_entry, rows, columns, row, column);
        row = row * CLUSTER_M + (CLUSTER_M == 2 ? cluster_rank() : 0);
{% if splits_k %}        tile = {int(row * BM), int(column * MULTIPLIED), int(next / per_entry)};
{% else %}        column = column * CLUSTER_N + (CLUSTER_N == 2 ? cluster_rank() : 0);
        tile = {int(row * BM), int(column * BN), int(next / per_entry)};
{% endif %}{% if shifted_edges %}        // The last tiles end where the output does, and overlap the tiles before.
        tile.row = min(tile.row, p.edge_row);
        tile.column = min(tile.column, p.edge_column);
{% endif %}{% if residues %}        of.find(p, tile.row);
        window = of.box_at(p, tile.row);
        channel = first_channel(p, tile.column);
{% elif gathers_a %}        window = window_at(p, tile.row);
        channel = first_channel(p, tile.column);
{% endif %}{% if turned %}        own_column = tile.column % p.group_filters;
{% endif %}{% if splits_k %}        tile.column += cluster_rank() * BN;
{% endif %}        next += launched_blocks() / CLUSTER * turns;
    }
};

{% include "mainloop/sm90a/pipeline_state.cuh" %}
// Blocks of K. If K is 0 the ring holds zeros, and is used once: with a branch around the products the compiler would track
// every accumulator on both paths. A delayed store needs one block of K for each of its chunks; what lies beyond K is fetched
// as zeros.
{% if splits_k %}// This block's share of all blocks of K. A block without a share uses one block beyond K, of zeros.
struct BlocksOfK { u32 first, count; };
DEVICE BlocksOfK share_of(u32 blocks) {
    const u32 rank = cluster_rank(), first = blocks * rank / PARTS, count = blocks * (rank + 1) / PARTS - first;
    return {count > 0 ? first : blocks, count > 0 ? count : 1};
}
{% endif -%}
DEVICE u32 terms_in_blocks(const Params& p) {
    const u32 blocks = {# -#}
        {% if convolution %}(u32(p.panels) + PANELS - 1) / PANELS{% else %}p.k > 0 ? u32(p.k - 1) / BK + 1 : 1{% endif %};
{% if splits_k %}    return share_of(blocks).count;
{% else %}    if constexpr (DELAYED_STORE) return blocks < CHUNKS ? CHUNKS : blocks;
    return blocks;
{% endif %}}
DEVICE void clear_ring() {
#pragma unroll 1
    for (int i = threadIdx.x * 16; i < STAGES * STAGE_BYTES; i += THREADS * 16) shared_at<uint4>(i) = uint4{};
    fence_proxy_async();
    __syncthreads();
}

{% if numbers %}{% include "mainloop/sm90a/numbers.cuh" %}
{% elif scaled %}{% include "mainloop/sm90a/scales.cuh" %}{% endif -%}
{% include "mainloop/sm90a/produce.cuh" %}
{% if tile_reductions %}{% include "mainloop/sm90a/announce.cuh" %}{% endif -%}
{% if operand_sums %}{% include "mainloop/sm90a/sums.cuh" %}
{% endif -%}
{% include "mainloop/sm90a/stage.cuh" %}
{% include "mainloop/sm90a/multiply.cuh" %}

{% if tile_reductions %}// The fix-up of a consumer's last tile; called by a consumer that has published `tiles` tiles.
DEVICE void fixup_last(const Params& p, u32 group, u32 tiles) {
    if (tiles == 0) return;
    group = fresh(group);
    mbarrier_wait(shared_address(shared_memory) + ANNOUNCED + group * 8, (tiles - 1) & 1);
    const Announced last = announced(group);
    if (last.complete) epilogue_fixup(p, epilogue_begin(p, last.unit.batch), last.unit, last.complete);
}

{% endif -%}
// The threads that store a chunk from shared memory: each warp stores its own rows, or a consumer stores all rows together.
constexpr bool BY_WARPS = STORE_ROWS < 64;
static_assert(STORE_ROWS == 16 || STORE_ROWS == 64, "the rows of a warp's accumulators in a chunk, or all of them");
DEVICE void sync_senders(u32 group) {
    if constexpr (BY_WARPS) __syncwarp();
    else sync_warpgroup(group);
}

{% if split_epilogue %}{% include "mainloop/sm90a/move_accumulators.cuh" %}
{% endif -%}
{% if delayed_store %}{% include "mainloop/sm90a/delayed_store.cuh" %}
{% endif -%}
{% if splits_k %}{% include "mainloop/sm90a/exchange.cuh" %}
{% endif -%}
{% if stages %}// WHOLE: all columns of the tile lie inside of the matrix. All strips of a stage are one piece of code, without
// branches: sums of a thread's rows wait for each other less.
template <bool WHOLE> {% endif %}{# -#}
DEVICE void run_epilogue(const Params& p, const TileOrigin& tile, {{ accumulator }} (&acc)[BLOCKS_M][BN / 2], u32 count, u32 group
                         {% if delayed_store %}, u32 (&kept)[CHUNKS][WORDS]{% endif %}{# -#}
                         {% if residues %}, const TileClass& of{% endif %}) {
    const u32 shared = shared_address(shared_memory);
    const int thread = thread_of_warpgroup(), lane = thread & 31, first_row = (thread >> 5) * 16;
    const int group_row = PING_PONG ? 0 : group * WARPGROUP_ROWS;
    const TileValues t = epilogue_begin(p, tile.batch);
    const u32 vectors = AT_VECTORS + (count & 1) * VECTOR_BYTES;
{% if direct_store %}    const Shares shares = shares_of(p, t, tile.row + group_row, tile.column, first_row, lane);
{% endif %}    const bool sends = (BY_WARPS ? lane : thread) == 0;
    // The first row, in a way that lets the compiler see that all lanes of a warp have the same value.
    const int sent = BY_WARPS ? __shfl_sync(~0u, first_row, 0) : 0;
    u32 loads = 0, stores = 0;
{% if delayed_store %}    u32* place = nullptr;
{% endif %}{% if residues %}    // The pixels of the warp's 16 rows, each found by two lanes, and of this lane's rows.
    int own_pixels[BLOCKS_M], pixels[BLOCKS_M][2];
    Window places[BLOCKS_M];
#pragma unroll
    for (int m = 0; m < BLOCKS_M; ++m) {
        const Window own = of.place(p, tile.row + group_row + m * 64 + first_row + lane % 16);
        places[m] = {__shfl_sync(~0u, own.y, 0), __shfl_sync(~0u, own.x, 0), __shfl_sync(~0u, own.image, 0)};
        own_pixels[m] = of.pixel(p, own);
        pixels[m][0] = __shfl_sync(~0u, own_pixels[m], lane / 4);
        pixels[m][1] = __shfl_sync(~0u, own_pixels[m], lane / 4 + 8);
    }
{% endif %}    auto strip = [&](int n, int m, int half, int part) {
        const int own = m * 64 + first_row + half * 8 + lane / 4, row = group_row + own;
        const int column = n * CHUNK + part * (4 * STRIP) + lane % 4 * 2;
        return Strip{ {% if residues %}pixels[m][half]{% else %}tile.row + row{% endif %}, {# -#}
                     tile.column + column, row, column, first_row + half * 8, part * (4 * STRIP), lane, vectors,
                     loads, stores, AT_BITS + group * BIT_BYTES, own{% if delayed_store %}, place{% endif %}};
    };
    if constexpr (VECTOR_BYTES > 0) mbarrier_wait(shared + VECTORS_FULL + (count & 1) * 8, count >> 1 & 1);
    RowValues rows[BLOCKS_M][2];
#pragma unroll
    for (int i = 0; i < 2 * BLOCKS_M; ++i) rows[i / 2][i % 2] = epilogue_row(p, t, strip(0, i / 2, i % 2, 0));
{% if stages %}{% include "mainloop/sm90a/stages.cuh" %}{% endif %}
    const u32 ring = SHARED_CHUNKS ? 0 : group;
    u32 load = (PING_PONG && !SHARED_CHUNKS ? count >> 1 : count) * CHUNKS;
    // Also if nothing is written: a chunk's barrier tells one use of its buffer from the next, but not from the one after that.
    if constexpr (SHARED_CHUNKS) mbarrier_wait(shared + CHUNKS_LEFT + group * 8, (count >> 1 & 1) ^ (group ^ 1));
    // Visits the chunks of one column{% if row_order %}, rows `first` to `end`{% endif %}; its accumulators are column `named`.
    auto visit_columns = [&](int n, int named{% if row_order %}, int first, int end{% endif %}) {
        ColumnValues columns[STRIPS];
#pragma unroll
        for (int part = 0; part < STRIPS; ++part) columns[part] = epilogue_column(p, t, strip(n, 0, 0, part));
#pragma unroll
{% if row_order %}        for (int m = first; m < end; ++m) {
            const int chunk = m * CHUNKS_N + n;
{% else %}        for (int m = 0; m < BLOCKS_M; ++m) {
            const int chunk = n * BLOCKS_M + m;
{% endif %}            const u32 slot = ring * LOAD_STAGES + load % LOAD_STAGES;
            if constexpr (LOAD_BYTES > 0) {
                loads = AT_LOADS + slot * LOAD_BYTES;
                mbarrier_wait(shared + LOADS_FULL + slot * 8, load / LOAD_STAGES & 1);
            }
            if constexpr (STORE_BYTES > 0 && !DELAYED_STORE) {
                stores = AT_STORES + (ring * STORE_BUFFERS + chunk % STORE_BUFFERS) * STORE_BYTES;
                // TMA has read the buffer's last store, and every thread has finished the last copy.
{% if direct_store %}                if (STORE_BUFFERS == 1 || chunk == 0) __syncwarp();   // otherwise already done
{% else %}                if (!SHARED_CHUNKS && named == 0 && m == 0) tma_store_wait_read_if<0>(sends && n == 0);
                if (chunk > 0) tma_store_wait_read_if<STORE_BUFFERS - 1>(sends);
                sync_senders(group);
{% endif %}            }
#pragma unroll
            for (int visit = 0; visit < 2 * STRIPS; ++visit) {
                const int half = visit / STRIPS, part = visit % STRIPS;
                const Fetched fetched = epilogue_fetch(p, t, strip(n, m, half, part));
{% if delayed_store %}                place = &kept[chunk][visit * (STRIP / 2)];
{% endif %}                Accum strip_acc[STRIP];
#pragma unroll
                for (int i = 0; i < STRIP; ++i)
                    strip_acc[i] = acc[m][named * (CHUNK / 2) + (part * (STRIP / 2) + i / 2) * 4 + half * 2 + i % 2];
                epilogue_visit(p, t, columns[part], rows[m][half], fetched, strip(n, m, half, part), strip_acc);
            }
{% if not direct_store %}            // TMA may read what was written, and overwrite what was read. The fence waits until values
            // are in registers; an arrival does not.
            if constexpr ((STORE_BYTES > 0 && !DELAYED_STORE) || LOAD_BYTES > 0) fence_proxy_async();
{% endif %}            if constexpr (LOAD_BYTES > 0) {
                __syncwarp();
                mbarrier_arrive_if(lane == 0, shared + LOADS_EMPTY + slot * 8);
                ++load;
            }
            if constexpr (STORE_BYTES > 0 && !DELAYED_STORE) {
                sync_senders(group);
{% if direct_store %}                move_pieces(p, shares, stores, m * 64, n * CHUNK, lane);
{% else %}                drain_chunk(p, t, stores, tile.row + group_row + m * 64, tile.column + n * CHUNK, sent, sends, thread
                            {% if residues %}, of, places[m], own_pixels[m]{% endif %});
                tma_store_commit_if(sends);
{% endif %}            }
        }
#pragma unroll
        for (int part = 0; part < STRIPS; ++part) epilogue_column_end(p, t, columns[part], strip(n, 0, 0, part));
    };
{% if split_epilogue %}    // Runs the code for half of the columns twice.
    // Accumulators of each block of rows.
    constexpr int TOGETHER = (CHUNKS_N + 1) / 2, REST = (CHUNKS_N - TOGETHER) * (CHUNK / 2);
#pragma unroll 1
    for (int done = 0; done < CHUNKS_N; done += TOGETHER) {
        if (done > 0)
#pragma unroll
            for (int m = 0; m < BLOCKS_M; ++m)
#pragma unroll
                for (int i = 0; i < REST; i += 4) move_accumulators(&acc[m][i], &acc[m][i + TOGETHER * (CHUNK / 2)]);
#pragma unroll
        for (int i = 0; i < TOGETHER; ++i)
            if (i + TOGETHER < CHUNKS_N || done == 0) visit_columns(done + i, i);
    }
{% elif row_order %}#pragma unroll
    for (int m = 0; m < BLOCKS_M; ++m)
#pragma unroll
        for (int n = 0; n < CHUNKS_N; ++n) visit_columns(n, n, m, m + 1);
{% else %}#pragma unroll
    for (int n = 0; n < CHUNKS_N; ++n) visit_columns(n, n);
{% endif %}    if constexpr (SHARED_CHUNKS) {
        if constexpr (STORE_BYTES > 0) tma_store_wait_read_if<0>(sends);
        __syncwarp();
        mbarrier_arrive_if(lane == 0, shared + CHUNKS_LEFT + (group ^ 1) * 8);
    }
{% if staged_bits %}    drain_bits(p, t, AT_BITS + group * BIT_BYTES, tile.row + group_row, tile.column, group, thread);
{% endif %}    if constexpr (VECTOR_BYTES > 0) {
        __syncwarp();
        mbarrier_arrive_if(lane == 0, shared + VECTORS_EMPTY + (count & 1) * 8);
    }
{% if row_stores %}#pragma unroll
    for (int i = 0; i < 2 * BLOCKS_M; ++i)
        if (lane % 4 == 0) epilogue_store_row(p, t, rows[i / 2][i % 2], strip(0, i / 2, i % 2, 0));
{% endif %}#pragma unroll
    for (int i = 0; i < 2 * BLOCKS_M; ++i) epilogue_row_end(p, t, rows[i / 2][i % 2], strip(0, i / 2, i % 2, 0));
{% if tile_reductions %}    fixup_last(p, group, PING_PONG ? count >> 1 : count);
    sync_unit();
    epilogue_publish(p, t, {tile.row + group_row, tile.column, tile.batch});
    sync_unit();
    mbarrier_arrive_if(thread == 0, shared + HANDED_IN + group * 8);
{% endif -%}
}
DEVICE void consume(const Params& p, Tiles tiles, u32 group) {
    const u32 shared = shared_address(shared_memory), blocks = terms_in_blocks(p);
    PipelineState at;
    u32 count = 0, turn_parity = 0;
{% if totals %}    clear_totals();
{% endif %}    if constexpr (PING_PONG) {
        count = group;
        tiles.next += group * (launched_blocks() / CLUSTER);
        tiles.turns = 2;
        if (group == 1) {
            at.skip({% if residues %}blocks_at(p, tiles.of, this_block()){% else %}blocks{% endif %});
            if (threadIdx.x % 128 == 0) mbarrier_arrive(shared + TURN);   // the first turn belongs to the other consumer
        }
    }
{% if delayed_store %}    u32 kept[CHUNKS][WORDS] = {};
    // The tile's place is computed when it is needed, also under the products.
    const u32 rows = Tiles::rows_of(p), columns = Tiles::columns_of(p), per_entry = rows * columns;
    for (; tiles.next < per_entry * u32(p.batch); ++count) {
        {{ accumulator }} acc[BLOCKS_M][BN / 2];
        multiply(acc, at, blocks, group, [&](u32 chunk) {
            hand_over(kept, chunk, group, count);
            if (chunk == CHUNKS - 1) tiles.place(p, rows, columns, per_entry);
        }{% if numbers %}, p, tiles.tile.batch{% endif %});
        run_epilogue(p, tiles.tile, acc, count, group, kept);
    }
    wait_for_sent(group, count);
#pragma unroll 1
    for (u32 chunk = 0; chunk < CHUNKS; ++chunk) send_kept(p, tiles.tile, kept, chunk, group, count > 0);
{% else %}    for (; tiles.advance(p); count += PING_PONG ? 2 : 1) {
        {{ accumulator }} acc[BLOCKS_M][{{ multiplied }} / 2];
        if constexpr (CLEARED)
#pragma unroll
            for (int i = 0; i < BLOCKS_M * ({{ multiplied }} / 2); ++i)
                acc[i / ({{ multiplied }} / 2)][i % ({{ multiplied }} / 2)] = {{ zero }};
        if constexpr (PING_PONG) {
            mbarrier_wait(shared + TURN + {% if reductions %}fresh(group){% else %}group{% endif %} * 8, turn_parity);
            turn_parity ^= 1;
        }
        multiply(acc, at, {# -#}
                 {% if residues %}blocks_of(p, tiles.of){% else %}blocks{% endif %}, group, [](u32) {}{# -#}
                 {% if numbers %}, p, tiles.tile.batch{% endif %});
        // The other consumer's tile is the one behind this.
        if constexpr (PING_PONG)
            at.skip({% if residues %}blocks_at(p, tiles.of, tiles.next - launched_blocks()){% else %}blocks{% endif %});
{% if splits_k %}        float own[BLOCKS_M][BN / 2];
        exchange(own, acc, count, group, tiles.next >= Tiles::rows_of(p) * Tiles::columns_of(p) * u32(p.batch));
        run_epilogue(p, tiles.tile, own, count, group);
{% elif stages %}        const bool whole = p.n >= BN;
        if (whole) run_epilogue<true>(p, tiles.tile, acc, count, group{% if residues %}, tiles.of{% endif %});
        else run_epilogue<false>(p, tiles.tile, acc, count, group{% if residues %}, tiles.of{% endif %});
{% else %}        run_epilogue(p, tiles.tile, acc, count, group{% if residues %}, tiles.of{% endif %});
{% endif %}    }
{% endif -%}
{% if totals %}    publish_totals(p, this_block() * CONSUMERS + group, launched_blocks() * CONSUMERS);
{% elif reductions %}    fixup_last(p, group, PING_PONG ? count >> 1 : count);
    // The last blocks of the launch have the fewest tiles. A ping-pong consumer is done while the other one has a tile left.
    const u32 step = launched_blocks(), late = step - 1 - this_block();
    const u32 total = Tiles::rows_of(p) * Tiles::columns_of(p) * u32(p.batch);
    if constexpr (!PING_PONG) epilogue_fixup_late(p, late * CONSUMERS + thread_of_block() / 128 - 1, step * CONSUMERS);
    else if (tiles.next - step / CLUSTER < total) epilogue_fixup_late(p, late, step);
{% endif %}{% if not direct_store %}    if (threadIdx.x % (BY_WARPS ? 32 : 128) == 0) tma_store_wait_all();
{% endif -%}
}
extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS)
{% if cluster_size > 1 %}__cluster_dims__({{ cluster_size }}, 1, 1) {% endif %}postlude_kernel(const __grid_constant__ Params p) {
    const u32 shared = shared_address(shared_memory), warp = __shfl_sync(~0u, threadIdx.x / 32, 0);
    if constexpr (!(CONSTANT_A || CONSTANT_B)) {   // constant weights are fetched first, and are most of the data
        if (warp == 2 && p.k > 0 && elect_one()) {
            Tiles first;
            if (first.advance(p)) {
{% if convolution and not residues %}                prefetch_filters(p, first);
{% endif %}{% if not weights_a and not convolution %}                prefetch_operand<true>(p, first);
{% endif %}{% if not weights_b and not convolution %}                prefetch_operand<false>(p, first);
{% endif %}            }
        }
    }
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; ++i) {
            mbarrier_init(shared + FULL + i * 8, 1{% if scaled %} + 32{% endif %});
            mbarrier_init(shared + EMPTY + i * 8,
                          {% if operand_sums %}((PING_PONG ? 1 : CONSUMERS){% if scaled %} * 4{% endif %} + 1) * CLUSTER
                          {% else %}(PING_PONG ? 1 : CONSUMERS){% if scaled %} * 4{% endif %} * {{ fetchers }}{% endif %});
        }
        for (int i = 0; i < 2; ++i) {
            mbarrier_init(shared + TURN + i * 8, 1);
            mbarrier_init(shared + VECTORS_FULL + i * 8, 2 * 32);
            mbarrier_init(shared + VECTORS_EMPTY + i * 8, (PING_PONG ? 1 : CONSUMERS) * 4);
            if (SHARED_CHUNKS) mbarrier_init(shared + CHUNKS_LEFT + i * 8, 4);
        }
{% if splits_k %}        for (int i = 0; i < CONSUMERS; ++i) {
            mbarrier_init(shared + PARTIALS_FULL + i * 8, 1);
            mbarrier_init(shared + PARTIALS_EMPTY + i * 8, PARTS - 1);
        }
{% endif %}{% if tile_reductions %}        for (int i = 0; i < CONSUMERS; ++i) {
            mbarrier_init(shared + HANDED_IN + i * 8, 1);
            mbarrier_init(shared + ANNOUNCED + i * 8, 1);
        }
{% endif %}{% if operand_sums %}        for (int i = 0; i < 2; ++i) {
            mbarrier_init(shared + SUMS_FULL + i * 8, 1);
            mbarrier_init(shared + SUMS_EMPTY + i * 8, 1);
        }
{% endif %}{% if delayed_store %}        for (int i = 0; i < CONSUMERS * STORE_BUFFERS; ++i) {
            mbarrier_init(shared + WRITTEN + i * 8, 4);
            mbarrier_init(shared + SENT + i * 8, 1);
        }
{% endif %}        for (int i = 0; i < CHUNK_RINGS * LOAD_STAGES; ++i) {
            mbarrier_init(shared + LOADS_FULL + i * 8, {% if residues %}LOADERS{% else %}LOADER_WARPS{% endif %});
            mbarrier_init(shared + LOADS_EMPTY + i * 8, 4);
        }
        mbarrier_init_fence();
        if (p.k > 0) {
            tma_prefetch_descriptor(p.map0);
            tma_prefetch_descriptor(p.map1);
        }
    }
    if (p.k == 0) clear_ring();
    if constexpr (CLUSTER > 1) {
        __syncwarp();
        cluster_sync();
    } else {
        sync_behind_first_warp(warp);
    }
{% if weights_a or weights_b %}    if (warp == 2 && p.k > 0 && elect_one()) {
        Tiles first;
        if (first.advance(p)) prefetch_weights(p, first);
    }
{% endif %}    if constexpr (CONSTANT_A || CONSTANT_B) let_next_kernel_start();
    if (warp > 0) {   // the first warp has more to do before earlier kernels end, and waits by itself
        wait_for_earlier_kernels();
        if constexpr (!(CONSTANT_A || CONSTANT_B)) let_next_kernel_start();
    }
    if (warp < 4) {
        if constexpr (CONSUMERS == 2) setmaxnreg_dec<PRODUCER_REGISTERS>();
        if (warp == 0) {
            {% if scaled %}produce(p, Tiles(), threadIdx.x);{% else %}if (elect_one()) produce(p, Tiles());{% endif %}
        } else if (warp == 1) {
            if constexpr (HANDS_ON || VECTOR_BYTES > 0) stage_vectors(p, Tiles(), threadIdx.x % 32);
        {% if operand_sums %}} else if (warp == 3) {
            sum_operands(p, Tiles());
        {% endif %}{% if delayed_store %}} else if (elect_one()) {
            send_handed(p, Tiles(), warp - 2);
        {% endif %}} else if (LOAD_BYTES > 0) {
            if (LOADERS > 1) stage_matrices(p, Tiles(), threadIdx.x - 64);
            else if (warp == 2 && elect_one()) stage_matrices(p, Tiles(), 0);
        }
        __syncwarp();
    } else {
        if constexpr (CONSUMERS == 2) setmaxnreg_inc<CONSUMER_REGISTERS>();
        consume(p, Tiles(), CONSUMERS == 1 ? 0 : warp / 4 - 1);
    }
}
