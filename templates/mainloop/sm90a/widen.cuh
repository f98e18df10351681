    // A has fewer bits than B, and wgmma multiplies what has as many. So A passes through registers: a panel's elements are
    // read and widened while the panel before is multiplied.
    static_assert(PANELS % 2 == 0, "panels in turns");
    constexpr int PACK = Packed<Element>::COUNT;
    const u32 lane = thread & 31;
    const int row = (PING_PONG ? 0 : group * WARPGROUP_ROWS) + thread / 32 * 16 + lane / 4;
    const u32 place = row * A_LINE + ((A_LINE == 128 ? lane / 4 : lane / 8) << 4) + lane % 4 * (2 / PACK);
    u32 terms[2][4][BLOCKS_M][4], last = 0, block = 0;
    bool pending = false;   // whether the last stage is still read
{% if scaled %}    // Sums of a block of K, which are scaled, not the weights: these stay exact.
    float part[BLOCKS_M][{{ multiplied }} / 2] = {};
    float scales[2 * BLOCKS_M] = {};
    // Panels of a stage with the same numbers.
    constexpr int TERMS = Blocks<true>::TERMS, TOGETHER = TERMS % BK == 0 ? PANELS : TERMS % (BK / 2) == 0 ? PANELS / 2 : 1;
    const int first = {% if splits_k %}p.k > 0 ? share_of(u32(p.k - 1) / BK + 1).first * BK : 0{% else %}0{% endif %};
    PanelNumbers numbers;
    auto add = [&] {
        // No sum is read above the wait for it.
#pragma unroll
        for (int i = 0; i < BLOCKS_M * ({{ multiplied }} / 2); ++i)
            asm volatile("" : "+f"(part[i / ({{ multiplied }} / 2)][i % ({{ multiplied }} / 2)]));
#pragma unroll
        for (int i = 0; i < BLOCKS_M * ({{ multiplied }} / 2); ++i) {
            const int m = i / ({{ multiplied }} / 2), j = i % ({{ multiplied }} / 2);
            acc[m][j] = __fmaf_rn(part[m][j], scales[2 * m + j % 4 / 2], acc[m][j]);
        }
    };
{% endif %}    auto multiply_panel = [&](u32 (&of)[4][BLOCKS_M][4], int panel) {
        if (panel == 0) mbarrier_wait(shared + FULL + at.stage * 8, at.parity);
        const u32 from = at.stage * STAGE_BYTES;
{% if scaled %}        if (panel % TOGETHER == 0)
            numbers.load(p, batch, first + int(block) * BK + panel * {{ panel_terms }}, at.stage, panel, row);
{% endif %}#pragma unroll
        for (int step = 0; step < 4; ++step)
#pragma unroll
            for (int i = 0; i < 2 * BLOCKS_M; ++i) {
                const int terms_before = (panel * 4 + step) * 16 / PACK, m = i / 2, half = i % 2;
                // A pointer, so that what is known ahead becomes part of the instruction.
                const u8* const own = &shared_at<u8>(from + (place ^ terms_before / 16 << 4)) + terms_before % 16
                                      + (m * 64 + half * 8) * A_LINE;
                u32 pairs[2];
{% if widens == "nibbles" %}#pragma unroll
                for (int j = 0; j < 2; ++j) pairs[j] = WidenedPairs<ElementB, Element>::of_byte(own[j * 4]);
{% else %}                const u16* const two = reinterpret_cast<const u16*>(own);
                WidenedPairs<ElementB, Element>::of(pairs, two[0] | u32(two[4]) << 16);
{% endif %}#pragma unroll
                for (int j = 0; j < 2; ++j)
                    of[step][m][j * 2 + half] = {% if shifted_a %}{# -#}
                        multiply_add_two<ElementB>(numbers.zeros[i], {{ minus_one }}, pairs[j]){% else %}pairs[j]{% endif %};
            }
        const u64 b = wgmma_descriptor(shared + from + PANELS * A_BYTES + panel * B_BYTES, 8192);
{% if scaled %}        wgmma_wait<0>();
        if (panel == 0) release(last, pending);
        if (panel % TOGETHER == 0) {
            add();
#pragma unroll
            for (int i = 0; i < 2 * BLOCKS_M; ++i) scales[i] = numbers.scales[i];
        }
{% endif %}        // All of A is widened before the first product begins. Otherwise the assembler makes each product wait.
#pragma unroll
        for (int i = 0; i < 16 * BLOCKS_M; ++i) asm volatile("" : "+r"(of[i / (4 * BLOCKS_M)][i / 4 % BLOCKS_M][i % 4]));
        wgmma_fence();
#pragma unroll
        for (int step = 0; step < 4; ++step)
#pragma unroll
            for (int m = 0; m < BLOCKS_M; ++m)
                wgmma_mma({% if scaled %}part{% else %}acc{% endif %}[m], of[step][m], b + step * (B_K_MAJOR ? 2 : 128), {# -#}
                          {% if scaled %}(panel % TOGETHER | step) != 0{% else %}(block | panel | step) != 0{% endif %});
        wgmma_commit();
        if constexpr (DELAYED_STORE)
            if (panel == 0 && block < CHUNKS) meanwhile(block);
{% if not scaled %}        wgmma_wait<1>();
        if (panel == 0) release(last, pending);
{% endif %}        if (panel < PANELS - 1) return;
        pending = true;
        last = at.stage;
        at.advance();
        ++block;
    };
#pragma unroll 1
    for (; block < blocks;)
#pragma unroll
        for (int panel = 0; panel < PANELS; ++panel) multiply_panel(terms[panel % 2], panel);
    if constexpr (PING_PONG) mbarrier_arrive_if(thread == 0, shared + TURN + (group ^ 1) * 8);
    wgmma_wait<0>();
{% if scaled %}    add();
{% endif %}    release(last, pending);
