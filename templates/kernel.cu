{% for line in about -%}
// {{ line }}
{% endfor %}
{% include "prelude/types.cuh" %}
{% include "prelude/memory.cuh" %}
{% include "prelude/math.cuh" %}
{% include "prelude/strip.cuh" %}
{% if tensor_cores %}{% include "prelude/tensor_core.cuh" %}{% endif %}
// ---- configuration ----
using Element = {{ element }};
using Accum = {{ accumulator }};
{% if product -%}
constexpr bool A_K_MAJOR = {{ a_k_major }}, B_K_MAJOR = {{ b_k_major }};
constexpr int A_ALIGN = {{ a_align }}, B_ALIGN = {{ b_align }};
{% else -%}
constexpr bool ACC_ROW_MAJOR = {{ acc_row_major }};
constexpr int A_ALIGN = {{ a_align }};
{% endif -%}
constexpr int STRIP = {{ strip }};
constexpr int VISIT_COST = {{ visit_cost }};
constexpr int EPILOGUE_SMEM = {{ epilogue_smem }};
{% for constant in constants -%}
constexpr int {{ constant.name }} = {{ constant.value }};
{% endfor %}
{% include "epilogue/params.cuh" %}
{% include "prelude/raster.cuh" %}
{% include "epilogue/values.cuh" %}
{% include "epilogue/phases.cuh" %}
{% if mainloop == "simt" %}{% include "mainloop/simt.cuh" %}{% endif -%}
{% if mainloop == "sm80" %}{% include "mainloop/sm80.cuh" %}{% endif -%}
{% if mainloop == "pointwise" %}{% include "mainloop/pointwise.cuh" %}{% endif -%}
