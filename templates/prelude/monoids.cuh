// ---- monoids: the operators of reductions. A state is the combination of some elements; `take` adds one element, and `result`
// converts the state of `count` elements into the result ----
template <class T> struct Sum;
template <> struct Sum<float> {
    using State = float;
    static DEVICE State identity() { return 0.0f; }
    static DEVICE void take(State& s, float x) { s += x; }
    static DEVICE void take(State& s, float a, float b) { s = fmaf(a, b, s); }   // the product is not rounded
    static DEVICE State combine(State a, State b) { return a + b; }
    static DEVICE float result(State s, float) { return s; }
};
template <> struct Sum<int> {
    using State = int;
    static DEVICE State identity() { return 0; }
    static DEVICE void take(State& s, int x) { s = wrap_add(s, x); }
    static DEVICE State combine(State a, State b) { return wrap_add(a, b); }
    static DEVICE int result(State s, float) { return s; }
};

template <class T> struct Product;
template <> struct Product<float> {
    using State = float;
    static DEVICE State identity() { return 1.0f; }
    static DEVICE void take(State& s, float x) { s *= x; }
    static DEVICE State combine(State a, State b) { return a * b; }
    static DEVICE float result(State s, float) { return s; }
};
template <> struct Product<int> {
    using State = int;
    static DEVICE State identity() { return 1; }
    static DEVICE void take(State& s, int x) { s = wrap_mul(s, x); }
    static DEVICE State combine(State a, State b) { return wrap_mul(a, b); }
    static DEVICE int result(State s, float) { return s; }
};

// For numbers, NaN wins. For conditions, the maximum is whether any holds, and the minimum whether all do.
template <class T> struct Max;
template <> struct Max<float> {
    using State = float;
    static DEVICE State identity() { return __uint_as_float(0xff800000u); }
    static DEVICE void take(State& s, float x) { s = max_nan(s, x); }
    static DEVICE State combine(State a, State b) { return max_nan(a, b); }
    static DEVICE float result(State s, float) { return s; }
};
template <> struct Max<int> {
    using State = int;
    static DEVICE State identity() { return -2147483647 - 1; }
    static DEVICE void take(State& s, int x) { s = max(s, x); }
    static DEVICE State combine(State a, State b) { return max(a, b); }
    static DEVICE int result(State s, float) { return s; }
};
template <> struct Max<bool> {
    using State = int;
    static DEVICE State identity() { return 0; }
    static DEVICE void take(State& s, bool x) { s |= int(x); }
    static DEVICE State combine(State a, State b) { return a | b; }
    static DEVICE bool result(State s, float) { return s != 0; }
};

template <class T> struct Min;
template <> struct Min<float> {
    using State = float;
    static DEVICE State identity() { return __uint_as_float(0x7f800000u); }
    static DEVICE void take(State& s, float x) { s = min_nan(s, x); }
    static DEVICE State combine(State a, State b) { return min_nan(a, b); }
    static DEVICE float result(State s, float) { return s; }
};
template <> struct Min<int> {
    using State = int;
    static DEVICE State identity() { return 2147483647; }
    static DEVICE void take(State& s, int x) { s = min(s, x); }
    static DEVICE State combine(State a, State b) { return min(a, b); }
    static DEVICE int result(State s, float) { return s; }
};
template <> struct Min<bool> {
    using State = int;
    static DEVICE State identity() { return 1; }
    static DEVICE void take(State& s, bool x) { s &= int(x); }
    static DEVICE State combine(State a, State b) { return a & b; }
    static DEVICE bool result(State s, float) { return s != 0; }
};

// The least integer has no absolute value, so it counts as the largest integer.
template <class T> struct AbsMax;
template <> struct AbsMax<float> {
    using State = float;
    static DEVICE State identity() { return 0.0f; }
    static DEVICE void take(State& s, float x) { s = max_nan(s, fabsf(x)); }
    static DEVICE State combine(State a, State b) { return max_nan(a, b); }
    static DEVICE float result(State s, float) { return s; }
};
// The same of numbers that are never below zero. Integers with their bits are in the same order, and NaN is the largest of them.
// Three integers are compared at once.
struct MaxOfSizes : AbsMax<float> {
    static DEVICE void take(State& s, float x) { s = __int_as_float(max(__float_as_int(s), __float_as_int(x))); }
};
template <> struct AbsMax<int> {
    using State = int;
    static DEVICE State identity() { return 0; }
    static DEVICE void take(State& s, int x) { s = max(s, x >= 0 ? x : x == -2147483647 - 1 ? 2147483647 : -x); }
    static DEVICE State combine(State a, State b) { return max(a, b); }
    static DEVICE int result(State s, float) { return s; }
};

// log(sum of e^x), as the largest exponent and the sum of e^(x - largest). Selects replace branches: they compile in a third of
// the time.
{% if fast -%}
// Powers are those of 2, less a rounded offset: one fused multiply-add. The sum belongs to this offset, and the result
// has what rounding took from it.
DEVICE float offset_of(float largest) { return largest * 1.4426950408889634f; }
DEVICE float power_less(float x, float offset) { return exp2_fast(fmaf(x, 1.4426950408889634f, -offset)); }
DEVICE float log_of(float sum, float largest, float offset) {
    return 0.6931471805599453f * (log2_fast(sum) - fmaf(largest, 1.4426950408889634f, -offset));
}
{% else %}DEVICE float offset_of(float largest) { return largest; }
DEVICE float power_less(float x, float offset) { return expf(x - offset); }
DEVICE float log_of(float sum, float, float) { return logf(sum); }
{% endif -%}
// What is infinite counts as 0, so that infinities have a difference.
template <class T> DEVICE T finite_or_zero(T x) { return x == Max<T>::identity() || x == Min<T>::identity() ? T(0) : x; }
template <class T> struct Exponentials { T largest, sum; };
template <class T> struct LogSumExp {
    using State = Exponentials<T>;
    static DEVICE State identity() { return {Max<T>::identity(), T(0)}; }
    static DEVICE void take(State& s, T x) {
        const T one[1] = {x};
        take_all(s, one);
    }
    // Elements together, of which the first so many count: one rescaling for all.
    template <int COUNT> static DEVICE void take_all(State& s, const T (&x)[COUNT], int inside = COUNT) {
        const State before = s;
        foresee(s, x, inside);
        s.sum = scaled(before, s.largest);
        take_foreseen(s, x, inside);
    }
    // The same in two steps, for elements that stay at hand: no rescaling.
    template <int COUNT> static DEVICE void foresee(State& s, const T (&x)[COUNT], int inside = COUNT) {
#pragma unroll
        for (int i = 0; i < COUNT; ++i) Max<T>::take(s.largest, i < inside ? x[i] : identity().largest);
    }
    template <int COUNT> static DEVICE void take_foreseen(State& s, const T (&x)[COUNT], int inside = COUNT) {
        const T offset = offset_of(finite_or_zero(s.largest));
#pragma unroll
        for (int i = 0; i < COUNT; ++i) s.sum += power_less(i < inside ? x[i] : identity().largest, offset);
    }
    static DEVICE State combine(State a, State b) {
        const T largest = max_nan(a.largest, b.largest);
        return {largest, scaled(a, largest) + scaled(b, largest)};
    }
    static DEVICE T result(State s, T) {
        const T largest = finite_or_zero(s.largest);
        return largest + log_of(s.sum, largest, offset_of(largest));
    }
    // The sum for another largest exponent. A state without elements has no distance from it.
    static DEVICE T scaled(State s, T largest) {
        const T power = power_less(s.largest, offset_of(finite_or_zero(largest)));
        return s.sum * (s.largest == largest ? T(1) : power);
    }
};

// Mean and variance: a count, a shift, and the sums of distances from it and of their squares. The shift is the mean of the first
// elements that a thread takes together: sums of squares lose their digits where elements lie far from zero, and these lie near.
// States are combined about the mean of one of them, as Chan et al. (1979) do about that of all.
DEVICE float near_quotient(float a, float b) { return __fdividef(a, b); }
DEVICE double near_quotient(double a, double b) { return a / b; }
template <class T> struct Moments { T count, shift, sum, squares; };
template <class T> struct Variance {
    using State = Moments<T>;
    static DEVICE State identity() { return {T(0), T(0), T(0), T(0)}; }
    static DEVICE void take(State& s, T x) {
        s.shift = s.count == T(0) ? x : s.shift;
        add(s, x - s.shift);
        s.count += T(1);
    }
    // Elements together, of which the first so many count.
    template <int COUNT> static DEVICE void take_all(State& s, const T (&x)[COUNT], int inside = COUNT) {
        s.shift = s.count == T(0) && inside > 0 ? centre(x, inside) : s.shift;
#pragma unroll
        for (int i = 0; i < COUNT; ++i) add(s, i < inside ? x[i] - s.shift : T(0));
        s.count += T(inside);
    }
    // Their mean, and exactly their value if all are equal: the first stands for those that do not count, and nothing is rounded
    // where halves are added. It is finite, so that the mean of infinite elements is infinite.
    template <int COUNT> static DEVICE T centre(const T (&x)[COUNT], int inside) {
        static_assert((COUNT & COUNT - 1) == 0, "halves have equally many elements");
        T sums[COUNT];
#pragma unroll
        for (int i = 0; i < COUNT; ++i) sums[i] = (i < inside ? x[i] : x[0]) * (T(1) / T(COUNT));
#pragma unroll
        for (int half = COUNT / 2; half > 0; half /= 2)
#pragma unroll
            for (int i = 0; i < half; ++i) sums[i] += sums[i + half];
        return finite_or_zero(sums[0]);
    }
    static DEVICE State combine(State a, State b) {
        const T shift = middle(a.count == T(0) ? b : a);
        const State x = about(a, shift), y = about(b, shift);
        return {x.count + y.count, shift, x.sum + y.sum, x.squares + y.squares};
    }
    static DEVICE T result(State s, T count) {
        const T share = T(1) / count, squares = fma(-s.sum * share, s.sum, s.squares);
        return (squares < T(0) ? T(0) : squares) * share;
    }
    static DEVICE T beside(State s, T count) { return fma(s.sum, T(1) / count, s.shift); }
    // The mean within rounding, or 0 if it is infinite.
    static DEVICE T middle(State s) { return finite_or_zero(s.shift + near_quotient(s.sum, s.count > T(1) ? s.count : T(1))); }
    // The same elements with another shift.
    static DEVICE State about(State s, T shift) {
        const T moved = s.shift - shift;
        return {s.count, shift, fma(s.count, moved, s.sum), fma(moved, fma(s.count, moved, s.sum + s.sum), s.squares)};
    }

private:
    static DEVICE void add(State& s, T distance) {
        s.sum += distance;
        s.squares = fma(distance, distance, s.squares);
    }
};

// Sums that transform their elements or their result.
template <class T> struct Mean : Sum<T> {
    static DEVICE float result(float s, float count) { return s / count; }
};
template <class T> struct SumSquares : Sum<T> {
    static DEVICE void take(float& s, float x) { s = fmaf(x, x, s); }
};
template <class T> struct Norm2 : SumSquares<T> {
    static DEVICE float result(float s, float) { return sqrtf(s); }
};
template <class T> struct Count : Sum<int> {
    static DEVICE void take(int& s, bool x) { s = wrap_add(s, int(x)); }
};

// A value and its index. NaN precedes any number, and among equal values the least index wins.
template <class T> struct Indexed { T value; int index; };
template <class T, bool LARGEST> struct Best {
    using State = Indexed<T>;
    static DEVICE State combine(State a, State b) {
        const bool a_nan = a.value != a.value, b_nan = b.value != b.value;
        const bool better = LARGEST ? b.value > a.value : b.value < a.value;
        const bool second = a.value == b.value || (a_nan && b_nan) ? b.index < a.index : !a_nan && (b_nan || better);
        return {second ? b.value : a.value, second ? b.index : a.index};
    }
    static DEVICE void take(State& s, T x, int index) { s = combine(s, State{x, index}); }
    static DEVICE int result(State s, float) { return s.index; }
};
template <class T> struct ArgMax : Best<T, true> {
    static DEVICE Indexed<T> identity() { return {Max<T>::identity(), 2147483647}; }
};
template <class T> struct ArgMin : Best<T, false> {
    static DEVICE Indexed<T> identity() { return {Min<T>::identity(), 2147483647}; }
};

// Takes an element if a condition holds. States of several words are selected: with a branch for each element of a thread,
// ptxas takes several times as long.
template <class M, class... X> DEVICE void take_if(bool holds, typename M::State& s, X... x) {
    if constexpr (sizeof(s) == 4) {
        if (holds) M::take(s, x...);
    } else {
        typename M::State taken = s;
        M::take(taken, x...);
        const u32* const from = reinterpret_cast<const u32*>(&taken);
        u32* const to = reinterpret_cast<u32*>(&s);
#pragma unroll
        for (int i = 0; i < int(sizeof(s) / 4); ++i) to[i] = holds ? from[i] : to[i];
    }
}
