{% include "prelude/types.cuh" %}
{% include "prelude/memory.cuh" %}
{% if eight_bits %}{% include "prelude/eight_bits.cuh" %}
{% include "prelude/four_bits.cuh" %}{% endif -%}
{% include "prelude/overlap.cuh" -%}
// ---- repacking: operands whose rows begin anywhere, copied into rows that begin at multiples of 16 bytes ----
//
// A thread makes UNITS units of 16 bytes of the copy. Each comes, by a shift, from the one or two aligned units of the original
// that it overlaps. Bytes of a copy's row beyond the operand's row are undefined. Nothing outside the operand is read: a unit
// that crosses its first or last byte is assembled element by element.
using Element = {{ element }};
constexpr int UNITS = {{ units }}, THREADS = {{ threads }};
constexpr int ELEMENTS = 16 / int(sizeof(Element)); // of a unit
constexpr int UNIT = 16;

// Rows of `length` elements at a distance of `ld`, in `batch` entries. `blocks` is 0 for an operand that needs no copy.
struct Operand {
    const Element* from;
    uint4* to;
    i64 ld, batch_stride;           // of the original, in elements
    i64 units, entry_units;         // of a row and of an entry of the copy
    int rows, length, batch;
    u32 blocks;                     // blocks of the grid that copy it
};
{% if widened %}// And the scales and zero points of the one that is widened.
struct Params {
    Operand operands[2];
    const {{ scale }}* w_scale;
    i64 w_scale_ld, batch_stride_w_scale;
    const {{ zero_point }}* w_zero;
    i64 w_zero_ld, batch_stride_w_zero;
};
{% include "prelude/scales.cuh" %}
{% else %}struct Params { Operand operands[2]; };
{% endif -%}

{% include "prelude/shift.cuh" %}
{% if transposes %}// Operands with K strided, as lines of K: a block transposes a piece of TILE by TILE elements.
constexpr int TILE = {{ tile }}, UNITS_OF_TILE = TILE / ELEMENTS;   // of a row
constexpr bool TRANSPOSED[2] = { {{ transposed_a }}, {{ transposed_b }}};
static_assert(TILE * UNITS_OF_TILE % THREADS == 0, "threads have equally many units of the transposed piece");
DEVICE void transpose(const Operand& o, u64 block) {
    __shared__ Element piece[TILE][TILE + 4 / sizeof(Element)];
    const u32 across = u32(o.length - 1) / TILE + 1, down = u32(o.rows - 1) / TILE + 1;
    const u64 entry = block / (u64(across) * down), inside = block % (u64(across) * down);
    const int first = int(inside % across) * TILE, line = int(inside / across) * TILE, element = threadIdx.x % TILE;
    const Element* from = o.from + entry * o.batch_stride + (i64(line) * o.ld + first + element);
    // All loads before the first store, which they could not pass.
    constexpr int LINES = THREADS / TILE;
    const int own = threadIdx.x / TILE;
    Element read[TILE / LINES];
#pragma unroll
    for (int i = 0; i < TILE / LINES; ++i)
        read[i] = line + own + i * LINES < o.rows && first + element < o.length ? from[(own + i * LINES) * o.ld] : Element{};
#pragma unroll
    for (int i = 0; i < TILE / LINES; ++i) piece[own + i * LINES][element] = read[i];
    __syncthreads();
#pragma unroll
    for (int i = 0; i < TILE * UNITS_OF_TILE / THREADS; ++i) {
        const int at = threadIdx.x + i * THREADS, row = at / UNITS_OF_TILE, unit = at % UNITS_OF_TILE;
        const int to = line / ELEMENTS + unit;
        Raw<Element, ELEMENTS> turned;
#pragma unroll
        for (int j = 0; j < ELEMENTS; ++j) turned.elements[j] = piece[unit * ELEMENTS + j][row];
        if (first + row < o.length && to < o.units)
            o.to[entry * o.entry_units + u64(first + row) * o.units + to] = turned.words[0];
    }
}

{% endif -%}
{% if widened %}// An operand of fewer bits, as elements of 16, scaled.
DEVICE void widen_operand(const Params& p, const Operand& o, u64 block) {
    using Narrower = {{ narrow }};
    constexpr int PACK = Packed<Narrower>::COUNT, PIECES = ELEMENTS / PACK;
    const u64 per_row = u64((o.length - 1) / ELEMENTS + 1), per_entry = per_row * o.rows, all = per_entry * o.batch;
#pragma unroll
    for (int i = 0; i < UNITS; ++i) {
        const u64 at = block * (THREADS * UNITS) + threadIdx.x + i * THREADS;
        if (at >= all) return;
        const u64 entry = o.batch == 1 ? 0 : at / per_entry, inside = at - entry * per_entry;
        const u64 row = per_entry >> 32 ? inside / per_row : u32(inside) / u32(per_row), unit = inside - row * per_row;
        const int first = int(unit) * ELEMENTS, count = o.length - first;
        const Narrower* const from = reinterpret_cast<const Narrower*>(o.from)
                                     + (i64(entry) * (o.batch_stride / PACK) + i64(row) * (o.ld / PACK) + first / PACK);
        Raw<Narrower, PIECES> narrow;
        if (count >= ELEMENTS && reinterpret_cast<u64>(from) % PIECES == 0) load_wide<PIECES>(narrow, from);
        else load_narrow<PIECES>(narrow, from, 1, (count + PACK - 1) / PACK);
        float values[ELEMENTS];
#pragma unroll
        for (int j = 0; j < ELEMENTS; ++j) {
            values[j] = Packed<Narrower>::at(narrow.elements[j / PACK], j % PACK);
            if constexpr (Blocks<false>::SCALED) {
                // Elements of K in a unit lie in one block.
                const int line = {% if k_contiguous %}int(row){% else %}min(first + j, o.length - 1){% endif %};
                const int k = {% if k_contiguous %}first{% else %}int(row){% endif %};
                if constexpr (Blocks<false>::SHIFTED) values[j] -= Blocks<false>::zero(p, int(entry), line, k);
                values[j] *= Blocks<false>::scale(p, int(entry), line, k);
            }
        }
        Raw<Element, ELEMENTS> wide;
        narrow_all(wide, values);
        o.to[entry * o.entry_units + row * o.units + unit] = wide.words[0];
    }
}

{% endif -%}
extern "C" __global__ void __launch_bounds__(THREADS) postlude_repack(const __grid_constant__ Params p) {
    begin_early();
    const bool second = blockIdx.x >= p.operands[0].blocks;
    const Operand& o = p.operands[second];
    const u64 block = second ? blockIdx.x - p.operands[0].blocks : blockIdx.x;
{% if widened %}    if (second == {{ second }}) {
        widen_operand(p, o, block);
        return;
    }
{% endif %}{% if transposes %}    if (TRANSPOSED[second]) {
        transpose(o, block);
        return;
    }
{% endif %}    const u64 first = block * (THREADS * UNITS) + threadIdx.x;
    const u64 per_row = u64((o.length - 1) / ELEMENTS + 1), per_entry = per_row * o.rows, all = per_entry * o.batch;

    Raw<Element, ELEMENTS> low[UNITS], high[UNITS];
    u32 offset[UNITS];
    uint4* to[UNITS];
#pragma unroll
    for (int i = 0; i < UNITS; ++i) {
        const u64 at = first + i * THREADS < all ? first + i * THREADS : all - 1; // several threads may copy the last unit
        const u64 entry = o.batch == 1 ? 0 : at / per_entry, inside = at - entry * per_entry;
        const u64 row = per_entry >> 32 ? inside / per_row : u32(inside) / u32(per_row), unit = inside - row * per_row;
        const Element* const begin = o.from + entry * o.batch_stride;
        const Element* const end = begin + (o.rows - 1) * o.ld + o.length;
        const Element* const from = begin + row * o.ld + unit * ELEMENTS;
        offset[i] = u32(reinterpret_cast<u64>(from)) % UNIT;
        to[i] = o.to + entry * o.entry_units + row * o.units + unit;
        const Element* const aligned = reinterpret_cast<const Element*>(reinterpret_cast<u64>(from) - offset[i]);
        if (aligned >= begin && aligned + 2 * ELEMENTS <= end) {
            load_wide<ELEMENTS>(low[i], aligned);
            load_wide<ELEMENTS>(high[i], aligned + ELEMENTS);
        } else {
            load_narrow<ELEMENTS>(low[i], from, 1, end - from < ELEMENTS ? int(end - from) : ELEMENTS);
            offset[i] = 0;
        }
    }
#pragma unroll
    for (int i = 0; i < UNITS; ++i) *to[i] = shift(low[i].words[0], high[i].words[0], offset[i]);
}
