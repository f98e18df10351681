// ---- staging of matrices whose rows are pixels of one remainder: no tensor map describes them ----
// Pieces of 16 bytes where the matrix has whole ones, and single elements elsewhere. Threads take pieces of a row side by side.
template <bool IN, class T> DEVICE void move_piece(u32 at, T* p, int count, bool whole) {
    constexpr int EACH = 16 / sizeof(T);
    if (whole && count >= EACH) {
        if constexpr (IN) shared_at<uint4>(at) = *reinterpret_cast<const uint4*>(p);
        else *reinterpret_cast<uint4*>(p) = shared_at<uint4>(at);
    } else {
#pragma unroll 1
        for (int i = 0; i < EACH; ++i) {
            if constexpr (IN) shared_at<T>(at + i * sizeof(T)) = i < count ? p[i] : T{};
            else if (i < count) p[i] = shared_at<T>(at + i * sizeof(T));
        }
    }
}
template <int THREADS_THERE, bool IN, bool ROW_MAJOR, class T>
DEVICE void copy_rows(const Params& p, u32 chunk, T* matrix, i64 ld, int row, int column, int thread) {
    using Place = Chunk64<sizeof(T), ROW_MAJOR>;
    if constexpr (ROW_MAJOR) {
        constexpr int EACH = 16 / sizeof(T), OF_ROW = CHUNK / EACH;
        static_assert(CHUNK % EACH == 0, "whole pieces");
        const bool whole = ((ld * sizeof(T)) | reinterpret_cast<u64>(matrix)) % 16 == 0;
        // The producer's warps, which copy in, have few registers.
#pragma unroll IN ? 1 : 4
        for (int i = thread; i < 64 * OF_ROW; i += THREADS_THERE) {
            const int line = i / OF_ROW, first = i % OF_ROW * EACH, pixel = pixel_of(p, row + line);
            const int count = pixel < p.m ? p.n - column - first : 0;
            move_piece<IN>(chunk + Place::at(line, first * sizeof(T)), matrix + (pixel * ld + column + first), count, whole);
        }
    } else {
#pragma unroll 1
        for (int i = thread; i < 64 * CHUNK; i += THREADS_THERE) {
            const int line = i / 64, pixel = pixel_of(p, row + i % 64);
            const bool there = pixel < p.m && column + line < p.n;
            const u32 at = chunk + Place::at(line, i % 64 * sizeof(T));
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
