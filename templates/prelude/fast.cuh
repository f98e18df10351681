// ---- fast: spellings for results that are stored as 16 bits ----
// Special-function instructions run at an eighth of the rate of multiply-adds, so a form has at most two of them, and no branch.
// Near a zero of a function the form keeps the value's digits. Both arms of a choice are computed before it: an arm inside the
// choice becomes a branch for each element, which costs more than both arms.
//
// Polynomials are minimax fits: linear programming on 300 to 800 Chebyshev points in double precision, weighted by the error
// relative to the function. The stated error is that of the fit alone. The table's bounds include what instructions and
// roundings add.
DEVICE float exp2_fast(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
DEVICE float log2_fast(float x) {
    float y;
    asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
DEVICE float recip_fast(float x) {
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
DEVICE float sqrt_fast(float x) {
    float y;
    asm("sqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
DEVICE float rsqrt_fast(float x) {
    float y;
    asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
DEVICE float tanh_fast(float x) {
    float y;
    asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// Exponentials and logarithms.
DEVICE float exp_fast(float x) { return exp2_fast(x * 1.4426950408889634f); }
DEVICE float exp10_fast(float x) { return exp2_fast(x * 3.3219280948873623f); }
DEVICE float log_fast(float x) { return log2_fast(x) * 0.6931471805599453f; }
DEVICE float log10_fast(float x) { return log2_fast(x) * 0.3010299956639812f; }
// Below 1/16: x plus a cubic times x^2, to 5.3e-7.
DEVICE float log1p_fast(float x) {
    const float near = fmaf(x * x, fmaf(x, fmaf(x, -0.2506938f, 0.3339821f), -0.49999958f), x);
    const float far = log_fast(1.0f + x);
    return fabsf(x) < 0.0625f ? near : far;
}
// Below 2^-7 x + x^2 / 2, to 1.1e-5; above, the difference has lost 2e-5 at most.
DEVICE float expm1_fast(float x) {
    const float near = fmaf(x * 0.5f, x, x);
    const float far = exp_fast(x) - 1.0f;
    return fabsf(x) < 0.0078125f ? near : far;
}

// Powers and roots.
// The sign of a power of a negative number is that of the exponent's last bit. The sum below leaves this bit at the end of its
// significand.
DEVICE float pow_fast(float x, float y) {
    const float size = exp2_fast(y * log2_fast(fabsf(x)));
    const float shifted = y + 12582912.0f;
    const bool whole = shifted - 12582912.0f == y;
    const int sign = whole ? int(__float_as_uint(shifted) << 31) & __float_as_int(x) : 0;
    const float power = x < 0.0f && !whole ? __int_as_float(0x7fffffff) : __int_as_float(__float_as_int(size) | sign);
    return y == 0.0f ? 1.0f : power;
}
DEVICE float cbrt_fast(float x) { return copysignf(exp2_fast(log2_fast(fabsf(x)) * 0.33333334f), x); }
DEVICE float rcbrt_fast(float x) { return copysignf(exp2_fast(log2_fast(fabsf(x)) * -0.33333334f), x); }
DEVICE float hypot_fast(float x, float y) { return sqrt_fast(fmaf(x, x, y * y)); }

// The error function: 1 - 2^Q(|x|) to 6.8e-6. The weight of this fit includes GELU, whose tail is -|x| (1 - erf(|x| / sqrt(2)))
// / 2: there the error is at most 1.6 units of f16. Below 0.01: a line, to 1.7e-5.
DEVICE float erf_fast(float x) {
    const float a = fabsf(x);
    const float q = fmaf(a, fmaf(a, fmaf(a, fmaf(a, -0.0026378741f, 0.028586224f), -0.1477952f), -0.91868716f), -1.6278961f);
    const float near = x * 1.1283604f, far = copysignf(1.0f - exp2_fast(a * q), x);
    return a < 0.01f ? near : far;
}
// t P(t) e^(-x^2) with t = 1 / (1 + |x| / 2), to 1.4e-6.
DEVICE float erfc_fast(float x) {
    const float a = fabsf(x);
    const float t = recip_fast(fmaf(a, 0.5f, 1.0f));
    float p = fmaf(t, fmaf(t, fmaf(t, 0.08820445f, -0.35673857f), 0.38922495f), 0.037890453f);
    p = t * fmaf(t, fmaf(t, fmaf(t, p, 0.2815038f), 0.27758214f), 0.2823314f);
    const float y = p * exp2_fast(a * -1.4426950408889634f * a);
    return x < 0.0f ? 2.0f - y : y;
}
// 2^Q(|x|) is the tail, to 1.4e-5 down to -7; below, it vanishes a little too soon.
DEVICE float normcdf_fast(float x) {
    const float a = fabsf(x);
    float q = fmaf(a, fmaf(a, fmaf(a, -1.5882525e-6f, 5.6154116e-5f), -8.8322068e-4f), 0.0083032297f);
    q = fmaf(a, fmaf(a, fmaf(a, fmaf(a, q, -0.053501289f), -0.45896447f), -1.1510355f), -1.0000139f);
    const float tail = exp2_fast(q), rest = 1.0f - tail;
    return x < 0.0f ? tail : rest;
}
// x P(w) with w = -log2(1 - x^2), to 2.2e-5. From w = 7 on: x Q(sqrt(w)), to 4.8e-5.
DEVICE float erfinv_fast(float x) {
    const float l = log2_fast(fmaf(-x, x, 1.0f)), s = sqrt_fast(-l);
    const float near = fmaf(l, fmaf(l, fmaf(l, fmaf(l, 4.276711e-5f, 0.0010411665f), 0.0059595707f), -0.1605944f), 0.88624597f);
    const float far = fmaf(s, fmaf(s, fmaf(s, fmaf(s, 0.002696551f, -0.045271084f), 0.2861329f), 0.031240638f), 0.66865116f);
    return x * (l > -7.0f ? near : far);
}

// A polynomial of r, clamped to -1 and 1, with the sign of the half turns. If x is too large for k, r lies outside of its
// interval.
DEVICE float turned(float y, float rounded) {
    return __int_as_float(__float_as_int(max_nan(min_nan(y, 1.0f), -1.0f)) ^ int(__float_as_uint(rounded) << 31));
}
// Sine over half turns: x = k pi + r, and an odd polynomial in r, to 1.2e-6. Adding 1.5 * 2^23 rounds to an integer, whose last
// bit is the sign.
DEVICE float sine(float r, float rounded) {
    const float z = r * r;
    return turned(fmaf(r * z, fmaf(z, fmaf(z, -0.00018542097f, 0.0083142705f), -0.16665854f), r), rounded);
}
DEVICE float sin_fast(float x) {
    const float rounded = fmaf(x, 0.3183098861837907f, 12582912.0f);
    const float k = rounded - 12582912.0f;
    return sine(fmaf(k, 8.742278e-8f, fmaf(k, -3.1415927f, x)), rounded);
}
// The same, relative to the zeros of cosine, which are half integers times pi.
DEVICE float cos_fast(float x) {
    const float rounded = fmaf(x, 0.3183098861837907f, 0.5f) + 12582912.0f;
    const float k = rounded - 12582912.0f - 0.5f;
    return sine(fmaf(k, 8.742278e-8f, fmaf(k, -3.1415927f, x)), rounded);
}
// The same over half turns of x, whose reduction is exact: r (pi + r^2 P(r^2)), to 9.4e-7.
DEVICE float sine_pi(float r, float rounded) {
    const float z = r * r;
    return turned(r * fmaf(z, fmaf(z, fmaf(z, -0.5583961f, 2.5436049f), -5.167368f), 3.1415896f), rounded);
}
DEVICE float sinpi_fast(float x) {
    const float rounded = x + 12582912.0f;
    return sine_pi(x - (rounded - 12582912.0f), rounded);
}
DEVICE float cospi_fast(float x) {
    const float rounded = x + 0.5f + 12582912.0f;
    return sine_pi(x - (rounded - 12582912.0f - 0.5f), rounded);
}
// Tangent over quarter turns: x = k pi/2 + r. For odd k it is -1 / tan(r). An odd polynomial in r, to 3.6e-6.
DEVICE float tan_fast(float x) {
    const float rounded = fmaf(x, 0.6366197723675814f, 12582912.0f);
    const float k = rounded - 12582912.0f;
    const float r = fmaf(k, 4.371139e-8f, fmaf(k, -1.5707964f, x));
    const float z = r * r;
    const float y = fmaf(r * z, fmaf(z, fmaf(z, fmaf(z, 0.0430919677f, 0.0413953066f), 0.136066034f), 0.333154261f), r);
    const float turned = recip_fast(-y);
    return (__float_as_uint(rounded) & 1u) != 0u ? turned : y;
}

// Inverse functions. Up to 1/2: an odd polynomial, to 1.8e-6. Beyond: asin(x) = pi/2 - 2 asin(sqrt((1 - x) / 2)).
DEVICE float asin_fast(float x) {
    const float a = fabsf(x);
    const bool far = a > 0.5f;
    const float z = far ? fmaf(a, -0.5f, 0.5f) : a * a;
    const float root = sqrt_fast(z), s = far ? root : a;
    const float y = fmaf(s * z, fmaf(z, fmaf(z, 0.064107306f, 0.0718998f), 0.16680126f), s);
    return copysignf(far ? fmaf(y, -2.0f, 1.5707963267948966f) : y, x);
}
// sqrt(1 - |x|) P(|x|), to 7.5e-7.
DEVICE float acos_fast(float x) {
    const float a = fabsf(x);
    float y = fmaf(a, fmaf(a, fmaf(a, -0.0043070512f, 0.019273333f), -0.04489209f), 0.08785259f);
    y = sqrt_fast(1.0f - a) * fmaf(a, fmaf(a, y, -0.21450943f), 1.5707952f);
    return x < 0.0f ? 3.141592653589793f - y : y;
}
// From 0 to 1: an odd polynomial, to 7.4e-7.
DEVICE float arctangent(float t) {
    const float z = t * t;
    float y = fmaf(z, fmaf(z, fmaf(z, 0.008106374f, -0.037796736f), 0.08484105f), -0.13544576f);
    y = fmaf(z, fmaf(z, y, 0.19897874f), -0.3332849f);
    return fmaf(t * z, y, t);
}
DEVICE float atan_fast(float x) {
    const float a = fabsf(x);
    const bool far = a > 1.0f;
    const float inverse = recip_fast(a), y = arctangent(far ? inverse : a);
    return copysignf(far ? 1.5707963267948966f - y : y, x);
}
DEVICE float atan2_fast(float y, float x) {
    const float a = fabsf(y), b = fabsf(x);
    const float longer = max_nan(max_nan(a, b), 1e-37f);
    const float t = arctangent(min_nan(a, b) * recip_fast(longer));
    const float up = a > b ? 1.5707963267948966f - t : t;
    return copysignf(__float_as_int(x) < 0 ? 3.141592653589793f - up : up, y);
}

// Hyperbolic functions. Below 1/2: x + x^3 P(x^2), to 1.2e-7.
DEVICE float sinh_fast(float x) {
    const float z = x * x;
    const float near = fmaf(x * z, fmaf(z, 0.0084024575f, 0.16666134f), x);
    const float far = exp2_fast(fmaf(x, 1.4426950408889634f, -1.0f)) - exp2_fast(fmaf(x, -1.4426950408889634f, -1.0f));
    return fabsf(x) < 0.5f ? near : far;
}
DEVICE float cosh_fast(float x) {
    return exp2_fast(fmaf(x, 1.4426950408889634f, -1.0f)) + exp2_fast(fmaf(x, -1.4426950408889634f, -1.0f));
}
// Below 1/2: x + x^3 P(x^2), to 7.4e-7. Beyond: log((|x| + sqrt(x^2 + 1)) / 2) + log(2). From 2^62 on the square could
// overflow.
DEVICE float asinh_fast(float x) {
    const float a = fabsf(x), z = x * x;
    const float near = fmaf(x * z, fmaf(z, fmaf(z, -0.033061378f, 0.07345596f), -0.16660587f), x);
    const float root = a < 4.611686e18f ? sqrt_fast(z + 1.0f) : a;
    const float far = fmaf(log2_fast(fmaf(root, 0.5f, 0.5f * a)), 0.6931471805599453f, 0.6931471805599453f);
    return a < 0.5f ? near : copysignf(far, x);
}
// With e = x - 1: log1p(e + sqrt(e (x + 1))). Below -1 the maximum passes log1p an argument outside of its domain, so the
// result is NaN.
DEVICE float acosh_fast(float x) {
    const float e = x - 1.0f;
    const float root = e < 4.611686e18f ? sqrt_fast(e * fmaxf(x + 1.0f, 0.0f)) : e;
    return log1p_fast(e + root);
}
// Below 1/5: x + x^3 P(x^2), to 3.8e-7.
DEVICE float atanh_fast(float x) {
    const float z = x * x;
    const float near = fmaf(x * z, fmaf(z, 0.20824468f, 0.33323005f), x);
    const float far = (log2_fast(1.0f + x) - log2_fast(1.0f - x)) * 0.34657359027997264f;
    return fabsf(x) < 0.2f ? near : far;
}
