// ---- results that wait in registers, as 16 bits, and leave under the products of the next tile ----
constexpr int WORDS = 2 * STRIPS * (STRIP / 2);   // of a lane, for a chunk
static_assert(BY_WARPS && !PING_PONG && STRIP % 8 == 0, "a warp's own rows, sent by itself, four matrices at a time");

// Four of a strip's matrices, if `stores`. Predicated, as is all that stands among the products.
DEVICE void store_four_if(bool stores, u32 address, const u32* r) {
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %5, 0;\n@p stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], { %1, %2, %3, %4};\n}"
                 ::"r"(address), "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3]), "r"(int(stores)) : "memory");
}

// One chunk of what the tile before came to, if there was one. Registers have to be named in the code: every chunk's stand there, and
// those of this one are stored.
DEVICE void send_kept(const Params& p, const TileOrigin& tile, const u32 (&kept)[CHUNKS][WORDS], u32 chunk, u32 group, bool pending) {
    const int thread = thread_of_warpgroup(), lane = thread & 31, first_row = (thread >> 5) * 16;
    const bool sends = lane == 0 && pending;
    const int sent = __shfl_sync(~0u, first_row, 0);   // which the compiler sees to be the same in all of a warp
    const u32 stores = AT_STORES + (group * STORE_BUFFERS + chunk % STORE_BUFFERS) * STORE_BYTES;
    // The buffer's last store has been read: that of so many chunks before, but at a tile's beginning, where buffers are counted from the
    // first again, of any.
    if constexpr (CHUNKS % STORE_BUFFERS != 0) store_wait_read_if<0>(sends && chunk == 0);
    store_wait_read_if<STORE_BUFFERS - 1>(sends);
    __syncwarp();
#pragma unroll
    for (int visit = 0; visit < 2 * STRIPS; ++visit)
#pragma unroll
        for (int word = 0; word < STRIP / 2; word += 4) {
            const int column = visit % STRIPS * (4 * STRIP) + (word + lane / 8) * 8, row = first_row + visit / STRIPS * 8;
            const u32 address = shared_address(shared_memory) + stores + row * Chunk64<2, true>::PITCH + Chunk64<2, true>::at(lane % 8, column * 2);
#pragma unroll
            for (int c = 0; c < CHUNKS; ++c) store_four_if(chunk == c, address, &kept[c][visit * (STRIP / 2) + word]);
        }
    fence_async();
    __syncwarp();
    drain_chunk(p, epilogue_begin(p, tile.batch), stores, tile.row + int(group * WARPGROUP_ROWS + chunk % BLOCKS_M * 64),
                tile.column + int(chunk / BLOCKS_M * CHUNK), sent, sends, thread);
    store_commit_if(sends);
}
