{% if turned %}// The B of the gradient of images: a row is a tap and a filter, and channels lie along it. Units are as wide
// as B is aligned, so each lies in one group. If B is aligned to single elements, each of the two in a unit is found by itself.
struct GatheredB : Operand<false> {
    using Base = Operand<false>;
    int first, k;   // the tile's first column; this thread's next row

    DEVICE void begin(const Params& p, const Channels&, const TileOrigin& tile, u32 offset) {
        Base::begin(p, 0, tile.column, offset);
        first = tile.column;
        k = tile.batch * p.k + row;
    }
    DEVICE void skip(i64, i64 terms) { k += int(terms); }

    template <bool WHOLE> DEVICE void copy(const Params& p, const Channels& channels, int share, u32 stage, int k_left) {
        const Element* const filters = static_cast<const Element*>(p.b);
        const int c = first + column;
#pragma unroll
        for (int i = 0; i < Base::SHARE; ++i) {
            const int pass = share * Base::SHARE + i;
            if (pass >= Base::PASSES) continue;
            const Tap tap = tap_at(p, channels, k + pass * Base::PASS_ROWS);
            const bool is_row = WHOLE ? k_left > 0 : row + pass * Base::PASS_ROWS < k_left;
            const bool valid = is_row && column < extent{% if spans_groups %} && has_column(p, channels, tap, c){% endif %};
            const i64 place = valid ? place_in_filter(p, channels, tap, c) : 0;
            if constexpr (Base::ASYNC) {
                copy_async<Base::UNIT>(target(stage, pass), filters + place, valid ? Base::UNIT : 0);
            } else {
                const bool second = is_row && column + 1 < extent{% if spans_groups %} && {# -#}
                    has_column(p, channels, tap, c + 1){% endif %};
                const u16* const elements = reinterpret_cast<const u16*>(filters);
                const u32 low = valid ? elements[place] : 0;
                held[i] = low | u32(second ? elements[place_in_filter(p, channels, tap, c + 1)] : 0) << 16;
            }
            if (pass == Base::PASSES - 1) k += BK;
        }
    }
};
{% else %}// The B of the gradient of filters: a row is an output pixel, and a column is a tap and a channel of X. The
// columns of a thread stay the same, and so does their tap. If B is aligned to single elements, each of the two in a unit has
// its own.
struct GatheredB : Operand<false> {
    using Base = Operand<false>;
    Tap tap, next;   // of this thread's column, and of the one beside it
    int k;           // this thread's next row

    DEVICE void begin(const Params& p, const Channels& channels, const TileOrigin& tile, u32 offset) {
        Base::begin(p, 0, tile.column, offset);
        tap = tap_at(p, channels, tile.column + column);
        next = tap_at(p, channels, tile.column + column + 1);
        k = channels.begin + row;
    }
    DEVICE void skip(i64, i64 terms) { k += int(terms); }

    template <bool WHOLE> DEVICE void copy(const Params& p, const Channels& channels, int share, u32 stage, int k_left) {
        const Element* const images = static_cast<const Element*>(p.b);
#pragma unroll
        for (int i = 0; i < Base::SHARE; ++i) {
            const int pass = share * Base::SHARE + i;
            if (pass >= Base::PASSES) continue;
            const Window window = window_at(p, k + pass * Base::PASS_ROWS);
            const bool is_row = WHOLE ? k_left > 0 : row + pass * Base::PASS_ROWS < k_left;
            const bool valid = is_row && column < extent && is_inside(p, window, tap);
            const i64 place = valid ? place_of(p, channels, window, tap) : 0;
            if constexpr (Base::ASYNC) {
                copy_async<Base::UNIT>(target(stage, pass), images + place, valid ? Base::UNIT : 0);
            } else {
                const bool second = is_row && column + 1 < extent && is_inside(p, window, next);
                const u16* const elements = reinterpret_cast<const u16*>(images);
                const u32 low = valid ? elements[place] : 0;
                held[i] = low | u32(second ? elements[place_of(p, channels, window, next)] : 0) << 16;
            }
            if (pass == Base::PASSES - 1) k += BK;
        }
    }
};
{% endif -%}
