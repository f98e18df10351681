// ---- mainloop: bands_filters. The gradient of filters of few channels, on the tensor cores of sm_80 and later ----
//
// K are output pixels. BK neighbouring ones have their windows in a few lines of the images, which a block copies into shared
// memory beside their lines of dY. The lines of the next BK pixels arrive while these are multiplied. Blocks have a part of K and
// all elements of a filter.
//
// The fragments are those of the transposed product: 16 elements of a filter by eight filters. A lane reads a pair of elements at
// each of four pixels as words, and puts the halves of two pixels together. So a fragment's K are not the pixels in their order,
// and the fragments of dY are read in the same order. Its rows g and g + 8 are the elements of pair g.
constexpr int STEPS = BK / 16, ELEMENT_TILES = (TERMS / 16 + WARPS_N - 1) / WARPS_N, FILTER_TILES = BM / 8;
constexpr int PIECES = BM / 8;                                // of 16 bytes, of a pixel of dY
constexpr int AT_LINES = 2 * BK * 4, AT_GRADIENTS = AT_LINES + 2 * LINES * LINE * 2;
constexpr int STRIPS = BN / STRIP, ROWS_AT_ONCE = THREADS / STRIPS;   // of a visit
static_assert(sizeof(Element) == 2 && BM % 16 == 0 && BK % 16 == 0 && THREADS >= 32 * WARPS_N * WARPS_K, "whole fragments");
static_assert(AT_GRADIENTS + 2 * BK * BM * 2 <= MAINLOOP_SMEM && BM * BN * 4 <= MAINLOOP_SMEM, "the plan made room");
static_assert(BN % STRIP == 0 && THREADS % STRIPS == 0 && BM % ROWS_AT_ONCE == 0, "threads visit whole rows");

extern __shared__ __align__(1024) u8 shared_memory[];

{% include "mainloop/band_lines.cuh" %}
static_assert(AT_LINES % 16 == 0 && AT_GRADIENTS % 16 == 0, "pieces are aligned");

// The pixels of fragments: K elements 2i and 2i + 1 of a step are pixels i and i + 4, and so it is in the second half of a step.
DEVICE int pixel_of(int k) { return (k & 8) + (k & 7) / 2 + 4 * (k & 1); }
// Where the windows of pixels begin: the four of a lane follow each other.
DEVICE void place_pixels(const Params& p, const Band& band, int first, int count, u32 buffer) {
    u32* const windows = reinterpret_cast<u32*>(shared_memory) + buffer * BK;
    for (int i = threadIdx.x; i < BK; i += THREADS)
        windows[i / 16 * 16 + i % 4 * 4 + i / 4 % 4] = place_of_window(p, band, first + min(i, count - 1));
}
// Pieces of a pixel lie in an order that depends on the pixel, so that eight pixels meet different banks.
DEVICE int piece_at(int pixel, int piece) {
    return PIECES >= 8 ? piece ^ (pixel & 7) : piece ^ (pixel / (8 / PIECES) & (PIECES - 1));
}
// Begins to copy the lines of dY. Pixels and filters that do not exist are zeros.
DEVICE void load_gradients(const Params& p, int row, int first, int count, u32 buffer) {
    const u32 to = shared_address(shared_memory) + AT_GRADIENTS + buffer * (BK * BM * 2);
    const Element* const from = static_cast<const Element*>(p.a) + row;
#pragma unroll 4
    for (int i = threadIdx.x; i < BK * PIECES; i += THREADS) {
        const int pixel = i / PIECES, piece = i % PIECES;
        const bool exists = pixel < count && row + piece * 8 < p.m;
        const i64 at = exists ? i64(first + pixel) * p.lda + piece * 8 : 0;
        copy_async<16>(to + (pixel * PIECES + piece_at(pixel, piece)) * 16, from + at, exists ? 16 : 0);
    }
}

// The pairs of a warp's tiles of elements that a lane reads.
DEVICE int pair_of(int tile) { return (int(threadIdx.x) / 32 % WARPS_N * ELEMENT_TILES + tile) * 8 + int(threadIdx.x) % 32 / 4; }

// Adds the products of the pixels in a buffer. Unless all of them exist, `count` do.
template <bool ALL> DEVICE void multiply(u32 buffer, int count, const u32 (&pairs)[ELEMENT_TILES],
                                         Accum (&acc)[ELEMENT_TILES][FILTER_TILES][4]) {
    const int lane = threadIdx.x % 32, part = threadIdx.x / 32 / WARPS_N;
    if (part >= WARPS_K) return;   // a warp that only copies
    const u32 shared = shared_address(shared_memory);
    const u32 windows = shared + buffer * (BK * 4) + lane % 4 * 16, lines = shared + AT_LINES + buffer * (LINES * LINE * 2);
    // Matrices 0..3 of a load: both halves of K for eight filters, then for the next eight.
    const int pixel = pixel_of((lane >> 3 & 1) * 8 + lane % 8), second = lane >> 4;
    const u32 gradients = shared + AT_GRADIENTS + buffer * (BK * BM * 2) + pixel * (PIECES * 16);
#pragma unroll (ELEMENT_TILES > 2 ? 1 : 2)
    for (int step = part; step < STEPS; step += WARPS_K) {
        u32 window[4], a[ELEMENT_TILES][4];
        asm volatile("ld.shared.v4.b32 { %0, %1, %2, %3}, [%4];"
                     : "=r"(window[0]), "=r"(window[1]), "=r"(window[2]), "=r"(window[3]) : "r"(windows + step * 64) : "memory");
#pragma unroll
        for (int i = 0; i < ELEMENT_TILES; ++i) {
            u32 words[4];
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                words[j] = load_shared_word(lines + window[j] + pairs[i]);
                if (!ALL && step * 16 + j * 4 + lane % 4 >= count) words[j] = 0;
            }
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const u32 low = words[2 * half], high = words[2 * half + 1];
                a[i][2 * half] = (low & 0xffffu) | high << 16;
                a[i][2 * half + 1] = low >> 16 | (high & 0xffff0000u);
            }
        }
#pragma unroll
        for (int f = 0; f < FILTER_TILES / 2; ++f) {
            u32 b[4];
            load_matrices_transposed(b, gradients + (step * 16 * PIECES + piece_at(pixel, f * 2 + second)) * 16);
#pragma unroll
            for (int i = 0; i < ELEMENT_TILES; ++i)
#pragma unroll
                for (int j = 0; j < 2; ++j) multiply_accumulate<Element>(acc[i][2 * f + j], a[i], b[2 * j], b[2 * j + 1]);
        }
    }
}

// Adds up the sums of the warps that share columns, in their order, filter by filter.
DEVICE void gather(const Accum (&acc)[ELEMENT_TILES][FILTER_TILES][4]) {
    Accum* const total = reinterpret_cast<Accum*>(shared_memory);
    const int lane = threadIdx.x % 32, part = threadIdx.x / 32 / WARPS_N;
#pragma unroll 1
    for (int turn = 0; turn < WARPS_K; ++turn) {
        __syncthreads();
        if (turn != part) continue;
#pragma unroll
        for (int i = 0; i < ELEMENT_TILES; ++i) {
            const int pair = pair_of(i), along = first_of(pair);
#pragma unroll
            for (int n = 0; n < FILTER_TILES * 4; ++n) {
                const int filter = n / 4 * 8 + lane % 4 * 2 + n % 2, second = n % 4 / 2;
                if (!counts(pair, along + second)) continue;
                Accum& sum = total[filter * BN + row_of(pair) * RUN + along + second];
                sum = turn == 0 ? acc[i][n / 4][n % 4] : sum + acc[i][n / 4][n % 4];
            }
        }
    }
    __syncthreads();
}

DEVICE void visit(const Params& p, const TileOrigin& tile) {
    const Accum* const total = reinterpret_cast<const Accum*>(shared_memory);
    const TileValues values = epilogue_begin(p, tile.batch);
    const int inside = threadIdx.x / STRIPS, column = threadIdx.x % STRIPS * STRIP;
    ColumnValues columns = epilogue_column(p, values, {tile.row + inside, column});
#pragma unroll 1
    for (int first = inside; first < BM; first += ROWS_AT_ONCE) {
        const Strip strip{tile.row + first, column};
        RowValues rows = epilogue_row(p, values, strip);
        const Fetched fetched = epilogue_fetch(p, values, strip);
        Accum acc[STRIP];
#pragma unroll
        for (int i = 0; i < STRIP; ++i) acc[i] = strip.row < p.m && strip.at(i) < p.n ? total[first * BN + strip.at(i)] : 0.0f;
        epilogue_visit(p, values, columns, rows, fetched, strip, acc);
        epilogue_row_end(p, values, rows, strip);
    }
    epilogue_column_end(p, values, columns, {tile.row + inside, column});
    if constexpr (EPILOGUE_SMEM > 0) __syncthreads();
    epilogue_end(p, values, tile);
}

extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS) postlude_kernel(const __grid_constant__ Params p) {
    begin_early();
    const TileOrigin tile = locate(p);
    if (tile.batch >= p.batch) return;
    // Batch entries are parts of K.
    const int begin = tile.batch * p.k, terms = min(p.k, p.all_terms - begin);
    u32 pairs[ELEMENT_TILES];
#pragma unroll
    for (int i = 0; i < ELEMENT_TILES; ++i) pairs[i] = place_of_pair(p, pair_of(i));
    Accum acc[ELEMENT_TILES][FILTER_TILES][4] = {};
    auto fetch = [&](int at, u32 to) {
        const Band band(p, begin + at);
        load_gradients(p, tile.row, begin + at, terms - at, to);
        load_lines(p, band, to);
        place_pixels(p, band, begin + at, terms - at, to);
    };
    u32 buffer = 0;
    if (terms > 0) fetch(0, 0);
#pragma unroll 1
    for (int at = 0; at < terms; at += BK, buffer ^= 1) {
        copy_async_wait<0>();
        __syncthreads();   // the lines have arrived, for all threads, and nobody needs those before them
        if (at + BK < terms) fetch(at + BK, buffer ^ 1);
        if (terms - at >= BK) multiply<true>(buffer, BK, pairs, acc);
        else multiply<false>(buffer, terms - at, pairs, acc);
    }
    gather(acc);
    visit(p, tile);
}
