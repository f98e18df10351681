// ---- mainloop: bands. Convolutions of few channels on the tensor cores of sm_80 and later ----
//
// The rows of a tile are neighbouring output pixels, whose windows lie in a few lines of the images. A block copies these lines
// into shared memory, and all filters of its columns beside them. Every element of A is then a word of a line: a window's
// elements of a row of its taps are contiguous. Images follow each other with all lines that their windows reach, padding
// included. K goes by pairs of elements, row by row of the window. Where windows begin at odd elements, a second copy of each
// line has its elements one place further to the left.
constexpr int WARP_M = BM / WARPS_M, WARP_N = BN / WARPS_N, WARPS = WARPS_M * WARPS_N;
constexpr int TILES_M = WARP_M / 16, PAIRS_N = WARP_N / 16;   // 16-row and 16-column (two mma.sync wide) pieces of a warp's part
constexpr int STEPS = TERMS / 16;                             // steps of K
constexpr int RUN = WINDOW_X * CHANNELS;                      // elements of a window in a line
constexpr int PAIRS = (RUN + 1) / 2;
constexpr int COPY_LINES = LINES / COPIES;
constexpr int FILTER_BYTES = (TERMS + 8) * 2;                 // of a column; reads of several columns meet different banks
constexpr int AT_PAIRS = BN * FILTER_BYTES, AT_ROWS = AT_PAIRS + TERMS / 2 * 8, AT_LINES = AT_ROWS + BM * 4;
static_assert(sizeof(Element) == 2 && THREADS == 32 * WARPS && BM % WARPS_M == 0 && BN % WARPS_N == 0, "warps cover the tile");
static_assert(WARP_M % 16 == 0 && WARP_N >= 32 && (WARP_N & (WARP_N - 1)) == 0,
              "whole fragments, and slab rows free of bank conflicts");
static_assert(TERMS % 16 == 0 && TERMS >= 2 * PAIRS * WINDOW_Y && LINE % 8 == 0 && LINES % COPIES == 0, "whole steps and pieces");
static_assert(DILATION_X == 1 || WINDOW_X == 1 || CHANNELS % 2 == 0, "a pair lies in one tap, or taps are neighbours");
static_assert(AT_LINES + LINES * LINE * 2 <= MAINLOOP_SMEM, "the plan made room for filters and lines");

extern __shared__ __align__(1024) u8 shared_memory[];

{% include "prelude/shift.cuh" %}
// Where a pair of elements lies from the beginning of its window, in bytes, and which bits of it count.
struct Pair { u32 at, mask; };

DEVICE void load_filters(const Params& p, int column) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll 1
    for (int pair = lane; pair < TERMS / 2; pair += 32) {
        const int down = pair / PAIRS, along = pair % PAIRS * 2;
        const u16* from = static_cast<const u16*>(p.b) + (i64(column + warp) * p.ldb + down * RUN + along);
        const bool first = down < WINDOW_Y, second = first && along + 1 < RUN;
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
        const int down = pair / PAIRS, along = pair % PAIRS * 2;
        const int tap = DILATION_X == 1 ? 0 : along / CHANNELS;   // distances of neighbouring taps are those of elements
        const int at = down * p.dilation_y * LINE + along + tap * (DILATION_X - 1) * CHANNELS;
        pairs[pair] = {down < WINDOW_Y ? u32(at) * 2 : 0, down >= WINDOW_Y ? 0 : along + 1 < RUN ? ~0u : 0xffffu};
    }
}

// The lines of a tile: the first is that of the window at the tile's first row, counted as `image` and `y` from the first one of
// the padded image.
struct Band {
    int image, y, height;   // of the first line; all lines of an image that its windows reach
    int first;              // output rows of all images before the tile
    DEVICE Band(const Params& p, int row) {
        const int rows = p.output_pixels / p.output_width;
        height = (rows - 1) * p.stride_y + (WINDOW_Y - 1) * p.dilation_y + 1;
        first = row / p.output_width;
        image = first / rows;
        y = (first - image * rows) * p.stride_y;
    }
};
// Where the window of each row of the tile begins, in bytes of shared memory.
DEVICE void place_rows(const Params& p, const Band& band, int row) {
    u32* const rows = reinterpret_cast<u32*>(shared_memory + AT_ROWS);
    const int height = p.output_pixels / p.output_width;
    for (int i = threadIdx.x; i < BM; i += THREADS) {
        const int at = row + i < p.m ? row + i : row, output = at / p.output_width, image = output / height;
        const int line = (image - band.image) * band.height + (output - image * height) * p.stride_y - band.y;
        const int element = (at - output * p.output_width) * STRIDE_X * CHANNELS, copy = COPIES == 2 ? element & 1 : 0;
        rows[i] = shared_address(shared_memory) + AT_LINES + u32((copy * COPY_LINES + line) * LINE + element - copy) * 2;
    }
}
// A piece of 16 bytes of a line: its elements from `first` on, zeros outside of the image.
DEVICE uint4 piece_of(const Params& p, int image, int y, int first) {
    const Element* const images = static_cast<const Element*>(p.a);
    const i64 pixels = (i64(image) * p.image_height + y) * p.image_width;
    const int length = p.image_width * CHANNELS;
    if (p.lda == CHANNELS && first >= 0 && first + 8 <= length) {
        const Element* const from = images + pixels * CHANNELS + first;
        const u32 offset = u32(reinterpret_cast<u64>(from)) % 16;
        const Element* const aligned = reinterpret_cast<const Element*>(reinterpret_cast<u64>(from) - offset);
        if (aligned >= images && aligned + 16 <= images + i64(p.m / p.output_pixels) * p.image_height * length) {
            Raw<Element, 8> low, high;
            load_wide(low, aligned);
            load_wide(high, aligned + 8);
            return shift(low.words[0], high.words[0], offset);
        }
    }
    Raw<Element, 8> piece;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        const int at = first + i, pixel = at / CHANNELS;
        const bool exists = at >= 0 && at < length;
        piece.elements[i] = exists ? images[(pixels + pixel) * p.lda + (at - pixel * CHANNELS)] : Element{};
    }
    return piece.words[0];
}
DEVICE void load_lines(const Params& p, const Band& band) {
    constexpr int PIECES = LINE / 8;
    const int images = p.m / p.output_pixels;
#pragma unroll 2
    for (int i = threadIdx.x; i < LINES * PIECES; i += THREADS) {
        const int number = i / PIECES, copy = number / COPY_LINES, first = i % PIECES * 8 + copy - p.left * CHANNELS;
        int image = band.image, y = band.y + number - copy * COPY_LINES;
        while (y >= band.height) y -= band.height, ++image;
        y -= p.above;
        const bool exists = image < images && u32(y) < u32(p.image_height);
        const uint4 piece = exists ? piece_of(p, image, y, first) : uint4{};
        asm volatile("st.shared.v4.b32 [%0], { %1, %2, %3, %4};" ::"r"(shared_address(shared_memory) + AT_LINES + i * 16),
                     "r"(piece.x), "r"(piece.y), "r"(piece.z), "r"(piece.w) : "memory");
    }
}

// acc += A * B over the tile. On exit all of shared memory is free again, once the block's threads have met.
DEVICE void accumulate(const Params& p, const TileOrigin& tile, Accum (&acc)[TILES_M][2 * PAIRS_N][4]) {
    const Band band(p, tile.row);
    load_lines(p, band);
    load_filters(p, tile.column);
    place_pairs(p);
    place_rows(p, band, tile.row);
    __syncthreads();

    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const u32 shared = shared_address(shared_memory), pairs = shared + AT_PAIRS + lane % 4 * 8;
    u32 rows[TILES_M][2];
#pragma unroll
    for (int i = 0; i < TILES_M; ++i)
#pragma unroll
        for (int half = 0; half < 2; ++half)
            rows[i][half] = load_shared_word(shared + AT_ROWS + (warp / WARPS_N * WARP_M + i * 16 + half * 8 + lane / 4) * 4);
    // Matrices 0..3 of a load in the order of mma.sync's registers.
    u32 filters = shared + (warp % WARPS_N * WARP_N + (lane & 7 | lane >> 4 << 3)) * FILTER_BYTES + (lane >> 3 & 1) * 16;
#pragma unroll 2
    for (int step = 0; step < STEPS; ++step, filters += 32) {
        u32 b[PAIRS_N][4];
#pragma unroll
        for (int j = 0; j < PAIRS_N; ++j) load_matrices(b[j], filters + j * 16 * FILTER_BYTES);
        u32 at[2], mask[2];
#pragma unroll
        for (int half = 0; half < 2; ++half)
            asm volatile("ld.shared.v2.b32 { %0, %1}, [%2];"
                         : "=r"(at[half]), "=r"(mask[half]) : "r"(pairs + (step * 8 + half * 4) * 8) : "memory");
        u32 a[TILES_M][4];
#pragma unroll
        for (int i = 0; i < TILES_M; ++i)
#pragma unroll
            for (int j = 0; j < 4; ++j) a[i][j] = load_shared_word(rows[i][j & 1] + at[j >> 1]) & mask[j >> 1];
#pragma unroll
        for (int j = 0; j < 2 * PAIRS_N; ++j)
#pragma unroll
            for (int i = 0; i < TILES_M; ++i)
                multiply_accumulate<Element>(acc[i][j], a[i], b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]);
    }
}

{% include "mainloop/sm80_strips.cuh" %}
extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS) postlude_kernel(const __grid_constant__ Params p) {
    const TileOrigin tile = locate(p);
    if (tile.batch >= p.batch) return;
    Accum acc[TILES_M][2 * PAIRS_N][4] = {};
    accumulate(p, tile, acc);
    run_epilogue(p, tile, acc);
}
