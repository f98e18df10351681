{# The lines of images under the windows of neighbouring output pixels, which are rows of a convolution and K of the gradient of
   its filters. -#}
// Elements under a window are pairs, row by row of the window.
constexpr int RUN = WINDOW_X * CHANNELS;                      // elements of a window in a line
constexpr int PAIRS = (RUN + LEAN + 1) / 2;
constexpr int COPY_LINES = LINES / COPIES;
static_assert(TERMS % 16 == 0 && TERMS >= 2 * PAIRS * WINDOW_Y && LINE % 8 == 0 && LEAD % 8 == 0 && LINES % COPIES == 0,
              "whole steps and pieces");
static_assert(DILATION_X == 1 || WINDOW_X == 1 || CHANNELS % 2 == 0, "a pair lies in one tap, or taps are neighbours");

{% include "prelude/shift.cuh" %}
// A pair's row of the window, and its first element in the row. It counts from 0 to RUN.
DEVICE constexpr int row_of(int pair) { return pair / PAIRS; }
DEVICE constexpr int first_of(int pair) { return pair % PAIRS * 2 - LEAN; }
DEVICE constexpr bool counts(int pair, int along) { return row_of(pair) < WINDOW_Y && along >= 0 && along < RUN; }
// Where a pair lies from the beginning of its window, in bytes; 0 where there is none.
DEVICE u32 place_of_pair(const Params& p, int pair) {
    const int along = first_of(pair);
    const int tap = DILATION_X == 1 ? 0 : along / CHANNELS;   // distances of neighbouring taps are those of elements
    const int at = row_of(pair) * p.dilation_y * LINE + along + LEAN + tap * (DILATION_X - 1) * CHANNELS;
    return counts(pair, along) || counts(pair, along + 1) ? u32(at) * 2 : 0;
}

// The lines of a tile: the first is that of the window at the tile's first row, counted as `image` and `y` from the first one of
// the padded image.
struct Band {
    int image, y, height;   // of the first line; all lines of an image that its windows reach
    DEVICE Band(const Params& p, int row) {
        const int rows = p.output_pixels / p.output_width, first = row / p.output_width;
        height = (rows - 1) * p.stride_y + (WINDOW_Y - 1) * p.dilation_y + 1;
        image = first / rows;
        y = (first - image * rows) * p.stride_y;
    }
};
// Where the window at an output pixel begins, in bytes from the first line.
DEVICE u32 place_of_window(const Params& p, const Band& band, int pixel) {
    const int height = p.output_pixels / p.output_width, output = pixel / p.output_width, image = output / height;
    const int line = (image - band.image) * band.height + (output - image * height) * p.stride_y - band.y;
    const int element = LEAD - p.left * CHANNELS + (pixel - output * p.output_width) * STRIDE_X * CHANNELS;
    const int copy = COPIES == 2 ? element & 1 : 0;
    return u32((copy * COPY_LINES + line) * LINE + element - copy - LEAN) * 2;
}
// A piece of 16 bytes of a line that begins anywhere: its elements from `first` on, zeros outside of the image.
DEVICE uint4 piece_of(const Params& p, i64 pixels, int first) {
    const Element* const images = static_cast<const Element*>(p.{% if of_columns %}b{% else %}a{% endif %});
    const int length = p.image_width * CHANNELS;
    const i64 ld = p.ld{% if of_columns %}b{% else %}a{% endif %};
    if (ld == CHANNELS && first >= 0 && first + 8 <= length) {
        const Element* const from = images + pixels * CHANNELS + first;
        const u32 offset = u32(reinterpret_cast<u64>(from)) % 16;
        const Element* const aligned = reinterpret_cast<const Element*>(reinterpret_cast<u64>(from) - offset);
        if (aligned >= images && aligned + 16 <= images + i64(p.images) * p.image_height * length) {
            Raw<Element, 8> low, high;
            load_wide(low, aligned);
            load_wide(high, aligned + 8);
            return shift(low.words[0], high.words[0], offset);
        }
    }
    Raw<Element, 8> piece;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        const int at = first + i, pixel = at / CHANNELS;
        const bool exists = at >= 0 && at < length;
        piece.elements[i] = exists ? images[(pixels + pixel) * ld + (at - pixel * CHANNELS)] : Element{};
    }
    return piece.words[0];
}
{% if not of_columns %}// The second copy follows from the first one, once that has arrived.
{% endif %}// Begins to copy the lines of a tile. Lines that consist of whole pieces of 16 bytes are copied asynchronously.
DEVICE void load_lines(const Params& p, const Band& band, u32 buffer) {
    constexpr int PIECES = LINE / 8;
    const int length = p.image_width * CHANNELS;
    const Element* const from = static_cast<const Element*>(p.{% if of_columns %}b{% else %}a{% endif %});
    const i64 ld = p.ld{% if of_columns %}b{% else %}a{% endif %};
    const bool whole = ld == CHANNELS && length % 8 == 0 && reinterpret_cast<u64>(from) % 16 == 0;
    const u32 to = shared_address(shared_memory) + AT_LINES + buffer * (LINES * LINE * 2);
#pragma unroll 4
    for (int i = threadIdx.x; i < {% if of_columns %}LINES{% else %}COPY_LINES{% endif %} * PIECES; i += THREADS) {
{% if not of_columns %}        const int number = i / PIECES, first = i % PIECES * 8 - LEAD;
        int image = band.image, y = band.y + number;
{% else %}        const int number = i / PIECES, copy = COPIES == 2 && number >= COPY_LINES, first = i % PIECES * 8 + copy - LEAD;
        int image = band.image, y = band.y + number - copy * COPY_LINES;
{% endif %}        while (y >= band.height) y -= band.height, ++image;
        y -= p.above;
        const bool exists = image < p.images && u32(y) < u32(p.image_height);
        const i64 pixels = (i64(image) * p.image_height + y) * p.image_width;
        if (whole{% if of_columns %} && copy == 0{% endif %}) {
            const bool inside = exists && u32(first) < u32(length);
            copy_async<16>(to + i * 16, from + (inside ? pixels * CHANNELS + first : 0), inside ? 16 : 0);
        } else {
            const uint4 piece = exists ? piece_of(p, pixels, first) : uint4{};
            asm volatile("st.shared.v4.b32 [%0], { %1, %2, %3, %4};" ::"r"(to + i * 16),
                         "r"(piece.x), "r"(piece.y), "r"(piece.z), "r"(piece.w) : "memory");
        }
    }
    copy_async_commit();
}
{% if not of_columns %}// Writes the second copy of the lines in a buffer, from the first one.
DEVICE void shift_lines(u32 buffer) {
    constexpr int PIECES = LINE / 8;
    const u32 from = shared_address(shared_memory) + AT_LINES + buffer * (LINES * LINE * 2);
#pragma unroll 2
    for (u32 i = threadIdx.x; i < COPY_LINES * PIECES; i += THREADS) {
        uint4 piece;
        asm volatile("ld.shared.v4.b32 { %0, %1, %2, %3}, [%4];"
                     : "=r"(piece.x), "=r"(piece.y), "=r"(piece.z), "=r"(piece.w) : "r"(from + i * 16) : "memory");
        // No window has the last element of a line there.
        const u32 next = i % PIECES == PIECES - 1 ? 0 : load_shared_word(from + i * 16 + 16);
        piece = shift(piece, make_uint4(next, 0, 0, 0), 2);
        asm volatile("st.shared.v4.b32 [%0], { %1, %2, %3, %4};" ::"r"(from + COPY_LINES * LINE * 2 + i * 16),
                     "r"(piece.x), "r"(piece.y), "r"(piece.z), "r"(piece.w) : "memory");
    }
}
{% endif -%}
