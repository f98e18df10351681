// ---- patches: where the elements lie that a convolution, or a gradient of one, reads under its windows ----
{% if of_columns %}// A column of B is a tap and a channel of X, a row is an output pixel.
{% else %}// A row of A are the pixels under the window at one output pixel.
{% endif -%}
// The first position under a window: rows and columns before the image's first are padding.{% if spread %} Positions
// between the pixels of the image are zeros.{% endif %}
struct Window { int y, x, image; };
{% if residues %}// Pixels of X whose places leave the same remainders by the forward window's steps. They meet the same taps, at
// neighbouring pixels of dY, so one class of them after another is a convolution that moves by one pixel. A class begins with
// a tile.
struct Residue {
    int y, x, height, width;          // its first pixel, and its rows and pixels a row of an image
    Residue() = default;
    DEVICE Residue(const Params& p, int row) {
        const int number = row / p.residue_rows;
        y = number / p.spread_x;
        x = number - y * p.spread_x;
        height = (p.output_pixels / p.output_width - y + p.spread_y - 1) / p.spread_y;
        width = (p.output_width - x + p.spread_x - 1) / p.spread_x;
    }
    // The place of a row among them, counted from the class's first; false for rows behind the last one.
    DEVICE bool place(const Params& p, int index, int& image, int& down, int& right) const {
        const int of_image = height * width;
        if (height <= 0 || width <= 0 || index >= p.images * of_image) return false;
        image = index / of_image;
        down = (index - image * of_image) / width;
        right = index - image * of_image - down * width;
        return true;
    }
};
// The taps that meet a class along one axis: every `step`-th one, and the position under the first of them, in pixels of dY.
struct TapsAlong {
    int first, count, begin, dilation;
    TapsAlong() = default;
    DEVICE TapsAlong(int rest, int before, int tap_dilation, int spread, int step, int window) {
        for (first = 0; first < step && (rest - before + first * tap_dilation) % spread != 0; ++first) {}
        const bool meet = first < step && first < window;
        count = meet ? (window - 1 - first) / step + 1 : 0;
        begin = meet ? (rest - before + first * tap_dilation) / spread : 0;
        dilation = step * tap_dilation / spread;
    }
};
DEVICE TapsAlong taps_down(const Params& p, const Residue& residue) {
    const int window = (p.last_tap + 1) / p.window_width;
    return {residue.y, p.above, p.dilation_y, p.spread_y, p.step_y, window};
}
DEVICE TapsAlong taps_right(const Params& p, const Residue& residue) {
    return {residue.x, p.left, p.dilation_x, p.spread_x, p.step_x, p.window_width};
}
DEVICE Window window_at(const Params& p, int row) {
    const Residue residue(p, row);
    int image, down, right;
    if (!residue.place(p, row % p.residue_rows, image, down, right)) return {-(1 << 30), 0, 0};
    return {taps_down(p, residue).begin + down, taps_right(p, residue).begin + right, image};
}
// The pixel of X at a row, counted from the class's first; behind all rows if there is none.
DEVICE int pixel_of(const Params& p, const Residue& residue, int index) {
    int image, down, right;
    if (!residue.place(p, index, image, down, right)) return p.m;
    return image * p.output_pixels + (residue.y + down * p.spread_y) * p.output_width + residue.x + right * p.spread_x;
}
DEVICE int pixel_of(const Params& p, int row) { return pixel_of(p, Residue(p, row), row % p.residue_rows); }
{% else -%}
DEVICE Window window_at(const Params& p, int row) {
    const u32 image = u32(row) / u32(p.output_pixels), inside = u32(row) - image * u32(p.output_pixels);
    const u32 y = inside / u32(p.output_width), x = inside - y * u32(p.output_width);
    return {int(y) * p.stride_y - p.above, int(x) * p.stride_x - p.left, int(image)};
}
{% endif -%}
{% if hopper and residues %}// The class of a tile. Most tiles have that of the tile before, and to find one takes ten quotients.
struct TileClass {
    int begin = -(1 << 30);   // its first row
    Residue residue;
    TapsAlong down, right;    // that its pixels meet

    DEVICE void find(const Params& p, int row) {
        if (u32(row - begin) < u32(p.residue_rows)) return;
        begin = row - row % p.residue_rows;
        residue = Residue(p, row);
        down = taps_down(p, residue);
        right = taps_right(p, residue);
    }
    // The place of a row among the pixels of its class: in an image behind the last one, if there is none.
    DEVICE Window place(const Params& p, int row) const {
        const int index = row - begin, of_image = residue.height * residue.width, image = index / of_image;
        const int inside = index - image * of_image, down = inside / residue.width;
        return {down, inside - down * residue.width, image};
    }
    // The pixel of X at a place; behind all rows if there is none.
    DEVICE int pixel(const Params& p, const Window& at) const {
        const int down = residue.y + at.y * p.spread_y, right = residue.x + at.x * p.spread_x;
        return at.image < p.images ? at.image * p.output_pixels + down * p.output_width + right : p.m;
    }
    // Elements from an image's first pixel to the first of the class.
    DEVICE int first(const Params& p, i64 ld) const { return int((residue.y * p.output_width + residue.x) * ld); }
    // The position of the map's box at a row.
    DEVICE Window box_at(const Params& p, int row) const {
        const Window at = place(p, row);
        return {p.corner_y + at.y, p.corner_x + at.x, at.image};
    }
};
{% endif -%}
{% if hopper and of_columns %}{% elif hopper %}// The first channel that the filters from a column on read: a tile's
// columns are of one group.
DEVICE int first_channel(const Params& p, int column) { return column / p.group_filters * p.group_channels; }
{% else %}// The channels of a pixel that a tile's columns read, of one group or of several side by side, and the K elements that
// makes. A column multiplies the channels of its own group, and zeros for the others.
struct Channels {
    int first_group, first, count, terms;
{% if of_columns %}    // Batch entries are groups, or parts of K.
    int first_row;   // of A, the first filter
    int begin;       // the first output pixel
    DEVICE Channels(const Params& p, int entry) {
        first_group = u32(entry) % u32(p.groups);
        first = first_group * p.group_channels;
        first_row = first_group * p.group_filters;
        count = p.group_channels;
        begin = u32(entry) / u32(p.groups) * p.k;
        terms = p.k < p.all_terms - begin ? p.k : p.all_terms - begin;
    }
};
{% else %}{% if residues %}    TapsAlong down, right;
    DEVICE Channels(const Params& p, int column, const Residue& residue)
        : down(taps_down(p, residue)), right(taps_right(p, residue)) {
{% else %}    DEVICE Channels(const Params& p, int column) {
{% endif %}        first_group = column / p.group_filters;
        first = first_group * p.group_channels;
{% if spans_groups %}        const int end = column + BN < p.n ? column + BN : p.n;
        const int groups = (end - 1) / p.group_filters - first_group + 1;
        count = groups * p.group_channels;
        terms = groups * p.k;
{% else %}        count = p.group_channels;
        terms = p.k;
{% endif %}{% if residues %}        terms = down.count * right.count * count;
{% endif %}    }
};
{% endif -%}
// An element of K: the number of its tap, the distance of that down and to the right of the window's first pixel, and its
// channel, counted from the first that the tile reads.
struct Tap { int number, down, right, channel; };
{% if residues %}DEVICE Tap tap_at(const Params& p, const Channels& channels, int k) {
    const u32 number = u32(k) / u32(channels.count), down = number / u32(max(channels.right.count, 1));
    const int right = int(number) - int(down) * channels.right.count;
    const int tap = (channels.down.first + int(down) * p.step_y) * p.window_width + channels.right.first + right * p.step_x;
    return {tap, int(down) * channels.down.dilation, right * channels.right.dilation, k - int(number) * channels.count};
}
{% else %}DEVICE Tap tap_at(const Params& p, const Channels& channels, int k) {
    const u32 number = u32(k) / u32(channels.count), down = number / u32(p.window_width);
    return {int(number), int(down) * p.dilation_y, int(number - down * u32(p.window_width)) * p.dilation_x,
            k - int(number) * channels.count};
}
{% endif -%}
{% if spread %}// Whether there is a pixel under a tap.
DEVICE bool is_pixel(int position, int spread, int extent) {
    return position >= 0 && position % spread == 0 && position / spread < extent;
}
DEVICE bool is_inside(const Params& p, const Window& window, const Tap& tap) {
    return is_pixel(window.y + tap.down, p.spread_y, p.image_height) && is_pixel(window.x + tap.right, p.spread_x, p.image_width);
}
{% else %}// Whether the pixel under a tap lies in the image. A position before it is a large number without its sign.
DEVICE bool is_inside(const Params& p, const Window& window, const Tap& tap) {
    return u32(window.y + tap.down) < u32(p.image_height) && u32(window.x + tap.right) < u32(p.image_width);
}
{% endif -%}
// Elements from the first one of the images to an element under a tap.
DEVICE i64 place_of(const Params& p, const Channels& channels, const Window& window, const Tap& tap) {
    const int y = (window.y + tap.down){% if spread %} / p.spread_y{% endif %}, {# -#}
              x = (window.x + tap.right){% if spread %} / p.spread_x{% endif %};
    const i64 line = i64(window.image) * p.image_height + y;
    return (line * p.image_width + x) * p.{% if of_columns %}ldb{% else %}lda{% endif %} + (channels.first + tap.channel);
}
{% if turned %}// Whether the filter that an element of K belongs to has a column's channel, and elements from the first
// filter to it.
// The window is turned by half a circle.
DEVICE bool has_column(const Params& p, const Channels& channels, const Tap& tap, int column) {
    return u32(column - (channels.first + tap.channel) / p.group_channels * p.group_filters) < u32(p.group_filters);
}
DEVICE i64 place_in_filter(const Params& p, const Channels& channels, const Tap& tap, int column) {
    const int filter = channels.first + tap.channel, own = column - filter / p.group_channels * p.group_filters;
    return filter * p.ldb + (i64(p.last_tap - tap.number) * p.group_filters + own);
}
{% elif spans_groups %}// The first channel that a column's filter reads, counted likewise.
DEVICE int own_channel(const Params& p, const Channels& channels, int column) {
    return (column / p.group_filters - channels.first_group) * p.group_channels;
}
// Whether a filter that reads from `own` on has the channel of a tap, and elements from the filter's first to that one.
DEVICE bool has_channel(const Params& p, int own, const Tap& tap) { return u32(tap.channel - own) < u32(p.group_channels); }
DEVICE i64 place_in_filter(const Params& p, int own, const Tap& tap) {
    return i64(tap.number) * p.group_channels + (tap.channel - own);
}
{% endif -%}
{% endif -%}
