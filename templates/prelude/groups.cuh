// ---- groups: combines the states of the threads that have a group, in all blocks of the cluster: each gets the result ----
extern __shared__ __align__(16) u8 smem[];

// Bytes of a state, and where states begin: behind what the block holds.
constexpr int STATE = 16, AT_STATES = BM / CLUSTER * BN * BYTES;

// A warp combines the threads of a group, and leaves what the block has of it in one of two places{# -#}
{% if cluster_size > 1 %} in all blocks{% endif %}. It writes to the first
// place again only after the barrier of the second, which no block passes before it has read the first.
constexpr int AT_GROUPS = AT_STATES + THREADS * STATE, PLACE = BN / BAND * CLUSTER * STATE;
constexpr int AT_ARRIVALS = AT_GROUPS + 2 * PLACE;
{% if cluster_size > 1 %}static_assert(AT_ARRIVALS + 2 * sizeof(u64) <= MAINLOOP_SMEM, "there is room for states and mbarriers");
DEVICE u64* arrivals() { return reinterpret_cast<u64*>(smem + AT_ARRIVALS); }
{% endif %}template <class M> DEVICE typename M::State combine_block(typename M::State s, int& turn) {
    using S = typename M::State;
    static_assert(sizeof(S) <= STATE, "there is room for a state");
    constexpr int STRIPS = BN / STRIP, OWN = BAND / STRIP, GROUPS = BN / BAND, SHARERS = THREADS / STRIPS * OWN;
    const int thread = threadIdx.x;
    S* const of_threads = reinterpret_cast<S*>(smem + AT_STATES);
    S* const of_groups = reinterpret_cast<S*>(smem + AT_GROUPS + turn % 2 * PLACE);
{% if cluster_size > 1 %}    u64* const arrived = arrivals() + turn % 2;
    if (thread == 0) mbarrier_arrive_expect_tx(address_of(arrived), GROUPS * CLUSTER * sizeof(S));
    if (turn == 0) wait_for_cluster();   // all of its blocks have started
{% endif %}    of_threads[thread] = s;
    __syncthreads();
#pragma unroll 1
    for (int group = thread / 32; group < GROUPS; group += THREADS / 32) {
        s = M::identity();
#pragma unroll 4
        for (int i = thread % 32; i < SHARERS; i += 32)
            s = M::combine(s, of_threads[i / OWN * STRIPS + group * OWN + i % OWN]);
        s = fold_lanes<M, 1, 32>(s);
{% if cluster_size > 1 %}        S* const place = of_groups + blockIdx.x % CLUSTER * GROUPS + group;
        send_state<1>(reinterpret_cast<const u32*>(place), s, arrived);
{% else %}        if (thread % 32 == 0) of_groups[group] = s;
{% endif %}    }
    const int own = thread % STRIPS / OWN;
{% if cluster_size > 1 %}    mbarrier_wait(address_of(arrived), turn / 2 % 2);
    turn += 1;
    s = of_groups[own];
#pragma unroll
    for (int block = 1; block < CLUSTER; ++block) s = M::combine(s, of_groups[block * GROUPS + own]);
    return s;
{% else %}    turn += 1;
    __syncthreads();
    return of_groups[own];
{% endif %}}
