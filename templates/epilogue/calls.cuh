// ---- functions that are called: inlined, the code of each would stand in the kernel for every element of a thread ----
{% for call in calls %}__device__ __noinline__ float {{ call.name }}({{ call.parameters }}) {
{% if call.marks %}{{ call.marks[0] }}
{% endif %}    return {{ call.value }};
{% if call.marks %}{{ call.marks[1] }}
{% endif %}}
{% endfor %}