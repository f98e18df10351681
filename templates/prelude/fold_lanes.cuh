// Combines lanes at distances from ROW_LANES, or FROM, up to a whole warp, or TO. Every lane ends with the same state.
template <class M, int FROM, int TO> DEVICE typename M::State fold_lanes(typename M::State s) {
#pragma unroll
    for (int distance = TO / 2; distance >= FROM; distance /= 2) s = M::combine(s, exchange(s, distance));
    return s;
}
