// ---- values that the compiler must compute where they are used, instead of keeping them in registers ----
DEVICE u32 fresh(u32 x) {
    u32 y;
    asm volatile("mov.u32 %0, %1;" : "=r"(y) : "r"(x));
    return y;
}
DEVICE int thread_of_block() {
    int x;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(x));
    return x;
}
