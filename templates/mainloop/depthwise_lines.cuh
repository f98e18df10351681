// ---- mainloop: depthwise_lines. Each channel of an image has a filter of its own; memory bandwidth is the limit ----
//
// A band is ROWS rows of output pixels of an image. A block has GROUPS bands, of BN channels each. It goes down the lines under
// their windows, which arrive in a ring in shared memory, zeros outside of the image included. A thread has a strip of channels
// of RUN output pixels side by side. It holds the strip's weights, and the sums of all rows of output pixels whose windows lie
// over a line: so it reads and widens each line once.
constexpr bool ACC_ROW_MAJOR = true;   // channels are contiguous
extern __shared__ __align__(16) unsigned char shared_memory[];
namespace depthwise {

constexpr int STRIPS = BN / STRIP;                                  // of a row; one a thread
constexpr int PIXELS = (RUN - 1) * STRIDE_X + WINDOW_X;             // of a line under a run
constexpr int WIDTH = BM / (GROUPS * ROWS);                         // output pixels of a row
constexpr int OPEN = (WINDOW_Y + STRIDE_Y - 1) / STRIDE_Y;          // rows of output pixels over a line
constexpr int LINES = (ROWS - 1) * STRIDE_Y + WINDOW_Y;             // of a band
constexpr int LINE_ELEMENTS = LINE * BN, STAGE = GROUPS * LINE_ELEMENTS;
// Elements that are copied at once.
constexpr int ALIGNED = A_ALIGN / int(sizeof(Element)), ALONG = BN & -BN;
constexpr int COPIED = ALIGNED < ALONG ? ALIGNED : ALONG, BYTES = COPIED * int(sizeof(Element));
constexpr int COPIES = STAGE / COPIED, COPIES_OF_THREAD = (COPIES + THREADS - 1) / THREADS;

static_assert(BN % STRIP == 0 && GROUPS * ACROSS * STRIPS <= THREADS && ACROSS * RUN >= WIDTH, "threads cover the bands");
static_assert(LINE >= (ACROSS * RUN - 1) * STRIDE_X + WINDOW_X && BM == GROUPS * ROWS * WIDTH, "lines hold all windows");
static_assert(STRIDE_Y <= WINDOW_Y && STAGES >= 2 && BYTES >= 4, "each line is under a window");

{% include "mainloop/multiply_add.cuh" -%}

{% include "mainloop/inside.cuh" %}
{% include "mainloop/filter_of_channel.cuh" %}
constexpr int AT_LINES = (TAPS * BN * int(sizeof(Accum)) + 15) / 16 * 16;   // weights lie first
static_assert(AT_LINES + STAGES * STAGE * int(sizeof(Element)) <= MAINLOOP_SMEM, "the plan made room for both");

// Tiles inside of the matrix have code of their own for a run's visits, unless these are long.
constexpr bool IS_SHORT = ACROSS * RUN == WIDTH && GROUPS * ACROSS * STRIPS == THREADS && TOGETHER == RUN;

// What a thread copies of each line: from where, and how much is inside of the image's columns and channels.
struct Copy {
    const Element* from;
    int y, bytes;
};
// Which line is copied next, and to which stage; which stage is read next.
struct Ring {
    Copy copies[COPIES_OF_THREAD];
    i64 pitch;
    int line, to, from;

    DEVICE Ring(const Params& p, const TileOrigin& tile) : pitch(p.image_width * p.lda), line(0), to(0), from(0) {
        const int bands = p.output_pixels / (ROWS * WIDTH);   // of an image
#pragma unroll
        for (int i = 0; i < COPIES_OF_THREAD; ++i) {
            const int number = threadIdx.x + i * THREADS, element = number * COPIED;
            const int column = tile.column + element % BN, x = element / BN % LINE - p.left, group = element / LINE_ELEMENTS;
            const u32 band = u32(tile.row / (ROWS * WIDTH) + group), image = band / u32(bands);
            const int left = (p.n - column) * int(sizeof(Element));
            const bool inside = number < COPIES && u32(x) < u32(p.image_width) && int(image) < p.images;
            copies[i].y = int(band - image * u32(bands)) * (ROWS * STRIDE_Y) - p.above;
            copies[i].bytes = !inside || left < 0 ? 0 : left < BYTES ? left : BYTES;
            const i64 pixel = (i64(image) * p.image_height + copies[i].y) * p.image_width + x;
            copies[i].from = static_cast<const Element*>(p.a) + pixel * p.lda + column;
        }
    }
    DEVICE void copy(const Params& p) {
        if (line < LINES) {
            const u32 stage = shared_address(shared_memory) + AT_LINES + u32(to * STAGE) * u32(sizeof(Element));
#pragma unroll
            for (int i = 0; i < COPIES_OF_THREAD; ++i) {
                const int number = threadIdx.x + i * THREADS;
                const int bytes = u32(copies[i].y + line) < u32(p.image_height) ? copies[i].bytes : 0;
                if (COPIES % THREADS == 0 || number < COPIES)
                    copy_async<BYTES>(stage + u32(number * BYTES), copies[i].from, bytes);
                copies[i].from += pitch;
            }
        }
        copy_async_commit();
        ++line;
        to = to + 1 == STAGES ? 0 : to + 1;
    }
    // The next line, when it has arrived. All threads are done with the stage that the next copy goes to.
    DEVICE const Element* next(const Params& p) {
        copy_async_wait<STAGES - 2>();
        __syncthreads();
        copy(p);
        const Element* const lines = reinterpret_cast<const Element*>(shared_memory + AT_LINES) + from * STAGE;
        from = from + 1 == STAGES ? 0 : from + 1;
        return lines;
    }
};

// The weights of a strip of channels, and the sums of its runs in all rows over a line.
struct Sums {
    Accum weights[WINDOW_Y][WINDOW_X][STRIP], acc[OPEN][RUN][STRIP];

    DEVICE Sums(const Accum* filters, int strip) {
#pragma unroll
        for (int tap = 0; tap < TAPS; ++tap)
#pragma unroll
            for (int i = 0; i < STRIP; i += PIECE) {
                Raw<Accum, PIECE> piece;
                load_wide(piece, filters + tap * BN + weight_at(strip * STRIP + i));
#pragma unroll
                for (int e = 0; e < PIECE; ++e) weights[tap / WINDOW_X][tap % WINDOW_X][i + e] = piece.elements[e];
            }
#pragma unroll
        for (int row = 0; row < OPEN; ++row) clear(row);
    }
    DEVICE void clear(int row) {
#pragma unroll
        for (int q = 0; q < RUN; ++q)
#pragma unroll
            for (int e = 0; e < STRIP; ++e) acc[row][q][e] = Accum(0);
    }
    // Adds the products of a line that lies under row `r` of the windows of the first row of output pixels.
    DEVICE void add(const Element* line, int r) {
#pragma unroll
        for (int i = 0; i < PIXELS; ++i) {
            Raw<Element, STRIP> raw;
            Accum pixel[STRIP];
            load_wide(raw, line + i * BN);
            widen_all(pixel, raw);
#pragma unroll
            for (int q = 0; q < RUN; ++q)
#pragma unroll
                for (int row = 0; row < OPEN; ++row) {
                    const int s = i - q * STRIDE_X, down = r - row * STRIDE_Y;
                    if (s < 0 || s >= WINDOW_X || down < 0) continue;
#pragma unroll
                    for (int e = 0; e < STRIP; ++e) acc[row][q][e] = multiply_add(pixel[e], weights[down][s][e], acc[row][q][e]);
                }
        }
    }
    // The first row is complete, and the next one becomes the first.
    DEVICE void go_on() {
#pragma unroll
        for (int row = 0; row + 1 < OPEN; ++row)
#pragma unroll
            for (int q = 0; q < RUN; ++q)
#pragma unroll
                for (int e = 0; e < STRIP; ++e) acc[row][q][e] = acc[row + 1][q][e];
        clear(OPEN - 1);
    }
};

DEVICE void visit(const Params& p, const TileValues& values, const TileOrigin& tile, Ring& ring, Accum* weights) {
    // Threads without a band multiply the first one's pixels, and visit rows behind the last one.
    const int strip = threadIdx.x % STRIPS, run = threadIdx.x / STRIPS, x = run % ACROSS * RUN;
    const int group = run < GROUPS * ACROSS ? run / ACROSS : 0, column = tile.column + strip * STRIP;
    const int inside = run < GROUPS * ACROSS ? WIDTH - x : 0;
    const int first = tile.row + group * (ROWS * WIDTH) + x;
    const u32 at = u32((group * LINE + x * STRIDE_X) * BN + strip * STRIP);
    // Loads of vectors are in flight before the block waits for weights.
    ColumnValues columns = epilogue_column(p, values, {first, column});
    load_weights(p, weights, tile.column);
    __syncthreads();
    Sums sums(weights, strip);
#pragma unroll
    for (int r = 0; r < WINDOW_Y - STRIDE_Y; ++r) sums.add(ring.next(p) + at, r);
    const bool lies_inside = IS_SHORT && tile.row + BM <= p.m && tile.column + BN <= p.n && is_wide(p);
    u32 end = ROWS;
    asm volatile("" : "+r"(end));   // NVRTC unrolls the loop in spite of the pragma, if it knows how long it is
#pragma unroll 1
    for (int row = 0; row < int(end); ++row) {
#pragma unroll
        for (int r = WINDOW_Y - STRIDE_Y; r < WINDOW_Y; ++r) sums.add(ring.next(p) + at, r);
        const int top = first + row * WIDTH;
        if (lies_inside) {
            const Params within = depthwise::inside(p);
            visit_run(within, values, columns, sums.acc[0], [&](int pixel) {
                const Strip strip{top + pixel, column};
                assume<true>(within, strip);
                return strip;
            });
        } else {
            visit_run(p, values, columns, sums.acc[0],
                      [&](int pixel) { return Strip{pixel < inside ? top + pixel : p.m, column}; });
        }
        sums.go_on();
    }
    epilogue_column_end(p, values, columns, {first, column});
}

} // namespace depthwise

extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS) postlude_kernel(const __grid_constant__ Params p) {
    begin_early();
    const TileOrigin tile = locate(p);
    if (tile.batch >= p.batch) return;
    depthwise::Ring ring(p, tile);
#pragma unroll
    for (int stage = 0; stage + 1 < STAGES; ++stage) ring.copy(p);
    Accum* const weights = reinterpret_cast<Accum*>(shared_memory);
    const TileValues values = epilogue_begin(p, tile.batch);
    depthwise::visit(p, values, tile, ring, weights);
    if constexpr (EPILOGUE_SMEM > 0) __syncthreads();
    epilogue_end(p, values, tile);
}
