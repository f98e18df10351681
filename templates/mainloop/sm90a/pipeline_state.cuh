// A position in the ring of stages, which continues from tile to tile.
struct PipelineState {
    u32 stage = 0, parity = 0;
    DEVICE void advance() {
        if (++stage == STAGES) {
            stage = 0;
            parity ^= 1;
        }
    }
    DEVICE void skip(u32 steps) {
        const u32 to = stage + steps;
        parity ^= to / STAGES & 1;
        stage = to % STAGES;
    }
};
