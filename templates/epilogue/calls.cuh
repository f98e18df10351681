// ---- functions that are called: inlined, each would be repeated for every element of a thread ----
{% for call in calls %}__device__ __noinline__ float {{ call.name }}({{ call.parameters }}) {
{% if call.marks %}{{ call.marks[0] }}
{% endif %}    return {{ call.value }};
{% if call.marks %}{{ call.marks[1] }}
{% endif %}}
{% endfor %}