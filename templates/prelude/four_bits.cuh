// ---- integers of four bits: two in a byte, the first one in its lower half ----
struct int4x2 { u8 bits; };
struct uint4x2 { u8 bits; };

// The elements of what has an address.
template <class T> struct Packed {
    static constexpr int COUNT = 1;
    static DEVICE auto at(T x, int) -> decltype(widen(x)) { return widen(x); }
};
template <> struct Packed<int4x2> {
    static constexpr int COUNT = 2;
    static DEVICE int at(int4x2 x, int i) { return int(u32(x.bits) >> i * 4 & 15 ^ 8) - 8; }
};
template <> struct Packed<uint4x2> {
    static constexpr int COUNT = 2;
    static DEVICE int at(uint4x2 x, int i) { return int(u32(x.bits) >> i * 4 & 15); }
};
