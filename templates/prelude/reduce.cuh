// ---- reductions: from a unit's threads to its partial results, and from those to the result ----
// A unit is the threads that share a part of a tile: a block, or a consumer warpgroup. ROW_LANES adjacent lanes share rows, and
// lanes further apart share columns. ROW_SHARERS adjacent warps share rows, and the others share columns.
constexpr int COLUMN_LANES = 32 / ROW_LANES, COLUMN_SHARERS = UNIT_THREADS / 32 / ROW_SHARERS;

{% if hopper %}DEVICE int thread_of_unit() { return thread_of_block() & 127; }
DEVICE void sync_unit() { sync_warpgroup(thread_of_block() / 128 - 1); }
template <class T> DEVICE T* unit_memory(u32 offset) {
    return reinterpret_cast<T*>(shared_memory + AT_PARTS + (thread_of_block() / 128 - 1) * EPILOGUE_SMEM + offset);
}
{% else %}DEVICE int thread_of_unit() { return thread_of_block(); }
DEVICE void sync_unit() { __syncthreads(); }
extern __shared__ __align__(16) u8 reduction_memory[];   // the mainloop's memory under another name
template <class T> DEVICE T* unit_memory(u32 offset) { return reinterpret_cast<T*>(reduction_memory + AT_PARTS + offset); }
{% endif -%}
DEVICE int row_sharer(int thread) { return thread / 32 % ROW_SHARERS; }
DEVICE int column_sharer(int thread) { return thread / 32 / ROW_SHARERS; }

{% include "prelude/lanes.cuh" -%}
// N consecutive states, from memory that other units have written: bypasses this multiprocessor's own cache.
template <class S, int N> DEVICE void read_fresh(S (&s)[N], const S* p) {
    constexpr int WORDS = sizeof(s) / 4;
    u32* const words = reinterpret_cast<u32*>(s);
    constexpr int WIDTH = WORDS % 4 == 0 ? 4 : WORDS % 2 == 0 ? 2 : 1;
#pragma unroll
    for (int i = 0; i < WORDS; i += WIDTH) {
        if constexpr (WIDTH == 4) {
            const uint4 x = __ldcg(reinterpret_cast<const uint4*>(p) + i / 4);
            words[i] = x.x, words[i + 1] = x.y, words[i + 2] = x.z, words[i + 3] = x.w;
        } else if constexpr (WIDTH == 2) {
            const uint2 x = __ldcg(reinterpret_cast<const uint2*>(p) + i / 2);
            words[i] = x.x, words[i + 1] = x.y;
        } else {
            words[i] = __ldcg(reinterpret_cast<const u32*>(p) + i);
        }
    }
}

{% include "prelude/fold_lanes.cuh" -%}
// Stores a thread's part of a unit's partial results in shared memory at AT: of columns, of a row, of everything.
template <class M, int AT> DEVICE void leave_columns(typename M::State (&s)[STRIP], const Strip& strip) {
    constexpr int HELD = STRIP > COLUMN_LANES ? STRIP / COLUMN_LANES : 1;
    const int thread = thread_of_unit();
    int first = 0;
    fold_apart<M, STRIP, 16, ROW_LANES>(s, thread, first);
    typename M::State* const parts = unit_memory<typename M::State>(AT) + column_sharer(thread) * UNIT_COLUMNS;
#pragma unroll
    for (int i = 0; i < HELD; ++i) parts[strip.at(first + i) % UNIT_COLUMNS] = s[i];
}
template <class M, int AT> DEVICE void leave_row(const Params& p, typename M::State s, const Strip& strip) {
    const int thread = thread_of_unit();
    s = fold_lanes<M, 1, ROW_LANES>(s);
    typename M::State* const parts = unit_memory<typename M::State>(AT) + row_sharer(thread) * UNIT_ROWS;
    if (strip.row < p.m && thread % ROW_LANES == 0) parts[strip.row % UNIT_ROWS] = s;
}
constexpr int WARP_STRIPS = UNIT_COLUMNS / (ROW_LANES * STRIP);   // strips of a row, for the warps that share it
template <class M, int AT> DEVICE void leave_all(typename M::State s, const Strip& strip) {
    const int thread = thread_of_unit();
    s = fold_lanes<M, 1, 32>(s);
    typename M::State* const parts = unit_memory<typename M::State>(AT) + column_sharer(thread) * WARP_STRIPS;
    if (thread % 32 == 0) parts[strip.column % UNIT_COLUMNS / (ROW_LANES * STRIP)] = s;
}

{% if totals %}// Adds a thread's part of a tile to what its earlier tiles have come to.
template <class M, int AT> DEVICE void add_to_total(typename M::State s) {
    typename M::State& total = unit_memory<typename M::State>(AT)[thread_of_unit()];
    total = M::combine(total, s);
}
// Combines what the threads of a unit hold. Every thread gets the sum; what lay at AT is lost.
template <class M, int AT> DEVICE typename M::State fold_unit(typename M::State s) {
    typename M::State* const parts = unit_memory<typename M::State>(AT);
    const int thread = thread_of_unit();
    s = fold_lanes<M, 1, 32>(s);
    sync_unit();
    if (thread % 32 == 0) parts[thread / 32] = s;
    sync_unit();
    s = parts[0];
#pragma unroll
    for (int i = 1; i < UNIT_THREADS / 32; ++i) s = M::combine(s, parts[i]);
    return s;
}
template <class M, int AT> DEVICE void publish_total(void* workspace, u32 unit) {
    const typename M::State s = fold_unit<M, AT>(unit_memory<typename M::State>(AT)[thread_of_unit()]);
    if (thread_of_unit() == 0) static_cast<typename M::State*>(workspace)[unit] = s;
}
// Whether all other units have published, so that this one finishes the results. The counter wraps.
DEVICE bool last_of_units(void* counter, u32 units) {
    u32* const last = unit_memory<u32>(0);
    if (thread_of_unit() == 0) {
        fence_device();
        *last = atomicInc(static_cast<u32*>(counter), units - 1) == units - 1;
        fence_device();
    }
    sync_unit();
    return *last != 0;
}
{% endif -%}
// The block of a result that a unit shares, which varies along the axes KEEPS_*: its number, how many units share it, and the
// number of this unit among them.
template <bool KEEPS_M, bool KEEPS_N, bool KEEPS_L> struct Block {
    static constexpr bool ROWS = KEEPS_M, COLUMNS = KEEPS_N, ENTRIES = KEEPS_L;
    static constexpr int WIDTH = KEEPS_N ? UNIT_COLUMNS : 1, ELEMENTS = (KEEPS_M ? UNIT_ROWS : 1) * WIDTH;
    int row, column;   // of the unit
    u32 number, slice, slices;
    i64 distance;      // from slice to slice of the workspace, in elements

    DEVICE Block(const Params& p, int first_row, int first_column, int batch) : row(first_row), column(first_column) {
        const u32 {% if in_turns %}columns = fresh(p.n - 1) / UNIT_COLUMNS + 1, rows = gridDim.x / columns{% else %}{# -#}
            rows = fresh(p.m - 1) / UNIT_ROWS + 1, columns = fresh(p.n - 1) / UNIT_COLUMNS + 1{% endif %};
        const u32 r = u32(row) / UNIT_ROWS, c = u32(column) / UNIT_COLUMNS;
        number = ((KEEPS_L ? batch : 0) * (KEEPS_M ? rows : 1) + (KEEPS_M ? r : 0)) * (KEEPS_N ? columns : 1) + (KEEPS_N ? c : 0);
        slice = ((KEEPS_L ? 0 : batch) * (KEEPS_M ? 1 : rows) + (KEEPS_M ? 0 : r)) * (KEEPS_N ? 1 : columns) + (KEEPS_N ? 0 : c);
        slices = (KEEPS_L ? 1 : u32(p.batch)) * (KEEPS_M ? 1 : rows) * (KEEPS_N ? 1 : columns);
        distance = i64(KEEPS_L ? p.batch : 1) * (KEEPS_M ? rows : 1) * (KEEPS_N ? columns : 1) * ELEMENTS;
    }
{% if hopper %}    static DEVICE u32 rows_of(const Params& p) { return KEEPS_M ? fresh(p.m - 1) / UNIT_ROWS + 1 : 1; }
    static DEVICE u32 columns_of(const Params& p) { return KEEPS_N ? fresh(p.n - 1) / UNIT_COLUMNS + 1 : 1; }
    static DEVICE u32 count(const Params& p) { return (KEEPS_L ? u32(p.batch) : 1) * rows_of(p) * columns_of(p); }
    // Whether such blocks wait for one more arrival, which comes from a consumer without further tiles. Otherwise a slow unit
    // would be the last to arrive again and again, would do each fix-up, and so become slower. Many blocks are shared by many
    // consumers, so they do not need this.
    static DEVICE bool fixes_up_late(const Params& p) {
        return !(KEEPS_M && KEEPS_N) && count(p) <= 2 * launched_blocks() * CONSUMERS;
    }
    // The origin of the block with a number.
    static DEVICE TileOrigin origin(const Params& p, u32 number) {
        const u32 rows = rows_of(p), columns = columns_of(p);
        return {int(number / columns % rows) * UNIT_ROWS, int(number % columns) * UNIT_COLUMNS, int(number / columns / rows)};
    }
{% endif %}};

// A result in memory. With ACCUMULATES, the value in memory is one more element.
template <class T, bool ROW_MAJOR, bool ACCUMULATES> struct Result {
    T* base;
    i64 ld;
    // Writes an element of a block, if the result has it; once in a launch.
    template <class M, class B> DEVICE void write(const Params& p, const B& block, int element, typename M::State s) const {
        const int row = block.row + element / B::WIDTH, column = block.column + element % B::WIDTH;
        if ((B::ROWS && row >= p.m) || (B::COLUMNS && column >= p.n)) return;
        const i64 at = B::ROWS && B::COLUMNS ? (ROW_MAJOR ? row * ld + column : column * ld + row)
                                             : B::ROWS ? row : B::COLUMNS ? column : 0;
        if constexpr (ACCUMULATES) M::take(s, widen(base[at]));
{% if doubles %}        const double count = (B::ROWS ? 1.0 : p.m) * (B::COLUMNS ? 1.0 : p.n) * (B::ENTRIES ? 1.0 : p.batch);
{% else %}        const float count =
            (B::ROWS ? 1.0f : float(p.m)) * (B::COLUMNS ? 1.0f : float(p.n)) * (B::ENTRIES ? 1.0f : float(p.batch));
{% endif -%}
        base[at] = Narrow<T>::of(M::result(s, count));
    }
};

// The number of rounds in which a unit's threads together cover `count` items. It is the same for every thread: after loops
// that end earlier for some threads, ptxas may assume that a warp has diverged, also in all later code of the loop around them.
DEVICE constexpr int turns(int count) { return (count + UNIT_THREADS - 1) / UNIT_THREADS; }
// How many lanes of a warp share each of `count` items, so that all of a unit's threads are busy.
{% if shares_fixup %}// At least eight: then there are many pieces, and they are still whole sectors of memory.
{% endif %}DEVICE constexpr int sharers_of(int count) {
    int sharers = {% if shares_fixup %}8{% else %}1{% endif %};
    while (sharers < 32 && UNIT_THREADS / (2 * sharers) >= count) sharers *= 2;
    return sharers;
}

// Publishes a unit's partial result for one element of its block. With ADDED, sums are added to those of other units as they
// arrive.
template <class M, bool ADDED, class B, class R>
DEVICE void publish_partial(const Params& p, const B& block, void* workspace, const R& result, int element, typename M::State s) {
    typename M::State* const slices = static_cast<typename M::State*>(workspace) + (i64(block.number) * B::ELEMENTS + element);
    if (block.slices == 1) result.template write<M>(p, block, element, s);
    else if constexpr (ADDED) atomicAdd(slices, s);
    else slices[block.slice * block.distance] = s;
}
// The same for a whole unit, whose parts lie at AT.
template <class M, bool ADDED, int AT, class B, class R>
DEVICE void publish_partials(const Params& p, const B& block, void* workspace, const R& result) {
    const typename M::State* const parts = unit_memory<typename M::State>(AT);
    const int thread = thread_of_unit();
    if constexpr (B::ROWS || B::COLUMNS) {
        constexpr int SHARERS = B::ROWS ? ROW_SHARERS : COLUMN_SHARERS;
#pragma unroll
        for (int turn = 0; turn < turns(B::ELEMENTS); ++turn) {
            const int element = turn * UNIT_THREADS + thread;
            if (element >= B::ELEMENTS) continue;
            typename M::State s = parts[element];
#pragma unroll
            for (int i = 1; i < SHARERS; ++i) s = M::combine(s, parts[i * B::ELEMENTS + element]);
            publish_partial<M, ADDED>(p, block, workspace, result, element, s);
        }
    } else if (thread < 32) {
        typename M::State s = M::identity();
        for (int i = thread; i < COLUMN_SHARERS * WARP_STRIPS; i += 32) s = M::combine(s, parts[i]);
        s = fold_lanes<M, 1, 32>(s);
        if (thread == 0) publish_partial<M, ADDED>(p, block, workspace, result, 0, s);
    }
}
// Whether a unit is the last of its block to arrive. A unit that is alone does not wait. The counter wraps.
template <class B> DEVICE u32 arrive(const Params& p, void* counters, const B& block) {
    if (block.slices == 1) return 0;
    const u32 last = block.slices - {% if hopper %}!B::fixes_up_late(p){% else %}1{% endif %};
    return atomicInc(static_cast<u32*>(counters) + block.number, last) == last;
}
// Combines the slices of consecutive elements, every STEP-th from `first` on, in their order, with as many loads in flight as
// hide the memory latency. In whole batches no load has a condition of its own, which would make each load wait for the one
// before. The code runs once in many tiles, so it is short: its instructions also come from memory.
template <class M, int STEP, int N, class B>
DEVICE void combine_slices(typename M::State (&s)[N], const B& block, const typename M::State* from, u32 first) {
    constexpr u32 AHEAD = {% if hopper %}16{% else %}8{% endif %}, REST = 4;
    u32 done = 0;
#pragma unroll
    for (int j = 0; j < N; ++j) s[j] = M::identity();
#pragma unroll 1
    for (; done + AHEAD * STEP <= block.slices; done += AHEAD * STEP) {
        typename M::State ahead[AHEAD][N];
#pragma unroll
        for (u32 i = 0; i < AHEAD; ++i) read_fresh(ahead[i], from + (done + first + i * STEP) * block.distance);
#pragma unroll
        for (u32 i = 0; i < AHEAD; ++i)
#pragma unroll
            for (int j = 0; j < N; ++j) s[j] = M::combine(s[j], ahead[i][j]);
    }
#pragma unroll 1
    for (; done < block.slices; done += REST * STEP) {
        typename M::State rest[REST][N];
#pragma unroll
        for (u32 i = 0; i < REST; ++i)
            read_fresh(rest[i], from + min(done + first + i * STEP, block.slices - 1) * block.distance);
#pragma unroll
        for (u32 i = 0; i < REST; ++i)
#pragma unroll
            for (int j = 0; j < N; ++j)   // the repeated last slice does not count
                s[j] = M::combine(s[j], done + first + i * STEP < block.slices ? rest[i][j] : M::identity());
    }
}
// Writes the result of a block whose units have all published; called by the last of them.
{% if shares_fixup %}// Units that share it call this for turns of their own.
{% endif %}template <class M, bool ADDED, class B, class R>
DEVICE void fixup(const Params& p, const B& block, void* workspace, const R& result{# -#}
                  {% if shares_fixup %}, int first = 0, int end = 0x7fffffff{% endif %}) {
    typename M::State* const slices = static_cast<typename M::State*>(workspace) + i64(block.number) * B::ELEMENTS;
    const int thread = thread_of_unit();
    if constexpr (ADDED) {
        // Reading resets the sums for the next launch.
#pragma unroll 1
        for (int turn = {% if shares_fixup %}first; turn < end && {% else %}0; {% endif %}turn < turns(B::ELEMENTS); ++turn) {
            const int element = turn * UNIT_THREADS + thread;
            if (element < B::ELEMENTS) result.template write<M>(p, block, element, atomicExch(slices + element, M::identity()));
        }
    } else {
{% include "prelude/fixup_turn.cuh" %}#pragma unroll 1
        for (int turn = {% if shares_fixup %}first; turn < end && {% else %}0; {% endif %}{# -#}
             turn < turns(B::ELEMENTS / N * SHARERS); ++turn) {
            const int element = (turn * (UNIT_THREADS / SHARERS) + thread / 32 * LANES + thread % LANES) * N;
            typename M::State s[N];
            combine_slices<M, SHARERS>(s, block, slices + (element < B::ELEMENTS ? element : 0), thread % 32 / LANES);
#pragma unroll
            for (int j = 0; j < N; ++j) s[j] = fold_lanes<M, LANES, 32>(s[j]);
            if (element < B::ELEMENTS && thread % 32 < LANES)
#pragma unroll
                for (int j = 0; j < N; ++j) result.template write<M>(p, block, element + j, s[j]);
        }
    }
}
{% if totals %}// A total's one element, from what so many units have published, in their order.
struct Everything {
    static constexpr bool ROWS = false, COLUMNS = false, ENTRIES = false;
    static constexpr int WIDTH = 1;
    int row = 0, column = 0;
};
template <class M, int AT, class R> DEVICE void fixup_total(const Params& p, const void* workspace, u32 units, const R& result) {
    constexpr u32 AHEAD = 4;
    const typename M::State* const slices = static_cast<const typename M::State*>(workspace);
    typename M::State s = M::identity();
#pragma unroll 1
    for (u32 done = thread_of_unit(); done < units; done += AHEAD * UNIT_THREADS) {
        typename M::State ahead[AHEAD][1];
#pragma unroll
        for (u32 i = 0; i < AHEAD; ++i) read_fresh(ahead[i], slices + min(done + i * UNIT_THREADS, units - 1));
#pragma unroll
        for (u32 i = 0; i < AHEAD; ++i) s = M::combine(s, done + i * UNIT_THREADS < units ? ahead[i][0] : M::identity());
    }
    s = fold_unit<M, AT>(s);
    if (thread_of_unit() == 0) result.template write<M>(p, Everything(), 0, s);
}
{% endif -%}
