{% if packed_accumulator -%}
using Vector = Raw<Element, STRIP>;

{% else -%}
constexpr int ALIGNED = A_ALIGN < int(sizeof(Element)) ? 1 : A_ALIGN / int(sizeof(Element));
constexpr int WIDTH = !ACC_ROW_MAJOR ? 1 : ALIGNED < STRIP ? ALIGNED : STRIP;
constexpr int VECTORS = STRIP / WIDTH;
using Vector = Raw<Element, WIDTH>;

// `left`: how many of the strip's columns lie inside the matrix.
DEVICE void load(Vector (&raw)[VECTORS], const Element* from, i64 column_distance, int left) {
    if (left >= STRIP) {
#pragma unroll
        for (int v = 0; v < VECTORS; ++v) load_wide<WIDTH>(raw[v], from + v * WIDTH * column_distance);
    } else {
#pragma unroll
        for (int v = 0; v < VECTORS; ++v)
            load_narrow<WIDTH>(raw[v], from + v * WIDTH * column_distance, column_distance, left - v * WIDTH);
    }
}

{% endif -%}
