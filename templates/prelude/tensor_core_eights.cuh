// ---- tensor cores of sm_80 and later, for operands of eight bits ----
// d += a * b for a 16 x 8 tile of d and 32 of K, in the layout of `multiply_accumulate`. A word has four elements.
{% if integers %}DEVICE void multiply_eights(int (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.{{ instruction_a }}.{{ instruction_b }}.s32 "
                 "{ %0, %1, %2, %3}, { %4, %5, %6, %7}, { %8, %9}, { %0, %1, %2, %3};"
                 : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
{% else %}// The four elements of a word as two words of f16, which represents all of them exactly.
template <class T> struct Halves;
template <> struct Halves<e5m2> {
    u32 low, high;
    DEVICE Halves(u32 four) : low(__byte_perm(four, 0, 0x1404)), high(__byte_perm(four, 0, 0x3424)) {}
};
template <> struct Halves<e4m3> {
    u32 low, high;
#if __CUDA_ARCH__ >= 890
    DEVICE Halves(u32 four) {
        asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(low) : "h"(u16(four)));
        asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(high) : "h"(u16(four >> 16)));
    }
#else
    DEVICE Halves(u32 four) : low(of(__byte_perm(four, 0, 0x1404))), high(of(__byte_perm(four, 0, 0x3424))) {}
    // Two elements, each the upper half of 16 bits. Read as an f16, the exponent is 8 too small. A NaN would become 480. The
    // factor 146 makes it overflow, but not the largest number, 448. Then zero times infinity is NaN.
    static DEVICE u32 of(u32 two) {
        u32 small = (two & 0x80008000u) | (two & 0x7f007f00u) >> 1, right, far, y;
        asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(right) : "r"(small), "r"(0x5c005c00u));
        asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(far) : "r"(right), "r"(0x58905890u));
        asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(y) : "r"(far), "r"(0u), "r"(right));
        return y;
    }
#endif
};
// Two products of f16. Any K elements may share a product, as long as both operands agree.
DEVICE void multiply_eights(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    const Halves<{{ element_b }}> of_b[2] = {b0, b1};
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        const Halves<Element> upper(a[2 * i]), lower(a[2 * i + 1]);
        const u32 of_a[4] = {upper.low, lower.low, upper.high, lower.high};
        multiply_accumulate<f16>(d, of_a, of_b[i].low, of_b[i].high);
    }
}
{% endif -%}
