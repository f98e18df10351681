// ---- tensor cores of sm_80 and later: asynchronous copies, warp-wide multiply-accumulate ----
// Copies BYTES bytes from global to shared memory without registers. The first `valid` bytes are read, and the rest become
// zero. If none is valid, `from` is not dereferenced. Only 16-byte copies can bypass L1, and they do.
template <int BYTES> DEVICE void copy_async(u32 to, const void* from, int valid) {
    static_assert(BYTES == 16 || BYTES == 8 || BYTES == 4, "cp.async moves 16, 8 or 4 bytes");
    if constexpr (BYTES == 16)
        asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(valid) : "memory");
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(to), "l"(from), "n"(BYTES), "r"(valid) : "memory");
}
// Closes the group of copies issued since the last call; an empty group is complete at once.
DEVICE void copy_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Returns when at most PENDING of this thread's most recent groups are still in flight.
template <int PENDING> DEVICE void copy_async_wait() { asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory"); }

// d += a * b for a 16 x 8 tile of d and 32 bytes of K: 16 elements of 16 bits or 8 of tf32. With g = lane / 4 and t = lane % 4:
//   d  rows g (d[0], d[1]) and g + 8 (d[2], d[3]), columns 2t and 2t + 1
//   a  rows g (a[0], a[2]) and g + 8 (a[1], a[3]); a[0], a[1] the first half of K, a[2], a[3] the second; word t of the half
//   b  column g; b0 the first half of K, b1 the second; word t of the half
template <class T> DEVICE void multiply_accumulate(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1);
template <> DEVICE void multiply_accumulate<f16>(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 { %0, %1, %2, %3}, { %4, %5, %6, %7}, { %8, %9}, "
                 "{ %0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
template <> DEVICE void multiply_accumulate<bf16>(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 { %0, %1, %2, %3}, { %4, %5, %6, %7}, { %8, %9}, "
                 "{ %0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
template <> DEVICE void multiply_accumulate<float>(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 { %0, %1, %2, %3}, { %4, %5, %6, %7}, { %8, %9}, "
                 "{ %0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
// The tensor core ignores the low 13 bits of an f32. Rounding to nearest first halves the error and removes its bias.
DEVICE u32 round_to_tf32(u32 x) {
    u32 y;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(y) : "f"(__uint_as_float(x)));
    return y;
}
