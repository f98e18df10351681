// The A of a convolution, whose rows are patches of images: an operand with K contiguous but for where its units come from. A unit is as
// wide as A is aligned, and so lies in one tap; where A is aligned to single elements, each of its two is found by itself. Of a unit
// beyond the image nothing is read, and zeros are written.
struct Patches : Operand<true> {
    using Base = Operand<true>;
    Window windows[Base::PASSES];   // of this thread's rows
    int k, channel;                 // of this thread's next unit; the first one of the tile's group

    DEVICE void begin(const Params& p, const TileOrigin& tile, u32 offset) {
        Base::begin(p, 0, tile.row, offset);
        channel = first_channel(p, tile.column);
        k = tile.batch * p.k + column;
#pragma unroll
        for (int pass = 0; pass < Base::PASSES; ++pass) windows[pass] = window_at(p, tile.row + row + pass * Base::PASS_ROWS);
    }
    DEVICE void skip(i64, i64 terms) { k += int(terms); }

    template <bool WHOLE> DEVICE void copy(const Params& p, int share, u32 stage, int k_left) {
        const Element* const images = static_cast<const Element*>(p.a);
        const Tap tap = tap_at(p, k);
#pragma unroll
        for (int i = 0; i < Base::SHARE; ++i) {
            const int pass = share * Base::SHARE + i;
            if (pass >= Base::PASSES) continue;
            const bool is_row = row + pass * Base::PASS_ROWS < extent && (WHOLE ? k_left > 0 : column < k_left);
            const bool valid = is_row && is_inside(p, windows[pass], tap);
            const i64 place = valid ? place_of(p, windows[pass], tap) + channel : 0;
            if constexpr (Base::ASYNC) {
                copy_async<Base::UNIT>(target(stage, pass), images + place, valid ? Base::UNIT : 0);
            } else {
                const Tap next = tap_at(p, k + 1);
                const bool second = is_row && (WHOLE || column + 1 < k_left) && is_inside(p, windows[pass], next);
                const u16* const elements = reinterpret_cast<const u16*>(images);
                const u32 low = valid ? elements[place] : 0, high = second ? elements[place_of(p, windows[pass], next) + channel] : 0;
                held[i] = low | high << 16;
            }
            if (pass == Base::PASSES - 1) k += BK;
        }
    }
};
