// ---- clusters: blocks that run at the same time, and read each other's shared memory ----
DEVICE void sync_cluster() {
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}
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
