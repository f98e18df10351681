// ---- consumers ----
// acc = A * B over the tile, or over this consumer's rows of it. `meanwhile` runs under the first blocks of K.
template <class F> DEVICE void multiply({{ accumulator }} (&acc)[BLOCKS_M][{{ multiplied }} / 2], PipelineState& at, u32 blocks,
                                        u32 group, F meanwhile{% if numbers %}, const Params& p, int batch{% endif %}) {
    const u32 shared = shared_address(shared_memory);
    const int thread = threadIdx.x & 127;
    auto release = [&](u32 stage, bool releases) {
        const u32 barrier = shared + EMPTY + stage * 8;
{% if scaled %}        // Every warp has read its scales.
        const int lane = thread & 31;
        __syncwarp();
        if constexpr ({{ fetchers }} == 1) mbarrier_arrive_if(releases && lane == 0, barrier);
        else mbarrier_arrive_cluster_if(releases && lane < CLUSTER, barrier, lane);
{% else %}        if constexpr ({{ fetchers }} == 1) mbarrier_arrive_if(releases && thread == 0, barrier);
        else mbarrier_arrive_cluster_if(releases && thread < CLUSTER, barrier, thread);
{% endif %}    };
{% if widened_a %}{% include "mainloop/sm90a/widen.cuh" %}
{% elif promotes %}    // The tensor cores keep 13 bits of a sum, so they compute short sums, one for each panel. These are added
    // up here while the other consumer's products run.{% if not scaled %} Where registers hold the short sums of two panels,
    // one is added while the other is multiplied.{% endif %}
    auto start = [&](float (&part)[BLOCKS_M][BN / 2], u32 from) {
        const u64 a = wgmma_descriptor(from + (PING_PONG ? 0 : group * (BLOCKS_M * 8192)), 8192);
        const u64 b = wgmma_descriptor(from + A_BYTES, 8192);
        wgmma_fence();
#pragma unroll
        for (int step = 0; step < 4; ++step)
#pragma unroll
            for (int m = 0; m < BLOCKS_M; ++m) wgmma_mma(part[m], a + (m * 512 + step * 2), b + step * 2, step != 0);
        wgmma_commit();
    };
{% if scaled %}    float part[BLOCKS_M][BN / 2];
    u32 block = 0;
    const int row = (PING_PONG ? 0 : group * WARPGROUP_ROWS) + thread / 32 * 16 + thread % 32 / 4;
    const int column = thread % 4 * 2;
    PanelScales scales;
#pragma unroll 1
    do {
        mbarrier_wait(shared + FULL + at.stage * 8, at.parity);
#pragma unroll
        for (int panel = 0; panel < PANELS; ++panel) {
            start(part, shared + at.stage * STAGE_BYTES + panel * PANEL_BYTES);
            const u32 panel_scales = AT_SCALES + at.stage * SCALE_BYTES + panel * PanelScales::BYTES;
            scales.load(panel_scales, row);
            wgmma_wait<0>();
            if (!PanelScales::BY_COLUMNS && panel == PANELS - 1) release(at.stage, true);
            scales.add(acc, part, panel_scales, column);
            if (PanelScales::BY_COLUMNS && panel == PANELS - 1) release(at.stage, true);
        }
        at.advance();
    } while (++block < blocks);
{% else %}    // More accumulators leave no registers for two.
    constexpr bool TWO = BLOCKS_M * (BN / 2) <= 64 && PANELS == 1;
    float parts[TWO ? 2 : 1][BLOCKS_M][BN / 2];
    auto add = [&](const float (&part)[BLOCKS_M][BN / 2]) {
#pragma unroll
        for (int i = 0; i < BLOCKS_M * (BN / 2); ++i) acc[i / (BN / 2)][i % (BN / 2)] += part[i / (BN / 2)][i % (BN / 2)];
    };
    auto single = [&] {
        mbarrier_wait(shared + FULL + at.stage * 8, at.parity);
#pragma unroll
        for (int panel = 0; panel < PANELS; ++panel) {
            start(parts[0], shared + at.stage * STAGE_BYTES + panel * PANEL_BYTES);
            wgmma_wait<0>();
            if (panel == PANELS - 1) release(at.stage, true);
            add(parts[0]);
        }
        at.advance();
    };
    u32 block = 0;
    if constexpr (TWO) {
        if (blocks % 2 > 0) {
            single();
            block = 1;
        }
#pragma unroll 1
        for (; block < blocks; block += 2) {
            const u32 first = at.stage;
            mbarrier_wait(shared + FULL + first * 8, at.parity);
            start(parts[0], shared + first * STAGE_BYTES);
            at.advance();
            mbarrier_wait(shared + FULL + at.stage * 8, at.parity);
            start(parts[1], shared + at.stage * STAGE_BYTES);
            wgmma_wait<1>();
            release(first, true);
            add(parts[0]);
            wgmma_wait<0>();
            release(at.stage, true);
            add(parts[1]);
            at.advance();
        }
    } else {
#pragma unroll 1
        do single();
        while (++block < blocks);
    }
{% endif -%}
    if constexpr (PING_PONG) mbarrier_arrive_if(thread == 0, shared + TURN + (group ^ 1) * 8);
{% elif passes_registers %}    // A has K strided, which wgmma does not read from shared memory in tf32. So A passes through
    // registers. A panel's elements are read while the panel before is multiplied.
    static_assert(PANELS == 1 || PANELS % 2 == 0, "panels in turns");
    u32 terms[2][4][BLOCKS_M][4], place[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        // Odd lanes read the halves of a step's K elements in the other order, so that lanes of a warp meet in no bank.
        const u32 lane = thread & 31, term = lane % 4 + (i / 2 ^ lane & 1) * 4;
        const u32 sixteen = thread / 32 % 2 * 4 + lane / 16 + i % 2 * 2;
        place[i] = (PING_PONG ? 0 : group * (BLOCKS_M * 8192)) + thread / 64 * 4096 + term * 128 + ((sixteen ^ term) << 4)
                   + lane / 4 % 4 * 4;
    }
    u32 last = 0, block = 0;
    bool pending = false;   // whether the last stage is still read
    auto multiply_panel = [&](u32 (&of)[4][BLOCKS_M][4], int panel) {
        if (panel == 0) mbarrier_wait(shared + FULL + at.stage * 8, at.parity);
        const u32 from = at.stage * STAGE_BYTES + panel * PANEL_BYTES;
#pragma unroll
        for (int step = 0; step < 4; ++step)
#pragma unroll
            for (int m = 0; m < BLOCKS_M; ++m) {
                u32 read[4];
#pragma unroll
                for (int i = 0; i < 4; ++i) read[i] = shared_at<u32>(from + place[i] + (m * 8192 + step * 1024));
#pragma unroll
                for (int i = 0; i < 4; ++i) of[step][m][i] = thread & 1 ? read[i ^ 2] : read[i];
            }
        const u64 b = wgmma_descriptor(shared + from + A_BYTES, 8192);
        wgmma_fence();
#pragma unroll
        for (int step = 0; step < 4; ++step)
#pragma unroll
            for (int m = 0; m < BLOCKS_M; ++m) wgmma_mma(acc[m], of[step][m], b + step * 2, (block | panel | step) != 0);
        wgmma_commit();
        if constexpr (DELAYED_STORE)
            if (panel == 0 && block < CHUNKS) meanwhile(block);
        wgmma_wait<1>();
        if (panel == 0) release(last, pending);
        if (panel < PANELS - 1) return;
        pending = true;
        last = at.stage;
        at.advance();
        ++block;
    };
    // An odd block comes first: where a loop may end between two, the assembler makes each product wait for the one before.
    if (PANELS == 1 && blocks % 2 > 0) {
        multiply_panel(terms[0], 0);
        wgmma_wait<0>();
        release(last, true);
        pending = false;
    }
#pragma unroll 1
    for (; block < blocks;) {
        multiply_panel(terms[0], 0);
        multiply_panel(terms[1], PANELS > 1 ? 1 : 0);
#pragma unroll
        for (int panel = 2; panel < PANELS; ++panel) multiply_panel(terms[panel % 2], panel);
    }
    if constexpr (PING_PONG) mbarrier_arrive_if(thread == 0, shared + TURN + (group ^ 1) * 8);
    wgmma_wait<0>();
    release(last, pending);
{% else %}    u32 last = 0, block = 0;
#pragma unroll 1
    do {
        mbarrier_wait(shared + FULL + at.stage * 8, at.parity);
        wgmma_fence();
#pragma unroll
        for (int panel = 0; panel < PANELS; ++panel) {
            const u32 from = shared + at.stage * STAGE_BYTES + panel * PANEL_BYTES;
            const u64 a = wgmma_descriptor(from + (PING_PONG ? 0 : group * (BLOCKS_M * 8192)), 8192);
            const u64 b = wgmma_descriptor(from + A_BYTES, 8192);
#pragma unroll
            for (int step = 0; step < 4; ++step)
#pragma unroll
                for (int m = 0; m < BLOCKS_M; ++m)
                    wgmma_mma(acc[m], a + (m * 512 + step * (A_K_MAJOR ? 2 : 128)), b + step * (B_K_MAJOR ? 2 : 128),
                                        (block | panel | step) != 0);
        }
        wgmma_commit();
        if constexpr (DELAYED_STORE)
            if (block < CHUNKS) meanwhile(block);
        wgmma_wait<1>();
        release(last, block > 0);
        last = at.stage;
        at.advance();
    } while (++block < blocks);
    if constexpr (PING_PONG) mbarrier_arrive_if(thread == 0, shared + TURN + (group ^ 1) * 8);
    wgmma_wait<0>();
    release(last, true);
{% endif -%}
}
