{% set keys = attention_wgmma.keys %}{% set values = attention_wgmma.values %}{# -#}
{% set formats = "f32." ~ attention_wgmma.dtype ~ "." ~ attention_wgmma.dtype %}{# -#}
// d = a * b + (keep ? d : 0) for 64 queries, {{ keys.n }} keys and 16 elements.
DEVICE void wgmma_of_keys(float (&d)[2 * PAIRS_K][4], u64 a, u64 b, bool keep) {
    asm volatile("{\n.reg .pred keep;\nsetp.ne.b32 keep, %{{ keys.registers + 2 }}, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n{{ keys.n }}k16.{{ formats }} {{ keys.list }}, "
                 "%{{ keys.registers }}, %{{ keys.registers + 1 }}, keep, 1, 1, 0, 0;\n}"
                 : {{ keys.outputs }}
                 : "l"(a), "l"(b), "r"(int(keep)));
}
// d += a * b for 64 queries, {{ values.n }} columns and 16 keys, whose weights are in registers.
DEVICE void wgmma_of_values(float (&d)[2 * PAIRS_N][4], const u32 (&a)[4], u64 b) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n{{ values.n }}k16.{{ formats }} {{ values.list }}, "
                 "{ %{{ values.registers }}, %{{ values.registers + 1 }}, %{{ values.registers + 2 }}, "
                 "%{{ values.registers + 3 }}}, "
                 "%{{ values.registers + 4 }}, 1, 1, 1, 1;"
                 : {{ values.outputs }}
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

static_assert(TILES_M == 1 && WARPS % 4 == 0 && STAGES >= 3, "a warpgroup has 64 queries, and a block is used while two arrive");
// acc = the mean of the values, weighted by the softmax of the scores. On exit all of shared memory is free again.
//
// Four warps multiply together. The scores of the next block are multiplied before the values of this one are, so that the tensor
// cores have work while scores become weights. A block's copies are ordinary writes to shared memory, and a fence shows them.
DEVICE void accumulate(const Params& p, const TileOrigin& tile, Accum (&acc)[1][2 * PAIRS_N][4]) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const Keys keys(p, tile);
    const u32 queries = shared_address(shared_memory);
    Ring ring(p, tile, keys, queries);

    const int query = keys.query + warp * WARP_M;
    // Waits until a block has arrived, for all threads. No thread reads the block before the one before it any more.
    auto arrive = [&](int block) {
        copy_async_wait<STAGES - 3>();
        fence_proxy_async();
        __syncthreads();
        if (block > 0) ring.copy(p, keys, block + STAGES - 2);
    };
    // Begins to multiply queries and keys.
    auto multiply_keys = [&](int block, float (&scores)[1][2 * PAIRS_K][4]) {
        const u32 stage = ring.stage(block);
#pragma unroll
        for (int panel = 0; panel < WIDTH / 64; ++panel) {
            const u64 a = wgmma_descriptor(queries + panel * BM * 128 + warp / 4 * 8192, 0);
            const u64 b = wgmma_descriptor(stage + panel * KEYS * 128, 0);
#pragma unroll
            for (int step = 0; step < 4; ++step) wgmma_of_keys(scores[0], a + step * 2, b + step * 2, panel + step != 0);
        }
        wgmma_commit();
    };
    Softmax softmax(p);
{% if scores %}    const Function function(p, tile, query + lane / 4);
{% endif %}    auto weigh = [&](int block, float (&scores)[1][2 * PAIRS_K][4], u32 (&weights)[PAIRS_K][4]) {
{% if scores %}        function.apply(p, {{ block_key }}, scores);
{% endif %}        if ({{ block_end }} > p.keys || p.causal && {{ block_end }} > query + 1)
            Softmax::hide(p, {{ block_key }}, query + lane / 4, scores);
        softmax.weigh(scores);
#pragma unroll
        for (int step = 0; step < PAIRS_K; ++step) weights_of(weights[step], scores[0], step);
    };
    u32 weights[PAIRS_K][4];
    if (keys.blocks > 0) {
        float scores[1][2 * PAIRS_K][4];
        arrive(0);
        wgmma_fence();
        multiply_keys(0, scores);
        wgmma_wait<0>();
        weigh(0, scores, weights);
    }
    // Begins to multiply weights and values.
    auto multiply_values = [&](int block) {
        const u64 values = wgmma_descriptor(ring.stage(block) + KEY_BYTES, KEYS * 128);
#pragma unroll
        for (int step = 0; step < PAIRS_K; ++step) wgmma_of_values(acc[0], weights[step], values + step * 128);
        wgmma_commit();
    };
#pragma unroll 1
    for (int block = 0; block + 1 < keys.blocks; ++block) {
        float scores[1][2 * PAIRS_K][4];
        u32 next[PAIRS_K][4];
        arrive(block + 1);
        wgmma_fence();
        multiply_keys(block + 1, scores);
        multiply_values(block);
        wgmma_wait<1>();
        weigh(block + 1, scores, next);
        wgmma_wait<0>();
        softmax.rescale(acc);
#pragma unroll
        for (int n = 0; n < PAIRS_K * 4; ++n) weights[n / 4][n % 4] = next[n / 4][n % 4];
    }
    if (keys.blocks > 0) {
        wgmma_fence();
        multiply_values(keys.blocks - 1);
        wgmma_wait<0>();
    }
    copy_async_wait<0>();
    softmax.finish(keys.blocks > 0, acc);
}
