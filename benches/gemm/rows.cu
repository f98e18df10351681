// One pass over a row-major matrix in place, as a peer for fused epilogues: sixteen bytes an access, four in flight a thread.
//
// The text is compiled with ELEMENT_BF16 and FUNCTION: 0 sigmoid, 1 tanh, 2 sigmoid in rows before `boundary` and tanh below,
// 3 silu times a matrix and a scale of each row.

typedef unsigned int u32;

static __device__ __forceinline__ float2 unpack(u32 pair) {
#if ELEMENT_BF16
    return make_float2(__uint_as_float(pair << 16), __uint_as_float(pair & 0xffff0000u));
#else
    float2 out;
    asm("{ .reg .b16 l, h; mov.b32 {l, h}, %2; cvt.f32.f16 %0, l; cvt.f32.f16 %1, h; }" : "=f"(out.x), "=f"(out.y) : "r"(pair));
    return out;
#endif
}

static __device__ __forceinline__ u32 pack(float2 x) {
    u32 pair;
#if ELEMENT_BF16
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(x.y), "f"(x.x));
#else
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(x.y), "f"(x.x));
#endif
    return pair;
}

static __device__ __forceinline__ float tanh_fast(float x) {
    float y;
    asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

static __device__ __forceinline__ float sigmoid(float x) {
    return __fmaf_rn(tanh_fast(0.5f * x), 0.5f, 0.5f);
}

template <int F>
static __device__ __forceinline__ uint4 apply(uint4 v, uint4 c, float scale) {
    u32* words = &v.x;
    const u32* factors = &c.x;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        float2 x = unpack(words[i]);
        if (F == 0) x = make_float2(sigmoid(x.x), sigmoid(x.y));
        if (F == 1) x = make_float2(tanh_fast(x.x), tanh_fast(x.y));
        if (F == 3) {
            float2 f = unpack(factors[i]);
            x = make_float2(x.x * sigmoid(x.x) * f.x * scale, x.y * sigmoid(x.y) * f.y * scale);
        }
        words[i] = pack(x);
    }
    return v;
}

// `vectors` of eight elements, `per_row` of them in a row.
extern "C" __global__ void __launch_bounds__(256)
rows(uint4* d, const uint4* c, const float* row_scale, u32 vectors, u32 per_row, u32 boundary) {
    const u32 first = blockIdx.x * 1024u + threadIdx.x;
    uint4 values[4], factors[4] = {};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const u32 at = first + 256u * i;
        if (at < vectors) {
            values[i] = d[at];
            if (FUNCTION == 3) factors[i] = c[at];
        }
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const u32 at = first + 256u * i;
        if (at >= vectors) continue;
        const u32 row = FUNCTION >= 2 ? at / per_row : 0;
        if (FUNCTION == 2) {
            d[at] = row < boundary ? apply<0>(values[i], factors[i], 1.f) : apply<1>(values[i], factors[i], 1.f);
        } else {
            d[at] = apply<FUNCTION>(values[i], factors[i], FUNCTION == 3 ? row_scale[row] : 1.f);
        }
    }
}
