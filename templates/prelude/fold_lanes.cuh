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
// The largest exponent of all lanes comes first, so that each rescales its sum once.
template <class M> constexpr bool FOLDS_TWICE = false;
template <class T> constexpr bool FOLDS_TWICE<LogSumExp<T>> = true;
template <class T, int FROM, int TO> struct Lanes<LogSumExp<T>, FROM, TO> {
    static DEVICE Exponentials<T> fold(Exponentials<T> s) {
        const T largest = fold_each<Max<T>, FROM, TO>(s.largest);
        return {largest, fold_each<Sum<T>, FROM, TO>(LogSumExp<T>::scaled(s, largest))};
    }
};
