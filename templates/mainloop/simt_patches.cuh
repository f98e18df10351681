// Loads the vectors of a share one by one. `at` gives the address of vector `i`, which is `extent` lines behind the tile's first
// line, or null where it reads zeros. Vectors beyond the operand's extents are zeros in any case.
template <class Share, class At> DEVICE void load_each(Share& share, int k_left, At at) {
#pragma unroll
    for (int i = 0; i < Share::VECTORS; ++i) {
        const int extent = Share::extent_of(threadIdx.x) + Share::extent_of(i * THREADS);
        const int along = Share::k_of(threadIdx.x) + Share::k_of(i * THREADS);
        const Element* const from = extent < share.extent_left && along < k_left ? at(i, extent) : nullptr;
        if (from != nullptr) load_wide<Share::WIDTH>(share.raw[i], from);
        else load_narrow<Share::WIDTH>(share.raw[i], from, 1, 0);
    }
}
{% if gathers_a %}// The share of A for rows that are patches of images. Only the places of its elements differ from
// other operands. A vector is as wide as A is aligned, so it lies in one tap.
struct PatchShare : Share<A_K_MAJOR, A_ALIGN, BM> {
    using Base = Share<A_K_MAJOR, A_ALIGN, BM>;
    Window windows[Base::VECTORS];
    int k;   // of this thread's first vector

    DEVICE void begin(const Params& p, int row, int first) {
        const int e = Base::extent_of(threadIdx.x);
        extent_left = p.m - row;
        k = first + Base::k_of(threadIdx.x);
#pragma unroll
        for (int i = 0; i < Base::VECTORS; ++i) windows[i] = window_at(p, row + e + Base::extent_of(i * THREADS));
    }
    DEVICE void advance() { k += BK; }
    DEVICE void load(const Params& p, const Channels& channels, int k_left) {
        load_each(*this, k_left, [&](int i, int) -> const Element* {
            const Tap tap = tap_at(p, channels, k + Base::k_of(i * THREADS));
            if (!is_inside(p, windows[i], tap)) return nullptr;
            return static_cast<const Element*>(p.a) + place_of(p, channels, windows[i], tap);
        });
    }
};
{% endif -%}
{% if spans_groups and not turned %}// The share of B with columns that are filters of several groups. Elements outside
// a column's own group are zeros.
struct GatheredShare : Share<B_K_MAJOR, B_ALIGN, BN> {
    using Base = Share<B_K_MAJOR, B_ALIGN, BN>;
    int first, k;

    DEVICE void begin(const Params& p, int column, int) {
        extent_left = p.n - column;
        first = column;
        k = Base::k_of(threadIdx.x);
    }
    DEVICE void advance() { k += BK; }
    DEVICE void load(const Params& p, const Channels& channels, int k_left) {
        load_each(*this, k_left, [&](int i, int e) -> const Element* {
            const Tap tap = tap_at(p, channels, k + Base::k_of(i * THREADS));
            const int own = own_channel(p, channels, first + e);
            if (!has_channel(p, own, tap)) return nullptr;
            return static_cast<const Element*>(p.b) + (first + e) * p.ldb + place_in_filter(p, own, tap);
        });
    }
};
{% endif -%}
{% if turned %}// The share of B for the gradient of images: a row is a tap and a filter, and channels lie along it.
struct GatheredShare : Share<B_K_MAJOR, B_ALIGN, BN> {
    using Base = Share<B_K_MAJOR, B_ALIGN, BN>;
    int first, k;   // this thread's first column and row

    DEVICE void begin(const Params& p, int column, int term) {
        extent_left = p.n - column;
        first = column + Base::extent_of(threadIdx.x);
        k = term + Base::k_of(threadIdx.x);
    }
    DEVICE void advance() { k += BK; }
    DEVICE void load(const Params& p, const Channels& channels, int k_left) {
        load_each(*this, k_left, [&](int i, int) -> const Element* {
            const Tap tap = tap_at(p, channels, k + Base::k_of(i * THREADS));
            const int column = first + Base::extent_of(i * THREADS);
{% if spans_groups %}            if (!has_column(p, channels, tap, column)) return nullptr;
{% endif %}            return static_cast<const Element*>(p.b) + place_in_filter(p, channels, tap, column);
        });
    }
};
{% endif -%}
{% if of_columns %}// The share of B for the gradient of filters: a row is an output pixel, a column a tap and a channel of X.
struct GatheredShare : Share<B_K_MAJOR, B_ALIGN, BN> {
    using Base = Share<B_K_MAJOR, B_ALIGN, BN>;
    int first, k;   // the tile's first column; this thread's first row

    DEVICE void begin(const Params& p, const Channels& channels, int column) {
        extent_left = p.n - column;
        first = column;
        k = channels.begin + Base::k_of(threadIdx.x);
    }
    DEVICE void advance() { k += BK; }
    DEVICE void load(const Params& p, const Channels& channels, int k_left) {
        load_each(*this, k_left, [&](int i, int e) -> const Element* {
            const Tap tap = tap_at(p, channels, first + e);
            const Window window = window_at(p, k + Base::k_of(i * THREADS));
            if (!is_inside(p, window, tap)) return nullptr;
            return static_cast<const Element*>(p.b) + place_of(p, channels, window, tap);
        });
    }
};
{% endif -%}
