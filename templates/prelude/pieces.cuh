// ---- pieces: units that share the fix-up of a block ----
// A piece is a turn of a unit's threads in the fix-up of one reduction. The last HELPERS units of a block wait for the others,
// for a limited time. When all have arrived, those that still wait and the last to arrive take pieces, one after the other.
// The last unit to arrive does not wait, and takes what is left, so no unit depends on another. The unit that takes a piece
// combines all slices of its elements, in their order.
//
// The number of pieces of a reduction.
template <class M, bool ADDED, class B> DEVICE constexpr int pieces() {
    if constexpr (ADDED) {
        return turns(B::ELEMENTS);
    } else {
{% include "prelude/fixup_turn.cuh" %}        static_assert(LANES > 0, "a warp has whole pieces");
        return turns(B::ELEMENTS / N * SHARERS);
    }
}
// Waits until all units of a block have arrived. Then the count of arrivals, in which this one is counted, is 0 again.
DEVICE bool wait_for_arrivals(const u32* arrivals) {
    constexpr int PATIENCE = 50;   // loads, each of which takes most of a microsecond
#pragma unroll 1
    for (int i = 0; i < PATIENCE; ++i)
        if (*static_cast<const volatile u32*>(arrivals) == 0) {
            fence_device();
            return true;
        }
    return false;
}
// Calls `fix_up` with the numbers of the pieces that this unit takes. Behind the counters of arrivals lie those of pieces that
// are taken, and then those of units that will take no more. The last unit to leave resets the first, and the second wraps.
template <int PIECES, class B, class F> DEVICE void share_fixup(const B& block, void* counters, bool last, const F& fix_up) {
    if (block.slices == 1) return;
    const i64 blocks = block.distance / B::ELEMENTS;
    u32* const arrivals = static_cast<u32*>(counters) + block.number;
    u32* const taken = arrivals + blocks;
    u32* const note = unit_memory<u32>(sizeof(u32));   // behind the one of what is complete
    bool complete = last;
    while (last || block.slice + HELPERS >= block.slices) {
        sync_unit();
        if (thread_of_unit() == 0) {
            complete = complete || wait_for_arrivals(arrivals);
            *note = complete ? atomicAdd(taken, 1u) : u32(PIECES);
        }
        sync_unit();
        const u32 piece = *note;
        if (piece >= PIECES) break;
        fix_up(int(piece));
    }
    if (thread_of_unit() == 0) {
        fence_device();
        if (atomicInc(taken + blocks, block.slices - 1) == block.slices - 1) *taken = 0;
    }
}
