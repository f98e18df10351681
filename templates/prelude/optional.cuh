// ---- operands that a launch leaves out: all of their elements are one number, which replaces the load ----
template <int N, class T, class V> DEVICE void fill_all(Raw<T, N>& raw, V x) {
    V values[N];
#pragma unroll
    for (int i = 0; i < N; ++i) values[i] = x;
    narrow_all(raw, values);
}
{% if hopper %}// Fills the slice of a vector; called by one warp.
template <int EXTENT, class T> DEVICE void fill_vector(u32 to, T x, int lane) {
#pragma unroll 2
    for (int i = lane; i < EXTENT; i += 32) shared_at<T>(to + i * sizeof(T)) = x;
}
{% endif -%}
