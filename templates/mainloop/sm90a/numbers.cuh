// ---- scales and zero points of an A that is widened: those of a panel's rows lie in shared memory as in the operand ----
// Words of four bytes arrive by cp.async. The first one has the first row's number, which may begin inside of it.
template <class T> struct RowNumbers {
    static constexpr int SIZE = sizeof(T), WORDS = (BM * SIZE + 3) / 4 + (SIZE < 4), BYTES = (WORDS * 4 + 15) / 16 * 16;
    // A lane of the producer's warp fetches every 32nd word. Numbers of rows that do not exist become zero. Memory may end
    // inside of a word, behind the last row. A copy reads only the bytes ahead of that end, and none behind the last block of K.
    static DEVICE void fetch(u32 to, const T* from, int rows, int lane) {
        const int within = int(u64(from)) & 3, bytes = rows > 0 ? rows * SIZE + within : 0;
        const u8* const begin = reinterpret_cast<const u8*>(from) - within;
#pragma unroll
        for (int i = 0; i < (WORDS + 31) / 32; ++i) {
            const int at = (lane + i * 32) * 4;
            if (WORDS % 32 > 0 && i == WORDS / 32 && lane >= WORDS % 32) break;
            copy_async<4>(shared_address(shared_memory) + to + at, begin + at, min(max(bytes - at, 0), 4));
        }
    }
    static DEVICE float at(u32 from, int row) { return float(widen(shared_at<T>(from + row * SIZE))); }
};
using Scales = RowNumbers<{{ scale_type }}>;
{% if shifted_a %}using Zeros = RowNumbers<{{ zero_type }}>;
constexpr int NUMBER_BYTES = Scales::BYTES + Zeros::BYTES;
{% else %}constexpr int NUMBER_BYTES = Scales::BYTES;
{% endif %}static_assert(PANELS * NUMBER_BYTES == SCALE_BYTES, "as much room as the plan made");
static_assert(Blocks<true>::TERMS % {{ panel_terms }} == 0, "a panel of K lies in one block");
// The producer's position in the numbers of a tile.
struct StageScales {
    int k, batch, row;
    DEVICE void start(const Params&, const TileOrigin& tile, int, int from) { k = from, batch = tile.batch, row = tile.row; }
    // Fetches those of the next block of K into a stage, and arrives there.
    DEVICE void fetch(const Params& p, u32 stage, int lane) {
#pragma unroll
        for (int panel = 0; panel < PANELS; ++panel, k += {{ panel_terms }}) {
            const u32 to = AT_SCALES + stage * SCALE_BYTES + panel * NUMBER_BYTES;
            const int rows = k < p.k ? min(p.m - row, BM) : 0;
            Scales::fetch(to, Blocks<true>::address(p, batch, row, k), rows, lane);
{% if shifted_a %}            Zeros::fetch(to + Scales::BYTES, Blocks<true>::zero_address(p, batch, row, k), rows, lane);
{% endif %}        }
        mbarrier_arrive_behind_copies(shared_address(shared_memory) + FULL + stage * 8);
    }
};
// What a thread knows of its rows in a panel.
struct PanelNumbers {
    float scales[2 * BLOCKS_M];
{% if shifted_a %}    u32 zeros[2 * BLOCKS_M];   // twice each
{% endif %}    DEVICE void load(const Params& p, int batch, int k, u32 stage, int panel, int row) {
        const u32 from = AT_SCALES + stage * SCALE_BYTES + panel * NUMBER_BYTES;
        // A tile's first row changes nothing here.
        const u32 scales_from = from + (u32(u64(Blocks<true>::address(p, batch, 0, k))) & 3);
{% if shifted_a %}        const u32 zeros_from =
            from + Scales::BYTES + (u32(u64(Blocks<true>::zero_address(p, batch, 0, k))) & 3);
{% endif %}#pragma unroll
        for (int i = 0; i < 2 * BLOCKS_M; ++i) {
            scales[i] = Scales::at(scales_from, row + i / 2 * 64 + i % 2 * 8);
{% if shifted_a %}            const float zero = Zeros::at(zeros_from, row + i / 2 * 64 + i % 2 * 8);
            zeros[i] = narrow_pair<ElementB>(zero, zero);
{% endif %}        }
    }
};
