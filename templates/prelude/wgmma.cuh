// Operands of wgmma in shared memory, swizzled by 128 bytes, with 1024 bytes from one group of eight lines to the next.
// `panels` is the distance of panels of 64 elements, for operands with K strided. Other operands ignore it.
DEVICE u64 wgmma_descriptor(u32 address, u32 panels) {
    return u64((address & 0x3ffff) >> 4) | u64(panels >> 4) << 16 | u64(1024 >> 4) << 32 | u64(1) << 62;
}
DEVICE void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
DEVICE void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int PENDING> DEVICE void wgmma_wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory"); }
