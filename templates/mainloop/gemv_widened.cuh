// ---- mainloop: GEMV of weights with eight or four bits beside a few rows of 16-bit activations ----
//
// A block owns BM rows, which are all rows, and BN columns. Its warps, and those of the other blocks of its cluster, share the K
// axis in steps of SPAN. Weights go from global memory to registers, are widened there, and are the first operand of mma.sync:
// sixteen columns of B are its rows, and eight rows of A its columns. Which elements of K share an instruction does not matter,
// as long as both operands agree. So a lane loads consecutive ones, and a step lies inside one block of scales: the sums of a
// step are scaled, not the weights, which stay exact.
namespace gemv {

constexpr int WARP = 32, WARPS = THREADS / WARP, QUAD = 4;
constexpr int PACK = Packed<ElementB>::COUNT, WORD = 4 * PACK;   // elements in a byte, in 32 bits
// K elements of a lane in a step: 16 bytes of weights, unless a block of scales is shorter than those of four lanes.
DEVICE constexpr int own_terms(int block, int most) { return block % (QUAD * most) == 0 ? most : own_terms(block, most / 2); }
constexpr int OWN = own_terms({{ terms_b }}, 16 * PACK);
constexpr int SPAN = QUAD * OWN, WORDS = OWN / WORD;
constexpr int TILES_N = BN / 16, TILES_M = BM / 8;               // of a warp
constexpr int SUMS = TILES_N * TILES_M * 4;                      // of a thread
constexpr int PARTS = WARPS;                                     // partial sums of a block for each element
constexpr int STRIPS = BN / STRIP;

static_assert(A_K_MAJOR && B_K_MAJOR, "a lane's elements of K lie beside each other");
static_assert(BN % 16 == 0 && BM % 8 == 0 && OWN % WORD == 0, "whole instructions");
static_assert(BN % STRIP == 0 && BM * STRIPS <= THREADS, "one strip a thread");
static_assert((PARTS + (CLUSTER > 1)) * BM * BN * {{ accumulator_bytes }} <= MAINLOOP_SMEM,
              "the plan made room for the parts, and for a block's sums");

DEVICE float add(float a, float b) { return a + b; }

using Pair = WidenedPairs<Element, ElementB>;

// Consecutive bytes of which `left` exist; the others are zero. What is read once leaves the L1 cache to the activations.
template <bool ONCE, int ALIGN, int BYTES> DEVICE void load_bytes(u32* to, const u8* from, int left) {
    constexpr int MOST = BYTES < 16 ? BYTES : 16, WIDTH = ALIGN < MOST ? ALIGN : MOST;
    union Piece {
        Raw<u8, WIDTH> raw[BYTES / WIDTH];
        u32 words[BYTES / 4];
        DEVICE Piece() {}
    } piece;
#pragma unroll
    for (int i = 0; i < BYTES / WIDTH; ++i) {
        if (left >= (i + 1) * WIDTH) {
            if constexpr (ONCE && WIDTH == 16)
                asm volatile("ld.global.L1::no_allocate.L2::128B.v4.b32 { %0, %1, %2, %3}, [%4];"
                             : "=r"(piece.words[i * 4]), "=r"(piece.words[i * 4 + 1]), "=r"(piece.words[i * 4 + 2]),
                               "=r"(piece.words[i * 4 + 3]) : "l"(from + i * WIDTH) : "memory");
            else load_wide<WIDTH>(piece.raw[i], from + i * WIDTH);
        }
        else load_narrow<WIDTH>(piece.raw[i], from + i * WIDTH, 1, left - i * WIDTH);
    }
#pragma unroll
    for (int i = 0; i < BYTES / 4; ++i) to[i] = piece.words[i];
}

// A lane's weights of one step: lines lane / 4 and lane / 4 + 8 of every sixteen.
struct Weights {
    u32 words[TILES_N][2][WORDS];
    DEVICE void load(const u8* line, i64 distance, int lines, int left) {
#pragma unroll
        for (int t = 0; t < TILES_N; ++t)
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                // Lines after the last one repeat it. Their sums are never used.
                const int at = t * 16 + h * 8;
                load_bytes<true, B_ALIGN, WORDS * 4>(words[t][h], line + min(at, lines) * distance, left);
            }
    }
};
// The same elements of K of the rows of A, as pairs.
struct Tokens {
    u32 pairs[TILES_M][OWN / 2];
    DEVICE void load(const Element* row, i64 distance, int rows, int left) {
#pragma unroll
        for (int m = 0; m < TILES_M; ++m) {
            u32 words[OWN / 2];
            load_bytes<false, A_ALIGN, OWN * 2>(words, reinterpret_cast<const u8*>(row + min(m * 8, rows) * distance), left * 2);
#pragma unroll
            for (int i = 0; i < OWN / 2; ++i) {
                const int inside = i % (WORD / 2), first = i - inside / 2 - inside % 2;   // of two words with elements of a pair
                pairs[m][i] = Pair::APART == 1 ? words[i]
                                               : __byte_perm(words[first], words[first + Pair::APART / 2],
                                                             inside % 2 ? 0x7632 : 0x5410);
            }
        }
    }
};

{% if scaled_b %}// The scales of a lane's lines in a step, and their zero points, twice each.
struct Numbers {
    float scales[TILES_N][2];
{% if shifted_b %}    u32 zeros[TILES_N][2];
{% endif %}    DEVICE void load(const Params& p, int batch, int column, int k) {
#pragma unroll
        for (int t = 0; t < TILES_N; ++t)
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                const int line = min(column + t * 16 + h * 8, p.n - 1);
                scales[t][h] = Blocks<false>::scale(p, batch, line, k);
{% if shifted_b %}                const float zero = Blocks<false>::zero(p, batch, line, k);
                zeros[t][h] = narrow_pair<Element>(zero, zero);
{% endif %}            }
    }
};
{% endif -%}
{% if shifted_b %}// Both numbers of a pair minus the same zero point, a small integer: exact.
DEVICE u32 shifted(u32 pair, u32 zeros) { return multiply_add_two<Element>(zeros, {{ minus_one }}, pair); }
{% endif -%}
// This thread's sums. With `CONSTANT_B` the weights are loaded before the kernels that may still be writing A have ended.
DEVICE void multiply_all(const Params& p, Accum (&sums)[SUMS], const TileOrigin& tile, u32 rank) {
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    const int column = tile.column + lane / QUAD, lines = max(p.n - 1 - column, 0), row = min(lane / QUAD, p.m - 1 - tile.row);
    const i64 line_bytes = p.ldb / PACK;
    const u8* const origin_b =
        static_cast<const u8*>(p.b) + (tile.batch * (p.batch_stride_b / PACK) + min(column, p.n - 1) * line_bytes);
    const Element* const origin_a = static_cast<const Element*>(p.a) + (tile.batch * p.batch_stride_a + (tile.row + row) * p.lda);
    constexpr int STEP = WARPS * CLUSTER * SPAN;
    const int lane_k = lane % QUAD * OWN;
    int k = (rank * WARPS + warp) * SPAN;
    // Weights and their numbers are a step ahead.
    Weights now, next;
    auto load_weights = [&](Weights& w, int k) {
        w.load(origin_b + (k + lane_k) / PACK, line_bytes, lines, (p.k - k - lane_k + PACK - 1) / PACK);
    };
    if (k < p.k) load_weights(now, k);
    if constexpr (CONSTANT_B) wait_for_earlier_kernels();
{% if scaled_b %}    Numbers numbers, next_numbers;
    if (k < p.k) numbers.load(p, tile.batch, column, k);
{% endif %}#pragma unroll 2
    for (; k < p.k; k += STEP) {
        const Weights w = now;
        if (k + STEP < p.k) load_weights(next, k + STEP);
{% if scaled_b %}        const Numbers by = numbers;
        if (k + STEP < p.k) next_numbers.load(p, tile.batch, column, k + STEP);
{% endif %}        Tokens x;
        x.load(origin_a + k + lane_k, p.lda, p.m - 1 - tile.row - row, p.k - k - lane_k);
#pragma unroll
        for (int t = 0; t < TILES_N; ++t) {
            float part[TILES_M][4];
#pragma unroll
            for (int i = 0; i < TILES_M * 4; ++i)
                part[i / 4][i % 4] = {% if scaled_b %}0.0f{% else %}sums[t * TILES_M * 4 + i]{% endif %};
#pragma unroll
            for (int i = 0; i < WORDS; ++i) {
                u32 upper[WORD / 2], lower[WORD / 2];
                Pair::of(upper, w.words[t][0][i]);
                Pair::of(lower, w.words[t][1][i]);
{% if shifted_b %}#pragma unroll
                for (int j = 0; j < WORD / 2; ++j)
                    upper[j] = shifted(upper[j], by.zeros[t][0]), lower[j] = shifted(lower[j], by.zeros[t][1]);
{% endif %}#pragma unroll
                for (int j = 0; j < WORD / 2; j += 2) {
                    const u32 a[4] = {upper[j], lower[j], upper[j + 1], lower[j + 1]};
#pragma unroll
                    for (int m = 0; m < TILES_M; ++m) {
                        const u32* const b = x.pairs[m] + (i * (WORD / 2) + j);
                        multiply_accumulate<Element>(part[m], a, b[0], b[1]);
                    }
                }
            }
#pragma unroll
            for (int i = 0; i < TILES_M * 4; ++i) {
                float& sum = sums[t * TILES_M * 4 + i];
{% if scaled_b %}                sum = __fmaf_rn(part[i / 4][i % 4], by.scales[t][i % 4 / 2], sum);
{% else %}                sum = part[i / 4][i % 4];
{% endif %}
            }
        }
        now = next;
{% if scaled_b %}        numbers = next_numbers;
{% endif %}    }
}

// Stores the sums of the block's warps in shared memory, one after the other.
DEVICE void store_parts(Accum* parts, Accum (&sums)[SUMS]) {
    const int lane = threadIdx.x % WARP;
    Accum* const part = parts + threadIdx.x / WARP * (BM * BN) + lane % QUAD * 2 * BN + lane / QUAD;
#pragma unroll
    for (int t = 0; t < TILES_N; ++t)
#pragma unroll
        for (int i = 0; i < TILES_M * 4; ++i)
            part[(i / 4 * 8 + i % 2) * BN + t * 16 + i % 4 / 2 * 8] = sums[t * TILES_M * 4 + i];
    __syncthreads();
}
