// ---- staging of matrices whose rows are pixels of one remainder: no tensor map describes them ----
// Copies 16 bytes into shared memory without a register, of which `valid` exist. The others become zeros.
DEVICE void copy_piece_in(u32 at, const void* from, int valid) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 ::"r"(shared_address(shared_memory) + at), "l"(from), "r"(valid) : "memory");
}
// Copies a chunk in or out. Each warp copies its own rows, whose pixels its lanes have found: lane i that of the warp's row
// i modulo their number. Pieces have 16 bytes where the matrix has whole ones. Elsewhere single elements are copied.
template <int THREADS_THERE, bool IN, bool ROW_MAJOR, class T>
DEVICE void copy_rows(const Params& p, u32 chunk, T* matrix, i64 ld, int own_pixel, int column, int thread) {
    using Place = Chunk64<sizeof(T), ROW_MAJOR>;
    constexpr int OWN = 64 / (THREADS_THERE / 32);   // rows of a warp
    static_assert(OWN <= 32 && 64 % OWN == 0, "a lane has found each pixel");
    const int lane = thread & 31, first_line = thread / 32 * OWN;
    if constexpr (ROW_MAJOR) {
        constexpr int EACH = 16 / sizeof(T), OF_ROW = CHUNK / EACH, PIECES = OWN * OF_ROW;
        static_assert(CHUNK % EACH == 0, "whole pieces");
        const bool whole = ((ld * sizeof(T)) | reinterpret_cast<u64>(matrix)) % 16 == 0;
#pragma unroll IN ? 2 : 4
        for (int step = 0; step < PIECES; step += 32) {
            const int piece = step + lane, line = piece / OF_ROW, first = piece % OF_ROW * EACH;
            const int pixel = __shfl_sync(~0u, own_pixel, line % OWN);
            const int count = pixel < p.m ? p.n - column - first : 0;
            const u32 at = chunk + Place::at(first_line + line, first * sizeof(T));
            T* const element = matrix + (i64(pixel) * ld + column + first);
            if (PIECES % 32 != 0 && piece >= PIECES) continue;
            if (whole && (IN || count >= EACH)) {
                const int valid = count < 0 ? 0 : (count < EACH ? count : EACH) * int(sizeof(T));
                if constexpr (IN) copy_piece_in(at, valid > 0 ? element : matrix, valid);
                else *reinterpret_cast<uint4*>(element) = shared_at<uint4>(at);
            } else {
#pragma unroll 1
                for (int i = 0; i < EACH; ++i) {
                    if constexpr (IN) shared_at<T>(at + i * sizeof(T)) = i < count ? element[i] : T{};
                    else if (i < count) element[i] = shared_at<T>(at + i * sizeof(T));
                }
            }
        }
    } else {
        // A warp copies its rows of every column.
#pragma unroll 1
        for (int i = lane; i < OWN * CHUNK; i += 32) {
            const int line = i / OWN, pixel = __shfl_sync(~0u, own_pixel, i % OWN);
            const bool there = pixel < p.m && column + line < p.n;
            const u32 at = chunk + Place::at(line, (first_line + i % OWN) * sizeof(T));
            T* const element = matrix + ((column + line) * ld + pixel);
            if constexpr (IN) shared_at<T>(at) = there ? *element : T{};
            else if (there) *element = shared_at<T>(at);
        }
    }
}
// A slice of a vector along the rows.
template <int EXTENT, class T> DEVICE void copy_vector_of_rows(const Params& p, u32 to, const T* vector, int first, int lane) {
#pragma unroll 1
    for (int i = lane; i < EXTENT; i += 32) {
        const int pixel = pixel_of(p, first + i);
        shared_at<T>(to + i * sizeof(T)) = pixel < p.m ? vector[pixel] : T{};
    }
}
