// ---- mainloop: depthwise_lines. Each channel of an image has a filter of its own; memory bandwidth is the limit ----
//
// A band is ROWS rows of output pixels of an image. A block has GROUPS bands, of BN channels each. It goes down the lines under
// their windows, which arrive in a ring in shared memory, zeros outside of the image included. A thread has a strip of channels
// of RUN output pixels side by side. It holds the strip's weights, and the sums of all rows of output pixels whose windows lie
// over a line: so it reads and widens each line once.
constexpr bool ACC_ROW_MAJOR = true;   // channels are contiguous
extern __shared__ __align__(16) unsigned char shared_memory[];
namespace depthwise {

constexpr int STRIPS = BN / STRIP;                                  // of a row; one a thread
constexpr int PIXELS = (RUN - 1) * STRIDE_X + WINDOW_X;             // of a line under a run
constexpr int WIDTH = BM / (GROUPS * ROWS);                         // output pixels of a row
constexpr int OPEN = (WINDOW_Y + STRIDE_Y - 1) / STRIDE_Y;          // rows of output pixels over a line
constexpr int LINES = (ROWS - 1) * STRIDE_Y + WINDOW_Y;             // of a band
constexpr int LINE_ELEMENTS = LINE * BN, STAGE = GROUPS * LINE_ELEMENTS;
// Elements that are copied at once.
constexpr int ALIGNED = A_ALIGN / int(sizeof(Element)), ALONG = BN & -BN;
constexpr int COPIED = ALIGNED < ALONG ? ALIGNED : ALONG, BYTES = COPIED * int(sizeof(Element));
constexpr int COPIES = STAGE / COPIED, COPIES_OF_THREAD = (COPIES + THREADS - 1) / THREADS;

static_assert(BN % STRIP == 0 && GROUPS * ACROSS * STRIPS <= THREADS && ACROSS * RUN >= WIDTH, "threads cover the bands");
static_assert(LINE >= (ACROSS * RUN - 1) * STRIDE_X + WINDOW_X && BM == GROUPS * ROWS * WIDTH, "lines hold all windows");
static_assert(STRIDE_Y <= WINDOW_Y && STAGES >= 2 && BYTES >= 4, "each line is under a window");

{% include "mainloop/multiply_add.cuh" -%}

{% include "mainloop/inside.cuh" %}
{% include "mainloop/filter_of_channel.cuh" %}
constexpr int AT_LINES = (TAPS * BN * int(sizeof(Accum)) + 15) / 16 * 16;   // weights lie first
static_assert(AT_LINES + STAGES * STAGE * int(sizeof(Element)) <= MAINLOOP_SMEM, "the plan made room for both");

// Tiles inside of the matrix have code of their own for a run's visits, unless these are long.
constexpr bool IS_SHORT = ACROSS * RUN == WIDTH && GROUPS * ACROSS * STRIPS == THREADS && TOGETHER == RUN;

{% if in_turns %}{% include "mainloop/lines_in_turns.cuh" %}{% else %}{% include "mainloop/lines_of_tile.cuh" %}{% endif -%}
