{% if widened %}{% include "mainloop/gemv_widened.cuh" %}
{% else %}{% include "mainloop/gemv_sums.cuh" %}
{% endif -%}
DEVICE void add_part(Accum (&acc)[STRIP], const Accum* part) {
    Raw<Accum, STRIP> raw;
    load_wide<STRIP>(raw, part);
#pragma unroll
    for (int e = 0; e < STRIP; ++e) acc[e] = add(acc[e], raw.elements[e]);
}

{% if cluster_size > 1 -%}
// Adds the same strip from the shared memory of another block of the cluster.
DEVICE void add_part_of(Accum (&acc)[STRIP], const Accum* part, u32 block) {
    const u32 address = address_in_block(part, block);
#pragma unroll
    for (int e = 0; e < STRIP; ++e) {
{% if accumulator_bytes == 8 %}        double x;
        asm volatile("ld.shared::cluster.f64 %0, [%1];" : "=d"(x) : "r"(address + e * 8) : "memory");
        acc[e] = add(acc[e], x);
{% else %}        Raw<Accum, 1> raw;
        raw.words[0] = word_of_cluster(address + e * 4);
        acc[e] = add(acc[e], raw.elements[0]);
{% endif -%}
    }
}
{% endif -%}

} // namespace gemv

extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS)
{% if cluster_size > 1 %}__cluster_dims__({{ cluster_size }}, 1, 1) {% endif %}postlude_kernel(const __grid_constant__ Params p) {
    extern __shared__ __align__(16) unsigned char smem[];
    Accum* const parts = reinterpret_cast<Accum*>(smem);

    let_next_kernel_start();
{% if not widened %}    if constexpr (!CONSTANT_B) wait_for_earlier_kernels();
{% endif %}    const u32 rank = CLUSTER > 1 ? blockIdx.x % CLUSTER : 0;
    const u32 index = blockIdx.x / CLUSTER;
    const TileOrigin tile =
        p.m <= BM ? TileOrigin{0, int(index * BN), int(blockIdx.z * gridDim.y + blockIdx.y)} : locate(p, index);
    if (tile.batch >= p.batch) return;

    Accum sums[gemv::SUMS];
#pragma unroll
    for (int i = 0; i < gemv::SUMS; ++i) sums[i] = Accum(0);
    gemv::multiply_all(p, sums, tile, rank{% if widened %}, smem{% endif %});

    // Threads without a strip visit one outside the matrix. The epilogue's loads are in flight while the sums are added up.
    const int at = threadIdx.x, lane_row = at / gemv::STRIPS, lane_column = at % gemv::STRIPS * STRIP;
    const Strip strip{lane_row < BM ? tile.row + lane_row : p.m, tile.column + lane_column};
    const TileValues values = epilogue_begin(p, tile.batch);
    ColumnValues columns = epilogue_column(p, values, strip);
    RowValues row = epilogue_row(p, values, strip);
    const Fetched fetched = epilogue_fetch(p, values, strip);

    gemv::store_parts(parts, sums);
    const int place = lane_row < BM ? lane_row * BN + lane_column : 0;
    Accum acc[STRIP];
#pragma unroll
    for (int e = 0; e < STRIP; ++e) acc[e] = Accum(0);
#pragma unroll 2
    for (int part = 0; part < gemv::PARTS; ++part) gemv::add_part(acc, parts + part * gemv::PART + place);
{% if cluster_size > 1 %}
    // Every block stores its sums behind the parts. The first block adds them up and continues.
    Accum* const block = parts + gemv::PARTS * gemv::PART + place;
    if (lane_row < BM)
#pragma unroll
        for (int e = 0; e < STRIP; ++e) block[e] = acc[e];
    sync_cluster();
    if (rank == 0)
#pragma unroll
        for (int other = 1; other < CLUSTER; ++other) gemv::add_part_of(acc, block, other);
    sync_cluster(); // a block must not exit while another reads from it
    if (rank > 0) return;
{% endif %}
#pragma unroll
    for (int e = 0; e < STRIP; ++e)
        if (strip.row >= p.m || strip.at(e) >= p.n) acc[e] = Accum(0);

    epilogue_visit(p, values, columns, row, fetched, strip, acc);
    epilogue_row_end(p, values, row, strip);
    epilogue_column_end(p, values, columns, strip);
    if constexpr (EPILOGUE_SMEM > 0) __syncthreads();
    epilogue_end(p, values, tile);
}
