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
{% if spread %}                    const int s = i * SPREAD_X + PHASE_X - q % SIDE;
                    const int down = (r - row) * SPREAD_Y + PHASE_Y - q / SIDE;
                    if (s < 0 || s >= WINDOW_X || down < 0 || down >= WINDOW_Y) continue;
{% else %}                    const int s = i - q * STRIDE_X, down = r - row * STRIDE_Y;
                    if (s < 0 || s >= WINDOW_X || down < 0) continue;
{% endif %}#pragma unroll
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