// ---- mainloop: GEMV. Few rows of A against a B that passes through the registers once; memory bandwidth is the limit ----
//
// A block owns BM rows, which are all rows or nearly all, and BN columns. Its threads, and those of the other blocks of its
// cluster, share the K axis. Each holds partial sums for COLUMNS columns. At the end these are added up: across lanes by
// shuffles, across warps through shared memory, across blocks through that of the cluster. The order of the additions is fixed.
// Several blocks on a multiprocessor keep loads in flight while one of them adds up.
//
// BM, BN, THREADS, CLUSTER are powers of two. One thread visits each strip of a tile.
namespace gemv {

constexpr int WARP = 32;
constexpr int VECTOR = 16 / int(sizeof(Element));
constexpr int COLUMNS = B_K_MAJOR ? BN : VECTOR;   // of a thread
constexpr int TERMS = B_K_MAJOR ? VECTOR : 8;      // of a thread in one step: K elements
constexpr int LANES_N = BN / COLUMNS;              // neighbouring threads along N
constexpr int GROUPS = THREADS / LANES_N;          // threads of a block that share columns
constexpr int STEP = GROUPS * TERMS * CLUSTER;     // K elements of a step

constexpr int LINES = B_K_MAJOR ? COLUMNS : TERMS; // runs of consecutive elements of B that a thread loads in a step
constexpr int RUN = B_K_MAJOR ? TERMS : COLUMNS;
DEVICE constexpr int width(int align, int most) {
    const int aligned = align < int(sizeof(Element)) ? 1 : align / int(sizeof(Element));
    return aligned < most ? aligned : most;
}
constexpr int WIDTH_B = width(B_ALIGN, RUN), WIDTH_A = A_K_MAJOR ? width(A_ALIGN, TERMS) : 1;

constexpr int SUMS = BM * COLUMNS;                             // of a thread
constexpr int LANES_K = LANES_N < WARP ? WARP / LANES_N : 1;   // lanes of a warp that share columns
constexpr int HELD = SUMS > LANES_K ? SUMS / LANES_K : 1;      // sums of a lane once the lanes have been added up
constexpr int COPIES = LANES_K > SUMS ? LANES_K / SUMS : 1;    // lanes that then hold the same one
constexpr int PARTS = GROUPS / LANES_K;                        // partial sums of a block for each element
constexpr int PART = BM * BN;                                  // from one of them to the next one
constexpr int STRIPS = BN / STRIP;

static_assert(BN % COLUMNS == 0 && THREADS % LANES_N == 0 && THREADS % WARP == 0, "threads cover the columns");
static_assert(BN % STRIP == 0 && BM * STRIPS <= THREADS, "one strip a thread");
static_assert((PARTS + (CLUSTER > 1)) * BM * BN * {{ accumulator_bytes }} <= MAINLOOP_SMEM,
              "the plan made room for the parts, and for a block's sums");

{% include "mainloop/multiply_add.cuh" -%}
{% include "mainloop/add.cuh" -%}

// A thread's part of B in one step: LINES runs at a distance of `ld`.
struct Weights {
    Raw<{{ element_b }}, WIDTH_B> raw[LINES][RUN / WIDTH_B];

    // If runs lie along K, lines after the last of `lines` repeat it. Their sums are never used.
    DEVICE void load(const {{ element_b }}* p, i64 ld, int lines) {
#pragma unroll
        for (int l = 0; l < LINES; ++l) {
#pragma unroll
            for (int v = 0; v < RUN / WIDTH_B; ++v) load_wide<WIDTH_B>(raw[l][v], p + v * WIDTH_B);
            if (!B_K_MAJOR || l + 1 < lines) p += ld;
        }
    }
    DEVICE Accum at(int term, int column) const {
        const int line = B_K_MAJOR ? column : term, i = B_K_MAJOR ? term : column;
        return widen(raw[line][i / WIDTH_B].elements[i % WIDTH_B]);
    }
};

// The same for A, for all rows. Rows outside of the matrix repeat the first one.
struct Tokens {
    Raw<Element, WIDTH_A> raw[BM][TERMS / WIDTH_A];

    DEVICE void load(const Element* p, i64 ld, int rows) {
#pragma unroll
        for (int i = 0; i < BM; ++i)
#pragma unroll
            for (int v = 0; v < TERMS / WIDTH_A; ++v) load_wide<WIDTH_A>(raw[i][v], at(p, ld, i < rows ? i : 0, v));
    }
    DEVICE Accum at(int row, int term) const { return widen(raw[row][term / WIDTH_A].elements[term % WIDTH_A]); }

private:
    static DEVICE const Element* at(const Element* p, i64 ld, int row, int v) {
        return A_K_MAJOR ? p + row * ld + v * WIDTH_A : p + v * ld + row;
    }
};

DEVICE void multiply(Accum (&sums)[SUMS], const Tokens& a, const Weights& b) {
#pragma unroll
    for (int t = 0; t < TERMS; ++t)
#pragma unroll
        for (int c = 0; c < COLUMNS; ++c)
#pragma unroll
            for (int i = 0; i < BM; ++i) sums[i * COLUMNS + c] = multiply_add(a.at(i, t), b.at(t, c), sums[i * COLUMNS + c]);
}

// One K element, element by element, for the first `columns` of this thread's columns.
DEVICE void multiply_term(Accum (&sums)[SUMS], const Element* a, i64 row_distance, int rows, const {{ element_b }}* b,
                          i64 column_distance, int columns) {
    Raw<{{ element_b }}, COLUMNS> w;
    Raw<Element, BM> x;
    load_narrow<COLUMNS>(w, b, column_distance, columns);
    load_narrow<BM>(x, a, row_distance, rows);
#pragma unroll
    for (int c = 0; c < COLUMNS; ++c)
#pragma unroll
        for (int i = 0; i < BM; ++i)
            sums[i * COLUMNS + c] = multiply_add(widen(x.elements[i]), widen(w.elements[c]), sums[i * COLUMNS + c]);
}

// This thread's sums. With `CONSTANT_B` the weights are loaded before the kernels that may still be writing A have ended.
DEVICE void multiply_all(const Params& p, Accum (&sums)[SUMS], const TileOrigin& tile, u32 rank) {
    const int column = tile.column + (B_K_MAJOR ? 0 : int(threadIdx.x) % LANES_N * COLUMNS);
    const int group = rank * GROUPS + threadIdx.x / LANES_N, columns = p.n - column, rows = p.m - tile.row;
    const i64 term_a = A_K_MAJOR ? 1 : p.lda, row_a = A_K_MAJOR ? p.lda : 1;
    const i64 term_b = B_K_MAJOR ? 1 : p.ldb, column_b = B_K_MAJOR ? p.ldb : 1;
    const Element* const origin_a = static_cast<const Element*>(p.a) + (tile.batch * p.batch_stride_a + tile.row * row_a);
    const {{ element_b }}* const origin_b =
        static_cast<const {{ element_b }}*>(p.b) + (tile.batch * p.batch_stride_b + column * column_b);

    // Columns that the edge of the matrix cuts are left to the second loop.
    const int whole = B_K_MAJOR || columns >= COLUMNS ? p.k / TERMS * TERMS : 0;
    const Element* a = origin_a + group * TERMS * term_a;
    const {{ element_b }}* b = origin_b + group * TERMS * term_b;
#pragma unroll 1
    for (int left = whole - group * TERMS; left > 0; left -= STEP) {
        Weights w;
        Tokens x;
        w.load(b, p.ldb, columns);
        if constexpr (CONSTANT_B) wait_for_earlier_kernels();
        x.load(a, p.lda, rows);
        multiply(sums, x, w);
        a += STEP * term_a, b += STEP * term_b;
    }
    if constexpr (CONSTANT_B) wait_for_earlier_kernels();
#pragma unroll 1
    for (int k = whole + group; k < p.k && columns > 0; k += GROUPS * CLUSTER)
        multiply_term(sums, origin_a + k * term_a, row_a, rows, origin_b + k * term_b, column_b, columns);
}

// Adds up the lanes that share columns. Each step halves the sums that a lane holds, as long as it holds more than one. `first`
// becomes the index of the first of the HELD sums that are left.
template <int COUNT, int DISTANCE> DEVICE void fold(Accum* sums, int& first) {
    if constexpr (DISTANCE >= LANES_N && DISTANCE < WARP && DISTANCE > 0) {
        constexpr int HALF = COUNT > 1 ? COUNT / 2 : 1;
        const bool upper = COUNT > 1 && (threadIdx.x & DISTANCE) != 0;
#pragma unroll
        for (int i = 0; i < HALF; ++i) {
            const Accum given = COUNT > 1 && !upper ? sums[i + HALF % COUNT] : sums[i];
            const Accum kept = upper ? sums[i + HALF % COUNT] : sums[i];
            sums[i] = add(kept, __shfl_xor_sync(~0u, given, DISTANCE));
        }
        if (upper) first += HALF;
        fold<HALF, DISTANCE / 2>(sums, first);
    }
}

// Stores the sums of the block's threads in shared memory, one after the other.
DEVICE void store_parts(Accum* parts, Accum (&sums)[SUMS]) {
    int first = 0;
    fold<SUMS, WARP / 2>(sums, first);
    const int lane_column = threadIdx.x % LANES_N * COLUMNS;
    Accum* const part = parts + threadIdx.x / (LANES_N * LANES_K) * (BM * BN);
    if (threadIdx.x / LANES_N % COPIES == 0)
#pragma unroll
        for (int i = 0; i < HELD; ++i) part[(first + i) / COLUMNS * BN + lane_column + (first + i) % COLUMNS] = sums[i];
    __syncthreads();
}

