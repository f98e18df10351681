// ---- the epilogue, phase by phase: see the fragment contract ----
DEVICE TileValues epilogue_begin(const Params& p, int batch) {
    TileValues t;
    t.batch = batch;
{% for pointer in batch_pointers %}    t.{{ pointer.name }} = {{ pointer.base }} + i64(batch) * {{ pointer.stride }};
{% endfor -%}
{% for load in tile_loads %}    t.{{ load.value }} = widen(*{{ load.base }}); // {{ load.node }}
{% endfor -%}
{% for line in tile %}{{ line }}
{% endfor %}    return t;
}

DEVICE ColumnValues epilogue_column(const Params& p, const TileValues& t, int column) {
    ColumnValues c;
{% for load in column_loads %}    {
        Raw<{{ load.dtype }}, STRIP> raw; // {{ load.node }}
        read_strip(raw, {{ load.base }} + column, 1, p.n - column, {{ load.wide }} != 0);
        widen_all(c.{{ load.value }}, raw);
    }
{% endfor -%}
{% for line in column %}{{ line }}
{% endfor %}    return c;
}

DEVICE RowValues epilogue_row(const Params& p, const TileValues& t, int row) {
    RowValues r;
{% for load in row_loads %}    r.{{ load.value }} = row < p.m ? widen({{ load.base }}[row]) : {{ load.value_type }}(0); // {{ load.node }}
{% endfor -%}
{% for line in row %}{{ line }}
{% endfor %}    return r;
}

DEVICE Fetched epilogue_fetch(const Params& p, const TileValues& t, int row, int column) {
    Fetched f;
{% if fetches %}    const int columns = row < p.m ? p.n - column : 0;
{% endif -%}
{% for load in fetches %}{% if load.along_strip %}    read_strip(f.{{ load.value }}, {{ load.base }} + (i64(row) * {{ load.ld }} + column), 1, columns, {{ load.wide }} != 0); // {{ load.node }}
{% else %}    read_strip(f.{{ load.value }}, {{ load.base }} + (i64(column) * {{ load.ld }} + row), {{ load.ld }}, columns, false); // {{ load.node }}
{% endif %}{% endfor %}    return f;
}

DEVICE void epilogue_visit(const Params& p, const TileValues& t, ColumnValues& c, RowValues& r, const Fetched& f, int row, int column, const Accum (&acc)[STRIP]) {
{% for line in visit %}{{ line }}
{% endfor -%}
{% if stores %}    const int columns = row < p.m ? p.n - column : 0;
{% endif -%}
{% for store in stores %}    { // {{ store.node }}
        {{ store.value_type }} values[STRIP];
        Raw<{{ store.dtype }}, STRIP> raw;
#pragma unroll
        for (int i = 0; i < STRIP; ++i) values[i] = {{ store.value }};
        narrow_all(raw, values);
{% if store.along_strip %}        write_strip({{ store.base }} + (i64(row) * {{ store.ld }} + column), raw, 1, columns, {{ store.wide }} != 0);
{% else %}        write_strip({{ store.base }} + (i64(column) * {{ store.ld }} + row), raw, {{ store.ld }}, columns, false);
{% endif %}    }
{% endfor %}}

DEVICE void epilogue_row_end(const Params& p, const TileValues& t, RowValues& r, int row) {}
DEVICE void epilogue_column_end(const Params& p, const TileValues& t, ColumnValues& c, int column) {}
DEVICE void epilogue_end(const Params& p, const TileValues& t, unsigned char* smem) {}

// How many visits may stand side by side in the code, of `most`: heavy ones take registers, and long to compile.
DEVICE constexpr int visits_together(int most) {
    while (most > 1 && most * VISIT_COST > 2048) most /= 2;
    return most;
}
