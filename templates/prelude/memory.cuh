// ---- memory: vector access of N consecutive elements in any storage format, and their conversion to arithmetic values ----
template <int BYTES> struct Chunk;
template <> struct Chunk<16> { using Type = uint4; };
template <> struct Chunk<8> { using Type = uint2; };
template <> struct Chunk<4> { using Type = u32; };
template <> struct Chunk<2> { using Type = u16; };
template <> struct Chunk<1> { using Type = u8; };

// N elements in the format of memory, moved in the widest chunks that N allows.
template <class T, int N> struct Raw {
    static constexpr int ALL = sizeof(T) * N, BYTES = (ALL & -ALL) < 16 ? ALL & -ALL : 16, CHUNKS = ALL / BYTES;
    using Word = typename Chunk<BYTES>::Type;
    union {
        Word words[CHUNKS];
        T elements[N];
    };
    DEVICE Raw() {}
};

// `p` is aligned to the chunk size.
template <int N, class T> DEVICE void load_wide(Raw<T, N>& raw, const T* p) {
#pragma unroll
    for (int i = 0; i < Raw<T, N>::CHUNKS; ++i) raw.words[i] = reinterpret_cast<const typename Raw<T, N>::Word*>(p)[i];
}
template <int N, class T> DEVICE void store_wide(T* p, const Raw<T, N>& raw) {
#pragma unroll
    for (int i = 0; i < Raw<T, N>::CHUNKS; ++i) reinterpret_cast<typename Raw<T, N>::Word*>(p)[i] = raw.words[i];
}
// An element of a table; zero if the index is out of range.
template <class T> DEVICE auto gather(const T* table, i64 length, int index) -> decltype(widen(*table)) {
    return widen(index >= 0 && index < length ? table[index] : T{});
}
// Adds 1 to an entry of a table, unless the index is out of range. Sums of integers do not depend on their order.
DEVICE void count_one(int* table, i64 length, int index) {
    if (index >= 0 && index < length) atomicAdd(table + index, 1);
}
// Loads the first `count` elements one by one, at distance `stride`. The rest read as zero.
template <int N, class T> DEVICE void load_narrow(Raw<T, N>& raw, const T* p, i64 stride, int count) {
#pragma unroll
    for (int i = 0; i < N; ++i) raw.elements[i] = i < count ? p[i * stride] : T{};
}
template <int N, class T> DEVICE void store_narrow(T* p, const Raw<T, N>& raw, i64 stride, int count) {
#pragma unroll
    for (int i = 0; i < N; ++i)
        if (i < count) p[i * stride] = raw.elements[i];
}
// Element `i`. Two of bf16 lie in a word, and the upper one needs no shift: compilers would cut it out first.
template <int N, class T> DEVICE auto widened(const Raw<T, N>& raw, int i) { return widen(raw.elements[i]); }
template <int N> DEVICE float widened(const Raw<bf16, N>& raw, int i) {
    if constexpr (N % 2 == 0) {
        const u32 pair = reinterpret_cast<const u32*>(raw.elements)[i / 2];
        return __uint_as_float(i % 2 == 0 ? pair << 16 : pair & 0xffff0000);
    } else {
        return widen(raw.elements[i]);
    }
}
template <int N, class T, class V> DEVICE void widen_all(V (&values)[N], const Raw<T, N>& raw) {
#pragma unroll
    for (int i = 0; i < N; ++i) values[i] = widened(raw, i);
}
template <int N, class T, class V> DEVICE void narrow_all(Raw<T, N>& raw, const V (&values)[N]) {
    if constexpr (Narrow<T>::IN_PAIRS && N % 2 == 0) {
        u32* const pairs = reinterpret_cast<u32*>(raw.elements);
#pragma unroll
        for (int i = 0; i < N / 2; ++i) pairs[i] = narrow_pair<T>(values[2 * i], values[2 * i + 1]);
    } else {
#pragma unroll
        for (int i = 0; i < N; ++i) raw.elements[i] = Narrow<T>::of(values[i]);
    }
}
