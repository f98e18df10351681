// ---- mainloop: GEMV of weights with eight or four bits beside a few rows of 16-bit activations ----
//
// A block owns BM rows, which are all rows, and BN columns. Its warps, and those of the other blocks of its cluster, share the K
// axis in steps of SPAN. Weights are widened in registers for mma.sync. They are its first operand, sixteen columns at a time.
// Beside four bits, sixteen rows are the first operand. Which elements of K share an instruction does not matter, as long as
// both operands agree. So a lane loads consecutive ones, and a step lies inside one block of scales: the sums of a step are
// scaled, not the weights, which stay exact. Which column of B is which column of an instruction does not matter either. So the
// columns of a lane are consecutive, and their scales lie beside each other.
//
// Weights beside f16 may stay bare: their bits are those of an f16 below the normal ones, which tensor cores multiply exactly.
// What they are too large by comes off the sums of a step: so much times the sum of the activations.
//
// Weights and activations of the next steps are on their way to a ring in shared memory, and no register waits for memory. A
// warp has a ring of its own, so that no barrier of a block is needed.
namespace gemv {

constexpr int WARP = 32, WARPS = THREADS / WARP, QUAD = 4;
constexpr int PACK = Packed<ElementB>::COUNT, WORD = 4 * PACK;   // elements in a byte, in 32 bits
// K elements of a lane in a step: 16 bytes of weights, unless a block of scales is shorter than those of four lanes.
DEVICE constexpr int own_terms(int block, int most) { return block % (QUAD * most) == 0 ? most : own_terms(block, most / 2); }
constexpr int OWN = own_terms({{ terms_b }}, 16 * PACK);
constexpr int SPAN = QUAD * OWN, WORDS = OWN / WORD;
constexpr int STEP = WARPS * CLUSTER * SPAN;                     // from one step of a warp to the next one
constexpr bool TALL = BM == 16 && PACK == 2;                     // whether activations are the first operand
constexpr int TILES_M = BM / 8, TILES_N = BN / 16;               // of a warp
constexpr int LINES = BN / 8;                                    // columns of B of a lane
constexpr int SUMS = BN * BM / WARP;                             // of a thread
constexpr int PARTS = WARPS;                                     // partial sums of a block for each element
constexpr int STRIPS = BN / STRIP;

// The ring of a warp, in whose place the warp's sums are left afterwards. A piece is what a lane has of a line in a step.
constexpr int PIECE = WORDS * 4, LINE_BYTES = WARP * PIECE, WEIGHTS_BYTES = LINES * LINE_BYTES;
constexpr int ROW_BYTES = SPAN * 2, STAGE_BYTES = WEIGHTS_BYTES + BM * ROW_BYTES, RING_BYTES = STAGES * STAGE_BYTES;
constexpr int NUMBERS_BYTES = {{ scaled_b }} ? 8 * BN : 0;       // scales and zero points of a step, behind the ring
constexpr int PART_BYTES = BM * BN * {{ accumulator_bytes }}, OWN_BYTES = RING_BYTES + NUMBERS_BYTES;
constexpr int PART = (OWN_BYTES > PART_BYTES ? OWN_BYTES : PART_BYTES) / {{ accumulator_bytes }};   // from warp to warp

static_assert(A_K_MAJOR && B_K_MAJOR, "a lane's elements of K lie beside each other");
static_assert(BN % 16 == 0 && (BM == 8 || BM == 16) && OWN % WORD == 0 && OWN % 8 == 0, "whole instructions, and chunks of A");
static_assert(BN % STRIP == 0 && BM * STRIPS <= THREADS, "one strip a thread");
static_assert(PARTS * PART * {{ accumulator_bytes }} + (CLUSTER > 1) * PART_BYTES <= MAINLOOP_SMEM,
              "the plan made room for the rings or the parts, and for a block's sums");

// A distance in units of BYTES. One of 32 bits is added to an address by one instruction.
template <bool SHORT> struct DistanceOf {
    using Type = i64;
    static constexpr int BYTES = 1;
};
template <> struct DistanceOf<true> {
    using Type = u32;
    static constexpr int BYTES = 16;
};

DEVICE float add(float a, float b) { return a + b; }

using Pair = WidenedPairs<Element, ElementB>;
constexpr bool BARE = Pair::BARE, NIBBLES = PACK == 2;
// Upper nibbles of bytes that stay bare count sixteen times, and are added up by themselves.
constexpr float UPPER = BARE && NIBBLES ? 0.0625f : 1.0f, UNIT = BARE ? 16777216.0f : 1.0f;
constexpr bool SCALED = {{ scaled_b }}, SHIFTED = {{ shifted_b }};
// Whether sums of activations are needed, and whether products are added to the sums of all steps at once.
constexpr bool TOTALS = SHIFTED || Pair::OFFSET > 0, DIRECT = !SCALED && UPPER == 1.0f;

template <class P> DEVICE void pairs_of(u32 (&pairs)[WORD / 2], u32 word) {
    if constexpr (P::BARE) P::bare(pairs, word);
    else P::of(pairs, word);
}
DEVICE void load_words(u32 (&to)[4], u32 address) {
    asm volatile("ld.shared.v4.b32 { %0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(address) : "memory");
}
DEVICE void load_words(u32 (&to)[2], u32 address) {
    asm volatile("ld.shared.v2.b32 { %0, %1}, [%2];" : "=r"(to[0]), "=r"(to[1]) : "r"(address) : "memory");
}
DEVICE void load_words(u32 (&to)[1], u32 address) {
    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(to[0]) : "r"(address) : "memory");
}

// Copies bytes to shared memory, of which `left` exist; the others become zero. No register waits if they lie at words.
template <int ALIGN, int BYTES, bool WHOLE, bool STAYS> DEVICE void copy_bytes(u32 to, const u8* from, int left) {
    constexpr int WIDTH = ALIGN < BYTES ? ALIGN : BYTES;
#pragma unroll
    for (int i = 0; i < BYTES; i += WIDTH < 4 ? 4 : WIDTH) {
        if constexpr (WIDTH < 4) {
            Raw<u8, 4> word;
#pragma unroll
            for (int byte = 0; byte < 4; ++byte) word.elements[byte] = i + byte < left ? from[i + byte] : u8(0);
            asm volatile("st.shared.b32 [%0], %1;" ::"r"(to + i), "r"(word.words[0]) : "memory");
        } else if constexpr (WHOLE) {
            copy_async<WIDTH, STAYS>(to + i, from + i);
        } else {
            copy_async<WIDTH>(to + i, from + i, min(max(left - i, 0), WIDTH));
        }
    }
}

// The elements of a warp's rows of A in a step, in chunks of 16 bytes. A lane reads CHUNKS of each row, one after the other, and
// chunk i of lane q lies at i * QUAD + q: so lanes read from neighbouring banks, in odd rows from the other half of them.
constexpr int CHUNKS = OWN / 8, ROW_CHUNKS = QUAD * CHUNKS, ROWS_AT_ONCE = WARP / ROW_CHUNKS;
DEVICE constexpr int place_of_chunk(int row, int i, int q) {
    return (i * QUAD + q ^ (CHUNKS > 1 ? row % 2 * QUAD : 0)) * 16;
}
struct Tokens {
    u32 pairs[TILES_M][OWN / 2];   // those that meet the pairs of weights
    DEVICE void load(u32 stage, int lane) {
#pragma unroll
        for (int m = 0; m < TILES_M; ++m) {
            u32 words[OWN / 2];
#pragma unroll
            for (int i = 0; i < CHUNKS; ++i) {
                u32 four[4];
                load_words(four, stage + (m * 8 * ROW_BYTES + (i & ~1) * 64) +
                                     (lane / QUAD * ROW_BYTES + place_of_chunk(lane / QUAD, i % 2, lane % QUAD)));
#pragma unroll
                for (int j = 0; j < 4; ++j) words[i * 4 + j] = four[j];
            }
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

// The products of a tile of two lines of a lane: four sums for both lines and eight rows, or for each line and 16 rows.
constexpr int OUTS = TILES_M;
DEVICE void multiply_two(float (&sums)[OUTS][4], const Tokens& tokens, int i, int j, const u32 (&x)[2], const u32 (&y)[2]) {
    const auto& pairs = tokens.pairs;
    const u32 rows[4] = {pairs[0][i], pairs[TILES_M - 1][i], pairs[0][j], pairs[TILES_M - 1][j]};
    const u32 lines[4] = {x[0], x[1], y[0], y[1]};
#pragma unroll
    for (int out = 0; out < OUTS; ++out) {
        if constexpr (TALL) multiply_accumulate<Element>(sums[out], rows, x[out], y[out]);
        else multiply_accumulate<Element>(sums[out], lines, pairs[out][i], pairs[out][j]);
    }
}
// Adds a multiple of the activations: those of two pairs.
constexpr int TOTAL_OUTS = TALL ? 1 : TILES_M;
DEVICE void add_two(float (&sums)[TOTAL_OUTS][4], const Tokens& tokens, int i, int j) {
    constexpr u32 UNITS = BARE ? 0x00010001 : IS_F16<Element> ? 0x3c003c00 : 0x3f803f80;
    const auto& pairs = tokens.pairs;
    const u32 units[4] = {UNITS, UNITS, UNITS, UNITS};
    const u32 rows[4] = {pairs[0][i], pairs[TILES_M - 1][i], pairs[0][j], pairs[TILES_M - 1][j]};
#pragma unroll
    for (int out = 0; out < TOTAL_OUTS; ++out) {
        if constexpr (TALL) multiply_accumulate<Element>(sums[out], rows, UNITS, UNITS);
        else multiply_accumulate<Element>(sums[out], units, pairs[out][i], pairs[out][j]);
    }
}
// The pairs of a word that share an instruction: first and second of a half of its pairs.
constexpr int BESIDE = NIBBLES ? 2 : 1;
// Where sum i of an OUT belongs: the row among the lane's ROWS, and the column among those of the lane's numbers. And the sum of
// a row's activations.
constexpr int ROWS = TALL ? 2 : 2 * TILES_M;
DEVICE constexpr int row_of(int out, int i) { return TALL ? i / 2 : out * 2 + i % 2; }
DEVICE constexpr int column_of(int t, int out, int i) { return TALL ? i % 2 * LINES + t * 2 + out : t * 2 + i / 2; }
DEVICE float total_of(const float (&totals)[TOTAL_OUTS][4], int row) {
    return TALL ? totals[0][row * 2] : totals[row / 2][row % 2];
}

{% if scaled_b %}// The scales or zero points of a warp's columns in a step. A lane loads those of its own columns two steps
// ahead, as they are stored, since a conversion would wait. It leaves them in shared memory, where lanes read the COUNT that
// their sums need.
template <class T, int COUNT> struct Numbers {
    static constexpr int EACH = BN > WARP ? BN / WARP : 1;
    static constexpr bool BESIDE = Blocks<false>::LINES == 1;
    const T* from[EACH];
    i64 distance;
    T* own;                // where this lane leaves its numbers
    const T* read_from;
    T next[EACH];
    Raw<T, COUNT> now;

    DEVICE void lie(T* numbers, i64 ld, int first) {
        own = numbers + threadIdx.x % WARP % BN, read_from = numbers + first, distance = ld;
    }
    DEVICE void load(int k) {
#pragma unroll
        for (int i = 0; i < EACH; ++i) next[i] = from[i][i64(u32(k) / Blocks<false>::TERMS) * (BESIDE ? distance : 1)];
    }
    DEVICE void leave() {
#pragma unroll
        for (int i = 0; i < EACH; ++i) own[i * WARP] = next[i];
    }
    DEVICE void read() { load_wide<COUNT>(now, read_from); }
    DEVICE float at(int i) const { return float(widen(now.elements[i])); }
};
{% endif -%}
// The steps of a warp. If the last step of all ends behind K, its warp begins there, and the first one follows. So no copy inside
// of the loop has to look where K ends.
struct Steps {
    int first, k, count;   // first of the warp, and where it begins
    DEVICE void of(int terms, int warp) {
        const int all = u32(terms + SPAN - 1) / SPAN;
        count = all > warp ? u32(all - warp + STEP / SPAN - 1) / (STEP / SPAN) : 0;
        first = warp * SPAN;
        const int last = first + (count - 1) * STEP;
        k = last + SPAN > terms ? last : first;
    }
    DEVICE int after(int k, int terms) const { return k + STEP < terms ? k + STEP : first; }
};
// What a lane copies in the steps of its warp, and where from and to.
struct Copies {
    using OfWeights = DistanceOf<B_ALIGN == 16>;
    using OfTokens = DistanceOf<A_ALIGN == 16>;
    const u8* weights;         // of the next step that is copied
    const Element* tokens;
    typename OfWeights::Type lines[LINES];               // of the lane's lines
    typename OfTokens::Type rows[BM / ROWS_AT_ONCE];     // of rows, of which a lane copies a chunk each
    int rows_there;
    u32 to_weights, to_tokens;

    // Lines and rows after the last one repeat it: their sums are never used.
    DEVICE void of(const Params& p, const TileOrigin& tile, int k, u32 ring) {
        const int lane = threadIdx.x % WARP, chunk = lane % ROW_CHUNKS, row = lane / ROW_CHUNKS;
        const int column = min(tile.column + lane / QUAD * LINES, p.n - 1);
        weights = static_cast<const u8*>(p.b) + (tile.batch * (p.batch_stride_b >> (PACK - 1)) + column * (p.ldb >> (PACK - 1))) +
                  u32(k + lane % QUAD * OWN) / PACK;
#pragma unroll
        for (int line = 0; line < LINES; ++line)
            lines[line] = typename OfWeights::Type(u64(p.ldb) / (PACK * OfWeights::BYTES)) *
                          typename OfWeights::Type(min(line, p.n - 1 - column));
        tokens = static_cast<const Element*>(p.a) + (tile.batch * p.batch_stride_a + tile.row * p.lda) + (k + chunk * 8);
        rows_there = p.m - tile.row;
#pragma unroll
        for (int i = 0; i < BM / ROWS_AT_ONCE; ++i)
            rows[i] = typename OfTokens::Type(u64(p.lda) * 2 / OfTokens::BYTES) *
                      typename OfTokens::Type(min(i * ROWS_AT_ONCE + row, p.m - 1 - tile.row));
        to_weights = ring + lane * PIECE;
        to_tokens = ring + WEIGHTS_BYTES + row * ROW_BYTES + place_of_chunk(row, chunk % CHUNKS, chunk / CHUNKS);
    }
    // Copies a whole step. Beside eight rows, chunks are left out whose rows do not exist.
    DEVICE void copy_tokens(u32 stage) const {
#pragma unroll
        for (int i = 0; i < BM / ROWS_AT_ONCE; ++i)
            if (BM > 8 || i * ROWS_AT_ONCE < rows_there)
                copy_bytes<A_ALIGN, 16, true, true>(to_tokens + stage + i * ROWS_AT_ONCE * ROW_BYTES,
                                                    reinterpret_cast<const u8*>(tokens) + i64(rows[i]) * OfTokens::BYTES, 16);
    }
    DEVICE void copy_weights(u32 stage, int t) const {
#pragma unroll
        for (int h = 0; h < 2; ++h)
            copy_bytes<B_ALIGN, PIECE, true, false>(to_weights + stage + (t * 2 + h) * LINE_BYTES,
                                                    weights + i64(lines[t * 2 + h]) * OfWeights::BYTES, PIECE);
    }
    // Copies a step of which `left` elements of K exist. Few do, so they get little code.
    DEVICE void copy_cut_tokens(const Params& p, const TileOrigin& tile, int left) const {
        const int chunk = threadIdx.x % ROW_CHUNKS, row = threadIdx.x % WARP / ROW_CHUNKS;
#pragma unroll 1
        for (int i = 0; i < BM; i += ROWS_AT_ONCE)
            copy_bytes<A_ALIGN, 16, false, true>(
                to_tokens + i * ROW_BYTES,
                reinterpret_cast<const u8*>(tokens + min(i + row, p.m - 1 - tile.row) * p.lda), (left - chunk * 8) * 2);
    }
    DEVICE void copy_cut_weights(const Params& p, const TileOrigin& tile, int left) const {
        const int lane = threadIdx.x % WARP, column = min(tile.column + lane / QUAD * LINES, p.n - 1);
#pragma unroll 1
        for (int line = 0; line < LINES; ++line)
            copy_bytes<B_ALIGN, PIECE, false, false>(to_weights + line * LINE_BYTES,
                                                     weights + min(line, p.n - 1 - column) * (p.ldb / PACK),
                                                     (left - lane % QUAD * OWN + PACK - 1) / PACK);
    }
    // Brings the first step's weights into the L2 cache, where earlier kernels may still change them.
    DEVICE void announce(int left) const {
        if (left < SPAN || threadIdx.x % 2 > 0) return;   // 32 bytes each
#pragma unroll
        for (int line = 0; line < LINES; ++line)
            asm volatile("prefetch.global.L2 [%0];" ::"l"(weights + i64(lines[line]) * OfWeights::BYTES));
    }
    DEVICE void move(int terms) { weights += terms >> (PACK - 1), tokens += terms; }   // to another step
};

// This thread's sums. With `CONSTANT_B` the first weights are copied before the kernels that may still be writing A have ended.
// Without it they only come nearer, and the kernel waits here.
DEVICE void multiply_all(const Params& p, Accum (&sums)[SUMS], const TileOrigin& tile, u32 rank, unsigned char* memory) {
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, lane_n = lane / QUAD, lane_k = lane % QUAD;
    unsigned char* const own = memory + warp * (PART * {{ accumulator_bytes }});
    const u32 ring = shared_address(own);
    Steps steps;
    steps.of(p.k, rank * WARPS + warp);
    Copies copies;
    copies.of(p, tile, steps.k, ring);
    if constexpr (!CONSTANT_B) {
        if (steps.count > 0) copies.announce(p.k - steps.k);
        wait_for_earlier_kernels();
    }
{% if scaled_b %}    constexpr int COUNT = TALL ? 2 * LINES : LINES;
    int k_of_numbers = steps.k;
    const int column_of_numbers = (TALL ? lane_k : lane_n) * COUNT;
    Numbers<{{ scale_type }}, COUNT> scales;
    scales.lie(reinterpret_cast<{{ scale_type }}*>(own + RING_BYTES), p.b_scale_ld, column_of_numbers);
{% if shifted_b %}    Numbers<{{ zero_type }}, COUNT> zeros;
    zeros.lie(reinterpret_cast<{{ zero_type }}*>(own + RING_BYTES + BN * 4), p.b_zero_ld, column_of_numbers);
{% endif %}    auto load_first_numbers = [&] {
#pragma unroll
        for (int i = 0; i < scales.EACH; ++i) {
            const int column = min(tile.column + (lane + i * WARP) % BN, p.n - 1);
            scales.from[i] = Blocks<false>::address(p, tile.batch, column, 0);
{% if shifted_b %}            zeros.from[i] = Blocks<false>::zero_address(p, tile.batch, column, 0);
{% endif %}        }
        if (steps.count > 0) {
            scales.load(k_of_numbers);
{% if shifted_b %}            zeros.load(k_of_numbers);
{% endif %}        }
    };
{% endif %}    int ahead = steps.k;   // where the copies are
    const int next = steps.after(ahead, p.k);
    const bool is_cut = steps.count > 0 && ahead + SPAN > p.k;   // whether the first step is
    auto go_on = [&] {
        const int next = steps.after(ahead, p.k);
        copies.move(next - ahead);
        ahead = next;
    };
    auto copy_first_tokens = [&](int i) {
        if (i == 0 && is_cut) copies.copy_cut_tokens(p, tile, p.k - ahead);
        else if (i < steps.count) copies.copy_tokens(i * STAGE_BYTES);
    };
{% if scaled_b %}    if (!CONSTANT_B) load_first_numbers();
{% endif %}#pragma unroll
    for (int i = 0; i < STAGES; ++i) {
        if (!CONSTANT_B) copy_first_tokens(i);
        if (i == 0 && is_cut) copies.copy_cut_weights(p, tile, p.k - ahead);
#pragma unroll
        for (int t = 0; t < TILES_N; ++t) {
            if (!(i == 0 && is_cut) && i < steps.count) copies.copy_weights(i * STAGE_BYTES, t);
            copy_async_commit();
        }
        go_on();
    }
    if constexpr (CONSTANT_B) {
        wait_for_earlier_kernels();
        copies.tokens -= ahead - steps.k;
        ahead = steps.k;
#pragma unroll
        for (int i = 0; i < STAGES; ++i) {
            copy_first_tokens(i);
            const int next = steps.after(ahead, p.k);
            copies.tokens += next - ahead;
            ahead = next;
        }
        copy_async_commit();
{% if scaled_b %}        load_first_numbers();
{% endif %}        copy_async_wait<0>();
    }
{% if scaled_b %}    k_of_numbers = next;
    if (steps.count > 0) {
        scales.leave();
        scales.load(next);
{% if shifted_b %}        zeros.leave();
        zeros.load(next);
{% endif %}    }
{% endif %}    float total[TOTAL_OUTS][4] = {};   // of the activations of this lane's rows, in units of bare weights
    u32 stage = 0;
#pragma unroll 1
    for (int left = steps.count; left > 0; --left) {
        const bool more = left > STAGES;   // whether the copies of a step begin now
        copy_async_wait<STAGES * TILES_N - 1>();
        __syncwarp();
        Tokens tokens;
        tokens.load(ring + WEIGHTS_BYTES + stage, lane);
{% if scaled_b %}        scales.read();
{% if shifted_b %}        zeros.read();
{% endif %}{% endif %}        __syncwarp();
        if (more) copies.copy_tokens(stage);
{% if scaled_b %}        scales.leave();
        k_of_numbers = steps.after(k_of_numbers, p.k);
        scales.load(k_of_numbers);
{% if shifted_b %}        zeros.leave();
        zeros.load(k_of_numbers);
{% endif %}{% endif %}        float offset[ROWS] = {};   // what comes off the sums of a row, for bare weights without zero points
        if constexpr (TOTALS) {
            float other[TOTAL_OUTS][4] = {};
            if (!DIRECT)
#pragma unroll
                for (int i = 0; i < 4 * TOTAL_OUTS; ++i) total[i / 4][i % 4] = 0.0f;
#pragma unroll
            for (int i = 0; i < OWN / 2; i += 4) {
                add_two(total, tokens, i, i + BESIDE);
                add_two(DIRECT ? total : other, tokens, i + 3 - BESIDE, i + 3);
            }
            if (!DIRECT)
#pragma unroll
                for (int i = 0; i < ROWS; ++i)
                    offset[i] = (total_of(total, i) + total_of(other, i)) * (SHIFTED ? 1.0f : -float(Pair::OFFSET));
        }
#pragma unroll
        for (int t = 0; t < TILES_N; ++t) {
            if (t > 0) copy_async_wait<STAGES * TILES_N - 1>();
            u32 words[2][WORDS];
#pragma unroll
            for (int h = 0; h < 2; ++h) load_words(words[h], copies.to_weights + stage + (t * 2 + h) * LINE_BYTES);
            // This lane has used what lay there.
            if (more) copies.copy_weights(stage, t);
            copy_async_commit();
            float part[OUTS][4];
#pragma unroll
            for (int i = 0; i < OUTS * 4; ++i) part[i / 4][i % 4] = DIRECT ? sums[t * OUTS * 4 + i] : 0.0f;
            // Upper nibbles come first, since what is too large by begins the sums of the others.
#pragma unroll
            for (int j = WORD / 4 - 1; j >= 0; --j) {
                if (j == 0 && !DIRECT)
#pragma unroll
                    for (int i = 0; i < OUTS * 4; ++i) {
                        float& first = part[i / 4][i % 4];
                        float off = 0.0f;
{% if shifted_b %}                        const float zero = zeros.at(column_of(t, i / 4, i % 4)) + float(Pair::OFFSET);
                        off = -zero * offset[row_of(i / 4, i % 4)];
{% else %}                        if constexpr (TOTALS) off = offset[row_of(i / 4, i % 4)];
{% endif %}                        first = NIBBLES ? __fmaf_rn(first, UPPER, off) : off;
                    }
#pragma unroll
                for (int i = 0; i < WORDS; ++i) {
                    u32 pairs[2][WORD / 2];
#pragma unroll
                    for (int h = 0; h < 2; ++h) pairs_of<Pair>(pairs[h], words[h][i]);
                    const u32 x[2] = {pairs[0][j], pairs[1][j]}, y[2] = {pairs[0][j + BESIDE], pairs[1][j + BESIDE]};
                    const int at = i * (WORD / 2) + j;
                    multiply_two(part, tokens, at, at + BESIDE, x, y);
                }
            }
#pragma unroll
            for (int i = 0; i < OUTS * 4; ++i) {
                float& sum = sums[t * OUTS * 4 + i];
                const float all = part[i / 4][i % 4];
{% if scaled_b %}                sum = __fmaf_rn(all, scales.at(column_of(t, i / 4, i % 4)), sum);
{% else %}                sum = DIRECT ? all : sum + all;
{% endif %}            }
        }
        go_on();
        stage = stage + STAGE_BYTES == RING_BYTES ? 0 : stage + STAGE_BYTES;
    }
    if constexpr (TOTALS && DIRECT)
#pragma unroll
        for (int i = 0; i < SUMS; ++i)
            sums[i] = __fmaf_rn(-float(Pair::OFFSET), total_of(total, row_of(i / 4 % OUTS, i % 4)), sums[i]);
    __syncwarp();   // the warp's sums take the place of its ring
}

// Stores the sums of the block's warps in shared memory, one after the other.
DEVICE void store_parts(Accum* parts, Accum (&sums)[SUMS]) {
    const int lane = threadIdx.x % WARP, lane_n = lane / QUAD, lane_k = lane % QUAD;
    Accum* const part = parts + threadIdx.x / WARP * PART +
                        (TALL ? lane_n * BN + lane_k * 2 * LINES : lane_k * 2 * BN + lane_n * LINES);
#pragma unroll
    for (int i = 0; i < 2 * OUTS; ++i) {   // a row of columns, or one of two runs of a row
        Raw<Accum, LINES> run;
#pragma unroll
        for (int line = 0; line < LINES; ++line)
            run.elements[line] = UNIT * sums[TALL ? line * 4 + i : (line / 2 * OUTS + i / 2) * 4 + line % 2 * 2 + i % 2];
        store_wide<LINES>(part + (TALL ? i / 2 * 8 * BN + i % 2 * LINES : (i / 2 * 8 + i % 2) * BN), run);
    }
    __syncthreads();
}
