// Launches the kernel above it twice, as standard input describes, and writes every buffer to standard output after each
// launch. The second launch runs the blocks in the opposite order. Its last buffer, the workspace, has the contents that
// the first launch left. The others have their original contents.
namespace emulated {

static uint64_t number() {
    uint64_t x;
    if (std::fread(&x, sizeof x, 1, stdin) != 1) fail("the input ends early");
    return x;
}
// Memory that ends at unmapped memory, up to the alignment to 16 bytes.
static unsigned char* guarded(size_t bytes) {
    const size_t page = 4096, whole = (bytes + page - 1) / page * page;
    auto* const all = static_cast<unsigned char*>(mmap(nullptr, whole + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    if (whole > 0) mprotect(all + page, whole, PROT_READ | PROT_WRITE);
    std::memset(all + page, 0xff, whole);
    return all + page + (whole - (bytes + 15) / 16 * 16);
}

static Params params;
static void launch() { postlude_kernel(params); }

}  // namespace emulated

int main() {
    using namespace emulated;
    const uint64_t size = number(), grid[3] = {number(), number(), number()}, shared = number(), count = number();
    if (size != (sizeof(Params) + 7) / 8 * 8) fail("the parameter block is not as large as the plan has it");
    std::vector<size_t> bytes(count);
    for (size_t& b : bytes) b = number();
    struct Address { size_t offset, buffer, at; };
    std::vector<Address> addresses(number());
    for (Address& a : addresses) a = {number(), number(), number()};
    std::vector<unsigned char> block(size), outputs;
    if (std::fread(block.data(), 1, size, stdin) != size) fail("the input ends early");
    std::vector<unsigned char*> buffers;
    for (size_t b : bytes) {
        buffers.push_back(guarded(b));
        if (std::fread(buffers.back(), 1, b, stdin) != b) fail("the input ends early");
    }
    for (const Address& a : addresses) {
        const unsigned char* const address = buffers[a.buffer] + a.at;
        std::memcpy(block.data() + a.offset, &address, sizeof address);
    }
    std::memcpy(&params, block.data(), sizeof params);
    body = launch;
    gridDim = {unsigned(grid[0]), unsigned(grid[1]), unsigned(grid[2])};
    const uint64_t blocks = grid[0] * grid[1] * grid[2];
    std::vector<std::vector<unsigned char>> before;
    for (size_t i = 0; i < count; ++i) before.emplace_back(buffers[i], buffers[i] + bytes[i]);
    for (int turn = 0; turn < 2; ++turn) {
        for (size_t i = 0; i + 1 < count; ++i) std::copy(before[i].begin(), before[i].end(), buffers[i]);
        for (uint64_t i = 0; i < blocks; ++i) {
            const uint64_t number = turn == 0 ? i : blocks - 1 - i;
            blockIdx = {unsigned(number % grid[0]), unsigned(number / grid[0] % grid[1]), unsigned(number / grid[0] / grid[1])};
            std::memset(smem, 0xff, sizeof smem);
            run_block(THREADS, (number + turn) % 2 == 1);
            for (size_t at = shared; at < sizeof smem; ++at)
                if (smem[at] != 0xff) fail("shared memory is written behind its end");
        }
        for (size_t i = 0; i < count; ++i) {
            for (size_t at = bytes[i]; at < (bytes[i] + 15) / 16 * 16; ++at)
                if (buffers[i][at] != 0xff) fail("a buffer is written behind its end");
            std::fwrite(buffers[i], 1, bytes[i], stdout);
        }
    }
    return 0;
}
