// Combines lanes from ROW_LANES apart on, or FROM, to all of a warp or TO: every lane ends with the same.
template <class M, int FROM, int TO> DEVICE typename M::State fold_lanes(typename M::State s) {
#pragma unroll
    for (int distance = TO / 2; distance >= FROM; distance /= 2) s = M::combine(s, exchange(s, distance));
    return s;
}
