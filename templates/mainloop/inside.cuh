// Whether strips inside of the matrix are read and written at once.
DEVICE bool is_wide(const Params& p) {
    return true{% for load in column_loads %}{% if load.wide != "0" %} && {{ load.wide }} != 0{% endif %}{% endfor -%}
{% for load in fetches %}{% if load.wide != "0" %} && {{ load.wide }} != 0{% endif %}{% endfor -%}
{% for store in stores %}{% if store.wide != "0" %} && {{ store.wide }} != 0{% endif %}{% endfor %};
}
// The same parameters, where a tile lies inside of the matrix and strips are wide. The compiler sees constants: without
// branches it has the loads of all strips in flight together.
DEVICE Params inside(Params p) {
{% if mainloop != "pointwise" and mainloop != "depthwise_lines" and mainloop != "bands" and not bands %}    p.n = BN;
{% endif %}{% for load in column_loads %}{% if load.wide != "0" %}    {{ load.wide }} = 1;
{% endif %}{% endfor -%}
{% for load in fetches %}{% if load.wide != "0" %}    {{ load.wide }} = 1;
{% endif %}{% endfor -%}
{% for store in stores %}{% if store.wide != "0" %}    {{ store.wide }} = 1;
{% endif %}{% endfor %}    return p;
}
template <bool INSIDE> DEVICE void assume(const Params& p, const Strip& s) {
    if constexpr (INSIDE) {
        __builtin_assume(s.row < p.m);
        __builtin_assume(p.n - s.column >= STRIP);
        __builtin_assume(s.column + (STRIP - 1) < p.n);
    }
}

