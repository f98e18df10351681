// ---- sm_90a: barriers in shared memory, bulk tensor copies, warpgroups, clusters. Addresses are of shared memory. ----
// The number of this block, and of the launch's blocks, read where they are needed.
DEVICE u32 this_block() {
    u32 x;
    asm volatile("mov.u32 %0, %%ctaid.x;" : "=r"(x));
    return x;
}
DEVICE u32 launched_blocks() {
    u32 x;
    asm volatile("mov.u32 %0, %%nctaid.x;" : "=r"(x));
    return x;
}
{% include "prelude/mbarrier.cuh" -%}
DEVICE void mbarrier_arrive(u32 barrier) { asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory"); }
// Functions that end in `_if` are for consumers. A branch around a single instruction would end a basic block, and the compiler
// tracks every accumulator through every basic block.
DEVICE void mbarrier_arrive_if(bool arrives, u32 barrier) {
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %0, 0;\n@p mbarrier.arrive.shared::cta.b64 _, [%1];\n}"
                 ::"r"(int(arrives)), "r"(barrier) : "memory");
}
// Arrives when the copies without registers that this thread has begun are complete.
DEVICE void mbarrier_arrive_behind_copies(u32 barrier) {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}
{% if scaled %}// Copies four bytes without registers, or writes zero without reading.
DEVICE void copy_async_word(u32 to, const void* from, bool reads) {
    asm volatile("{\n.reg .pred skips;\nsetp.eq.b32 skips, %2, 0;\ncp.async.ca.shared.global [%0], [%1], 4, skips;\n}"
                 ::"r"(to), "l"(from), "r"(int(reads)) : "memory");
}
DEVICE void prefetch_l2(const void* from) { asm volatile("prefetch.global.L2 [%0];" ::"l"(from) : "memory"); }
{% endif -%}
// Makes the current phase wait for `bytes` more bytes, without arriving.
DEVICE void mbarrier_expect_tx(u32 barrier, u32 bytes) {
    asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
// Arrives at the same barrier of another block of the cluster. It does not release at cluster scope, which would fence the
// whole device: only reads by the tensor cores precede it.
DEVICE void mbarrier_arrive_cluster_if(bool arrives, u32 barrier, u32 block) {
    asm volatile("{\n.reg .pred p;\n.reg .b32 remote;\nsetp.ne.b32 p, %0, 0;\nmapa.shared::cluster.u32 remote, %1, %2;\n"
                 "@p mbarrier.arrive.shared::cluster.b64 _, [remote];\n}"
                 ::"r"(int(arrives)), "r"(barrier), "r"(block) : "memory");
}

// Synchronises the blocks of a cluster. It orders barriers in shared memory, and no other data.
DEVICE void cluster_sync() {
    asm volatile("barrier.cluster.arrive.relaxed.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}
DEVICE u32 cluster_rank() {
    u32 rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}
// True for one lane of a converged warp.
DEVICE bool elect_one() {
    u32 elected;
    asm volatile("{\n.reg .pred p;\nelect.sync _|p, 0xffffffff;\nselp.u32 %0, 1, 0, p;\n}" : "=r"(elected));
    return elected;
}

// Boxes of a tensor, with a priority in the L2 cache. `x` counts elements along the contiguous axis, `y` along the strided
// axis, `z` batch entries. What lies outside reads as zero and is not written. TMA clips a
// write along `x` at a multiple of its unit (`TMA_UNIT` in `plan`), not at the element.
DEVICE void tma_load(u32 to, const TensorMap& map, u64 policy, u32 barrier, int x, int y, int z) {
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint"
                 " [%0], [%1, { %3, %4, %5}], [%2], %6;"
                 ::"r"(to), "l"(&map), "r"(barrier), "r"(x), "r"(y), "r"(z), "l"(policy) : "memory");
}
// Copies to the same place in every block of the cluster, and reports to the same barrier of each.
DEVICE void tma_load_multicast(u32 to, const TensorMap& map, u64 policy, u32 barrier, int x, int y, int z, u16 blocks) {
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster"
                 ".L2::cache_hint"
                 " [%0], [%1, { %3, %4, %5}], [%2], %6, %7;"
                 ::"r"(to), "l"(&map), "r"(barrier), "r"(x), "r"(y), "r"(z), "h"(blocks), "l"(policy) : "memory");
}
{% if convolution %}// The pixels of consecutive output pixels under one tap, `right` and `down` from the window's first
// pixel. `channel`, `x`, `y` and `image` are the place of that pixel for the first output pixel.
DEVICE void tma_load_patches(u32 to, const TensorMap& map, u64 policy, u32 barrier, int channel, int x, int y, int image,
                             int right, int down) {
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes.L2::cache_hint"
                 " [%0], [%1, { %3, %4, %5, %6}], [%2], { %7, %8}, %9;"
                 ::"r"(to), "l"(&map), "r"(barrier), "r"(channel), "r"(x), "r"(y), "r"(image), "h"(u16(right)), "h"(u16(down)),
                   "l"(policy) : "memory");
}
{% if residues %}// The same the other way: writes pixels from a box. Pixels behind the last image are not written.
DEVICE void tma_store_patches_if(bool stores, const TensorMap& map, u64 policy, u32 from, int channel, int x, int y, int image) {
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %6, 0;\n"
                 "@p cp.async.bulk.tensor.4d.global.shared::cta.im2col_no_offs.bulk_group.L2::cache_hint"
                 " [%0, { %2, %3, %4, %5}], [%1], %7;\n}"
                 ::"l"(&map), "r"(from), "r"(channel), "r"(x), "r"(y), "r"(image), "r"(int(stores)), "l"(policy) : "memory");
}
{% endif -%}
{% endif -%}
// Copies into the L2 cache only.
DEVICE void tma_prefetch_l2(const TensorMap& map, int x, int y, int z) {
    asm volatile("cp.async.bulk.prefetch.tensor.3d.L2.global.tile [%0, { %1, %2, %3}];"
                 ::"l"(&map), "r"(x), "r"(y), "r"(z) : "memory");
}
DEVICE void tma_store_if(bool stores, const TensorMap& map, u64 policy, u32 from, int x, int y, int z) {
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %5, 0;\n"
                 "@p cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group.L2::cache_hint [%0, { %2, %3, %4}], [%1], %6;\n}"
                 ::"l"(&map), "r"(from), "r"(x), "r"(y), "r"(z), "r"(int(stores)), "l"(policy) : "memory");
}
DEVICE void tma_prefetch_descriptor(const TensorMap& map) { asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory"); }
// Closes this thread's group of stores; an empty group is complete at once.
{% if eight_bits %}// Instructions of groups take a branch instead of a predicate, and instructions are not moved across it. With
// numbers of eight bits every thread closes its group and waits, which costs less (`docs/measurements/0081-short-k.md`).
{% endif -%}
DEVICE void tma_store_commit_if(bool commits) {
{% if eight_bits %}    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
{% else %}    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %0, 0;\n@p cp.async.bulk.commit_group;\n}"
                 ::"r"(int(commits)) : "memory");
{% endif -%}
}
// Returns when all but this thread's last PENDING groups of stores have been read from shared memory.
template <int PENDING> DEVICE void tma_store_wait_read_if(bool waits) {
{% if eight_bits %}    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(PENDING) : "memory");
{% else %}    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %0, 0;\n@p cp.async.bulk.wait_group.read %1;\n}"
                 ::"r"(int(waits)), "n"(PENDING) : "memory");
{% endif -%}
}
DEVICE void tma_store_wait_all() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }
// The whole block waits for its first warp. That warp does not wait, because it prepares for itself what it needs.
DEVICE void sync_behind_first_warp(u32 warp) {
    if (warp == 0) asm volatile("barrier.cta.arrive.aligned 0, %0;" ::"n"(THREADS) : "memory");
    else asm volatile("barrier.cta.sync.aligned 0, %0;" ::"n"(THREADS) : "memory");
}
{% include "prelude/proxy.cuh" %}
// Warpgroups of 128 threads, numbered from 0 among the consumers. The barrier's number is in a register, which reserves all
// sixteen barriers. Predicated barriers with literal numbers make ptxas assume that the warp has diverged. It then computes
// descriptors in vector registers in a consumer's whole loop over tiles, and each product waits for them.
DEVICE void sync_warpgroup(int group) { asm volatile("bar.sync %0, 128;" ::"r"(group + 1) : "memory"); }
template <int REGISTERS> DEVICE void setmaxnreg_inc() { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(REGISTERS)); }
template <int REGISTERS> DEVICE void setmaxnreg_dec() { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(REGISTERS)); }

{% include "prelude/wgmma.cuh" %}{# -#}
{% if lies_along_k %}// d = a * b + (keep ? d : 0) for 64 x {{ wgmma.n }} of d and {{ wgmma.terms }} of K. In lane l of warp w,
// d[4g + 2h + e] is row 16w + l / 4 + 8h, column 8g + l % 4 * 2 + e.
DEVICE void wgmma_mma({{ accumulator }} (&d)[{{ wgmma.registers }}], u64 a, u64 b, bool keep) {
    asm volatile("{\n.reg .pred keep;\nsetp.ne.b32 keep, %{{ wgmma.registers + 2 }}, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n{{ wgmma.n }}k{{ wgmma.terms }}.{% if integers %}s32{% else %}f32{% endif %}"
                 ".{{ wgmma.dtype }}.{{ wgmma.dtype_b }} {{ wgmma.list }}, "
                 "%{{ wgmma.registers }}, %{{ wgmma.registers + 1 }}, keep{% if not integers %}, 1, 1{% endif %};\n}"
                 : {{ wgmma.outputs }}
                 : "l"(a), "l"(b), "r"(int(keep)));
}
{% else %}// d = a * b + (keep ? d : 0) for 64 x {{ wgmma.n }} of d and 16 of K. In lane l of warp w, d[4g + 2h + e] is row
// 16w + l / 4 + 8h, column 8g + l % 4 * 2 + e.
DEVICE void wgmma_mma(float (&d)[{{ wgmma.registers }}], u64 a, u64 b, bool keep) {
    asm volatile("{\n.reg .pred keep;\nsetp.ne.b32 keep, %{{ wgmma.registers + 2 }}, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n{{ wgmma.n }}k16.f32.{{ wgmma.dtype }}.{{ wgmma.dtype }} {{ wgmma.list }}, "
                 "%{{ wgmma.registers }}, %{{ wgmma.registers + 1 }}, keep, 1, 1, "
                 "%{{ wgmma.registers + 3 }}, %{{ wgmma.registers + 4 }};\n}"
                 : {{ wgmma.outputs }}
                 : "l"(a), "l"(b), "r"(int(keep)), "n"(int(!A_K_MAJOR)), "n"(int(!B_K_MAJOR)));
}
{% endif -%}
{% if passes_registers %}// The same with A in registers: in lane l of warp w, a[2c + h] is row 16w + l / 4 + 8h, K element
// l % 4 + 4c, or of 16 bits l % 4 * 2 + 8c and the one behind it.
DEVICE void wgmma_mma(float (&d)[{{ wgmma.registers }}], const u32 (&a)[4], u64 b, bool keep) {
    asm volatile("{\n.reg .pred keep;\nsetp.ne.b32 keep, %{{ wgmma.registers + 5 }}, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n{{ wgmma.n }}k{{ wgmma.terms }}.f32"
                 ".{{ wgmma.dtype }}.{{ wgmma.dtype_b }} {{ wgmma.list }}, "
                 "{{ wgmma.list_a }}, "
                 "%{{ wgmma.registers + 4 }}, keep, 1, 1{% if widened_a %}, %{{ wgmma.registers + 6 }}{% endif %};\n}"
                 : {{ wgmma.outputs }}
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(int(keep)){# -#}
                   {% if widened_a %}, "n"(int(!B_K_MAJOR)){% endif %});
}
{% endif -%}
