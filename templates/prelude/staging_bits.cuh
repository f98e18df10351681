// ---- bit masks on their way to and from strips: masks that are read pass through shared memory, 64 bits or a chunk's columns to a
// line; those that are written go straight to memory. Vectors of bits are staged as bytes. ----
template <bool ROW_MAJOR> struct BitChunk {
    static constexpr int LINES = ROW_MAJOR ? 64 : CHUNK, PITCH = (ROW_MAJOR ? CHUNK : 64) / 8;
};

template <int AT, int N> DEVICE void read_columns(Raw<b1, N>& raw, const Strip& s, const b1*, int, bool) {
    raw.elements.clear();
#pragma unroll
    for (int i = 0; i < N; ++i) raw.elements.set(i, shared_at<b8>(s.vectors + AT + s.tile_column + bit_place(i)).bits);
}
template <int AT> DEVICE b1 read_row(const Strip& s, const b1*, int) { return b1{shared_at<b8>(s.vectors + AT + s.tile_row).bits}; }

template <int AT, bool ROW_MAJOR, int N>
DEVICE void read_matrix(Raw<b1, N>& raw, const Strip& s, const b1*, i64, int, int, bool) {
    constexpr int PITCH = BitChunk<ROW_MAJOR>::PITCH, WORDS = Raw<b1, N>::WORDS;
    const u8* const chunk = shared_memory + s.loads + AT;
    const int row = s.first_row + s.lane / 4, pair = s.lane % 4 * 2;
    if constexpr (ROW_MAJOR) {
        // The bytes that the four lanes of a row share; the lane's own bits come to where they would lie in the first lane's.
        using Word = typename Chunk<N / 2 / WORDS>::Type;
        Raw<Word, WORDS> line;
        load_wide(line, reinterpret_cast<const Word*>(chunk + row * PITCH + s.first_column / 8));
#pragma unroll
        for (int w = 0; w < WORDS; ++w) raw.elements.words[w] = u32(line.elements[w]) >> pair;
    } else {
        raw.elements.clear();
#pragma unroll
        for (int i = 0; i < N; ++i)
            raw.elements.set(i, u32(chunk[(s.first_column + pair + bit_place(i)) * PITCH + row / 8]) >> row % 8 & 1);
    }
}

// What is left of a run's last byte is written as zero. `wide` says that the bytes of a chunk are aligned to their number.
template <int, bool ROW_MAJOR, int N>
DEVICE void write_matrix(b1* p, i64 ld, const Raw<b1, N>& raw, const Strip& s, int m, int n, bool wide) {
    const int line = s.lane / 4, quarter = s.lane % 4;
    if constexpr (ROW_MAJOR) {
        // Four lanes hold two bits each of every byte of a row. Of two words each lane gives away the one that its neighbour keeps.
        constexpr int LANES = Raw<b1, N>::WORDS, BYTES = N / 2 / LANES;
        const u32 first = raw.elements.words[0] << quarter * 2, last = raw.elements.words[LANES - 1] << quarter * 2;
        const bool keeps_last = LANES == 2 && quarter % 2 == 1;
        u32 word = (keeps_last ? last : first) | __shfl_xor_sync(~0u, keeps_last ? first : last, 1);
        word |= __shfl_xor_sync(~0u, word, 2);
        const int column = s.column - quarter * 2 + quarter % LANES * 32, left = n - column;
        if (quarter >= LANES || s.row >= m || left <= 0) return;
        u8* const to = &p[(s.row * ld + column) / 8].bits;
        word = lowest_bits(word, left);
        if (wide && left > BYTES * 8 - 8) {
            *reinterpret_cast<typename Chunk<BYTES>::Type*>(to) = word;
        } else {
#pragma unroll
            for (int i = 0; i < BYTES; ++i)
                if (i * 8 < left) to[i] = u8(word >> i * 8);
        }
    } else {
        // Eight lanes, four apart, hold the rows of a column's byte. Of eight columns each of them writes one.
        const int top = s.row - line;
#pragma unroll
        for (int group = 0; group < N; group += 8) {
            u32 rows = 0;
#pragma unroll
            for (int i = 0; i < 8 && group + i < N; ++i) {
                const u32 all = __ballot_sync(~0u, s.row < m && widen(raw.elements[group + i]));
                if (i == line) rows = all;
            }
            rows = rows >> quarter & 0x11111111u;
            rows = (rows | rows >> 3) & 0x03030303u;
            rows = (rows | rows >> 6) & 0x000f000fu;
            const int column = s.at(group + line);
            if (group + line < N && top < m && column < n) p[(column * ld + top) / 8].bits = u8(rows | rows >> 12);
        }
    }
}

// Between memory and a chunk in shared memory: `thread` of THREADS_THERE threads moves whole lines.
template <int THREADS_THERE, bool ROW_MAJOR>
DEVICE void copy_bits_in(u32 chunk, const b1* p, i64 ld, int row, int column, int m, int n, int thread, bool wide) {
    using Place = BitChunk<ROW_MAJOR>;
    const int lines = ROW_MAJOR ? m - row : n - column, left = ROW_MAJOR ? n - column : m - row;
    p += ((ROW_MAJOR ? row : column) * ld + (ROW_MAJOR ? column : row)) / 8;
#pragma unroll
    for (int line = thread; line < Place::LINES; line += THREADS_THERE) {
        const u8* const from = &p[line * (ld / 8)].bits;
        Raw<u8, Place::PITCH> raw;
        if (wide && line < lines && left >= Place::PITCH * 8) {
            load_wide(raw, from);
        } else {
            const int bits = fresh(left);   // or a mask for each byte is kept, for which a producer has no registers
            load_narrow(raw, from, 1, line < lines ? (bits + 7) / 8 : 0);
#pragma unroll
            for (int i = 0; i < Place::PITCH; ++i) raw.elements[i] = u8(lowest_bits(raw.elements[i], bits - i * 8));
        }
        store_wide(shared_memory + chunk + line * Place::PITCH, raw);
    }
}
