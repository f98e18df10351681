// ---- values of the epilogue by how often they are computed: the number is that of the step in the plan's program ----
struct TileValues {
    int batch;
{% if of_scores %}    int sequence;
{% endif -%}
{% for pointer in batch_pointers %}    {{ pointer.declaration }} {{ pointer.name }};
{% endfor -%}
{% for member in tile_members %}    {{ member.declaration }} // {{ member.node }}
{% endfor %}};
struct ColumnValues {
{% for member in column_members %}    {{ member.declaration }} // {{ member.node }}
{% endfor -%}
{% for r in reductions %}{% if r.columns %}    {{ r.monoid }}::State {{ r.name }}[STRIP]; // {{ r.node }}
{% endif %}{% if r.all %}    {{ r.monoid }}::State {{ r.name }}; // {{ r.node }}
{% endif %}{% endfor %}};
struct RowValues {
{% for member in row_members %}    {{ member.declaration }} // {{ member.node }}
{% endfor -%}
{% for r in reductions %}{% if r.rows %}    {{ r.monoid }}::State {{ r.name }}; // {{ r.node }}
{% endif %}{% endfor %}{% for stage in stages %}
{%- for r in stage.reductions %}    {{ r.monoid }}::State {{ r.name }}; // {{ r.node }}
{% endfor %}{% endfor %}};
struct Fetched {
{% for load in fetches %}    Raw<{{ load.dtype }}, STRIP> {{ load.value }}; // {{ load.node }}
{% endfor %}};
