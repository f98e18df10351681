// ---- mainloop: GEMV of weights with eight or four bits beside a few rows of 16-bit activations ----
//
// A block owns BM rows, which are all rows, and BN columns. Its warps, and those of the other blocks of its cluster, share the K
// axis in steps of SPAN. Weights are widened in registers, and are the first operand of mma.sync: sixteen columns of B are its
// rows, and eight rows of A its columns. Which elements of K share an instruction does not matter,
// as long as both operands agree. So a lane loads consecutive ones, and a step lies inside one block of scales: the sums of a
// step are scaled, not the weights, which stay exact.
//
// Weights of the next steps are on their way to a ring in shared memory. A lane reads only what it copied there itself, so that
// no barrier is needed, and no register waits for memory.
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

// The ring of a warp, in whose place the warp's sums are left afterwards.
constexpr int PIECE = WORDS * 4, LINES = TILES_N * 2;            // bytes of a lane from a line in a step, and its lines
constexpr int STAGE_BYTES = LINES * WARP * PIECE, RING_BYTES = STAGES * STAGE_BYTES;
constexpr int PART_BYTES = BM * BN * {{ accumulator_bytes }};
constexpr int PART = (RING_BYTES > PART_BYTES ? RING_BYTES : PART_BYTES) / {{ accumulator_bytes }};   // from warp to warp

static_assert(A_K_MAJOR && B_K_MAJOR, "a lane's elements of K lie beside each other");
static_assert(BN % 16 == 0 && BM % 8 == 0 && OWN % WORD == 0, "whole instructions");
static_assert(BN % STRIP == 0 && BM * STRIPS <= THREADS, "one strip a thread");
static_assert(PARTS * PART * {{ accumulator_bytes }} + (CLUSTER > 1) * PART_BYTES <= MAINLOOP_SMEM,
              "the plan made room for the rings or the parts, and for a block's sums");

DEVICE float add(float a, float b) { return a + b; }

using Pair = WidenedPairs<Element, ElementB>;

// Consecutive bytes of which `left` exist; the others are zero.
template <int ALIGN, int BYTES> DEVICE void load_bytes(u32* to, const u8* from, int left) {
    constexpr int MOST = BYTES < 16 ? BYTES : 16, WIDTH = ALIGN < MOST ? ALIGN : MOST;
    union Piece {
        Raw<u8, WIDTH> raw[BYTES / WIDTH];
        u32 words[BYTES / 4];
        DEVICE Piece() {}
    } piece;
    if (left >= BYTES) {
#pragma unroll
        for (int i = 0; i < BYTES / WIDTH; ++i) load_wide<WIDTH>(piece.raw[i], from + i * WIDTH);
    } else {
#pragma unroll
        for (int i = 0; i < BYTES / WIDTH; ++i) load_narrow<WIDTH>(piece.raw[i], from + i * WIDTH, 1, left - i * WIDTH);
    }
#pragma unroll
    for (int i = 0; i < BYTES / 4; ++i) to[i] = piece.words[i];
}

using Piece = Raw<u32, WORDS>;

// Copies a lane's piece of a line into the ring: without registers if lines begin at words.
DEVICE void copy_piece(unsigned char* to, const u8* from, int left) {
    constexpr int WIDTH = B_ALIGN < PIECE ? B_ALIGN : PIECE;
    if constexpr (WIDTH >= 4) {
#pragma unroll
        for (int i = 0; i < PIECE; i += WIDTH)
            copy_async<WIDTH>(shared_address(to) + i, from + i, min(max(left - i, 0), WIDTH));
    } else {
        Piece piece;
        load_bytes<B_ALIGN, PIECE>(piece.elements, from, left);
        store_wide<WORDS>(reinterpret_cast<u32*>(to), piece);
    }
}

// The same elements of K of the rows of A.
struct Tokens {
    u32 words[TILES_M][OWN / 2];
    DEVICE void load(const Element* const (&rows)[TILES_M], int k, int left) {
#pragma unroll
        for (int m = 0; m < TILES_M; ++m)
            load_bytes<A_ALIGN, OWN * 2>(words[m], reinterpret_cast<const u8*>(rows[m] + k), left * 2);
    }
    // Elements that meet the pair `i` of weights.
    DEVICE u32 pair(int m, int i) const {
        const int inside = i % (WORD / 2), first = i - inside / 2 - inside % 2;   // of two words with elements of a pair
        return Pair::APART == 1 ? words[m][i]
                                : __byte_perm(words[m][first], words[m][first + Pair::APART / 2], inside % 2 ? 0x7632 : 0x5410);
    }
};

constexpr int STEP = WARPS * CLUSTER * SPAN;   // K elements from one step of a warp to the next one
{% if scaled_b %}// The scales of a lane's lines in a step, and their zero points, as they are stored: a conversion would wait.
struct Numbers {
    {{ scale_type }} scales[LINES];
{% if shifted_b %}    {{ zero_type }} zeros[LINES];
    // Twice, as 16-bit numbers.
    DEVICE u32 zero(int line) const {
        const float zero = float(widen(zeros[line]));
        return narrow_pair<Element>(zero, zero);
    }
{% endif %}};
// Where they are. If a step spans whole blocks of scales, each is at the same distance from the last one.
struct NumbersAt {
    static constexpr bool EVEN = STEP % Blocks<false>::TERMS == 0;
    const {{ scale_type }}* scales[LINES];
{% if shifted_b %}    const {{ zero_type }}* zeros[LINES];
{% endif %}    DEVICE void of(const Params& p, int batch, int column, int k) {
#pragma unroll
        for (int line = 0; line < LINES; ++line) {
            const int at = min(column + line * 8, p.n - 1);
            scales[line] = Blocks<false>::address(p, batch, at, k);
{% if shifted_b %}            zeros[line] = Blocks<false>::zero_address(p, batch, at, k);
{% endif %}        }
    }
    DEVICE void advance(const Params& p, int batch, int column, int k) {
        if constexpr (!EVEN) return of(p, batch, column, k);
        constexpr int BLOCKS = STEP / Blocks<false>::TERMS;
#pragma unroll
        for (int line = 0; line < LINES; ++line) {
            scales[line] += BLOCKS * (Blocks<false>::LINES == 1 ? p.b_scale_ld : 1);
{% if shifted_b %}            zeros[line] += BLOCKS * (Blocks<false>::LINES == 1 ? p.b_zero_ld : 1);
{% endif %}        }
    }
    DEVICE void load(Numbers& numbers) const {
#pragma unroll
        for (int line = 0; line < LINES; ++line) {
            numbers.scales[line] = *scales[line];
{% if shifted_b %}            numbers.zeros[line] = *zeros[line];
{% endif %}        }
    }
};
{% endif -%}
{% if shifted_b %}// Both numbers of a pair minus the same zero point, a small integer: exact.
DEVICE u32 shifted(u32 pair, u32 zeros) { return multiply_add_two<Element>(zeros, {{ minus_one }}, pair); }
{% endif -%}
// This thread's sums. With `CONSTANT_B` the first weights are copied before the kernels that may still be writing A have ended.
DEVICE void multiply_all(const Params& p, Accum (&sums)[SUMS], const TileOrigin& tile, u32 rank, unsigned char* memory) {
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, lane_k = lane % QUAD * OWN;
    int k = (rank * WARPS + warp) * SPAN;
    // Lines lane / 4 and lane / 4 + 8 of every sixteen. Lines after the last one repeat it: their sums are never used.
    const int column = tile.column + lane / QUAD;
    const u8* weights[LINES];   // of the next step that is copied, of which so many bytes exist
    int left = (p.k - k - lane_k + PACK - 1) / PACK;
#pragma unroll
    for (int line = 0; line < LINES; ++line)
        weights[line] = static_cast<const u8*>(p.b) + (tile.batch * (p.batch_stride_b / PACK) +
                                                       min(column + line * 8, p.n - 1) * (p.ldb / PACK) + (k + lane_k) / PACK);
    unsigned char* const ring = memory + (warp * (PART * {{ accumulator_bytes }}) + lane * PIECE);
    auto copy_weights = [&](unsigned char* stage) {
#pragma unroll
        for (int line = 0; line < LINES; ++line) {
            copy_piece(stage + line * (WARP * PIECE), weights[line], left);
            weights[line] += STEP / PACK;
        }
        left -= STEP / PACK;
    };
    for (int stage = 0; stage < STAGES; ++stage) {
        if (k + stage * STEP < p.k) copy_weights(ring + stage * STAGE_BYTES);
        copy_async_commit();
    }
    if constexpr (CONSTANT_B) wait_for_earlier_kernels();
    // What else a step needs is loaded a step ahead.
    const Element* rows[TILES_M];
#pragma unroll
    for (int m = 0; m < TILES_M; ++m)
        rows[m] = static_cast<const Element*>(p.a) + (tile.batch * p.batch_stride_a + lane_k +
                                                      min(tile.row + lane / QUAD + m * 8, p.m - 1) * p.lda);
    Tokens tokens;
    if (k < p.k) tokens.load(rows, k, p.k - k - lane_k);
{% if scaled_b %}    Numbers numbers;
    NumbersAt numbers_at;
    if (k < p.k) numbers_at.of(p, tile.batch, column, k), numbers_at.load(numbers);
{% endif %}    int at = 0;   // of the stage in the ring
    for (; k < p.k; k += STEP) {
        u32 pairs[TILES_M][OWN / 2];
#pragma unroll
        for (int m = 0; m < TILES_M; ++m)
#pragma unroll
            for (int i = 0; i < OWN / 2; ++i) pairs[m][i] = tokens.pair(m, i);
{% if scaled_b %}        const Numbers by = numbers;
{% endif %}        if (k + STEP < p.k) {
            tokens.load(rows, k + STEP, p.k - k - STEP - lane_k);
{% if scaled_b %}            numbers_at.advance(p, tile.batch, column, k + STEP);
            numbers_at.load(numbers);
{% endif %}        }
        copy_async_wait<STAGES - 1>();
        unsigned char* const stage = ring + at;
#pragma unroll
        for (int t = 0; t < TILES_N; ++t) {
            Piece w[2];
#pragma unroll
            for (int h = 0; h < 2; ++h)
                load_wide<WORDS>(w[h], reinterpret_cast<const u32*>(stage + (t * 2 + h) * (WARP * PIECE)));
{% if shifted_b %}            const u32 zeros[2] = {by.zero(t * 2), by.zero(t * 2 + 1)};
{% endif %}            float part[TILES_M][4];
#pragma unroll
            for (int i = 0; i < TILES_M * 4; ++i)
                part[i / 4][i % 4] = {% if scaled_b %}0.0f{% else %}sums[t * TILES_M * 4 + i]{% endif %};
#pragma unroll
            for (int i = 0; i < WORDS; ++i) {
                u32 upper[WORD / 2], lower[WORD / 2];
                Pair::of(upper, w[0].elements[i]);
                Pair::of(lower, w[1].elements[i]);
{% if shifted_b %}#pragma unroll
                for (int j = 0; j < WORD / 2; ++j) upper[j] = shifted(upper[j], zeros[0]), lower[j] = shifted(lower[j], zeros[1]);
{% endif %}#pragma unroll
                for (int j = 0; j < WORD / 2; j += 2) {
                    const u32 a[4] = {upper[j], lower[j], upper[j + 1], lower[j + 1]};
#pragma unroll
                    for (int m = 0; m < TILES_M; ++m) {
                        const u32* const b = pairs[m] + (i * (WORD / 2) + j);
                        multiply_accumulate<Element>(part[m], a, b[0], b[1]);
                    }
                }
            }
{% if scaled_b %}            const float scales[2] = {widen(by.scales[t * 2]), widen(by.scales[t * 2 + 1])};
{% endif %}#pragma unroll
            for (int i = 0; i < TILES_M * 4; ++i) {
                float& sum = sums[t * TILES_M * 4 + i];
{% if scaled_b %}                sum = __fmaf_rn(part[i / 4][i % 4], scales[i % 4 / 2], sum);
{% else %}                sum = part[i / 4][i % 4];
{% endif %}            }
        }
        // This lane has used what lay in the stage.
        if (k + STAGES * STEP < p.k) copy_weights(stage);
        copy_async_commit();
        at = at + STAGE_BYTES == RING_BYTES ? 0 : at + STAGE_BYTES;
    }
    __syncwarp();   // the warp's sums take the place of its ring
}

// Stores the sums of the block's warps in shared memory, one after the other.
DEVICE void store_parts(Accum* parts, Accum (&sums)[SUMS]) {
    const int lane = threadIdx.x % WARP;
    Accum* const part = parts + threadIdx.x / WARP * PART + lane % QUAD * 2 * BN + lane / QUAD;
#pragma unroll
    for (int t = 0; t < TILES_N; ++t)
#pragma unroll
        for (int i = 0; i < TILES_M * 4; ++i)
            part[(i / 4 * 8 + i % 2) * BN + t * 16 + i % 4 / 2 * 8] = sums[t * TILES_M * 4 + i];
    __syncthreads();
}
