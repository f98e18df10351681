// 16 bytes that begin `offset` bytes into `low`; `high` follows it.
DEVICE uint4 shift(uint4 low, uint4 high, u32 offset) {
    u32 words[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
    if (offset & 8)
#pragma unroll
        for (int i = 0; i < 6; ++i) words[i] = words[i + 2];
    if (offset & 4)
#pragma unroll
        for (int i = 0; i < 5; ++i) words[i] = words[i + 1];
    const u32 bits = offset % 4 * 8;
    return make_uint4(__funnelshift_r(words[0], words[1], bits), __funnelshift_r(words[1], words[2], bits),
                      __funnelshift_r(words[2], words[3], bits), __funnelshift_r(words[3], words[4], bits));
}
