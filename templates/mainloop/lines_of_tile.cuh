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
            const int column = tile.column + element % BN, x = element / BN % LINE - {{ left }}, group = element / LINE_ELEMENTS;
            const u32 band = u32(tile.row / (ROWS * WIDTH) + group), image = band / u32(bands);
            const int left = (p.n - column) * int(sizeof(Element));
            const bool inside = number < COPIES && u32(x) < u32(p.image_width) && int(image) < p.images;
            copies[i].y = int(band - image * u32(bands)) * {{ lines_of_band }} - {{ above }};
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

{% include "mainloop/line_sums.cuh" %}
{% if loads_ahead %}{% include "mainloop/strips_of_run.cuh" %}{% endif %}
DEVICE void visit(const Params& p, const TileValues& values, const TileOrigin& tile, Ring& ring, Accum* weights) {
    // Threads without a band multiply the first one's pixels, and visit rows behind the last one.
    const int strip = threadIdx.x % STRIPS, run = threadIdx.x / STRIPS, x = run % ACROSS * {{ side }};
    const int group = run < GROUPS * ACROSS ? run / ACROSS : 0, column = tile.column + strip * STRIP;
    const int inside = run < GROUPS * ACROSS ? WIDTH - x : 0;
    const int first = tile.row + group * (ROWS * WIDTH) + x;
    const u32 at = u32((group * LINE + {{ under_x }}) * BN + strip * STRIP);
    // Loads of vectors are in flight before the block waits for weights.
    ColumnValues columns = epilogue_column(p, values, {first, column});
    load_weights(p, weights, tile.column);
    __syncthreads();
    Sums sums(weights, strip);
#pragma unroll
    for (int r = 0; r < {{ under }} - STRIDE_Y; ++r) sums.add(ring.next(p) + at, r);
{% if loads_ahead %}    const StripsOfRun strips(p, column, inside);
{% else %}    const bool lies_inside = IS_SHORT && tile.row + BM <= p.m && tile.column + BN <= p.n && is_wide(p);
{% endif %}    u32 end = {{ steps }};
    asm volatile("" : "+r"(end));   // NVRTC unrolls the loop in spite of the pragma, if it knows how long it is
#pragma unroll 1
    for (int row = 0; row < int(end); ++row) {
{% if spread %}        const int rest = ROWS - row * SPREAD_Y;
{% endif %}{% if loads_ahead %}        const int top = first + row * {{ apart }};
        RowValues of_rows[TOGETHER];
        Fetched fetched[TOGETHER];
        strips.fetch_ahead(p, values, top, of_rows, fetched);
{% endif %}#pragma unroll
        for (int r = {{ under }} - STRIDE_Y; r < {{ under }}; ++r) sums.add(ring.next(p) + at, r);
{% if loads_ahead %}        strips.visit(p, values, columns, sums.acc[0], top, of_rows, fetched{% if spread %}, rest{% endif %});
{% else %}        const int top = first + row * {{ apart }};
        if (lies_inside) {
            const Params within = depthwise::inside(p);
            visit_run(within, values, columns, sums.acc[0], [&](int pixel) {
                const Strip strip{top + {{ place }}, column};
                assume<true>(within, strip);
                return strip;
            });
        } else {
            visit_run(p, values, columns, sums.acc[0],
                      [&](int pixel) { return Strip{{ strip_there }}; });
        }
{% endif %}        sums.go_on();
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
