// The strips of a thread's run in a row of output pixels, for epilogues that read matrices. If matrices are aligned and no strip
// is cut, a strip exists or does not. Then a row's loads are in flight while its last lines are multiplied, and nothing branches.
struct StripsOfRun {
    static constexpr bool IS_EXACT = {% if spread %}ROWS % SPREAD_Y == 0 && {% endif %}{# -#}
ACROSS * {{ side }} == WIDTH;   // runs make up rows
    int column, existing, inside;   // the first channel; one that exists in any case; pixels that lie in the row
    bool are_whole;

    DEVICE StripsOfRun(const Params& p, int first, int pixels) : column(first), existing(first < p.n ? first : 0) {
        inside = first < p.n ? pixels : 0;
        are_whole = TOGETHER == RUN && p.n % STRIP == 0 && is_wide(p);
    }
    // No load has a condition: a thread without a pixel loads what another one has, and stores nothing.
    DEVICE void fetch_ahead(const Params& p, const TileValues& values, int top, RowValues (&rows)[TOGETHER],
                            Fetched (&fetched)[TOGETHER]) const {
        if (!are_whole) return;
        const Params within = depthwise::inside(p);
        const int near = IS_EXACT ? min(top, p.m - {% if spread %}(place(RUN - 1) + 1){% else %}RUN{% endif %}) : top;
        auto strip_near = [&](int pixel) {
            const Strip strip{IS_EXACT ? near + {{ place }} : min(near + {{ place }}, p.m - 1), existing};
            __builtin_assume(strip.row >= 0);
            assume<true>(within, strip);
            return strip;
        };
        fetch_run(within, values, strip_near, 0, rows, fetched);
    }
    DEVICE void visit(const Params& p, const TileValues& values, ColumnValues& columns, const Accum (&acc)[RUN][STRIP], int top,
                      RowValues (&rows)[TOGETHER], Fetched (&fetched)[TOGETHER]{% if spread %}, int rest{% endif %}) const {
        if (are_whole) {
            const Params within = depthwise::inside(p);
            const int existing_pixels = top < p.m ? inside : 0;
            auto strip_whole = [&](int pixel) {
{% if spread %}                const Strip strip{exists(pixel, existing_pixels, rest) ? top + place(pixel) : p.m, existing};
{% else %}                const Strip strip{pixel < existing_pixels ? top + pixel : p.m, existing};
{% endif %}                __builtin_assume(strip.row >= 0);
                __builtin_assume(p.n - strip.column >= STRIP);
                return strip;
            };
            visit_fetched(within, values, columns, acc, strip_whole, 0, rows, fetched);
        } else {
            auto strip_at = [&](int pixel) { return Strip{{ strip_there }}; };
#pragma unroll
            for (int group = 0; group < RUN; group += TOGETHER) {
                RowValues of_rows[TOGETHER];
                Fetched of_strips[TOGETHER];
                fetch_run(p, values, strip_at, group, of_rows, of_strips);
                visit_fetched(p, values, columns, acc, strip_at, group, of_rows, of_strips);
            }
        }
    }
};
