// The pool of one window in a strip of channels. Loads of up to AT_ONCE taps are in flight together. Threads that have the same
// channels share the taps of a large window, row after row. A tile may have fewer rows than there are sharers.
constexpr int TAPS = WINDOW_HEIGHT * WINDOW_WIDTH;
constexpr bool SHARED = SHARES_TAPS;
constexpr int SHARERS = SHARED ? ROWS_AT_ONCE : 1;
constexpr int ROWS_OF_PASS = BM < ROWS_AT_ONCE ? BM : ROWS_AT_ONCE;
static_assert(BM % ROWS_AT_ONCE == 0 || (SHARED && BM < ROWS_AT_ONCE), "threads without a row share the taps of others");
constexpr int TURNS = (TAPS + SHARERS - 1) / SHARERS;   // taps of a thread
constexpr int AT_ONCE = TURNS <= 9 ? TURNS : 8;
// Whether every window lies in its image.
constexpr bool INSIDE = ABOVE == 0 && LEFT == 0 &&
    ((OUTPUT_PIXELS / OUTPUT_WIDTH - 1) * STRIDE_Y + (WINDOW_HEIGHT - 1) * DILATION_Y) < IMAGE_HEIGHT &&
    ((OUTPUT_WIDTH - 1) * STRIDE_X + (WINDOW_WIDTH - 1) * DILATION_X) < IMAGE_WIDTH;

{% include "prelude/pairs.cuh" %}
// The largest of pairs of elements, without a conversion.
template <class T, bool IN_PAIRS> struct Taken {
    u32 largest[(STRIP + 1) / 2];   // of a strip of one nothing is made

    DEVICE void begin() {
#pragma unroll
        for (int e = 0; e < STRIP / 2; ++e) largest[e] = Pairs<T>::LEAST;
    }
    template <class V> DEVICE void take(const V& raw) {
#pragma unroll
        for (int e = 0; e < STRIP; e += 2) {
            const u32 low = raw[e / WIDTH].elements[e % WIDTH].bits;
            const u32 high = raw[(e + 1) / WIDTH].elements[(e + 1) % WIDTH].bits;
            largest[e / 2] = Pairs<T>::larger(largest[e / 2], low | high << 16);
        }
    }
    DEVICE float value(int e) const { return widen(T{u16(largest[e / 2] >> (e % 2 * 16))}); }
};
template <class T> struct Taken<T, false> {
    float values[STRIP];

    DEVICE void begin() {
#pragma unroll
        for (int e = 0; e < STRIP; ++e) values[e] = TAKES_LARGEST ? __int_as_float(0xff800000) : 0.0f;
    }
    DEVICE void take(int e, float x) {
        if (TAKES_LARGEST) values[e] = x > values[e] || x != x ? x : values[e];
        else values[e] += x;
    }
    DEVICE void take(const Vector (&raw)[VECTORS]) {
#pragma unroll
        for (int e = 0; e < STRIP; ++e) take(e, widen(raw[e / WIDTH].elements[e % WIDTH]));
    }
    DEVICE float value(int e) const { return values[e]; }
};
using Taps = Taken<Element, TAKES_LARGEST && Pairs<Element>::EXIST && STRIP % 2 == 0>;

struct Pool {
    float values[STRIP];
};

// The row of a visit, in a tile that begins at `top`. A thread that only shares taps has one outside of the matrix.
DEVICE int row_of(const Params& p, int top, int visit) {
    const int own = threadIdx.x / STRIPS;
    return own < ROWS_OF_PASS ? top + visit * ROWS_AT_ONCE + own : p.m;
}

// Takes every SHARERS-th tap of the window at a row of the output, from `own` on, and counts those in the image.
DEVICE int take_taps(Taps& taps, const Params& p, const Element* images, int row, int column, int own) {
    int count = 0;
    const int image = row / OUTPUT_PIXELS, inside = row % OUTPUT_PIXELS, left = p.n - column;
    const int top = inside / OUTPUT_WIDTH * STRIDE_Y - ABOVE, first = inside % OUTPUT_WIDTH * STRIDE_X - LEFT;
    const Element* const from = images + i64(image) * (IMAGE_HEIGHT * IMAGE_WIDTH) * p.lda + column;
#pragma unroll 1
    for (int begin = own; begin < TAPS; begin += AT_ONCE * SHARERS) {
        Vector raw[AT_ONCE][VECTORS];
        bool exists[AT_ONCE];
#pragma unroll
        for (int i = 0; i < AT_ONCE; ++i) {
            const int tap = begin + i * SHARERS;
            const int y = top + tap / WINDOW_WIDTH * DILATION_Y, x = first + tap % WINDOW_WIDTH * DILATION_X;
            exists[i] = TAPS == AT_ONCE || tap < TAPS;
            if (!INSIDE) exists[i] = exists[i] && y >= 0 && y < IMAGE_HEIGHT && x >= 0 && x < IMAGE_WIDTH;
            if (exists[i]) load(raw[i], from + i64(y * IMAGE_WIDTH + x) * p.lda, 1, left);
        }
#pragma unroll
        for (int i = 0; i < AT_ONCE; ++i)
            if (exists[i]) {
                ++count;
                taps.take(raw[i]);
            }
    }
    return count;
}

// All threads of a block call it together. `first` is the first row of the pass, `row` each thread's own.
DEVICE void pool(Pool& pooled, const Params& p, const Element* images, int first, int row, int column) {
    Taps taps;
    int count = 0;
    if constexpr (!SHARED) {
        taps.begin();
        if (row < p.m) count = take_taps(taps, p, images, row, column, 0);
#pragma unroll
        for (int e = 0; e < STRIP; ++e) pooled.values[e] = taps.value(e);
    } else {
        static __shared__ float parts[THREADS][STRIP + 1];
        const int own = threadIdx.x / STRIPS;
        Taken<Element, false> all;
        all.begin();
#pragma unroll 1
        for (int r = 0; r < ROWS_OF_PASS && first + r < p.m; ++r) {
            taps.begin();
            parts[threadIdx.x][STRIP] = take_taps(taps, p, images, first + r, column, own);
#pragma unroll
            for (int e = 0; e < STRIP; ++e) parts[threadIdx.x][e] = taps.value(e);
            __syncthreads();
            if (r == own) {
#pragma unroll 1
                for (int other = threadIdx.x % STRIPS; other < THREADS; other += STRIPS) {
                    count += int(parts[other][STRIP]);
#pragma unroll
                    for (int e = 0; e < STRIP; ++e) all.take(e, parts[other][e]);
                }
            }
            __syncthreads();
        }
#pragma unroll
        for (int e = 0; e < STRIP; ++e) pooled.values[e] = all.value(e);
    }
#pragma unroll
    for (int e = 0; e < STRIP; ++e) {
        if (!TAKES_LARGEST) pooled.values[e] /= COUNTS_PADDING ? float(TAPS) : float(count);
        if (row >= p.m) pooled.values[e] = 0.0f;
    }
}

