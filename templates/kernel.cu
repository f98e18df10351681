{% for line in about -%}
// {{ line }}
{% endfor %}
{% include "prelude/types.cuh" %}
{% if doubles %}{% include "prelude/doubles.cuh" %}{% endif -%}
{% include "prelude/memory.cuh" %}
{% if eight_bits %}{% include "prelude/eight_bits.cuh" %}{% endif -%}
{% if widened %}{% include "prelude/four_bits.cuh" %}{% endif -%}
{% include "prelude/math.cuh" %}
{% if fast or attention %}{% include "prelude/fast.cuh" %}{% endif -%}
{% if not hopper %}{% include "prelude/strip.cuh" %}{% endif -%}
{% if packed %}{% include "prelude/bits.cuh" %}{% if not hopper %}{% include "prelude/strip_bits.cuh" %}{% endif %}{% endif -%}
{% if mainloop == "sm80" or reads_bands or attention or hopper or widened and mainloop == "gemv" %}{# -#}
{% include "prelude/shared.cuh" %}{% endif -%}
{% if widened and mainloop == "gemv" or widened_a %}{% include "prelude/widened_pairs.cuh" %}{% endif -%}
{% if mainloop == "sm80" or reads_bands or attention or widened and mainloop == "gemv" %}{# -#}
{% include "prelude/tensor_core.cuh" %}{% endif -%}
// ---- configuration ----
using Element = {{ element }};
{% if mixed %}using ElementB = {{ cuda_b }};
template <bool IS_A> struct ElementOf { using Type = Element; };
template <> struct ElementOf<false> { using Type = ElementB; };
{% endif -%}
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
{% endfor -%}
{% if hopper or mainloop == "gemv" %}constexpr bool CONSTANT_A = {{ constant_a }}, CONSTANT_B = {{ constant_b }};
{% endif -%}
{% include "prelude/overlap.cuh" %}{% if cluster_size > 1 and not hopper %}{% include "prelude/cluster.cuh" %}{% endif %}{# -#}
    {% if cluster_size > 1 and not hopper and mainloop != "gemv" %}{% include "prelude/arrivals.cuh" %}{% endif %}{# -#}
{% if hopper or mainloop == "sm80" or reads_bands or attention or reductions or operand_sums or stages %}{# -#}
    {% include "prelude/fresh.cuh" %}{% endif -%}
{% if reductions or operand_sums or shared_sums %}{% include "prelude/fence.cuh" %}{% endif -%}
{% if attention_wgmma %}{% include "prelude/proxy.cuh" %}{% include "prelude/wgmma.cuh" %}{% endif -%}
{% if hopper %}{% include "prelude/copies.cuh" %}{% include "prelude/hopper.cuh" %}
{% include "prelude/staging.cuh" %}{% if packed %}{% include "prelude/staging_bits.cuh" %}{% endif %}{% endif %}
{% if optional %}{% include "prelude/optional.cuh" %}{% endif -%}
{% if eight_bits_multiplied and mainloop == "sm80" %}{% include "prelude/tensor_core_eights.cuh" %}{% endif -%}
{% include "epilogue/params.cuh" %}
{% if dequantised %}{% include "prelude/scales.cuh" %}{% endif -%}
{% include "prelude/raster.cuh" %}
{% if convolution %}{% include "prelude/patches.cuh" %}{% endif -%}
{% if hopper and residues %}{% include "prelude/staging_rows.cuh" %}{% endif -%}
{% if calls and monoids_call %}{% include "epilogue/calls.cuh" %}{% endif -%}
{% if reductions %}{% include "prelude/monoids.cuh" %}{% if doubles %}{% include "prelude/monoids_of_doubles.cuh" %}{% endif %}
{% include "prelude/reduce.cuh" %}{% if shares_fixup %}{% include "prelude/pieces.cuh" %}{% endif %}
{% include "epilogue/monoids.cuh" %}{% endif -%}
{% if shared_sums and not reductions %}{% include "prelude/lanes.cuh" %}{% endif -%}
{% if mainloop == "rows" or stages %}{% if not reductions %}{% include "prelude/monoids.cuh" %}{# -#}
    {% if doubles %}{% include "prelude/monoids_of_doubles.cuh" %}{% endif %}
{% include "prelude/lanes.cuh" %}{% include "prelude/fold_lanes.cuh" %}{% include "epilogue/monoids.cuh" %}{% endif %}{# -#}
    {% if mainloop == "groups" %}{% include "prelude/copies.cuh" %}{% include "prelude/groups.cuh" %}{# -#}
    {% else %}{% if copies %}{% include "prelude/copies.cuh" %}{% endif %}{% include "prelude/rows.cuh" %}{% endif %}{% endif -%}
{% if calls and not monoids_call %}{% include "epilogue/calls.cuh" %}{% endif -%}
{% include "epilogue/values.cuh" %}
{% include "epilogue/phases.cuh" %}
{% if mainloop == "rows" or stages %}{% include "epilogue/stages.cuh" %}{% endif -%}
{% if hopper %}{% include "epilogue/staged.cuh" %}{% endif -%}
{% if operand_sums %}{% include "epilogue/operand_sums.cuh" %}{% endif -%}
{% if mainloop == "simt" %}{% include "mainloop/simt.cuh" %}{% endif -%}
{% if mainloop == "sm80" %}{% include "mainloop/sm80.cuh" %}{% endif -%}
{% if mainloop == "sm90a" %}{% include "mainloop/sm90a/kernel.cuh" %}{% endif -%}
{% if scores %}{{ scores }}{% endif -%}
{% if attention %}{% include "mainloop/attention.cuh" %}{% endif -%}
{% if mainloop == "bands" %}{% include "mainloop/bands.cuh" %}{% endif -%}
{% if mainloop == "bands_filters" %}{% include "mainloop/bands_filters.cuh" %}{% endif -%}
{% if mainloop == "depthwise" %}{% include "mainloop/depthwise.cuh" %}{% endif -%}
{% if mainloop == "depthwise_lines" %}{% include "prelude/shared.cuh" %}{% include "prelude/copies.cuh" %}{# -#}
    {% include "mainloop/depthwise_lines.cuh" %}{% endif -%}
{% if mainloop == "depthwise_filters" %}{% include "mainloop/depthwise_filters.cuh" %}{% endif -%}
{% if mainloop == "gemv" %}{% include "mainloop/gemv.cuh" %}{% endif -%}
{% if mainloop == "pointwise" %}{% include "mainloop/pointwise.cuh" %}{% endif -%}
{% if mainloop == "rows" %}{% include "mainloop/rows.cuh" %}{% endif -%}
{% if mainloop == "groups" %}{% include "mainloop/groups.cuh" %}{% endif -%}
