// Combines lanes at distances from ROW_LANES, or FROM, up to a whole warp, or TO. Every lane ends with the same state.
template <class M, int FROM, int TO> DEVICE typename M::State fold_each(typename M::State s) {
#pragma unroll
    for (int distance = TO / 2; distance >= FROM; distance /= 2) s = M::combine(s, exchange(s, distance));
    return s;
}
template <class M, int FROM, int TO> struct Lanes {
    static DEVICE typename M::State fold(typename M::State s) { return fold_each<M, FROM, TO>(s); }
};
template <class M, int FROM, int TO> DEVICE typename M::State fold_lanes(typename M::State s) {
    return Lanes<M, FROM, TO>::fold(s);
}
// Some lanes agree on a number first. With the largest exponent of all each rescales its sum once, and with the mean of the first
// lane their sums of distances are just added.
template <class M> constexpr bool AGREES = false;
template <class T> constexpr bool AGREES<LogSumExp<T>> = true;
template <class T> constexpr bool AGREES<Variance<T>> = true;
template <class T, int FROM, int TO> struct Lanes<LogSumExp<T>, FROM, TO> {
    static DEVICE Exponentials<T> fold(Exponentials<T> s) {
        const T largest = fold_each<Max<T>, FROM, TO>(s.largest);
        return {largest, fold_each<Sum<T>, FROM, TO>(LogSumExp<T>::scaled(s, largest))};
    }
};
template <class T, int FROM, int TO> struct Lanes<Variance<T>, FROM, TO> {
    static DEVICE Moments<T> fold(Moments<T> s) {
        const T shift = __shfl_sync(~0u, Variance<T>::middle(s), threadIdx.x & (32 - TO | FROM - 1));
        s = Variance<T>::about(s, shift);
        return {fold_each<Sum<T>, FROM, TO>(s.count), shift, fold_each<Sum<T>, FROM, TO>(s.sum),
                fold_each<Sum<T>, FROM, TO>(s.squares)};
    }
};
// Combines lanes at distances from DISTANCE down to FROM, where each has COUNT states. Each step halves the states that a lane
// holds, as long as it holds more than one. `first` grows by the number of the first state that this lane is left with.
template <class M, int COUNT, int DISTANCE, int FROM> DEVICE void fold_apart(typename M::State* s, int thread, int& first) {
    if constexpr (DISTANCE >= FROM && DISTANCE > 0) {
        constexpr int HALF = COUNT > 1 ? COUNT / 2 : 1;
        const bool upper = COUNT > 1 && (thread & DISTANCE) != 0;
#pragma unroll
        for (int i = 0; i < HALF; ++i) {
            const typename M::State given = COUNT > 1 && !upper ? s[i + HALF % COUNT] : s[i];
            const typename M::State kept = upper ? s[i + HALF % COUNT] : s[i];
            s[i] = M::combine(kept, exchange(given, DISTANCE));
        }
        if (upper) first += HALF;
        fold_apart<M, HALF, DISTANCE / 2, FROM>(s, thread, first);
    }
}
