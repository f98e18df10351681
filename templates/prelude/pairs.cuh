// The larger and the smaller of two numbers of 16 bits each, and NaN where one is.
template <class T> struct Pairs { static constexpr bool EXIST = false; };
#if __CUDA_ARCH__ >= 800
template <> struct Pairs<f16> {
    static constexpr bool EXIST = true;
    static constexpr u32 LEAST = 0xfc00fc00u;
    static DEVICE u32 larger(u32 a, u32 b) {
        u32 y;
        asm("max.NaN.f16x2 %0, %1, %2;" : "=r"(y) : "r"(a), "r"(b));
        return y;
    }
    static DEVICE u32 smaller(u32 a, u32 b) {
        u32 y;
        asm("min.NaN.f16x2 %0, %1, %2;" : "=r"(y) : "r"(a), "r"(b));
        return y;
    }
};
template <> struct Pairs<bf16> {
    static constexpr bool EXIST = true;
    static constexpr u32 LEAST = 0xff80ff80u;
    static DEVICE u32 larger(u32 a, u32 b) {
        u32 y;
        asm("max.NaN.bf16x2 %0, %1, %2;" : "=r"(y) : "r"(a), "r"(b));
        return y;
    }
    static DEVICE u32 smaller(u32 a, u32 b) {
        u32 y;
        asm("min.NaN.bf16x2 %0, %1, %2;" : "=r"(y) : "r"(a), "r"(b));
        return y;
    }
};
#endif
