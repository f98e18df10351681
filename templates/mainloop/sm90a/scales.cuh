// ---- scales along K: those of a stage lie in shared memory, for each of its panels ----
// One for each row of the tile, then one for each column by itself, or for every 64 columns, which lie in one block.
struct PanelScales {
    using A = Blocks<true>;
    using B = Blocks<false>;
    static constexpr bool BY_COLUMNS = B::LINES == 1;
    static constexpr int STEP = BY_COLUMNS ? 1 : 64, ROWS = A::SCALED ? BM : 0, COLUMNS = B::SCALED ? (BN + STEP - 1) / STEP : 0;
    static constexpr int AT_COLUMNS = ROWS * 4, BYTES = (AT_COLUMNS + COLUMNS * 4 + 15) / 16 * 16;
    static_assert(BY_COLUMNS || BN % 64 == 0 || 64 % BN == 0, "64 columns, or less, lie in one block");
    static_assert(PANELS * BYTES == SCALE_BYTES, "as much room as the plan made");
    // The scales of a thread's rows and, unless there is one for each column, of the tile's columns. `from` is the panel's place.
    float rows[2 * BLOCKS_M], columns[BY_COLUMNS ? 1 : (BN + 63) / 64];
    DEVICE void load(u32 from, int row) {
#pragma unroll
        for (int i = 0; i < 2 * BLOCKS_M; ++i)
            rows[i] = A::SCALED ? shared_at<float>(from + (row + i / 2 * 64 + i % 2 * 8) * 4) : 1.0f;
        if constexpr (!BY_COLUMNS)
#pragma unroll
            for (int i = 0; i < (BN + 63) / 64; ++i)
                columns[i] = B::SCALED ? shared_at<float>(from + AT_COLUMNS + i * 4) : 1.0f;
    }
    // acc += part, scaled. Four sums are two columns of two rows; `column` is the thread's first one.
    DEVICE void add(float (&acc)[BLOCKS_M][BN / 2], const float (&part)[BLOCKS_M][BN / 2], u32 from, int column) const {
#pragma unroll
        for (int i = 0; i < BN / 2; i += 4) {
            float2 by_columns = {};
            if constexpr (BY_COLUMNS) by_columns = shared_at<float2>(from + AT_COLUMNS + (column + i * 2) * 4);
#pragma unroll
            for (int m = 0; m < BLOCKS_M; ++m)
#pragma unroll
                for (int j = i; j < i + 4; ++j) {
                    const float by_row = rows[2 * m + j % 4 / 2], by_column = j % 2 ? by_columns.y : by_columns.x;
                    acc[m][j] = BY_COLUMNS ? __fmaf_rn(__fmul_rn(part[m][j], by_row), by_column, acc[m][j])
                                           : __fmaf_rn(part[m][j], __fmul_rn(by_row, columns[i / 32]), acc[m][j]);
                }
        }
    }
};
// Scales of four bytes come without registers. Others are in the L2 cache by the time that the producer waits for them.
constexpr bool COPIES_SCALES =
    {% for o in scaled %}sizeof(*Blocks<{{ o.is_a }}>::address(Params(), 0, 0, 0)) == 4 && {% endfor %}true;
// The scales of an operand on their way to shared memory. A lane of the producer's warp fetches every 32nd. What lies beyond the
// operand or beyond K becomes zero.
template <bool IS_A> struct ScaleCopies {
    using Of = Blocks<IS_A>;
    static constexpr int COUNT = IS_A ? PanelScales::ROWS : PanelScales::COLUMNS, EACH = IS_A ? 1 : PanelScales::STEP;
    // Whether one address tells all of a lane's.
    static constexpr bool BESIDE = COPIES_SCALES && (COUNT <= 32 || Of::LINES == 1);
    static constexpr int AHEAD = 4 * {{ panel_terms }};
    decltype(Of::address(Params(), 0, 0, 0)) from;
    int batch, line, last, inside;   // the lane's first line, the operand's last one, and how many of the lane's it has

    DEVICE void start(const Params& p, const TileOrigin& tile, int lane) {
        batch = tile.batch, last = (IS_A ? p.m : p.n) - 1, line = (IS_A ? tile.row : tile.column) + lane * EACH;
        inside = lane < COUNT && line <= last ? (last - line) / (32 * EACH) + 1 : 0;
        from = Of::address(p, batch, line, 0);
    }
    // Fetches those of a panel, which begins at k. Panels follow each other.
    DEVICE void fetch(const Params& p, u32 to, int k, int lane) {
        const int any = k < p.k ? inside : 0;
#pragma unroll
        for (int i = 0; i < (COUNT + 31) / 32; ++i) {
            if (COUNT % 32 > 0 && i == COUNT / 32 && lane >= COUNT % 32) break;
            const u32 at = to + (lane + i * 32) * 4;
            if constexpr (BESIDE) {
                copy_async_word(shared_address(shared_memory) + at, from + i * 32, i < any);
            } else {
                const auto place = Of::address(p, batch, min(line + i * 32 * EACH, last), k);
                if constexpr (COPIES_SCALES) {
                    copy_async_word(shared_address(shared_memory) + at, place, i < any);
                } else {
                    if (i < any && k + AHEAD < p.k) prefetch_l2(Of::address(p, batch, line + i * 32 * EACH, k + AHEAD));
                    shared_at<float>(at) = i < any ? float(widen(*place)) : 0.0f;
                }
            }
        }
        // A step of one block along K.
        if ((k + {{ panel_terms }}) % Of::TERMS == 0) from += Of::address(p, 0, 0, Of::TERMS) - Of::address(p, 0, 0, 0);
    }
};
// The producer's position in the scales of a tile.
struct StageScales {
    int k;
{% for o in scaled %}    ScaleCopies<{{ o.is_a }}> {{ o.name }};
{% endfor %}
    DEVICE void start(const Params& p, const TileOrigin& tile, int lane) {
        k = 0;
{% for o in scaled %}        {{ o.name }}.start(p, tile, lane);
{% endfor %}    }
    // Fetches those of the next block of K into a stage, and arrives there.
    DEVICE void fetch(const Params& p, u32 stage, int lane) {
#pragma unroll
        for (int panel = 0; panel < PANELS; ++panel, k += {{ panel_terms }}) {
            const u32 to = AT_SCALES + stage * SCALE_BYTES + panel * PanelScales::BYTES;
{% for o in scaled %}            {{ o.name }}.fetch(p, to{% if not o.is_a %} + PanelScales::AT_COLUMNS{% endif %}, k, lane);
{% endfor %}        }
        const u32 full = shared_address(shared_memory) + FULL + stage * 8;
        if constexpr (COPIES_SCALES) mbarrier_arrive_behind_copies(full);
        else mbarrier_arrive(full);
    }
};
{% for o in scaled %}static_assert(Blocks<{{ o.is_a }}>::TERMS % {{ panel_terms }} == 0, "a panel of K lies in one block");
{% endfor %}
