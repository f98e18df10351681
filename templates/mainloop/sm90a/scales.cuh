// ---- scales of a panel of K ----
// For the rows that a thread has sums of, and for every 64 columns of the tile, which lie in one block, or for each column by
// itself. They are loaded from the cache while the products of the panel before run.
struct PanelScales {
    static constexpr bool BY_COLUMNS = Blocks<false>::LINES == 1;
    static constexpr int ROWS = 2 * BLOCKS_M, COLUMNS = BY_COLUMNS ? BN / 4 : (BN + 63) / 64;
    static_assert(BY_COLUMNS || BN % 64 == 0 || 64 % BN == 0, "64 columns, or less, lie in one block");
    float rows[ROWS], columns[COLUMNS];

    // `row` and `column` are the first ones of the thread, `k` the panel's first term.
    DEVICE void load(const Params& p, const TileOrigin& tile, int row, int column, int k) {
        const bool any = k < p.k;
#pragma unroll
        for (int i = 0; i < ROWS; ++i)
            rows[i] = any ? Blocks<true>::scale(p, tile.batch, min(row + i / 2 * 64 + i % 2 * 8, p.m - 1), k) : 0.0f;
#pragma unroll
        for (int i = 0; i < COLUMNS; ++i) {
            const int at = BY_COLUMNS ? column + i / 2 * 8 + i % 2 : tile.column + i * 64;
            columns[i] = any ? Blocks<false>::scale(p, tile.batch, min(at, p.n - 1), k) : 0.0f;
        }
    }
    // acc += part, scaled. Four sums are two columns of two rows.
    DEVICE void add(float (&acc)[BLOCKS_M][BN / 2], const float (&part)[BLOCKS_M][BN / 2]) const {
#pragma unroll
        for (int m = 0; m < BLOCKS_M; ++m)
#pragma unroll
            for (int i = 0; i < BN / 2; ++i) {
                const float by_row = rows[2 * m + i % 4 / 2], by_column = columns[BY_COLUMNS ? i / 4 * 2 + i % 2 : i / 32];
                acc[m][i] = BY_COLUMNS ? __fmaf_rn(__fmul_rn(part[m][i], by_row), by_column, acc[m][i])
                                       : __fmaf_rn(part[m][i], __fmul_rn(by_row, by_column), acc[m][i]);
            }
    }
};
{% for o in scaled %}static_assert(Blocks<{{ o.is_a }}>::TERMS % {{ panel_terms }} == 0, "a panel of K lies in one block");
{% endfor %}
