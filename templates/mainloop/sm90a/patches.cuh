// ---- producer of a convolution: the images come by im2col maps, the filters by an ordinary one ----
// K goes panel by panel: 128 bytes of the channels of one tap. Both maps read zeros behind the channels of a tap and behind the
// last panel. Quotients by numbers of the launch are products with their inverses.
struct Tap { int number, down, right, channel; };
DEVICE Tap tap_of_panel(const Params& p, u32 panel) {
    const u32 number = u64(panel) * p.tap_panels_inverse >> 32, down = u64(number) * p.window_width_inverse >> 32;
    return {int(number), int(down) * p.dilation_y, int(number - down * u32(p.window_width)) * p.dilation_x,
            int(panel - number * u32(p.tap_panels)) * {{ panel_terms }}};
}
{% if residues %}static_assert(CLUSTER == 1 && !DELAYED_STORE, "tiles have different numbers of blocks");
// Blocks of K of one tile. Where no taps meet its pixels it has a block of zeros.
DEVICE u32 blocks_of(const Params& p, const TileClass& of) {
    const u32 blocks = (u32(of.down.count * of.right.count * p.tap_panels) + PANELS - 1) / PANELS;
    return blocks > 0 ? blocks : 1;
}
// The same for the tile of a number, which may lie behind the last one.
DEVICE u32 blocks_at(const Params& p, TileClass of, u32 number) {
    const u32 rows = Tiles::rows_of(p), columns = Tiles::columns_of(p);
    u32 row, column;
    place_tile(p, number % (rows * columns), rows, columns, row, column);
    of.find(p, int(row * BM));
    return blocks_of(p, of);
}
{% endif -%}
{% if of_columns %}// A block of K are output pixels: a line of dY each, and for each 64 columns the pixels of X under one tap.
template <bool WITH_A, bool WITH_B> DEVICE void fetch_stage(const Params& p, const Tiles& tiles, u32 stage, u32 block) {
    const u32 shared = shared_address(shared_memory), barrier = shared + FULL + stage * 8;
    // Batch entries are groups, or parts of K.
    const u32 group = u32(tiles.tile.batch) % u32(p.groups), part = u32(tiles.tile.batch) / u32(p.groups);
#pragma unroll
    for (int i = 0; i < PANELS; ++i) {
        const u32 to = shared + stage * STAGE_BYTES + i * PANEL_BYTES, panel = block * PANELS + i;
        const int pixel = panel < u32(p.panels) ? int(part * u32(p.panels) + panel) * {{ panel_terms }} : p.all_terms;
        if constexpr (WITH_A)
#pragma unroll
            for (int j = 0; j < BM / 64; ++j)
                tma_load(to + j * 8192, p.map0, p.a_policy, barrier, group * p.group_filters + tiles.tile.row + j * 64, pixel, 0);
        if constexpr (WITH_B) {
            const Window window = window_at(p, pixel);
#pragma unroll
            for (int j = 0; j < BN / 64; ++j) {
                const int column = tiles.tile.column + j * 64;
                const Tap tap = tap_of_panel(p, u32(column) / {{ panel_terms }});
                const int channel = column < p.n ? int(group) * p.group_channels + tap.channel : p.channels;
                tma_load_patches(to + A_BYTES + j * 8192, p.map1, p.b_policy, barrier, channel, window.x, window.y, window.image,
                                 tap.right, tap.down);
            }
        }
    }
}
// Requests a panel of the first tile's dY into the L2 cache, where a write of an earlier kernel cannot be missed.
DEVICE void prefetch_filters(const Params& p, const Tiles& tiles) {
    const u32 group = u32(tiles.tile.batch) % u32(p.groups), part = u32(tiles.tile.batch) / u32(p.groups);
    const u32 panel = u32(tiles.tile.column) / BN;
    if (panel >= u32(p.panels)) return;
    tma_prefetch_l2(p.map0, group * p.group_filters + tiles.tile.row, int(part * u32(p.panels) + panel) * {{ panel_terms }}, 0);
}
{% else %}// The panels of a tile one after the other: how many are left, the next one's first channel, its tap, and how far
// that lies from the window's first pixel. Quotients for each panel would take as long as its products.
struct Walk {
    int left, channel, down, right;
{% if residues %}    int filter_line, filter_right;   // the tap: its line's first one, and its place there
    // Only the taps that meet the pixels of the tile. The map's boxes begin where the first class does, which makes every offset
    // positive.
    DEVICE Walk(const Params& p, const Tiles& tiles) : channel(0) {
        const TapsAlong &along_y = tiles.of.down, &along_x = tiles.of.right;
        left = along_y.count * along_x.count * p.tap_panels;
        down = along_y.begin - p.corner_y;
        right = along_x.begin - p.corner_x;
        filter_line = along_y.first * p.window_width;
        filter_right = along_x.first;
    }
    DEVICE int number() const { return filter_line + filter_right; }
    DEVICE void go_on(const Params& p, const Tiles& tiles) {
        --left;
        channel += {{ panel_terms }};
        if (channel < p.tap_panels * {{ panel_terms }}) return;
        channel = 0;
        right += tiles.of.right.dilation;
        filter_right += p.step_x;
        if (filter_right < p.window_width) return;
        right = tiles.of.right.begin - p.corner_x;
        filter_right = tiles.of.right.first;
        down += tiles.of.down.dilation;
        filter_line += p.step_y * p.window_width;
    }
{% else %}    int tap;
    // Batch entries are parts of K.
    DEVICE Walk(const Params& p, const Tiles& tiles) : left(p.panels) {
        const Tap first = tap_of_panel(p, u32(tiles.tile.batch) * u32(p.panels));
        channel = first.channel;
        down = first.down;
        right = first.right;
        tap = first.number;
    }
    DEVICE int number() const { return tap; }
    DEVICE void go_on(const Params& p, const Tiles&) {
        --left;
        channel += {{ panel_terms }};
        if (channel < p.tap_panels * {{ panel_terms }}) return;
        channel = 0;
        ++tap;
        right += p.dilation_x;
        if (right < p.window_width * p.dilation_x) return;
        right = 0;
        down += p.dilation_y;
    }
{% endif %}};
template <bool WITH_A, bool WITH_B> DEVICE void fetch_stage(const Params& p, const Tiles& tiles, u32 stage, Walk& walk) {
    const u32 shared = shared_address(shared_memory), barrier = shared + FULL + stage * 8;
#pragma unroll
    for (int i = 0; i < PANELS; ++i) {
        const u32 to = shared + stage * STAGE_BYTES + i * PANEL_BYTES;
        const bool exists = walk.left > 0;
        if constexpr (WITH_A)
            tma_load_patches(to, p.map0, p.a_policy, barrier, exists ? tiles.channel + walk.channel : p.channels, tiles.window.x,
                             tiles.window.y, tiles.window.image, exists ? walk.right : 0, exists ? walk.down : 0);
        if constexpr (WITH_B) {
            const int half = CLUSTER_M == 2 ? cluster_rank() : 0;
{% if turned %}            // A line of a filter's tap each, and the window is turned by half a circle.
            const int number = exists ? p.last_tap - walk.number() : 1 << 30;
            const int filter = tiles.channel + walk.channel + half * 32;
#pragma unroll
            for (int j = 0; j < (BN + 63) / 64; ++j) {
                const u32 at = to + A_BYTES + j * 8192 + half * 4096;
                if constexpr (CLUSTER_M == 2)
                    tma_load_multicast(at, p.map1, p.b_policy, barrier, tiles.own_column + j * 64, filter, number, 3);
                else tma_load(at, p.map1, p.b_policy, barrier, tiles.own_column + j * 64, filter, number);
            }
{% else %}            const int column = tiles.tile.column + half * (BN / 2), number = exists ? walk.number() : 1 << 30;
            const u32 at = to + A_BYTES + half * (BN * 64);
            if constexpr (CLUSTER_M == 2)
                tma_load_multicast(at, p.map1, p.b_policy, barrier, walk.channel, column, number, 3);
            else tma_load(at, p.map1, p.b_policy, barrier, walk.channel, column, number);
{% endif %}        }
        walk.go_on(p, tiles);
    }
}
{% if not residues %}// Requests a panel of the first tile's filters into the L2 cache, where a write of an earlier kernel cannot
// be missed. The tiles beside it, which have the same filters, request other panels.
DEVICE void prefetch_filters(const Params& p, const Tiles& tiles) {
    const u32 panel = u32(tiles.tile.row) / BM;
    if (panel >= u32(p.panels)) return;
    const Tap tap = tap_of_panel(p, u32(tiles.tile.batch) * u32(p.panels) + panel);
    const int half = CLUSTER_M == 2 ? cluster_rank() : 0;
{% if turned %}    tma_prefetch_l2(p.map1, tiles.own_column, tiles.channel + tap.channel + half * 32, p.last_tap - tap.number);
{% else %}    tma_prefetch_l2(p.map1, tap.channel, tiles.tile.column + half * (BN / 2), tap.number);
{% endif %}}
{% endif %}{% endif -%}
