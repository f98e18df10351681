// ---- programmatic dependent launch: kernels that follow each other overlap ----
// Waits for the kernels before this one in the stream, or lets the next one start. Without the launch attribute, and before
// sm_90, neither has an effect.
DEVICE void wait_for_earlier_kernels() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
DEVICE void let_next_kernel_start() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
// The first step of a kernel that touches no memory before earlier kernels are done.
DEVICE void begin_early() {
    let_next_kernel_start();
    wait_for_earlier_kernels();
}
