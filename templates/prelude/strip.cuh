// ---- strips: consecutive columns of one row, read from and written to global memory ----
struct Strip {
    int row, column;
    DEVICE int at(int i) const { return column + i; }
    // How many of the first COUNT elements lie ahead of column `n`.
    template <int COUNT> DEVICE int inside(int n) const { return max(0, min(COUNT, n - column)); }
};

// The first `count` of N elements at distance `stride`; none if it is negative. `wide` says that they are contiguous and
// aligned to their chunks. A strip that the edge of the matrix cuts is read or written element by element.
template <int N, class T> DEVICE void read_strip(Raw<T, N>& raw, const T* p, i64 stride, int count, bool wide) {
    if (wide && count >= N) load_wide<N>(raw, p);
    else load_narrow<N>(raw, p, stride, count);
}
template <int N, class T> DEVICE void write_strip(T* p, const Raw<T, N>& raw, i64 stride, int count, bool wide) {
    if (wide && count >= N) store_wide<N>(p, raw);
    else store_narrow<N>(p, raw, stride, count);
}

// The epilogue's access to its operands. The first template argument is the place where a mainloop stages an operand. Here no
// operand is staged.
template <int, int N, class T> DEVICE void read_columns(Raw<T, N>& raw, const Strip& s, const T* p, int n, bool wide) {
    read_strip(raw, p + s.column, 1, n - s.column, wide);
}
template <int, class T> DEVICE T read_row(const Strip& s, const T* p, int m) { return s.row < m ? p[s.row] : T{}; }
template <int, bool ROW_MAJOR, int N, class T>
DEVICE void read_matrix(Raw<T, N>& raw, const Strip& s, const T* p, i64 ld, int m, int n, bool wide) {
    const int count = s.row < m ? n - s.column : 0;
    if (ROW_MAJOR) read_strip(raw, p + (s.row * ld + s.column), 1, count, wide);
    else read_strip(raw, p + (s.column * ld + s.row), ld, count, false);
}
template <int, bool ROW_MAJOR, int N, class T>
DEVICE void write_matrix(T* p, i64 ld, const Raw<T, N>& raw, const Strip& s, int m, int n, bool wide) {
    const int count = s.row < m ? n - s.column : 0;
    if (ROW_MAJOR) write_strip(p + (s.row * ld + s.column), raw, 1, count, wide);
    else write_strip(p + (s.column * ld + s.row), raw, ld, count, false);
}
