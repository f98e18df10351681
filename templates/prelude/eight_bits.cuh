// ---- numbers of eight bits: a number that is too large becomes the largest; a NaN is 0x7f, and 0 as an integer ----
struct e4m3 { u8 bits; };
struct e5m2 { u8 bits; };
struct int8 { u8 bits; };
struct uint8 { u8 bits; };

DEVICE int widen(int8 x) { return int(x.bits ^ 0x80) - 0x80; }
DEVICE int widen(uint8 x) { return x.bits; }
// The bits are the upper half of an f16.
DEVICE float widen(e5m2 x) { return widen(f16{u16(x.bits << 8)}); }
DEVICE float widen(e4m3 x) {
#if __CUDA_ARCH__ >= 890
    u32 y;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(y) : "h"(u16(x.bits)));
    return widen(f16{u16(y)});
#else
    // Read as a binary32, its exponent is 120 too small, also if it is subnormal.
    const float y = __uint_as_float(u32(x.bits & 0x80) << 24 | u32(x.bits & 0x7f) << 20) * __uint_as_float(247u << 23);
    return (x.bits & 0x7f) == 0x7f ? __uint_as_float(0x7fffffffu) : y;
#endif
}

// Packs two numbers, `low` at the lower address, below the bits of `above`. Two calls fill a register.
template <class T, class V> DEVICE u32 pack_two(V low, V high, u32 above);
#if __CUDA_ARCH__ >= 890
template <> DEVICE u32 pack_two<e4m3>(float low, float high, u32 above) {
    u16 y;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(y) : "f"(high), "f"(low));
    return above << 16 | y;
}
template <> DEVICE u32 pack_two<e5m2>(float low, float high, u32 above) {
    u16 y;
    asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(y) : "f"(high), "f"(low));
    return above << 16 | y;
}
#else
// Without the instruction: adds half a unit in the last place, and rounds ties to even. Subnormal numbers are multiples of one
// unit, which is the last place of the number that is added.
template <int FRACTION, int BIAS> DEVICE u32 narrow_bits(float x, float largest) {
    const u32 bits = __float_as_uint(x), sign = bits >> 24 & 0x80;
    const float size = __uint_as_float(bits & 0x7fffffffu), y = size < largest ? size : largest;
    const u32 exact = __float_as_uint(y), shift = 23 - FRACTION, unit = u32(128 - BIAS + shift) << 23;
    const u32 normal = (exact + (1u << (shift - 1)) - 1 + (exact >> shift & 1) >> shift) - (u32(127 - BIAS) << FRACTION);
    const u32 subnormal = __float_as_uint(y + __uint_as_float(unit)) - unit;
    return x != x ? 0x7f : sign | (exact >> 23 > 127 - BIAS ? normal : subnormal);
}
template <> DEVICE u32 pack_two<e4m3>(float low, float high, u32 above) {
    return above << 16 | narrow_bits<3, 7>(high, 448.0f) << 8 | narrow_bits<3, 7>(low, 448.0f);
}
template <> DEVICE u32 pack_two<e5m2>(float low, float high, u32 above) {
    return above << 16 | narrow_bits<2, 15>(high, 57344.0f) << 8 | narrow_bits<2, 15>(low, 57344.0f);
}
#endif
DEVICE int nearest_int(int x) { return x; }
DEVICE int nearest_int(float x) {
    int y;
    asm("cvt.rni.s32.f32 %0, %1;" : "=r"(y) : "f"(x));
    return y;
}
template <> DEVICE u32 pack_two<int8>(int low, int high, u32 above) {
    u32 y;
    asm("cvt.pack.sat.s8.s32.b32 %0, %1, %2, %3;" : "=r"(y) : "r"(high), "r"(low), "r"(above));
    return y;
}
template <> DEVICE u32 pack_two<uint8>(int low, int high, u32 above) {
    u32 y;
    asm("cvt.pack.sat.u8.s32.b32 %0, %1, %2, %3;" : "=r"(y) : "r"(high), "r"(low), "r"(above));
    return y;
}
template <> DEVICE u32 pack_two<int8>(float low, float high, u32 above) {
    return pack_two<int8>(nearest_int(low), nearest_int(high), above);
}
template <> DEVICE u32 pack_two<uint8>(float low, float high, u32 above) {
    return pack_two<uint8>(nearest_int(low), nearest_int(high), above);
}

// One number: a pair with an unused half.
template <class T> struct NarrowEight {
    static constexpr bool IN_PAIRS = false;
    template <class V> static DEVICE T of(V x) { return T{u8(pack_two<T>(x, V(0), 0))}; }
    static DEVICE T of(bool x) { return of(int(x)); }
};
template <> struct Narrow<e4m3> : NarrowEight<e4m3> {};
template <> struct Narrow<e5m2> : NarrowEight<e5m2> {};
template <> struct Narrow<int8> : NarrowEight<int8> {};
template <> struct Narrow<uint8> : NarrowEight<uint8> {};

// Many numbers: {% if hopper %}pairs, which are stored as such{% else %}four in a register{% endif %}.
template <class T, int N, class V> DEVICE void narrow_eights(Raw<T, N>& raw, const V (&values)[N]) {
{% if hopper %}    if constexpr (N % 2 == 0) {
        u16* const pairs = reinterpret_cast<u16*>(raw.elements);
#pragma unroll
        for (int i = 0; i < N; i += 2) pairs[i / 2] = u16(pack_two<T>(values[i], values[i + 1], 0));
    } else {
{% else %}    if constexpr (N % 4 == 0) {
        u32* const words = reinterpret_cast<u32*>(raw.elements);
#pragma unroll
        for (int i = 0; i < N; i += 4)
            words[i / 4] = pack_two<T>(values[i], values[i + 1], pack_two<T>(values[i + 2], values[i + 3], 0));
    } else {
{% endif -%}
#pragma unroll
        for (int i = 0; i < N; ++i) raw.elements[i] = Narrow<T>::of(values[i]);
    }
}
template <int N, class V> DEVICE void narrow_all(Raw<e4m3, N>& raw, const V (&values)[N]) { narrow_eights(raw, values); }
template <int N, class V> DEVICE void narrow_all(Raw<e5m2, N>& raw, const V (&values)[N]) { narrow_eights(raw, values); }
template <int N, class V> DEVICE void narrow_all(Raw<int8, N>& raw, const V (&values)[N]) { narrow_eights(raw, values); }
template <int N, class V> DEVICE void narrow_all(Raw<uint8, N>& raw, const V (&values)[N]) { narrow_eights(raw, values); }
