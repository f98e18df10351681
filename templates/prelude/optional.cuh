// ---- operands that a launch leaves out: their elements are one number, which all of a kernel's threads have in the place of a load ----
template <int N, class T, class V> DEVICE void fill_all(Raw<T, N>& raw, V x) {
    V values[N];
#pragma unroll
    for (int i = 0; i < N; ++i) values[i] = x;
    narrow_all(raw, values);
}
{% if hopper %}// The slice of a vector, by one warp.
template <int EXTENT, class T> DEVICE void fill_vector(u32 to, T x, int lane) {
#pragma unroll 2
    for (int i = lane; i < EXTENT; i += 32) shared_at<T>(to + i * sizeof(T)) = x;
}
{% endif -%}
