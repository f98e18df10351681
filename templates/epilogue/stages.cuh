// ---- stages: the reductions along rows before the visit, and what follows from them for a row ----
{% if label_apart or stages and label %}// The column of the label, of which a row has one.
DEVICE u32 epilogue_label(const Params& p, const TileValues& t, const RowValues& r) { {# -#}
    return u32({{ label }}) - u32(p.origin_column); }
{% endif %}{% for stage in stages %}{% if stage.has_label %}DEVICE void epilogue_take_label_{{ stage.number }}(
    const Params& p, const TileValues& t, ColumnValues& c, RowValues& r, const Fetched& f, const Strip& s,
    const Accum (&acc)[STRIP]) {
{% for line in stage.at_label %}{{ line }}
{% endfor %}{% for r in stage.reductions %}{% if r.at_label %}#pragma unroll
    for (int i = 0; i < STRIP; ++i) take_if<{{ r.monoid }}>({# -#}
            {% if whole %}s.row < p.m && {% endif %}s.at(i) < p.n, r.{{ r.name }}, {{ r.terms }}); // {{ r.node }}
{% endif %}{% endfor %}}
{% endif %}{% for step in stage.steps %}{% if hopper %}// WHOLE: all columns lie inside of the matrix.
template <bool WHOLE> {% endif %}DEVICE void {{ step.name }}(
    const Params& p, const TileValues& t, ColumnValues& c, RowValues& r, const Fetched& f, const Strip& s,
    const Accum (&acc)[STRIP]) {
{% for line in stage.visit %}{{ line }}
{% endfor %}    {# -#}
    if {% if hopper %}constexpr (WHOLE{% else %}({% if whole %}s.row < p.m && {% endif %}s.at(STRIP - 1) < p.n{% endif %}) {
{% for r in stage.reductions %}{% if r.at_label %}{% elif r.strips %}{% if step.last or r.foresees %}        {# -#}
        {{ r.value }} x{{ r.name }}[STRIP]; // {{ r.node }}
#pragma unroll
        for (int i = 0; i < STRIP; ++i) x{{ r.name }}[i] = {{ r.terms }};
        {{ r.monoid }}::{% if r.foresees %}{{ step.takes }}{% else %}take_all{% endif %}(r.{{ r.name }}, x{{ r.name }});
{% endif %}{% elif step.last %}#pragma unroll
        for (int i = 0; i < STRIP; ++i) {{ r.monoid }}::take(r.{{ r.name }}, {{ r.terms }}); // {{ r.node }}
{% endif %}{% endfor %}    } else { // elements outside of the matrix do not count
{% for r in stage.reductions %}{% if r.at_label %}{% elif r.strips %}{% if step.last or r.foresees %}        {# -#}
        {{ r.value }} x{{ r.name }}[STRIP];
#pragma unroll
        for (int i = 0; i < STRIP; ++i) x{{ r.name }}[i] = {{ r.terms }};
        {{ r.monoid }}::{% if r.foresees %}{{ step.takes }}{% else %}take_all{% endif %}({# -#}
            r.{{ r.name }}, x{{ r.name }}, {% if whole %}s.row >= p.m ? 0 : {% endif %}s.inside<STRIP>(p.n));
{% endif %}{% elif step.last %}#pragma unroll
        for (int i = 0; i < STRIP; ++i) take_if<{{ r.monoid }}>({# -#}
            {% if whole %}s.row < p.m && {% endif %}s.at(i) < p.n, r.{{ r.name }}, {{ r.terms }});
{% endif %}{% endfor %}    }
{% if stage.has_label and step.last and not label_apart %}    {# -#}
    if (epilogue_label(p, t, r) - u32(s.at(0)) <= u32(s.at(STRIP - 1) - s.at(0)))
        epilogue_take_label_{{ stage.number }}(p, t, c, r, f, s, acc);
{% endif %}}
{% endfor -%}
DEVICE void epilogue_reduce_{{ stage.number }}(const Params& p, const TileValues& t, RowValues& r, const Strip& s, int& turn) {
{% if stage.together %}    const auto all = combine_row<{{ stage.together }}>({{ stage.states }}, turn);
{% endif %}{% for r in stage.reductions %}{% if not r.whole %}{% if r.beside %}    const auto both{{ r.name }} = {# -#}
        {% if stage.together %}all.{{ r.place }}{% else %}combine_row<{{ r.monoid }}>(r.{{ r.name }}, turn){% endif %};
    {{ r.beside.result }} = {{ r.monoid }}::beside(both{{ r.name }}, {# -#}
        {% if doubles %}double{% else %}float{% endif %}{# -#}
        ({% if bands %}min(BN, p.n - s.column / BN * BN){% else %}p.n{% endif %})); // {{ r.beside.node }}
{% endif %}    {{ r.result }} = {{ r.monoid }}::result(
        {% if r.beside %}both{{ r.name }}{% elif stage.together %}all.{{ r.place }}{# -#}
        {% else %}combine_row<{{ r.monoid }}>(r.{{ r.name }}, turn){% endif %}, {# -#}
        {% if doubles %}double{% else %}float{% endif %}{# -#}
        ({% if bands %}min(BN, p.n - s.column / BN * BN){% else %}p.n{% endif %})); // {{ r.node }}
{% endif %}{% endfor -%}
{% for line in stage.row %}{{ line }}
{% endfor %}}
{% if stage.whole %}// What all rows and columns come to: each of a thread's rows gets it.
template <int ROWS>
DEVICE void epilogue_combine_{{ stage.number }}(const Params& p, int columns, RowValues (&rows)[ROWS], int& turn) {
{% for r in stage.reductions %}{% if r.whole %}    { // {{ r.node }}
        {{ r.monoid }}::State s = rows[0].{{ r.name }};
#pragma unroll
        for (int i = 1; i < ROWS; ++i) s = {{ r.monoid }}::combine(s, rows[i].{{ r.name }});
        s = combine_block<{{ r.monoid }}>(s, turn);
        const auto count = {% if doubles %}double(p.m) * double(columns){% else %}float(p.m) * float(columns){% endif %};
        const auto result = {{ r.monoid }}::result(s, count);
#pragma unroll
        for (int i = 0; i < ROWS; ++i) rows[i].{{ r.field }} = result;
{% if r.beside %}        const auto beside = {{ r.monoid }}::beside(s, count); // {{ r.beside.node }}
#pragma unroll
        for (int i = 0; i < ROWS; ++i) rows[i].{{ r.beside.field }} = beside;
{% endif %}{# -#}
    }
{% endif %}{% endfor %}}
{% if not holds_rows %}DEVICE void add_state_{{ stage.number }}(RowValues& to, const RowValues& from) {
{% for r in stage.reductions %}    to.{{ r.name }} = {{ r.monoid }}::combine(to.{{ r.name }}, from.{{ r.name }});
{% endfor %}}
DEVICE void carry_result_{{ stage.number }}(RowValues& to, const RowValues& from) {
{% for r in stage.reductions %}    to.{{ r.field }} = from.{{ r.field }};
{% if r.beside %}    to.{{ r.beside.field }} = from.{{ r.beside.field }};
{% endif %}{% endfor %}}
{% endif %}{% endif %}{% endfor -%}
{% if keeps_sums %}{# -#}
// Sums down the columns of a thread's strip `v`, which it keeps in shared memory. No other thread reads or writes them meanwhile.
// Threads lie side by side, so that no two of a warp's meet in a bank.
template <bool STORES, int AT, class S> DEVICE void move_states(S (&s)[STRIP], int v) {
    constexpr int WORDS = sizeof(s) / 4, WIDTH = WORDS % 4 == 0 ? 4 : WORDS % 2 == 0 ? 2 : 1;
    struct alignas(4 * WIDTH) Piece { u32 words[WIDTH]; };
    Piece* const places = unit_memory<Piece>(AT) + v * (WORDS / WIDTH) * UNIT_THREADS + thread_of_unit();
    u32* const words = reinterpret_cast<u32*>(s);
#pragma unroll
    for (int i = 0; i < WORDS; i += WIDTH) {
        Piece piece;
        if constexpr (!STORES) piece = places[i / WIDTH * UNIT_THREADS];
#pragma unroll
        for (int j = 0; j < WIDTH; ++j) {
            if constexpr (STORES) piece.words[j] = words[i + j];
            else words[i + j] = piece.words[j];
        }
        if constexpr (STORES) places[i / WIDTH * UNIT_THREADS] = piece;
    }
}
template <bool STORES> DEVICE void move_sums(ColumnValues& c, int v) {
{% for r in reductions %}{% if r.columns %}    move_states<STORES, {{ r.parts_at }}>(c.{{ r.name }}, v); // {{ r.node }}
{% endif %}{% endfor %}}
{% elif reductions %}// Copies a thread's sums down its columns.
DEVICE void carry_sums(ColumnValues& to, const ColumnValues& from) {
{% for r in reductions %}{% if r.columns %}#pragma unroll
    for (int i = 0; i < STRIP; ++i) to.{{ r.name }}[i] = from.{{ r.name }}[i];
{% endif %}{% if r.all %}    to.{{ r.name }} = from.{{ r.name }};
{% endif %}{% endfor %}}
{% endif -%}
// Called by one of the threads that share a row.
DEVICE void epilogue_store_row(const Params& p, const TileValues& t, const RowValues& r, const Strip& s) {
    if (s.row >= p.m) return;
{% for store in row_stores %}    {% if not store.by_row %}if (s.row == 0)
        {% endif %}{% if not store.by_entry %}if (t.batch == 0)
        {% endif %}{{ store.base }}[{% if store.by_row %}s.row{% else %}0{% endif %}] =
            Narrow<{{ store.dtype }}>::of({{ store.value }}); // {{ store.node }}
{% endfor %}}
