// ---- groups: combines the states of the threads that have a group, in all blocks of the cluster: each gets the result ----
extern __shared__ __align__(16) u8 smem[];

// Bytes of a state, and where states begin: behind what the block holds.
constexpr int STATE = 16, AT_STATES = BM / CLUSTER * BN * BYTES;

// A warp combines the threads of a group, and leaves what the block has of it in one of two places. It writes to the first place
// again only after the barrier of the second, which no block passes before it has read the first.
template <class M> DEVICE typename M::State combine_block(typename M::State s, int& turn) {
    using S = typename M::State;
    static_assert(sizeof(S) <= STATE, "there is room for a state");
    constexpr int STRIPS = BN / STRIP, OWN = BAND / STRIP, GROUPS = BN / BAND, SHARERS = THREADS / STRIPS * OWN;
    const int thread = threadIdx.x;
    S* const of_threads = reinterpret_cast<S*>(smem + AT_STATES);
    S* const of_groups = reinterpret_cast<S*>(smem + AT_STATES + (THREADS + (turn ^= 1) * GROUPS) * STATE);
    of_threads[thread] = s;
    __syncthreads();
#pragma unroll 1
    for (int group = thread / 32; group < GROUPS; group += THREADS / 32) {
        s = M::identity();
#pragma unroll 4
        for (int i = thread % 32; i < SHARERS; i += 32)
            s = M::combine(s, of_threads[i / OWN * STRIPS + group * OWN + i % OWN]);
        s = fold_lanes<M, 1, 32>(s);
        if (thread % 32 == 0) of_groups[group] = s;
    }
    const int own = thread % STRIPS / OWN;
{% if cluster_size > 1 %}    sync_cluster();
    S all[CLUSTER];
#pragma unroll
    for (int block = 0; block < CLUSTER; ++block) all[block] = state_in_block(of_groups + own, block);
    s = all[0];
#pragma unroll
    for (int block = 1; block < CLUSTER; ++block) s = M::combine(s, all[block]);
    return s;
{% else %}    __syncthreads();
    return of_groups[own];
{% endif %}}
