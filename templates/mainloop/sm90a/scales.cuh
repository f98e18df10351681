// ---- scales of blocks along K ----
// A warp of the producer copies the scales of a stage's panels beside the stage: one for each row of the tile, and one for each
// 64 columns, which lie in one block, or for each column. Its copies arrive at the stage's barrier like those of the operands.
constexpr bool BY_COLUMNS = Blocks<false>::LINES == 1;
constexpr int SCALES_N = BY_COLUMNS ? BN : (BN + 63) / 64;
constexpr int PANEL_SCALES = BM + (SCALES_N + 3) / 4 * 4;   // of 4 bytes
static_assert(BY_COLUMNS || BN % 64 == 0 || 64 % BN == 0, "64 columns, or less, lie in one block");
static_assert(PANELS * PANEL_SCALES * 4 == SCALE_BYTES, "as much room as the plan made");
{% for o in scaled %}static_assert(Blocks<{{ o.is_a }}>::TERMS % {{ panel_terms }} == 0, "a panel of K lies in one block");
{% endfor %}
// Copies the scale of a line, or 0 outside of the operand.
template <bool IS_A> DEVICE void copy_scale(const Params& p, int batch, int line, int lines, int k, u32 to) {
    if constexpr (Blocks<IS_A>::SCALED) {
        const bool inside = line < lines && k < p.k;
        const float* const from = Blocks<IS_A>::address(p, batch, inside ? line : 0, inside ? k : 0);
        asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from), "r"(inside ? 4 : 0) : "memory");
    }
}
DEVICE void stage_scales(const Params& p, Tiles tiles, int lane) {
    const u32 shared = shared_address(shared_memory), blocks = terms_in_blocks(p);
    PipelineState at;
    while (tiles.advance(p))
#pragma unroll 1
        for (u32 block = 0; block < blocks; ++block) {
            mbarrier_wait(shared + EMPTY + at.stage * 8, at.parity ^ 1);
#pragma unroll
            for (int panel = 0; panel < PANELS; ++panel) {
                const u32 to = shared + AT_SCALES + at.stage * SCALE_BYTES + panel * (PANEL_SCALES * 4);
                const int k = block * BK + panel * {{ panel_terms }};
#pragma unroll
                for (int i = 0; i < BM; i += 32)
                    copy_scale<true>(p, tiles.tile.batch, tiles.tile.row + i + lane, p.m, k, to + (i + lane) * 4);
#pragma unroll
                for (int i = lane; i < SCALES_N; i += 32)
                    copy_scale<false>(p, tiles.tile.batch, tiles.tile.column + i * (BY_COLUMNS ? 1 : 64), p.n, k,
                                      to + (BM + i) * 4);
            }
            // Arrives once the lane's copies have.
            asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(shared + FULL + at.stage * 8) : "memory");
            at.advance();
        }
}

// The scales of a panel for the rows of a thread, and for its columns while they are few.
struct PanelScales {
    float rows[2 * BLOCKS_M], columns[BY_COLUMNS ? 1 : SCALES_N];
    u32 from;   // the first scale of this thread's columns, if each has its own

    // `row` is the thread's first row in the tile. A warp reads them before it issues its products: a stage is released when
    // these are done.
    DEVICE void load(u32 stage, int panel, int row, int lane) {
        const u32 at = AT_SCALES + stage * SCALE_BYTES + panel * (PANEL_SCALES * 4);
#pragma unroll
        for (int i = 0; i < 2 * BLOCKS_M; ++i) 
            rows[i] = Blocks<true>::SCALED ? shared_at<float>(at + (row + i / 2 * 64 + i % 2 * 8) * 4) : 1.0f;
        if constexpr (!BY_COLUMNS)
#pragma unroll
            for (int i = 0; i < SCALES_N; ++i) columns[i] = Blocks<false>::SCALED ? shared_at<float>(at + (BM + i) * 4) : 1.0f;
        from = at + (BM + lane % 4 * 2) * 4;
    }
    // acc += part, scaled. Four sums are two columns of two rows.
    DEVICE void add(float (&acc)[BLOCKS_M][BN / 2], const float (&part)[BLOCKS_M][BN / 2]) const {
#pragma unroll
        for (int j = 0; j < BN / 8; ++j) {
            float2 own = {};
            if constexpr (BY_COLUMNS) own = shared_at<float2>(from + j * 32);
#pragma unroll
            for (int m = 0; m < BLOCKS_M; ++m)
#pragma unroll
                for (int i = 0; i < 4; ++i) {
                    const float by_row = rows[2 * m + i / 2], x = part[m][j * 4 + i];
                    float& sum = acc[m][j * 4 + i];
                    if constexpr (BY_COLUMNS) sum = __fmaf_rn(__fmul_rn(x, by_row), i % 2 ? own.y : own.x, sum);
                    else sum = __fmaf_rn(x, __fmul_rn(by_row, columns[j / 8]), sum);
                }
        }
    }
};
