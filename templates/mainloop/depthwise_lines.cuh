// ---- mainloop: depthwise_lines. Each channel of an image has a filter of its own; memory bandwidth is the limit ----
//
// A band is ROWS rows of output pixels of an image. A block has GROUPS bands, of BN channels each. It goes down the lines under
// their windows, which arrive in a ring in shared memory, zeros outside of the image included. A thread has a strip of channels
// of RUN output pixels side by side. It holds the strip's weights, and the sums of all rows of output pixels whose windows lie
// over a line: so it reads and widens each line once.
{% set side = "SIDE" if spread else "RUN" -%}
{% set under = "UNDER_Y" if spread else "WINDOW_Y" -%}
{% set steps = "STEPS" if spread else "ROWS" -%}
{% set lines_of_band = "STEPS" if spread else "(ROWS * STRIDE_Y)" -%}
{% set above = "(p.above - PHASE_Y) / SPREAD_Y" if spread else "p.above" -%}
{% set left = "(p.left - PHASE_X) / SPREAD_X" if spread else "p.left" -%}
{% set under_x = "x / SPREAD_X" if spread else "x * STRIDE_X" -%}
{% set apart = "(SPREAD_Y * WIDTH)" if spread else "WIDTH" -%}
{% set place = "place(pixel)" if spread else "pixel" -%}
{% set strip_there = "{exists(pixel, inside, rest) ? top + place(pixel) : p.m, column}" if spread
    else "{pixel < inside ? top + pixel : p.m, column}" -%}
{% if spread -%}
//
// Lines of the image lie SPREAD_Y lines apart in an image of zeros, and its pixels SPREAD_X pixels. Output pixels meet each
// residue's own taps. So a step makes SPREAD_Y rows of output pixels from the lines under them, and RUN pixels are those of all
// these rows, SIDE of them side by side. Lines and pixels are counted without the zeros.
{% endif -%}
constexpr bool ACC_ROW_MAJOR = true;   // channels are contiguous
extern __shared__ __align__(16) unsigned char shared_memory[];
namespace depthwise {

constexpr int STRIPS = BN / STRIP;                                  // of a row; one a thread
{% if spread -%}
constexpr int SIDE = RUN / SPREAD_Y;
// What lies under SPREAD output pixels, whose first window's first tap is PHASE places ahead of a line or a pixel.
DEVICE constexpr int under(int window, int spread, int phase) { return (window + spread - 2 - phase) / spread + 1; }
constexpr int UNDER_Y = under(WINDOW_Y, SPREAD_Y, PHASE_Y), UNDER_X = under(WINDOW_X, SPREAD_X, PHASE_X);
constexpr int PIXELS = SIDE / SPREAD_X - 1 + UNDER_X;               // of a line under a run
{% else -%}
constexpr int PIXELS = (RUN - 1) * STRIDE_X + WINDOW_X;             // of a line under a run
{% endif -%}
constexpr int WIDTH = BM / (GROUPS * ROWS);                         // output pixels of a row
{% if spread -%}
constexpr int OPEN = UNDER_Y;                                       // steps whose rows lie over a line
constexpr int STEPS = (ROWS + SPREAD_Y - 1) / SPREAD_Y;             // of a band
constexpr int LINES = STEPS - 1 + UNDER_Y;                          // of a band
{% else -%}
constexpr int OPEN = (WINDOW_Y + STRIDE_Y - 1) / STRIDE_Y;          // rows of output pixels over a line
constexpr int LINES = (ROWS - 1) * STRIDE_Y + WINDOW_Y;             // of a band
{% endif -%}
constexpr int LINE_ELEMENTS = LINE * BN, STAGE = GROUPS * LINE_ELEMENTS;
// Elements that are copied at once.
constexpr int ALIGNED = A_ALIGN / int(sizeof(Element)), ALONG = BN & -BN;
constexpr int COPIED = ALIGNED < ALONG ? ALIGNED : ALONG, BYTES = COPIED * int(sizeof(Element));
constexpr int COPIES = STAGE / COPIED, COPIES_OF_THREAD = (COPIES + THREADS - 1) / THREADS;

static_assert(BN % STRIP == 0 && GROUPS * ACROSS * STRIPS <= THREADS && {# -#}
ACROSS * {{ side }} >= WIDTH, "threads cover the bands");
{% if spread -%}
static_assert(RUN % SPREAD_Y == 0 && SIDE % SPREAD_X == 0, "a run has output pixels of all residues");
static_assert(LINE >= ACROSS * SIDE / SPREAD_X - 1 + UNDER_X && BM == GROUPS * ROWS * WIDTH, "lines hold all windows");
{% else -%}
static_assert(LINE >= (ACROSS * RUN - 1) * STRIDE_X + WINDOW_X && BM == GROUPS * ROWS * WIDTH, "lines hold all windows");
{% endif -%}
static_assert(STRIDE_Y <= WINDOW_Y && STAGES >= 2 && BYTES >= 4, "each line is under a window");

{% include "mainloop/multiply_add.cuh" -%}

{% include "mainloop/inside.cuh" %}
{% include "mainloop/filter_of_channel.cuh" %}
constexpr int AT_LINES = (TAPS * BN * int(sizeof(Accum)) + 15) / 16 * 16;   // weights lie first
static_assert(AT_LINES + STAGES * STAGE * int(sizeof(Element)) <= MAINLOOP_SMEM, "the plan made room for both");

// Tiles inside of the matrix have code of their own for a run's visits, unless these are long.
constexpr bool IS_SHORT = {% if spread %}ROWS % SPREAD_Y == 0 && {% endif %}{# -#}
ACROSS * {{ side }} == WIDTH && GROUPS * ACROSS * STRIPS == THREADS && TOGETHER == RUN;
{% if spread %}
// Where a run's pixel lies, counted from its first one; and whether it does, in the row and in the `rest` of the band's rows.
DEVICE constexpr int place(int pixel) { return pixel / SIDE * WIDTH + pixel % SIDE; }
DEVICE bool exists(int pixel, int inside, int rest) {
    return pixel % SIDE < inside && (ROWS % SPREAD_Y == 0 || pixel / SIDE < rest);
}
{% endif %}
{% if in_turns %}{% include "mainloop/lines_in_turns.cuh" %}{% else %}{% include "mainloop/lines_of_tile.cuh" %}{% endif -%}
