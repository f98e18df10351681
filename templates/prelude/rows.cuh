{% if hopper or renews or label_apart -%}
// Hides from the compiler how values came about. It then computes again what follows from them, instead
// of keeping it for all elements until the next stage needs it: cheap values are not worth the registers.
template <class T> DEVICE void renew(T& values) {
    u32* const words = reinterpret_cast<u32*>(&values);
#pragma unroll
    for (int i = 0; i < int(sizeof(T) / 4); ++i) asm volatile("" : "+r"(words[i]));
}
{% endif -%}
{% if label_apart %}template <class T> DEVICE void replace_if(bool condition, T& to, const T& from) {
#pragma unroll
    for (int i = 0; i < int(sizeof(T) / 4); ++i) {
        u32& word = reinterpret_cast<u32*>(&to)[i];
        word = condition ? reinterpret_cast<const u32*>(&from)[i] : word;
    }
}
{% endif -%}
{% if hopper %}// ---- rows: a quad of lanes holds the row of a tile, and each of its lanes gets the result ----
template <class M> DEVICE typename M::State combine_row(const typename M::State& s, int&) { return fold_lanes<M, 1, 4>(s); }
{% else %}// ---- rows: combines the states of threads that share a row, or the block, so that each of them has the result ----
extern __shared__ __align__(16) u8 smem[];

{% if combines_together %}// Two monoids, whose states are combined at one barrier.
template <class A, class B> struct Both {
    struct State {
        typename A::State first;
        typename B::State second;
    };
    static DEVICE State combine(const State& a, const State& b) {
        return {A::combine(a.first, b.first), B::combine(a.second, b.second)};
    }
};
template <class A, class B> constexpr bool AGREES<Both<A, B>> = AGREES<A> || AGREES<B>;
template <class A, class B, int FROM, int TO> struct Lanes<Both<A, B>, FROM, TO> {
    static DEVICE typename Both<A, B>::State fold(typename Both<A, B>::State s) {
        if constexpr (AGREES<Both<A, B>>) return {fold_lanes<A, FROM, TO>(s.first), fold_lanes<B, FROM, TO>(s.second)};
        else return fold_each<Both<A, B>, FROM, TO>(s);   // exchanges of several states are in flight together
    }
};
{% endif -%}
// The warps alternate between two places for their states, so that one barrier is enough. A warp writes to the first place
// again only after the barrier of the second, and no warp passes that barrier before it has read the first. The warps are
// combined in their order.
template <class M, int SHARERS> DEVICE typename M::State combine_threads(typename M::State s, int& turn) {
    s = fold_lanes<M, 1, SHARERS < 32 ? SHARERS : 32>(s);
    if constexpr (SHARERS > 32) {
        static_assert(sizeof(s) <= PLACE, "a warp's place holds a state");
        constexpr int WARPS = SHARERS / 32;
        const int warp = int(threadIdx.x) / 32, lane = int(threadIdx.x) % 32;
        u8* const places = smem + (turn ^= 1) * (THREADS / 32 * PLACE);
        if (lane == 0) *reinterpret_cast<typename M::State*>(places + warp * PLACE) = s;
        __syncthreads();
        s = *reinterpret_cast<typename M::State*>(places + (warp / WARPS * WARPS + lane % WARPS) * PLACE);
        s = fold_lanes<M, 1, WARPS>(s);
    }
    return s;
}
{% if cluster_size > 1 %}// The same across the blocks of a cluster. A warp leaves its state in all of them, and
// reads those of all warps from its own block. Words of states lie together, so that no two lanes meet in a bank.
// There are two places here as well.
constexpr int WARPS_OF_ROW = THREADS / 32 * CLUSTER, AT_ARRIVALS = 2 * WARPS_OF_ROW * PLACE;
static_assert(AT_ARRIVALS + 2 * sizeof(u64) <= MAINLOOP_SMEM, "the plan made room for states and mbarriers");
DEVICE u64* arrivals() { return reinterpret_cast<u64*>(smem + AT_ARRIVALS); }
template <class M> DEVICE typename M::State combine_row(typename M::State s, int& turn) {
    using S = typename M::State;
    constexpr int ALL = WARPS_OF_ROW, WORDS = sizeof(S) / 4;
    static_assert(sizeof(S) <= PLACE && GROUP == THREADS, "a warp's place holds a state, and a block has one row");
    s = fold_lanes<M, 1, 32>(s);
    const u32 lane = threadIdx.x % 32;
    u32* const places = reinterpret_cast<u32*>(smem + turn % 2 * (ALL * PLACE));
    u64* const arrived = arrivals() + turn % 2;
    if (threadIdx.x == 0) mbarrier_arrive_expect_tx(address_of(arrived), ALL * sizeof(S));
    send_state<ALL>(places + blockIdx.x % CLUSTER * (THREADS / 32) + threadIdx.x / 32, s, arrived);
    mbarrier_wait(address_of(arrived), turn / 2 % 2);
    turn += 1;
    const auto state = [&](u32 of) {
        S state;
#pragma unroll
        for (int i = 0; i < WORDS; ++i) reinterpret_cast<u32*>(&state)[i] = places[i * ALL + of];
        return state;
    };
    s = state(lane % ALL);
#pragma unroll
    for (int i = 32; i < ALL; i += 32) s = M::combine(s, state(i + lane));
    return fold_lanes<M, 1, ALL < 32 ? ALL : 32>(s);
}
{% else %}template <class M> DEVICE typename M::State combine_row(typename M::State s, int& turn) {
    return combine_threads<M, GROUP>(s, turn);
}
{% endif %}{% if whole %}template <class M> DEVICE typename M::State combine_block(typename M::State s, int& turn) {
    return combine_threads<M, THREADS>(s, turn);
}
{% endif %}{% endif -%}
