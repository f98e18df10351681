// ---- parameters ----
struct Params {
{% for field in params %}    {{ field }}
{% endfor %}};
