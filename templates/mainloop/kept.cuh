// ---- strips that threads keep in shared memory, in the formats of memory: the accumulators of all PLACES, from AT_KEPT on, and
// behind them each matrix that is loaded ----
struct Kept {
    Vector raw[VECTORS];
};
DEVICE void recall(Held& held, int v, int place) {
    const Kept& kept = reinterpret_cast<const Kept*>(smem + AT_KEPT)[place];
#pragma unroll
    for (int i = 0; i < VECTORS; ++i) held.raw[v][i] = kept.raw[i];
{% if fetches %}    const u8* behind = smem + AT_KEPT + PLACES * sizeof(Kept);
{% for load in fetches %}    held.fetched[v].{{ load.value }} = {# -#}
        reinterpret_cast<const Raw<{{ load.dtype }}, STRIP>*>(behind)[place];
    behind += PLACES * sizeof(Raw<{{ load.dtype }}, STRIP>);
{% endfor %}{% endif %}}

// Whether what is read lies in memory as strips are kept, so that it is copied without registers.
DEVICE constexpr bool is_copied(int bytes) { return bytes == 4 || bytes % 8 == 0; }
constexpr bool COPIES = {% if reads_accumulator %}ACC_ROW_MAJOR && VECTORS == 1 && is_copied(sizeof(Kept)){# -#}
    {% else %}false{% endif %}{# -#}
    {% for load in fetches %} && {# -#}
    {% if load.along_strip and not load.default %}is_copied(sizeof(Raw<{{ load.dtype }}, STRIP>)){# -#}
    {% else %}false{% endif %}{% endfor %};
template <class R> DEVICE void copy(R* to, const void* from) {
    constexpr int CHUNK = sizeof(R) % 16 == 0 ? 16 : sizeof(R) % 8 == 0 ? 8 : 4;
    const u32 address = u32(__cvta_generic_to_shared(to));
#pragma unroll
    for (int at = 0; at < int(sizeof(R)); at += CHUNK) copy_async<CHUNK>(address + at, static_cast<const u8*>(from) + at, CHUNK);
}
// Where a strip lies in each matrix.
struct Sources {
{% if reads_accumulator %}    const Element* accumulator;
{% endif %}{% for load in fetches %}    const {{ load.dtype }}* {{ load.value }}; // {{ load.node }}
{% endfor %}    DEVICE Sources() {}
    DEVICE Sources(const Params& p, const TileValues& t, const Strip& s) {
{% if reads_accumulator %}        accumulator =
            static_cast<const Element*>(p.a) + t.batch * p.batch_stride_a + (s.row * p.lda + s.column);
{% endif %}{% for load in fetches %}        {{ load.value }} = {{ load.base }} + (s.row * {{ load.ld }} + s.column);
{% endfor %}    }
{% if mainloop == "rows" %}    // The same so many rows further.
    DEVICE void advance(const Params& p, int rows) {
        accumulator += rows * p.lda;
{% for load in fetches %}        {{ load.value }} += rows * {{ load.ld }};
{% endfor %}    }
{% endif %}};
// Copies a strip `distance` columns behind.
DEVICE void copy_strip(const Sources& from, int distance, int place) {
{% if reads_accumulator %}    copy(reinterpret_cast<Kept*>(smem + AT_KEPT) + place, from.accumulator + distance);
{% endif %}{% if fetches %}    u8* behind = smem + AT_KEPT + PLACES * sizeof(Kept);
{% for load in fetches %}    copy(reinterpret_cast<Raw<{{ load.dtype }}, STRIP>*>(behind) + place, {# -#}
         from.{{ load.value }} + distance); // {{ load.node }}
    behind += PLACES * sizeof(Raw<{{ load.dtype }}, STRIP>);
{% endfor %}{% endif %}}
