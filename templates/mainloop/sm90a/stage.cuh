// ---- producer: the epilogue's reads ----
// The producer stages the epilogue's operands tile by tile, as far ahead of the consumers as there is room. Two tiles later, when
// the vectors' buffer is free again, the producer processes a tile's published results.
constexpr bool HANDS_ON = {% if tile_reductions or operand_sums %}true{% else %}false{% endif %};
DEVICE void stage_vectors(const Params& p, Tiles tiles, int lane) {
    const u32 shared = shared_address(shared_memory);
    Tiles behind = tiles;
    u32 done = 0;
    [[maybe_unused]] u32 summed = 0;
    auto hand_on = [&](u32 number) {
{% if operand_sums %}        hand_on_sums(p, behind.tile, summed, lane);
{% endif %}{% if tile_reductions %}        announce(p, behind.tile, number, lane);
{% endif %}    };
    for (u32 count = 0; tiles.advance(p); ++count) {
        const u32 slot = count & 1;
        if constexpr (VECTOR_BYTES > 0) mbarrier_wait(shared + VECTORS_EMPTY + slot * 8, (count >> 1 & 1) ^ 1);
        fill_vectors(p, epilogue_begin(p, tiles.tile.batch), AT_VECTORS + slot * VECTOR_BYTES, tiles.tile, lane);
        // Once for what this lane has stored, and once when its copies are there.
        mbarrier_arrive(shared + VECTORS_FULL + slot * 8);
        mbarrier_arrive_behind_copies(shared + VECTORS_FULL + slot * 8);
        __syncwarp();
        if (HANDS_ON && count >= 2 && behind.advance(p)) hand_on(done++);
    }
    while (HANDS_ON && behind.advance(p)) hand_on(done++);
}
DEVICE void stage_matrices(const Params& p, Tiles tiles, int thread) {
    const u32 shared = shared_address(shared_memory);
    for (u32 count = 0; tiles.advance(p); ++count) {
        const TileValues t = epilogue_begin(p, tiles.tile.batch);
#pragma unroll 1
        for (u32 chunk = 0; chunk < CHUNKS; ++chunk) {
            const u32 number = (PING_PONG && !SHARED_CHUNKS ? count >> 1 : count) * CHUNKS + chunk;
#pragma unroll 1
            for (u32 i = 0; i < (PING_PONG ? 1 : CONSUMERS); ++i) {
                const u32 slot = (SHARED_CHUNKS ? 0 : PING_PONG ? count & 1 : i) * LOAD_STAGES + number % LOAD_STAGES;
                mbarrier_wait(shared + LOADS_EMPTY + slot * 8, (number / LOAD_STAGES & 1) ^ 1);
{% if operand_sums %}#pragma unroll 1
                for (int part = 0; part < LOADERS; part += 32)   // one warp does the shares of two
    {% endif %}                fill_chunk<LOADERS>(
                    p, t, {% if residues %}tiles.of, {% endif %}AT_LOADS + slot * LOAD_BYTES, shared + LOADS_FULL + slot * 8,
                    tiles.tile.row + chunk {% if row_order %}/ CHUNKS_N{% else %}% BLOCKS_M{% endif %} * 64
                        + (PING_PONG ? 0 : i * WARPGROUP_ROWS),
                    tiles.tile.column + chunk {% if row_order %}% CHUNKS_N{% else %}/ BLOCKS_M{% endif %} * CHUNK,
                    {% if operand_sums %}LOADERS > 1 ? (thread_of_warpgroup() & 31) + part : 0{% else %}thread{% endif %});
            }
        }
    }
}
