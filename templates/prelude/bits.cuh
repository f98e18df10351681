// ---- bit masks: elements of one bit, the lowest of a byte first; every run begins with a byte of its own ----
// A pointer to bits counts bytes. Leading dimensions and batch strides count bits, and are multiples of 8.
struct b1 { u8 bits; };

DEVICE bool widen(b1 x) { return (x.bits & 1) != 0; }
DEVICE b1 bit_at(const b1* p, int i) { return b1{u8(p[i / 8].bits >> i % 8)}; }
// The lowest `count` of a word's bits; none if it is negative.
DEVICE u32 lowest_bits(u32 word, int count) { return count >= 32 ? word : count <= 0 ? 0 : word & ((1u << count) - 1); }

// The place of element i of a strip among the bits that hold it: as far from the first one as in the matrix.
DEVICE constexpr int bit_place(int i) { return {% if hopper %}i / 2 * 8 + i % 2{% else %}i{% endif %}; }
template <int N> struct Raw<b1, N> {
    static constexpr int WORDS = bit_place(N - 1) / 32 + 1;
    struct {
        u32 words[WORDS];
        DEVICE b1 operator[](int i) const { return b1{u8(words[bit_place(i) / 32] >> bit_place(i) % 32 & 1)}; }
        DEVICE void set(int i, u32 bit) { words[bit_place(i) / 32] |= bit << bit_place(i) % 32; }
        DEVICE void clear() {
#pragma unroll
            for (int w = 0; w < WORDS; ++w) words[w] = 0;
        }
    } elements;
    DEVICE Raw() {}
};
template <int N> DEVICE void narrow_all(Raw<b1, N>& raw, const bool (&values)[N]) {
    raw.elements.clear();
#pragma unroll
    for (int i = 0; i < N; ++i) raw.elements.set(i, values[i]);
}
