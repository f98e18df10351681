// ---- staging: the epilogue's operands pass through shared memory, matrices in chunks of 64 rows x CHUNK columns ----
extern __shared__ __align__(1024) u8 shared_memory[];

// The place of a visit: the columns of one row of a chunk that a lane holds in its accumulators, two of every eight. A warp
// visits eight rows together, with four lanes each.
struct Strip {
    int row, column;               // of the first element, in the problem
    int tile_row, tile_column;     // the same in the tile
    int first_row, first_column;   // of the warp's elements, in the chunk
    int lane;
    u32 vectors, loads, stores;  // offsets in shared memory of the tile's vectors, and of this chunk of the matrices
    u32 bits;                    // and of the consumer's masks that are written
    int consumer_row;            // among the consumer's rows
{% if delayed_store %}    u32* kept;                   // where the results wait
{% endif %}    DEVICE int at(int i) const { return column + i / 2 * 8 + i % 2; }
    // How many of the first COUNT elements lie ahead of column `n`.
    template <int COUNT> DEVICE int inside(int n) const {
        const int left = max(0, n - column);
        return min(COUNT, left / 8 * 2 + min(left % 8, 2));
    }
};

// Bytes within which a tensor map exclusive-ors pieces of 16 bytes with their place beyond those.
enum Swizzle { none = 16, b32 = 32, b64 = 64, b128 = 128 };

// The layout of a chunk in shared memory: lines along the contiguous axis, cut into panels of at most 128 bytes. Inside a
// panel, pieces of 16 bytes are exclusive-ored with the line, as the plan's tensor maps do it. Lines that are not a power of
// two are not cut and not swizzled. The plan makes sure that they are an odd number of pieces of 16 or 32 bytes, so that eight
// of them begin in different banks.
template <int SIZE, bool ROW_MAJOR> struct Chunk64 {
    static constexpr int LINES = ROW_MAJOR ? 64 : CHUNK, ELEMENTS = ROW_MAJOR ? CHUNK : 64;   // strided and contiguous extent
    static constexpr int PITCH = ELEMENTS * SIZE > 128 && ELEMENTS * SIZE % 128 == 0 ? 128 : ELEMENTS * SIZE;
    static constexpr int PANEL = LINES * PITCH;
    static constexpr int PANELS = ELEMENTS * SIZE / PITCH, PANEL_ELEMENTS = PITCH / SIZE, BYTES = PANELS * PANEL;
    static constexpr Swizzle SWIZZLE = PITCH == 128 || PITCH == 64 || PITCH == 32 ? Swizzle(PITCH) : none;
    static DEVICE constexpr u32 at(int line, int byte) {
        const u32 twist = u32(line * PITCH) / 128 % (SWIZZLE / 16);
        return byte / PITCH * PANEL + line * PITCH + ((byte % PITCH) ^ twist << 4);
    }
};
template <class T> DEVICE T& shared_at(u32 offset) { return *reinterpret_cast<T*>(shared_memory + offset); }

// Moves matrices of 8 x 8 elements of 16 bits between shared memory and the lanes, at most four at a time.
template <bool TRANSPOSED, int N> DEVICE void load_fragments(u32* r, u32 address) {
    if constexpr (N == 4 && TRANSPOSED)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 { %0, %1, %2, %3}, [%4];"
                     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(address) : "memory");
    else if constexpr (N == 4)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 { %0, %1, %2, %3}, [%4];"
                     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(address) : "memory");
    else if constexpr (N == 2 && TRANSPOSED)
        asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 { %0, %1}, [%2];"
                     : "=r"(r[0]), "=r"(r[1]) : "r"(address) : "memory");
    else if constexpr (N == 2)
        asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 { %0, %1}, [%2];"
                     : "=r"(r[0]), "=r"(r[1]) : "r"(address) : "memory");
    else if constexpr (TRANSPOSED)
        asm volatile("ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 { %0}, [%1];" : "=r"(r[0]) : "r"(address) : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 { %0}, [%1];" : "=r"(r[0]) : "r"(address) : "memory");
}
template <bool TRANSPOSED, int N> DEVICE void store_fragments(u32 address, const u32* r) {
    if constexpr (N == 4 && TRANSPOSED)
        asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], { %1, %2, %3, %4};"
                     ::"r"(address), "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3]) : "memory");
    else if constexpr (N == 4)
        asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], { %1, %2, %3, %4};"
                     ::"r"(address), "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3]) : "memory");
    else if constexpr (N == 2 && TRANSPOSED)
        asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], { %1, %2};"
                     ::"r"(address), "r"(r[0]), "r"(r[1]) : "memory");
    else if constexpr (N == 2)
        asm volatile("stmatrix.sync.aligned.m8n8.x2.shared.b16 [%0], { %1, %2};"
                     ::"r"(address), "r"(r[0]), "r"(r[1]) : "memory");
    else if constexpr (TRANSPOSED)
        asm volatile("stmatrix.sync.aligned.m8n8.x1.trans.shared.b16 [%0], { %1};" ::"r"(address), "r"(r[0]) : "memory");
    else
        asm volatile("stmatrix.sync.aligned.m8n8.x1.shared.b16 [%0], { %1};" ::"r"(address), "r"(r[0]) : "memory");
}
// The address of line `line` of the 8 x 8 matrix at a column of a warp's eight rows. A row's twist is that of its place among
// the eight.
template <bool ROW_MAJOR> DEVICE u32 line_address(u32 chunk, int first_row, int column, int line) {
    const u32 at = ROW_MAJOR ? first_row * Chunk64<2, true>::PITCH + Chunk64<2, true>::at(line, column * 2)
                             : Chunk64<2, false>::at(column + line, first_row * 2);
    return shared_address(shared_memory) + chunk + at;
}
// Moves TOGETHER 8 x 8 matrices of a strip between shared memory and `words`, from `first` on. Each lane has the address of a
// line.
template <bool STORES, bool ROW_MAJOR, int TOGETHER, class Word>
DEVICE void move_group(const Strip& s, u32 chunk, int first, Word* words) {
    const u32 address =
        line_address<ROW_MAJOR>(chunk, s.first_row, s.first_column + (first + s.lane / 8 % TOGETHER) * 8, s.lane % 8);
    if constexpr (STORES) store_fragments<!ROW_MAJOR, TOGETHER>(address, words + first);
    else load_fragments<!ROW_MAJOR, TOGETHER>(words + first, address);
}
// Moves a whole strip, as many matrices at once as an instruction takes.
template <bool STORES, bool ROW_MAJOR, int N, class Word> DEVICE void move_fragments(const Strip& s, u32 chunk, Word* words) {
    constexpr int FOURS = N / 2 / 4 * 4, PAIRS = N / 2 % 4 / 2 * 2;
#pragma unroll
    for (int g = 0; g < FOURS; g += 4) move_group<STORES, ROW_MAJOR, 4>(s, chunk, g, words);
    if constexpr (PAIRS > 0) move_group<STORES, ROW_MAJOR, 2>(s, chunk, FOURS, words);
    if constexpr (N / 2 % 2 > 0) move_group<STORES, ROW_MAJOR, 1>(s, chunk, FOURS + PAIRS, words);
}

// The epilogue's access to its operands. AT is the place that the plan gave this one. Elements outside of the problem read as
// zero, and writes to them are dropped.
template <int AT, int N, class T> DEVICE void read_columns(Raw<T, N>& raw, const Strip& s, const T*, int, bool) {
#pragma unroll
    for (int i = 0; i < N; i += 2) {
        Raw<T, 2> pair;
        pair.words[0] = shared_at<typename Raw<T, 2>::Word>(s.vectors + AT + (s.tile_column + i * 4) * sizeof(T));
        raw.elements[i] = pair.elements[0];
        raw.elements[i + 1] = pair.elements[1];
    }
}
template <int AT, class T> DEVICE T read_row(const Strip& s, const T*, int) {
    return shared_at<T>(s.vectors + AT + s.tile_row * sizeof(T));
}
template <int AT, bool ROW_MAJOR, int N, class T>
DEVICE void read_matrix(Raw<T, N>& raw, const Strip& s, const T*, i64, int, int, bool) {
    using Place = Chunk64<sizeof(T), ROW_MAJOR>;
    const u32 chunk = s.loads + AT;
    if constexpr (sizeof(T) == 2) {
        move_fragments<false, ROW_MAJOR, N>(s, chunk, reinterpret_cast<u32*>(raw.elements));
    } else {
        const int row = s.first_row + s.lane / 4;
#pragma unroll
        for (int i = 0; i < N; i += 2) {
            const int column = s.first_column + i / 2 * 8 + s.lane % 4 * 2;
            if constexpr (ROW_MAJOR) {
                using Pair = typename Raw<T, 2>::Word;
                reinterpret_cast<Pair*>(raw.elements)[i / 2] = shared_at<Pair>(chunk + Place::at(row, column * sizeof(T)));
            } else {
                raw.elements[i] = shared_at<T>(chunk + Place::at(column, row * sizeof(T)));
                raw.elements[i + 1] = shared_at<T>(chunk + Place::at(column + 1, row * sizeof(T)));
            }
        }
    }
}
template <int AT, bool ROW_MAJOR, int N, class T>
DEVICE void write_matrix(T*, i64, const Raw<T, N>& raw, const Strip& s, int, int, bool) {
{% if delayed_store %}    static_assert(sizeof(T) == 2 && ROW_MAJOR, "two elements a word, along a row");
#pragma unroll
    for (int i = 0; i < N / 2; ++i) s.kept[i] = reinterpret_cast<const u32*>(raw.elements)[i];
{% else %}    using Place = Chunk64<sizeof(T), ROW_MAJOR>;
    const u32 chunk = s.stores + AT;
    if constexpr (sizeof(T) == 2) {
        move_fragments<true, ROW_MAJOR, N>(s, chunk, reinterpret_cast<const u32*>(raw.elements));
    } else {
        const int row = s.first_row + s.lane / 4;
#pragma unroll
        for (int i = 0; i < N; i += 2) {
            const int column = s.first_column + i / 2 * 8 + s.lane % 4 * 2;
            if constexpr (ROW_MAJOR) {
                using Pair = typename Raw<T, 2>::Word;
                shared_at<Pair>(chunk + Place::at(row, column * sizeof(T))) = reinterpret_cast<const Pair*>(raw.elements)[i / 2];
            } else {
                shared_at<T>(chunk + Place::at(column, row * sizeof(T))) = raw.elements[i];
                shared_at<T>(chunk + Place::at(column + 1, row * sizeof(T))) = raw.elements[i + 1];
            }
        }
    }
{% endif %}}

// Copies a slice of a vector; called by one warp. Elements beyond the end become zeros. Words are copied without registers: with
// loads the warp would wait for memory several times a tile, which is longer than the products of a short K take.
template <int EXTENT, class T> DEVICE void copy_vector(u32 to, const T* p, int first, int end, int lane) {
    constexpr int EACH = sizeof(T) < 4 ? 4 / sizeof(T) : 1;   // elements of a word
    static_assert(EXTENT % EACH == 0, "whole words");
    p += first;
    end -= first;
    if (sizeof(T) >= 4 || reinterpret_cast<u64>(p) % 4 == 0) {
#pragma unroll 2
        for (int at = lane * EACH; at < EXTENT; at += 32 * EACH) {
            const int left = end - at, valid = left > EACH ? EACH : left > 0 ? left : 0;
            copy_async<EACH * sizeof(T)>(shared_address(shared_memory) + to + at * sizeof(T), p + at, valid * sizeof(T));
        }
    } else {
        // Beyond the end the last element is loaded and dropped, which needs no branch.
#pragma unroll 2
        for (int at = lane; at < EXTENT; at += 32) {
            const T x = p[at < end ? at : end - 1];
            shared_at<T>(to + at * sizeof(T)) = at < end ? x : T{};
        }
    }
}

// Copy between shared memory and a matrix that no tensor map can describe, or not to its last element. Thread `thread` of
// THREADS_THERE threads moves its share element by element, always the same element of a line.
template <int THREADS_THERE, bool ROW_MAJOR, class T>
DEVICE void copy_in(u32 chunk, const T* p, i64 ld, int row, int column, int m, int n, int thread) {
    using Place = Chunk64<sizeof(T), ROW_MAJOR>;
    constexpr int STEP = THREADS_THERE / Place::ELEMENTS, AHEAD = Place::LINES / STEP < 8 ? Place::LINES / STEP : 8;
    const int element = thread % Place::ELEMENTS, first = thread / Place::ELEMENTS;
    p += (ROW_MAJOR ? row : column) * ld + ((ROW_MAJOR ? column : row) + element);
    p += first * ld;
    // Lines that exist for this element.
    const int lines = (ROW_MAJOR ? column : row) + element < (ROW_MAJOR ? n : m) ? (ROW_MAJOR ? m - row : n - column) : 0;
#pragma unroll 1
    for (int line = first; line < Place::LINES; line += AHEAD * STEP) {
        T ahead[AHEAD];
#pragma unroll
        for (int i = 0; i < AHEAD; ++i) {
            ahead[i] = line + i * STEP < lines ? *p : T{};
            p += STEP * ld;
        }
#pragma unroll
        for (int i = 0; i < AHEAD; ++i) shared_at<T>(chunk + Place::at(line + i * STEP, element * sizeof(T))) = ahead[i];
    }
}
template <int THREADS_THERE, bool ROW_MAJOR, class T>
DEVICE void copy_out(u32 chunk, T* p, i64 ld, int row, int column, int m, int n, int thread) {
    using Place = Chunk64<sizeof(T), ROW_MAJOR>;
    constexpr int STEP = THREADS_THERE / Place::ELEMENTS;
    const int element = thread % Place::ELEMENTS, first = thread / Place::ELEMENTS;
    p += (ROW_MAJOR ? row : column) * ld + ((ROW_MAJOR ? column : row) + element);
    p += first * ld;
    int lines = (ROW_MAJOR ? column : row) + element < (ROW_MAJOR ? n : m) ? (ROW_MAJOR ? m - row : n - column) : 0;
    if (lines > Place::LINES) lines = Place::LINES;
#pragma unroll 2
    for (int line = first; line < lines; line += STEP) {
        *p = shared_at<T>(chunk + Place::at(line, element * sizeof(T)));
        p += STEP * ld;
    }
}
{% if direct_store %}
// Stores a piece of 16 bytes to global memory under a cache policy.
DEVICE void store_piece_if(bool stores, void* to, const uint4& v, u64 policy) {
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %5, 0;\n@p st.global.L2::cache_hint.v4.b32 [%0], { %1, %2, %3, %4}, %6;\n}"
                 ::"l"(to), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w), "r"(int(stores)), "l"(policy) : "memory");
}

// A warp's 16 rows of a chunk as pieces of 16 bytes. A lane moves one piece in every APART rows, always of the same columns.
template <class T> struct Pieces {
    using Place = Chunk64<sizeof(T), true>;
    static constexpr int EACH = 16 / sizeof(T), OF_ROW = CHUNK / EACH, APART = OF_ROW < 32 ? 32 / OF_ROW : 1;
    static constexpr bool ALL_LANES = OF_ROW * APART == 32 && 16 % APART == 0;
    static_assert(OF_ROW <= 32 && (Place::SWIZZLE == none || ALL_LANES), "the twists of rows this far apart add up");
    static DEVICE int row(int lane) { return lane / OF_ROW; }
    static DEVICE int column(int lane) { return lane % OF_ROW * EACH; }
    // The place of the lane's first piece. If a row is a single piece, half of the lanes have none, and read that of another
    // lane.
    static DEVICE u32 first(int first_row, int lane) {
        return Place::at(first_row + (OF_ROW > 1 ? row(lane) : row(lane) % 16), column(lane) * int(sizeof(T)));
    }
    // Moves the lane's pieces to `to` and the rows below. `rows` rows of the matrix exist there, if the lane's columns do.
    static DEVICE void move(u32 first, T* to, i64 ld, int rows, bool there, int lane, u64 policy) {
#pragma unroll
        for (int i = 0; i < 16; i += APART) {
            const bool own = ALL_LANES || (lane < OF_ROW * APART && i + row(lane) < 16);
            const u32 twist = u32(i * Place::PITCH) / 128 % (Place::SWIZZLE / 16), at = (first ^ twist << 4) + i * Place::PITCH;
            const uint4 piece = shared_at<uint4>(own ? at : first);
            store_piece_if(own && there && i < rows, to + i * ld, piece, policy);
        }
    }
};
{% endif -%}
