// Visits the tiles of a Hopper kernel as its blocks would. For each launch that standard input describes, it prints a
// line with the fault or `ok`. A description is m, n, batch, raster, edge_row, edge_column, blocks.
int main() {
    long long m, n, batch, raster, edge_row, edge_column, blocks;
    while (std::scanf("%lld %lld %lld %lld %lld %lld %lld", &m, &n, &batch, &raster, &edge_row, &edge_column, &blocks) == 7) {
        Params p{};
        p.m = int(m), p.n = int(n), p.batch = int(batch), p.raster = int(raster);
        set_last(p, int(edge_row), int(edge_column));
        const u32 rows = u32((m + BM - 1) / BM), columns = u32((n + BN - 1) / BN);
        std::vector<int> visits(size_t(rows) * columns * batch);
        std::vector<std::vector<TileOrigin>> went(blocks);
        const char* fault = nullptr;
        for (u32 block = 0; block < blocks; ++block) {
            emulated::block = block;
            emulated::blocks = u32(blocks);
            // Ping-pong consumers take every second tile of their block, and the producer takes all.
            std::vector<std::vector<TileOrigin>> roles(PING_PONG ? 3 : 1);
            for (u32 role = 0; role < roles.size(); ++role) {
                Tiles tiles;
                if (role > 0) {
                    tiles.next += (role - 1) * (u32(blocks) / CLUSTER);
                    tiles.turns = 2;
                }
                while (tiles.advance(p)) roles[role].push_back(tiles.tile);
            }
            went[block] = roles[0];
            for (u32 role = 1; role < roles.size(); ++role)
                for (size_t i = 0; i < roles[role].size(); ++i) {
                    const size_t at = 2 * i + role - 1;
                    const TileOrigin tile = roles[role][i];
                    if (at >= roles[0].size() || roles[0][at].row != tile.row || roles[0][at].column != tile.column)
                        fault = "a consumer goes elsewhere than the producer";
                }
            if (PING_PONG && roles[1].size() + roles[2].size() != roles[0].size()) fault = "consumers leave out a tile";
            for (const TileOrigin& tile : roles[0]) {
                if (tile.row < 0 || tile.column < 0 || tile.batch < 0 || tile.batch >= batch)
                    fault = "a tile lies before the output";
                const bool beyond = tile.row + BM >= m + 16 || tile.column + BN >= n + 16;
                if (SHIFTED_EDGES && m >= BM && n >= BN * PARTS_OF_K && beyond) fault = "a tile reaches beyond the output";
                // The second tile of a cluster may be beyond the output. It writes nothing then.
                if (tile.row >= m || tile.column >= n) {
                    if (CLUSTER == 1) fault = "a tile lies beyond the output";
                    continue;
                }
                ++visits[(size_t(tile.batch) * rows + (tile.row + BM - 1) / BM) * columns + (tile.column + BN - 1) / BN];
            }
        }
        for (int v : visits)
            if (v == 0) fault = "a tile is left out";
            else if (v > 1 && CLUSTER == 1) fault = "a tile is computed twice";
        // Blocks of a cluster are neighbours, and take as many tiles.
        for (u32 block = 0; block + 1 < blocks && CLUSTER > 1; ++block) {
            if (block % CLUSTER + 1 == CLUSTER) continue;
            if (went[block].size() != went[block + 1].size()) fault = "blocks of a cluster part";
            else for (size_t i = 0; i < went[block].size(); ++i) {
                const TileOrigin a = went[block][i], b = went[block + 1][i];
                if ((CLUSTER_M == 2 ? a.column != b.column : a.row != b.row) || a.batch != b.batch)
                    fault = "blocks of a cluster share nothing";
                if (PARTS_OF_K > 1 && b.column != a.column + BN) fault = "blocks that share K leave columns out";
            }
        }
        // A group has the raster's number of rows or columns: its first tiles are side by side.
        const u32 down = Tiles::rows_of(p), across = Tiles::columns_of(p), lines = p.raster > 0 ? down : across;
        for (u32 i = 0; i < u32(abs(p.raster)) && i < lines; ++i) {
            u32 row, column;
            place_tile(p, i, down, across, row, column);
            if ((p.raster > 0 ? row : column) != i || (p.raster > 0 ? column : row) != 0)
                fault = "a group is not as high as the raster";
        }
        std::printf("%s\n", fault ? fault : "ok");
    }
    // A pipeline state: skipping equals so many steps, and the parity changes with every lap.
    for (u32 laps = 0; laps < 5 * STAGES; ++laps)
        for (u32 steps = 0; steps < 5 * STAGES; ++steps) {
            PipelineState one, other;
            for (u32 i = 0; i < laps; ++i) one.advance(), other.advance();
            for (u32 i = 0; i < steps; ++i) one.advance();
            other.skip(steps);
            const u32 stage = (laps + steps) % STAGES, parity = (laps + steps) / STAGES % 2;
            if (one.stage != stage || other.stage != stage || one.parity != parity || other.parity != parity) {
                std::printf("a position is lost after %u and %u steps\n", laps, steps);
                return 0;
            }
        }
    std::printf("positions ok\n");
    return 0;
}
