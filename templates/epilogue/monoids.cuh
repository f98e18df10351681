{% if own_monoids %}// ---- monoids of the program's own ----
{% endif %}{% for m in own_monoids %}struct {{ m.name }} { // {{ m.note }}
    struct State { {% for word in m.words %}{{ word }} s{{ loop.index0 }}; {% endfor %}};
    static DEVICE State identity() { return { {{ m.identity | join(sep=", ") }} }; }
    static DEVICE State combine(State a, State b) {
{% for line in m.combine.lines %}        {{ line }}
{% endfor %}        return { {{ m.combine.results }} };
    }
    static DEVICE void take(State& s, {{ m.parameters }}) {
{% for line in m.lift.lines %}        {{ line }}
{% endfor %}        s = combine(s, State{ {{ m.lift.results }} });
    }
    static DEVICE {{ m.gives }} result(State s, float) {
{% for line in m.result.lines %}        {{ line }}
{% endfor %}        return {{ m.result.results }};
    }
};
{% endfor %}{% for r in reductions %}static_assert(sizeof({{ r.monoid }}::State) == {{ r.words }} * 4,
    "{{ r.node }}: words of a state");
{% endfor %}
