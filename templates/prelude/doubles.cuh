// ---- doubles: the parts of the prelude that a kernel with doubles needs ----
DEVICE double widen(double x) { return x; }
template <> struct Narrow<double> { static constexpr bool IN_PAIRS = false; static DEVICE double of(double x) { return x; } };

// Rounds to single precision to odd: an inexact result becomes the neighbour whose last bit is 1. So rounding again, to 16
// bits, equals a single rounding.
DEVICE float to_odd(double x) {
    const float near = float(x);
    const u32 bits = __float_as_uint(near);
    if (x != x || double(near) == x || (bits & 1u) != 0) return near;
    return __uint_as_float(fabs(double(near)) > fabs(x) ? bits - 1u : bits + 1u);
}

// Minimum and maximum that propagate NaN. Equal numbers differ at most in the sign of zeros: the larger is -0 only if both are.
DEVICE double max_nan(double a, double b) {
    if (a != a || b != b) return a + b;
    if (a == b) return __longlong_as_double(__double_as_longlong(a) & __double_as_longlong(b));
    return a > b ? a : b;
}
DEVICE double min_nan(double a, double b) {
    if (a != a || b != b) return a + b;
    if (a == b) return __longlong_as_double(__double_as_longlong(a) | __double_as_longlong(b));
    return a < b ? a : b;
}
// The same, but a number wins over a NaN.
DEVICE double max_num(double a, double b) { return a != a ? b : b != b ? a : max_nan(a, b); }
DEVICE double min_num(double a, double b) { return a != a ? b : b != b ? a : min_nan(a, b); }
DEVICE double sign(double x) { return x > 0.0 ? 1.0 : x < 0.0 ? -1.0 : x != x ? x : 0.0; }
// Rounds towards zero and saturates; NaN becomes 0.
DEVICE int to_int(double x) {
    return x != x ? 0 : x >= 2147483647.0 ? 2147483647 : x <= -2147483648.0 ? -2147483647 - 1 : int(x);
}
DEVICE double offset_of(double largest) { return largest; }
DEVICE double power_less(double x, double offset) { return exp(x - offset); }
DEVICE double log_of(double sum, double, double) { return log(sum); }
