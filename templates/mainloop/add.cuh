DEVICE float add(float a, float b) { return a + b; }
DEVICE int add(int a, int b) { return int(u32(a) + u32(b)); }
{% if doubles %}DEVICE double add(double a, double b) { return a + b; }
{% endif -%}
