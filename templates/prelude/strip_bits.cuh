// ---- bit masks of strips: a strip has at most eight columns and does not cross a byte ----
// The first `count` of N elements from element `first` of a run on; the rest read as zero.
template <int N> DEVICE void read_run(Raw<b1, N>& raw, const b1* p, i64 first, int count) {
    raw.elements.words[0] = count > 0 ? lowest_bits(p[first / 8].bits >> first % 8, count < N ? count : N) : 0;
}
template <int, int N> DEVICE void read_columns(Raw<b1, N>& raw, const Strip& s, const b1* p, int n, bool) {
    read_run(raw, p, s.column, n - s.column);
}
template <int> DEVICE b1 read_row(const Strip& s, const b1* p, int m) { return s.row < m ? bit_at(p, s.row) : b1{}; }
template <int, bool ROW_MAJOR, int N>
DEVICE void read_matrix(Raw<b1, N>& raw, const Strip& s, const b1* p, i64 ld, int m, int n, bool) {
    const int count = s.row < m ? n - s.column : 0;
    if constexpr (ROW_MAJOR) {
        read_run(raw, p, s.row * ld + s.column, count);
    } else {
        p += (s.column * ld + s.row) / 8;
        raw.elements.clear();
#pragma unroll
        for (int i = 0; i < N; ++i)
            if (i < count) raw.elements.set(i, p[i * (ld / 8)].bits >> s.row % 8 & 1);
    }
}

// The unused bits of a run's last byte are written as zero. Lanes that share a byte are adjacent and all reach this function,
// and one of them writes for all. Any thread may own the rows of a byte along M, so each thread changes its bit of the word
// atomically.
template <int, bool ROW_MAJOR, int N>
DEVICE void write_matrix(b1* p, i64 ld, const Raw<b1, N>& raw, const Strip& s, int m, int n, bool) {
    const int count = s.row < m ? n - s.column : 0;
    if constexpr (ROW_MAJOR) {
        u32 byte = lowest_bits(raw.elements.words[0], count) << s.column % 8;
#pragma unroll
        for (int lanes = 1; lanes < 8 / N; lanes *= 2) byte |= __shfl_xor_sync(~0u, byte, lanes);
        if (s.column % 8 == 0 && count > 0) p[(s.row * ld + s.column) / 8].bits = u8(byte);
    } else {
        p += (s.column * ld + s.row) / 8;
#pragma unroll
        for (int i = 0; i < N; ++i) {
            if (i >= count) continue;
            const u64 address = reinterpret_cast<u64>(p + i * (ld / 8));
            u32* const word = reinterpret_cast<u32*>(address & ~u64(3));
            const int byte = int(address & 3) * 8, bit = s.row % 8;
            const u32 mine = 1u << bit, rest = s.row + 1 == m ? 0xffu << bit & 0xffu & ~mine : 0;
            const u32 on = widen(raw.elements[i]) ? mine : 0, off = (mine | rest) & ~on;
            if (on != 0) atomicOr(word, on << byte);
            if (off != 0) atomicAnd(word, ~(off << byte));
        }
    }
}
