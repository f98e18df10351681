// ---- shared memory by its 32-bit addresses: words, and matrices spread over a warp ----
DEVICE u32 shared_address(const void* p) { return u32(__cvta_generic_to_shared(p)); }

// Loads four 8x8 matrices of 16-bit elements, or 8x4 of 32 bits: lane l names row l % 8 of matrix l / 8, and receives from each
// matrix the 32 bits at row l / 4, word l % 4. That is the operand layout of mma.sync if K is contiguous.
DEVICE void load_matrices(u32 (&r)[4], u32 address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 { %0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(address) : "memory");
}
// The same, with each matrix transposed: for operands with K strided. 16-bit elements only.
DEVICE void load_matrices_transposed(u32 (&r)[4], u32 address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 { %0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(address) : "memory");
}
DEVICE u32 load_shared_word(u32 address) {
    u32 r;
    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(r) : "r"(address) : "memory");
    return r;
}
DEVICE void store_shared_word(u32 address, u32 value) {
    asm volatile("st.shared.b32 [%0], %1;" ::"r"(address), "r"(value) : "memory");
}
