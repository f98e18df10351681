// ---- delayed store: results wait in registers, as 16 bits, and leave under the products of the next tile ----
constexpr int WORDS = 2 * STRIPS * (STRIP / 2);   // of a lane, for a chunk
static_assert(BY_WARPS && !PING_PONG && STRIP % 8 == 0, "a warp stores its own rows itself, four matrices at a time");

// Stores four of a strip's matrices, if `stores`. It is predicated, like everything between the products.
DEVICE void store_four_if(bool stores, u32 address, const u32* r) {
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %5, 0;\n"
                 "@p stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], { %1, %2, %3, %4};\n}"
                 ::"r"(address), "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3]), "r"(int(stores)) : "memory");
}

// Writes one chunk of the previous tile's results to its store buffer. Registers have names in the code, so the stores of all
// chunks are in the code, and only those of this chunk are executed.
DEVICE void write_kept(const u32 (&kept)[CHUNKS][WORDS], u32 chunk, u32 stores) {
    const int thread = thread_of_warpgroup(), lane = thread & 31, first_row = (thread >> 5) * 16;
#pragma unroll
    for (int visit = 0; visit < 2 * STRIPS; ++visit)
#pragma unroll
        for (int word = 0; word < STRIP / 2; word += 4) {
            const u32 address = line_address<true>(stores, first_row + visit / STRIPS * 8,
                                                   visit % STRIPS * (4 * STRIP) + (word + lane / 8) * 8, lane % 8);
#pragma unroll
            for (int c = 0; c < CHUNKS; ++c) store_four_if(chunk == c, address, &kept[c][visit * (STRIP / 2) + word]);
        }
}

// A consumer's chunks in order from tile to tile, each in the next buffer: the buffer of one chunk, and the parity of its use.
struct Handed {
    u32 buffer, parity;

    DEVICE Handed(u32 group, u32 number)
        : buffer(group * STORE_BUFFERS + number % STORE_BUFFERS), parity(number / STORE_BUFFERS & 1) {}
    DEVICE u32 stores() const { return AT_STORES + buffer * STORE_BYTES; }
    DEVICE u32 written() const { return shared_address(shared_memory) + WRITTEN + buffer * 8; }
    DEVICE u32 sent() const { return shared_address(shared_memory) + SENT + buffer * 8; }
};
// Stores a chunk; one thread calls this.
DEVICE void send_rows(const Params& p, const TileOrigin& tile, u32 stores, u32 chunk, u32 group, int first, bool sends) {
    drain_chunk(p, epilogue_begin(p, tile.batch), stores, tile.row + int(group * WARPGROUP_ROWS + chunk % BLOCKS_M * 64),
                tile.column + int(chunk / BLOCKS_M * CHUNK), first, sends, 0);
}

// Under the products a warp of the producer stores the chunks: the fence ahead of a TMA store waits for the products of the
// warp that fences, and the producer has none. On exit the consumer's chunks of `count` tiles are stored or in flight.
DEVICE void hand_over(const u32 (&kept)[CHUNKS][WORDS], u32 chunk, u32 group, u32 count) {
    const Handed handed(group, count > 0 ? (count - 1) * CHUNKS + chunk : 0);
    mbarrier_wait(handed.sent(), handed.parity ^ 1);
    write_kept(kept, chunk, handed.stores());
    __syncwarp();
    mbarrier_arrive_if(count > 0 && (thread_of_warpgroup() & 31) == 0, handed.written());
}
// Stores all tiles but the block's last one, which the consumers store themselves.
DEVICE void send_handed(const Params& p, Tiles tiles, u32 group) {
    u32 number = 0;
    bool more = tiles.advance(p);
    while (more) {
        const TileOrigin tile = tiles.tile;
        more = tiles.advance(p);
        if (!more) break;
#pragma unroll 1
        for (u32 chunk = 0; chunk < CHUNKS; ++chunk, ++number) {
            const Handed handed(group, number);
            mbarrier_wait(handed.written(), handed.parity);
            fence_proxy_async();
#pragma unroll
            for (int first = 0; first < 64; first += STORE_ROWS) send_rows(p, tile, handed.stores(), chunk, group, first, true);
            tma_store_commit_if(true);
            tma_store_wait_read_if<0>(true);
            mbarrier_arrive(handed.sent());
        }
    }
    tma_store_wait_all();
}
// Waits until every buffer of a consumer with `count` finished tiles has been stored.
DEVICE void wait_for_sent(u32 group, u32 count) {
    const u32 next = count > 0 ? (count - 1) * CHUNKS : 0;
    for (u32 i = 0; i < STORE_BUFFERS; ++i) {
        const Handed handed(group, next + i);
        mbarrier_wait(handed.sent(), handed.parity ^ 1);
    }
}

// The consumer itself stores one chunk of the block's last tile.
DEVICE void send_kept(const Params& p, const TileOrigin& tile, const u32 (&kept)[CHUNKS][WORDS], u32 chunk, u32 group,
                      bool pending) {
    const int thread = thread_of_warpgroup(), first_row = (thread >> 5) * 16;
    const bool sends = (thread & 31) == 0 && pending;
    const int sent = __shfl_sync(~0u, first_row, 0);   // lets the compiler see that all lanes of a warp have the same value
    const u32 stores = Handed(group, chunk).stores();
    tma_store_wait_read_if<STORE_BUFFERS - 1>(sends);
    __syncwarp();
    write_kept(kept, chunk, stores);
    fence_proxy_async();
    __syncwarp();
    send_rows(p, tile, stores, chunk, group, sent, sends);
    tma_store_commit_if(sends);
}
