{% if convolution %}{% include "mainloop/sm90a/patches.cuh" %}
{% else %}// ---- producer ----
// The boxes of one operand's part of a panel, from K element k on: the place of each in shared memory, and in the operand.
// Under multicast each block of the cluster fetches one half for both: half of the lines if K is contiguous, otherwise half of
// the K elements.
template <bool IS_A, class F> DEVICE void each_box(const Tiles& tiles, u32 to, int k, F fetch) {
    constexpr bool K_MAJOR = IS_A ? A_K_MAJOR : B_K_MAJOR;
    constexpr bool SHARED = {% if splits_k %}false{% else %}(IS_A ? CLUSTER_N : CLUSTER_M) == 2{% endif %};
    constexpr int EXTENT = IS_A ? BM : {{ multiplied }};
    const int start = IS_A ? tiles.tile.row : {% if splits_k %}tiles.tile.column - int(cluster_rank() * BN)
                                              {% else %}tiles.tile.column{% endif %};
    const int half = SHARED ? cluster_rank() : 0;
    if constexpr (K_MAJOR) {
        fetch(to + half * (EXTENT * 64), k, start + half * (EXTENT / 2));
    } else {
#pragma unroll
        for (int i = 0; i < (EXTENT + {{ panel_terms - 1 }}) / {{ panel_terms }}; ++i) {# -#}
            fetch(to + i * {{ panel_terms * 128 }} + half * {{ panel_terms * 64 }}, {# -#}
                  start + i * {{ panel_terms }}, k + half * {{ half_panel }});
    }
}
template <bool IS_A> DEVICE void fetch_operand(const Params& p, const Tiles& tiles, u32 to, u32 barrier, int k) {
    const TensorMap& map = IS_A ? p.map0 : p.map1;
    const u64 policy = IS_A ? p.a_policy : p.b_policy;
    each_box<IS_A>(tiles, to, k, [&](u32 at, int x, int y) {
{% if not splits_k %}        if constexpr ((IS_A ? CLUSTER_N : CLUSTER_M) == 2)
            tma_load_multicast(at, map, policy, barrier, x, y, tiles.tile.batch, 3);
        else {% else %}        {% endif %}tma_load(at, map, policy, barrier, x, y, tiles.tile.batch);
    });
}
// Prefetches one block of K of the first tile's operand into the L2 cache. The tiles beside it, which share the operand,
// prefetch one other block each. In the L2 cache no write of an earlier kernel can be missed.
template <bool IS_A> DEVICE void prefetch_operand(const Params& p, const Tiles& tiles) {
{% if splits_k %}    const BlocksOfK own = share_of(u32(p.k - 1) / BK + 1);
    const u32 beside = IS_A ? u32(tiles.tile.column) / MULTIPLIED : u32(tiles.tile.row) / BM;
    const u32 block = own.first + beside;
    if (beside >= own.count) return;
{% else %}    const u32 block = IS_A ? u32(tiles.tile.column) / BN : u32(tiles.tile.row) / BM;
{% endif %}    if (block * BK >= p.k) return;
#pragma unroll
    for (int panel = 0; panel < {% if widened_a %}(IS_A ? 1 : PANELS){% else %}PANELS{% endif %}; ++panel)
        each_box<IS_A>(tiles, 0, {% if widened_a %}IS_A ? block * BK / Packed<Element>::COUNT : {% endif %}{# -#}
                       block * BK + panel * {{ panel_terms }}, [&](u32, int x, int y) {
            tma_prefetch_l2(IS_A ? p.map0 : p.map1, x, y, tiles.tile.batch);
        });
}
{% if weights_a or weights_b %}// The same for the weights, as much as the ring holds. The tiles that read them share the work.
DEVICE void prefetch_weights(const Params& p, const Tiles& tiles) {
    constexpr bool IS_A = {{ weights_a }};
    const u32 blocks = terms_in_blocks(p), ahead = blocks < STAGES ? blocks : STAGES;
{% if splits_k %}    const u32 first = share_of(u32(p.k - 1) / BK + 1).first;
{% endif %}    const u32 readers = IS_A ? Tiles::columns_of(p) : Tiles::rows_of(p);
    const u32 beside = IS_A ? u32(tiles.tile.column) / (BN * CLUSTER_N) : u32(tiles.tile.row) / (BM * CLUSTER_M);
#pragma unroll 1
    for (u32 block = beside; block < ahead; block += readers)
#pragma unroll
        for (int panel = 0; panel < {% if widened_a %}(IS_A ? 1 : PANELS){% else %}PANELS{% endif %}; ++panel)
            each_box<IS_A>(tiles, 0, {% if widened_a %}{# -#}
                           IS_A ? ({% if splits_k %}first + {% endif %}block) * BK / Packed<Element>::COUNT : {% endif %}{# -#}
                           ({% if splits_k %}first + {% endif %}block) * BK + panel * {{ panel_terms }}, {# -#}
                           [&](u32, int x, int y) {
                tma_prefetch_l2(IS_A ? p.map0 : p.map1, x, y, tiles.tile.batch);
            });
}
{% endif -%}
template <bool WITH_A, bool WITH_B> DEVICE void fetch_stage(const Params& p, const Tiles& tiles, u32 stage, u32 block) {
    const u32 shared = shared_address(shared_memory), barrier = shared + FULL + stage * 8;
{% if widened_a %}    // A's lines are those of the whole stage.
    if constexpr (WITH_A)
        fetch_operand<true>(p, tiles, shared + stage * STAGE_BYTES, barrier, block * BK / Packed<Element>::COUNT);
#pragma unroll
    for (int panel = 0; panel < PANELS; ++panel)
        if constexpr (WITH_B)
            fetch_operand<false>(p, tiles, shared + stage * STAGE_BYTES + PANELS * A_BYTES + panel * B_BYTES, barrier,
                                 block * BK + panel * {{ panel_terms }});
}
{% else %}#pragma unroll
    for (int panel = 0; panel < PANELS; ++panel) {
        const u32 to = shared + stage * STAGE_BYTES + panel * PANEL_BYTES;
        const int k = block * BK + panel * {{ panel_terms }};
        if constexpr (WITH_A) fetch_operand<true>(p, tiles, to, barrier, k);
        if constexpr (WITH_B) fetch_operand<false>(p, tiles, to + A_BYTES, barrier, k);
    }
}
{% endif %}
{% endif -%}
{% if lockstep %}{% include "mainloop/sm90a/lockstep.cuh" %}
{% endif -%}
{% if scaled %}// A warp: its first lane fetches the operands, and all lanes fetch scales.
{% endif -%}
DEVICE void produce(const Params& p, Tiles tiles{% if scaled %}, int lane{% endif %}) {
    const u32 shared = shared_address(shared_memory);
    {% if not residues %}const {% endif %}u32 blocks = terms_in_blocks(p);
{% if splits_k %}    const u32 first = p.k > 0 ? share_of(u32(p.k - 1) / BK + 1).first : 0;
{% endif %}    PipelineState at;
    bool more = tiles.advance(p);
{% if residues %}    blocks = blocks_of(p, tiles.of);
{% endif %}{% if gathers_a %}    Walk walk(p, tiles);
{% endif %}{% if scaled %}    StageScales scales;
{% endif %}    u32 block = 0;
{% if numbers %}    const int begin = {% if splits_k %}first * BK{% else %}0{% endif %};
{% endif %}    if constexpr (CONSTANT_A || CONSTANT_B) {
{% if scaled %}        scales.start(p, tiles.tile, lane{% if numbers %}, begin{% endif %});
{% endif %}        // The constant operand does not depend on earlier kernels: the ring is filled with it while they still run.
        const u32 ahead = !more || p.k == 0 ? 0 : blocks < STAGES ? blocks : STAGES;
{% if gathers_a %}        Walk constant = walk;
{% endif %}        for (u32 i = 0; i < ahead; ++i) {
{% if scaled %}            if (lane > 0) break;
{% endif %}            mbarrier_arrive_expect_tx(shared + FULL + i * 8, STAGE_BYTES);
            fetch_stage<CONSTANT_A, CONSTANT_B>(p, tiles, i, {% if gathers_a %}constant{% else %}{# -#}
                                                {% if splits_k %}first + {% endif %}i{% endif %});
        }
        wait_for_earlier_kernels();
        for (u32 i = 0; i < ahead; ++i) {% if scaled %}{
            scales.fetch(p, i, lane);
            if (lane == 0) fetch_stage<!CONSTANT_A, !CONSTANT_B>(p, tiles, i, {% if splits_k %}first + {% endif %}i);
        }
        {% else %}fetch_stage<!CONSTANT_A, !CONSTANT_B>(p, tiles, i, {% if gathers_a %}walk{% else %}{# -#}
                                                      {% if splits_k %}first + {% endif %}i{% endif %});
        {% endif -%}
        at.skip(ahead);
        block = ahead;
    } else {
        wait_for_earlier_kernels();
    }
{% if lockstep %}    Step step;
{% endif %}    for (; more; more = tiles.advance(p)) {
{% if lockstep %}        {% if scaled %}if (lane == 0) {% endif %}step.take(p);
{% endif %}{% if residues %}        blocks = blocks_of(p, tiles.of);
{% endif %}{% if gathers_a %}        if (block == 0) walk = Walk(p, tiles);
{% endif %}{% if scaled %}        if (block == 0) scales.start(p, tiles.tile, lane{% if numbers %}, begin{% endif %});
{% endif %}#pragma unroll 1
        for (; block < blocks; ++block) {
            mbarrier_wait(shared + EMPTY + at.stage * 8, at.parity ^ 1);
{% if scaled %}            scales.fetch(p, at.stage, lane);
            if (lane > 0) {
                at.advance();
                continue;
            }
{% endif %}            mbarrier_arrive_expect_tx(shared + FULL + at.stage * 8, p.k > 0 ? STAGE_BYTES : 0);
            if (p.k > 0)
                fetch_stage<true, true>(p, tiles, at.stage, {% if gathers_a %}walk{% else %}{# -#}
                                        {% if splits_k %}first + {% endif %}block{% endif %});
            at.advance();
        }
        block = 0;
    }
{% if lockstep %}    {% if scaled %}if (lane == 0) {% endif %}step.leave(p);
{% endif %}    // A block must not exit while arrivals from the other blocks of its cluster are on their way to its barriers. All
    // have arrived when every stage is empty. A barrier of the cluster would have to release them, which fences the device.
    if constexpr ({{ fetchers }} > 1)
#pragma unroll 1
        for (u32 i = 0; i < STAGES; ++i, at.advance()) mbarrier_wait(shared + EMPTY + at.stage * 8, at.parity ^ 1);
}
