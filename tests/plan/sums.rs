//! Reductions: sums of operands and of results, rows that a kernel holds, and monoids of a program.

use super::*;

/// Blocks that share K cannot sum an operand over K. Asking for one is an error that says so, and a plan takes others.
#[test]
fn sums_of_an_operand_have_blocks_with_all_of_k() {
    let sums = Epilogue::build(|e| {
        e.store("d", e.acc(), F16);
        e.reduce("sum", e.b(), Monoid::Sum, F32.over(N));
    });
    let gemm = Gemm::new(F16, TN, &sums.unwrap());
    let shape = Shape::new(48, 3584, 18944);
    let plan = gemm.kernel_plan(Target::SM_90A, 132, shape).unwrap();
    assert_eq!(plan.tile.parts(), 1);
    assert!(plan.explain().contains("its blocks share K, and sums of an operand are taken by blocks that have all of it"));
    let shared = Gemm::new(F16, TN, &recipes::identity(F16).unwrap()).kernel_plan(Target::SM_90A, 132, shape).unwrap().tile;
    assert!(shared.parts() > 1);
    let error = gemm.tile(shared).kernel_plan(Target::SM_90A, 132, shape).unwrap_err().to_string();
    assert!(error.contains("share K"), "{error}");
}

/// Stages before the visit compute again what is cheap, and keep what is dear, in registers.
#[test]
fn special_functions_of_rows_are_kept_behind_a_product() {
    let renewed = |of: fn(Expr) -> Expr| {
        let epilogue = Epilogue::build(|e| {
            let z = of(e.acc());
            e.store("d", z - z.max_over(N), F16);
        });
        let gemm = Gemm::new(F16, TN, &epilogue.unwrap()).mainloop(Mainloop::Sm90a);
        let plan = gemm.kernel_plan(Target::SM_90A, 132, Shape::new(8192, 128, 256)).unwrap();
        assert!(plan.split.is_none(), "{}", plan.explain());
        plan.source().unwrap().text().contains("renew(rows")
    };
    assert!(renewed(|z| z * 2.0) && renewed(|z| z.max(0.0)) && renewed(|z| z.abs()));
    assert!(!renewed(|z| z.exp()) && !renewed(|z| z.tanh()) && !renewed(|z| (z * 2.0).exp()));
}

/// Sums that the same tiles arrive for share a count of arrivals: one of them counts.
#[test]
fn tiles_arrive_once_for_sums_of_one_operand() {
    let epilogue = Epilogue::build(|e| {
        e.store("d", e.acc(), F16);
        e.reduce("sum", e.b(), Monoid::Sum, F32.over(N));
        e.reduce("again", e.b(), Monoid::Sum, F16.over(N));
        e.reduce("other", e.a(), Monoid::Sum, F32.over(M));
    });
    let text = hopper_text(&Gemm::new(F16, TN, &epilogue.unwrap()));
    assert_eq!(text.matches(".arrive()) <<").count(), 2, "once for `b`, once for `a`");
}

/// Sums of operands over K stay with the product that has the operands: whole, on a mainloop that can take them.
#[test]
fn sums_of_operands_are_refused_where_they_cannot_be() {
    let epilogue = Epilogue::build(|e| {
        e.store("d", e.acc(), F16);
        e.reduce("sums", e.b(), Monoid::Sum, F32.over(N));
    });
    let epilogue = epilogue.unwrap();
    let gemm = Gemm::new(F16, TN, &epilogue);
    let long = Shape::new(256, 256, 65_536);
    let refused = |gemm: &Gemm, shape: Shape| gemm.kernel_plan(Target::SM_90A, 132, shape).unwrap_err();
    let error = refused(&gemm.clone().split_k(4), long);
    assert!(matches!(&error, PlanError::Split { parts: 4, why } if why.contains("sums an operand over K")), "{error}");
    let error = refused(&gemm.clone().mainloop(Mainloop::Gemv), Shape::new(1, 512, 512));
    assert!(matches!(error, PlanError::NoTile(_)) && error.to_string().contains("it has no sums of operands"), "{error}");
    let error = refused(&Gemm::pointwise(F16, Order::RowMajor, &epilogue), long);
    assert!(
        matches!(error, PlanError::Misfit(Misfit::NoProduct { .. })) && error.to_string().contains("reduce `acc()` instead"),
        "{error}"
    );
    // Otherwise there is a plan, which describes itself.
    for (target, shape) in
        TARGETS.into_iter().flat_map(|target| [long, Shape::new(1, 4096, 64), Shape::new(4096, 3, 64)].map(|s| (target, s)))
    {
        let plan = gemm.kernel_plan(target, 132, shape).unwrap();
        let explained = plan.explain();
        assert!(plan.split.is_none() && explained.contains("over K and the batch, inside the product"), "{explained}");
        assert!(plan.source().unwrap().text().contains("OperandSum0"));
    }
}

/// The last to arrive finds one slice for each tile that takes part, and one counter for each block of the result.
#[test]
fn sums_of_operands_have_a_workspace_where_tiles_share_them() {
    let build = |batched: bool| {
        let operand = if batched { F32.over(N).batched() } else { F32.over(N) };
        Epilogue::build(|e| e.reduce("sums", e.b(), Monoid::Sum, operand)).unwrap()
    };
    let workspace = |batched: bool, shape: Shape| {
        let plan = Gemm::new(F32, TT, &build(batched)).kernel_plan(Target::SM_80, 108, shape).unwrap();
        (plan.workspace(shape).bytes, plan.tile)
    };
    let shape = Shape::new(10_000, 1000, 64);
    let (bytes, tile) = workspace(false, shape);
    let blocks = shape.n.div_ceil(tile.bn);
    let padded = |bytes: usize| bytes.next_multiple_of(256);
    assert_eq!(bytes, padded(blocks * 4) + padded(16 * blocks * tile.bn * 4));
    assert_eq!(workspace(false, Shape::new(8, 1000, 64)).0, 0, "one tile takes part alone");
    let entries = Shape::new(8, 1000, 64).batched(3);
    assert_eq!(workspace(true, entries).0, 0, "each entry's is alone");
    let (bytes, tile) = workspace(false, entries);
    let blocks = shape.n.div_ceil(tile.bn);
    assert_eq!(bytes, padded(blocks * 4) + padded(3 * blocks * tile.bn * 4));
}

/// Sums over M beside rows that no block holds with them: statistics come first, and a kernel behind them has the sums.
#[test]
fn sums_beside_long_rows_have_a_kernel_of_their_own() {
    let norm = recipes::Norm { weights: Some(F16), residual: None };
    let forward = recipes::layer_norm(norm, F16).unwrap();
    let pair = forward.backward(Wrt::all().detached("mean").detached("rstd")).unwrap();
    let gemm = Gemm::pointwise(F16, Order::RowMajor, pair.backward());
    for (n, kernels) in [(1000, 0), (16_384, 0), (65_536, 0), (300_000, 1)] {
        let plan = gemm.kernel_plan(Target::SM_90A, 132, Shape::matrix(512, n)).unwrap();
        assert_eq!(plan.before.len(), kernels, "{n}: {}", plan.explain());
        assert!(kernels == 0 || plan.explain().contains("shared memory"), "{}", plan.explain());
    }
    let tile = gemm.kernel_plan(Target::SM_90A, 132, Shape::matrix(512, 16_384)).unwrap().tile;
    let asked = gemm.tile(tile).kernel_plan(Target::SM_90A, 132, Shape::matrix(512, 65_536));
    assert!(asked.is_err(), "a tile that was asked for is not replaced");
}

/// Which kernels an epilogue gets that uses what its rows come to, and what the plan says of them.
#[test]
fn rows_are_held_where_they_fit() {
    let softmax = recipes::softmax(recipes::Mask::None, F16).unwrap();
    let rows = Gemm::pointwise(F16, Order::RowMajor, &softmax);
    let plan = |gemm: &Gemm, shape| gemm.kernel_plan(Target::SM_90A, 132, shape).unwrap();
    for (n, held) in [(1, true), (128, true), (1000, true), (16_384, true), (70_000, true), (300_000, false)] {
        let plan = plan(&rows, Shape::matrix(512, n));
        let TileShape::Rows { span, cluster, .. } = plan.tile.shape else { panic!("{}", plan.explain()) };
        assert!(
            plan.tile.bn >= n && (span * cluster == plan.tile.bn) == held && (cluster > 1) == (n == 70_000),
            "{n}: {}",
            plan.explain()
        );
        assert_eq!(plan.program.stages.len(), 1, "the largest and the sum of exponentials");
        let said = if held { "memory is read once" } else { "each is read 2 times" };
        assert!(plan.explain().contains(said), "{}", plan.explain());
    }
    // A column of a row-major matrix is a row of the transposed problem.
    let columns = Epilogue::build(|e| e.store("d", e.acc().softmax_over(M), F16)).unwrap();
    assert!(plan(&Gemm::pointwise(F16, Order::RowMajor, &columns), Shape::matrix(300, 70)).transposed);
    let behind = plan(&Gemm::new(F16, TN, &softmax), Shape::new(512, 1000, 256).batched(3));
    let split = behind.split.as_ref().expect("a product");
    assert_eq!((split.parts, behind.mainloop(), behind.scratch), (1, Mainloop::Sm90a, 3 * 512 * 1000 * 4));
    assert!(behind.explain().contains("two kernels") && behind.explain().contains("a row lies in several tiles"));
    // One tile has whole rows, but not of a matrix that is added before.
    let few = Gemm::new(F16, TN, &softmax);
    let one = plan(&few, Shape::new(16_384, 250, 2048));
    assert!(one.split.is_none() && one.tile.bn >= 250 && one.explain().contains("one kernel for all"), "{}", one.explain());
    let residual = recipes::rms_norm(recipes::Norm { weights: None, residual: Some(F16) }, F16).unwrap();
    let two = plan(&Gemm::new(F16, TN, &residual), Shape::new(16_384, 250, 2048));
    assert!(two.split.is_some() && two.explain().contains("is read from a matrix"), "{}", two.explain());
}

/// What one block has all of is one kernel; what it has not takes several, and the plan says why.
#[test]
fn reductions_that_blocks_share_take_several_kernels() {
    let plan = |gemm: &Gemm, shape| gemm.kernel_plan(Target::SM_90A, 132, shape).unwrap();
    let build = |build: &dyn Fn(&postlude::Builder)| Gemm::pointwise(F32, Order::RowMajor, &Epilogue::build(build).unwrap());
    let norm = build(&|e| {
        let centred = e.acc() - e.acc().mean_over(M | N);
        e.store("d", centred * (centred.mean_square_over(M | N) + 1e-5).rsqrt(), F32);
    });
    for (shape, kernels, said) in [
        (Shape::matrix(64, 64), 1, "held in registers of one block"),
        (Shape::matrix(200, 100).batched(512), 1, "held in registers of one block"),
        (Shape::matrix(100, 256).batched(528), 1, "held in shared memory"),
        (Shape::matrix(150, 256).batched(528), 1, "held in shared memory"),
        (Shape::matrix(110, 257).batched(528), 1, "is read 2 times"),
        (Shape::matrix(1024, 256).batched(512), 2, "several are estimated to be faster"),
        (Shape::matrix(4096, 4096), 2, "several are estimated to be faster"),
        (Shape::matrix(100_000, 40), 2, "every number of a tile is from 1 to 65536"),
    ] {
        let plan = plan(&norm, shape);
        assert_eq!(plan.before.len() + 1, kernels, "{shape}: {}", plan.explain());
        assert!(plan.explain().contains(said), "{shape}: {}", plan.explain());
        if kernels > 1 {
            assert!(plan.explain().contains("kernel 1 of 2") && plan.scratch > 0, "{}", plan.explain());
        }
    }
    // A thread has as many rows at a time as it has registers for: 64 bytes, of one matrix or of two.
    let beside = build(&|e| {
        let z = e.acc() + e.load("beside", F16);
        e.store("d", z - z.mean_over(M | N), F32);
    });
    for (gemm, rows) in [(&norm, 16), (&beside, 4)] {
        let plan = plan(gemm, Shape::matrix(110, 257).batched(528));
        assert!(plan.explain().contains("times"), "{}", plan.explain());
        assert!(matches!(plan.tile.shape, TileShape::Rows { together, .. } if together == rows), "{}", plan.explain());
    }
    // A product leaves its accumulators with the first results.
    let scaled = Epilogue::build(|e| {
        let z = e.acc() + e.load("bias", F32.over(N));
        let scale = z.absmax_over(M | N) / 448.0;
        e.store("d", z / scale, E4M3);
        e.store("scale", scale, F32.pointer().batched());
    });
    let behind = plan(&Gemm::new(F16, TN, &scaled.unwrap()), Shape::new(4096, 4096, 1024));
    let mainloops: Vec<_> = behind.before.iter().chain([&behind]).map(|plan| plan.tile.mainloop()).collect();
    assert_eq!(mainloops, [Mainloop::Sm90a, Mainloop::Pointwise], "{}", behind.explain());
    assert_eq!((behind.mainloop(), behind.before[0].program.reductions.len()), (Mainloop::Sm90a, 1));
    // Rows stay inside of a kernel, beside columns that are not.
    let mixed = plan(&build(&|e| e.store("d", e.acc().sum_over(M) - e.acc().sum_over(N), F32)), Shape::matrix(64, 64));
    assert_eq!((mixed.before.len(), mixed.tile.mainloop()), (1, Mainloop::Rows));
    assert!(mixed.explain().contains("one goes over [M] and another over [N]"), "{}", mixed.explain());
    let vector = plan(
        &build(&|e| {
            e.store("d", e.acc(), F32);
            e.store("least", e.load("bias", F32.over(N)).min_over(N), F32.over(N));
        }),
        Shape::matrix(64, 64),
    );
    assert!(vector.before.is_empty() && vector.tile.mainloop() == Mainloop::Rows, "{}", vector.explain());
    // Large columns are read along their lines, small ones at once.
    let columns = build(&|e| e.store("d", e.acc() - e.acc().mean_over(M), F32));
    assert!(plan(&columns, Shape::matrix(64, 64)).before.is_empty());
    assert_eq!(plan(&columns, Shape::matrix(4096, 1024)).before.len(), 1);
    // What a pool comes to, too.
    let pooling = Pooling::new(PoolKind::Max, ConvShape::windows(2, [16, 16, 32], [2, 2])).unwrap();
    let pooled = Epilogue::build(|e| e.store("d", e.acc() - e.acc().mean_over(N), F32)).unwrap();
    let pool = plan(&Gemm::pool(F32, pooling, &pooled), pooling.shape());
    assert_eq!(pool.before.len(), 1, "{}", pool.explain());
}

#[test]
fn reductions_that_no_kernel_has_are_refused_in_words() {
    let refused = |build: &dyn Fn(&postlude::Builder)| {
        let epilogue = Epilogue::build(build).unwrap();
        let gemm = Gemm::pointwise(F32, Order::RowMajor, &epilogue);
        gemm.kernel_plan(Target::SM_90A, 132, Shape::matrix(64, 64)).unwrap_err().to_string()
    };
    let bands = refused(&|e| e.store("d", e.acc().sum_over(N.bands(8)) + e.acc().sum_over(N.bands(16)), F32));
    assert!(bands.contains("one goes over [N/8] and another over [N/16]") && bands.contains("not kept"), "{bands}");
    let prime = refused(&|e| e.store("d", e.acc() - e.acc().max_over(N.bands(1009)), F32));
    assert!(prime.contains("do not share bands of 1009 columns"), "{prime}");
    let first = refused(&|e| {
        let place = e.reduce_over([e.acc(), e.column().cast(F32).cast(I32)], Monoid::ArgMax, (M | N).bands(8));
        e.store("d", e.acc() + place.cast(F32) + e.acc().sum_over(N), F32);
    });
    assert!(first.contains("`argmax` over [M,N/8] does not follow from its results"), "{first}");
    let softmax = recipes::softmax(recipes::Mask::None, F16).unwrap();
    let split = Gemm::new(F16, TN, &softmax).split_k(4).kernel_plan(Target::SM_90A, 132, Shape::new(64, 64, 4096)).unwrap_err();
    assert!(split.to_string().contains("the kernel that reduces rows adds up no parts"), "{split}");
}

/// Behind a reduction along the row nothing is the same for a whole tile, nor for a whole column.
#[test]
fn what_waits_for_rows_is_computed_for_each() {
    let [none, all] = [L, M | N];
    let before = [none, M, N, all].map(|axes| Phase::behind(0, axes));
    assert_eq!(before, [Phase::Tile, Phase::Row, Phase::Column, Phase::Visit]);
    for stage in [1, 2] {
        let behind = [none, M, N, all].map(|axes| Phase::behind(stage, axes));
        assert_eq!(behind, [Phase::Row, Phase::Row, Phase::Visit, Phase::Visit], "{stage}");
    }
}

/// Every kernel of a plan of several finds each of its arguments under its own name.
#[test]
fn kernels_of_a_plan_find_their_arguments() {
    let epilogue = Epilogue::build(|e| {
        let z = e.acc() * e.scalar("scale", F32) + e.load("bias", F32.over(N));
        let centred = z - z.mean_over(M | N);
        e.store("d", centred / (centred.mean_square_over(M | N) + 1e-3).sqrt() + e.load("c", F16), F16);
    })
    .unwrap();
    let shape = Shape::new(300, 400, 64);
    let plan = Gemm::new(F16, TN, &epilogue).kernel_plan(Target::SM_90A, 132, shape).unwrap();
    let passes = plan.passes.as_deref().expect("tiles of a product have parts of a matrix");
    assert!(passes.passes.len() > 1, "{}", plan.explain());
    let given = slots(plan.operation, epilogue.checked(), shape);
    let given =
        if passes.passes[0].reads_accumulators { given } else { slots(passes.passes[0].operation, epilogue.checked(), shape) };
    let mut read = vec![false; passes.interim.len()];
    for (number, pass) in passes.passes.iter().enumerate() {
        let (own, places) = (pass.slots(shape), passes.places(number, &given, shape));
        assert_eq!(own.len(), places.len());
        for (slot, place) in own.iter().zip(places) {
            match place {
                Place::Given(at) => assert_eq!(slot.name, given[at].name),
                Place::Interim(at) if &*slot.name == "a" => assert!(pass.reads_accumulators && at + 1 == passes.interim.len()),
                Place::Interim(at) => assert_eq!(*slot.name, *passes.interim[at].name),
            }
            if let Place::Interim(at) = place {
                read[at] = true;
            }
        }
    }
    assert!(read.iter().all(|read| *read), "{read:?}");
}

/// A monoid of a program counts what it lifts and combines.
#[test]
fn monoids_of_a_program_cost_what_they_compute() {
    let instructions = |lift: for<'g> fn(Expr<'g>) -> Expr<'g>| {
        let sum = CustomMonoid::build("own", [F32], [0.0f32], |_, [x]| [lift(x)], |_, [a], [b]| [a + b], |_, [s]| s);
        let epilogue = Epilogue::build(|e| e.reduce("d", e.acc(), sum.unwrap(), F32.over(M))).unwrap();
        let plan = Gemm::new(F16, TN, &epilogue).kernel_plan(Target::SM_80, 108, Shape::new(64, 64, 64)).unwrap();
        plan.code.instructions
    };
    let (short, long) = (instructions(|x| x), instructions(|x| x.sin().exp().tanh()));
    assert!(long > short + 100, "{short} and {long}");
}

/// Where registers run out, another tile that holds rows comes before one block of few threads a multiprocessor.
#[test]
fn rows_keep_threads_where_registers_run_out() {
    let norm = recipes::layer_norm(recipes::Norm { weights: Some(BF16), residual: Some(BF16) }, BF16).unwrap();
    let gemm = Gemm::pointwise(BF16, Order::RowMajor, &norm);
    let plan = |gemm: &Gemm| gemm.kernel_plan(Target::SM_90A, 132, Shape::matrix(4096, 16_384)).unwrap();
    let sizes = |plan: &KernelPlan| [plan.tile.threads, plan.tile.min_blocks];
    let mut chosen = plan(&gemm);
    let mut asked = plan(&gemm.tile(chosen.tile));
    assert_eq!([sizes(&chosen), sizes(&asked)], [[256, 2]; 2]);
    assert!(chosen.relax() && chosen.explain().contains("memory is read once"), "{}", chosen.explain());
    assert_eq!(sizes(&chosen), [512, 1], "{}", chosen.explain());
    assert!(asked.relax());
    assert_eq!(sizes(&asked), [256, 1], "a tile that was asked for stays");
}

/// The kernel of a layer norm's gradients.
fn layer_norm_backward(wrt: Wrt, shape: Shape) -> KernelPlan {
    let norm = recipes::layer_norm(recipes::Norm { weights: Some(F16), residual: None }, F16).unwrap();
    let pair = norm.backward(wrt.detached("mean").detached("rstd")).unwrap();
    Gemm::pointwise(F16, Order::RowMajor, pair.backward()).kernel_plan(Target::SM_90A, 132, shape).unwrap()
}

/// The gradients of the weights beside that of the input.
fn all() -> Wrt {
    Wrt::accumulator().and("weight").and("bias")
}

/// Sums over M that registers have no room for lie in shared memory, if each column is one thread's.
#[test]
fn sums_over_long_rows_lie_in_shared_memory() {
    let keeps = |plan: &KernelPlan| {
        let said = plan.explain().contains("keep sums over M there from row to row");
        assert_eq!(plan.source().unwrap().text().contains("move_sums"), said, "{}", plan.explain());
        said
    };
    for (n, kept) in [(128, false), (4096, false), (16_384, true), (65_536, false), (131_072, true)] {
        let plan = layer_norm_backward(all(), Shape::matrix(4096, n));
        assert_eq!(plan.program.stages.len(), 1, "the second mean waits for none");
        assert!(plan.source().unwrap().text().contains("combine_row<Both<"), "one barrier");
        assert_eq!(keeps(&plan), kept, "{}", plan.explain());
    }
    assert!(!keeps(&layer_norm_backward(Wrt::accumulator(), Shape::matrix(4096, 16_384))));
    // A sum of all elements has no column of its own.
    let everything = Epilogue::build(|e| {
        let y = e.acc() - e.acc().mean_over(N);
        e.store("d", y, F32);
        e.reduce("sums", y, Monoid::Sum, F32.over(N));
        e.reduce("largest", y, Monoid::Max, F32.over(N));
        e.reduce("all", y, Monoid::AbsMax, F32.pointer());
    });
    let gemm = Gemm::pointwise(F32, Order::RowMajor, &everything.unwrap());
    assert!(!keeps(&gemm.kernel_plan(Target::SM_90A, 132, Shape::matrix(4096, 16_384)).unwrap()));
}

/// Blocks that have several batches of rows copy the next ones, and those of a cluster have sums of their own columns.
#[test]
fn rows_beside_sums_are_on_their_way() {
    let copies = |plan: &KernelPlan| {
        let TileShape::Rows { copies: [depth, _], cluster, .. } = plan.tile.shape else { panic!("{}", plan.explain()) };
        let text = plan.source().unwrap().text().to_owned();
        assert_eq!(text.contains("copy_batch(from, stage)"), depth > 0, "{}", plan.explain());
        assert_eq!(plan.explain().contains("copied ahead by"), depth > 0, "{}", plan.explain());
        (depth, cluster)
    };
    let lengths = [(128, 2, 1), (1024, 2, 1), (4096, 2, 1), (16_384, 1, 1), (32_768, 2, 4), (65_536, 2, 8), (131_072, 1, 8)];
    for (n, depth, cluster) in lengths {
        let plan = layer_norm_backward(all(), Shape::matrix((1 << 26) / n, n));
        assert_eq!(copies(&plan), (depth, cluster), "{n}: {}", plan.explain());
    }
    // Each block of a cluster has a block of the result, and as many slices as there are clusters.
    let shape = Shape::matrix(1024, 65_536);
    let plan = layer_norm_backward(all(), shape);
    let slices = 1024usize.div_ceil(plan.tile.bm);
    assert_eq!((slices, plan.helpers), (15, 132 / 8), "{}", plan.explain());
    assert_eq!(plan.workspace(shape).bytes, 256 + 2 * slices * 65_536 * 4, "{}", plan.explain());
    // One batch, none that are alike, and no sums.
    let few = layer_norm_backward(all(), Shape::matrix(60, 4096));
    assert_eq!(copies(&few), (0, 1), "{}", few.explain());
    let input = layer_norm_backward(Wrt::accumulator(), Shape::matrix(16_384, 4096));
    assert_eq!(copies(&input), (0, 1), "{}", input.explain());
    // A tile for other bytes of an element is refused.
    let tile = layer_norm_backward(all(), Shape::matrix(16_384, 4096)).tile;
    let sums = Epilogue::build(|e| {
        let y = e.acc() - e.acc().mean_over(N);
        e.store("d", y, F16);
        e.reduce("sums", y, Monoid::Sum, F32.over(N));
    });
    let gemm = Gemm::pointwise(F16, Order::RowMajor, &sums.unwrap()).tile(tile);
    let error = gemm.kernel_plan(Target::SM_90A, 132, Shape::matrix(16_384, 4096)).unwrap_err();
    assert!(error.to_string().contains("copies 4 bytes of each element"), "{error}");
}

/// Where many tiles leave large slices of sums over M, blocks share what is left to do with them.
#[test]
fn sums_over_many_rows_have_helpers() {
    let plan = layer_norm_backward;
    let large = Shape::matrix(16_384, 4096);
    let shared = plan(all(), large);
    let text = shared.source().unwrap().text().to_owned();
    assert!(shared.helpers == 132 && text.contains("HELPERS = 132") && text.contains("share_fixup"), "{}", shared.explain());
    assert!(shared.explain().contains("shared by the last block to arrive and up to 132 that wait"), "{}", shared.explain());
    let mut alone = shared.clone();
    alone.helpers = 0;
    assert!(!alone.explain().contains("fix-up") && !alone.source().unwrap().text().contains("share_fixup"));
    // Few slices, small ones, and none.
    for (wrt, shape) in [(all(), Shape::matrix(32, 4096)), (all(), Shape::matrix(4096, 8)), (Wrt::accumulator(), large)] {
        let plan = plan(wrt, shape);
        assert!(plan.helpers == 0 && !plan.source().unwrap().text().contains("share_fixup"), "{}", plan.explain());
    }
    // Each block of the result has helpers of its own, and three counters.
    let entries = Epilogue::build(|e| {
        let y = e.acc() - e.acc().mean_over(N);
        e.store("d", y, F16);
        e.reduce("sums", y, Monoid::Sum, F32.over(N).batched());
        e.reduce("rows", y, Monoid::Sum, F32.over(M).batched());
    });
    let gemm = Gemm::pointwise(F16, Order::RowMajor, &entries.unwrap());
    let shape = Shape::matrix(2000, 4096).batched(3);
    let plan = gemm.kernel_plan(Target::SM_90A, 132, shape).unwrap();
    assert_eq!(plan.helpers, 44, "{}", plan.explain());
    let slices = 2000usize.div_ceil(plan.tile.bm);
    assert_eq!(plan.workspace(shape).bytes, 256 + 3 * slices * plan.tile.bn * 4, "{}", plan.explain());
    // A tile that is asked for, or that a plan falls back on, has its own.
    let other = shared.choice.candidates().map(|(tile, raster)| shared.with_tile(tile, raster, "").unwrap());
    assert!(other.map(|plan| plan.helpers).all(|helpers| helpers == 132));
}

/// Each monoid of a program is one struct of the kernel, which its reductions name.
#[test]
fn monoids_of_a_program_have_a_struct_each() {
    let own = |name: &'static str, start: f32| {
        CustomMonoid::build(name, [F32], [start], |_, [x]| [x * x], |_, [a], [b]| [a.max(b)], |_, [s]| s).unwrap()
    };
    let epilogue = Epilogue::build(|e| {
        let (first, second) = (own("first", -1.0), own("second", -2.0));
        e.reduce("sums", e.acc(), Monoid::Sum, F32.over(M));
        e.reduce("x", e.acc(), first, F32.over(M));
        e.reduce("y", e.acc(), second, F32.over(M));
        e.reduce("z", e.acc() + 1.0, first, F32.over(N));
    })
    .unwrap();
    let plan = Gemm::new(F16, TN, &epilogue).kernel_plan(Target::SM_80, 108, Shape::new(64, 64, 64)).unwrap();
    let source = plan.source().unwrap();
    let structs: Vec<&str> = source.text().lines().filter_map(|line| line.trim().strip_prefix("struct Own")).collect();
    assert_eq!(structs.len(), 2, "{structs:?}");
    assert_ne!(structs[0].split_whitespace().next(), structs[1].split_whitespace().next());
}
