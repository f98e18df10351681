// ---- the epilogue, phase by phase: see the fragment contract ----
{% include "epilogue/before_visit.cuh" -%}
{% if visits_label_again %}// NEAR: the strip may have the label.
template <bool NEAR> {% endif %}{# -#}
DEVICE void epilogue_visit(const Params& p, const TileValues& t, ColumnValues& c, RowValues& r, {# -#}
                           const Fetched& f, const Strip& s, {# -#}
                           const Accum (&acc)[STRIP]) {
{% for line in visit %}{{ line }}
{% endfor -%}
{% for store in stores %}    { // {{ store.node }}
        {{ store.value_type }} values[STRIP];
        Raw<{{ store.dtype }}, STRIP> raw;
#pragma unroll
        for (int i = 0; i < STRIP; ++i) values[i] = {{ store.value }};
        narrow_all(raw, values);
        write_matrix<{{ store.staged_at }}, {{ store.along_strip }}>({# -#}
            {{ store.base }}, {{ store.ld }}, raw, s, p.m, p.n, {{ store.wide }} != 0);
    }
{% endfor -%}
{% for store in strip_stores %}    if ({% if not store.by_entry %}t.batch == 0 && {% endif %}{# -#}
        {% if store.by_column %}s.row == 0{% elif store.by_row %}s.row < p.m && s.at(0) == 0{# -#}
        {% else %}s.row == 0 && s.at(0) == 0{% endif %}) // {{ store.node }}
{% if store.by_column %}#pragma unroll
        for (int i = 0; i < STRIP; ++i)
            if (s.at(i) < p.n) {{ store.base }}[s.at(i)] = Narrow<{{ store.dtype }}>::of({{ store.value }});
{% else %}        {{ store.base }}[{% if store.by_row %}s.row{% else %}0{% endif %}] = {# -#}
        Narrow<{{ store.dtype }}>::of({{ store.value }});
{% endif %}{% endfor -%}
{% for r in reductions %}    { // {{ r.node }}: elements outside of the matrix do not count
{% if r.columns %}#pragma unroll
        for (int i = 0; i < STRIP; ++i) take_if<{{ r.monoid }}>({{ r.counts }}, c.{{ r.name }}[i], {{ r.terms }});
{% endif %}{% if r.rows %}#pragma unroll
        for (int i = 0; i < STRIP; ++i) take_if<{{ r.monoid }}>({{ r.counts }}, r.{{ r.name }}, {{ r.terms }});
{% endif %}{% if r.all %}#pragma unroll
        for (int i = 0; i < STRIP; ++i) take_if<{{ r.monoid }}>({{ r.counts }}, c.{{ r.name }}, {{ r.terms }});
{% endif %}{% if r.elements %}        const {{ r.block_type }} block({# -#}
            p, s.row - s.row % UNIT_ROWS, s.column - s.column % UNIT_COLUMNS, t.batch);
        const {{ r.result_type }} result{ {{ r.base }}, {{ r.ld }}};
        {{ r.monoid }}::State states[STRIP];
#pragma unroll
        for (int i = 0; i < STRIP; ++i) {
            states[i] = {{ r.monoid }}::identity();
            {{ r.monoid }}::take(states[i], {{ r.terms }});
        }
        // A loop with the same number of rounds for every thread. Memory latency exceeds the cost of an element, so unrolled
        // code would not pay.
#pragma unroll 1
        for (int i = 0; i < STRIP; ++i)
            if (s.row < p.m && s.at(i) < p.n)
                publish_partial<{{ r.monoid }}, {{ r.added }}>({# -#}
                    p, block, {{ r.partials }}, result, s.row % UNIT_ROWS * UNIT_COLUMNS + s.at(i) % UNIT_COLUMNS, states[i]);
{% endif %}    }
{% endfor -%}
{% for count in counts %}#pragma unroll
    for (int i = 0; i < STRIP; ++i)
        if (s.row < p.m && s.at(i) < p.n) count_one({{ count.base }}, {{ count.length }}, {{ count.value }}); // {{ count.node }}
{% endfor %}}

{% if reductions %}DEVICE void epilogue_row_end(const Params& p, const TileValues& t, RowValues& r, const Strip& s) {
{% for r in reductions %}{% if r.rows %}    leave_row<{{ r.monoid }}, {{ r.parts_at }}>(p, r.{{ r.name }}, s); // {{ r.node }}
{% endif %}{% endfor %}}

DEVICE void epilogue_column_end(const Params& p, const TileValues& t, ColumnValues& c, const Strip& s) {
{% for r in reductions %}{% if r.columns %}    leave_columns<{{ r.monoid }}, {{ r.parts_at }}>(c.{{ r.name }}, s); // {{ r.node }}
{% endif %}{% if r.total %}    add_to_total<{{ r.monoid }}, {{ r.parts_at }}>(c.{{ r.name }}); // {{ r.node }}
{% elif r.all %}    leave_all<{{ r.monoid }}, {{ r.parts_at }}>(c.{{ r.name }}, s); // {{ r.node }}
{% endif %}{% endfor %}}

{% if totals %}// Totals: one result for all tiles. A consumer combines its tiles itself, and publishes after its last one.
DEVICE void clear_totals() {
{% for r in reductions %}{% if r.total %}    unit_memory<{{ r.monoid }}::State>({{ r.parts_at }})[thread_of_unit()] = {# -#}
        {{ r.monoid }}::identity(); // {{ r.node }}
{% endif %}{% endfor %}}
DEVICE void publish_totals(const Params& p, u32 unit, u32 units) {
{% for r in reductions %}{% if r.total %}    publish_total<{{ r.monoid }}, {{ r.parts_at }}>({# -#}
        {{ r.partials }}, unit); // {{ r.node }}
{% endif %}{% endfor %}    if (!last_of_units({{ total_arrivals }}, units)) return;
{% for r in reductions %}{% if r.total %}    fixup_total<{{ r.monoid }}, {{ r.parts_at }}>({# -#}
        p, {{ r.partials }}, units, {{ r.result_type }}{ {{ r.base }}, {{ r.ld }}}); // {{ r.node }}
{% endif %}{% endfor %}}

{% endif %}{% if tile_reductions %}
// Publishes the unit's partial results beside those of the other units of its blocks.
DEVICE void epilogue_publish(const Params& p, const TileValues& t, const TileOrigin& unit) {
    if (unit.row >= p.m || unit.column >= p.n) return;
{% for block in blocks %}    const {{ block.type }} {{ block.name }}(p, unit.row, unit.column, t.batch);
{% endfor -%}
{% for r in reductions %}{% if not r.elements and not r.total %}    publish_partials<{# -#}
        {{ r.monoid }}, {{ r.added }}, {{ r.parts_at }}>({# -#}
        p, {{ r.block }}, {{ r.partials }}, {{ r.result_type }}{ {{ r.base }}, {{ r.ld }}}); // {{ r.node }}
{% endif %}{% endfor %}}

// Called by one thread, after the whole unit has published. Returns as bits the sets of blocks for which the unit is the last
// to arrive.
DEVICE u32 epilogue_arrive(const Params& p, const TileOrigin& unit) {
    if (unit.row >= p.m || unit.column >= p.n) return 0;
    u32 last = 0;
    fence_device();
{% for block in blocks %}    last |= {# -#}
        arrive(p, {{ block.arrivals }}, {{ block.type }}(p, unit.row, unit.column, unit.batch)) << {{ block.index }};
{% endfor %}    fence_device();
    return last;
}

// Writes the results of the blocks that are complete. A persistent kernel calls this from several places, so it is not inlined.
{% if hopper %}__device__ __noinline__{% else %}DEVICE{% endif %} {# -#}
void epilogue_fixup(const Params& p, const TileValues& t, const TileOrigin& unit, u32 last) {
{% for r in reductions %}{% if not r.total and not r.shared %}    if (last >> {{ r.block_index }} & 1) // {{ r.node }}
        fixup<{{ r.monoid }}, {{ r.added }}>(p, {{ r.block_type }}(p, unit.row, unit.column, t.batch), {{ r.partials }}, {# -#}
                                             {{ r.result_type }}{ {{ r.base }}, {{ r.ld }}});
{% endif %}{% endfor %}}

{% if hopper %}// Makes the late arrivals for block `first` and every `step`-th block after it, and writes what they complete.
DEVICE void epilogue_fixup_late(const Params& p, u32 first, u32 step) {
    u32* const last = unit_memory<u32>(0);
{% for block in blocks %}    if ({{ block.type }}::fixes_up_late(p))
#pragma unroll 1
        for (u32 number = first; number < {{ block.type }}::count(p); number += step) {
            const TileOrigin unit = {{ block.type }}::origin(p, number);
            sync_unit();
            if (thread_of_unit() == 0) {
                *last = {# -#}
                    arrive(p, {{ block.arrivals }}, {{ block.type }}(p, unit.row, unit.column, unit.batch)) << {{ block.index }};
                fence_device();
            }
            sync_unit();
            epilogue_fixup(p, epilogue_begin(p, unit.batch), unit, *last);
        }
{% endfor %}}
{% else %}{% if shares_fixup %}// Takes a part in the fix-ups that units share.
DEVICE void epilogue_share(const Params& p, const TileValues& t, const TileOrigin& unit, u32 last) {
    if (unit.row >= p.m || unit.column >= p.n) return;
{% for block in blocks %}{% if block.shared %}    {
        const {{ block.type }} block(p, unit.row, unit.column, t.batch);
        constexpr int PIECES = 0{% for r in reductions %}{% if r.block_index == block.index %} {# -#}
            + pieces<{{ r.monoid }}, {{ r.added }}, {{ block.type }}>(){% endif %}{% endfor %};
        share_fixup<PIECES>(block, {{ block.arrivals }}, last >> {{ block.index }} & 1, [&](int piece) {
{% for r in reductions %}{% if r.block_index == block.index %}            if (piece >= 0) // {{ r.node }}
                fixup<{{ r.monoid }}, {{ r.added }}>({# -#}
                    p, block, {{ r.partials }}, {{ r.result_type }}{ {{ r.base }}, {{ r.ld }}}, piece, piece + 1);
            piece -= pieces<{{ r.monoid }}, {{ r.added }}, {{ block.type }}>();
{% endif %}{% endfor %}        });
    }
{% endif %}{% endfor %}}

{% endif %}DEVICE void epilogue_end(const Params& p, const TileValues& t, const TileOrigin& unit) {
    epilogue_publish(p, t, unit);
    sync_unit();
    u32* const last = unit_memory<u32>(0);
    if (thread_of_unit() == 0) *last = epilogue_arrive(p, unit);
    sync_unit();
    epilogue_fixup(p, t, unit, *last);
{% if shares_fixup %}    epilogue_share(p, t, unit, *last);
{% endif %}}
{% endif %}{% endif -%}
{% else %}DEVICE void epilogue_row_end(const Params& p, const TileValues& t, RowValues& r, const Strip& s) {}
DEVICE void epilogue_column_end(const Params& p, const TileValues& t, ColumnValues& c, const Strip& s) {}
DEVICE void epilogue_end(const Params& p, const TileValues& t, const TileOrigin& unit) {}
{% endif %}
// How many visits, at most `most`, may be unrolled side by side. Long visits need registers and take long to compile.
DEVICE constexpr int visits_together(int most) {
    while (most > 1 && most * VISIT_COST > 2048) most /= 2;
    return most;
}
