// ---- mainloop for the tensor cores of sm_80 and later: cp.async stages, ldmatrix, mma.sync ----
// Every warp accumulates a WARP_M x WARP_N part of the BM x BN tile. Operand blocks of BK go through a ring of STAGES in shared
// memory. Inside a block the registers are double-buffered too, so that matrix loads run under the multiplications before them.
constexpr int WARP_M = BM / WARPS_M, WARP_N = BN / WARPS_N, WARPS = WARPS_M * WARPS_N;
constexpr int ELEMENT = int(sizeof(Element));
constexpr int STEP = 32 / ELEMENT;      // K of one mma.sync, always 32 bytes: 16 elements of 16 bits, 8 of tf32
constexpr int STEPS = BK / STEP;        // steps of a block
constexpr int TILES_M = WARP_M / 16, PAIRS_N = WARP_N / 16;   // 16-row and 16-column (two mma.sync wide) pieces of a warp's part
static_assert(THREADS == 32 * WARPS && BM % WARPS_M == 0 && BN % WARPS_N == 0, "warps cover the tile");
static_assert(WARP_M % 16 == 0 && WARP_N >= 32 && (WARP_N & (WARP_N - 1)) == 0,
              "whole fragments, and slab rows free of bank conflicts");
static_assert(STAGES >= 2 && STEPS >= 2 && STEPS % 2 == 0, "both double buffers need something to alternate");

extern __shared__ __align__(1024) u8 shared_memory[];

// One operand of the tile. A "row" is a row of its block in shared memory: an index of the strided axis (M or N if K is
// contiguous, otherwise K), with the contiguous axis running along it.
template <bool IS_A> struct Operand {
    static constexpr bool K_MAJOR = IS_A ? A_K_MAJOR : B_K_MAJOR;
    static constexpr int EXTENT = IS_A ? BM : BN, WARP_EXTENT = IS_A ? WARP_M : WARP_N, ALIGN = IS_A ? A_ALIGN : B_ALIGN;
    static constexpr int ROWS = K_MAJOR ? EXTENT : BK, ROW_BYTES = (K_MAJOR ? BK : EXTENT) * ELEMENT, BYTES = ROWS * ROW_BYTES;
    // Bytes of one copy of a thread. Elements aligned only to 2 bytes cannot be copied asynchronously, and pass through
    // registers.
    static constexpr bool ASYNC = ALIGN >= 4;
    static constexpr int UNIT = ALIGN >= 16 ? 16 : ALIGN >= 8 ? 8 : 4;
    static constexpr int UNITS_PER_ROW = ROW_BYTES / UNIT, PASS_ROWS = THREADS / UNITS_PER_ROW, PASSES = ROWS / PASS_ROWS;
    // Passes issued in one step. The last step of a block comes after the barrier: too late for the block's group of asynchronous
    // copies, but in time for stores that are first read two barriers later.
    static constexpr int SHARES = ASYNC || STAGES == 2 ? STEPS - 1 : STEPS, SHARE = (PASSES + SHARES - 1) / SHARES;
    static_assert(ROW_BYTES >= 64 && ROW_BYTES <= 1024 && (ROW_BYTES & (ROW_BYTES - 1)) == 0,
                  "places in a row are exclusive-ored");
    static_assert(K_MAJOR || (WARP_EXTENT & (WARP_EXTENT - 1)) == 0, "and so are fragments along a row");
    static_assert(THREADS % UNITS_PER_ROW == 0 && PASS_ROWS > 0 && ROWS % PASS_ROWS == 0, "passes cover the block evenly");
    static_assert(PASS_ROWS % 8 == 0 || (PASS_ROWS & (PASS_ROWS - 1)) == 0, "the twist of a pass is a constant");

    // The swizzle: byte offsets inside a row are exclusive-ored with this number. So one access of a warp to several rows
    // reaches different banks: eight rows of 16 bytes for ldmatrix, and for transposed 32-bit words four rows of 32 bytes. The
    // twist is linear if rows add without carry, which lets it be taken out of the constants below.
    static DEVICE constexpr u32 twist(int row) {
        if (!K_MAJOR && ELEMENT == 4) return (row & 3) << 5;
        return ROW_BYTES >= 128 ? (row & 7) << 4 : (row >> 1 & 3) << 4;
    }

    const u8* source;           // this thread's next unit
    i64 pass_step, block_step;  // from pass to pass, and the rest of the way from block to block, in bytes
    int row, column;            // this thread's first unit: row, element along it
    int extent;                 // the part of M or N inside the tile
    u32 to;                     // this thread's first unit, from the start of a stage
    u32 from;                   // this lane's first fragment, from the start of a stage
    u32 held[ASYNC ? 1 : SHARE];

    DEVICE void begin(const Params& p, int batch, int start, u32 offset) {
        const i64 ld = IS_A ? p.lda : p.ldb;
        const int left = (IS_A ? p.m : p.n) - start;
        extent = left < EXTENT ? left : EXTENT;
        row = threadIdx.x / UNITS_PER_ROW;
        column = threadIdx.x % UNITS_PER_ROW * (UNIT / ELEMENT);
        const i64 origin = i64(batch) * (IS_A ? p.batch_stride_a : p.batch_stride_b) + (K_MAJOR ? start * ld : i64(start));
        source = static_cast<const u8*>(IS_A ? p.a : p.b) + (origin + row * ld + column) * ELEMENT;
        pass_step = PASS_ROWS * ld * ELEMENT;
        block_step = K_MAJOR ? BK * ELEMENT - PASSES * pass_step : 0;
        to = offset + row * ROW_BYTES + ((column * ELEMENT) ^ twist(row));

        const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
        const int first = (IS_A ? warp / WARPS_N : warp % WARPS_N) * WARP_EXTENT;
        if constexpr (!K_MAJOR && ELEMENT == 4) {
            from = offset + lane % 4 * ROW_BYTES + (((first + lane / 4) * 4) ^ twist(lane % 4));
        } else {
            // Matrices 0..3 of a load in the order of mma.sync's registers. A needs the second half of the rows before the
            // second half of K, and B the reverse.
            const bool rows_first = IS_A == K_MAJOR;
            const int r = rows_first ? lane & 15 : (lane & 7) | (lane >> 4 << 3), half = rows_first ? lane >> 4 : lane >> 3 & 1;
            const int fragment_row = K_MAJOR ? first + r : r, fragment_byte = (K_MAJOR ? 0 : first * ELEMENT) + half * 16;
            from = offset + fragment_row * ROW_BYTES + (fragment_byte ^ twist(r));
        }
    }

    DEVICE void skip(i64 ld, i64 k) { source += (K_MAJOR ? k : k * ld) * ELEMENT; }

    // Issues share `share` of the copies of one block, whose K ends after `k_left`. With WHOLE, K does not end inside the
    // block: either k_left is at least BK, or there is no block.
    template <bool WHOLE> DEVICE void copy(int share, u32 stage, int k_left) {
        const int along = (K_MAJOR ? k_left : extent) - column, across = K_MAJOR ? extent : k_left;
        const int valid = (along <= 0 ? 0 : along < UNIT / ELEMENT ? along : UNIT / ELEMENT) * ELEMENT;
#pragma unroll
        for (int i = 0; i < SHARE; ++i) {
            const int pass = share * SHARE + i;
            if (pass >= PASSES) continue;
            int size = row + pass * PASS_ROWS < across ? valid : 0;
            // Copies of a constant size cost a predicate. Copies of a variable size cost address arithmetic for every copy.
            if (WHOLE) size = K_MAJOR ? (k_left > 0 && row + pass * PASS_ROWS < extent ? UNIT : 0) : (k_left > 0 ? valid : 0);
            if constexpr (ASYNC) {
                copy_async<UNIT>(target(stage, pass), source, size);
            } else {
                const u16* pair = reinterpret_cast<const u16*>(source);
                const u32 low = size > 0 ? pair[0] : 0, high = size > 2 ? pair[1] : 0;
                held[i] = low | high << 16;
            }
            source += pass_step;
            if (pass == PASSES - 1) source += block_step;
            asm volatile("" : "+l"(source));   // keeps one running pointer; otherwise the compiler multiplies
        }
    }
    // Stores the units that `copy` could only load, after the multiplications that hide the latency.
    DEVICE void settle(int share, u32 stage) {
        if constexpr (!ASYNC) {
#pragma unroll
            for (int i = 0; i < SHARE; ++i)
                if (share * SHARE + i < PASSES) store_shared_word(target(stage, share * SHARE + i), held[i]);
        }
    }
    DEVICE u32 target(u32 stage, int pass) const {
        return ((stage + to) ^ twist(pass * PASS_ROWS)) + pass * PASS_ROWS * ROW_BYTES;
    }

    // Loads the operand of the 16 rows (A) or columns (B) number `piece` of this warp, for one step of K.
    DEVICE void load(u32 (&r)[4], u32 stage, int piece, int step) const {
        if constexpr (K_MAJOR) {
            load_matrices(r, ((stage + from) ^ step * 32) + piece * 16 * ROW_BYTES);
        } else if constexpr (ELEMENT == 2) {
            load_matrices_transposed(r, ((stage + from) ^ piece * 32) + step * STEP * ROW_BYTES);
        } else {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const int second_eight = IS_A ? i & 1 : i >> 1, second_half = IS_A ? i >> 1 : i & 1;
                const u32 start = (stage + from) ^ (piece * 64 + second_eight * 32);
                r[i] = load_shared_word(start + (step * STEP + second_half * 4) * ROW_BYTES);
            }
        }
    }
};

{% if gathers_a %}{% include "mainloop/sm80_patches.cuh" %}
{% endif -%}
{% if turned or of_columns %}{% include "mainloop/sm80_gradients.cuh" %}
{% endif -%}
constexpr int STAGE_BYTES = Operand<true>::BYTES + Operand<false>::BYTES;
static_assert(STAGE_BYTES % Operand<true>::ROW_BYTES == 0 && STAGE_BYTES % Operand<false>::ROW_BYTES == 0 &&
              Operand<true>::BYTES % Operand<false>::ROW_BYTES == 0, "rows start where exclusive or can address them");

struct Fragments {
    u32 a[TILES_M][4], b[PAIRS_N][4];

    DEVICE void load(const Operand<true>& A, const Operand<false>& B, u32 stage, int step) {
#pragma unroll
        for (int j = 0; j < PAIRS_N; ++j) B.load(b[j], stage, j, step);
#pragma unroll
        for (int i = 0; i < TILES_M; ++i) A.load(a[i], stage, i, step);
    }
    DEVICE void multiply(Accum (&acc)[TILES_M][2 * PAIRS_N][4]) {
        if constexpr (ELEMENT == 4) {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
#pragma unroll
                for (int j = 0; j < TILES_M; ++j) a[j][i] = round_to_tf32(a[j][i]);
#pragma unroll
                for (int j = 0; j < PAIRS_N; ++j) b[j][i] = round_to_tf32(b[j][i]);
            }
        }
        // Back and forth, so that consecutive instructions share an operand: B with 16 bits, A with tf32, as measured.
        constexpr int RUN = ELEMENT == 4 ? 2 * PAIRS_N : TILES_M;
#pragma unroll
        for (int n = 0; n < TILES_M * 2 * PAIRS_N; ++n) {
            const int line = n / RUN, along = line & 1 ? RUN - 1 - n % RUN : n % RUN;
            const int i = ELEMENT == 4 ? line : along, j = ELEMENT == 4 ? along : line;
            {% if eight_bits_multiplied %}multiply_eights{% else %}multiply_accumulate<Element>{% endif %}(
                acc[i][j], a[i], b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]);
        }
    }
};

{% if operand_sums %}// A thread's part in the sums of an operand, from the blocks in shared memory. If K is contiguous a thread
// has a line, and every SHARERS-th piece of 16 bytes of it. Otherwise it has the lines that share a word, and every SHARERS-th K
// element of them.
template <bool IS_A> struct Sums : Partial<IS_A, Operand<IS_A>::K_MAJOR ? 1 : 4 / ELEMENT> {
    using Of = Operand<IS_A>;
    using Base = Partial<IS_A, Of::K_MAJOR ? 1 : 4 / ELEMENT>;
    DEVICE Sums(const Params& p, const TileOrigin& tile) : Base(p, tile) {}
    DEVICE void take(const Params& p, u32 stage, u32 block) {
        if (!this->sums_block(p, block)) return;
        if (!IS_A) stage += Operand<true>::BYTES;
#pragma unroll
        for (int turn = 0; turn < Base::TURNS; ++turn) {
            const int line = Base::line(turn);
            if constexpr (Of::K_MAJOR) {
#pragma unroll 2
                for (int piece = Base::sharer(); piece < Of::ROW_BYTES / 16; piece += Base::SHARERS) {
                    Raw<{{ element_of_either }}, 16 / ELEMENT> terms;
                    const u32 from = stage + line * Of::ROW_BYTES + ((piece * 16) ^ Of::twist(line));
                    asm volatile("ld.shared.v4.b32 { %0, %1, %2, %3}, [%4];"
                                 : "=r"(terms.words[0].x), "=r"(terms.words[0].y), "=r"(terms.words[0].z), "=r"(terms.words[0].w)
                                 : "r"(from) : "memory");
#pragma unroll
                    for (int i = 0; i < 16 / ELEMENT; ++i)
                        this->sums[turn] = add_terms(this->sums[turn], widen(terms.elements[i]));
                }
            } else {
#pragma unroll 4
                for (int k = Base::sharer(); k < BK; k += Base::SHARERS) {
                    Raw<Element, 4 / ELEMENT> lines;
                    lines.words[0] = load_shared_word(stage + k * Of::ROW_BYTES + ((line * ELEMENT) ^ Of::twist(k)));
#pragma unroll
                    for (int i = 0; i < 4 / ELEMENT; ++i) {
                        Accum& sum = this->sums[turn * (4 / ELEMENT) + i];
                        sum = add_terms(sum, widen(lines.elements[i]));
                    }
                }
            }
        }
    }
};
static_assert((Sums<true>::ROOM + Sums<false>::ROOM + LINES_A + LINES_B) * 4 <= STAGES * STAGE_BYTES,
              "sums pass through the stages' memory");

{% endif -%}
{% if scaled %}// acc += part, scaled by the blocks of 128 elements of K from `k` on; `part` becomes zero.
DEVICE void promote(const Params& p, const TileOrigin& tile, int k, float (&acc)[TILES_M][2 * PAIRS_N][4],
                    float (&part)[TILES_M][2 * PAIRS_N][4]) {
    if (k >= p.k) return;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int row = tile.row + warp / WARPS_N * WARP_M + lane / 4, column = tile.column + warp % WARPS_N * WARP_N + lane % 4 * 2;
    float rows[TILES_M][2];
#pragma unroll
    for (int i = 0; i < 2 * TILES_M; ++i) {
        rows[i / 2][i % 2] = 1.0f;
        if constexpr (Blocks<true>::SCALED)
            rows[i / 2][i % 2] = Blocks<true>::scale(p, tile.batch, min(row + i / 2 * 16 + i % 2 * 8, p.m - 1), k);
    }
#pragma unroll
    for (int j = 0; j < 2 * PAIRS_N; ++j) {
        float columns[2] = {1.0f, 1.0f};
        if constexpr (Blocks<false>::SCALED)
#pragma unroll
            for (int c = 0; c < 2; ++c) columns[c] = Blocks<false>::scale(p, tile.batch, min(column + j * 8 + c, p.n - 1), k);
#pragma unroll
        for (int i = 0; i < TILES_M * 4; ++i) {
            float& sum = acc[i / 4][j][i % 4];
            sum = __fmaf_rn(part[i / 4][j][i % 4], __fmul_rn(rows[i / 4][i % 4 / 2], columns[i % 2]), sum);
            part[i / 4][j][i % 4] = 0.0f;
        }
    }
}
{% for o in scaled %}static_assert(Blocks<{{ o.is_a }}>::TERMS % 128 == 0 && BK % 128 == 0, "128 elements of K lie in one block");
{% endfor %}
{% endif -%}
// acc += A * B over the tile. Operands read as zero outside of their matrices. On exit all of shared memory is free again.
DEVICE void accumulate(const Params& p, const TileOrigin& tile, Accum (&acc)[TILES_M][2 * PAIRS_N][4]) {
{% if convolution %}    const Channels channels(p, tile.{% if of_columns %}batch{% else %}column{% endif %} {# -#}
                            {% if residues %}, Residue(p, tile.row){% endif %});
    const int terms = channels.terms;
{% endif -%}
{% if gathers_a %}    Patches A;
    A.begin(p, tile, 0);
{% else %}    Operand<true> A;
    A.begin(p, {% if of_columns %}0{% else %}tile.batch{% endif %}, tile.row, 0);
{% endif %}{% if of_columns %}    A.skip(p.lda, channels.begin);
    A.source += channels.first_row * ELEMENT;
{% endif %}{% if gathers_b %}    GatheredB B;
    B.begin(p, channels, tile, Operand<true>::BYTES);
{% else %}    Operand<false> B;
    B.begin(p, {% if convolution %}0{% else %}tile.batch{% endif %}, tile.column, Operand<true>::BYTES);
{% if convolution %}    B.skip(p.ldb, i64(tile.batch) * p.k);   // a part of K, where it is split
{% endif %}{% endif %}
    // The last block of K, which may be a partial one, comes first. The others are whole, so the loop does not check.
    const int head = ({{ terms }} - 1) / BK * BK, blocks = {{ terms }} > 0 ? head / BK + 1 : 0;
    A.skip(p.lda, head);
    B.skip(p.ldb, head);
    const u32 ring = shared_address(shared_memory), end = ring + STAGES * STAGE_BYTES;
    u32 write = ring, read = ring;
#pragma unroll 1
    for (int stage = 0; stage < STAGES - 1; ++stage) {
        const int k_left = stage == 0 ? {{ terms }} - head : stage < blocks ? BK : 0;
#pragma unroll
        for (int share = 0; share < STEPS; ++share) {
            A.copy<false>({% if gathers_a %}p, channels, {% endif %}share, write, k_left);
            A.settle(share, write);
            B.copy<false>({% if gathers_b %}p, channels, {% endif %}share, write, k_left);
            B.settle(share, write);
        }
        if (stage == 0) {
            A.skip(p.lda, -i64(head) - BK);
            B.skip(p.ldb, -i64(head) - BK);
        }
        copy_async_commit();
        write += STAGE_BYTES;
    }
    copy_async_wait<STAGES - 2>();
    __syncthreads();

{% if operand_sums %}    Sums<true> sums_a(p, tile);
    Sums<false> sums_b(p, tile);
{% endif %}    Fragments fragments[2];
    fragments[0].load(A, B, read, 0);
{% if scaled %}    float part[TILES_M][2 * PAIRS_N][4] = {};
{% endif %}#pragma unroll 1
    for (int left = blocks; left > 0; --left) {
        const int k_left = left >= STAGES ? BK : 0;   // of the block that is copied
{% if operand_sums %}        sums_a.take(p, read, blocks - left);
        sums_b.take(p, read, blocks - left);
{% endif %}#pragma unroll
        for (int step = 0; step < STEPS; ++step) {
            if (step == STEPS - 1) {
                // The next block has arrived, for every thread. No thread reads the block before this one any more, and its
                // stage is the next to be written.
                copy_async_commit();
                copy_async_wait<STAGES - 2>();
                __syncthreads();
                read = read + STAGE_BYTES == end ? ring : read + STAGE_BYTES;
            }
            fragments[(step + 1) % 2].load(A, B, read, (step + 1) % STEPS);
            A.copy<true>({% if gathers_a %}p, channels, {% endif %}step, write, k_left);
            B.copy<true>({% if gathers_b %}p, channels, {% endif %}step, write, k_left);
            fragments[step % 2].multiply({% if scaled %}part{% else %}acc{% endif %});
{% if scaled %}            if (step % (STEPS * 128 / BK) == STEPS * 128 / BK - 1)
                promote(p, tile, (left == blocks ? head : (blocks - left - 1) * BK) + step * BK / STEPS / 128 * 128, acc, part);
{% endif %}            A.settle(step, write);
            B.settle(step, write);
        }
        write = write + STAGE_BYTES == end ? ring : write + STAGE_BYTES;
    }
    copy_async_wait<0>();
{% if operand_sums %}    finish_sums(p, tile, sums_a, sums_b, reinterpret_cast<Accum*>(shared_memory));
{% endif %}}

static_assert(STAGES * STAGE_BYTES <= MAINLOOP_SMEM, "the plan made room for stages");
{% include "mainloop/sm80_strips.cuh" %}
extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS) postlude_kernel(const __grid_constant__ Params p) {
    begin_early();
    const TileOrigin tile = locate(p);
    if (tile.batch >= p.batch) return;
    Accum acc[TILES_M][2 * PAIRS_N][4] = {};
    accumulate(p, tile, acc);
    run_epilogue(p, tile, acc, shared_memory);
}
