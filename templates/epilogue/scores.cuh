// ---- what scores become: phases as of an epilogue, of queries and keys instead of rows and columns ----
namespace scores {
constexpr int STRIP = {{ strip }};
{% if calls %}{% include "epilogue/calls.cuh" %}{% endif -%}
{% include "epilogue/values.cuh" %}
{% include "epilogue/before_visit.cuh" -%}
// The scores of a query and STRIP keys, in place.
DEVICE void epilogue_visit(const Params& p, const TileValues& t, const ColumnValues& c, const RowValues& r, {# -#}
                           const Fetched& f, const Strip& s, {# -#}
                           float (&acc)[STRIP]) {
{% for line in visit %}{{ line }}
{% endfor -%}
#pragma unroll
    for (int i = 0; i < STRIP; ++i) acc[i] = {{ result }};
}
{% if least or most %}// The first key that queries from `query` on see, and the end of those that queries up to `query` see.
DEVICE i64 first_key(const Params& p, const TileValues& t, i64 query) {
    i64 key = 0;
{% for bound in least %}    key = max(key, {{ bound }});
{% endfor %}    return key;
}
DEVICE i64 end_of_keys(const Params& p, const TileValues& t, i64 query, i64 key) {
{% for bound in most %}    key = min(key, {{ bound }} + 1);
{% endfor %}    return key;
}
{% endif %}}
