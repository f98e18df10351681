// ---- mainloop: attention on the tensor cores of sm_80 and later. softmax(scale * Q K^T) V, and scores are never in memory ----
//
// Each warp has WARP_M queries. All of a block go through the keys of their sequence, KEYS at a time, with the values of the same
// keys beside them in a ring of STAGES. A query's scores of a block are the accumulators of a first product. Their powers,
// relative to the largest score so far, are the left operand of a second one: the accumulators of one mma.sync lie as the
// operand of the next. Where a larger score turns up, what was added up before is scaled down.
constexpr int WARPS = WARPS_M * WARPS_N, WARP_M = BM / WARPS_M, WARP_N = BN;
constexpr int TILES_M = WARP_M / 16, PAIRS_N = WARP_N / 16;   // 16-row and 16-column (two mma.sync wide) pieces of a warp's part
constexpr int PAIRS_K = KEYS / 16, STEPS = WIDTH / 16;        // pieces of 16 keys of a block, and of 16 elements of a query
static_assert(sizeof(Element) == 2 && WARPS_N == 1 && THREADS == 32 * WARPS && WARP_M % 16 == 0, "warps cover the tile");
static_assert(KEYS % 16 == 0 && STAGES >= 2, "whole steps, and a block that arrives while another is used");

extern __shared__ __align__(1024) u8 shared_memory[];

// Lines of so many elements in shared memory. Pieces of 16 bytes are exclusive-ored with the number of the line, so that eight
// lines meet different banks.
template <int COLUMNS> struct Lines {
    static constexpr int PITCH = COLUMNS * 2, PIECES = COLUMNS / 8;
    static_assert(PITCH >= 64 && PITCH <= 256 && (PITCH & (PITCH - 1)) == 0, "places in a line are exclusive-ored");
    static DEVICE constexpr u32 twist(int line) { return PITCH >= 128 ? (line & 7) << 4 : (line >> 1 & 3) << 4; }
    static DEVICE constexpr u32 at(int line, int byte) { return u32(line * PITCH) + (u32(byte) ^ twist(line)); }

    // Begins to copy COUNT lines. Those behind the first `lines`, and elements behind the first `elements`, become zeros.
    template <int COUNT> static DEVICE void copy(u32 to, const Element* from, i64 ld, int lines, int elements) {
        constexpr int ALL = COUNT * PIECES;
#pragma unroll 8
        for (int i = threadIdx.x; i < ALL; i += THREADS) {
            const int line = i / PIECES, first = i % PIECES * 8, left = line < lines ? elements - first : 0;
            const int valid = left <= 0 ? 0 : left < 8 ? left : 8;
            copy_async<16>(to + at(line, first * 2), from + (valid > 0 ? line * ld + first : 0), valid * 2);
        }
    }
};
using Queries = Lines<WIDTH>;
using Values = Lines<BN>;
constexpr int QUERY_BYTES = BM * Queries::PITCH, KEY_BYTES = KEYS * Queries::PITCH, STAGE_BYTES = KEY_BYTES + KEYS * Values::PITCH;
static_assert(QUERY_BYTES + STAGES * STAGE_BYTES <= MAINLOOP_SMEM, "the plan made room for queries, keys and values");

// The row in memory of a tile's row, and M where there is none. Tiles begin anew in each sequence.
DEVICE int query_at(const Params& p, const TileOrigin& tile, int row) {
    const int sequence = tile.row / p.tile_queries, query = row - sequence * p.tile_queries;
    return query < p.queries ? sequence * p.queries + query : p.m;
}

// acc = the mean of the values, weighted by the softmax of the scores. On exit all of shared memory is free again.
DEVICE void accumulate(const Params& p, const TileOrigin& tile, Accum (&acc)[TILES_M][2 * PAIRS_N][4]) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int sequence = tile.row / p.tile_queries, query = tile.row - sequence * p.tile_queries;   // the tile's first one
    const int last = min(query + BM, p.queries), seen = p.causal ? min(p.keys, last) : p.keys;   // keys that some query sees
    const int blocks = (seen + KEYS - 1) / KEYS;
    const u32 queries = shared_address(shared_memory), ring = queries + QUERY_BYTES;
    const Element* const first_key = static_cast<const Element*>(p.key) + (tile.batch * p.batch_stride_key + i64(sequence) * p.keys * p.key_ld);
    const Element* const first_value = static_cast<const Element*>(p.b) +
                                       (tile.batch * p.batch_stride_b + i64(sequence) * p.keys * p.ldb + tile.column);
    auto copy = [&](int block) {
        if (block < blocks) {
            const u32 to = ring + u32(block % STAGES) * STAGE_BYTES;
            const i64 key = i64(block) * KEYS;
            const int left = p.keys - block * KEYS;
            Queries::copy<KEYS>(to, first_key + key * p.key_ld, p.key_ld, left, p.width);
            Values::copy<KEYS>(to + KEY_BYTES, first_value + key * p.ldb, p.ldb, left, p.n - tile.column);
        }
        copy_async_commit();
    };
    Queries::copy<BM>(queries, static_cast<const Element*>(p.a) + (tile.batch * p.batch_stride_a + (i64(sequence) * p.queries + query) * p.lda),
                      p.lda, p.queries - query, p.width);
#pragma unroll
    for (int block = 0; block < STAGES - 1; ++block) copy(block);

    // Where this lane's lines of fragments begin: of queries, of keys and, transposed, of values.
    const u32 from_queries = queries + Queries::at(warp * WARP_M + (lane & 15), (lane >> 4) * 16);
    const u32 from_keys = Queries::at((lane & 7) | (lane >> 4 << 3), (lane >> 3 & 1) * 16);
    const u32 from_values = KEY_BYTES + Values::at(lane & 15, (lane >> 4) * 16);
    const int own_query = query + warp * WARP_M + lane / 4;   // of the first of this lane's rows; the others are 8 apart

    const float scale = p.score_scale * 1.4426950408889634f;   // powers of two
    const float NOTHING = __uint_as_float(0xff800000u);       // minus infinity: the score of a key that a query does not see
    float largest[2 * TILES_M], sums[2 * TILES_M];
#pragma unroll
    for (int r = 0; r < 2 * TILES_M; ++r) largest[r] = NOTHING, sums[r] = 0.0f;
#pragma unroll 1
    for (int block = 0; block < blocks; ++block) {
        // The block has arrived for every thread, and no thread reads the one before it any more.
        copy_async_wait<STAGES - 2>();
        __syncthreads();
        copy(block + STAGES - 1);
        const u32 stage = ring + u32(block % STAGES) * STAGE_BYTES;

        float scores[TILES_M][2 * PAIRS_K][4] = {};
#pragma unroll
        for (int step = 0; step < STEPS; ++step) {
            u32 a[TILES_M][4];
#pragma unroll
            for (int i = 0; i < TILES_M; ++i) load_matrices(a[i], (from_queries ^ step * 32) + i * 16 * Queries::PITCH);
#pragma unroll
            for (int j = 0; j < PAIRS_K; ++j) {
                u32 b[4];
                load_matrices(b, stage + (from_keys ^ step * 32) + j * 16 * Queries::PITCH);
#pragma unroll
                for (int i = 0; i < TILES_M; ++i) {
                    multiply_accumulate<Element>(scores[i][2 * j], a[i], b[0], b[1]);
                    multiply_accumulate<Element>(scores[i][2 * j + 1], a[i], b[2], b[3]);
                }
            }
        }
        // Keys behind the last one that a query sees.
        if ((block + 1) * KEYS > p.keys || p.causal && (block + 1) * KEYS > query + warp * WARP_M + 1) {
#pragma unroll
            for (int n = 0; n < TILES_M * 2 * PAIRS_K * 4; ++n) {
                const int i = n / (8 * PAIRS_K), j = n / 4 % (2 * PAIRS_K), c = n % 4;
                const int key = block * KEYS + j * 8 + lane % 4 * 2 + (c & 1), of = own_query + i * 16 + (c >> 1) * 8;
                if (key >= p.keys || p.causal && key > of) scores[i][j][c] = NOTHING;
            }
        }
#pragma unroll
        for (int r = 0; r < 2 * TILES_M; ++r) {
            float most = largest[r];
#pragma unroll
            for (int j = 0; j < 4 * PAIRS_K; ++j) most = fmaxf(most, scores[r / 2][j / 2][r % 2 * 2 + j % 2]);
            most = fmaxf(most, __shfl_xor_sync(~0u, most, 1));
            most = fmaxf(most, __shfl_xor_sync(~0u, most, 2));
            // Nothing is relative to a query that has seen nothing yet.
            const float base = most == NOTHING ? 0.0f : most * scale, shrink = exp2_fast(fmaf(largest[r], scale, -base));
            largest[r] = most;
            float sum = 0.0f;
#pragma unroll
            for (int j = 0; j < 4 * PAIRS_K; ++j) {
                float& score = scores[r / 2][j / 2][r % 2 * 2 + j % 2];
                score = exp2_fast(fmaf(score, scale, -base));
                sum += score;
            }
            sums[r] = fmaf(sums[r], shrink, sum);
#pragma unroll
            for (int j = 0; j < 4 * PAIRS_N; ++j) acc[r / 2][j / 2][r % 2 * 2 + j % 2] *= shrink;
        }
#pragma unroll
        for (int step = 0; step < PAIRS_K; ++step) {
            u32 a[TILES_M][4];
#pragma unroll
            for (int i = 0; i < TILES_M; ++i)
#pragma unroll
                for (int w = 0; w < 4; ++w) {
                    const float(&pair)[4] = scores[i][2 * step + w / 2];
                    a[i][w] = narrow_pair<Element>(pair[w % 2 * 2], pair[w % 2 * 2 + 1]);
                }
#pragma unroll
            for (int j = 0; j < PAIRS_N; ++j) {
                u32 b[4];
                load_matrices_transposed(b, stage + (from_values ^ j * 32) + step * 16 * Values::PITCH);
#pragma unroll
                for (int i = 0; i < TILES_M; ++i) {
                    multiply_accumulate<Element>(acc[i][2 * j], a[i], b[0], b[1]);
                    multiply_accumulate<Element>(acc[i][2 * j + 1], a[i], b[2], b[3]);
                }
            }
        }
    }
    copy_async_wait<0>();
#pragma unroll
    for (int r = 0; r < 2 * TILES_M; ++r) {
        float sum = sums[r] + __shfl_xor_sync(~0u, sums[r], 1);
        sum += __shfl_xor_sync(~0u, sum, 2);
        const float inverse = blocks == 0 ? 0.0f : 1.0f / sum;   // without keys there is nothing to take the mean of
#pragma unroll
        for (int j = 0; j < 4 * PAIRS_N; ++j) acc[r / 2][j / 2][r % 2 * 2 + j % 2] *= inverse;
    }
}

{% include "mainloop/sm80_strips.cuh" %}
extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS) postlude_kernel(const __grid_constant__ Params p) {
    const TileOrigin tile = locate(p);
    if (tile.batch >= p.batch) return;
    Accum acc[TILES_M][2 * PAIRS_N][4] = {};
    accumulate(p, tile, acc);
    run_epilogue(p, tile, acc, shared_memory);
}
