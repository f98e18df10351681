{# What `depthwise` and `depthwise_lines` share: a strip of channels, a filter of its own for each, and a run of pixels. -#}
constexpr int TAPS = WINDOW_Y * WINDOW_X;
// Pieces of 16 bytes of all strips lie together, so that adjacent lanes read adjacent ones.
constexpr int PIECE = STRIP < 16 / int(sizeof(Accum)) ? STRIP : 16 / int(sizeof(Accum));

DEVICE constexpr int weight_at(int column) {
    return column % STRIP / PIECE * (STRIPS * PIECE) + column / STRIP * PIECE + column % PIECE;
}
// CONTIGUOUS: filters follow each other without gaps, so places in memory take no quotients.
template <bool CONTIGUOUS> DEVICE void load_weights(const Params& p, Accum* weights, int column) {
    const Element* const filters = static_cast<const Element*>(p.b) + column * p.ldb;
    const int left = (p.n - column) * TAPS;
    // Several loads of a thread are in flight at a time.
    constexpr int EACH = (TAPS * BN + THREADS - 1) / THREADS, BESIDE = EACH < 16 ? EACH : 16;
#pragma unroll 1
    for (int first = threadIdx.x; first < TAPS * BN; first += BESIDE * THREADS) {
        Element loaded[BESIDE];
#pragma unroll
        for (int i = 0; i < BESIDE; ++i) {
            const int number = first + i * THREADS;
            const i64 at = CONTIGUOUS ? number : number / TAPS * p.ldb + number % TAPS;
            loaded[i] = number < TAPS * BN && number < left ? filters[at] : Element{};
        }
#pragma unroll
        for (int i = 0; i < BESIDE; ++i) {
            const int number = first + i * THREADS, tap = {% if turned %}TAPS - 1 - {% endif %}number % TAPS;
            if (number < TAPS * BN) weights[tap * BN + weight_at(number / TAPS)] = widen(loaded[i]);
        }
    }
}
DEVICE void load_weights(const Params& p, Accum* weights, int column) {
    if (p.ldb == TAPS) load_weights<true>(p, weights, column);
    else load_weights<false>(p, weights, column);
}

{% if in_turns or loads_ahead -%}
// Loads the matrices of so many pixels of a run, of which `strip_at` says where they lie, and later visits these.
constexpr int TOGETHER = visits_together(RUN);
template <class Places> DEVICE void fetch_run(const Params& p, const TileValues& tile, const Places& strip_at, int group,
                                              RowValues (&rows)[TOGETHER], Fetched (&fetched)[TOGETHER]) {
{% else -%}
// Visits a run of pixels, of which `strip_at` says where they lie.
constexpr int TOGETHER = visits_together(RUN);
template <class Places> DEVICE void visit_run(const Params& p, const TileValues& tile, ColumnValues& columns,
                                              const Accum (&acc)[RUN][STRIP], const Places& strip_at) {
#pragma unroll
    for (int group = 0; group < RUN; group += TOGETHER) {
        RowValues rows[TOGETHER];
        Fetched fetched[TOGETHER];
{% endif -%}
#pragma unroll
        for (int i = 0; i < TOGETHER; ++i) {
            if (group + i >= RUN) break;
            rows[i] = epilogue_row(p, tile, strip_at(group + i));
            fetched[i] = epilogue_fetch(p, tile, strip_at(group + i));
        }
{% if in_turns or loads_ahead -%}
}
template <class Places> DEVICE void visit_fetched(const Params& p, const TileValues& tile, ColumnValues& columns,
                                                  const Accum (&acc)[RUN][STRIP], const Places& strip_at, int group,
                                                  RowValues (&rows)[TOGETHER], const Fetched (&fetched)[TOGETHER]) {
{% endif -%}
#pragma unroll
        for (int i = 0; i < TOGETHER; ++i) {
            if (group + i >= RUN) break;
            epilogue_visit(p, tile, columns, rows[i], fetched[i], strip_at(group + i), acc[group + i]);
            epilogue_row_end(p, tile, rows[i], strip_at(group + i));
        }
{% if not in_turns and not loads_ahead %}    }
{% endif -%}
}
