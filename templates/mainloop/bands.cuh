// ---- mainloop: bands. Convolutions of few channels on the tensor cores of sm_80 and later ----
//
// The rows of a tile are neighbouring output pixels, whose windows lie in a few lines of the images. A block copies these lines
// into shared memory, where all filters of its columns lie already. Every element of A is then a word of a line: a window's
// elements of a row of its taps are contiguous. Images follow each other with all lines that their windows reach, padding
// included. K goes by pairs of elements, row by row of the window.
//
// Pairs are read as words. If all windows begin at odd elements of a line, each begins one element earlier (LEAN), which does
// not count. If some do, a second copy of each line has its elements one place further to the left.
//
// A block goes from tile to tile of its columns. The lines of the next tile arrive while a tile is multiplied.
constexpr int WARP_M = BM / WARPS_M, WARP_N = BN / WARPS_N, WARPS = WARPS_M * WARPS_N;
constexpr int TILES_M = WARP_M / 16, PAIRS_N = WARP_N / 16;   // 16-row and 16-column (two mma.sync wide) pieces of a warp's part
constexpr int STEPS = TERMS / 16;                             // steps of K
constexpr int FILTER_BYTES = (TERMS + 8) * 2;                 // of a column; reads of several columns meet different banks
constexpr int AT_PAIRS = BN * FILTER_BYTES, AT_ROWS = AT_PAIRS + TERMS / 2 * 8, AT_LINES = AT_ROWS + 2 * BM * 4;
constexpr int AT_SLABS = AT_LINES + 2 * LINES * LINE * 2;
static_assert(sizeof(Element) == 2 && THREADS == 32 * WARPS && BM % WARPS_M == 0 && BN % WARPS_N == 0, "warps cover the tile");
static_assert(WARP_M % 16 == 0 && WARP_N >= 32 && (WARP_N & (WARP_N - 1)) == 0,
              "whole fragments, and slab rows free of bank conflicts");

extern __shared__ __align__(1024) u8 shared_memory[];

{% include "mainloop/band_lines.cuh" %}
// Where a pair of elements lies from the beginning of its window, in bytes, and which bits of it count.
struct Pair { u32 at, mask; };

DEVICE void load_filters(const Params& p, int column) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll 1
    for (int pair = lane; pair < TERMS / 2; pair += 32) {
        const int along = first_of(pair);
        const u16* from = static_cast<const u16*>(p.b) + (i64(column + warp) * p.ldb + row_of(pair) * RUN + along);
        const bool first = counts(pair, along), second = counts(pair, along + 1);
        u32 to = shared_address(shared_memory) + warp * FILTER_BYTES + pair * 4;
#pragma unroll 8
        for (int i = warp; i < BN; i += WARPS) {
            const bool exists = column + i < p.n;
            const u32 low = first && exists ? from[0] : 0, high = second && exists ? from[1] : 0;
            store_shared_word(to, low | high << 16);
            from += WARPS * p.ldb;
            to += WARPS * FILTER_BYTES;
        }
    }
}
DEVICE void place_pairs(const Params& p) {
    Pair* const pairs = reinterpret_cast<Pair*>(shared_memory + AT_PAIRS);
    for (int pair = threadIdx.x; pair < TERMS / 2; pair += THREADS) {
        const int along = first_of(pair);
        const u32 mask = (counts(pair, along) ? 0xffffu : 0) | (counts(pair, along + 1) ? 0xffff0000u : 0);
        pairs[pair] = {place_of_pair(p, pair), mask};
    }
}

// Where the window of each row of the tile begins, in bytes from the first line.
DEVICE void place_rows(const Params& p, const Band& band, int row, u32 buffer) {
    u32* const rows = reinterpret_cast<u32*>(shared_memory + AT_ROWS) + buffer * BM;
    for (int i = threadIdx.x; i < BM; i += THREADS) rows[i] = place_of_window(p, band, row + i < p.m ? row + i : row);
}

// The operands of one step of K. The places of a step's pairs are known one step ahead.
struct Fragments {
    u32 a[TILES_M][4], b[PAIRS_N][4];

    DEVICE void load(const u32 (&rows)[TILES_M][2], const Pair (&pairs)[2], u32 filters) {
#pragma unroll
        for (int j = 0; j < PAIRS_N; ++j) load_matrices(b[j], filters + j * 16 * FILTER_BYTES);
#pragma unroll
        for (int i = 0; i < TILES_M; ++i)
#pragma unroll
            for (int j = 0; j < 4; ++j) a[i][j] = load_shared_word(rows[i][j & 1] + pairs[j >> 1].at);
    }
    DEVICE void multiply(Accum (&acc)[TILES_M][2 * PAIRS_N][4], const Pair (&pairs)[2]) {
#pragma unroll
        for (int i = 0; i < TILES_M; ++i)
#pragma unroll
            for (int j = 0; j < 4; ++j) a[i][j] &= pairs[j >> 1].mask;
        // Back and forth, so that consecutive instructions share an operand.
#pragma unroll
        for (int n = 0; n < TILES_M * 2 * PAIRS_N; ++n) {
            const int j = n / TILES_M, i = j & 1 ? TILES_M - 1 - n % TILES_M : n % TILES_M;
            multiply_accumulate<Element>(acc[i][j], a[i], b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]);
        }
    }
};
DEVICE void load_pairs(Pair (&pairs)[2], u32 address) {
#pragma unroll
    for (int half = 0; half < 2; ++half)
        asm volatile("ld.shared.v2.b32 { %0, %1}, [%2];"
                     : "=r"(pairs[half].at), "=r"(pairs[half].mask) : "r"(address + half * 32) : "memory");
}

// acc += A * B over the tile whose lines lie in a buffer.
DEVICE void accumulate(u32 buffer, Accum (&acc)[TILES_M][2 * PAIRS_N][4]) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const u32 shared = shared_address(shared_memory), pairs = shared + AT_PAIRS + lane % 4 * 8;
    u32 rows[TILES_M][2];
#pragma unroll
    for (int i = 0; i < TILES_M; ++i)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int row = buffer * BM + warp / WARPS_N * WARP_M + i * 16 + half * 8 + lane / 4;
            rows[i][half] = shared + AT_LINES + buffer * (LINES * LINE * 2) + load_shared_word(shared + AT_ROWS + row * 4);
        }
    // Matrices 0..3 of a load in the order of mma.sync's registers.
    const u32 filters = shared + (warp % WARPS_N * WARP_N + (lane & 7 | lane >> 4 << 3)) * FILTER_BYTES + (lane >> 3 & 1) * 16;
    Fragments fragments[2];
    Pair places[3][2];
    load_pairs(places[0], pairs);
    load_pairs(places[1], pairs + (STEPS > 1 ? 64 : 0));
    fragments[0].load(rows, places[0], filters);
#pragma unroll
    for (int step = 0; step < STEPS; ++step) {
        if (step + 2 < STEPS) load_pairs(places[(step + 2) % 3], pairs + (step + 2) * 64);
        if (step + 1 < STEPS) fragments[(step + 1) % 2].load(rows, places[(step + 1) % 3], filters + (step + 1) * 32);
        fragments[step % 2].multiply(acc, places[step % 3]);
    }
}

{% include "mainloop/sm80_strips.cuh" %}
static_assert(AT_SLABS + WARPS * SLAB_ROWS * SLAB_PITCH * 4 <= MAINLOOP_SMEM, "the plan made room for filters, lines and slabs");

extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS) postlude_kernel(const __grid_constant__ Params p) {
    begin_early();
    const int columns = (p.n - 1) / BN + 1, step = int(gridDim.x) / columns * BM;
    TileOrigin tile{int(blockIdx.x) / columns * BM, int(blockIdx.x) % columns * BN, 0};
    u32 buffer = 0;
    auto fetch = [&](int row, u32 to) {
        const Band band(p, row);
        load_lines(p, band, to);
        place_rows(p, band, row, to);
    };
    fetch(tile.row, 0);
    load_filters(p, tile.column);
    place_pairs(p);
#pragma unroll 1
    for (; tile.row < p.m; tile.row += step, buffer ^= 1) {
        copy_async_wait<0>();
        __syncthreads();   // the tile's lines have arrived, for all threads, and nobody needs those of the tile before
        if (tile.row + step < p.m) fetch(tile.row + step, buffer ^ 1);
        if constexpr (COPIES == 2) {
            shift_lines(buffer);
            __syncthreads();
        }
        Accum acc[TILES_M][2 * PAIRS_N][4] = {};
        accumulate(buffer, acc);
        run_epilogue(p, tile, acc, shared_memory + AT_SLABS);
    }
}
