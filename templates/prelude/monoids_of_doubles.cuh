// ---- the same monoids over doubles ----
template <> struct Sum<double> {
    using State = double;
    static DEVICE State identity() { return 0.0; }
    static DEVICE void take(State& s, double x) { s += x; }
    static DEVICE State combine(State a, State b) { return a + b; }
    static DEVICE double result(State s, double) { return s; }
};
template <> struct Product<double> {
    using State = double;
    static DEVICE State identity() { return 1.0; }
    static DEVICE void take(State& s, double x) { s *= x; }
    static DEVICE State combine(State a, State b) { return a * b; }
    static DEVICE double result(State s, double) { return s; }
};
template <> struct Max<double> {
    using State = double;
    static DEVICE State identity() { return __longlong_as_double(0xfff0000000000000ll); }
    static DEVICE void take(State& s, double x) { s = max_nan(s, x); }
    static DEVICE State combine(State a, State b) { return max_nan(a, b); }
    static DEVICE double result(State s, double) { return s; }
};
template <> struct Min<double> {
    using State = double;
    static DEVICE State identity() { return __longlong_as_double(0x7ff0000000000000ll); }
    static DEVICE void take(State& s, double x) { s = min_nan(s, x); }
    static DEVICE State combine(State a, State b) { return min_nan(a, b); }
    static DEVICE double result(State s, double) { return s; }
};
template <> struct AbsMax<double> {
    using State = double;
    static DEVICE State identity() { return 0.0; }
    static DEVICE void take(State& s, double x) { s = max_nan(s, fabs(x)); }
    static DEVICE State combine(State a, State b) { return max_nan(a, b); }
    static DEVICE double result(State s, double) { return s; }
};
template <> struct Mean<double> : Sum<double> {
    static DEVICE double result(double s, double count) { return s / count; }
};
template <> struct SumSquares<double> : Sum<double> {
    static DEVICE void take(double& s, double x) { s = fma(x, x, s); }
};
template <> struct Norm2<double> : SumSquares<double> {
    static DEVICE double result(double s, double) { return sqrt(s); }
};
