//! Tiles: which ones fit a problem, which one is chosen, and what a named one has to obey.

use super::*;

#[test]
fn a_narrow_output_lies_along_the_columns_of_hopper_tiles() {
    let gemm = Gemm::new(F16, TN, &bias_relu(F16));
    let transposed = |m, n| gemm.kernel_plan(Target::SM_90A, 132, Shape::new(m, n, 256)).unwrap().transposed;
    assert!(transposed(16, 4096) && transposed(128, 4096) && !transposed(4096, 16) && !transposed(136, 4096));
}

/// Few rows are planned both ways round, and the verdict says what the other way would take.
#[test]
fn few_rows_lie_as_is_estimated() {
    let gemm = Gemm::new(BF16, TN, &bias_relu(BF16));
    let plan = |m, n, k| gemm.kernel_plan(Target::SM_90A, 132, Shape::new(m, n, k)).unwrap();
    let (columns, rows) = (plan(48, 3584, 18944), plan(64, 18944, 3584));
    assert!(columns.transposed && !rows.transposed, "{}\n{}", columns.explain(), rows.explain());
    assert!(columns.explain().contains("the other way round: as it is the problem is estimated at"), "{}", columns.explain());
    assert!(rows.explain().contains("the other way round: transposed the problem is estimated at"), "{}", rows.explain());
    // Whichever side the few are on.
    let turned = plan(3584, 48, 18944);
    assert_eq!((turned.tile, turned.transposed), (columns.tile, false));
}

/// Tiles for few rows have no more columns than the rows there are, rounded up to what their blocks finish, and fill the
/// multiprocessors with one wave where they can.
#[test]
fn tiles_are_made_for_few_rows() {
    let gemm = Gemm::new(BF16, TN, &recipes::identity(BF16).unwrap());
    for rows in [1, 8, 20, 48, 61, 96, 130, 192, 256] {
        for [features, k] in [[4096, 14336], [18944, 3584], [6144, 4096], [3584, 18944]] {
            let plan = gemm.kernel_plan(Target::SM_90A, 132, Shape::new(rows, features, k)).unwrap();
            let Mainloop::Sm90a = plan.mainloop() else { continue };
            let (tile, split) = (plan.product().tile, plan.split.is_some());
            let (width, least) =
                if plan.product().transposed { (tile.multiplied_columns(), 8 * tile.parts()) } else { (tile.bm, 64) };
            assert!(split || width < rows.next_multiple_of(least) + 32.max(least), "{rows} x {features} x {k}: {tile}");
            let grid = plan.product().grid(Shape::new(rows, features, k)).unwrap()[0];
            assert!(split || (64..=132).contains(&grid), "{rows} x {features} x {k}: {grid} blocks of {tile}");
        }
    }
}

/// Copies of unaligned operands have rows of whole lines of the cache, and so much scratch memory.
#[test]
fn copies_have_rows_of_whole_lines() {
    let line = |elements: usize| elements.next_multiple_of(64) * 2;
    let (m, n, k) = (300, 205, 101);
    for batch in [1, 3] {
        for layout in Layout::ALL {
            let gemm = Gemm::new(F16, layout, &identity_of(F16)).mainloop(Mainloop::Sm90a);
            let plan =
                gemm.kernel_plan(Target::SM_90A, 132, Problem::new(m, n, k).batched(batch).align("a", 2).align("b", 2)).unwrap();
            assert_eq!((plan.transposed, plan.repack.map(|copies| copies.operands)), (false, Some([true; 2])), "{layout}");
            let a = if layout.a() == Order::RowMajor { m * line(k) } else { k * line(m) };
            let b = if layout.b() == Order::RowMajor { k * line(n) } else { n * line(k) };
            assert_eq!(plan.scratch, batch * (a + b), "{layout}");
        }
    }
    // One of them alone.
    let gemm = Gemm::new(F16, TN, &identity_of(F16)).mainloop(Mainloop::Sm90a);
    for (unaligned, scratch) in [("a", 512 * line(512)), ("b", 256 * line(512))] {
        let problem = Problem::new(512, 256, 512).align(unaligned, 2);
        let plan = gemm.kernel_plan(Target::SM_90A, 132, problem).unwrap();
        assert_eq!((plan.transposed, plan.scratch), (false, scratch), "{unaligned}");
    }
}

#[test]
fn strips_follow_what_is_aligned() {
    let strip = |problem: Problem| Gemm::new(F16, TN, &bias_relu(F16)).kernel_plan(Target::SM_80, 132, problem).unwrap().strip;
    assert_eq!(strip(Problem::new(256, 256, 64)), 8);
    assert_eq!(strip(Problem::new(256, 252, 64)), 4);
    assert_eq!(strip(Problem::new(256, 255, 64)), 2);
    assert_eq!(strip(Problem::new(256, 256, 64).ld("d", 258)), 2);
    assert_eq!(strip(Problem::new(256, 256, 64).align("d", 8)), 4);
}

#[test]
fn a_grid_has_a_block_for_every_tile_and_batch_entry() {
    let gemm = Gemm::new(F16, TN, &bias_relu(F16));
    for batch in [1, 2, 65_535, 65_536, 200_000, 5_000_000] {
        let shape = Shape::new(300, 500, 64).batched(batch);
        let persistent = gemm.kernel_plan(Target::SM_90A, 132, shape).unwrap().grid(shape).unwrap();
        assert!(persistent[0] <= 132 && persistent[1..] == [1, 1] && (batch < 132 || persistent[0] == 132));
        let plan = gemm.kernel_plan(Target::SM_80, 132, shape).unwrap();
        let [tiles, entries, slices] = plan.grid(shape).unwrap();
        assert_eq!(tiles as usize, 300usize.div_ceil(plan.tile.bm) * 500usize.div_ceil(plan.tile.bn));
        assert!(entries <= 65_535 && slices <= 65_535 && entries as usize * slices as usize >= batch);
    }
    let plan = gemm.kernel_plan(Target::SM_90A, 132, Shape::new(64, 64, 64)).unwrap();
    assert_eq!(plan.grid(Shape::new(1 << 31, 1 << 31, 1)), None);
}

/// A named tile is always taken: no estimate rejects it, neither of the code's length nor of a split of K.
#[test]
fn a_tile_that_is_asked_for_is_taken_as_it_is() {
    let identity = recipes::identity(F16).unwrap();
    let heavy = Epilogue::build(|e| e.store("d", (0..60).fold(e.acc(), |z, i| (z + i as f32).sin().pow(z).tanh()), F32)).unwrap();
    let kernel = |epilogue: &Epilogue, tile: Option<Tile>, shape: Shape| {
        let gemm = Gemm::new(F16, TN, epilogue);
        tile.map_or(gemm.clone(), |tile| gemm.tile(tile)).kernel_plan(Target::SM_90A, 132, shape).unwrap()
    };
    let square = Shape::new(4096, 4096, 4096);
    let large = kernel(&identity, None, square).tile;
    let chosen = kernel(&heavy, None, square);
    assert!(chosen.explain().contains("takes long to compile"), "{}", chosen.explain());
    let candidates: Vec<Tile> = chosen.choice.candidates().map(|(tile, _)| tile).collect();
    assert!(!candidates.iter().any(|tile| (tile.bm, tile.bn) == (large.bm, large.bn)), "{}", chosen.explain());
    let named = kernel(&heavy, Some(large), square).tile;
    assert_eq!((named.bm, named.bn), (large.bm, large.bn));

    for tile in kernel(&identity, None, square).choice.candidates().map(|(tile, _)| tile) {
        assert_eq!(kernel(&identity, None, square).choice.named(&tile.to_string()), Ok(tile), "a tile has one name");
    }
    let near = large.to_string().replace("stages", "stage");
    let error = kernel(&identity, None, square).choice.named(&near).unwrap_err().to_string();
    let expected = format!("no tile `{near}` fits this problem; did you mean `{large}`?; `explain()` lists those that do");
    assert_eq!(error, expected);

    let long = Shape::new(128, 128, 65_536);
    let split = kernel(&identity, None, long);
    assert!(split.split.is_some());
    assert!(kernel(&identity, Some(split.product().tile), long).split.is_none());
}

/// Nobody waits for a compiler unasked: no candidate has more code than a compiler takes in reasonable time.
#[test]
fn candidates_have_code_of_limited_length() {
    let shape = Shape::new(4096, 4096, 4096);
    let mut longest = 0;
    for steps in (2..40).step_by(4) {
        let epilogue = Epilogue::build(|e| e.store("d", (0..steps).fold(e.acc(), |z, i| (z + i as f32).sin().tanh()), F32));
        let plan = Gemm::new(F16, TN, &epilogue.unwrap()).kernel_plan(Target::SM_90A, 132, shape).unwrap();
        for (tile, raster) in plan.choice.candidates() {
            longest = longest.max(plan.with_tile(tile, raster, "").unwrap().code.instructions);
        }
    }
    assert!((6000..=9000).contains(&longest), "{longest}");
}

/// A tuner's candidates: the chosen tile first, none twice, and each of them can be requested.
#[test]
fn every_candidate_can_be_asked_for() {
    let gemm = Gemm::new(F16, TN, &bias_relu(F16));
    for target in [Target::SM_80, Target::SM_90A] {
        let plan = |gemm: &Gemm| gemm.kernel_plan(target, 132, Shape::new(4096, 4096, 4096)).expect("a plan");
        let chosen = plan(&gemm);
        let candidates: Vec<_> = chosen.choice.candidates().map(|(tile, _)| tile).collect();
        assert!(candidates.len() > 3 && candidates[0] == chosen.tile);
        for (i, tile) in candidates.iter().enumerate() {
            assert!(!candidates[..i].contains(tile), "{tile} twice");
            assert_eq!(plan(&gemm.clone().tile(*tile)).tile, *tile);
        }
    }
}

#[test]
fn a_tile_whose_warps_are_not_those_of_its_block_is_refused() {
    let shape = TileShape::Sm80 { bk: 64, stages: 3, warps_m: 2, warps_n: 2 };
    let tile = |threads| Tile { bm: 64, bn: 64, shape, threads, min_blocks: 1 };
    let plan = |tile| Gemm::new(F16, TN, &bias_relu(F16)).tile(tile).kernel_plan(Target::SM_80, 108, Shape::new(256, 256, 256));
    assert!(plan(tile(128)).is_ok());
    let error = plan(tile(256)).unwrap_err().to_string();
    assert!(error.contains("its warps are those of the block"), "{error}");
}

/// Threads that copy more rows of A at once than a tile has would write behind its stage.
#[test]
fn a_tile_with_fewer_rows_than_its_threads_copy_is_refused() {
    let plan = |bm| {
        let shape = TileShape::Sm80 { bk: 64, stages: 3, warps_m: 1, warps_n: 8 };
        let tile = Tile { bm, bn: 256, shape, threads: 256, min_blocks: 1 };
        Gemm::new(F16, TN, &bias_relu(F16)).tile(tile).kernel_plan(Target::SM_80, 108, Shape::new(256, 256, 256))
    };
    assert!(plan(32).is_ok());
    let error = plan(16).unwrap_err().to_string();
    assert!(error.contains("copies cover a stage evenly"), "{error}");
}

#[test]
fn a_tile_of_another_mainloop_than_the_one_asked_for_is_refused() {
    let epilogue = recipes::identity(F16).unwrap();
    let shape = Shape::new(64, 64, 64);
    let tile = Gemm::pointwise(F16, Order::RowMajor, &epilogue).kernel_plan(Target::SM_80, 108, shape).unwrap().tile;
    let gemm = Gemm::new(F16, TN, &epilogue).mainloop(Mainloop::Simt).tile(tile);
    let error = gemm.kernel_plan(Target::SM_80, 108, shape).unwrap_err().to_string();
    assert!(error.contains("is a tile of pointwise, and simt was asked for"), "{error}");
}

/// Narrow tiles are for few columns, for matrices across the strips, and for windows whose taps threads share.
#[test]
fn pointwise_tiles_are_narrow_where_that_is_faster() {
    let width = |gemm: Gemm, shape: Shape| gemm.kernel_plan(Target::SM_90A, 132, shape).unwrap().tile.bn;
    let identity = recipes::identity(F16).unwrap();
    let turned = Epilogue::build(|e| e.store("d", e.acc(), F16.column_major())).unwrap();
    let of = |epilogue: &Epilogue, n: usize| width(Gemm::pointwise(F16, Order::RowMajor, epilogue), Shape::matrix(8192, n));
    assert!(of(&identity, 4096) > 64 && of(&identity, 65) > 64);
    assert!(of(&identity, 64) <= 64 && of(&turned, 4096) <= 64);
    let pooled = |taps: usize| {
        let pooling = Pooling::new(PoolKind::Max, ConvShape::windows(8, [32, 32, 512], [taps, taps])).unwrap();
        width(Gemm::pool(F16, pooling, &identity), pooling.shape())
    };
    assert!(pooled(4) > 64 && pooled(5) <= 64);
    // A thread that has no row shares the taps of the others'. So the mean of a few large images is in many blocks.
    for (images, blocks) in [(1, 32), (32, 256), (256, 2048)] {
        let pooling = Pooling::new(PoolKind::Average, ConvShape::windows(images, [7, 7, 2048], [7, 7])).unwrap();
        let gemm = Gemm::pool(F16, pooling, &identity);
        let plan = gemm.kernel_plan(Target::SM_90A, 132, pooling.shape()).unwrap();
        assert_eq!(images.div_ceil(plan.tile.bm) * 2048usize.div_ceil(plan.tile.bn), blocks, "{images}: {}", plan.tile);
    }
    let small = Pooling::new(PoolKind::Max, ConvShape::windows(8, [32, 32, 512], [4, 4])).unwrap();
    let tile = Tile { bm: 4, bn: 64, shape: TileShape::Pointwise, threads: 128, min_blocks: 1 };
    let short = Gemm::pool(F16, small, &identity).tile(tile).kernel_plan(Target::SM_90A, 132, small.shape());
    assert!(short.unwrap_err().to_string().contains("threads visit whole rows"));
}

/// The loads of a tall tile are in flight together, and take registers. Vectors are loaded once for all rows.
#[test]
fn tall_tiles_leave_registers_for_their_loads() {
    let blocks = |matrices: usize, vectors: usize| {
        let sums = Epilogue::build(|e| {
            let z = (0..matrices).fold(e.acc(), |z, i| z + e.load(&format!("x{i}"), F32));
            let z = (0..vectors).fold(z, |z, i| z + e.load(&format!("v{i}"), F32.over(L)));
            e.reduce("sums", z, Monoid::Sum, F32.over(N));
        });
        let gemm = Gemm::pointwise(F32, Order::RowMajor, &sums.unwrap());
        let tile = gemm.kernel_plan(Target::SM_90A, 132, Shape::matrix(65_536, 1024)).unwrap().tile;
        // 32 elements of each matrix are in flight.
        assert!(tile.bm > 64 && tile.min_blocks * tile.threads * (32 + 32 * (1 + matrices)) <= 65_536, "{tile}");
        tile.min_blocks * tile.threads
    };
    assert!(blocks(0, 0) > blocks(1, 0) && blocks(1, 0) > blocks(3, 0));
    assert_eq!(blocks(1, 2), blocks(1, 0));
}

/// Registers that run out are taken from other blocks first, and from accumulators last.
#[test]
fn registers_that_run_out_come_from_blocks_first() {
    let shape = Shape::new(1024, 1024, 1024);
    let mut plan = Gemm::new(F16, TN, &bias_relu(F16)).kernel_plan(Target::SM_80, 108, shape).unwrap();
    let first = plan.tile;
    assert!(first.min_blocks > 1, "{}", plan.explain());
    for min_blocks in (1..first.min_blocks).rev() {
        assert!(plan.relax());
        assert_eq!(plan.tile, Tile { min_blocks, ..first });
    }
    let accumulators = |tile: &Tile| tile.bm * tile.bn / tile.threads;
    assert!(plan.relax() && accumulators(&plan.tile) < accumulators(&first), "{}", plan.explain());
    for _ in 0..100 {
        if !plan.relax() {
            return;
        }
    }
    panic!("it relaxes without end");
}
