// ---- numbers of eight and four bits as pairs of 16-bit numbers, without loss ----
// (x & mask) ^ with
DEVICE u32 pick(u32 x, u32 mask, u32 with) {
    u32 y;
    asm("lop3.b32 %0, %1, %2, %3, 0x6a;" : "=r"(y) : "r"(x), "r"(mask), "r"(with));
    return y;
}
// a * b + c for two numbers of 16 bits.
template <class T> DEVICE u32 multiply_add_two(u32 a, u32 b, u32 c);
template <> DEVICE u32 multiply_add_two<f16>(u32 a, u32 b, u32 c) {
    u32 y;
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(y) : "r"(a), "r"(b), "r"(c));
    return y;
}
template <> DEVICE u32 multiply_add_two<bf16>(u32 a, u32 b, u32 c) {
    u32 y;
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(y) : "r"(a), "r"(b), "r"(c));
    return y;
}

template <class T> constexpr bool IS_F16 = false;
template <> constexpr bool IS_F16<f16> = true;

// The weights of a word as pairs of 16-bit numbers, without loss. Pair i has the elements FIRST * i and FIRST * i + APART.
//
// Integers may also be BARE pairs of f16: their bits are put where an f16 below the normal ones has its own, which is a number
// times 2^-24. With a sign it is OFFSET too large. An upper nibble counts sixteen times.
template <class T, class W> struct WidenedPairs {
    static constexpr int FIRST = 2, APART = 1;
    static constexpr bool BARE = false;
    static constexpr int OFFSET = 0;
    static DEVICE void of(u32 (&pairs)[2], u32 word) {
        Raw<W, 4> four;
        four.words[0] = word;
#pragma unroll
        for (int i = 0; i < 2; ++i) pairs[i] = narrow_pair<T>(widen(four.elements[2 * i]), widen(four.elements[2 * i + 1]));
    }
};
{% if widens == "nibbles" %}// Four bits are put below the exponent of a large number, whose lowest bits count ones or
// sixteens. With a sign, the highest bit is turned, which adds eight.
template <class T, bool SIGNED> struct NibblePairs {
    static constexpr int FIRST = 1, APART = 4;
    static constexpr bool BARE = IS_F16<T>;
    static constexpr int OFFSET = BARE && SIGNED ? 8 : 0;
    static DEVICE void bare(u32 (&pairs)[4], u32 word) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            pairs[2 * i] = pick(word >> i * 8, 0x000f000f, SIGNED ? 0x00080008 : 0);
            pairs[2 * i + 1] = pick(word >> i * 8, 0x00f000f0, SIGNED ? 0x00800080 : 0);
        }
    }
    static DEVICE void of(u32 (&pairs)[4], u32 word, f16) {
        constexpr u32 ONES = SIGNED ? 0x64086408 : 0x64006400, SIXTEENS = SIGNED ? 0x64806480 : 0x64006400;
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            pairs[2 * i] = multiply_add_two<f16>(pick(word >> i * 8, 0x000f000f, ONES), 0x3c003c00, ONES | 0x80008000);
            pairs[2 * i + 1] =
                multiply_add_two<f16>(pick(word >> i * 8, 0x00f000f0, SIXTEENS), 0x2c002c00, SIGNED ? 0xd480d480 : 0xd400d400);
        }
    }
    static DEVICE void of(u32 (&pairs)[4], u32 word, bf16) {
        constexpr u32 ONES = SIGNED ? 0x43084308 : 0x43004300;
#pragma unroll
        for (int i = 0; i < 4; ++i)
            pairs[i] = multiply_add_two<bf16>(pick(word >> i * 4, 0x000f000f, ONES), 0x3f803f80, ONES | 0x80008000);
    }
    static DEVICE void of(u32 (&pairs)[4], u32 word) { of(pairs, word, T{}); }
    // Both elements of a byte.
    static DEVICE u32 of_byte(u32 byte, f16) {
        constexpr u32 ONES = SIGNED ? 0x64086408 : 0x64006400;
        return multiply_add_two<f16>(pick(byte * 0x1001, 0x000f000f, ONES), 0x3c003c00, ONES | 0x80008000);
    }
    static DEVICE u32 of_byte(u32 byte, bf16) {
        constexpr u32 ONES = SIGNED ? 0x43084308 : 0x43004300;
        return multiply_add_two<bf16>(pick(byte * 0x1001, 0x000f000f, ONES), 0x3f803f80, ONES | 0x80008000);
    }
    static DEVICE u32 of_byte(u32 byte) { return of_byte(byte, T{}); }
};
template <class T> struct WidenedPairs<T, int4x2> : NibblePairs<T, true> {};
template <class T> struct WidenedPairs<T, uint4x2> : NibblePairs<T, false> {};
{% elif widens == "integers" %}template <class T, bool SIGNED> struct BytePairs {
    static constexpr int FIRST = 2, APART = 1;
    static constexpr bool BARE = IS_F16<T>;
    static constexpr int OFFSET = BARE && SIGNED ? 128 : 0;
    static DEVICE void bare(u32 (&pairs)[2], u32 word) {
        if (SIGNED) word ^= 0x80808080;
        pairs[0] = __byte_perm(word, 0, 0x4140);
        pairs[1] = __byte_perm(word, 0, 0x4342);
    }
    static DEVICE void of(u32 (&pairs)[2], u32 word, f16) {
        if (SIGNED) word ^= 0x80808080;
        const u32 minus = SIGNED ? 0xe480e480 : 0xe400e400;   // 1024, and 128 more
        pairs[0] = multiply_add_two<f16>(__byte_perm(word, 0x64646464, 0x4140), 0x3c003c00, minus);
        pairs[1] = multiply_add_two<f16>(__byte_perm(word, 0x64646464, 0x4342), 0x3c003c00, minus);
    }
    // A bf16 has one bit less than needed: the highest bit of a byte counts by itself, as 128 or 256.
    static DEVICE void of(u32 (&pairs)[2], u32 word, bf16) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const u32 two = __byte_perm(word, 0, i ? 0x4342 : 0x4140);
            const u32 low = pick(two, 0x007f007f, 0x43004300), high = pick(two, 0x00800080, 0x43004300);
            pairs[i] = SIGNED ? multiply_add_two<bf16>(high, 0xbf80bf80, low)
                              : multiply_add_two<bf16>(low, 0x3f803f80, multiply_add_two<bf16>(high, 0x3f803f80, 0xc380c380));
        }
    }
    static DEVICE void of(u32 (&pairs)[2], u32 word) { of(pairs, word, T{}); }
};
template <class T> struct WidenedPairs<T, int8> : BytePairs<T, true> {};
template <class T> struct WidenedPairs<T, uint8> : BytePairs<T, false> {};
{% else %}template <> struct WidenedPairs<f16, e5m2> {
    static constexpr int FIRST = 2, APART = 1, OFFSET = 0;
    static constexpr bool BARE = false;
    static DEVICE void of(u32 (&pairs)[2], u32 word) {
        pairs[0] = __byte_perm(word, 0, 0x1404);
        pairs[1] = __byte_perm(word, 0, 0x3424);
    }
};
#if __CUDA_ARCH__ >= 890
template <> struct WidenedPairs<f16, e4m3> {
    static constexpr int FIRST = 2, APART = 1, OFFSET = 0;
    static constexpr bool BARE = false;
    static DEVICE void of(u32 (&pairs)[2], u32 word) {
        asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(pairs[0]) : "h"(u16(word)));
        asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(pairs[1]) : "h"(u16(word >> 16)));
    }
};
#endif
{% endif %}
