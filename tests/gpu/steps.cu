// What the text of blocks in step stands on, and a kernel of nothing but steps.
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
// Of every block one thread. `early` counts the tiles that a block went on with although others had not come, and did
// not give them up.
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
