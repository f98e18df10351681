// ---- monoids: what reductions combine with. A state is what some elements have come to; `take` takes one more in ----
template <class T> struct Sum;
template <> struct Sum<float> {
    using State = float;
    static DEVICE State identity() { return 0.0f; }
    static DEVICE void take(State& s, float x) { s += x; }
    static DEVICE void take(State& s, float a, float b) { s = fmaf(a, b, s); }   // the product is not rounded
    static DEVICE State combine(State a, State b) { return a + b; }
    static DEVICE float result(State s) { return s; }
};
template <> struct Sum<int> {
    using State = int;
    static DEVICE State identity() { return 0; }
    static DEVICE void take(State& s, int x) { s = wrap_add(s, x); }
    static DEVICE State combine(State a, State b) { return wrap_add(a, b); }
    static DEVICE int result(State s) { return s; }
};

template <class T> struct Product;
template <> struct Product<float> {
    using State = float;
    static DEVICE State identity() { return 1.0f; }
    static DEVICE void take(State& s, float x) { s *= x; }
    static DEVICE State combine(State a, State b) { return a * b; }
    static DEVICE float result(State s) { return s; }
};
template <> struct Product<int> {
    using State = int;
    static DEVICE State identity() { return 1; }
    static DEVICE void take(State& s, int x) { s = wrap_mul(s, x); }
    static DEVICE State combine(State a, State b) { return wrap_mul(a, b); }
    static DEVICE int result(State s) { return s; }
};

// Of numbers NaN wins. Of conditions the largest is whether any holds, the smallest whether all do.
template <class T> struct Max;
template <> struct Max<float> {
    using State = float;
    static DEVICE State identity() { return __uint_as_float(0xff800000u); }
    static DEVICE void take(State& s, float x) { s = max_nan(s, x); }
    static DEVICE State combine(State a, State b) { return max_nan(a, b); }
    static DEVICE float result(State s) { return s; }
};
template <> struct Max<int> {
    using State = int;
    static DEVICE State identity() { return -2147483647 - 1; }
    static DEVICE void take(State& s, int x) { s = max(s, x); }
    static DEVICE State combine(State a, State b) { return max(a, b); }
    static DEVICE int result(State s) { return s; }
};
template <> struct Max<bool> {
    using State = int;
    static DEVICE State identity() { return 0; }
    static DEVICE void take(State& s, bool x) { s |= int(x); }
    static DEVICE State combine(State a, State b) { return a | b; }
    static DEVICE bool result(State s) { return s != 0; }
};

template <class T> struct Min;
template <> struct Min<float> {
    using State = float;
    static DEVICE State identity() { return __uint_as_float(0x7f800000u); }
    static DEVICE void take(State& s, float x) { s = min_nan(s, x); }
    static DEVICE State combine(State a, State b) { return min_nan(a, b); }
    static DEVICE float result(State s) { return s; }
};
template <> struct Min<int> {
    using State = int;
    static DEVICE State identity() { return 2147483647; }
    static DEVICE void take(State& s, int x) { s = min(s, x); }
    static DEVICE State combine(State a, State b) { return min(a, b); }
    static DEVICE int result(State s) { return s; }
};
template <> struct Min<bool> {
    using State = int;
    static DEVICE State identity() { return 1; }
    static DEVICE void take(State& s, bool x) { s &= int(x); }
    static DEVICE State combine(State a, State b) { return a & b; }
    static DEVICE bool result(State s) { return s != 0; }
};

// The least integer counts as the largest: it has no absolute value.
template <class T> struct AbsMax;
template <> struct AbsMax<float> {
    using State = float;
    static DEVICE State identity() { return 0.0f; }
    static DEVICE void take(State& s, float x) { s = max_nan(s, fabsf(x)); }
    static DEVICE State combine(State a, State b) { return max_nan(a, b); }
    static DEVICE float result(State s) { return s; }
};
template <> struct AbsMax<int> {
    using State = int;
    static DEVICE State identity() { return 0; }
    static DEVICE void take(State& s, int x) { s = max(s, x >= 0 ? x : x == -2147483647 - 1 ? 2147483647 : -x); }
    static DEVICE State combine(State a, State b) { return max(a, b); }
    static DEVICE int result(State s) { return s; }
};

// log(sum of e^x) as the largest exponent and the sum of e^(x - largest). Selects for branches: these compile in a third of the time.
struct Exponentials { float largest, sum; };
template <class T> struct LogSumExp;
template <> struct LogSumExp<float> {
    using State = Exponentials;
    static DEVICE State identity() { return {__uint_as_float(0xff800000u), 0.0f}; }
    static DEVICE void take(State& s, float x) {
        // Equal infinities have no difference. NaN is not above, and goes into the sum.
        const float power = expf(-fabsf(x - s.largest)), smaller = x == s.largest ? 1.0f : power;
        const bool above = x > s.largest;
        s.sum = fmaf(above ? s.sum : smaller, above ? smaller : 1.0f, above ? 1.0f : s.sum);
        s.largest = above ? x : s.largest;
    }
    static DEVICE State combine(State a, State b) {
        const float largest = max_nan(a.largest, b.largest);
        return {largest, scaled(a, largest) + scaled(b, largest)};
    }
    static DEVICE float result(State s) { return s.largest + logf(s.sum); }

private:
    static DEVICE float scaled(State s, float largest) {
        const float power = expf(s.largest - largest);
        return s.sum * (s.largest == largest ? 1.0f : power);
    }
};
