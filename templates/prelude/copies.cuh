// ---- copies of sm_80 and later: from global to shared memory, without registers ----
// Copies BYTES bytes from global to shared memory without registers. The first `valid` bytes are read, and the rest become
// zero. If none is valid, `from` is not dereferenced. Only 16-byte copies can bypass L1, and they do.
template <int BYTES> DEVICE void copy_async(u32 to, const void* from, int valid) {
    static_assert(BYTES == 16 || BYTES == 8 || BYTES == 4, "cp.async moves 16, 8 or 4 bytes");
    if constexpr (BYTES == 16)
        asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(valid) : "memory");
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(to), "l"(from), "n"(BYTES), "r"(valid) : "memory");
}
// The same where all bytes exist: a number of bytes that is a variable costs instructions. What others read soon stays in L1.
template <int BYTES, bool STAYS = false> DEVICE void copy_async(u32 to, const void* from) {
    static_assert(BYTES == 16 || BYTES == 8 || BYTES == 4, "cp.async moves 16, 8 or 4 bytes");
    if constexpr (BYTES == 16 && !STAYS)
        asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(to), "l"(from), "n"(BYTES) : "memory");
}
// Closes the group of copies issued since the last call; an empty group is complete at once.
DEVICE void copy_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Returns when at most PENDING of this thread's most recent groups are still in flight.
template <int PENDING> DEVICE void copy_async_wait() { asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory"); }
