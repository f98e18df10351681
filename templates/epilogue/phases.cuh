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

DEVICE ColumnValues epilogue_column(const Params& p, const TileValues& t, const Strip& s) {
    ColumnValues c;
{% for load in column_loads %}    {
        Raw<{{ load.dtype }}, STRIP> raw; // {{ load.node }}
        read_columns<{{ load.staged_at }}>(raw, s, {{ load.base }}, p.n, {{ load.wide }} != 0);
        widen_all(c.{{ load.value }}, raw);
    }
{% endfor -%}
{% for line in column %}{{ line }}
{% endfor %}    return c;
}

DEVICE RowValues epilogue_row(const Params& p, const TileValues& t, const Strip& s) {
    RowValues r;
{% for load in row_loads %}    r.{{ load.value }} = widen(read_row<{{ load.staged_at }}>(s, {{ load.base }}, p.m)); // {{ load.node }}
{% endfor -%}
{% for line in row %}{{ line }}
{% endfor %}    return r;
}

DEVICE Fetched epilogue_fetch(const Params& p, const TileValues& t, const Strip& s) {
    Fetched f;
{% for load in fetches %}    read_matrix<{{ load.staged_at }}, {{ load.along_strip }}>(f.{{ load.value }}, s, {{ load.base }}, {{ load.ld }}, p.m, p.n, {{ load.wide }} != 0); // {{ load.node }}
{% endfor %}    return f;
}

DEVICE void epilogue_visit(const Params& p, const TileValues& t, ColumnValues& c, RowValues& r, const Fetched& f, const Strip& s, const Accum (&acc)[STRIP]) {
{% for line in visit %}{{ line }}
{% endfor -%}
{% for store in stores %}    { // {{ store.node }}
        {{ store.value_type }} values[STRIP];
        Raw<{{ store.dtype }}, STRIP> raw;
#pragma unroll
        for (int i = 0; i < STRIP; ++i) values[i] = {{ store.value }};
        narrow_all(raw, values);
        write_matrix<{{ store.staged_at }}, {{ store.along_strip }}>({{ store.base }}, {{ store.ld }}, raw, s, p.m, p.n, {{ store.wide }} != 0);
    }
{% endfor %}}

DEVICE void epilogue_row_end(const Params& p, const TileValues& t, RowValues& r, const Strip& s) {}
DEVICE void epilogue_column_end(const Params& p, const TileValues& t, ColumnValues& c, const Strip& s) {}
DEVICE void epilogue_end(const Params& p, const TileValues& t, unsigned char* smem) {}

// How many visits may stand side by side in the code, of `most`: heavy ones take registers, and long to compile.
DEVICE constexpr int visits_together(int most) {
    while (most > 1 && most * VISIT_COST > 2048) most /= 2;
    return most;
}
