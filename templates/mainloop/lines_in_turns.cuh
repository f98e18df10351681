// A block goes on from the lines of a tile to those of its next one, and the ring with it.
constexpr int STAGE_BYTES = STAGE * int(sizeof(Element));
{% if not loads_ahead -%}
// Strips inside of the matrix have code of their own. Where a visit's lanes work together, all of a tile has to lie inside.
constexpr bool ARE_APART = {% if packed %}false{% else %}true{% endif %};
{% endif %}
// What a block computes: tiles of the same columns, `step` tiles apart, so that all blocks together go through memory from one
// end to the other.
struct Part {
    int column, tile, tiles, step;

    DEVICE explicit Part(const Params& p) : tiles(int(u32(p.m - 1) / BM + 1)) {
        const u32 columns = u32(p.n - 1) / BN + 1;
        const u32 index = {% if backwards %}gridDim.x - 1 - blockIdx.x{% else %}blockIdx.x{% endif %};
        column = int(index % columns * BN);
        tile = int(index / columns);
        step = int(gridDim.x / columns);
    }
};

// Copies BYTES bytes to shared memory if there is a place for them; zeros without a source, which is not dereferenced then.
DEVICE void copy_or_clear(u32 to, const void* from, bool has_place, bool has_source) {
    if constexpr (BYTES == 16)
        asm volatile("{\n.reg .pred copies, clears;\nsetp.ne.b32 copies, %2, 0;\nsetp.eq.b32 clears, %3, 0;\n"
                     "@copies cp.async.cg.shared.global.L2::128B [%0], [%1], 16, clears;\n}"
                     ::"r"(to), "l"(from), "r"(int(has_place)), "r"(int(has_source)) : "memory");
    else
        asm volatile("{\n.reg .pred copies, clears;\nsetp.ne.b32 copies, %2, 0;\nsetp.eq.b32 clears, %3, 0;\n"
                     "@copies cp.async.ca.shared.global [%0], [%1], %4, clears;\n}"
                     ::"r"(to), "l"(from), "r"(int(has_place)), "r"(int(has_source)), "n"(BYTES) : "memory");
}

// What a thread copies of each line: from where, and which line of the image that is; NO_LINE outside of all images.
struct Copy {
    const Element* from;
    int y;
};
constexpr int NO_LINE = -(1 << 30);

// The lines of a part, and the stage that is read next.
struct Ring {
    Copy copies[COPIES_OF_THREAD];
    i64 pitch;
    Part part;         // what no copy has been made for yet
    int lines;         // that are left to copy of the tile in hand
    bool cuts;         // whether a copy has channels behind the last one
    u32 thread, place;
    u32 from, to;      // bytes from the first stage to the next one, and to the one ahead of it

    DEVICE Ring(const Params& p, const Part& all) : part(all), from(0), to((STAGES - 1) * STAGE_BYTES) {
        pitch = p.image_width * p.lda;
        cuts = part.column + BN > p.n && p.n % COPIED != 0;
        thread = threadIdx.x;
        place = shared_address(shared_memory) + AT_LINES + threadIdx.x * BYTES;
        asm volatile("" : "+r"(thread), "+r"(place));   // they are not found again for each line
        enter(p);
#pragma unroll 1
        for (u32 stage = 0; stage < (STAGES - 1) * STAGE_BYTES; stage += STAGE_BYTES) copy<(LINES < STAGES)>(p, stage);
    }
    DEVICE int column_of(int i) const { return part.column + int((thread + i * THREADS) * COPIED % BN); }
    DEVICE bool has_place(int i) const { return (i + 1) * THREADS <= COPIES || thread + i * THREADS < COPIES; }
    // Goes on to the lines of the next tile. Behind the last one come zeros, which nobody reads.
    DEVICE void enter(const Params& p) {
        const u32 bands = u32(p.output_pixels) / (ROWS * WIDTH);   // of an image
        lines = LINES;
#pragma unroll
        for (int i = 0; i < COPIES_OF_THREAD; ++i) {
            const u32 number = thread + i * THREADS, pixel = number * COPIED / BN;
            const int column = column_of(i), x = int(pixel % LINE) - {{ left }};
            const u32 band = u32(part.tile) * GROUPS + pixel / LINE, image = band / bands;
            const bool inside = number < COPIES && u32(x) < u32(p.image_width) && int(image) < p.images && column < p.n;
            const int y = int(band - image * bands) * {{ lines_of_band }} - {{ above }};
            copies[i].y = inside ? y : NO_LINE;
            const i64 at = (i64(image) * p.image_height + y) * p.image_width + x;
            copies[i].from = static_cast<const Element*>(p.a) + at * p.lda + column;
        }
        part.tile += part.step;
    }
    // Copies the next line to a stage. MAY_ENTER: it may be one of the next tile.
    template <bool MAY_ENTER> DEVICE void copy(const Params& p, u32 stage) {
        if (MAY_ENTER && lines == 0) enter(p);
        --lines;
        const u32 to = place + stage;
        if (cuts) {
#pragma unroll
            for (int i = 0; i < COPIES_OF_THREAD; ++i) {
                const int left = (p.n - column_of(i)) * int(sizeof(Element)), bytes = left < BYTES ? left : BYTES;
                const int valid = u32(copies[i].y) < u32(p.image_height) ? bytes : 0;
                if (has_place(i)) copy_async<BYTES>(to + i * (THREADS * BYTES), copies[i].from, valid);
            }
        } else {
#pragma unroll
            for (int i = 0; i < COPIES_OF_THREAD; ++i) {
                const bool inside = u32(copies[i].y) < u32(p.image_height);
                copy_or_clear(to + i * (THREADS * BYTES), copies[i].from, has_place(i), inside);
            }
        }
#pragma unroll
        for (int i = 0; i < COPIES_OF_THREAD; ++i) copies[i].from += pitch, ++copies[i].y;
        copy_async_commit();
    }
    // The next line, when it has arrived. All threads are done with the stage ahead of it, where the next copy goes.
    template <bool MAY_ENTER> DEVICE const Element* next(const Params& p) {
        copy_async_wait<STAGES - 2>();
        __syncthreads();
        copy<MAY_ENTER>(p, to);
        const Element* const line = reinterpret_cast<const Element*>(shared_memory + AT_LINES + from);
        to = from;
        from = from == (STAGES - 1) * STAGE_BYTES ? 0 : from + STAGE_BYTES;
        return line;
    }
};

{% include "mainloop/line_sums.cuh" %}
{% if loads_ahead %}{% include "mainloop/strips_of_run.cuh" %}{% endif %}
DEVICE void visit(const Params& p, const TileValues& values, const Part& part, Ring& ring, Accum* weights) {
    // Threads without a band multiply the first one's pixels, and visit rows behind the last one.
    const int strip = threadIdx.x % STRIPS, run = threadIdx.x / STRIPS, x = run % ACROSS * {{ side }};
    const int group = run < GROUPS * ACROSS ? run / ACROSS : 0, column = part.column + strip * STRIP;
    const int inside = run < GROUPS * ACROSS ? WIDTH - x : 0;
    const u32 at = u32((group * LINE + {{ under_x }}) * BN + strip * STRIP);
    // Loads of vectors are in flight before the block waits for weights.
    ColumnValues columns = epilogue_column(p, values, {part.tile * BM, column});
    load_weights(p, weights, part.column);
    __syncthreads();
    Sums sums(weights, strip);
{% if loads_ahead %}    const StripsOfRun strips(p, column, inside);
{% endif %}#pragma unroll 1
    for (int tile = part.tile; tile < part.tiles; tile += part.step) {
{% if not loads_ahead %}        const int end = ARE_APART ? column + STRIP : part.column + BN;
        const bool lies_inside = IS_SHORT && (tile + 1) * BM <= p.m && end <= p.n && is_wide(p);
{% endif %}        int top = tile * BM + group * (ROWS * WIDTH) + x, left = {{ steps }};
        asm volatile("" : "+r"(left));   // NVRTC unrolls the loop in spite of the pragma, if it knows how long it is
#pragma unroll
        for (int row = 0; row < OPEN; ++row) sums.clear(row);
#pragma unroll
        for (int r = 0; r < {{ under }} - STRIDE_Y; ++r) {# -#}
sums.add(ring.next<(LINES - {{ under }} + STRIDE_Y < STAGES)>(p) + at, r);
#pragma unroll 1
        for (; left > 0; --left, top += {{ apart }}) {
{% if spread %}            const int rest = ROWS - (STEPS - left) * SPREAD_Y;
{% endif %}{% if loads_ahead %}            RowValues of_rows[TOGETHER];
            Fetched fetched[TOGETHER];
            strips.fetch_ahead(p, values, top, of_rows, fetched);
{% else %}            // Matrices of short runs are loaded while the run's last lines are multiplied.
            RowValues of_rows[TOGETHER];
            Fetched fetched[TOGETHER];
            const Params within = depthwise::inside(p);
            auto strip_within = [&](int pixel) {
                const Strip strip{top + {{ place }}, column};
                __builtin_assume(strip.row >= 0);
                assume<true>(within, strip);
                return strip;
            };
            auto strip_at = [&](int pixel) { return Strip{{ strip_there }}; };
            auto fetch = [&](int group) {
                if (lies_inside) fetch_run(within, values, strip_within, group, of_rows, fetched);
                else fetch_run(p, values, strip_at, group, of_rows, fetched);
            };
            if (TOGETHER == RUN) fetch(0);
{% endif %}#pragma unroll
            for (int r = {{ under }} - STRIDE_Y; r < {{ under }}; ++r) sums.add(ring.next<true>(p) + at, r);
{% if loads_ahead %}            strips.visit(p, values, columns, sums.acc[0], top, of_rows, fetched{# -#}
{% if spread %}, rest{% endif %});
{% else %}#pragma unroll
            for (int group = 0; group < RUN; group += TOGETHER) {
                if (TOGETHER < RUN) fetch(group);
                if (lies_inside) visit_fetched(within, values, columns, sums.acc[0], strip_within, group, of_rows, fetched);
                else visit_fetched(p, values, columns, sums.acc[0], strip_at, group, of_rows, fetched);
            }
{% endif %}            sums.go_on();
        }
    }
    copy_async_wait<0>();
    epilogue_column_end(p, values, columns, {part.tile * BM, column});
}

} // namespace depthwise

extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS) postlude_kernel(const __grid_constant__ Params p) {
    begin_early();
    const depthwise::Part part(p);
    depthwise::Ring ring(p, part);
    Accum* const weights = reinterpret_cast<Accum*>(shared_memory);
    const TileValues values = epilogue_begin(p, 0);
    depthwise::visit(p, values, part, ring, weights);
    if constexpr (EPILOGUE_SMEM > 0) __syncthreads();
    epilogue_end(p, values, {part.tile * BM, part.column, 0});
}
