// The A of a convolution, with rows that are patches of images. Only the places of its units differ from an operand with K
// contiguous. A unit is as wide as A is aligned, so it lies in one tap. If A is aligned to single elements, each of the two in a
// unit is found by itself. A unit beyond the image is not read, and zeros are written.
struct Patches : Operand<true> {
    using Base = Operand<true>;
    Window windows[Base::PASSES];   // of this thread's rows
    int k;                          // of this thread's next unit

    DEVICE void begin(const Params& p, const TileOrigin& tile, u32 offset) {
        Base::begin(p, 0, tile.row, offset);
        k = tile.batch * p.k + column;
#pragma unroll
        for (int pass = 0; pass < Base::PASSES; ++pass) windows[pass] = window_at(p, tile.row + row + pass * Base::PASS_ROWS);
    }
    DEVICE void skip(i64, i64 terms) { k += int(terms); }

    template <bool WHOLE> DEVICE void copy(const Params& p, const Channels& channels, int share, u32 stage, int k_left) {
        const Element* const images = static_cast<const Element*>(p.a);
        const Tap tap = tap_at(p, channels, k);
#pragma unroll
        for (int i = 0; i < Base::SHARE; ++i) {
            const int pass = share * Base::SHARE + i;
            if (pass >= Base::PASSES) continue;
            const bool is_row = row + pass * Base::PASS_ROWS < extent && (WHOLE ? k_left > 0 : column < k_left);
            const bool valid = is_row && is_inside(p, windows[pass], tap);
            const i64 place = valid ? place_of(p, channels, windows[pass], tap) : 0;
            if constexpr (Base::ASYNC) {
                copy_async<Base::UNIT>(target(stage, pass), images + place, valid ? Base::UNIT : 0);
            } else {
                const Tap next = tap_at(p, channels, k + 1);
                const bool second = is_row && (WHOLE || column + 1 < k_left) && is_inside(p, windows[pass], next);
                const u16* const elements = reinterpret_cast<const u16*>(images);
                const u32 low = valid ? elements[place] : 0;
                const u32 high = second ? elements[place_of(p, channels, windows[pass], next)] : 0;
                held[i] = low | high << 16;
            }
            if (pass == Base::PASSES - 1) k += BK;
        }
    }
};
{% if spans_groups and not turned %}// The B whose columns are filters of several groups: zeros but for the channels
// of a column's own group.
struct GatheredB : Operand<false> {
    using Base = Operand<false>;
    int own[Base::PASSES];   // the first channel of each of this thread's columns
    int first, k;            // this thread's first column; its next unit

    DEVICE void begin(const Params& p, const Channels& channels, const TileOrigin& tile, u32 offset) {
        Base::begin(p, 0, tile.column, offset);
        first = tile.column + row;
        k = column;
#pragma unroll
        for (int pass = 0; pass < Base::PASSES; ++pass) own[pass] = own_channel(p, channels, first + pass * Base::PASS_ROWS);
    }
    DEVICE void skip(i64, i64 terms) { k += int(terms); }

    template <bool WHOLE> DEVICE void copy(const Params& p, const Channels& channels, int share, u32 stage, int k_left) {
        const Tap tap = tap_at(p, channels, k);
#pragma unroll
        for (int i = 0; i < Base::SHARE; ++i) {
            const int pass = share * Base::SHARE + i;
            if (pass >= Base::PASSES) continue;
            const Element* const filter = static_cast<const Element*>(p.b) + (first + pass * Base::PASS_ROWS) * p.ldb;
            const bool is_row = row + pass * Base::PASS_ROWS < extent && (WHOLE ? k_left > 0 : column < k_left);
            const bool valid = is_row && has_channel(p, own[pass], tap);
            const i64 place = place_in_filter(p, own[pass], tap);
            if constexpr (Base::ASYNC) {
                const Element* const from = valid ? filter + place : static_cast<const Element*>(p.b);
                copy_async<Base::UNIT>(target(stage, pass), from, valid ? Base::UNIT : 0);
            } else {
                const Tap next = tap_at(p, channels, k + 1);
                const bool second = is_row && (WHOLE || column + 1 < k_left) && has_channel(p, own[pass], next);
                const u16* const elements = reinterpret_cast<const u16*>(filter);
                const u32 low = valid ? elements[place] : 0, high = second ? elements[place_in_filter(p, own[pass], next)] : 0;
                held[i] = low | high << 16;
            }
            if (pass == Base::PASSES - 1) k += BK;
        }
    }
};
{% endif -%}
