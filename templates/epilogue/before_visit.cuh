DEVICE TileValues epilogue_begin(const Params& p, int batch{% if of_scores %}, int sequence{% endif %}) {
    TileValues t;
    t.batch = batch;
{% if of_scores %}    t.sequence = sequence;
{% endif -%}
{% for pointer in batch_pointers %}    t.{{ pointer.name }} = {{ pointer.base }} + {# -#}
    i64({{ pointer.entry }}) * {{ pointer.stride }};
{% endfor -%}
{% for load in tile_loads %}    t.{{ load.value }} = {% if load.default -%}
{{ load.given }} == nullptr ? {{ load.default }} : {% endif -%}
widen(*{{ load.base }}); // {{ load.node }}
{% endfor -%}
{% for line in tile %}{{ line }}
{% endfor %}    return t;
}

{% if holds_rows %}// What is loaded for columns, as it lies in memory: threads may ask for it before they use it.
struct FetchedColumns {
{% for load in column_loads %}    Raw<{{ load.dtype }}, STRIP> {{ load.value }};
{% endfor %}};
DEVICE FetchedColumns epilogue_fetch_columns(const Params& p, const TileValues& t, const Strip& s) {
    FetchedColumns f;
{% else %}DEVICE ColumnValues epilogue_column(const Params& p, const TileValues& t, const Strip& s) {
    ColumnValues c;
{% endif -%}
{% for load in column_loads %}    {
        Raw<{{ load.dtype }}, STRIP>{% if holds_rows %}& raw = f.{{ load.value }}{% else %} raw{% endif %}; {# -#}
        // {{ load.node }}
        {% if load.default and not hopper %}if ({{ load.given }} == nullptr) fill_all(raw, {{ load.default }});
        else {% endif %}read_columns<{{ load.staged_at }}>(raw, s, {{ load.base }}, {{ extent_n }}, {{ load.wide }} != 0);
{% if not holds_rows %}        widen_all(c.{{ load.value }}, raw);
{% endif %}    }
{% endfor -%}
{% if holds_rows %}    return f;
}
DEVICE ColumnValues epilogue_column(const Params& p, const TileValues& t, const Strip& s, const FetchedColumns& f) {
    ColumnValues c;
{% for load in column_loads %}    widen_all(c.{{ load.value }}, f.{{ load.value }});
{% endfor -%}
{% endif -%}
{% for line in column %}{{ line }}
{% endfor -%}
{% for r in reductions %}{% if r.columns %}#pragma unroll
    for (int i = 0; i < STRIP; ++i) c.{{ r.name }}[i] = {{ r.monoid }}::identity(); // {{ r.node }}
{% endif %}{% if r.all %}    c.{{ r.name }} = {{ r.monoid }}::identity(); // {{ r.node }}
{% endif %}{% endfor %}    return c;
}

{% if holds_rows %}DEVICE ColumnValues epilogue_column(const Params& p, const TileValues& t, const Strip& s) {
    return epilogue_column(p, t, s, epilogue_fetch_columns(p, t, s));
}

{% endif %}DEVICE RowValues epilogue_row(const Params& p, const TileValues& t, const Strip& s) {
    RowValues r;
{% for load in row_loads %}    r.{{ load.value }} = {% if load.default and not hopper -%}
{{ load.given }} == nullptr ? {{ load.default }} : {% endif -%}
widen(read_row<{{ load.staged_at }}>(s, {{ load.base }}, {{ extent_m }})); // {{ load.node }}
{% endfor -%}
{% for line in row %}{{ line }}
{% endfor -%}
{% for r in reductions %}{% if r.rows %}    r.{{ r.name }} = {{ r.monoid }}::identity(); // {{ r.node }}
{% endif %}{% endfor %}{% for stage in stages %}
{%- for r in stage.reductions %}    r.{{ r.name }} = {{ r.monoid }}::identity(); // {{ r.node }}
{% endfor %}{% endfor %}    return r;
}

DEVICE Fetched epilogue_fetch(const Params& p, const TileValues& t, const Strip& s) {
    Fetched f;
{% for load in fetches -%}
{% if load.default %}    if ({{ load.given }} == nullptr) fill_all(f.{{ load.value }}, {{ load.default }});
    else {% else %}    {% endif %}read_matrix<{{ load.staged_at }}, {{ load.along_strip }}>({# -#}
            f.{{ load.value }}, s, {{ load.base }}, {{ load.ld }}, {# -#}
            {{ extent_m }}, {{ extent_n }}, {{ load.wide }} != 0); // {{ load.node }}
{% endfor %}    return f;
}

