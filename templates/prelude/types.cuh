// ---- types: fixed-width integers, storage formats, and the exact conversions between storage and arithmetic ----
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

#define DEVICE __device__ __forceinline__

// Storage formats are distinct types, so that overload resolution picks the conversion. `float` and `int` store themselves.
struct f16 { u16 bits; };
struct bf16 { u16 bits; };
struct b8 { u8 bits; };

// A tensor map of TMA. The driver writes it, and a kernel only passes its address on.
struct alignas(64) TensorMap { u8 bytes[128]; };

DEVICE float widen(float x) { return x; }
DEVICE int widen(int x) { return x; }
DEVICE bool widen(b8 x) { return x.bits != 0; }
DEVICE float widen(f16 x) {
    float y;
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
    return y;
}
DEVICE float widen(bf16 x) { return __uint_as_float(u32(x.bits) << 16); }

// One rounding, to nearest even. f16 and bf16 overflow to infinity, as IEEE 754 requires.
template <class T> struct Narrow;
template <> struct Narrow<float> { static constexpr bool IN_PAIRS = false; static DEVICE float of(float x) { return x; } };
template <> struct Narrow<int> { static constexpr bool IN_PAIRS = false; static DEVICE int of(int x) { return x; } };
template <> struct Narrow<b8> { static constexpr bool IN_PAIRS = false; static DEVICE b8 of(bool x) { return b8{u8(x)}; } };
template <> struct Narrow<f16> {
    static constexpr bool IN_PAIRS = __CUDA_ARCH__ >= 800;
    static DEVICE f16 of(float x) {
        u16 y;
        asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y) : "f"(x));
        return f16{y};
    }
};
template <> struct Narrow<bf16> {
    static constexpr bool IN_PAIRS = __CUDA_ARCH__ >= 800;
    static DEVICE bf16 of(float x) {
#if __CUDA_ARCH__ >= 800
        u16 y;
        asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y) : "f"(x));
        return bf16{y};
#else
        // Without the instruction: adds half a unit in the last place, and rounds ties to even.
        const u32 bits = __float_as_uint(x);
        return bf16{u16(x != x ? 0x7fffu : bits + 0x7fffu + (bits >> 16 & 1u) >> 16)};
#endif
    }
};

// Two 16-bit values in one register, with one conversion instruction for both; `low` is at the lower address.
template <class T> DEVICE u32 narrow_pair(float low, float high);
template <> DEVICE u32 narrow_pair<f16>(float low, float high) {
    u32 y;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low));
    return y;
}
template <> DEVICE u32 narrow_pair<bf16>(float low, float high) {
    u32 y;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low));
    return y;
}
