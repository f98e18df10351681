    // A quad of lanes holds whole rows, so the stages before the visits need no memory. They go over all accumulators.
    int turn = 0;
{% for stage in stages %}#pragma unroll
    for (int n = 0; n < CHUNKS_N; ++n)
#pragma unroll
        for (int part = 0; part < STRIPS; ++part) {
            ColumnValues c = epilogue_column(p, t, strip(n, 0, 0, part));
#pragma unroll
            for (int at = 0; at < 2 * BLOCKS_M; ++at) {
                const int m = at / 2, half = at % 2;
                Accum strip_acc[STRIP];
#pragma unroll
                for (int i = 0; i < STRIP; ++i)
                    strip_acc[i] = acc[m][n * (CHUNK / 2) + (part * (STRIP / 2) + i / 2) * 4 + half * 2 + i % 2];
                epilogue_take_{{ stage.number }}<WHOLE>(
                    p, t, c, rows[m][half], Fetched(), strip(n, m, half, part), strip_acc);
            }
        }
#pragma unroll
    for (int i = 0; i < 2 * BLOCKS_M; ++i) {
        epilogue_reduce_{{ stage.number }}(p, t, rows[i / 2][i % 2], strip(0, i / 2, i % 2, 0), turn);
{% if not stage.keeps %}        renew(rows[i / 2][i % 2]);
{% endif %}    }
{% endfor -%}
