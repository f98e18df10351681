{% if extremes %}{% include "prelude/pairs.cuh" %}
{% endif -%}
{% include "mainloop/existing.cuh" %}{% if holds_rows %}{% include "mainloop/inside.cuh" %}{% endif -%}
// A thread's part of a row: VISITS strips, STEP columns apart.
struct Held {
    Vector raw[VISITS]{% if not packed_accumulator %}[VECTORS]{% endif %};
    Fetched fetched[VISITS];

    {% if holds_rows %}template <bool INSIDE> {% endif %}{# -#}
    DEVICE void read(const Params& p, const TileValues& t, const Strip& first{# -#}
                     {% if keeps_sums %}, int from = 0, int end = VISITS{% endif %}) {
{% if reads_accumulator %}        const Element* const accumulator =
            static_cast<const Element*>(p.a) + t.batch * p.batch_stride_a{% if packed_accumulator %} / 8{% endif %};
{% if not packed_accumulator %}        const i64 row_distance = ACC_ROW_MAJOR ? p.lda : 1;
        const i64 column_distance = ACC_ROW_MAJOR ? 1 : p.lda;
{% endif %}{% endif %}#pragma unroll
        for (int v = {% if keeps_sums %}from; v < end{% else %}0; v < VISITS{% endif %}; ++v) {
            const Strip s{first.row, first.column + v * STEP};
{% if holds_rows %}            assume<INSIDE>(p, s);
{% endif -%}
{% if not reads_accumulator %}            raw[v]{% if not packed_accumulator %}[0]{% endif %} = {};   // there may be no matrix
{% elif packed_accumulator %}            read_matrix<0, ACC_ROW_MAJOR>(raw[v], s, accumulator, p.lda, p.m, p.n, false);
{% else %}            load(raw[v], accumulator + s.row * row_distance + s.column * column_distance, column_distance,
                 s.row < p.m ? p.n - s.column : 0);
{% endif %}            fetched[v] = epilogue_fetch(p, t, s);
        }
    }
{% if foresees %}    // Its bits, which compilers do not know to be the same: they would keep what they have widened, and lack the
    // registers. `zero` is 0.
    DEVICE void disguise(u32 zero) {
#pragma unroll
        for (int v = 0; v < VISITS; ++v) {
            u32* const words = reinterpret_cast<u32*>(&raw[v]);
#pragma unroll
            for (int w = 0; w < int(sizeof(raw[v]) / 4); ++w) words[w] ^= zero;
        }
    }
{% endif %}{% if extremes %}    // Its largest and its smallest element, in turns; NaN if there is one.
    template <class T> DEVICE void extremes(Accum (&acc)[STRIP]) const {
        const u32* const words = reinterpret_cast<const u32*>(raw);
        u32 largest = words[0], smallest = words[0];
#pragma unroll
        for (int w = 1; w < int(sizeof(raw) / 4); ++w) {
            largest = Pairs<T>::larger(largest, words[w]);
            smallest = Pairs<T>::smaller(smallest, words[w]);
        }
        const float most = max_nan(widen(T{u16(largest)}), widen(T{u16(largest >> 16)}));
        const float least = min_nan(widen(T{u16(smallest)}), widen(T{u16(smallest >> 16)}));
#pragma unroll
        for (int e = 0; e < STRIP; ++e) acc[e] = e % 2 == 0 ? most : least;
    }
{% endif %}{% if renews %}    // Elements that a stage has widened are not kept for the next.
    DEVICE void renewed() {
#pragma unroll
        for (int v = 0; v < VISITS; ++v) {
            renew(raw[v]);
{% for load in fetches %}            renew(fetched[v].{{ load.value }});
{% endfor %}        }
    }
{% endif %}{% if label_apart %}    // A copy of strip `v`, of which the compiler does not know that it has been widened before.
    DEVICE void copy_strip(Accum (&acc)[STRIP], Fetched& f, int v) const {
        Held copy;
#pragma unroll
        for (int u = 0; u < VISITS; ++u) replace_if(u == v, copy.raw[0], raw[u]), replace_if(u == v, copy.fetched[0], fetched[u]);
        renew(copy.raw[0]), renew(copy.fetched[0]);
        copy.widen_strip(acc, 0);
        f = copy.fetched[0];
    }
{% endif %}    DEVICE void widen_strip(Accum (&acc)[STRIP], int v) const {
#pragma unroll
        for (int e = 0; e < STRIP; ++e)
            acc[e] = {% if packed_accumulator %}widen(raw[v].elements[e]){% elif foresees %}{# -#}
                     widen(raw[v][e / WIDTH].elements[e % WIDTH]){% else %}widened(raw[v][e / WIDTH], e % WIDTH){% endif %};
    }
};

