{% include "prelude/copies.cuh" %}// ---- tensor cores of sm_80 and later: warp-wide multiply-accumulate ----
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
