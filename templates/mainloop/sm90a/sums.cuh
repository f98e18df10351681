// ---- sums of operands in the Hopper mainloop ----
// The producer's last warp sums the lines of an operand over the K elements of one stage. A matrix load gives a lane two K
// elements of eight lines each. The tensor cores stay with the consumers, and the registers with the epilogue.
template <bool IS_A> DEVICE void sum_stage(u32 stage, u32 sums) {
    constexpr bool K_MAJOR = IS_A ? A_K_MAJOR : B_K_MAJOR;
    constexpr int EXTENT = IS_A ? BM : BN;
    constexpr int GROUPS = (EXTENT + 15) / 16, STEPS = PANELS * 4;   // of 16 lines, of 16 K elements
    const u32 from = shared_address(shared_memory) + stage + (IS_A ? 0 : A_BYTES);
    const int lane = thread_of_warpgroup() & 31;
    // This lane's 16 bytes of a group's first step.
    auto place_of = [&](int group) -> u32 {
        if constexpr (K_MAJOR) {
            // If only eight lines are left, they stand in for the other eight.
            const int line = lane & (group * 16 + 8 < EXTENT ? 15 : 7);
            return from + (group * 16 + line) * 128 + ((lane >> 4 ^ (lane & 7)) << 4);
        } else {
            const int term = (lane & 7) + (lane >> 4) * 8;
            return from + group / 4 * 8192 + term * 128 + ((group % 4 * 2 + (lane >> 3 & 1) ^ (lane & 7)) << 4);
        }
    };
    auto load = [&](u32 (&terms)[4], u32 place, int step) {
        if constexpr (K_MAJOR) load_matrices(terms, (place ^ step % 4 * 32) + step / 4 * PANEL_BYTES);
        else load_matrices_transposed(terms, place + (step / 4 * PANEL_BYTES + step % 4 * 2048));
    };
{% if eight_bits_multiplied %}    auto pair = [](u32 four) {   // twice as many K elements
        Raw<{{ element_of_either }}, 4> terms;
        terms.words[0] = four;
        return add_terms(add_terms(widen(terms.elements[0]), widen(terms.elements[1])),
                         add_terms(widen(terms.elements[2]), widen(terms.elements[3])));
    };
{% else %}    auto pair = [](u32 two) { return widen(Element{u16(two)}) + widen(Element{u16(two >> 16)}); };
{% endif %}    {{ accumulator }} kept = {{ zero }}, given = {{ zero }};
    auto add = [&](int group) {
        {{ accumulator }} sum = kept + __shfl_xor_sync(~0u, given, 1);
        sum += __shfl_xor_sync(~0u, sum, 2);
        const int line = group * 16 + (lane & 1) * 8 + lane / 4;
        if (lane % 4 < 2 && line < EXTENT) shared_at<{{ accumulator }}>(sums + line * 4) += sum;
    };
    // Steps whose loads are in flight, including those of the next group.
    constexpr int AHEAD = 2;
    u32 terms[AHEAD][4], place = place_of(0);
#pragma unroll
    for (int step = 0; step < AHEAD; ++step) load(terms[step], place, step);
#pragma unroll 1
    for (int group = 0; group < GROUPS; ++group) {
        const u32 next = place_of(group + 1 < GROUPS ? group + 1 : group);
        {{ accumulator }} of[2] = {};   // line lane / 4, and the line eight further on
{% if eight_bits_multiplied %}#pragma unroll AHEAD   // eight bits are widened through f16, which takes registers
{% else %}#pragma unroll
{% endif %}        for (int step = 0; step < STEPS; ++step) {
            // As a tree: the time is in additions that wait for each other.
#pragma unroll
            for (int i = 0; i < 2; ++i) of[i] += pair(terms[step % AHEAD][i]) + pair(terms[step % AHEAD][i + 2]);
            if (step + AHEAD < STEPS) load(terms[step % AHEAD], place, step + AHEAD);
            else load(terms[step % AHEAD], next, step + AHEAD - STEPS);
        }
        place = next;
        // Lanes 0 and 1 of four end with a line each. The exchange runs while the next group is summed.
        if (group > 0) add(group - 1);
        kept = lane & 1 ? of[1] : of[0];
        given = lane & 1 ? of[0] : of[1];
    }
    add(GROUPS - 1);
}
// Goes through the ring of stages like the consumers, and sums the stages that are its tile's share.
DEVICE void sum_operands(const Params& p, Tiles tiles) {
    const u32 shared = shared_address(shared_memory);
    PipelineState at;
    u32 count = 0;   // tiles that have taken part
    while (tiles.advance(p)) {
        const bool any = takes_part(p, tiles.tile);
        if (any) {
            mbarrier_wait(shared + SUMS_EMPTY + (count & 1) * 8, (count >> 1 & 1) ^ 1);
            for (int i = thread_of_warpgroup() & 31; i < LINES_A + LINES_B; i += 32)
                shared_at<{{ accumulator }}>(AT_SUMS + (count & 1) * SUM_BYTES + i * 4) = {{ zero }};
            __syncwarp();
        }
        // The next block to be summed, for each operand.
        u32 next_a = Share<true>::any(p, tiles.tile) ? Share<true>::first(tiles.tile) : ~0u;
        u32 next_b = Share<false>::any(p, tiles.tile) ? Share<false>::first(tiles.tile) : ~0u;
#pragma unroll 1
        for (u32 block = 0; block == 0 || block * BK < fresh(p.k); ++block) {
            mbarrier_wait(shared + FULL + at.stage * 8, at.parity);
            const bool summed = block == next_a || block == next_b;
            if (LINES_A > 0 && block == next_a) {
                sum_stage<true>(at.stage * STAGE_BYTES, AT_SUMS + (count & 1) * SUM_BYTES);
                next_a += Share<true>::parts(p);
            }
            if (LINES_B > 0 && block == next_b) {
                sum_stage<false>(at.stage * STAGE_BYTES, AT_SUMS + (count & 1) * SUM_BYTES + LINES_A * 4);
                next_b += Share<false>::parts(p);
            }
            // TMA may overwrite what was read. The fence waits until the values are in registers; an arrival does not.
            if (summed) fence_proxy_async();
            __syncwarp();
            const int lane = thread_of_warpgroup() & 31;
            if constexpr (CLUSTER == 1) mbarrier_arrive_if(lane == 0, shared + EMPTY + at.stage * 8);
            else mbarrier_arrive_cluster_if(lane < CLUSTER, shared + EMPTY + at.stage * 8, lane);
            at.advance();
        }
        if (any) {
            __syncwarp();
            mbarrier_arrive_if((thread_of_warpgroup() & 31) == 0, shared + SUMS_FULL + (count & 1) * 8);
            ++count;
        }
    }
}
// Called by the warp that stages vectors: publishes a tile's sums, and writes the result if the tile is the last to arrive.
DEVICE void hand_on_sums(const Params& p, const TileOrigin& tile, u32& count, int lane) {
    if (!takes_part(p, tile)) return;
    const u32 shared = shared_address(shared_memory), slot = count & 1;
    mbarrier_wait(shared + SUMS_FULL + slot * 8, count >> 1 & 1);
    const TileValues t = epilogue_begin(p, tile.batch);
    publish_sums(p, t, tile, &shared_at<{{ accumulator }}>(AT_SUMS + slot * SUM_BYTES), lane, 32);
    __syncwarp();
    u32 last = 0;
    if (lane == 0) {
        mbarrier_arrive(shared + SUMS_EMPTY + slot * 8);
        last = arrive_for_sums(p, t, tile);
    }
    last = __shfl_sync(~0u, last, 0);
    __syncwarp();
    if (last) fixup_sums(p, t, tile, last, lane, 32);
    ++count;
}
