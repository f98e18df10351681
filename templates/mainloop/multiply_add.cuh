DEVICE float multiply_add(float a, float b, float c) { return __fmaf_rn(a, b, c); }
DEVICE int multiply_add(int a, int b, int c) { return int(u32(a) * u32(b) + u32(c)); }
{% if doubles %}DEVICE double multiply_add(double a, double b, double c) { return __fma_rn(a, b, c); }
{% endif -%}
