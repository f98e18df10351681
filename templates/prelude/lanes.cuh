// The value of the lane at a distance.
DEVICE float exchange(float x, int distance) { return __shfl_xor_sync(~0u, x, distance); }
DEVICE int exchange(int x, int distance) { return __shfl_xor_sync(~0u, x, distance); }
{% if doubles %}DEVICE double exchange(double x, int distance) { return __shfl_xor_sync(~0u, x, distance); }
{% endif -%}
template <class S> DEVICE S exchange(S x, int distance) {
    int* const words = reinterpret_cast<int*>(&x);
#pragma unroll
    for (int i = 0; i < int(sizeof(S) / 4); ++i) words[i] = exchange(words[i], distance);
    return x;
}
