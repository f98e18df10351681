// ---- mainloop: depthwise_filters. The gradient of filters that read one channel each; memory bandwidth is the limit ----
//
// A batch entry is a channel, whose filter is a single row, and K are output pixels. A block has CHANNELS channels and a part of
// K. A thread has VECTOR of the channels and RUN output pixels side by side, and walks down the images. The sums of ROWS rows of
// the window are in registers, and so are the lines of X under it, which stay from one row of output pixels to the next.
//
// The parts of K meet in the workspace. The last block to arrive adds them up in their order, and runs the epilogue.
namespace depthwise {

constexpr int TAPS = WINDOW_Y * WINDOW_X, CHANNELS = LANES * VECTOR, WARPS = THREADS / 32;
constexpr int RUNS = THREADS / LANES;                    // runs of output pixels that a block walks along side by side
constexpr int SUMS = TAPS * CHANNELS, SUMS_AT_ONCE = ROWS * WINDOW_X * CHANNELS;
constexpr int PIXELS = (RUN - 1) * STRIDE_X + (WINDOW_X - 1) * DILATION_X + 1;   // from the first under a run to the last
// Lines under the window that the next row of output pixels needs too, and those that it loads.
constexpr int KEPT = DILATION_Y == 1 && STRIDE_Y < ROWS ? ROWS - STRIDE_Y : 0, FRESH = ROWS - KEPT;
constexpr int ALIGN = A_ALIGN < B_ALIGN ? A_ALIGN : B_ALIGN;
constexpr int ALIGNED = ALIGN < int(sizeof(Element)) ? 1 : ALIGN / int(sizeof(Element));
constexpr int WIDTH = ALIGNED < VECTOR ? ALIGNED : VECTOR, VECTORS = VECTOR / WIDTH;
// How sums are read from the workspace: in pieces of 16 bytes. SHARERS threads have the same piece, of different parts.
constexpr int PIECE = 16 / int(sizeof(Accum)), PIECES = SUMS / PIECE, AHEAD = 8;
constexpr int MOST_SHARERS = WARPS * SUMS_AT_ONCE / SUMS < THREADS / PIECES ? WARPS * SUMS_AT_ONCE / SUMS : THREADS / PIECES;
constexpr int SHARERS = MOST_SHARERS > 1 ? MOST_SHARERS : 1;
constexpr int STRIPS = BN / STRIP;                       // of a row in a visit
// Channels that are visited together.
constexpr int ENTRIES = {% if reductions or packed %}1{% else %}THREADS / STRIPS{% endif %};

static_assert(BM * STRIPS == THREADS && SUMS % PIECE == 0, "threads visit a tile once, and pieces are whole");
static_assert((SUMS + WARPS * SUMS_AT_ONCE) * int(sizeof(Accum)) <= MAINLOOP_SMEM &&
              (SUMS + SHARERS * SUMS) * int(sizeof(Accum)) <= MAINLOOP_SMEM, "the plan made room for sums");

{% include "mainloop/multiply_add.cuh" -%}
{% include "mainloop/add.cuh" -%}

// The channels of a pixel that a thread has.
struct Pixel {
    Raw<Element, WIDTH> vectors[VECTORS];
    // `count`: how many of them there are. Without branches if that is all or none.
    template <bool WHOLE> DEVICE void load(const Element* from, int count) {
#pragma unroll
        for (int v = 0; v < VECTORS; ++v) {
            if constexpr (!WHOLE) {
                load_narrow<WIDTH>(vectors[v], from + v * WIDTH, 1, count - v * WIDTH);
            } else if (count > 0) {
                load_wide<WIDTH>(vectors[v], from + v * WIDTH);
            } else {
#pragma unroll
                for (int c = 0; c < Raw<Element, WIDTH>::CHUNKS; ++c) vectors[v].words[c] = {};
            }
        }
    }
    DEVICE void widened(Accum (&values)[VECTOR]) const {
#pragma unroll
        for (int e = 0; e < VECTOR; ++e) values[e] = widen(vectors[e / WIDTH].elements[e % WIDTH]);
    }
};
struct Line { Pixel pixels[PIXELS]; };   // of X, under the windows of a run
struct Run { Pixel pixels[RUN]; };       // of dY

// Whether a window of the run reads a pixel of a line.
DEVICE constexpr bool is_read(int pixel) {
    for (int q = 0; q < RUN; ++q)
        for (int s = 0; s < WINDOW_X; ++s)
            if (q * STRIDE_X + s * DILATION_X == pixel) return true;
    return false;
}

// Adds the products of a run's output pixels in the rows from `row` to `end` with what lies under ROWS rows of the window from
// `first` on.
template <bool WHOLE>
DEVICE void walk(const Params& p, Accum (&sums)[ROWS][WINDOW_X][VECTOR], u32 run, int channel, int first, int row, int end) {
    const u32 runs_of_row = u32(p.output_width) / RUN, image = run / runs_of_row, x = (run - image * runs_of_row) * RUN;
    int left = image < u32(p.images) ? p.batch - channel : 0;   // channels from this thread's first one on
    const i64 pixel = (i64(image) * (p.output_pixels / p.output_width) + row) * p.output_width + x;
    const Element* gradients = static_cast<const Element*>(p.a) + pixel * p.lda + channel;
    int y = row * STRIDE_Y - p.above + first * DILATION_Y;
    const int begin = int(x) * STRIDE_X - p.left;
    const i64 line = i64(p.image_width) * p.ldb;
    const Element* const images = static_cast<const Element*>(p.b) + (image * p.image_height * line + begin * p.ldb + channel);

    auto load_line = [&](Line& to, int at) {
        const int inside = u32(at) < u32(p.image_height) ? left : 0;
        const Element* const from = images + at * line;
#pragma unroll
        for (int i = 0; i < PIXELS; ++i)
            if (is_read(i)) to.pixels[i].load<WHOLE>(from + i * p.ldb, u32(begin + i) < u32(p.image_width) ? inside : 0);
    };
    Line lines[ROWS], fresh[FRESH];
    Run gradient;
    auto load_fresh = [&]() {
#pragma unroll
        for (int r = 0; r < FRESH; ++r) load_line(fresh[r], y + (KEPT + r) * DILATION_Y);
#pragma unroll
        for (int q = 0; q < RUN; ++q) gradient.pixels[q].load<WHOLE>(gradients + q * p.lda, left);
    };
#pragma unroll
    for (int r = 0; r < KEPT; ++r) load_line(lines[r], y + r);
    load_fresh();
    // One row after the other: side by side their loads take all registers.
#pragma unroll 1
    for (; row < end; ++row) {
        Accum factors[RUN][VECTOR];
#pragma unroll
        for (int r = 0; r < FRESH; ++r) lines[KEPT + r] = fresh[r];
#pragma unroll
        for (int q = 0; q < RUN; ++q) gradient.pixels[q].widened(factors[q]);
        // The next row is on its way while this one is multiplied.
        y += STRIDE_Y;
        gradients += p.output_width * p.lda;
        if (row + 1 == end) left = 0;
        load_fresh();
#pragma unroll
        for (int r = 0; r < ROWS; ++r)
#pragma unroll
            for (int i = 0; i < PIXELS; ++i) {
                if (!is_read(i)) continue;
                Accum pixels[VECTOR];
                lines[r].pixels[i].widened(pixels);
#pragma unroll
                for (int q = 0; q < RUN; ++q)
#pragma unroll
                    for (int s = 0; s < WINDOW_X; ++s)
                        if (q * STRIDE_X + s * DILATION_X == i) {
#pragma unroll
                            for (int e = 0; e < VECTOR; ++e)
                                sums[r][s][e] = multiply_add(pixels[e], factors[q][e], sums[r][s][e]);
                        }
            }
#pragma unroll
        for (int r = 0; r < KEPT; ++r) lines[r] = lines[r + FRESH];
    }
}

// The block's sums over its part of K, tap by tap. `room` holds those of its warps meanwhile. Blocks walk through all rows of
// output pixels of as many runs as they have threads with the same channels, and then of the next ones.
DEVICE void sum_up(const Params& p, Accum* total, Accum* room, int channel, int part) {
    const u32 thread = threadIdx.x, warp = thread / 32;
    channel += thread % LANES * VECTOR;
    const u32 height = u32(p.output_pixels) / u32(p.output_width), runs = u32(p.images) * (u32(p.output_width) / RUN);
    const i64 rows = i64((runs + RUNS - 1) / RUNS) * height;
    const u32 begin = u32(rows * part / PARTS), end = u32(rows * (part + 1) / PARTS);
#pragma unroll 1
    for (int first = 0; first < WINDOW_Y; first += ROWS) {
        Accum sums[ROWS][WINDOW_X][VECTOR] = {};
#pragma unroll 1
        for (u32 at = begin; at < end;) {
            const u32 side = at / height, row = at - side * height, count = min(height - row, end - at);
            const u32 run = side * RUNS + thread / LANES;
            if (p.batch % VECTOR == 0) walk<true>(p, sums, run, channel, first, row, row + count);
            else walk<false>(p, sums, run, channel, first, row, row + count);
            at += count;
        }
#pragma unroll
        for (int i = 0; i < ROWS * WINDOW_X * VECTOR; ++i) {
            const int tap = i / VECTOR, e = i % VECTOR;
            Accum sum = sums[tap / WINDOW_X][tap % WINDOW_X][e];
#pragma unroll
            for (int distance = LANES; distance < 32; distance *= 2) sum = add(sum, exchange(sum, distance));
            if (thread % 32 < LANES) room[warp * SUMS_AT_ONCE + tap * CHANNELS + thread % LANES * VECTOR + e] = sum;
        }
        __syncthreads();
#pragma unroll 1
        for (int i = thread; i < SUMS_AT_ONCE && first * WINDOW_X * CHANNELS + i < SUMS; i += THREADS) {
            Accum sum = room[i];
#pragma unroll
            for (int w = 1; w < WARPS; ++w) sum = add(sum, room[w * SUMS_AT_ONCE + i]);
            total[first * WINDOW_X * CHANNELS + i] = sum;
        }
        __syncthreads();
    }
}

// Leaves the block's sums in the workspace. Whether it is the last of its channels to arrive.
DEVICE bool leave(const Accum* total, Accum* parts, u32* arrivals, u32* note, int part) {
#pragma unroll 1
    for (int i = threadIdx.x; i < SUMS; i += THREADS) parts[i64(part) * SUMS + i] = total[i];
    __syncthreads();
    if (threadIdx.x == 0) {
        fence_device();
        *note = atomicInc(arrivals, PARTS - 1) == PARTS - 1;   // wraps
        fence_device();
    }
    __syncthreads();
    const bool last = *note != 0;
    __syncthreads();
    return last;
}
// Adds up the parts of K in an order that does not depend on which came last.
DEVICE void add_parts(const Accum* parts, Accum* total, Accum* room) {
#pragma unroll 1
    for (int i = threadIdx.x; i < SHARERS * PIECES; i += THREADS) {
        const uint4* const from = reinterpret_cast<const uint4*>(parts) + i % PIECES;
        Accum sums[PIECE];
#pragma unroll
        for (int e = 0; e < PIECE; ++e) sums[e] = Accum(0);
#pragma unroll 1
        for (int part = i / PIECES; part < PARTS; part += AHEAD * SHARERS) {
            Raw<Accum, PIECE> ahead[AHEAD];
            // Other blocks have written this memory, so the loads bypass this multiprocessor's own cache.
#pragma unroll
            for (int j = 0; j < AHEAD; ++j)
                ahead[j].words[0] = part + j * SHARERS < PARTS ? __ldcg(from + i64(part + j * SHARERS) * PIECES) : uint4{};
#pragma unroll
            for (int j = 0; j < AHEAD; ++j)
#pragma unroll
                for (int e = 0; e < PIECE; ++e) sums[e] = add(sums[e], ahead[j].elements[e]);
        }
#pragma unroll
        for (int e = 0; e < PIECE; ++e) room[i * PIECE + e] = sums[e];
    }
    __syncthreads();
#pragma unroll 1
    for (int i = threadIdx.x; i < SUMS; i += THREADS) {
        Accum sum = room[i];
#pragma unroll
        for (int sharer = 1; sharer < SHARERS; ++sharer) sum = add(sum, room[sharer * SUMS + i]);
        total[i] = sum;
    }
    __syncthreads();
}

// Visits the filters of the block's channels. A batch entry has a single row. So threads have entries of their own, unless they
// combine what they visit.
DEVICE void visit(const Params& p, const Accum* total, int channel) {
#pragma unroll 1
    for (int first = 0; first < p.n; first += BN)
#pragma unroll 1
        for (int group = 0; group < CHANNELS && channel + group < p.batch; group += ENTRIES) {
            const int inside = threadIdx.x / STRIPS, entry = ENTRIES > 1 ? group + inside : group;
            const bool exists = ENTRIES > 1 ? entry < CHANNELS && channel + entry < p.batch : inside == 0;
            const TileValues values = epilogue_begin(p, min(channel + entry, p.batch - 1));
            const Strip strip{ENTRIES > 1 ? exists ? 0 : p.m : inside, first + int(threadIdx.x) % STRIPS * STRIP};
            ColumnValues columns = epilogue_column(p, values, strip);
            RowValues rows = epilogue_row(p, values, strip);
            const Fetched fetched = epilogue_fetch(p, values, strip);
            Accum acc[STRIP];
#pragma unroll
            for (int i = 0; i < STRIP; ++i)
                acc[i] = exists && strip.at(i) < TAPS ? total[strip.at(i) * CHANNELS + entry] : Accum(0);
            epilogue_visit(p, values, columns, rows, fetched, strip, acc);
            epilogue_row_end(p, values, rows, strip);
            epilogue_column_end(p, values, columns, strip);
            if constexpr (EPILOGUE_SMEM > 0) {
                __syncthreads();
                epilogue_end(p, values, {0, first, channel + entry});
                __syncthreads();
            }
        }
}

} // namespace depthwise

extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS) postlude_kernel(const __grid_constant__ Params p) {
    begin_early();
    extern __shared__ __align__(16) unsigned char smem[];
    Accum* const total = reinterpret_cast<Accum*>(smem);
    Accum* const room = total + depthwise::SUMS;
    const int part = blockIdx.x % PARTS, tile = blockIdx.x / PARTS, channel = tile * depthwise::CHANNELS;
    depthwise::sum_up(p, total, room, channel, part);
    if constexpr (PARTS > 1) {
        Accum* const parts = static_cast<Accum*>({{ shared_sums }}) + i64(tile) * (PARTS * depthwise::SUMS);
        u32* const arrivals = static_cast<u32*>({{ shared_arrivals }}) + tile;
        if (!depthwise::leave(total, parts, arrivals, reinterpret_cast<u32*>(room), part)) return;
        depthwise::add_parts(parts, total, room);
    }
    depthwise::visit(p, total, channel);
}
