// ---- mainloop: GEMV of weights with eight or four bits beside a few rows of 16-bit activations ----
//
// A block owns BM rows, which are all rows, and BN columns. Its warps, and those of the other blocks of its cluster, share the K
// axis in steps of SPAN. Weights are widened in registers for mma.sync. Beside eight rows they are its first operand, sixteen
// columns at a time; sixteen rows are the first operand themselves. Which elements of K share an instruction does not matter,
// as long as both operands agree. So a lane loads consecutive ones, and a step lies inside one block of scales: the sums of a
// step are scaled, not the weights, which stay exact. Which column of B is which column of an instruction does not matter
// either. So the columns of a lane are consecutive, and their scales lie beside each other.
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
constexpr bool TALL = BM == 16;                                  // whether activations are the first operand
constexpr int TILES_M = BM / 8, TILES_N = BN / 16;               // of a warp
constexpr int LINES = BN / 8;                                    // columns of B of a lane
constexpr int SUMS = BN * BM / WARP;                             // of a thread
constexpr int PARTS = WARPS;                                     // partial sums of a block for each element
constexpr int STRIPS = BN / STRIP;

// The ring of a warp, in whose place the warp's sums are left afterwards. A piece is what a lane has of a line in a step.
constexpr int PIECE = WORDS * 4, LINE_BYTES = WARP * PIECE, WEIGHTS_BYTES = LINES * LINE_BYTES;
constexpr int ROW_BYTES = SPAN * 2, STAGE_BYTES = WEIGHTS_BYTES + BM * ROW_BYTES, RING_BYTES = STAGES * STAGE_BYTES;
constexpr int PART_BYTES = BM * BN * {{ accumulator_bytes }};
constexpr int PART = (RING_BYTES > PART_BYTES ? RING_BYTES : PART_BYTES) / {{ accumulator_bytes }};   // from warp to warp

static_assert(A_K_MAJOR && B_K_MAJOR, "a lane's elements of K lie beside each other");
static_assert(BN % 16 == 0 && (BM == 8 || BM == 16) && OWN % WORD == 0 && OWN % 8 == 0, "whole instructions, and chunks of A");
static_assert(BN % STRIP == 0 && BM * STRIPS <= THREADS, "one strip a thread");
static_assert(PARTS * PART * {{ accumulator_bytes }} + (CLUSTER > 1) * PART_BYTES <= MAINLOOP_SMEM,
              "the plan made room for the rings or the parts, and for a block's sums");

template <bool SHORT> struct DistanceOf { using Type = i64; };
template <> struct DistanceOf<true> { using Type = u32; };
using Distance = typename DistanceOf<B_ALIGN == 16>::Type;

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

// The products of a tile of two lines of a lane: four sums for both lines, or for each of them.
constexpr int OUTS = TALL ? 2 : 1;
DEVICE void multiply_two(float (&sums)[OUTS][4], const Tokens& tokens, int i, int j, const u32 (&x)[2], const u32 (&y)[2]) {
    const auto& pairs = tokens.pairs;
    if constexpr (TALL) {
        const u32 a[4] = {pairs[0][i], pairs[TILES_M - 1][i], pairs[0][j], pairs[TILES_M - 1][j]};
#pragma unroll
        for (int line = 0; line < OUTS; ++line) multiply_accumulate<Element>(sums[line], a, x[line], y[line]);
    } else {
        const u32 a[4] = {x[0], x[1], y[0], y[1]};
        multiply_accumulate<Element>(sums[0], a, pairs[0][i], pairs[0][j]);
    }
}
// Adds a multiple of the activations: those of two pairs.
DEVICE void add_two(float (&sums)[4], const Tokens& tokens, int i, int j) {
    constexpr u32 UNITS = BARE ? 0x00010001 : IS_F16<Element> ? 0x3c003c00 : 0x3f803f80;
    const auto& pairs = tokens.pairs;
    const u32 units[4] = {UNITS, UNITS, UNITS, UNITS};
    const u32 a[4] = {pairs[0][i], pairs[TILES_M - 1][i], pairs[0][j], pairs[TILES_M - 1][j]};
    if constexpr (TALL) multiply_accumulate<Element>(sums, a, UNITS, UNITS);
    else multiply_accumulate<Element>(sums, units, pairs[0][i], pairs[0][j]);
}
// The pairs of a word that share an instruction: first and second of a half of its pairs.
constexpr int BESIDE = NIBBLES ? 2 : 1;
// Where sum (or total) i of a lane belongs: the row among the lane's two, and the column among those of the lane's numbers.
DEVICE constexpr int row_of(int i) { return TALL ? i / 2 : i % 2; }
DEVICE constexpr int column_of(int t, int out, int i) { return TALL ? i % 2 * LINES + t * 2 + out : t * 2 + i / 2; }
DEVICE constexpr int total_of(int row) { return TALL ? row * 2 : row; }

{% if scaled_b %}// Numbers of consecutive columns in a step, as they are stored: a conversion would wait.
template <class T, int COUNT> struct Numbers {
    static constexpr int EACH = 4 / sizeof(T), WORDS = (COUNT + EACH - 1) / EACH;
    union Words {
        Raw<T, COUNT> raw;
        u32 words[WORDS];
        DEVICE Words() {}
    };
    u32 words[WORDS];
    DEVICE void set(const Words& all) {
#pragma unroll
        for (int i = 0; i < WORDS; ++i) {
            words[i] = all.words[i];
            asm("" : "+r"(words[i]));   // or each number would take a register
        }
    }
    DEVICE float at(int i) const {
        Raw<T, EACH> word;
        word.words[0] = words[i / EACH];
        return float(widen(word.elements[i % EACH]));
    }
};
// Where they are. If a step spans whole blocks of scales, each is at the same distance from the last one.
template <class T, int COUNT> struct NumbersAt {
    static constexpr bool EVEN = STEP % Blocks<false>::TERMS == 0, BESIDE = Blocks<false>::LINES == 1;
    const T* from;
    i64 distance;
    int columns;   // that exist
    bool wide;
    DEVICE void of(const T* first, i64 ld, int left) {
        constexpr int BYTES = Raw<T, COUNT>::BYTES;
        from = first, columns = left, distance = STEP / Blocks<false>::TERMS * (BESIDE ? ld : 1);
        wide = left >= COUNT && reinterpret_cast<u64>(first) % BYTES == 0 && ld * i64(sizeof(T)) % BYTES == 0;
    }
    DEVICE void load(Numbers<T, COUNT>& numbers, bool exist) const {
        typename Numbers<T, COUNT>::Words all;
        if (BESIDE && exist && wide) {
            load_wide<COUNT>(all.raw, from);
            numbers.set(all);
        } else if (exist) {
#pragma unroll
            for (int i = 0; i < COUNT; ++i) {
                const T* first = from;
                int last = columns - 1;
                asm volatile("" : "+l"(first), "+r"(last));   // or addresses would take registers in all other kernels too
                all.raw.elements[i] = first[BESIDE ? min(i, last) : 0];
            }
            numbers.set(all);
        }
    }
};
{% endif -%}
// What a lane copies in the steps of its warp, and where from and to.
struct Copies {
    const u8* weights;         // of the next step that is copied
    Distance lines[LINES];     // of the lane's lines, in units of BYTES
    const Element* tokens;     // of the next step that is copied: a chunk of some rows
    i64 row_distance;
    int rows, k_of_tokens, k_of_weights;   // rows that exist, and elements of K from the beginning of a step
    u32 to_weights, to_tokens;
    static constexpr int BYTES = sizeof(Distance) == 4 ? 16 : 1;

    // Lines after the last one repeat it, and rows after the last one are not copied: their sums are never used.
    DEVICE void of(const Params& p, const TileOrigin& tile, int k, u32 ring) {
        const int lane = threadIdx.x % WARP, chunk = lane % ROW_CHUNKS, row = lane / ROW_CHUNKS;
        const int column = min(tile.column + lane / QUAD * LINES, p.n - 1);
        k_of_weights = lane % QUAD * OWN, k_of_tokens = chunk * 8;
        weights = static_cast<const u8*>(p.b) +
                  (tile.batch * (p.batch_stride_b / PACK) + column * (p.ldb / PACK) + (k + k_of_weights) / PACK);
#pragma unroll
        for (int line = 0; line < LINES; ++line)
            lines[line] = Distance(p.ldb / PACK / BYTES) * Distance(min(line, p.n - 1 - column));
        rows = p.m - tile.row - row, row_distance = ROWS_AT_ONCE * p.lda;
        tokens = static_cast<const Element*>(p.a) +
                 (tile.batch * p.batch_stride_a + (tile.row + (rows > 0 ? row : 0)) * p.lda + k + k_of_tokens);
        to_weights = ring + lane * PIECE;
        to_tokens = ring + WEIGHTS_BYTES + row * ROW_BYTES + place_of_chunk(row, chunk % CHUNKS, chunk / CHUNKS);
    }
    // Copies a step with `left` elements of K, if it exists.
    template <bool WHOLE> DEVICE void copy_tokens(u32 stage, int left, bool exists) const {
        const Element* from = tokens;
#pragma unroll
        for (int i = 0; i < BM; i += ROWS_AT_ONCE) {
            if (exists && i < rows)
                copy_bytes<A_ALIGN, 16, WHOLE, true>(to_tokens + stage + i * ROW_BYTES, reinterpret_cast<const u8*>(from),
                                                     (left - k_of_tokens) * 2);
            from += row_distance;
        }
    }
    template <bool WHOLE> DEVICE void copy_weights(u32 stage, int left, bool exists, int t) const {
#pragma unroll
        for (int h = 0; h < 2; ++h)
            if (exists)
                copy_bytes<B_ALIGN, PIECE, WHOLE, false>(to_weights + stage + (t * 2 + h) * LINE_BYTES,
                                                         weights + i64(lines[t * 2 + h]) * BYTES,
                                                         (left - k_of_weights + PACK - 1) / PACK);
    }
    // A step that ends behind K. Few do, so copies of the others need no branches.
    DEVICE void copy_cut(u32 stage, int left, bool with_tokens) const {
        if (left <= 0 || left >= SPAN) return;
        if (with_tokens) copy_tokens<false>(stage, left, true);
#pragma unroll
        for (int t = 0; t < TILES_N; ++t) copy_weights<false>(stage, left, true, t);
        copy_async_commit();
        copy_async_wait<0>();
    }
    // Brings the first step's weights into the L2 cache, where earlier kernels may still change them.
    DEVICE void announce(int left) const {
        if (left < SPAN || threadIdx.x % 2 > 0) return;   // 32 bytes each
#pragma unroll
        for (int line = 0; line < LINES; ++line)
            asm volatile("prefetch.global.L2 [%0];" ::"l"(weights + i64(lines[line]) * BYTES));
    }
    DEVICE void advance() { weights += STEP / PACK, tokens += STEP; }
};

// This thread's sums. With `CONSTANT_B` the first weights are copied before the kernels that may still be writing A have ended.
// Without it they only come nearer, and the kernel waits here.
DEVICE void multiply_all(const Params& p, Accum (&sums)[SUMS], const TileOrigin& tile, u32 rank, unsigned char* memory) {
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, lane_n = lane / QUAD, lane_k = lane % QUAD;
    int k = (rank * WARPS + warp) * SPAN;
    const u32 ring = shared_address(memory) + warp * (PART * {{ accumulator_bytes }});
    Copies copies;
    copies.of(p, tile, k, ring);
    if constexpr (!CONSTANT_B) {
        copies.announce(p.k - k);
        wait_for_earlier_kernels();
    }
    for (int ahead = 0; ahead < STAGES; ++ahead) {
        const u32 stage = ahead * STAGE_BYTES;
        const int left = p.k - k - ahead * STEP;
        if (!CONSTANT_B) copies.copy_tokens<true>(stage, left, left >= SPAN);
#pragma unroll
        for (int t = 0; t < TILES_N; ++t) {
            copies.copy_weights<true>(stage, left, left >= SPAN, t);
            copy_async_commit();
        }
        copies.copy_cut(stage, left, !CONSTANT_B);
        copies.advance();
    }
    if constexpr (CONSTANT_B) {
        wait_for_earlier_kernels();
        copies.tokens -= STAGES * STEP;
        for (int ahead = 0; ahead < STAGES; ++ahead) {
            const int left = p.k - k - ahead * STEP;
            copies.copy_tokens<true>(ahead * STAGE_BYTES, left, left >= SPAN);
            if (left < SPAN) copies.copy_tokens<false>(ahead * STAGE_BYTES, left, left > 0);
            copies.tokens += STEP;
        }
        copy_async_commit();
        copy_async_wait<0>();
    }
{% if scaled_b %}    // The numbers of a step are loaded behind the step before.
    constexpr int COUNT = TALL ? 2 * LINES : LINES;
    const int first = min(tile.column + (TALL ? lane_k : lane_n) * COUNT, p.n - 1);
    NumbersAt<{{ scale_type }}, COUNT> scales_at;
    Numbers<{{ scale_type }}, COUNT> scales;
{% if shifted_b %}    NumbersAt<{{ zero_type }}, COUNT> zeros_at;
    Numbers<{{ zero_type }}, COUNT> zeros;
{% endif %}    auto locate_numbers = [&](int k) {
        scales_at.of(Blocks<false>::address(p, tile.batch, first, k), p.b_scale_ld, p.n - first);
{% if shifted_b %}        zeros_at.of(Blocks<false>::zero_address(p, tile.batch, first, k), p.b_zero_ld, p.n - first);
{% endif %}    };
    auto load_numbers = [&](int k) {
        scales_at.load(scales, k < p.k);
{% if shifted_b %}        zeros_at.load(zeros, k < p.k);
{% endif %}    };
    if (k < p.k) locate_numbers(k);
    load_numbers(k);
{% endif %}    float total[4] = {};   // of the activations of this lane's rows, in units of bare weights
    u32 stage = 0;
#pragma unroll 1
    for (; k < p.k; k += STEP) {
        const int left = p.k - k - STAGES * STEP;   // in the step whose copies begin now
        copy_async_wait<STAGES * TILES_N - 1>();
        __syncwarp();
        Tokens tokens;
        tokens.load(ring + WEIGHTS_BYTES + stage, lane);
        __syncwarp();
        copies.copy_tokens<true>(stage, left, left >= SPAN);
        float offset[2] = {};   // what comes off the sums of a row, for bare weights without zero points
        if constexpr (TOTALS) {
            float other[4] = {};
            if (!DIRECT)
#pragma unroll
                for (int i = 0; i < 4; ++i) total[i] = 0.0f;
#pragma unroll
            for (int i = 0; i < OWN / 2; i += 4) {
                add_two(total, tokens, i, i + BESIDE);
                add_two(DIRECT ? total : other, tokens, i + 3 - BESIDE, i + 3);
            }
            if (!DIRECT)
#pragma unroll
                for (int i = 0; i < 2; ++i) {
                    total[total_of(i)] += other[total_of(i)];
                    offset[i] = total[total_of(i)] * (SHIFTED ? 1.0f : -float(Pair::OFFSET));
                }
        }
#pragma unroll
        for (int t = 0; t < TILES_N; ++t) {
            if (t > 0) copy_async_wait<STAGES * TILES_N - 1>();
            u32 words[2][WORDS];
#pragma unroll
            for (int h = 0; h < 2; ++h) load_words(words[h], copies.to_weights + stage + (t * 2 + h) * LINE_BYTES);
            // This lane has used what lay there.
            copies.copy_weights<true>(stage, left, left >= SPAN, t);
            copy_async_commit();
            float lower[OUTS][4], upper[OUTS][4];
#pragma unroll
            for (int i = 0; i < OUTS * 4; ++i) {
                lower[i / 4][i % 4] = DIRECT ? sums[t * OUTS * 4 + i] : 0.0f;
                upper[i / 4][i % 4] = 0.0f;
            }
#pragma unroll
            for (int i = 0; i < WORDS; ++i) {
                u32 pairs[2][WORD / 2];
#pragma unroll
                for (int h = 0; h < 2; ++h) pairs_of<Pair>(pairs[h], words[h][i]);
#pragma unroll
                for (int j = 0; j < WORD / 4; ++j) {
                    const u32 x[2] = {pairs[0][j], pairs[1][j]}, y[2] = {pairs[0][j + BESIDE], pairs[1][j + BESIDE]};
                    const int at = i * (WORD / 2) + j;
                    multiply_two(NIBBLES && j == 1 && !DIRECT ? upper : lower, tokens, at, at + BESIDE, x, y);
                }
            }
#pragma unroll
            for (int i = 0; i < OUTS * 4; ++i) {
                float& sum = sums[t * OUTS * 4 + i];
                if constexpr (DIRECT) {
                    sum = lower[i / 4][i % 4];
                } else {
                    float part = lower[i / 4][i % 4];
                    if constexpr (NIBBLES) part = __fmaf_rn(upper[i / 4][i % 4], UPPER, part);
{% if scaled_b %}                    const int at = column_of(t, i / 4, i % 4);
{% if shifted_b %}                    if constexpr (TOTALS)
                        part = __fmaf_rn(-float(Pair::OFFSET) - zeros.at(at), offset[row_of(i % 4)], part);
{% else %}                    if constexpr (TOTALS) part += offset[row_of(i % 4)];
{% endif %}                    sum = __fmaf_rn(part, scales.at(at), sum);
{% else %}                    if constexpr (TOTALS) part += offset[row_of(i % 4)];
                    sum += part;
{% endif %}                }
            }
        }
{% if scaled_b %}        if (scales_at.EVEN) {
            scales_at.from += scales_at.distance;
{% if shifted_b %}            zeros_at.from += zeros_at.distance;
{% endif %}        } else if (k + STEP < p.k) {
            locate_numbers(k + STEP);
        }
        load_numbers(k + STEP);
{% endif %}        copies.copy_cut(stage, left, true);
        copies.advance();
        stage = stage + STAGE_BYTES == RING_BYTES ? 0 : stage + STAGE_BYTES;
    }
    if constexpr (TOTALS && DIRECT)
#pragma unroll
        for (int i = 0; i < SUMS; ++i)
            sums[i] = __fmaf_rn(-float(Pair::OFFSET), total[total_of(row_of(i % 4))], sums[i]);
    __syncwarp();   // the warp's sums take the place of its ring
}

// Stores the sums of the block's warps in shared memory, one after the other.
DEVICE void store_parts(Accum* parts, Accum (&sums)[SUMS]) {
    const int lane = threadIdx.x % WARP, lane_n = lane / QUAD, lane_k = lane % QUAD;
    Accum* const part = parts + threadIdx.x / WARP * PART +
                        (TALL ? lane_n * BN + lane_k * 2 * LINES : lane_k * 2 * BN + lane_n * LINES);
#pragma unroll
    for (int i = 0; i < (TALL ? 4 : 2); ++i) {   // a row, or a row and every other run of columns
        Raw<Accum, LINES> run;
#pragma unroll
        for (int line = 0; line < LINES; ++line)
            run.elements[line] = UNIT * sums[TALL ? line * 4 + i : line / 2 * 4 + line % 2 * 2 + i];
        store_wide<LINES>(part + (TALL ? i / 2 * 8 * BN + i % 2 * LINES : i * BN), run);
    }
    __syncthreads();
}
