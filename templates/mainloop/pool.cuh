// The pool of one window in a strip of channels. The loads of up to AT_ONCE taps are in flight together.
constexpr int TAPS = WINDOW_HEIGHT * WINDOW_WIDTH;
constexpr int AT_ONCE = TAPS <= 9 ? TAPS : 8;
// Whether every window lies in its image.
constexpr bool INSIDE = ABOVE == 0 && LEFT == 0 &&
    ((OUTPUT_PIXELS / OUTPUT_WIDTH - 1) * STRIDE_Y + (WINDOW_HEIGHT - 1) * DILATION_Y) < IMAGE_HEIGHT &&
    ((OUTPUT_WIDTH - 1) * STRIDE_X + (WINDOW_WIDTH - 1) * DILATION_X) < IMAGE_WIDTH;

struct Pool {
    float values[STRIP];
    int count;

    DEVICE void begin() {
        count = 0;
#pragma unroll
        for (int e = 0; e < STRIP; ++e) values[e] = TAKES_LARGEST ? __int_as_float(0xff800000) : 0.0f;
    }
    DEVICE void take(const Vector (&raw)[VECTORS]) {
        ++count;
#pragma unroll
        for (int e = 0; e < STRIP; ++e) {
            const float x = widen(raw[e / WIDTH].elements[e % WIDTH]);
            if (TAKES_LARGEST) values[e] = x > values[e] || x != x ? x : values[e];
            else values[e] += x;
        }
    }
    DEVICE void end() {
        if (TAKES_LARGEST) return;
        const float taps = COUNTS_PADDING ? TAPS : count;
#pragma unroll
        for (int e = 0; e < STRIP; ++e) values[e] /= taps;
    }
};

// The strip at a row of the output, of which `left` channels exist.
DEVICE void pool(Pool& pooled, const Params& p, const Element* images, int row, int column, int left) {
    pooled.begin();
    const int image = row / OUTPUT_PIXELS, inside = row % OUTPUT_PIXELS;
    const int top = inside / OUTPUT_WIDTH * STRIDE_Y - ABOVE, first = inside % OUTPUT_WIDTH * STRIDE_X - LEFT;
    const Element* const from = images + i64(image) * (IMAGE_HEIGHT * IMAGE_WIDTH) * p.lda + column;
#pragma unroll 1
    for (int begin = 0; begin < TAPS; begin += AT_ONCE) {
        Vector raw[AT_ONCE][VECTORS];
        bool exists[AT_ONCE];
#pragma unroll
        for (int i = 0; i < AT_ONCE; ++i) {
            const int tap = begin + i;
            const int y = top + tap / WINDOW_WIDTH * DILATION_Y, x = first + tap % WINDOW_WIDTH * DILATION_X;
            exists[i] = TAPS % AT_ONCE == 0 || tap < TAPS;
            if (!INSIDE) exists[i] = exists[i] && y >= 0 && y < IMAGE_HEIGHT && x >= 0 && x < IMAGE_WIDTH;
            if (exists[i]) load(raw[i], from + i64(y * IMAGE_WIDTH + x) * p.lda, 1, left);
        }
#pragma unroll
        for (int i = 0; i < AT_ONCE; ++i)
            if (exists[i]) pooled.take(raw[i]);
    }
    pooled.end();
}

