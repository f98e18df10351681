// ---- clusters: blocks that run at the same time, and read each other's shared memory ----
DEVICE void sync_cluster() {
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}
// The same in two halves: a block arrives once it needs no other block's memory, and waits before it exits.
DEVICE void arrive_at_cluster() { asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory"); }
DEVICE void wait_for_cluster() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }
// A block arrives when it starts, and waits before it writes to others. That orders mbarriers, and no other data.
DEVICE void arrive_as_started() { asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory"); }
// The address of a place in shared memory, the same in another block of the cluster, and a word from there.
DEVICE u32 address_of(const void* place) { return u32(__cvta_generic_to_shared(place)); }
DEVICE u32 address_in_block(const void* place, u32 block) {
    u32 address;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(address_of(place)), "r"(block));
    return address;
}
DEVICE u32 word_of_cluster(u32 address) {
    u32 word;
    asm volatile("ld.shared::cluster.b32 %0, [%1];" : "=r"(word) : "r"(address) : "memory");
    return word;
}
// Puts a word into another block's shared memory, and reports its bytes to an mbarrier there. No fence is needed: a release at
// the scope of a cluster would fence the whole device.
DEVICE void put_async(u32 address, u32 word, u32 mbarrier) {
    asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];"
                 ::"r"(address), "r"(word), "r"(mbarrier) : "memory");
}
// What another block has at the same place.
template <class S> DEVICE S state_in_block(const S* place, u32 block) {
    const u32 address = address_in_block(place, block);
    S s;
#pragma unroll
    for (int i = 0; i < int(sizeof(S) / 4); ++i) reinterpret_cast<u32*>(&s)[i] = word_of_cluster(address + i * 4);
    return s;
}
