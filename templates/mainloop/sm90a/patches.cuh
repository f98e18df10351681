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
{% elif residues %}// Only the taps that meet the pixels of the tile. The map's boxes begin where the first class does, which
// makes every offset positive.
template <bool WITH_A, bool WITH_B> DEVICE void fetch_stage(const Params& p, const Tiles& tiles, u32 stage, u32 block) {
    const u32 shared = shared_address(shared_memory), barrier = shared + FULL + stage * 8;
    const TapsAlong &down = tiles.of.down, &right = tiles.of.right;
#pragma unroll
    for (int i = 0; i < PANELS; ++i) {
        const u32 to = shared + stage * STAGE_BYTES + i * PANEL_BYTES, panel = block * PANELS + i;
        const bool exists = panel < u32(down.count * right.count * p.tap_panels);
        const int number = u64(panel) * p.tap_panels_inverse >> 32;
        const int y = u64(number) * tiles.of.right_inverse >> 32, x = number - y * right.count;
        const int channel = tiles.channel + int(panel - number * u32(p.tap_panels)) * {{ panel_terms }};
        if constexpr (WITH_A)
            tma_load_patches(to, p.map0, p.a_policy, barrier, exists ? channel : p.channels, tiles.window.x, tiles.window.y,
                             tiles.window.image, exists ? right.begin - p.corner_x + x * right.dilation : 0,
                             exists ? down.begin - p.corner_y + y * down.dilation : 0);
        if constexpr (WITH_B) {
            const int tap = (down.first + y * p.step_y) * p.window_width + right.first + x * p.step_x;
            const int column = tiles.tile.column - tiles.channel / p.group_channels * p.group_filters;
#pragma unroll
            for (int j = 0; j < (BN + 63) / 64; ++j)
                tma_load(to + A_BYTES + j * 8192, p.map1, p.b_policy, barrier, column + j * 64, channel,
                         exists ? p.last_tap - tap : 1 << 30);
        }
    }
}
{% else %}template <bool WITH_A, bool WITH_B> DEVICE void fetch_stage(const Params& p, const Tiles& tiles, u32 stage, u32 block) {
    const u32 shared = shared_address(shared_memory), barrier = shared + FULL + stage * 8;
    // Batch entries are parts of K.
    const u32 first = u32(tiles.tile.batch) * u32(p.panels);
#pragma unroll
    for (int i = 0; i < PANELS; ++i) {
        const u32 to = shared + stage * STAGE_BYTES + i * PANEL_BYTES, panel = block * PANELS + i;
        const Tap tap = tap_of_panel(p, first + panel);
        const bool exists = panel < u32(p.panels);
        if constexpr (WITH_A) {
            const int channel = exists ? tiles.channel + tap.channel : p.channels;
            tma_load_patches(to, p.map0, p.a_policy, barrier, channel, tiles.window.x, tiles.window.y, tiles.window.image,
                             tap.right, tap.down);
        }
        if constexpr (WITH_B) {
            const int half = CLUSTER_M == 2 ? cluster_rank() : 0;
{% if turned %}            // A line of a filter's tap each, and the window is turned by half a circle.
            const int number = exists ? p.last_tap - tap.number : 1 << 30;
            const int filter = tiles.channel + tap.channel + half * 32;
            const int column = tiles.tile.column - tiles.channel / p.group_channels * p.group_filters;
#pragma unroll
            for (int j = 0; j < (BN + 63) / 64; ++j) {
                const u32 at = to + A_BYTES + j * 8192 + half * 4096;
                if constexpr (CLUSTER_M == 2)
                    tma_load_multicast(at, p.map1, p.b_policy, barrier, column + j * 64, filter, number, 3);
                else tma_load(at, p.map1, p.b_policy, barrier, column + j * 64, filter, number);
            }
{% else %}            const int column = tiles.tile.column + half * (BN / 2);
            const int number = exists ? tap.number : 1 << 30;
            const u32 at = to + A_BYTES + half * (BN * 64);
            if constexpr (CLUSTER_M == 2) tma_load_multicast(at, p.map1, p.b_policy, barrier, tap.channel, column, number, 3);
            else tma_load(at, p.map1, p.b_policy, barrier, tap.channel, column, number);
{% endif %}        }
    }
}
// Requests a panel of the first tile's filters into the L2 cache, where a write of an earlier kernel cannot be missed. The tiles
// beside it, which have the same filters, request other panels.
DEVICE void prefetch_filters(const Params& p, const Tiles& tiles) {
    const u32 panel = u32(tiles.tile.row) / BM;
    if (panel >= u32(p.panels)) return;
    const Tap tap = tap_of_panel(p, u32(tiles.tile.batch) * u32(p.panels) + panel);
    const int half = CLUSTER_M == 2 ? cluster_rank() : 0;
{% if turned %}    const int column = tiles.tile.column - tiles.channel / p.group_channels * p.group_filters;
    tma_prefetch_l2(p.map1, column, tiles.channel + tap.channel + half * 32, p.last_tap - tap.number);
{% else %}    tma_prefetch_l2(p.map1, tap.channel, tiles.tile.column + half * (BN / 2), tap.number);
{% endif %}}
{% endif -%}
