// ---- mainloop: attention. softmax(scale * Q K^T) V on tensor cores, and scores are never in memory ----
//
// Each warp has WARP_M queries. All of a block go through the keys of their sequence, KEYS at a time, with the values of the same
// keys beside them in a ring of STAGES. A query's scores of a block are the accumulators of a first product. Their powers,
// relative to the largest score so far, are the left operand of a second one: the accumulators of one instruction lie as the
// operand of the next. Where a larger score turns up, what was added up before is scaled down.
constexpr int WARPS = WARPS_M * WARPS_N, WARP_M = BM / WARPS_M, WARP_N = BN;
constexpr int TILES_M = WARP_M / 16, PAIRS_N = WARP_N / 16;   // 16-row and 16-column (two mma.sync wide) pieces of a warp's part
constexpr int PAIRS_K = KEYS / 16, STEPS = WIDTH / 16;        // pieces of 16 keys of a block, and of 16 elements of a query
static_assert(sizeof(Element) == 2 && WARPS_N == 1 && THREADS == 32 * WARPS && WARP_M % 16 == 0, "warps cover the tile");
static_assert(KEYS % 16 == 0 && STAGES >= 2, "whole steps, and a block that arrives while another is used");

extern __shared__ __align__(1024) u8 shared_memory[];

{% if attention_wgmma %}// Lines of so many elements in shared memory, as wgmma reads them: in panels of 64 elements, whose lines
// have 128 bytes. Pieces of 16 bytes are exclusive-ored with the number of the line.
{% else %}// Lines of so many elements in shared memory. Pieces of 16 bytes are exclusive-ored with the number of the
// line, so that eight lines meet different banks.
{% endif %}template <int COLUMNS> struct Lines {
    static constexpr int PITCH = COLUMNS * 2, PIECES = COLUMNS / 8;
    static constexpr int LEAST = {% if attention_wgmma %}128{% else %}64{% endif %};
    static_assert(PITCH >= LEAST && PITCH <= 256 && (PITCH & (PITCH - 1)) == 0, "places in a line are exclusive-ored");
{% if attention_wgmma %}    static DEVICE constexpr u32 at(int lines, int line, int byte) {
        return u32(byte / 128 * lines * 128 + line * 128) + (u32(byte % 128) ^ (line & 7) << 4);
    }
{% else %}    static DEVICE constexpr u32 twist(int line) { return PITCH >= 128 ? (line & 7) << 4 : (line >> 1 & 3) << 4; }
    static DEVICE constexpr u32 at(int line, int byte) { return u32(line * PITCH) + (u32(byte) ^ twist(line)); }
{% endif %}};
// Copies COUNT lines after COUNT lines. A thread copies the same piece of every STEP-th line, so that it has one running pointer.
template <int COLUMNS, int COUNT> struct Copy {
    using To = Lines<COLUMNS>;
    static constexpr int STEP = THREADS / To::PIECES, TURNS = (COUNT + STEP - 1) / STEP;
    static_assert(THREADS % To::PIECES == 0, "a thread keeps its piece");
    const Element* from;
    i64 step;
    int line, first, bytes;   // this thread's first line, its place in a line, and how many bytes there are

    DEVICE Copy(const Element* lines, i64 ld, int elements) : step(STEP * ld) {
        line = threadIdx.x / To::PIECES;
        first = threadIdx.x % To::PIECES * 16;
        const int left = elements * 2 - first;
        bytes = left <= 0 ? 0 : left < 16 ? left : 16;
        from = lines + (line * ld + first / 2);
    }
    // From this thread's first line to one so many lines behind it: lines that are eight apart have the same twist.
    DEVICE u32 further(int lines) const {
{% if attention_wgmma %}        static_assert(STEP % 8 == 0, "lines of a thread have the same twist");
        return lines * 128;
{% else %}        if (STEP % 8 == 0) return lines * To::PITCH;
        return To::at(line + lines, first) - To::at(line, first);
{% endif %}    }
    // Begins to copy the next lines. Those behind the first `left`, and what is behind the end of a line, become zeros.
    DEVICE void run(u32 to, int left) {
        if (bytes % 16 == 0) turns<true>(to, left);
        else turns<false>(to, left);
    }
    // Copies of a constant size cost a predicate. Copies of a variable size cost address arithmetic for every copy.
    template <bool WHOLE> DEVICE void turns(u32 to, int left) {
        const int end = bytes > 0 ? left : 0;
        to += To::at({% if attention_wgmma %}COUNT, {% endif %}line, first);
#pragma unroll
        for (int i = 0; i < TURNS; ++i) {
            const int at = line + i * STEP;
            const int valid = at < end ? (WHOLE ? 16 : bytes) : 0;
            if (COUNT % STEP == 0 || at < COUNT) copy_async<16>(to + further(i * STEP), from, valid);
            from += step;
        }
        if (COUNT % STEP != 0) from -= (TURNS * STEP - COUNT) * (step / STEP);
    }
};
using Queries = Lines<WIDTH>;
using Values = Lines<BN>;
constexpr int QUERY_BYTES = BM * Queries::PITCH, KEY_BYTES = KEYS * Queries::PITCH;
constexpr int STAGE_BYTES = KEY_BYTES + KEYS * Values::PITCH;
static_assert(QUERY_BYTES + STAGES * STAGE_BYTES <= MAINLOOP_SMEM, "the plan made room for queries, keys and values");

// The row in memory of a tile's row, and M where there is none. Tiles begin anew in each sequence.
DEVICE int query_at(const Params& p, const TileOrigin& tile, int row) {
    const int sequence = tile.row / p.tile_queries, query = row - sequence * p.tile_queries;
    return query < p.queries ? sequence * p.queries + query : p.m;
}

// The keys that the queries of a tile see, and where they lie.
struct Keys {
    const Element *first_key, *first_value;
    int query, seen, blocks;   // the tile's first query; keys that some of its queries see; blocks of them
{% if bounded %}    int base;                  // the first key, before which its queries see none
{% endif %}
    DEVICE Keys(const Params& p, const TileOrigin& tile) {
        const int sequence = tile.row / p.tile_queries;
        query = tile.row - sequence * p.tile_queries;
        seen = p.causal ? min(p.keys, min(query + BM, p.queries)) : p.keys;
{% if bounded %}        const scores::TileValues values = scores::epilogue_begin(p, tile.batch, sequence);
        base = int(min(scores::first_key(p, values, query), i64(p.keys))) / KEYS * KEYS;
        seen = int(max(i64(base), scores::end_of_keys(p, values, min(query + BM, p.queries) - 1, seen)));
        blocks = (seen - base + KEYS - 1) / KEYS;
        const i64 line = i64(sequence) * p.keys + base;
{% else %}        blocks = (seen + KEYS - 1) / KEYS;
        const i64 line = i64(sequence) * p.keys;
{% endif %}        first_key = static_cast<const Element*>(p.key) + (tile.batch * p.batch_stride_key + line * p.key_ld);
        first_value = static_cast<const Element*>(p.b) + (tile.batch * p.batch_stride_b + line * p.ldb + tile.column);
    }
    DEVICE const Element* first_query(const Params& p, const TileOrigin& tile) const {
        const i64 line = i64(tile.row / p.tile_queries) * p.queries + query;
        return static_cast<const Element*>(p.a) + (tile.batch * p.batch_stride_a + line * p.lda);
    }
};

// The blocks of keys and values in shared memory, behind the queries.
struct Ring {
    u32 begin, next;
    Copy<WIDTH, KEYS> keys;
    Copy<BN, KEYS> values;

    // Begins to copy the queries and the first blocks.
    DEVICE Ring(const Params& p, const TileOrigin& tile, const Keys& of, u32 queries)
        : begin(queries + QUERY_BYTES), next(begin), keys(of.first_key, p.key_ld, p.width),
          values(of.first_value, p.ldb, p.n - tile.column) {
        Copy<WIDTH, BM>(of.first_query(p, tile), p.lda, p.width).run(queries, p.queries - of.query);
#pragma unroll
        for (int block = 0; block < STAGES - 1; ++block) copy(p, of, block);
    }
    // Begins to copy the next block, if there is one.
    DEVICE void copy(const Params& p, const Keys& of, int block) {
        if (block < of.blocks) {
            keys.run(next, p.keys - {% if bounded %}of.base - {% endif %}block * KEYS);
            values.run(next + KEY_BYTES, p.keys - {% if bounded %}of.base - {% endif %}block * KEYS);
        }
        copy_async_commit();
        next = next == begin + (STAGES - 1) * STAGE_BYTES ? begin : next + STAGE_BYTES;
    }
    DEVICE u32 stage(int block) const { return begin + u32(block % STAGES) * STAGE_BYTES; }
};

// What is known of the scores of a lane's queries: two for each 16 rows, 8 apart.
struct Softmax {
    static constexpr int ROWS = 2 * TILES_M;
    float scale, largest[ROWS], sums[ROWS], shrink[ROWS];

    // Minus infinity: the score of a key that is not seen.
    static DEVICE float nothing() { return __uint_as_float(0xff800000u); }
    DEVICE Softmax(const Params& p) : scale({# -#}
        {% if not scores %}p.score_scale * {% endif %}1.4426950408889634f) {   // powers of two
#pragma unroll
        for (int r = 0; r < ROWS; ++r) largest[r] = nothing(), sums[r] = 0.0f;
    }
    // Hides keys behind the last one that a query sees. `query` is the first one of the lane.
    static DEVICE void hide(const Params& p, int first_key, int query, float (&scores)[TILES_M][2 * PAIRS_K][4]) {
#pragma unroll
        for (int n = 0; n < TILES_M * 2 * PAIRS_K * 4; ++n) {
            const int i = n / (8 * PAIRS_K), j = n / 4 % (2 * PAIRS_K), c = n % 4;
            const int key = first_key + j * 8 + threadIdx.x % 4 * 2 + (c & 1), of = query + i * 16 + (c >> 1) * 8;
            if (key >= p.keys || p.causal && key > of) scores[i][j][c] = nothing();
        }
    }
    // Turns scores into weights relative to the largest so far, and notes by what earlier ones shrink.
    DEVICE void weigh(float (&scores)[TILES_M][2 * PAIRS_K][4]) {
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            float most = largest[r];
#pragma unroll
            for (int j = 0; j < 4 * PAIRS_K; ++j) most = fmaxf(most, scores[r / 2][j / 2][r % 2 * 2 + j % 2]);
            most = fmaxf(most, __shfl_xor_sync(~0u, most, 1));
            most = fmaxf(most, __shfl_xor_sync(~0u, most, 2));
            // Nothing is relative to a query that has seen nothing yet.
{% if scores %}            // Differences come first: a bias may be so negative that its product with the scale is infinite.
            const float base = most == nothing() ? 0.0f : most;
            shrink[r] = exp2_fast((largest[r] - base) * scale);
{% else %}            const float base = most == nothing() ? 0.0f : most * scale;
            shrink[r] = exp2_fast(fmaf(largest[r], scale, -base));
{% endif %}            largest[r] = most;
            float sum = 0.0f;
#pragma unroll
            for (int j = 0; j < 4 * PAIRS_K; ++j) {
                float& score = scores[r / 2][j / 2][r % 2 * 2 + j % 2];
                score = exp2_fast({% if scores %}(score - base) * scale{% else %}fmaf(score, scale, -base){% endif %});
                sum += score;
            }
            sums[r] = fmaf(sums[r], shrink[r], sum);
        }
    }
    DEVICE void rescale(float (&acc)[TILES_M][2 * PAIRS_N][4]) const {
#pragma unroll
        for (int n = 0; n < TILES_M * 2 * PAIRS_N * 4; ++n) {
            const int i = n / (8 * PAIRS_N), j = n / 4 % (2 * PAIRS_N), c = n % 4;
            acc[i][j][c] *= shrink[2 * i + c / 2];
        }
    }
    // Divides by the sum of all weights. Without keys{% if scores %}, or with all of them hidden,{% endif %} {# -#}
    there is nothing to take the mean of.
    DEVICE void finish(bool any, float (&acc)[TILES_M][2 * PAIRS_N][4]) {
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            float sum = sums[r] + __shfl_xor_sync(~0u, sums[r], 1);
            sum += __shfl_xor_sync(~0u, sum, 2);
            shrink[r] = {% if scores %}any && sum != 0.0f{% else %}any{% endif %} ? 1.0f / sum : 0.0f;
        }
        rescale(acc);
    }
};
{% if scores %}// What the scores of a lane become.
struct Function {
    scores::TileValues tile;
    scores::RowValues rows[Softmax::ROWS];
    int query;

    // `first` is the lane's first query.
    DEVICE Function(const Params& p, const TileOrigin& origin, int first)
        : tile(scores::epilogue_begin(p, origin.batch, origin.row / p.tile_queries)), query(first) {
#pragma unroll
        for (int r = 0; r < Softmax::ROWS; ++r) rows[r] = scores::epilogue_row(p, tile, {row(r), 0});
    }
    DEVICE int row(int r) const { return query + r * 8; }
    DEVICE void apply(const Params& p, int first_key, float (&of)[TILES_M][2 * PAIRS_K][4]) const {
#pragma unroll
        for (int j = 0; j < 2 * PAIRS_K; ++j) {
            const int key = first_key + j * 8 + threadIdx.x % 4 * 2;
            const scores::ColumnValues column = scores::epilogue_column(p, tile, {query, key});
#pragma unroll
            for (int r = 0; r < Softmax::ROWS; ++r) {
                float(&score)[4] = of[r / 2][j];
                float strip[scores::STRIP] = {score[r % 2 * 2] * p.score_scale, score[r % 2 * 2 + 1] * p.score_scale};
                const scores::Fetched fetched = scores::epilogue_fetch(p, tile, {row(r), key});
                scores::epilogue_visit(p, tile, column, rows[r], fetched, {row(r), key}, strip);
                score[r % 2 * 2] = strip[0];
                score[r % 2 * 2 + 1] = strip[1];
            }
        }
    }
};
{% endif -%}
// Weights of 16 keys as the left operand of a product: the accumulators of the one before it, in pairs.
DEVICE void weights_of(u32 (&a)[4], const float (&scores)[2 * PAIRS_K][4], int step) {
#pragma unroll
    for (int w = 0; w < 4; ++w) {
        const float(&pair)[4] = scores[2 * step + w / 2];
        a[w] = narrow_pair<Element>(pair[w % 2 * 2], pair[w % 2 * 2 + 1]);
    }
}

{% if attention_wgmma %}{% include "mainloop/attention_wgmma.cuh" %}{% else %}{# -#}
{% include "mainloop/attention_mma.cuh" %}{% endif %}
{% include "mainloop/sm80_strips.cuh" %}
extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS) postlude_kernel(const __grid_constant__ Params p) {
    begin_early();
    TileOrigin tile = locate(p);
    if (tile.batch >= p.batch) return;
    if (p.causal) tile.row = (u32(p.m - 1) / BM) * BM - tile.row;   // the longest first
    Accum acc[TILES_M][2 * PAIRS_N][4] = {};
    accumulate(p, tile, acc);
    run_epilogue(p, tile, acc, shared_memory);
}
