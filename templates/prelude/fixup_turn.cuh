        // Each thread has N elements, of 16 bytes if these divide the block. SHARERS lanes of a warp share them, each with a
        // part of the slices.
        constexpr int WORDS = sizeof(typename M::State) / 4, SIZE = B::ELEMENTS * WORDS;
        constexpr int N = WORDS > 2 ? 1 : SIZE % 4 == 0 ? 4 / WORDS : SIZE % 2 == 0 ? 2 / WORDS : 1;
        constexpr int SHARERS = sharers_of(B::ELEMENTS / N), LANES = 32 / SHARERS;
