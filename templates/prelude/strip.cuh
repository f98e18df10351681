// ---- strips: consecutive columns of one row, as a visit reads and writes them ----
// The first `count` of N elements at distance `stride`, none if it is negative. `wide` says that they lie side by side, aligned to
// their chunks; a strip that the matrix's edge cuts goes element by element.
template <int N, class T> DEVICE void read_strip(Raw<T, N>& raw, const T* p, i64 stride, int count, bool wide) {
    if (wide && count >= N) load_wide<N>(raw, p);
    else load_narrow<N>(raw, p, stride, count);
}
template <int N, class T> DEVICE void write_strip(T* p, const Raw<T, N>& raw, i64 stride, int count, bool wide) {
    if (wide && count >= N) store_wide<N>(p, raw);
    else store_narrow<N>(p, raw, stride, count);
}
