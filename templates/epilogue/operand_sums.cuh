// ---- sums of an operand's elements over K, beside the product, whose shared memory holds the elements anyway ----
// All tiles of a column read the same lines of B. The first of these tiles, at most MOST_PARTS, share the work: each sums one of
// every so many blocks of K. Each leaves its partial sums as a slice in the workspace. The last tile to arrive adds up the slices
// in their order. The tiles of a row share the sums of A in the same way. A tile's sums are contiguous, those of A first.

// Lines that a tile sums.
constexpr int LINES_A = {% if sums_a %}BM{% else %}0{% endif %}, LINES_B = {% if sums_b %}BN{% else %}0{% endif %};

DEVICE float add_terms(float a, float b) { return a + b; }
DEVICE int add_terms(int a, int b) { return wrap_add(a, b); }

// The blocks of K that a tile sums of an operand: one of every `parts`, from number `first` on. Numbers that follow from
// extents are computed where they are used, because the warp that sums has few registers.
template <bool OF_A> struct Share {
    static DEVICE u32 parts(const Params& p) {
        const u32 across = OF_A ? fresh(p.n - 1) / BN : fresh(p.m - 1) / BM, blocks = p.k > 0 ? fresh(p.k - 1) / BK : 0;
        return min(min(across, blocks) + 1, u32(MOST_PARTS));
    }
    static DEVICE u32 first(const TileOrigin& tile) { return OF_A ? u32(tile.column) / BN : u32(tile.row) / BM; }
    static DEVICE bool any(const Params& p, const TileOrigin& tile) {
        return (OF_A ? LINES_A > 0 && tile.row < p.m : LINES_B > 0 && tile.column < p.n) && first(tile) < parts(p);
    }
};
DEVICE bool takes_part(const Params& p, const TileOrigin& tile) {
    return Share<true>::any(p, tile) || Share<false>::any(p, tile);
}

// A tile's part of one result. `thread` is one of `threads` threads, each with four lines at a time.
template <bool OF_A, bool BATCHED, bool ACCUMULATES, class T> struct OperandSum {
    static constexpr int EXTENT = OF_A ? BM : BN;
    using Four = Raw<Accum, 4>;
    const Params& p;
    const TileOrigin& tile;
    T* result;
    void *workspace, *arrivals;

    DEVICE u32 lines() const { return OF_A ? fresh(p.m - 1) / BM + 1 : fresh(p.n - 1) / BN + 1; }
    // For the lines of this tile: their number, how many tiles share them, and which of these tiles this one is.
    DEVICE u32 number() const {
        return (BATCHED ? tile.batch * lines() : 0) + (OF_A ? u32(tile.row) / BM : u32(tile.column) / BN);
    }
    DEVICE u32 slices() const { return (BATCHED ? 1 : u32(p.batch)) * Share<OF_A>::parts(p); }
    DEVICE u32 slice() const { return (BATCHED ? 0 : tile.batch * Share<OF_A>::parts(p)) + Share<OF_A>::first(tile); }
    // The place of slice 0, and the distance from slice to slice.
    DEVICE Accum* place() const { return static_cast<Accum*>(workspace) + i64(number()) * EXTENT; }
    DEVICE i64 distance() const { return i64(BATCHED ? p.batch : 1) * lines() * EXTENT; }

    DEVICE void write(int line, const Four& sums) const {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const int at = (OF_A ? tile.row : tile.column) + line + i;
            if (at >= (OF_A ? p.m : p.n)) continue;
            Accum sum = sums.elements[i];
            if constexpr (ACCUMULATES) sum = add_terms(sum, widen(result[at]));
            result[at] = Narrow<T>::of(sum);
        }
    }
    DEVICE void publish_partial(const Accum* sums, int thread, int threads) const {
        if (!Share<OF_A>::any(p, tile)) return;
        const bool alone = slices() == 1;
        Accum* const to = place() + slice() * distance();
#pragma unroll 1
        for (int line = thread * 4; line < EXTENT; line += threads * 4) {
            Four four;
            load_wide<4>(four, sums + line);
            if (alone) write(line, four);
            else store_wide<4>(to + line, four);
        }
    }
    // Whether the tile is the last to arrive. The counter wraps.
    DEVICE bool arrive() const {
        const u32 count = slices();
        return Share<OF_A>::any(p, tile) && count > 1
            && atomicInc(static_cast<u32*>(arrivals) + number(), count - 1) == count - 1;
    }
    DEVICE void fixup(int thread, int threads) const {
        constexpr u32 AHEAD = 4;   // hides part of the memory latency, and leaves registers
        const u32 count = slices();
#pragma unroll 1
        for (int line = thread * 4; line < EXTENT; line += threads * 4) {
            Four sums;
            sums.words[0] = uint4{};
            const Accum* from = place() + line;
#pragma unroll 1
            for (u32 slice = 0; slice < count; slice += AHEAD) {
                Four ahead[AHEAD];
#pragma unroll
                for (u32 i = 0; i < AHEAD; ++i) {
                    // Other tiles have written this memory, so the load bypasses this multiprocessor's own cache.
                    ahead[i].words[0] = slice + i < count ? __ldcg(reinterpret_cast<const uint4*>(from)) : uint4{};
                    from += distance();
                }
#pragma unroll
                for (u32 i = 0; i < AHEAD; ++i)
#pragma unroll
                    for (int j = 0; j < 4; ++j) sums.elements[j] = add_terms(sums.elements[j], ahead[i].elements[j]);
            }
            write(line, sums);
        }
    }
};
{% for s in operand_sums %}using OperandSum{{ s.index }} =
    OperandSum<{{ s.of_a }}, {{ s.batched }}, {{ s.accumulates }}, {{ s.dtype }}>;
{% endfor %}
// Publishes a tile's sums beside those of other tiles.
DEVICE void publish_sums(const Params& p, const TileValues& t, const TileOrigin& tile, const Accum* sums, int thread,
                         int threads) {
{% for s in operand_sums %}    OperandSum{{ s.index }}{p, tile, {{ s.base }}, {{ s.slices }}, {{ s.arrivals }}}
        .publish_partial(sums + {% if s.of_a %}0{% else %}LINES_A{% endif %}, thread, threads); // {{ s.node }}
{% endfor %}}
// Called by one thread, after all have published. Returns as bits the sets of results for which the tile is the last to arrive.
DEVICE u32 arrive_for_sums(const Params& p, const TileValues& t, const TileOrigin& tile) {
    u32 last = 0;
    fence_device();
{% for s in operand_sums %}{% if s.counts %}    last |= u32(OperandSum{{ s.index }}{
        p, tile, {{ s.base }}, {{ s.slices }}, {{ s.arrivals }}}.arrive()) << {{ s.set }}; // {{ s.node }}
{% endif %}{% endfor %}    fence_device();
    return last;
}
// Writes the results that are complete.
DEVICE void fixup_sums(const Params& p, const TileValues& t, const TileOrigin& tile, u32 last, int thread, int threads) {
{% for s in operand_sums %}    if (last >> {{ s.set }} & 1) // {{ s.node }}
        OperandSum{{ s.index }}{p, tile, {{ s.base }}, {{ s.slices }}, {{ s.arrivals }}}.fixup(thread, threads);
{% endfor %}}
{% if not hopper %}
// A thread's part of a tile's sums of an operand, if all threads of a block take part: for each of PER_THREAD lines the sum of
// the elements in the tile's blocks. SHARERS threads have the same lines.
template <bool OF_A, int LINES_APART> struct Partial {
    static constexpr bool WANTED = (OF_A ? LINES_A : LINES_B) > 0;
    static constexpr int EXTENT = OF_A ? BM : BN, OF_TURN = THREADS * LINES_APART;   // lines of all threads in one turn
    static constexpr int SHARERS = OF_TURN > EXTENT ? OF_TURN / EXTENT : 1, TURNS = EXTENT > OF_TURN ? EXTENT / OF_TURN : 1;
    static constexpr int ROOM = WANTED ? SHARERS * EXTENT : 0;
    static_assert(OF_TURN % EXTENT == 0 || EXTENT % OF_TURN == 0, "threads share lines evenly");
    Accum sums[TURNS * LINES_APART] = {};
    u32 next = ~0u;
    DEVICE Partial(const Params& p, const TileOrigin& tile) {
        if (Share<OF_A>::any(p, tile)) next = Share<OF_A>::first(tile);
    }
    // Whether the tile sums a block of K. The blocks come in order.
    DEVICE bool sums_block(const Params& p, u32 block) {
        if (!WANTED || block != next) return false;
        next += Share<OF_A>::parts(p);
        return true;
    }
    // The first of this thread's lines in a turn, and the thread's number among the sharers of these lines.
    static DEVICE int line(int turn) { return (int(threadIdx.x) % (THREADS / SHARERS) + turn * THREADS) * LINES_APART; }
    static DEVICE int sharer() { return int(threadIdx.x) / (THREADS / SHARERS); }
    DEVICE void leave(Accum* to) const {
        if constexpr (WANTED)
#pragma unroll
            for (int i = 0; i < TURNS * LINES_APART; ++i)
                to[sharer() * EXTENT + line(i / LINES_APART) + i % LINES_APART] = sums[i];
    }
    // Adds up each line's parts in the sharers' order.
    static DEVICE void combine(Accum* to, const Accum* from) {
        if constexpr (WANTED)
            for (int i = threadIdx.x; i < EXTENT; i += THREADS) {
                Accum sum = from[i];
#pragma unroll
                for (int other = 1; other < SHARERS; ++other) sum = add_terms(sum, from[other * EXTENT + i]);
                to[i] = sum;
            }
    }
};
// Turns the sums of a block's threads into results. Shared memory is free before and after.
template <class A, class B>
DEVICE void finish_sums(const Params& p, const TileOrigin& tile, const A& a, const B& b, Accum* memory) {
    if (!takes_part(p, tile)) return;
    Accum* const sums = memory + (A::ROOM + B::ROOM);
    __syncthreads();
    a.leave(memory);
    b.leave(memory + A::ROOM);
    __syncthreads();
    a.combine(sums, memory);
    b.combine(sums + LINES_A, memory + A::ROOM);
    __syncthreads();
    const TileValues t = epilogue_begin(p, tile.batch);
    publish_sums(p, t, tile, sums, threadIdx.x, THREADS);
    __syncthreads();
    u32* const last = reinterpret_cast<u32*>(memory);
    if (threadIdx.x == 0) *last = arrive_for_sums(p, t, tile);
    __syncthreads();
    fixup_sums(p, t, tile, *last, threadIdx.x, THREADS);
    __syncthreads();
}
{% endif -%}
