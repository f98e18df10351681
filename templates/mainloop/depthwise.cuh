// ---- mainloop: depthwise. Each channel of an image has a filter of its own; memory bandwidth is the limit ----
//
// A block owns a BM x BN tile. A thread has a strip of channels of RUN output pixels side by side. It goes through the lines
// under their windows, and reads each pixel of a line once for all of its windows. Lines overlap in the multiprocessor's own
// cache. Weights lie in shared memory as the accumulator's type, tap by tap.
constexpr bool ACC_ROW_MAJOR = true;   // channels are contiguous
namespace depthwise {

constexpr int STRIPS = BN / STRIP;                       // of a row; one a thread
constexpr int ROWS_AT_ONCE = THREADS / STRIPS * RUN;
constexpr int PIXELS = (RUN - 1) * STRIDE_X + (WINDOW_X - 1) * DILATION_X + 1;   // from the first under a run to the last
static_assert(BN % STRIP == 0 && THREADS % STRIPS == 0 && BM % ROWS_AT_ONCE == 0, "whole runs cover the tile");

{% include "mainloop/multiply_add.cuh" -%}

{% include "mainloop/existing.cuh" %}
{% include "mainloop/filter_of_channel.cuh" %}
static_assert(TAPS * BN * int(sizeof(Accum)) <= MAINLOOP_SMEM, "the plan made room for the weights");

// Whether a window of the run reads a pixel of a line.
DEVICE constexpr bool is_read(int pixel) {
    for (int q = 0; q < RUN; ++q)
        for (int s = 0; s < WINDOW_X; ++s)
            if (q * STRIDE_X + s * DILATION_X == pixel) return true;
    return false;
}

// The pixels of one line under a run's windows.
using Pixels = Vector[PIXELS][VECTORS];
// Without branches if strips are whole: `left`, the channels from the strip's first on, is then as many as a strip has, or none.
template <bool WHOLE_STRIPS> DEVICE void load_pixels(const Params& p, Pixels& pixels, const Element* images, const Window& window,
                                                     int left, int r) {
    const int y = window.y + r * p.dilation_y;
{% if spread %}    // Positions between the pixels of an image are zeros.
    const int inside = is_pixel(y, SPREAD_Y, p.image_height) ? left : 0;
    const Element* const first = images + (i64(window.image) * p.image_height + y / SPREAD_Y) * p.image_width * p.lda;
{% else %}    const int inside = u32(y) < u32(p.image_height) ? left : 0;
    const Element* const first = images + ((i64(window.image) * p.image_height + y) * p.image_width + window.x) * p.lda;
{% endif %}#pragma unroll
    for (int i = 0; i < PIXELS; ++i) {
        if (!is_read(i)) continue;
{% if spread %}        const int count = is_pixel(window.x + i, SPREAD_X, p.image_width) ? inside : 0;
        const Element* const pixel = first + (window.x + i) / SPREAD_X * p.lda;
{% else %}        const int count = u32(window.x + i) < u32(p.image_width) ? inside : 0;
        const Element* const pixel = first + i * p.lda;
{% endif %}        if constexpr (WHOLE_STRIPS) {
#pragma unroll
            for (int v = 0; v < VECTORS; ++v) {
                if (count > 0) load_wide<WIDTH>(pixels[i][v], pixel + v * WIDTH);
                else
#pragma unroll
                    for (int c = 0; c < Vector::CHUNKS; ++c) pixels[i][v].words[c] = {};
            }
        } else {
            load(pixels[i], pixel, 1, count);
        }
    }
}
// Adds the products of a run's windows with the lines under them. A line is on its way while the one before is multiplied.
template <bool WHOLE_STRIPS> DEVICE void multiply(const Params& p, Accum (&acc)[RUN][STRIP], const Accum* weights, int row,
                                                  int column) {
    const Window window = window_at(p, row);
    const int left = row < p.m ? p.n - column : 0;
    const Element* const images = static_cast<const Element*>(p.a) + column;
    Pixels lines[WINDOW_Y > 1 ? 2 : 1];
    load_pixels<WHOLE_STRIPS>(p, lines[0], images, window, left, 0);
    auto take = [&](const Pixels& pixels, int r) {
        Accum taps[WINDOW_X][STRIP];
#pragma unroll
        for (int s = 0; s < WINDOW_X; ++s)
#pragma unroll
            for (int i = 0; i < STRIP; i += PIECE) {
                Raw<Accum, PIECE> piece;
                load_wide(piece, weights + (r * WINDOW_X + s) * BN + weight_at(threadIdx.x % STRIPS * STRIP + i));
#pragma unroll
                for (int e = 0; e < PIECE; ++e) taps[s][i + e] = piece.elements[e];
            }
#pragma unroll
        for (int i = 0; i < PIXELS; ++i) {
            if (!is_read(i)) continue;
            Accum pixel[STRIP];
#pragma unroll
            for (int e = 0; e < STRIP; ++e) pixel[e] = widen(pixels[i][e / WIDTH].elements[e % WIDTH]);
#pragma unroll
            for (int q = 0; q < RUN; ++q)
#pragma unroll
                for (int s = 0; s < WINDOW_X; ++s)
                    if (q * STRIDE_X + s * DILATION_X == i)
#pragma unroll
                        for (int e = 0; e < STRIP; ++e) acc[q][e] = multiply_add(pixel[e], taps[s][e], acc[q][e]);
        }
    };
    // In pairs, so that the places of lines are known.
    constexpr int LAST = WINDOW_Y - 1;
#pragma unroll (WINDOW_Y <= 3 ? 2 : 1)
    for (int r = 0; r < LAST; r += 2) {
        load_pixels<WHOLE_STRIPS>(p, lines[1], images, window, left, r + 1);
        take(lines[0], r);
        if (r + 2 <= LAST) load_pixels<WHOLE_STRIPS>(p, lines[0], images, window, left, r + 2);
        take(lines[1], r + 1);
    }
    if constexpr (LAST % 2 == 0) take(lines[0], LAST);
}

DEVICE void visit(const Params& p, const TileValues& tile, const Accum* weights, int first, int column) {
    first += threadIdx.x / STRIPS * RUN;
    column += threadIdx.x % STRIPS * STRIP;
    ColumnValues columns = epilogue_column(p, tile, {first, column});

    // NVRTC unrolls the passes in spite of the pragma, unless it does not know how many there are. Code runs faster so where two
    // passes are short.
    constexpr bool IS_SHORT = RUN * STRIP * TAPS <= 1000 && visits_together(2 * RUN) == 2 * RUN;
    u32 end = BM;
    if constexpr (!IS_SHORT) asm volatile("" : "+r"(end));
#pragma unroll 1
    for (int pass = 0; pass < int(end); pass += ROWS_AT_ONCE) {
        const int top = first + pass;
        Accum acc[RUN][STRIP];
#pragma unroll
        for (int q = 0; q < RUN; ++q)
#pragma unroll
            for (int e = 0; e < STRIP; ++e) acc[q][e] = Accum(0);
        if (p.n % STRIP == 0) multiply<true>(p, acc, weights, top, column);
        else multiply<false>(p, acc, weights, top, column);
        visit_run(p, tile, columns, acc, [&](int pixel) { return Strip{top + pixel, column}; });
    }
    epilogue_column_end(p, tile, columns, {first, column});
}

} // namespace depthwise

extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS) postlude_kernel(const __grid_constant__ Params p) {
    begin_early();
    extern __shared__ __align__(16) unsigned char smem[];
    Accum* const weights = reinterpret_cast<Accum*>(smem);
    const TileOrigin tile = locate(p);
    if (tile.batch >= p.batch) return;
    depthwise::load_weights(p, weights, tile.column);
    __syncthreads();
    const TileValues values = epilogue_begin(p, tile.batch);
    depthwise::visit(p, values, weights, tile.row, tile.column);
    if constexpr (EPILOGUE_SMEM > 0) __syncthreads();
    epilogue_end(p, values, tile);
}
