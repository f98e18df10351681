// ---- lockstep: producers of all blocks count tiles together ----
struct Step {
    u32 tiles = 0;         // of this block
    bool together = true;  // until a block is missing, for example because its multiprocessor runs another kernel

    static DEVICE u32 clock() {
        u32 x;
        asm volatile("mov.u32 %0, %%clock;" : "=r"(x));
        return x;
    }
    static DEVICE u32 of_all(const Params& p) { return Tiles::rows_of(p) * Tiles::columns_of(p) * u32(p.batch) * CLUSTER; }
    static DEVICE u32 add(const Params& p, u32 count) {
        u32 before;
        asm volatile("atom.relaxed.gpu.global.add.u32 %0, [%1], %2;" : "=r"(before) : "l"(p.progress), "r"(count) : "memory");
        return before;
    }
    // A block that takes its next tile waits until all blocks have taken theirs, or until no tiles are left.
    DEVICE void take(const Params& p) {
        constexpr u32 PATIENCE = 20000;   // cycles
        if (p.progress == nullptr) return;
        add(p, 1);
        const u32 all = of_all(p), round = ++tiles * launched_blocks(), taken = round < all ? round : all, start = clock();
        u32 now = 0;
        while (together && now < taken) {
            asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(p.progress) : "memory");
            together = clock() - start < PATIENCE;
        }
    }
    // The last block to leave resets the count for the next launch.
    DEVICE void leave(const Params& p) {
        if (p.progress == nullptr) return;
        const u32 all = of_all(p) + launched_blocks();
        if (add(p, 1) == all - 1) add(p, -all);
    }
};
