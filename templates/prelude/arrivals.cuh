// ---- states that blocks of a cluster send each other: two mbarriers count their bytes, in turns ----
{% include "prelude/mbarrier.cuh" -%}
// Puts a word into another block's shared memory, and reports its bytes to an mbarrier there. No fence is needed: a release
// at the scope of a cluster would fence the whole device.
DEVICE void put_async(u32 address, u32 word, u32 mbarrier) {
    asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];"
                 ::"r"(address), "r"(word), "r"(mbarrier) : "memory");
}
// Ahead of all states. A block arrives when it starts, and waits before it sends the first. That orders mbarriers, and no other
// data.
DEVICE void begin_arrivals(u64* arrivals) {
    if (threadIdx.x == 0) {
        mbarrier_init(address_of(arrivals), 1), mbarrier_init(address_of(arrivals + 1), 1);
        mbarrier_init_fence();
    }
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
DEVICE void wait_for_cluster() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }
// A lane for each block sends it a state. Words of it are DISTANCE words apart.
template <int DISTANCE, class S> DEVICE void send_state(const u32* place, const S& s, const u64* arrived) {
    const u32 lane = threadIdx.x % 32;
    if (lane >= CLUSTER) return;
    const u32 to = address_in_block(place, lane), counted = address_in_block(arrived, lane);
#pragma unroll
    for (int i = 0; i < int(sizeof(S) / 4); ++i) put_async(to + i * (DISTANCE * 4), reinterpret_cast<const u32*>(&s)[i], counted);
}
