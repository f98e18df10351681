// Orders a thread's accesses before its later ones, for the whole device. `__threadfence` is sequentially consistent, and
// takes longer.
DEVICE void fence_device() { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }
