// ---- bit masks on their way to and from strips. Masks that are read pass through shared memory in chunks, with lines of 64
// bits or of a chunk's columns. Masks that are written are collected there until the tile is done. Vectors of bits are staged
// as bytes. ----
template <bool ROW_MAJOR> struct BitChunk {
    static constexpr int LINES = ROW_MAJOR ? 64 : CHUNK, PITCH = (ROW_MAJOR ? CHUNK : 64) / 8, BYTES = LINES * PITCH;
};
// The masks of a consumer's tile.
template <bool ROW_MAJOR> struct BitTile {
    static constexpr int LINES = ROW_MAJOR ? WARPGROUP_ROWS : BN, PITCH = (ROW_MAJOR ? BN : WARPGROUP_ROWS) / 8;
    static constexpr int BYTES = LINES * PITCH;
    // The pieces in which a line is written to memory: their bytes and number.
    static constexpr int PIECE = BitChunk<ROW_MAJOR>::PITCH, PIECES = PITCH / PIECE;
};

template <int AT, int N> DEVICE void read_columns(Raw<b1, N>& raw, const Strip& s, const b1*, int, bool) {
    raw.elements.clear();
#pragma unroll
    for (int i = 0; i < N; ++i) raw.elements.set(i, shared_at<b8>(s.vectors + AT + s.tile_column + bit_place(i)).bits);
}
template <int AT> DEVICE b1 read_row(const Strip& s, const b1*, int) {
    return b1{shared_at<b8>(s.vectors + AT + s.tile_row).bits};
}

template <int AT, bool ROW_MAJOR, int N>
DEVICE void read_matrix(Raw<b1, N>& raw, const Strip& s, const b1*, i64, int, int, bool) {
    constexpr int PITCH = BitChunk<ROW_MAJOR>::PITCH, WORDS = Raw<b1, N>::WORDS;
    const u8* const chunk = shared_memory + s.loads + AT;
    const int row = s.first_row + s.lane / 4, pair = s.lane % 4 * 2;
    if constexpr (ROW_MAJOR) {
        // The bytes that the four lanes of a row share. The lane's own bits are shifted to the place of the first lane's bits.
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

// Writes to shared memory: with global stores, the fence ahead of copies from shared memory would wait for memory, chunk after
// chunk.
template <int AT, bool ROW_MAJOR, int N>
DEVICE void write_matrix(b1*, i64, const Raw<b1, N>& raw, const Strip& s, int, int, bool) {
    using Place = BitTile<ROW_MAJOR>;
    const int line = s.lane / 4, quarter = s.lane % 4, column = s.tile_column - quarter * 2;
    u8* const tile = shared_memory + s.bits + AT;
    if constexpr (ROW_MAJOR) {
        // Four lanes hold two bits each of every byte of a row. Of two words each lane gives away the one that its neighbour
        // keeps.
        constexpr int LANES = Raw<b1, N>::WORDS, BYTES = N / 2 / LANES;
        const u32 first = raw.elements.words[0] << quarter * 2, last = raw.elements.words[LANES - 1] << quarter * 2;
        const bool keeps_last = LANES == 2 && quarter % 2 == 1;
        u32 word = (keeps_last ? last : first) | __shfl_xor_sync(~0u, keeps_last ? first : last, 1);
        word |= __shfl_xor_sync(~0u, word, 2);
            // A branch: otherwise the compiler keeps more of these in flight than it has registers for.
            if (quarter < LANES) {
                using Bytes = typename Chunk<BYTES>::Type;
                reinterpret_cast<Bytes*>(tile + s.consumer_row * Place::PITCH + column / 8)[quarter] = word;
            }
        __syncwarp();
    } else {
        // Eight lanes, four apart, hold the rows of a column's byte. Each of them writes one of eight columns.
#pragma unroll
        for (int group = 0; group < N; group += 8) {
            u32 rows = 0;
#pragma unroll
            for (int i = 0; i < 8 && group + i < N; ++i) {
                const u32 all = __ballot_sync(~0u, widen(raw.elements[group + i]));
                if (i == line) rows = all;
            }
            rows = rows >> quarter & 0x11111111u;
            rows = (rows | rows >> 3) & 0x03030303u;
            rows = (rows | rows >> 6) & 0x000f000fu;
            if (group + line < N)
                tile[(s.tile_column + bit_place(group + line)) * Place::PITCH + s.consumer_row / 8] = u8(rows | rows >> 12);
        }
    }
}

// Copies from memory to a chunk in shared memory. Thread `thread` of THREADS_THERE threads moves whole lines.
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
            const int bits = fresh(left);   // otherwise a mask for each byte is kept, and a producer lacks the registers
            load_narrow(raw, from, 1, line < lines ? (bits + 7) / 8 : 0);
#pragma unroll
            for (int i = 0; i < Place::PITCH; ++i) raw.elements[i] = u8(lowest_bits(raw.elements[i], bits - i * 8));
        }
        store_wide(shared_memory + chunk + line * Place::PITCH, raw);
    }
}

// Copies a tile's mask to memory; each warp copies its own rows, if these are lines. The unused bits of a run's last byte are
// written as zero. `wide` says that pieces are aligned.
template <bool ROW_MAJOR>
DEVICE void copy_bits_out(u32 tile, b1* p, i64 ld, int row, int column, int m, int n, u32 group, int thread, bool wide) {
    using Place = BitTile<ROW_MAJOR>;
    using Piece = typename Chunk<Place::PIECE>::Type;
    constexpr int TOGETHER = ROW_MAJOR ? 32 : 128, LINES = ROW_MAJOR ? 16 : BN, ITEMS = LINES * Place::PIECES;
    const int lines = ROW_MAJOR ? m - row : n - column, left = ROW_MAJOR ? n - column : m - row;
    p += ((ROW_MAJOR ? row : column) * ld + (ROW_MAJOR ? column : row)) / 8;
    if constexpr (ROW_MAJOR) __syncwarp();
    else sync_warpgroup(group);
#pragma unroll
    for (int block = 0; block < (ROW_MAJOR ? WARPGROUP_ROWS / 64 : 1); ++block)
#pragma unroll
        for (int first = 0; first < ITEMS; first += TOGETHER) {
            const int item = first + thread % TOGETHER, at = item % Place::PIECES * Place::PIECE;
            const int line = (ROW_MAJOR ? block * 64 + thread / 32 * 16 : 0) + item / Place::PIECES, bits = left - at * 8;
            if (item >= ITEMS || line >= lines || bits <= 0) continue;
            const u8* const from = shared_memory + tile + line * Place::PITCH + at;
            u8* const to = &p[line * (ld / 8) + at].bits;
            if (wide && bits >= Place::PIECE * 8) {
                *reinterpret_cast<Piece*>(to) = *reinterpret_cast<const Piece*>(from);
            } else {
#pragma unroll 1
                for (int i = 0; i < Place::PIECE && i * 8 < bits; ++i) to[i] = u8(lowest_bits(from[i], bits - i * 8));
            }
        }
    if constexpr (!ROW_MAJOR) sync_warpgroup(group);   // before the next tile's bits
}
