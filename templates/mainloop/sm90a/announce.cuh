// The unit of a consumer's last tile, and which of its blocks are complete. Finding that out takes a round trip to memory. The
// consumer does not wait for it: it continues with its next tile, and does the fix-up at the end of that tile.
struct Announced {
    u32 complete;
    TileOrigin unit;
};
static_assert(sizeof(Announced) <= NOTE_BYTES, "the plan made room for notes");
DEVICE Announced& announced(u32 group) { return shared_at<Announced>(AT_PARTS + group * EPILOGUE_SMEM); }

// Called by the warp that stages vectors.
DEVICE void announce(const Params& p, const TileOrigin& tile, u32 count, int lane) {
    const u32 shared = shared_address(shared_memory);
#pragma unroll 1
    for (u32 i = 0; i < (PING_PONG ? 1 : CONSUMERS); ++i) {
        const u32 group = PING_PONG ? count & 1 : i;
        mbarrier_wait(shared + HANDED_IN + group * 8, (PING_PONG ? count >> 1 : count) & 1);
        if (lane == 0) {
            const TileOrigin unit{tile.row + int(PING_PONG ? 0 : i * WARPGROUP_ROWS), tile.column, tile.batch};
            announced(group) = {epilogue_arrive(p, unit), unit};
            mbarrier_arrive(shared + ANNOUNCED + group * 8);
        }
        __syncwarp();
    }
}

