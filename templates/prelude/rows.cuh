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
{% if combines_together %}// Two to four sums: a lane is left with one of them.
// That takes less than half of the exchanges.
template <class M> constexpr bool ADDS = false;
template <> constexpr bool ADDS<Sum<float>> = true;
template <> constexpr bool ADDS<Mean<float>> = true;
template <class A, class B> constexpr bool ADDS<Both<A, B>> = ADDS<A> && ADDS<B>;
template <class S> struct Words {
    static constexpr int COUNT = sizeof(S) / 4, APART = COUNT > 2 ? 4 : 2, LANES = 32 / APART;   // lanes that have the same sum
    static constexpr bool SUIT = COUNT >= 2 && COUNT <= 4;
};
// What a warp comes to. Lane i has the sum number i / LANES.
template <class S> DEVICE float fold_words(const S& s, u32 lane) {
    using W = Words<S>;
    float words[W::APART];
#pragma unroll
    for (int i = 0; i < W::APART; ++i) words[i] = reinterpret_cast<const float*>(&s)[i < W::COUNT ? i : i - W::APART / 2];
    int first = 0;
    fold_apart<Sum<float>, W::APART, 16, 1>(words, int(lane), first);
    return words[0];
}
// What COUNT warps or blocks come to, whose sums lie in places: those of one number together.
template <class S, int COUNT, int OF_NUMBER> DEVICE float fold_places(const float* places, u32 lane) {
    constexpr int LANES = Words<S>::LANES, EACH = COUNT > LANES ? COUNT / LANES : 1, CHAINS = EACH > 1 ? 2 : 1;
    float sums[CHAINS];
#pragma unroll
    for (int i = 0; i < EACH; ++i) {
        const float sum = places[lane / LANES * OF_NUMBER + lane % LANES % COUNT + i * LANES];
        sums[i % CHAINS] = i < CHAINS ? sum : sums[i % CHAINS] + sum;
    }
    if constexpr (CHAINS > 1) sums[0] += sums[1];
    return fold_each<Sum<float>, 1, (COUNT > LANES ? LANES : COUNT)>(sums[0]);
}
// All sums, from the lanes that have them.
template <class S> DEVICE S gather_words(float sum) {
    S s;
#pragma unroll
    for (int i = 0; i < Words<S>::COUNT; ++i) reinterpret_cast<float*>(&s)[i] = __shfl_sync(~0u, sum, i * Words<S>::LANES);
    return s;
}
{% endif -%}
// The warps alternate between two places for their states, so that one barrier is enough. A warp writes to the first place
// again only after the barrier of the second, and no warp passes that barrier before it has read the first. The warps are
// combined in their order.
template <class M, int SHARERS> DEVICE typename M::State combine_threads(typename M::State s, int& turn) {
{% if combines_together %}    using S = typename M::State;
    if constexpr (SHARERS > 32 && ADDS<M> && Words<S>::SUIT) {
        constexpr int WARPS = SHARERS / 32, ALL = THREADS / 32;
        const u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32;
        float* const places = reinterpret_cast<float*>(smem + (turn ^= 1) * (ALL * PLACE));
        const float sum = fold_words(s, lane);
        if (lane % Words<S>::LANES == 0 && lane / Words<S>::LANES < Words<S>::COUNT)
            places[lane / Words<S>::LANES * ALL + warp] = sum;
        __syncthreads();
        return gather_words<S>(fold_places<S, WARPS, ALL>(places + warp / WARPS * WARPS, lane));
    }
{% endif %}    s = fold_lanes<M, 1, SHARERS < 32 ? SHARERS : 32>(s);
    if constexpr (SHARERS > 32) {
        static_assert(sizeof(s) <= PLACE, "a warp's place holds a state");
        constexpr int WARPS = SHARERS / 32;
        const u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32;
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
    const u32 lane = threadIdx.x % 32;
    u32* const places = reinterpret_cast<u32*>(smem + turn % 2 * (ALL * PLACE));
    u64* const arrived = arrivals() + turn % 2;
{% if combines_together %}    if constexpr (ADDS<M> && Words<S>::SUIT) {
        // The warps of a block first: one of them sends what the block comes to.
        constexpr int WARPS = THREADS / 32, LANES = Words<S>::LANES;
        static_assert(CLUSTER <= LANES && WORDS * (WARPS + CLUSTER) * 4 <= ALL * PLACE, "a lane for each block and each sum");
        float* const own = reinterpret_cast<float*>(places) + WORDS * CLUSTER;
        if (threadIdx.x == 0) mbarrier_arrive_expect_tx(address_of(arrived), CLUSTER * sizeof(S));
        const float sum = fold_words(s, lane);
        const u32 number = lane / LANES, to = lane % LANES;
        if (to == 0 && number < WORDS) own[number * WARPS + threadIdx.x / 32] = sum;
        __syncthreads();
        if (threadIdx.x < 32) {
            const float all = fold_places<S, WARPS, WARPS>(own, lane);
            if (to < CLUSTER && number < WORDS)
                put_async(address_in_block(places + number * CLUSTER + blockIdx.x % CLUSTER, to), __float_as_uint(all),
                          address_in_block(arrived, to));
        }
        mbarrier_wait(address_of(arrived), turn / 2 % 2);
        turn += 1;
        return gather_words<S>(fold_places<S, CLUSTER, CLUSTER>(reinterpret_cast<const float*>(places), lane));
    }
{% endif %}    s = fold_lanes<M, 1, 32>(s);
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
