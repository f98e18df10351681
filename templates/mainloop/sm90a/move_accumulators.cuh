// Accumulators have names in the code, so a split epilogue moves the second half of them to the names of the first. As assembly:
// the compiler turns assignments into a permutation, with every accumulator in two registers.
DEVICE void move_accumulators({{ accumulator }}* to, const {{ accumulator }}* from) {
    asm volatile("mov.b32 %0, %4;\nmov.b32 %1, %5;\nmov.b32 %2, %6;\nmov.b32 %3, %7;"
{% if integers %}                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(from[0]), "r"(from[1]), "r"(from[2]), "r"(from[3]));
{% else %}                 : "=f"(to[0]), "=f"(to[1]), "=f"(to[2]), "=f"(to[3])
                 : "f"(from[0]), "f"(from[1]), "f"(from[2]), "f"(from[3]));
{% endif -%}
}
