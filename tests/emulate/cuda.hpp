// The part of CUDA that the kernels of `simt`, `gemv`, `pointwise`, `depthwise` and `bands` need, on a processor. The threads of
// a block are coroutines that switch at __syncthreads, __syncwarp and shuffles. Blocks run one after the other.
//
// This exposes faults that a GPU may hide. Buffers end at unmapped memory, and shared memory begins as NaNs. A barrier
// that some threads miss ends the program. Threads run in both orders, so results differ if a barrier is missing.
#include <sys/mman.h>
#include <ucontext.h>
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

struct Index { unsigned x, y, z; };
static Index threadIdx, blockIdx, gridDim;
struct alignas(16) uint4 { unsigned x, y, z, w; };
struct alignas(8) uint2 { unsigned x, y; };
static inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }

namespace emulated {

[[noreturn]] static void fail(const char* what) {
    std::fprintf(stderr, "thread %u of block %u, %u, %u: %s\n", threadIdx.x, blockIdx.x, blockIdx.y, blockIdx.z, what);
    std::_Exit(3);
}

// What a kernel tells the compiler has to hold.
#define __builtin_assume(condition) ((condition) ? void() : emulated::fail("an assumption does not hold"))

enum class At { running, block, warp, end };
struct Thread { ucontext_t context; At at; uint64_t slot; };
constexpr size_t STACK = 256 << 10;
static std::vector<Thread> threads;
static char* stacks;
static ucontext_t scheduler;
static void (*body)();
// The direction of the approximations' errors.
static int tilt = 0;

static void meet(At at) {
    Thread& mine = threads[threadIdx.x];
    mine.at = at;
    swapcontext(&mine.context, &scheduler);
}
static void run_thread() {
    body();
    threads[threadIdx.x].at = At::end;
}
// Releases the threads that have all arrived: the remaining threads of a warp, or the block.
static bool release() {
    bool any = false;
    const size_t count = threads.size();
    auto met = [&](size_t first, size_t end, At at) {
        size_t here = 0, ended = 0;
        for (size_t i = first; i < end; ++i) here += threads[i].at == at, ended += threads[i].at == At::end;
        if (here == 0 || here + ended < end - first) return;
        for (size_t i = first; i < end; ++i)
            if (threads[i].at == at) threads[i].at = At::running;
        any = true;
    };
    for (size_t warp = 0; warp < count; warp += 32) met(warp, std::min(count, warp + 32), At::warp);
    met(0, count, At::block);
    return any;
}
// Runs the threads of a block to their ends, in ascending or descending order between any two barriers.
static void run_block(size_t count, bool descending) {
    threads.resize(count);
    if (stacks == nullptr)
        stacks = static_cast<char*>(mmap(nullptr, STACK * count, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    for (size_t i = 0; i < count; ++i) {
        getcontext(&threads[i].context);
        threads[i].context.uc_stack.ss_sp = stacks + i * STACK;
        threads[i].context.uc_stack.ss_size = STACK;
        threads[i].context.uc_link = &scheduler;
        threads[i].at = At::running;
        makecontext(&threads[i].context, run_thread, 0);
    }
    do {
        for (size_t i = 0; i < count; ++i) {
            threadIdx = {unsigned(descending ? count - 1 - i : i), 0, 0};
            if (threads[threadIdx.x].at == At::running) swapcontext(&scheduler, &threads[threadIdx.x].context);
        }
    } while (release());
    for (const Thread& thread : threads)
        if (thread.at != At::end) fail("some threads wait at a barrier that the others never reach");
}

template <class T> static T shuffle(T x, unsigned from) {
    static_assert(sizeof(T) == 4 || sizeof(T) == 8, "a register, or two");
    std::memcpy(&threads[threadIdx.x].slot, &x, sizeof(T));
    meet(At::warp);
    const uint64_t word = threads[threadIdx.x / 32 * 32 + from % 32].slot;
    meet(At::warp);
    std::memcpy(&x, &word, sizeof(T));
    return x;
}

}  // namespace emulated

static inline void __syncthreads() { emulated::meet(emulated::At::block); }
static inline void __syncwarp() { emulated::meet(emulated::At::warp); }
template <class T> static T __shfl_xor_sync(unsigned, T x, int lanes) {
    return emulated::shuffle(x, threadIdx.x ^ unsigned(lanes));
}
template <class T> static T __shfl_sync(unsigned, T x, int lane) { return emulated::shuffle(x, unsigned(lane)); }
template <class T> static T __ldcg(const T* p) { return *p; }
static inline double normcdf(double x) { return std::erfc(x * -0.7071067811865476) / 2; }
static inline float normcdff(float x) { return float(normcdf(double(x))); }
template <class To, class From> static To same_bits(From x) {
    To y;
    static_assert(sizeof x == sizeof y, "as wide");
    std::memcpy(&y, &x, sizeof y);
    return y;
}
static inline float __uint_as_float(unsigned x) { return same_bits<float>(x); }
static inline float __int_as_float(int x) { return same_bits<float>(x); }
static inline unsigned __float_as_uint(float x) { return same_bits<unsigned>(x); }
static inline int __float_as_int(float x) { return same_bits<int>(x); }
static inline double __longlong_as_double(long long x) { return same_bits<double>(x); }
static inline long long __double_as_longlong(double x) { return same_bits<long long>(x); }
static inline double __fma_rn(double a, double b, double c) { return fma(a, b, c); }
static inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
static inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned by) {
    return unsigned((uint64_t(high) << 32 | low) >> (by & 31));
}
static inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
static inline unsigned __byte_perm(unsigned low, unsigned high, unsigned which) {
    const uint64_t bytes = uint64_t(high) << 32 | low;
    unsigned y = 0;
    for (int i = 0; i < 4; ++i) y |= unsigned(bytes >> (which >> i * 4 & 7) * 8 & 0xff) << i * 8;
    return y;
}
static inline double rsqrt(double x) { return 1.0 / sqrt(x); }
template <class T> static T atomicAdd(T* p, T x) { T old = *p; *p = old + x; return old; }
template <class T> static T atomicExch(T* p, T x) { T old = *p; *p = x; return old; }
static inline unsigned atomicOr(unsigned* p, unsigned x) { unsigned old = *p; *p = old | x; return old; }
static inline unsigned atomicAnd(unsigned* p, unsigned x) { unsigned old = *p; *p = old & x; return old; }
static inline unsigned atomicInc(unsigned* p, unsigned last) { unsigned old = *p; *p = old >= last ? 0 : old + 1; return old; }
static inline int min(int a, int b) { return a < b ? a : b; }
static inline int max(int a, int b) { return a > b ? a : b; }
static inline unsigned min(unsigned a, unsigned b) { return a < b ? a : b; }
static inline unsigned max(unsigned a, unsigned b) { return a > b ? a : b; }
static inline long long min(long long a, long long b) { return a < b ? a : b; }
static inline long long max(long long a, long long b) { return a > b ? a : b; }

// Instructions by their names, results first. The test converts inline assembly into calls of these.
namespace ptx {
static void fence_acq_rel_gpu() {}
static inline void mov_u32(unsigned& y, unsigned x) { y = x; }
static inline void mov_u32(int& thread) { thread = int(threadIdx.x); }
static inline void max_NaN_f32(float& y, float a, float b) { y = a != a || b != b ? NAN : fmaxf(a, b); }
static inline void min_NaN_f32(float& y, float a, float b) { y = a != a || b != b ? NAN : fminf(a, b); }
static inline void cvt_rzi_s32_f32(int& y, float x) {
    y = x != x ? 0 : x >= 2147483648.0f ? 2147483647 : x <= -2147483648.0f ? -2147483647 - 1 : int(x);
}
static inline void cvt_rni_s32_f32(int& y, float x) {
    y = x != x ? 0 : x >= 2147483648.0f ? 2147483647 : x <= -2147483648.0f ? -2147483647 - 1 : int(nearbyint(double(x)));
}
// Numbers of eight bits by what their codes are worth: the nearest of all codes up to the largest number, of two the even one.
static inline double worth(int code, int fraction, int bias) {
    const int exponent = code >> fraction, rest = code & ((1 << fraction) - 1);
    return exponent == 0 ? ldexp(rest, 1 - bias - fraction) : ldexp(rest + (1 << fraction), exponent - bias - fraction);
}
static inline unsigned nearest_code(float x, int fraction, int bias, int most) {
    if (x != x) return 0x7f;
    const double size = std::min(double(fabsf(x)), worth(most, fraction, bias));
    int best = 0;
    for (int code = 1; code <= most; ++code) {
        const double mine = fabs(worth(code, fraction, bias) - size), other = fabs(worth(best, fraction, bias) - size);
        if (mine < other || (mine == other && code % 2 == 0)) best = code;
    }
    return unsigned(best) | (std::signbit(x) ? 0x80u : 0u);
}
static inline void cvt_rn_satfinite_e4m3x2_f32(unsigned short& y, float high, float low) {
    y = (unsigned short)(nearest_code(high, 3, 7, 0x7e) << 8 | nearest_code(low, 3, 7, 0x7e));
}
static inline void cvt_rn_satfinite_e5m2x2_f32(unsigned short& y, float high, float low) {
    y = (unsigned short)(nearest_code(high, 2, 15, 0x7b) << 8 | nearest_code(low, 2, 15, 0x7b));
}
static inline void cvt_rn_f16x2_e4m3x2(unsigned& y, unsigned short x) {
    auto one = [](unsigned code) {
        const double size = worth(int(code & 0x7f), 3, 7);
        return (code & 0x7f) == 0x7f ? 0x7fffu : unsigned(same_bits<unsigned short>(_Float16(code & 0x80 ? -size : size)));
    };
    y = one(x >> 8) << 16 | one(x & 0xff);
}
static inline void cvt_pack_sat_s8_s32_b32(unsigned& y, int high, int low, unsigned above) {
    auto one = [](int x) { return unsigned(std::clamp(x, -128, 127)) & 0xff; };
    y = above << 16 | one(high) << 8 | one(low);
}
static inline void cvt_pack_sat_u8_s32_b32(unsigned& y, int high, int low, unsigned above) {
    y = above << 16 | unsigned(std::clamp(high, 0, 255)) << 8 | unsigned(std::clamp(low, 0, 255));
}
static inline void cvt_f32_f16(float& y, unsigned short x) { y = float(same_bits<_Float16>(x)); }
static inline void cvt_rn_f16_f32(unsigned short& y, float x) { y = same_bits<unsigned short>(_Float16(x)); }
static inline void cvt_rn_bf16_f32(unsigned short& y, float x) {
    const unsigned bits = __float_as_uint(x);
    y = x != x ? 0x7fff : (unsigned short)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
static inline void cvt_rn_f16x2_f32(unsigned& y, float high, float low) {
    unsigned short h, l;
    cvt_rn_f16_f32(h, high), cvt_rn_f16_f32(l, low);
    y = unsigned(h) << 16 | l;
}
static inline void cvt_rn_bf16x2_f32(unsigned& y, float high, float low) {
    unsigned short h, l;
    cvt_rn_bf16_f32(h, high), cvt_rn_bf16_f32(l, low);
    y = unsigned(h) << 16 | l;
}
static inline void max_NaN_f16x2(unsigned& y, unsigned a, unsigned b) {
    auto one = [](unsigned short a, unsigned short b) {
        const float x = float(same_bits<_Float16>(a)), y = float(same_bits<_Float16>(b));
        return x != x || y != y ? 0x7fffu : unsigned(x > y ? a : b);
    };
    y = one(a >> 16, b >> 16) << 16 | one(a & 0xffff, b & 0xffff);
}
static inline void max_NaN_bf16x2(unsigned& y, unsigned a, unsigned b) {
    auto one = [](unsigned a, unsigned b) {
        const float x = __uint_as_float(a << 16), y = __uint_as_float(b << 16);
        return x != x || y != y ? 0x7fffu : x > y ? a : b;
    };
    y = one(a >> 16, b >> 16) << 16 | one(a & 0xffff, b & 0xffff);
}
// The smallest as the largest of what has the other signs.
static inline void min_NaN_f16x2(unsigned& y, unsigned a, unsigned b) {
    max_NaN_f16x2(y, a ^ 0x80008000u, b ^ 0x80008000u);
    y ^= 0x80008000u;
}
static inline void min_NaN_bf16x2(unsigned& y, unsigned a, unsigned b) {
    max_NaN_bf16x2(y, a ^ 0x80008000u, b ^ 0x80008000u);
    y ^= 0x80008000u;
}
static inline double value_f16(unsigned bits) { return double(same_bits<_Float16>((unsigned short)bits)); }
static inline double value_bf16(unsigned bits) { return double(__uint_as_float(bits << 16)); }
// Both halves of a word. The sums of these numbers are exact in an f64, so they are rounded once.
template <class F> static unsigned of_halves(F of) { return (of(16) & 0xffffu) << 16 | (of(0) & 0xffffu); }
static inline void fma_rn_f16x2(unsigned& y, unsigned a, unsigned b, unsigned c) {
    y = of_halves([&](int at) {
        const double x = value_f16(a >> at) * value_f16(b >> at) + value_f16(c >> at);
        return unsigned(same_bits<unsigned short>(_Float16(x)));
    });
}
static inline void fma_rn_bf16x2(unsigned& y, unsigned a, unsigned b, unsigned c) {
    y = of_halves([&](int at) {
        unsigned short rounded;
        cvt_rn_bf16_f32(rounded, float(value_bf16(a >> at) * value_bf16(b >> at) + value_bf16(c >> at)));
        return unsigned(rounded);
    });
}
// With the table 0x6a, which is the only one in use.
static inline void lop3_b32(unsigned& y, unsigned a, unsigned b, unsigned c) { y = (a & b) ^ c; }
static inline void ld_global_L1__no_allocate_L2__128B_v4_b32(unsigned& x, unsigned& y, unsigned& z, unsigned& w,
                                                                const void* from) {
    if (reinterpret_cast<uintptr_t>(from) % 16 != 0) emulated::fail("a load of 16 bytes is not aligned");
    const unsigned* const words = static_cast<const unsigned*>(from);
    x = words[0], y = words[1], z = words[2], w = words[3];
}
static void griddepcontrol_wait() {}
static void griddepcontrol_launch_dependents() {}
// Approximations, as inaccurate as their documentation allows, times `tilt`: up, down, or not at all. The documentation
// of `tanh` allows 2^-11, but Hopper is within 1e-5, and the table relies on that. For large arguments it is 1.
static inline float flushed(float x) { return fabsf(x) < 1.17549435e-38f ? copysignf(0.0f, x) : x; }
static inline float tilted(double exact, double relative, double absolute = 0.0) {
    return float(exact * (1.0 + emulated::tilt * relative) + emulated::tilt * absolute);
}
static inline void ex2_approx_ftz_f32(float& y, float x) { y = flushed(tilted(exp2(double(flushed(x))), 0x1p-22)); }
static inline void lg2_approx_ftz_f32(float& y, float x) {
    const double exact = log2(double(flushed(x)));
    y = x > 0.5f && x < 2.0f ? tilted(exact, 0.0, x == 1.0f ? 0.0 : 0x1p-22) : tilted(exact, 0x1p-22);
}
static inline void rcp_approx_ftz_f32(float& y, float x) { y = flushed(tilted(1.0 / double(flushed(x)), 0x1p-23)); }
static inline void sqrt_approx_ftz_f32(float& y, float x) { y = tilted(sqrt(double(flushed(x))), 0x1p-23); }
static inline void rsqrt_approx_ftz_f32(float& y, float x) { y = tilted(1.0 / sqrt(double(flushed(x))), 0x1p-22); }
static inline void tanh_approx_f32(float& y, float x) {
    y = tilted(tanh(double(x)), fabsf(x) < 9.0f ? 1e-5 : 0.0);
    if (fabsf(y) > 1.0f) y = copysignf(1.0f, y);
}
}  // namespace ptx

// Dynamic shared memory. Kernels and reductions each have a name for it.
alignas(1024) unsigned char smem[256 << 10];
#define reduction_memory smem
#define shared_memory smem
static inline uint64_t __cvta_generic_to_shared(const void* p) { return static_cast<const unsigned char*>(p) - smem; }

// Shared memory by addresses, asynchronous copies, which are done at once, and tensor cores: a lane leaves its registers where
// the others of its warp find them.
namespace ptx {
static inline unsigned char* at_shared(unsigned address, unsigned bytes) {
    if (address % bytes != 0 || address + bytes > sizeof smem) emulated::fail("an address in shared memory is out of place");
    return smem + address;
}
static inline void ld_shared_b32(unsigned& y, unsigned address) { std::memcpy(&y, at_shared(address, 4), 4); }
static inline void ld_shared_v4_b32(unsigned& x, unsigned& y, unsigned& z, unsigned& w, unsigned address) {
    for (unsigned* to : {&x, &y, &z, &w}) std::memcpy(to, at_shared(address, 4), 4), address += 4;
}
static inline void ld_shared_v2_b32(unsigned& x, unsigned& y, unsigned address) {
    std::memcpy(&x, at_shared(address, 8), 4), std::memcpy(&y, smem + address + 4, 4);
}
static inline void st_shared_b32(unsigned address, unsigned x) { std::memcpy(at_shared(address, 4), &x, 4); }
static inline void st_shared_v4_b32(unsigned address, unsigned x, unsigned y, unsigned z, unsigned w) {
    const unsigned words[4] = {x, y, z, w};
    std::memcpy(at_shared(address, 16), words, 16);
}
static inline void cp_async_ca_shared_global(unsigned to, const void* from, int bytes, int valid) {
    unsigned char* const place = at_shared(to, unsigned(bytes));
    std::memset(place, 0, size_t(bytes));
    if (valid > 0 && reinterpret_cast<uintptr_t>(from) % unsigned(bytes) != 0) emulated::fail("a copy begins out of place");
    if (valid > 0) std::memcpy(place, from, size_t(valid));
}
static inline void cp_async_cg_shared_global_L2__128B(unsigned to, const void* from, int valid) {
    cp_async_ca_shared_global(to, from, 16, valid);
}
static inline void cp_async_ca_shared_global(unsigned to, const void* from, int copies, int reads, int bytes) {
    if (copies != 0) cp_async_ca_shared_global(to, from, bytes, reads != 0 ? bytes : 0);
}
static inline void cp_async_cg_shared_global_L2__128B(unsigned to, const void* from, int copies, int reads) {
    cp_async_ca_shared_global(to, from, copies, reads, 16);
}
static inline void cp_async_ca_shared_global(unsigned to, const void* from, int bytes) {
    std::memcpy(at_shared(to, bytes), from, bytes);
}
static inline void cp_async_cg_shared_global_L2__128B(unsigned to, const void* from) { std::memcpy(at_shared(to, 16), from, 16); }
static inline void prefetch_global_L2(const void*) {}
template <class... T> static inline void nothing(T&...) {}
static inline void cp_async_commit_group() {}
static inline void cp_async_wait_group(int) {}

struct Registers { unsigned words[6]; };
static std::vector<Registers> registers(1024);
static inline const Registers* of_warp(const Registers& own) {
    registers[threadIdx.x] = own;
    emulated::meet(emulated::At::warp);
    return &registers[threadIdx.x / 32 * 32];
}
static inline void ldmatrix(unsigned (&r)[4], unsigned address, bool transposed) {
    const Registers* const warp = of_warp({{address}});
    const unsigned lane = threadIdx.x % 32;
    for (unsigned i = 0; i < 4; ++i)
        for (unsigned half = 0; half < 2; ++half) {
            const unsigned along = lane % 4 * 2 + half;
            const unsigned row = transposed ? along : lane / 4, column = transposed ? lane / 4 : along;
            std::memcpy(reinterpret_cast<char*>(&r[i]) + 2 * half, at_shared(warp[i * 8 + row].words[0], 16) + 2 * column, 2);
        }
    emulated::meet(emulated::At::warp);
}
static inline void ldmatrix_sync_aligned_m8n8_x4_shared_b16(unsigned& a, unsigned& b, unsigned& c, unsigned& d,
                                                            unsigned address) {
    unsigned r[4];
    ldmatrix(r, address, false);
    a = r[0], b = r[1], c = r[2], d = r[3];
}
static inline void ldmatrix_sync_aligned_m8n8_x4_trans_shared_b16(unsigned& a, unsigned& b, unsigned& c, unsigned& d,
                                                                  unsigned address) {
    unsigned r[4];
    ldmatrix(r, address, true);
    a = r[0], b = r[1], c = r[2], d = r[3];
}
// `PER` elements a word: d += a * b, with K twice four words.
template <int PER, class Widen> static void mma(float* d[4], const Registers& own, Widen widen) {
    const Registers* const warp = of_warp(own);
    const unsigned lane = threadIdx.x % 32;
    for (unsigned i = 0; i < 4; ++i) {
        const unsigned row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
        double sum = *d[i];
        for (unsigned word = 0; word < 8; ++word)
            for (unsigned e = 0; e < PER; ++e) {
                const unsigned a = warp[row % 8 * 4 + word % 4].words[row / 8 + word / 4 * 2];
                const unsigned b = warp[column * 4 + word % 4].words[4 + word / 4];
                sum += widen(a, e) * widen(b, e);
            }
        *d[i] = float(sum);
    }
    emulated::meet(emulated::At::warp);
}
#define MMA(NAME, PER, WIDEN)                                                                                                  \
    static inline void NAME(float& d0, float& d1, float& d2, float& d3, unsigned a0, unsigned a1, unsigned a2, unsigned a3,    \
                            unsigned b0, unsigned b1) {                                                                        \
        float* d[4] = {&d0, &d1, &d2, &d3};                                                                                    \
        mma<PER>(d, {{a0, a1, a2, a3, b0, b1}}, [](unsigned word, unsigned e) -> double { return WIDEN; });                    \
    }
MMA(mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32, 2, double(same_bits<_Float16>((unsigned short)(word >> 16 * e))))
MMA(mma_sync_aligned_m16n8k16_row_col_f32_bf16_bf16_f32, 2, double(__uint_as_float(word >> 16 * e << 16)))
MMA(mma_sync_aligned_m16n8k8_row_col_f32_tf32_tf32_f32, 1, double(__uint_as_float(word & ~0x1fffu)))
static inline void cvt_rna_tf32_f32(unsigned& y, float x) { y = (__float_as_uint(x) + 0x1000u) & ~0x1fffu; }
}  // namespace ptx

#define __fdividef(a, b) ((a) / (b))
#define __CUDA_ARCH__ 800
#define __device__
#define __global__
#define __shared__
#define __grid_constant__
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))
