// ---- scales along K: an element of an operand with blocks is (stored - zero) * scale, by the numbers of its block ----
template <bool IS_A> struct Blocks {
    static constexpr bool SCALED = false, SHIFTED = false;
    static constexpr int LINES = 0;
    template <class P> static DEVICE float scale(const P&, int, int, int) { return 1.0f; }
    template <class P> static DEVICE float zero(const P&, int, int, int) { return 0.0f; }
};
{% for o in scaled %}template <> struct Blocks<{{ o.is_a }}> {
    static constexpr bool SCALED = true, SHIFTED = {{ o.zero }};
    static constexpr int TERMS = {{ o.terms }}, LINES = {{ o.lines }};
    // A line is a row of A or a column of B.
    static DEVICE i64 place(i64 ld, int line, int k) {
        return LINES == 1 ? k / TERMS * ld + line : line / LINES * ld + k / TERMS;
    }
    static DEVICE float scale(const Params& p, int batch, int line, int k) {
        return widen(*address(p, batch, line, k));
    }
    static DEVICE auto address(const Params& p, int batch, int line, int k) -> decltype(p.{{ o.name }}_scale) {
        return p.{{ o.name }}_scale + (batch * p.batch_stride_{{ o.name }}_scale + place(p.{{ o.name }}_scale_ld, line, k));
    }
{% if o.zero %}    static DEVICE auto zero_address(const Params& p, int batch, int line, int k) -> decltype(p.{{ o.name }}_zero) {
        return p.{{ o.name }}_zero + (batch * p.batch_stride_{{ o.name }}_zero + place(p.{{ o.name }}_zero_ld, line, k));
    }
{% endif %}    static DEVICE float zero(const Params& p, int batch, int line, int k) {
        return {% if o.zero %}float(widen(*zero_address(p, batch, line, k))){% else %}0.0f{% endif %};
    }
};
{% endfor %}
