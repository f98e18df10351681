// ---- blocks that share K: each sends the others its sums of their columns, and adds their sums to its own ----
// Sends 16 bytes to the shared memory of another block, reported to a barrier there.
DEVICE void send_if(bool sends, u32 to, u32 barrier, const float* v) {
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %6, 0;\n"
                 "@p st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], { %2, %3, %4, %5}, [%1];\n}"
                 ::"r"(to), "r"(barrier), "r"(__float_as_uint(v[0])), "r"(__float_as_uint(v[1])), "r"(__float_as_uint(v[2])),
                   "r"(__float_as_uint(v[3])), "r"(int(sends)) : "memory");
}
DEVICE u32 address_in_block(u32 address, u32 block) {
    u32 remote;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(address), "r"(block));
    return remote;
}
// What a block receives from one other block: four sums of each thread for every eight columns that it finishes.
constexpr int GROUPS = BN / 8;
constexpr u32 FROM_ONE = BLOCKS_M * GROUPS * 2048;
static_assert(PARTIAL_BYTES == (PARTS - 1) * FROM_ONE, "as much room as the plan made");

// The sums over all of K of this block's columns. After the last tile no block waits for room, and a signal might find its
// block gone.
DEVICE void exchange(float (&own)[BLOCKS_M][BN / 2], const float (&sums)[BLOCKS_M][MULTIPLIED / 2], u32 count, u32 group,
                     bool last) {
    const u32 shared = shared_address(shared_memory), rank = cluster_rank(), place = AT_PARTIALS + group * PARTIAL_BYTES;
    const int thread = thread_of_warpgroup();
    if (thread == 0) mbarrier_arrive_expect_tx(shared + PARTIALS_FULL + group * 8, PARTIAL_BYTES);
    mbarrier_wait(shared + PARTIALS_EMPTY + group * 8, (count & 1) ^ 1);
#pragma unroll
    for (u32 distance = 1; distance < PARTS; ++distance) {   // a different first target for each block
        const u32 to = (rank + distance) % PARTS, slot = rank < to ? rank : rank - 1;
        const u32 at = address_in_block(shared + place + slot * FROM_ONE + thread * 16, to);
        const u32 barrier = address_in_block(shared + PARTIALS_FULL + group * 8, to);
#pragma unroll
        for (int part = 0; part < PARTS; ++part)
#pragma unroll
            for (int i = 0; i < BLOCKS_M * GROUPS; ++i)
                send_if(to == part, at + i * 2048, barrier, &sums[i / GROUPS][(part * GROUPS + i % GROUPS) * 4]);
    }
    mbarrier_wait(shared + PARTIALS_FULL + group * 8, count & 1);
    // Add in the order of the blocks, so that an element is the same whichever block finishes it. With shifted edge tiles two
    // blocks may.
#pragma unroll
    for (int i = 0; i < BLOCKS_M * GROUPS; ++i) {
        float* const to = &own[i / GROUPS][i % GROUPS * 4];
#pragma unroll
        for (u32 part = 0; part < PARTS; ++part) {
            const u32 slot = part < rank || part == 0 ? part : part - 1;   // any slot, if the part is this block's own
            const float4 come = shared_at<float4>(place + slot * FROM_ONE + i * 2048 + thread * 16);
            const float others[4] = {come.x, come.y, come.z, come.w};
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                const float mine = sums[i / GROUPS][(part * GROUPS + i % GROUPS) * 4 + j];
                const float term = part == rank ? mine : others[j];
                to[j] = part == 0 ? term : to[j] + term;
            }
        }
    }
    // All threads must have read before the others write again. The fence waits until the values are in registers; an arrival
    // does not.
    fence_proxy_async();
    sync_warpgroup(group);
    mbarrier_arrive_cluster_if(!last && thread < PARTS && thread != rank, shared + PARTIALS_EMPTY + group * 8, thread);
}
