// ---- math: functions that the table of primitives calls ----
// Wrapping integer arithmetic: signed overflow is undefined in C++, so these functions use unsigned arithmetic.
DEVICE int wrap_add(int a, int b) { return int(u32(a) + u32(b)); }
DEVICE int wrap_sub(int a, int b) { return int(u32(a) - u32(b)); }
DEVICE int wrap_mul(int a, int b) { return int(u32(a) * u32(b)); }
// Division is total: division by zero gives 0, and the one overflow wraps.
DEVICE int divide(int a, int b) { return b == 0 ? 0 : b == -1 ? wrap_sub(0, a) : a / b; }
DEVICE int remainder(int a, int b) { return b == 0 || b == -1 ? 0 : a % b; }
// Quotients that round down, and their remainders.
DEVICE int floor_mod(int a, int b) {
    const int r = remainder(a, b);
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}
DEVICE int floor_div(int a, int b) {
    const int r = remainder(a, b);
    return wrap_sub(divide(a, b), int(r != 0 && (r < 0) != (b < 0)));
}
// Shifts are total: an amount outside of 0 to 31 shifts every bit out.
DEVICE int shift_left(int a, int by) { return u32(by) < 32u ? int(u32(a) << by) : 0; }
DEVICE int shift_right(int a, int by) { return a >> (u32(by) < 32u ? by : 31); }

// Minimum and maximum that propagate NaN: one instruction, in the form that fuses with a conversion to 16 bits.
DEVICE float max_nan(float a, float b) {
#if __CUDA_ARCH__ >= 800
    float y;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
    return y;
#else
    return a != a || b != b ? __int_as_float(0x7fffffff) : fmaxf(a, b);
#endif
}
DEVICE float min_nan(float a, float b) {
#if __CUDA_ARCH__ >= 800
    float y;
    asm("min.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
    return y;
#else
    return a != a || b != b ? __int_as_float(0x7fffffff) : fminf(a, b);
#endif
}
DEVICE float sign(float x) { return x > 0.0f ? 1.0f : x < 0.0f ? -1.0f : x != x ? x : 0.0f; }
// Rounds towards zero and saturates; NaN becomes 0.
DEVICE int to_int(float x) {
    int y;
    asm("cvt.rzi.s32.f32 %0, %1;" : "=r"(y) : "f"(x));
    return y;
}
DEVICE int to_int(bool x) { return int(x); }
