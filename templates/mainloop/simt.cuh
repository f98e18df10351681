// ---- mainloop: SIMT. Single multiply-adds, full precision; any element, any layout, any alignment, any extent ----
//
// A block owns a BM x BN tile, and a thread TM x TN of it, as groups of 4 x 4. The K axis passes through two stages of shared
// memory, BK at a time, as accumulator-typed rows of constant k. While one stage is multiplied, the next one is in registers on
// its way from global memory. The finished accumulators pass through shared memory once more, so that the epilogue sees whole
// rows.
//
// BM, BN, BK, TM, TN are powers of two; BK >= 8, TM and TN >= 4, THREADS = (BM / TM) * (BN / TN) >= 32.
namespace simt {

constexpr int WARP = 32;
constexpr int GROUP = 4;       // consecutive rows or columns of one thread: one 16-byte access to shared memory
constexpr int RUN = 8;         // consecutive k that a warp loads from one row of a K-major operand
constexpr int ROW_GROUPS = TM / GROUP;
{% if dequantised %}constexpr int STAGE_TERMS = BK;
{% endif -%}

// Pairs of k in the body of the inner loop: about 512 multiply-adds hide the loads from shared memory, and more only cost
// compile time. A large thread tile hides them without unrolling.
constexpr int UNROLL = TM * TN > 64 ? 1 : 256 / (TM * TN);

// A warp's lanes form a grid of LANES_M x LANES_N. A lane's groups repeat at the distance of one grid, so that lanes are
// adjacent.
constexpr int LANES_N = BN / TN < 8 ? BN / TN : 8;
constexpr int LANES_M = WARP / LANES_N;
constexpr int GRID_M = LANES_M * GROUP, GRID_N = LANES_N * GROUP;
constexpr int WARPS_N = BN / (LANES_N * TN);

// Rows of shared memory are four words longer than the tile, so transposing stores and the epilogue's slab spread over all
// banks.
constexpr int PITCH_A = BM + GROUP, PITCH_B = BN + GROUP;
constexpr int STAGE = BK * (PITCH_A + PITCH_B);

// The epilogue takes one row group of every thread at a time: a slab of SLAB_ROWS x BN.
constexpr int STRIPS = BN / STRIP;                                 // of a row; one a thread
constexpr int ROWS_AT_ONCE = THREADS / STRIPS;
constexpr int VISITS = SLAB_ROWS / ROWS_AT_ONCE;                   // of a thread in a slab
constexpr int PASS_LIMIT = visits_together(STRIP >= 4 ? 16 / STRIP : 8);
constexpr int PASS = VISITS < PASS_LIMIT ? VISITS : PASS_LIMIT; // visits whose fetches are in flight together
constexpr int PASSES = VISITS / PASS;

static_assert(THREADS == (BM / TM) * (BN / TN) && THREADS % WARP == 0, "a thread owns TM x TN of the tile");
static_assert(BM % (LANES_M * TM) == 0 && BN % (LANES_N * TN) == 0, "whole warps cover the tile");
static_assert(BK % RUN == 0 && BM * BK % THREADS == 0 && BN * BK % THREADS == 0, "threads share the loads evenly");
static_assert(THREADS % STRIPS == 0 && SLAB_ROWS % ROWS_AT_ONCE == 0, "one strip a thread, whole rows at once");
static_assert(SLAB_ROWS * ROW_GROUPS == BM, "slabs take the tile");
static_assert(2 * STAGE * {{ accumulator_bytes }} <= MAINLOOP_SMEM
              && SLAB_ROWS * PITCH_B * {{ accumulator_bytes }} <= MAINLOOP_SMEM,
              "the plan made room for stages and slab");

{% include "mainloop/multiply_add.cuh" -%}

// One thread's share of an operand's tile. The operand has an extent (the M axis of A, the N axis of B) and the K axis. Either of
// them may be contiguous. The thread's vectors lie at positions `thread + i * THREADS`. Every divisor below is a power of two, so
// the coordinates of the two summands add up.
{% if dequantised %}// What has an address may be two elements of K, and an element may have a scale.
template <bool K_MAJOR, int ALIGN, int EXTENT, class Element, bool IS_A> struct Share {
    static constexpr int PACK = {% if widened %}Packed<Element>::COUNT{% else %}1{% endif %};
    static constexpr int BK = simt::STAGE_TERMS / PACK, RUN = simt::RUN / PACK;
    static_assert(PACK == 1 || K_MAJOR, "pairs lie along K");
    const Params& p;
    int batch, line, k;    // of the tile
    DEVICE Share(const Params& p) : p(p) {}
{% else %}template <bool K_MAJOR, int ALIGN, int EXTENT{% if mixed %}, class Element{% endif %}> struct Share {
{% endif %}    static constexpr int COUNT = EXTENT * BK / THREADS;
    static constexpr int ALIGNED = ALIGN < int(sizeof(Element)) ? 1 : ALIGN / int(sizeof(Element));
    static constexpr int WIDTH = ALIGNED < COUNT ? ALIGNED : COUNT;
    static constexpr int VECTORS = COUNT / WIDTH;
    static constexpr int PITCH = EXTENT + GROUP;

    const Element* origin; // this thread's first element of the current tile
    i64 ld;
    int extent_left;       // from the tile's first row or column to the operand's end
    Raw<Element, WIDTH> raw[VECTORS];

    // Lanes take RUN / WIDTH vectors of one row, then the next row: their transposing stores meet 32 different banks.
    static DEVICE constexpr int extent_of(int v) { return K_MAJOR ? v / (RUN / WIDTH) % EXTENT : v % (EXTENT / WIDTH) * WIDTH; }
    static DEVICE constexpr int k_of(int v) {
        return K_MAJOR ? v % (RUN / WIDTH) * WIDTH + v / (RUN / WIDTH * EXTENT) * RUN : v / (EXTENT / WIDTH);
    }

    DEVICE void begin(const Element* operand, i64 leading, int first, int extent) {
        const int e = extent_of(threadIdx.x), k = k_of(threadIdx.x);
        ld = leading;
        origin = operand + (K_MAJOR ? i64(first + e) * ld + k : k * ld + (first + e));
        extent_left = extent - first;
    }

{% if dequantised %}    DEVICE void begin(int entry, const Element* operand, i64 leading, int first, int extent) {
        begin(operand, leading / PACK, first, extent);
        batch = entry, line = first, k = 0;
    }
    DEVICE void advance() {
        origin += K_MAJOR ? i64(BK) : BK * ld;
        k += BK * PACK;
    }
    // The element at a place of the tile.
    DEVICE Accum dequantise(Accum x, int e, int kk) const {
        if constexpr (Blocks<IS_A>::SCALED) {
            if (e >= extent_left || k + kk >= p.k) return Accum(0);
            if constexpr (Blocks<IS_A>::SHIFTED) x -= Blocks<IS_A>::zero(p, batch, line + e, k + kk);
            x *= Blocks<IS_A>::scale(p, batch, line + e, k + kk);
        }
        return x;
    }
{% else %}    DEVICE void advance() { origin += K_MAJOR ? i64(BK) : BK * ld; }
{% endif %}
    // `k_left`: from the tile's first k to the end of the K axis.
    DEVICE void load(int k_left) {
{% if dequantised %}        k_left = (k_left + PACK - 1) / PACK;
{% endif %}        if (extent_left >= EXTENT && k_left >= BK) {
#pragma unroll
            for (int i = 0; i < VECTORS; ++i) load_wide<WIDTH>(raw[i], at(i));
        } else {
#pragma unroll
            for (int i = 0; i < VECTORS; ++i) {
                const int extent = extent_left - extent_of(threadIdx.x) - extent_of(i * THREADS);
                const int k = k_left - k_of(threadIdx.x) - k_of(i * THREADS);
                const int along = K_MAJOR ? k : extent, across = K_MAJOR ? extent : k;
                if (across > 0 && along >= WIDTH) load_wide<WIDTH>(raw[i], at(i));
                else load_narrow<WIDTH>(raw[i], at(i), 1, across > 0 ? along : 0);
            }
        }
    }

    DEVICE void store(Accum* stage) const {
        const int e = extent_of(threadIdx.x), kk = k_of(threadIdx.x);
#pragma unroll
        for (int i = 0; i < VECTORS; ++i) {
{% if dequantised %}#pragma unroll
            for (int j = 0; j < WIDTH; ++j)
#pragma unroll
                for (int h = 0; h < PACK; ++h) {
                    const int at_e = e + extent_of(i * THREADS) + (K_MAJOR ? 0 : j);
                    const int at_k = (kk + k_of(i * THREADS) + (K_MAJOR ? j : 0)) * PACK + h;
{% if widened %}                    const Accum x = Packed<Element>::at(raw[i].elements[j], h);
{% else %}                    const Accum x = widen(raw[i].elements[j]);
{% endif %}                    stage[at_k * PITCH + at_e] = dequantise(x, at_e, at_k);
                }
{% else %}            Accum* const to = stage + (kk + k_of(i * THREADS)) * PITCH + e + extent_of(i * THREADS);
            Accum values[WIDTH];
            widen_all(values, raw[i]);
            if constexpr (K_MAJOR) {
#pragma unroll
                for (int j = 0; j < WIDTH; ++j) to[j * PITCH] = values[j];
            } else {
                Raw<Accum, WIDTH> row;
                narrow_all(row, values);
                store_wide<WIDTH>(to, row);
            }
{% endif %}        }
    }

private:
    DEVICE const Element* at(int i) const {
        const int e = extent_of(i * THREADS), kk = k_of(i * THREADS);
        return origin + (K_MAJOR ? e * ld + kk : kk * ld + e);
    }
};

{% if convolution %}{% include "mainloop/simt_patches.cuh" %}{% endif -%}

// One thread's operands of one k: its groups from a row of A and a row of B.
struct Fragments {
    Accum a[TM], b[TN];

    DEVICE void load(const Accum* row_a, const Accum* row_b) {
        load_groups<TM, GRID_M>(a, row_a);
        load_groups<TN, GRID_N>(b, row_b);
    }
    DEVICE void multiply_into(Accum (&acc)[TM][TN]) const {
#pragma unroll
        for (int i = 0; i < TM; ++i)
#pragma unroll
            for (int j = 0; j < TN; ++j) acc[i][j] = multiply_add(a[i], b[j], acc[i][j]);
    }

private:
    template <int COUNT, int DISTANCE> static DEVICE void load_groups(Accum (&values)[COUNT], const Accum* row) {
#pragma unroll
        for (int g = 0; g < COUNT / GROUP; ++g) {
            Raw<Accum, GROUP> raw;
            load_wide<GROUP>(raw, row + g * DISTANCE);
#pragma unroll
            for (int i = 0; i < GROUP; ++i) values[g * GROUP + i] = raw.elements[i];
        }
    }
};

{% if operand_sums %}// A thread's part in the sums of an operand: every SHARERS-th element of its lines in a block of K.
template <bool OF_A> struct Sums : Partial<OF_A, 1> {
    using Base = Partial<OF_A, 1>;
    static constexpr int PITCH = OF_A ? PITCH_A : PITCH_B;
    DEVICE Sums(const Params& p, const TileOrigin& tile) : Base(p, tile) {}
    DEVICE void take(const Params& p, const Accum* stage, u32 block) {
        if (!this->sums_block(p, block)) return;
        if (!OF_A) stage += BK * PITCH_A;
#pragma unroll
        for (int turn = 0; turn < Base::TURNS; ++turn)
#pragma unroll 4
            for (int k = Base::sharer(); k < BK; k += Base::SHARERS)
                this->sums[turn] = add_terms(this->sums[turn], stage[k * PITCH + Base::line(turn)]);
    }
};
static_assert(Sums<true>::ROOM + Sums<false>::ROOM + LINES_A + LINES_B <= 2 * STAGE, "sums pass through the stages' memory");

{% endif -%}
// The place of this thread's first group in the tile.
DEVICE int first_row() {
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    return warp / WARPS_N * (LANES_M * TM) + lane / LANES_N * GROUP;
}
DEVICE int first_column() {
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    return warp % WARPS_N * (LANES_N * TN) + lane % LANES_N * GROUP;
}

// acc += A * B over the whole K axis. On entry no thread uses shared memory.
DEVICE void multiply(const Params& p, Accum (&acc)[TM][TN], Accum* smem, int batch, int row, int column
                     {% if operand_sums %}, Sums<true>& sums_a, Sums<false>& sums_b{% endif %}) {
    {% if gathers_a %}PatchShare{% else %}Share<A_K_MAJOR, A_ALIGN, BM{% if mixed or dequantised %}, Element{% endif %}{# -#}
    {% if dequantised %}, true{% endif %}>{% endif %} a{% if dequantised %}(p){% endif %};
    {% if gathers_b %}GatheredShare{% else %}Share<B_K_MAJOR, B_ALIGN, BN{# -#}
    {% if mixed or dequantised %}, {{ element_b }}{% endif %}{# -#}
    {% if dequantised %}, false{% endif %}>{% endif %} b{% if dequantised %}(p){% endif %};
{% if of_columns %}    const Channels channels(p, batch);
    const int terms = channels.terms;
    a.begin(static_cast<const Element*>(p.a) + (channels.begin * p.lda + channels.first_row), p.lda, row, p.m);
    b.begin(p, channels, column);
{% elif convolution %}    const Channels channels(p, column{% if residues %}, Residue(p, row){% endif %});
    const int first = batch * p.k, terms = channels.terms;   // a part of K, where it is split
    a.begin(p, row, first);
{% if gathers_b %}    b.begin(p, column, first);
{% else %}    b.begin(static_cast<const Element*>(p.b) + first, p.ldb, column, p.n);
{% endif %}{% elif dequantised %}    const i64 entry_a = batch * (p.batch_stride_a / a.PACK);
    const i64 entry_b = batch * (p.batch_stride_b / b.PACK);
    a.begin(batch, static_cast<const Element*>(p.a) + entry_a, p.lda, row, p.m);
    b.begin(batch, static_cast<const {{ element_b }}*>(p.b) + entry_b, p.ldb, column, p.n);
{% else %}    a.begin(static_cast<const Element*>(p.a) + batch * p.batch_stride_a, p.lda, row, p.m);
    b.begin(static_cast<const {{ element_b }}*>(p.b) + batch * p.batch_stride_b, p.ldb, column, p.n);
{% endif %}
    Fragments even, odd;
    const int at_a = first_row(), at_b = BK * PITCH_A + first_column();
    Accum *current = smem, *next = smem + STAGE;

    a.load({% if gathers_a %}p, channels, {% endif %}{{ terms }});
    b.load({% if gathers_b %}p, channels, {% endif %}{{ terms }});
    a.store(current);
    b.store(current + BK * PITCH_A);
    __syncthreads();
    even.load(current + at_a, current + at_b);

    for (int left = {{ terms }}; left > 0; left -= BK) {
        if (left > BK) {
            a.advance();
            b.advance();
            a.load({% if gathers_a %}p, channels, {% endif %}left - BK);
            b.load({% if gathers_b %}p, channels, {% endif %}left - BK);
        }
{% if operand_sums %}        const u32 block = u32({{ terms }} - left) / BK;
        sums_a.take(p, current, block);
        sums_b.take(p, current, block);
{% endif %}#pragma unroll UNROLL
        for (int k = 0; k < BK; k += 2) {
            odd.load(current + at_a + (k + 1) * PITCH_A, current + at_b + (k + 1) * PITCH_B);
            even.multiply_into(acc);
            if (k + 2 < BK) {
                even.load(current + at_a + (k + 2) * PITCH_A, current + at_b + (k + 2) * PITCH_B);
            } else { // after the last tile this moves values that are never used: cheaper than a branch between the multiply-adds
                a.store(next);
                b.store(next + BK * PITCH_A);
                __syncthreads();
                even.load(next + at_a, next + at_b);
            }
            odd.multiply_into(acc);
        }
        Accum* const swap = current;
        current = next;
        next = swap;
    }
}

// The row of the tile in row `i` of the slab, for the slab of row group `group`.
DEVICE int slab_row(int group, int i) { return i / GRID_M * (LANES_M * TM) + group * GRID_M + i % GRID_M; }

// Stores the accumulators of one row group of all threads as a slab of rows.
DEVICE void store_slab(Accum* smem, const Accum (&acc)[TM][TN], int group) {
    const int row = first_row() / (LANES_M * TM) * GRID_M + first_row() % (LANES_M * TM);
    Accum* const to = smem + row * PITCH_B + first_column();
#pragma unroll
    for (int g = 0; g < ROW_GROUPS; ++g) {
        if (g != group) continue;
#pragma unroll
        for (int i = 0; i < GROUP; ++i)
#pragma unroll
            for (int j = 0; j < TN; j += GROUP) {
                Raw<Accum, GROUP> raw;
#pragma unroll
                for (int e = 0; e < GROUP; ++e) raw.elements[e] = acc[g * GROUP + i][j + e];
                store_wide<GROUP>(to + i * PITCH_B + j / GROUP * GRID_N, raw);
            }
    }
}

// A thread keeps its strip of columns for the whole tile and goes down the rows, several at a time: all fetches of a pass are
// in flight before its first visit.
DEVICE void visit(const Params& p, const TileValues& tile, const Accum (&acc)[TM][TN], Accum* smem, int first, int column) {
    const int lane_row = threadIdx.x / STRIPS, lane_column = threadIdx.x % STRIPS * STRIP;
    column += lane_column;
    ColumnValues columns = epilogue_column(p, tile, {first, column});

#pragma unroll 1
    for (int pass = 0; pass < ROW_GROUPS * PASSES; ++pass) {
        const int group = pass / PASSES, top = pass % PASSES * PASS * ROWS_AT_ONCE + lane_row;
        RowValues rows[PASS];
        Fetched fetched[PASS];
#pragma unroll
        for (int i = 0; i < PASS; ++i) {
            const int row = {% if residues %}pixel_of(p, first + slab_row(group, top + i * ROWS_AT_ONCE)){# -#}
                {% else %}first + slab_row(group, top + i * ROWS_AT_ONCE){% endif %};
            rows[i] = epilogue_row(p, tile, {row, column});
            fetched[i] = epilogue_fetch(p, tile, {row, column});
        }
        if (pass % PASSES == 0) {
            __syncthreads();
            store_slab(smem, acc, group);
            __syncthreads();
        }
#pragma unroll
        for (int i = 0; i < PASS; ++i) {
            const int row = {% if residues %}pixel_of(p, first + slab_row(group, top + i * ROWS_AT_ONCE)){# -#}
                {% else %}first + slab_row(group, top + i * ROWS_AT_ONCE){% endif %};
            Raw<Accum, STRIP> raw;
            load_wide<STRIP>(raw, smem + (top + i * ROWS_AT_ONCE) * PITCH_B + lane_column);
            epilogue_visit(p, tile, columns, rows[i], fetched[i], {row, column}, raw.elements);
            epilogue_row_end(p, tile, rows[i], {row, column});
        }
    }
    epilogue_column_end(p, tile, columns, {first, column});
}

} // namespace simt

extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS) postlude_kernel(const __grid_constant__ Params p) {
    begin_early();
    extern __shared__ __align__(16) unsigned char smem[];
    Accum* const stages = reinterpret_cast<Accum*>(smem);

    const TileOrigin tile = locate(p);
    if (tile.batch >= p.batch) return;
    Accum acc[TM][TN];
#pragma unroll
    for (int i = 0; i < TM; ++i)
#pragma unroll
        for (int j = 0; j < TN; ++j) acc[i][j] = Accum(0);
{% if operand_sums %}    simt::Sums<true> sums_a(p, tile);
    simt::Sums<false> sums_b(p, tile);
    if (p.k > 0) simt::multiply(p, acc, stages, tile.batch, tile.row, tile.column, sums_a, sums_b);
    finish_sums(p, tile, sums_a, sums_b, stages);
{% else %}    if (p.k > 0) simt::multiply(p, acc, stages, tile.batch, tile.row, tile.column);
{% endif %}
    const TileValues values = epilogue_begin(p, tile.batch);
    simt::visit(p, values, acc, stages, tile.row, tile.column);
    if constexpr (EPILOGUE_SMEM > 0) __syncthreads();
    epilogue_end(p, values, tile);
}
