//! The operands that Hopper's kernels stage in shared memory, by their plans.

use postlude::build::recipes;
use postlude::compat::cublaslt::{self, Formats};
use postlude::plan::{Problem, Schedule, SharedRegion, Tile, TileShape};
use postlude::prelude::*;
use postlude::target::Target;
use postlude::{Builder, Gemm};

/// Halves of a tile are lines of any length, which bits, single elements and sums folded by halves cannot have.
#[test]
fn tiles_pass_through_shared_memory_in_halves_where_everything_allows_it() {
    let wide = Shape::new(1536, 1536, 1536);
    let staged = |epilogue: &Epilogue, columns: usize, shape: Shape| {
        let gemm = Gemm::new(F16, TN, epilogue);
        let chosen = gemm.kernel_plan(Target::SM_90A, 132, wide).unwrap();
        let tile = chosen
            .choice
            .candidates()
            .map(|(tile, _)| tile)
            .find(|tile| (tile.bm, tile.bn) == (128, columns) && tile.cluster() == 1);
        let staging = gemm.tile(tile.unwrap()).kernel_plan(Target::SM_90A, 132, shape).unwrap().staging.unwrap();
        assert_eq!(staging.chunk, 4 * staging.strip);
        staging.chunk
    };
    let residual = Epilogue::build(|e| e.store("d", e.acc() + e.load("c", F16), F16)).unwrap();
    assert_eq!([144, 112, 80].map(|columns| staged(&residual, columns, wide)), [72, 56, 40]);
    assert_eq!([96, 64].map(|columns| staged(&residual, columns, wide)), [32, 64]);
    assert_eq!(staged(&residual, 144, Shape::new(1536, 1535, 1536)), 16, "lines end inside of a piece of 16 bytes");
    let masked = Epilogue::build(|e| e.store("d", e.load("mask", Bool).select(e.acc(), -e.acc()), F16)).unwrap();
    let summed = Epilogue::build(|e| {
        e.store("d", e.acc(), F16);
        e.reduce("sums", e.acc(), Monoid::Sum, F32.over(N));
    })
    .unwrap();
    assert_eq!([masked, summed].map(|epilogue| staged(&epilogue, 144, wide)), [16, 16]);
}

/// Consumers that share a tile end together: what little an epilogue computes then is seen, but not the way out.
#[test]
fn results_leave_under_the_next_products_where_little_is_computed() {
    let wide = Shape::new(4096, 4096, 4096);
    let build = |f: fn(&Builder)| Epilogue::build(f).unwrap();
    let identity = build(|e| e.store("d", e.acc(), F16));
    let tiles: Vec<Tile> = {
        let plan = Gemm::new(F16, TN, &identity).kernel_plan(Target::SM_90A, 132, wide).unwrap();
        plan.choice.candidates().map(|(tile, _)| tile).collect()
    };
    let delayed_store = |epilogue: &Epilogue, problem: Problem| {
        let delayed_store = tiles.iter().filter(|tile| {
            let plan = Gemm::new(F16, TN, epilogue).tile(**tile).kernel_plan(Target::SM_90A, 132, problem.clone());
            plan.is_ok_and(|plan| {
                let staging = plan.staging.as_ref().unwrap();
                assert_eq!(plan.explain().contains("under the next tile's products"), staging.delayed_store);
                assert_eq!(plan.source().unwrap().text().contains("send_kept"), staging.delayed_store);
                staging.delayed_store
            })
        });
        delayed_store.map(|tile| (tile.bm, tile.bn)).collect::<Vec<_>>()
    };
    let mut all = delayed_store(&identity, wide.into());
    all.sort_unstable();
    assert_eq!(all, [(128, 224), (128, 256), (256, 128)].map(|tile| [tile; 2]).concat(), "alone and in pairs");
    let scaled = build(|e| e.store("d", e.acc() * e.scalar("alpha", F32), BF16));
    let turned = build(|e| e.store("d", e.acc(), F16.column_major()));
    assert_eq!([scaled, turned].map(|epilogue| delayed_store(&epilogue, wide.into()).len()), [6, 6]);
    for epilogue in [
        recipes::bias_activation(F16, F16, |z| z.relu()).unwrap(),
        build(|e| e.store("d", e.acc() + e.load("c", F16), F16)),
        build(|e| e.store("d", e.acc(), F32)),
        build(|e| {
            e.store("d", e.acc(), F16);
            e.store("t", e.acc(), BF16);
        }),
        build(|e| {
            e.store("d", e.acc(), F16);
            e.reduce("sums", e.acc(), Monoid::Sum, F32.over(N));
        }),
    ] {
        assert!(delayed_store(&epilogue, wide.into()).is_empty(), "{:?}", epilogue.checked().graph());
    }
    assert!(delayed_store(&identity, Problem::new(4096, 4095, 4096)).is_empty(), "lines end inside of a piece of 16 bytes");
    // At full clock ping-pong tiles are as fast; where power limits, the larger tile is faster.
    let chosen = Gemm::new(F16, TN, &identity).kernel_plan(Target::SM_90A, 132, wide).unwrap();
    assert!(chosen.staging.unwrap().delayed_store, "{}", chosen.tile);
}

/// Lanes move what nothing covers: no tensor map, no fence, no wait. Beside products, many accumulators or matrices
/// that are read they would not pay.
#[test]
fn lanes_move_what_small_tiles_write() {
    let small = Shape::new(1024, 1024, 1024);
    let direct_store = |epilogue: &Epilogue, problem: Problem| {
        let plan = Gemm::new(F16, TN, epilogue).kernel_plan(Target::SM_90A, 132, problem).unwrap();
        let staging = plan.staging.as_ref().unwrap();
        let source = plan.source().unwrap();
        assert_eq!(plan.explain().contains("moved by their lanes"), staging.direct_store);
        assert_eq!(source.text().contains("move_pieces(p, shares"), staging.direct_store);
        assert!(
            !staging.direct_store || (staging.maps.len() == 2 && !source.text().contains("drain_chunk")),
            "{}",
            plan.explain()
        );
        staging.direct_store
    };
    let identity = |dtype| recipes::identity(dtype).unwrap();
    let relu = recipes::bias_activation(F16, F16, |z| z.relu()).unwrap();
    let turned = Epilogue::build(|e| e.store("d", e.acc(), F16.column_major())).unwrap();
    let summed = cublaslt::relu_aux_bias(Formats::of(F16)).unwrap();
    for epilogue in [identity(F16), identity(F32), relu.clone(), turned, summed] {
        assert!(direct_store(&epilogue, small.into()), "{:?}", epilogue.checked().graph());
    }
    let halves = Shape::new(1536, 1536, 1536);
    assert!(direct_store(&relu, halves.into()), "lines of 72");
    let residual = recipes::residual(F16, F16, |z| z.relu()).unwrap();
    assert!(!direct_store(&residual, small.into()), "it reads a matrix");
    assert!(!direct_store(&relu, Shape::new(4096, 4096, 4096).into()), "consumers take turns");
    assert!(!direct_store(&relu, Problem::new(1024, 1020, 1024).ld("d", 1024)), "lines end inside of a piece");
    assert!(!direct_store(&relu, Shape::new(16, 4096, 4096).into()), "lines along the rows of tiles, which several warps share");
    let signs = Epilogue::build(|e| e.store("d", e.acc().gt(e.constant(0.0)), Bool)).unwrap();
    let of_columns = |columns: usize| {
        let gemm = Gemm::new(F16, TN, &signs);
        let chosen = gemm.kernel_plan(Target::SM_90A, 132, small).unwrap();
        let tile = chosen.choice.candidates().map(|(tile, _)| tile).find(|tile| (tile.bm, tile.bn) == (64, columns)).unwrap();
        gemm.tile(tile).kernel_plan(Target::SM_90A, 132, small).unwrap().staging.unwrap().direct_store
    };
    assert_eq!([8, 16, 64].map(of_columns), [false, true, true], "eight bytes are no piece");
}

/// Loads of an epilogue's matrices run ahead by a tile's chunks where products do not hide it, and stages of operands make room.
#[test]
fn matrices_come_ahead_of_epilogues_that_nothing_hides() {
    let residual = Gemm::new(F16, TN, &recipes::residual(F16, F16, |z| z.relu()).unwrap());
    let rings = |k: usize| {
        let shape = Shape::new(12544, 2048, k);
        let plan = residual.kernel_plan(Target::SM_90A, 132, shape).unwrap();
        let takes_turns = |tile: &Tile| matches!(tile.shape, TileShape::Sm90a { schedule: Schedule::PingPong, .. });
        let is_square = |tile: &Tile| (tile.bm, tile.bn, tile.cluster()) == (128, 128, 1) && takes_turns(tile);
        let tile = plan.choice.candidates().map(|(tile, _)| tile).find(is_square).unwrap();
        let TileShape::Sm90a { stages, .. } = tile.shape else { panic!("{tile}") };
        let staging = residual.clone().tile(tile).kernel_plan(Target::SM_90A, 132, shape).unwrap().staging.unwrap();
        [stages, staging.chunk_rings, staging.load_stages]
    };
    assert_eq!(rings(512), [4, 2, 4]);
    assert_eq!(rings(4096), [6, 1, 2], "products hide it");
}

/// Each consumer keeps a tile's masks to the last bit, behind what else is staged, and copies them out when the tile is done.
#[test]
fn masks_that_are_written_gather_until_a_tile_is_done() {
    let shape = Shape::new(8192, 8192, 1024);
    for masks in 0..3 {
        let epilogue = Epilogue::build(|e| {
            e.store("d", e.acc(), F16);
            for (name, order) in ["rows", "columns"].into_iter().zip([Bits8.into(), Bits8.column_major()]).take(masks) {
                e.store(name, e.acc().gt(0.0), order);
            }
        });
        let gemm = Gemm::new(F16, TN, &epilogue.unwrap());
        for (tile, _) in gemm.kernel_plan(Target::SM_90A, 132, shape).unwrap().choice.candidates() {
            let plan = gemm.clone().tile(tile).kernel_plan(Target::SM_90A, 132, shape).unwrap();
            let staging = plan.staging.as_ref().unwrap();
            let TileShape::Sm90a { consumers, schedule, .. } = plan.tile.shape else { panic!("{}", plan.tile) };
            let rows = if schedule == Schedule::PingPong { plan.tile.bm } else { plan.tile.bm / consumers };
            let mask = rows * plan.tile.bn / 8;
            let [vectors, bits, parts] =
                [SharedRegion::Vectors, SharedRegion::Bits, SharedRegion::Parts].map(|region| staging.memory.of(region));
            assert_eq!((staging.rows, bits.bytes), (rows, masks * mask), "{}", plan.tile);
            assert!(staging.bits.iter().enumerate().all(|(i, bits)| bits.at == i * mask && bits.map.is_none()));
            assert!(vectors.at + 2 * vectors.bytes <= bits.at);
            assert!(bits.at + consumers * bits.bytes <= parts.at);
            assert_eq!(plan.source().unwrap().text().contains("copy_bits_out<true>("), masks > 0);
            assert_eq!(plan.source().unwrap().text().contains("copy_bits_out<false>("), masks > 1);
        }
    }
}

/// Ping-pong consumers share chunk buffers if the ring of stages would be shorter otherwise, and products hide both
/// epilogues.
#[test]
fn consumers_in_turns_share_a_place_where_that_saves_a_stage() {
    let formats = Formats { scaled: false, ..Formats::of(F16) };
    let residual = Epilogue::build(|e| e.store("d", e.acc() + e.load("c", F16), F16)).unwrap();
    let gelu_input = cublaslt::gelu_aux_bias(formats).unwrap();
    let heavy = Epilogue::build(|e| {
        let z = e.acc() + e.load("bias", F16.over(N));
        e.store("d", z.silu() * e.load("c", F16) * e.load("row_scale", F32.over(M)), F16);
    });
    let (heavy, identity) = (heavy.unwrap(), recipes::identity(F16).unwrap());
    let of = |epilogue: &Epilogue, columns: usize, k: usize, named: Option<Tile>| {
        let shape = Shape::new(8192, 8192, k);
        let gemm = Gemm::new(F16, TN, epilogue);
        let plan = gemm.kernel_plan(Target::SM_90A, 132, shape).unwrap();
        let in_turns = |tile: &Tile| {
            let TileShape::Sm90a { schedule, cluster, .. } = tile.shape else { return false };
            (schedule, cluster) == (Schedule::PingPong, [1, 1]) && (tile.bm, tile.bn) == (128, columns)
        };
        let tile = named.unwrap_or_else(|| plan.choice.candidates().map(|(tile, _)| tile).find(in_turns).unwrap());
        let plan = gemm.tile(tile).kernel_plan(Target::SM_90A, 132, shape).unwrap();
        let (staging, TileShape::Sm90a { stages, .. }) = (plan.staging.as_ref().unwrap(), plan.tile.shape) else { panic!() };
        assert_eq!(plan.explain().contains("both consumers' in one place"), staging.chunk_rings == 1);
        assert!(staging.memory.end() <= Target::SM_90A.shared_memory_per_block_opt_in() as usize);
        (stages, staging.chunk_rings, staging.chunk)
    };
    assert_eq!(of(&identity, 192, 1024, None), (5, 2, 64), "there is room for both");
    assert_eq!([&residual, &gelu_input].map(|epilogue| of(epilogue, 192, 1024, None)), [(5, 1, 32); 2]);
    assert_eq!([&residual, &heavy].map(|epilogue| of(epilogue, 128, 4096, None)), [(6, 1, 64); 2]);
    assert_eq!(
        [1024, 4096].map(|k| of(&heavy, 192, k, None)),
        [(4, 2, 64), (5, 1, 32)],
        "longer than the products it would hide under"
    );
    assert_eq!(of(&residual, 192, 64, None), (3, 2, 64), "a short K has a shallow ring");
    let named = Gemm::new(F16, TN, &residual).kernel_plan(Target::SM_90A, 132, Shape::new(8192, 8192, 4096)).unwrap();
    let named = named
        .choice
        .candidates()
        .map(|(tile, _)| tile)
        .find(|tile| tile.to_string().contains("128x192x64, 5 stages, 2 ping-pong"));
    assert_eq!(of(&residual, 192, 64, named), (5, 1, 32), "a tile that was named has its stages");
}
