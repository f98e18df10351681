// acc = the mean of the values, weighted by the softmax of the scores. On exit all of shared memory is free again.
DEVICE void accumulate(const Params& p, const TileOrigin& tile, Accum (&acc)[TILES_M][2 * PAIRS_N][4]) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const Keys keys(p, tile);
    const u32 queries = shared_address(shared_memory);
    Ring ring(p, tile, keys, queries);

    // Where this lane's lines of fragments begin: of queries, of keys and, transposed, of values.
    const u32 from_queries = queries + Queries::at(warp * WARP_M + (lane & 15), (lane >> 4) * 16);
    const u32 from_keys = Queries::at((lane & 7) | (lane >> 4 << 3), (lane >> 3 & 1) * 16);
    const u32 from_values = KEY_BYTES + Values::at(lane & 15, (lane >> 4) * 16);
    const int query = keys.query + warp * WARP_M;   // the warp's first one

    Softmax softmax(p);
{% if scores %}    const Function function(p, tile, query + lane / 4);
{% endif -%}
#pragma unroll 1
    for (int block = 0; block < keys.blocks; ++block) {
        // The block has arrived for every thread, and no thread reads the one before it any more.
        copy_async_wait<STAGES - 2>();
        __syncthreads();
        ring.copy(p, keys, block + STAGES - 1);
        const u32 stage = ring.stage(block);

        float scores[TILES_M][2 * PAIRS_K][4] = {};
#pragma unroll
        for (int step = 0; step < STEPS; ++step) {
            u32 a[TILES_M][4];
#pragma unroll
            for (int i = 0; i < TILES_M; ++i) load_matrices(a[i], (from_queries ^ step * 32) + i * 16 * Queries::PITCH);
#pragma unroll
            for (int j = 0; j < PAIRS_K; ++j) {
                u32 b[4];
                load_matrices(b, stage + (from_keys ^ step * 32) + j * 16 * Queries::PITCH);
#pragma unroll
                for (int i = 0; i < TILES_M; ++i) {
                    multiply_accumulate<Element>(scores[i][2 * j], a[i], b[0], b[1]);
                    multiply_accumulate<Element>(scores[i][2 * j + 1], a[i], b[2], b[3]);
                }
            }
        }
{% if scores %}        function.apply(p, {{ block_key }}, scores);
{% endif %}        if ({{ block_end }} > p.keys || p.causal && {{ block_end }} > query + 1)
            Softmax::hide(p, {{ block_key }}, query + lane / 4, scores);
        softmax.weigh(scores);
        softmax.rescale(acc);
#pragma unroll
        for (int step = 0; step < PAIRS_K; ++step) {
            u32 a[TILES_M][4];
#pragma unroll
            for (int i = 0; i < TILES_M; ++i) weights_of(a[i], scores[i], step);
#pragma unroll
            for (int j = 0; j < PAIRS_N; ++j) {
                u32 b[4];
                load_matrices_transposed(b, stage + (from_values ^ j * 32) + step * 16 * Values::PITCH);
#pragma unroll
                for (int i = 0; i < TILES_M; ++i) {
                    multiply_accumulate<Element>(acc[i][2 * j], a[i], b[0], b[1]);
                    multiply_accumulate<Element>(acc[i][2 * j + 1], a[i], b[2], b[3]);
                }
            }
        }
    }
    copy_async_wait<0>();
    softmax.finish(keys.blocks > 0, acc);
}
