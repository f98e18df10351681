// The declarations that the text of lockstep needs, and a kernel with nothing but lockstep.
using u32 = unsigned;
#define DEVICE __device__ __forceinline__
constexpr int CLUSTER = 1;
struct Params {
    u32 rows, columns, batch;
    u32* progress;
};
DEVICE u32 launched_blocks() { return gridDim.x; }
struct Tiles {
    static DEVICE u32 rows_of(const Params& p) { return p.rows; }
    static DEVICE u32 columns_of(const Params& p) { return p.columns; }
};
STEP
// One thread of every block. `early` counts the tiles that a block began although other blocks had not arrived and were
// not given up.
extern "C" __global__ void steps(u32 rows, u32 columns, u32 batch, u32* progress, u32* early) {
    const Params p{rows, columns, batch, progress};
    const u32 all = rows * columns * batch;
    Step step;
    for (u32 tile = blockIdx.x, round = 1; tile < all; tile += gridDim.x, ++round) {
        step.take(p);
        const u32 due = round * gridDim.x < all ? round * gridDim.x : all, now = atomicAdd(progress, 0);
        if (step.together && now < due) atomicAdd(early, 1);
    }
    step.leave(p);
}
