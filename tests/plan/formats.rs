//! Formats of elements, and the mainloops that multiply them.

use super::*;

#[test]
fn formats_and_target_decide_the_mainloop() {
    let chosen = |gemm: &Gemm, target: Target| gemm.kernel_plan(target, 132, Shape::new(512, 512, 512)).unwrap().tile.mainloop();
    let half = Gemm::new(F16, TN, &bias_relu(F16));
    assert_eq!(chosen(&half, Target::SM_90A), Mainloop::Sm90a);
    assert_eq!(chosen(&half, Target::SM_90), Mainloop::Sm80);
    assert_eq!(chosen(&half, Target::SM_75), Mainloop::Simt);
    assert_eq!(chosen(&half.clone().mainloop(Mainloop::Simt), Target::SM_90A), Mainloop::Simt);
    let single = Gemm::new(F32, TN, &bias_relu(F32));
    assert_eq!(chosen(&single, Target::SM_90A), Mainloop::Simt);
    assert_eq!(chosen(&single.clone().tf32(true), Target::SM_90A), Mainloop::Sm90a);
    assert_eq!(chosen(&single.clone().tf32(true), Target::SM_90), Mainloop::Sm80);
    assert_eq!(chosen(&single.tf32(true), Target::SM_75), Mainloop::Simt);
}

/// Narrow weights come into fragments of products that a target has to have.
#[test]
fn weights_of_fewer_bits_take_products_of_tensor_cores() {
    for other in [I8, U8, I4, U4, E5M2] {
        let gemm = Gemm::mixed(F16, other, TN, &identity_of(F16)).mainloop(Mainloop::Gemv);
        let plan = |target| gemm.kernel_plan(target, 108, Shape::new(4, 4096, 4096));
        assert_eq!(plan(Target::SM_80).unwrap().tile.mainloop(), Mainloop::Gemv, "{other}");
        let error = plan(Target::SM_75).unwrap_err().to_string();
        assert!(error.contains("sm_75 has no mma.sync.m16n8k16"), "{other}: {error}");
        let turned = Gemm::mixed(F16, other, NN, &identity_of(F16)).mainloop(Mainloop::Gemv);
        let error = turned.kernel_plan(Target::SM_80, 108, Shape::new(4, 4096, 4096)).unwrap_err().to_string();
        assert!(error.contains("with K contiguous, which is TN, and these are NN"), "{other}: {error}");
    }
}

/// No tensor core multiplies doubles here, and Hopper's mainloop has none in its epilogue: both are said, whether or
/// not one was asked for.
#[test]
fn doubles_go_where_there_are_kernels_for_them() {
    let product = Epilogue::build(|e| e.store("d", e.acc_f64() * 0.1, F64)).unwrap();
    let beside = Epilogue::build(|e| e.store("d", (e.acc().cast(F64) + e.load("residual", F64)).cast(F16), F16)).unwrap();
    let shape = Shape::new(4096, 4096, 4096);
    for target in TARGETS {
        let mainloop = |gemm: Gemm, shape: Shape| gemm.kernel_plan(target, 132, shape).map(|plan| plan.mainloop());
        assert_eq!(mainloop(Gemm::new(F64, TN, &product), shape).unwrap(), Mainloop::Simt);
        assert_eq!(mainloop(Gemm::new(F64, TN, &product), Shape::new(1, 4096, 4096)).unwrap(), Mainloop::Gemv);
        for forced in [Mainloop::Sm80, Mainloop::Sm90a] {
            let refused = mainloop(Gemm::new(F64, TN, &product).mainloop(forced), shape).unwrap_err().to_string();
            assert!(refused.contains("f64") || refused.contains("has no"), "{refused}");
        }
    }
    let plan = Gemm::new(F16, TN, &beside).kernel_plan(Target::SM_90A, 132, shape).unwrap();
    assert_eq!(plan.mainloop(), Mainloop::Sm80);
    assert!(
        plan.explain().contains("its epilogues have no f64 values, and %1 of the epilogue, `to_f64`, is one"),
        "{}",
        plan.explain()
    );
    let forced = Gemm::new(F16, TN, &beside).mainloop(Mainloop::Sm90a).kernel_plan(Target::SM_90A, 132, shape);
    let refused = forced.unwrap_err().to_string();
    assert!(refused.contains("sm80 has them"), "{refused}");
    // Approximations are of single precision.
    let fast = Gemm::pointwise(F64, Order::RowMajor, &product).math(postlude::plan::Math::Fast);
    let exact = Gemm::pointwise(F64, Order::RowMajor, &product);
    // The prelude's functions are not used.
    let text = |gemm: Gemm| {
        let source = gemm.kernel_plan(Target::SM_80, 100, shape).unwrap().source().unwrap();
        source.text().split_once("// ---- the epilogue, phase by phase").expect("an epilogue").1.to_owned()
    };
    assert_eq!(text(fast), text(exact));
}

#[test]
fn every_class_of_eight_bits_has_a_kernel_and_a_source() {
    let shapes = [(1, 1, 0), (1, 4096, 64), (17, 300, 129), (4096, 1, 8), (33, 64, 1), (5000, 5000, 5000)];
    for target in TARGETS {
        for (a, b) in [(E4M3, E5M2), (E5M2, E5M2), (I8, U8), (U8, U8)] {
            let epilogue = identity_of(a);
            for layout in Layout::ALL {
                for (m, n, k) in shapes {
                    for align in [16, 8, 4, 2, 1] {
                        let problem = Problem::new(m, n, k).align("a", align).align("b", align).align("d", align);
                        let plan = Gemm::mixed(a, b, layout, &epilogue).kernel_plan(target, 132, problem);
                        let plan =
                            plan.unwrap_or_else(|e| panic!("{a} by {b}, {layout}, {m}x{n}x{k}, {align} for {target}: {e}"));
                        if (m, align) == (17, 16) {
                            assert!(plan.source().unwrap().text().contains("numbers of eight bits"));
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn what_multiplies_eight_bits_and_why() {
    let shape = Shape::new(512, 512, 1024);
    let explained = |gemm: &Gemm, target: Target| gemm.kernel_plan(target, 132, shape).unwrap().explain();
    for dtype in [E4M3, I8] {
        let gemm = |layout| Gemm::new(dtype, layout, &identity_of(dtype));
        let chosen = |layout, target| gemm(layout).kernel_plan(target, 132, shape).unwrap().mainloop();
        assert_eq!([TN, NN].map(|layout| chosen(layout, Target::SM_90A)), [Mainloop::Sm90a; 2]);
        assert_eq!([TN, NN].map(|layout| chosen(layout, Target::SM_80)), [Mainloop::Sm80, Mainloop::Simt]);
        assert_eq!(chosen(TN, Target::SM_75), Mainloop::Simt);
        assert!(explained(&gemm(NN), Target::SM_90A).contains("transposes    a: wgmma reads eight bits with K contiguous"));
        assert!(explained(&gemm(TT), Target::SM_90A).contains("transposes    b:"));
        assert!(!explained(&gemm(TN), Target::SM_90A).contains("transposes"));
        assert_eq!(explained(&gemm(TN), Target::SM_80).contains("eight floating-point bits as f16"), dtype == E4M3);
        assert!(explained(&gemm(NN), Target::SM_80).contains("multiplied with K contiguous, which is TN, and these are NN"));
        let promoted = explained(&gemm(TN), Target::SM_90A).contains("accumulates   in f32 the tensor cores' sums of 128");
        assert_eq!(promoted, dtype == E4M3);
        assert!(!explained(&gemm(TN).fast_accumulation(true), Target::SM_90A).contains("accumulates   in f32"));
    }
}

#[test]
fn what_multiplies_tf32_and_why() {
    let large = Shape::new(2048, 2048, 2048);
    let plan = |epilogue: &Epilogue, layout: Layout, problem: Problem| {
        Gemm::new(F32, layout, epilogue).tf32(true).kernel_plan(Target::SM_90A, 132, problem).unwrap()
    };
    let identity = identity_of(F32);
    for layout in Layout::ALL {
        let plan = plan(&identity, layout, large.into());
        assert_eq!(plan.mainloop(), Mainloop::Sm90a, "{}", plan.explain());
        let repack = plan.repack.map(|repack| (repack.operands, repack.transposed));
        // One operand with K strided passes through registers, and is A. The other is copied.
        assert_eq!(repack, (layout == NT).then_some(([false, true], [false, true])), "{}", plan.explain());
        assert_eq!(plan.transposed, layout == TT, "{}", plan.explain());
    }
    let explained = plan(&identity, NT, large.into()).explain();
    assert!(explained.contains("transposes    b: wgmma reads tf32 with K contiguous"), "{explained}");
    // The larger of two operands with K strided is not copied, nor is any of them where a copy takes longer than the product.
    let wide = plan(&identity, NT, Shape::new(64, 4096, 4096).into());
    assert!(wide.transposed && wide.repack.is_some_and(|repack| repack.operands == [false, true]), "{}", wide.explain());
    let few = plan(&identity, NT, Shape::new(256, 256, 64).into());
    assert_eq!(few.mainloop(), Mainloop::Sm80);
    assert!(few.explain().contains("wgmma reads tf32 with K contiguous: copies would take longer"), "{}", few.explain());
    // What TMA cannot copy has no way through registers.
    let odd = plan(&identity, NN, Problem::from(large).align("a", 4));
    assert_eq!(odd.repack.map(|repack| (repack.operands, repack.transposed)), Some(([true, false], [true, false])));
    let rows = plan(&identity, TN, Problem::from(large).align("a", 4));
    assert_eq!(rows.repack.map(|repack| (repack.operands, repack.transposed)), Some(([true, false], [false; 2])));
    let summed = Epilogue::build(|e| {
        e.store("d", e.acc(), F32);
        e.reduce("sums", e.b(), Monoid::Sum, F32.over(N));
    });
    let summed = plan(&summed.unwrap(), TN, large.into());
    assert_eq!(summed.mainloop(), Mainloop::Sm80);
    assert!(summed.explain().contains("operands arrive rounded to tf32, and the epilogue sums one"), "{}", summed.explain());
}

#[test]
fn eight_bits_that_cannot_be_multiplied_are_refused() {
    let shape = Shape::new(512, 512, 1024);
    let refused = |gemm: &Gemm| gemm.kernel_plan(Target::SM_90A, 132, shape).unwrap_err();
    for (a, b) in [(E4M3, I8), (F16, BF16), (I8, I32), (E4M3, F32)] {
        let error = refused(&Gemm::mixed(a, b, TN, &identity_of(F16)));
        assert!(matches!(error, PlanError::Misfit(Misfit::Mixed { .. })), "{error}");
        assert!(error.to_string().contains("only e4m3 and e5m2 may be mixed, and i8 and u8"), "{error}");
    }
    let error = refused(&Gemm::new(I8, TN, &identity_of(F16)));
    assert!(error.to_string().contains("operands of i8 accumulate in i32: use `acc_i32()` and cast it"), "{error}");
    // Tiles that the instructions have no form of, or a thread no room for.
    let tile = |bm, bn, consumers, schedule| Tile {
        bm,
        bn,
        shape: TileShape::Sm90a { bk: 128, stages: 4, consumers, schedule, cluster: [1, 1], splits_k: false },
        threads: 128 * (1 + consumers),
        min_blocks: 1,
    };
    let narrow = tile(64, 40, 1, Schedule::Cooperative);
    let error = refused(&Gemm::new(I8, TN, &identity_of(I8)).tile(narrow)).to_string();
    assert!(error.contains("8, 16 or 24 columns, or more by 16, of integers"), "{error}");
    assert!(Gemm::new(E4M3, TN, &identity_of(E4M3)).tile(narrow).kernel_plan(Target::SM_90A, 132, shape).is_ok());
    let large = tile(128, 256, 2, Schedule::Cooperative);
    let error = refused(&Gemm::new(E4M3, TN, &identity_of(E4M3)).tile(large)).to_string();
    assert!(error.contains("128 sums twice") && error.contains("unless `Gemm::fast_accumulation` is allowed"), "{error}");
    let fast = Gemm::new(E4M3, TN, &identity_of(E4M3)).tile(large).fast_accumulation(true);
    assert!(fast.kernel_plan(Target::SM_90A, 132, shape).is_ok());
    let error = refused(&Gemm::new(I8, TN, &identity_of(I8)).split_k(3)).to_string();
    assert!(error.contains("equal multiples of 16"), "{error}");
}

/// What rows come to is stored in f32 beside matrices of 16 bits, which decide about approximations.
#[test]
fn matrices_decide_about_approximations() {
    let is_fast = |epilogue: &Epilogue| {
        let gemm = Gemm::pointwise(F16, Order::RowMajor, epilogue);
        gemm.kernel_plan(Target::SM_90A, 132, Shape::matrix(1024, 1024)).unwrap().fast_math
    };
    let stored = |matrix: Option<DType>, vector: DType| {
        let epilogue = Epilogue::build(|e| {
            let z = e.acc().logsumexp_over(N);
            e.store("z", z, vector.over(M).batched());
            if let Some(matrix) = matrix {
                e.store("d", (e.acc() - z).exp(), matrix);
            }
        });
        is_fast(&epilogue.unwrap())
    };
    assert!(is_fast(&recipes::cross_entropy(F16).unwrap()) && !is_fast(&recipes::cross_entropy(F32).unwrap()));
    assert!(stored(Some(F16), F32) && !stored(Some(F32), F16));
    assert!(stored(None, F16) && !stored(None, F32), "vectors decide where no matrix is stored");
}
