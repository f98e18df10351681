// ---- patches: where the elements of a convolution's A lie. A row of A are the pixels under the window at one output pixel ----
// The first pixel under the window at a row of A: rows and columns before the image's first are padding.
struct Window { int y, x, image; };
DEVICE Window window_at(const Params& p, int row) {
    const u32 image = u32(row) / u32(p.output_pixels), inside = u32(row) - image * u32(p.output_pixels);
    const u32 y = inside / u32(p.output_width), x = inside - y * u32(p.output_width);
    return {int(y) * p.stride_y - p.above, int(x) * p.stride_x - p.left, int(image)};
}
// The first channel that the filters from a column on read: a tile's columns are of one group.
DEVICE int first_channel(const Params& p, int column) { return column / p.group_filters * p.group_channels; }
{% if not hopper %}// An element of K: how far its tap lies down and to the right of the window's first pixel, and its channel.
struct Tap { int down, right, channel; };
DEVICE Tap tap_at(const Params& p, int k) {
    const u32 number = u32(k) / u32(p.group_channels), down = number / u32(p.window_width);
    return {int(down) * p.dilation_y, int(number - down * u32(p.window_width)) * p.dilation_x, k - int(number) * p.group_channels};
}
// Whether the pixel under a tap lies in the image. A position before it is a large number without its sign.
DEVICE bool is_inside(const Params& p, const Window& window, const Tap& tap) {
    return u32(window.y + tap.down) < u32(p.image_height) && u32(window.x + tap.right) < u32(p.image_width);
}
// Elements from the first one of the images to an element under a tap.
DEVICE i64 place_of(const Params& p, const Window& window, const Tap& tap) {
    const i64 line = i64(window.image) * p.image_height + (window.y + tap.down);
    return (line * p.image_width + (window.x + tap.right)) * p.lda + tap.channel;
}
{% endif -%}
