// ---- patches: where the elements of a convolution's A lie. A row of A are the pixels under the window at one output pixel ----
// The first pixel under the window at a row of A: rows and columns before the image's first are padding.
struct Window { int y, x, image; };
DEVICE Window window_at(const Params& p, int row) {
    const u32 image = u32(row) / u32(p.output_pixels), inside = u32(row) - image * u32(p.output_pixels);
    const u32 y = inside / u32(p.output_width), x = inside - y * u32(p.output_width);
    return {int(y) * p.stride_y - p.above, int(x) * p.stride_x - p.left, int(image)};
}
{% if hopper %}// The first channel that the filters from a column on read: a tile's columns are of one group.
DEVICE int first_channel(const Params& p, int column) { return column / p.group_filters * p.group_channels; }
{% else %}// The channels of a pixel that a tile's columns read, of one group or of several side by side, and the K elements that
// makes. A column multiplies the channels of its own group, and zeros for the others.
struct Channels {
    int first_group, first, count, terms;
    DEVICE Channels(const Params& p, int column) {
        first_group = column / p.group_filters;
        first = first_group * p.group_channels;
{% if spans_groups %}        const int end = column + BN < p.n ? column + BN : p.n;
        const int groups = (end - 1) / p.group_filters - first_group + 1;
        count = groups * p.group_channels;
        terms = groups * p.k;
{% else %}        count = p.group_channels;
        terms = p.k;
{% endif %}    }
};
// An element of K: the number of its tap, the distance of that down and to the right of the window's first pixel, and its
// channel, counted from the first that the tile reads.
struct Tap { int number, down, right, channel; };
DEVICE Tap tap_at(const Params& p, const Channels& channels, int k) {
    const u32 number = u32(k) / u32(channels.count), down = number / u32(p.window_width);
    return {int(number), int(down) * p.dilation_y, int(number - down * u32(p.window_width)) * p.dilation_x,
            k - int(number) * channels.count};
}
// Whether the pixel under a tap lies in the image. A position before it is a large number without its sign.
DEVICE bool is_inside(const Params& p, const Window& window, const Tap& tap) {
    return u32(window.y + tap.down) < u32(p.image_height) && u32(window.x + tap.right) < u32(p.image_width);
}
// Elements from the first one of the images to an element under a tap.
DEVICE i64 place_of(const Params& p, const Channels& channels, const Window& window, const Tap& tap) {
    const i64 line = i64(window.image) * p.image_height + (window.y + tap.down);
    return (line * p.image_width + (window.x + tap.right)) * p.lda + (channels.first + tap.channel);
}
{% if spans_groups %}// The first channel that a column's filter reads, counted likewise.
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
