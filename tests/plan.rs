//! Planning without a GPU: every class of problems has a kernel, and the plan describes it truthfully.

use postlude::args::{ArgumentFault, Misfit, slots};
use postlude::build::recipes;
use postlude::ir::{Op, Order};
use postlude::plan::{
    Choice, Item, KernelPlan, Mainloop, PARAMETER_LIMIT, Phase, Place, PlanError, Preferences, Problem, Schedule, Tile, TileShape,
};
use postlude::prelude::*;
use postlude::target::Target;
use postlude::{Attention, CustomMonoid, Gemm, Operation, PoolKind, Pooling, Scores};

const TARGETS: [Target; 5] = [Target::SM_75, Target::SM_80, Target::SM_86, Target::SM_89, Target::SM_90A];

fn bias_relu(dtype: DType) -> Epilogue {
    Epilogue::build(|e| {
        let acc = match dtype {
            I32 => e.acc_i32().cast(F32),
            F64 => e.acc_f64().cast(F32),
            _ => e.acc(),
        };
        let d = if matches!(dtype, I32 | F64) { F32 } else { dtype };
        e.store("d", (acc + e.load("bias", F32.over(N))).relu(), d);
    })
    .unwrap()
}

fn plan(operation: Operation, epilogue: &Epilogue, problem: &Problem, target: Target) -> Result<KernelPlan, PlanError> {
    KernelPlan::new(operation, epilogue.checked(), problem, target, 100, Preferences::default())
}

#[test]
fn every_class_of_problems_has_a_kernel_and_a_source() {
    let shapes = [(1, 1, 0), (1, 4096, 64), (17, 300, 129), (4096, 1, 8), (33, 64, 1), (5000, 5000, 5000)];
    for target in TARGETS {
        for dtype in [F32, F64, F16, BF16, I32] {
            let epilogue = bias_relu(dtype);
            let operations = Layout::ALL
                .map(|layout| Operation::product(dtype, layout))
                .into_iter()
                .chain([Order::RowMajor, Order::ColumnMajor].map(|order| Operation::Pointwise { dtype, order }));
            for operation in operations {
                for (m, n, k) in shapes {
                    for align in [16, 8, 4, 2] {
                        let align = align.max(dtype.size());
                        let problem = Problem::new(m, n, k).align("a", align).align("d", align);
                        let multiplies = matches!(operation, Operation::Product { .. });
                        let problem = if multiplies { problem.align("b", align) } else { problem };
                        let plan = plan(operation, &epilogue, &problem, target)
                            .unwrap_or_else(|e| panic!("{operation:?} {m}x{n}x{k} aligned to {align} for {target}: {e}"));
                        assert!(plan.shared_memory() <= target.shared_memory_per_block_opt_in() as usize);
                        assert!(plan.alignment.iter().all(|a| *a <= 16) && plan.strip <= 16);
                        if (m, align) == (17, 16) {
                            assert!(plan.source().unwrap().text().contains("postlude_kernel"));
                        }
                    }
                }
            }
        }
    }
}

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
    assert_eq!(chosen(&single.clone().tf32(true), Target::SM_90A), Mainloop::Sm80);
    assert_eq!(chosen(&single.tf32(true), Target::SM_75), Mainloop::Simt);
}

#[test]
fn an_impossible_wish_is_refused_with_its_reason() {
    let single = Gemm::new(F32, TN, &bias_relu(F32)).mainloop(Mainloop::Sm80);
    let error = single.kernel_plan(Target::SM_90A, 132, Shape::new(64, 64, 64)).unwrap_err();
    assert!(error.to_string().contains("tf32"), "{error}");
    let integers = Gemm::new(I32, TN, &bias_relu(F32)).kernel_plan(Target::SM_90A, 132, Shape::new(64, 64, 64)).unwrap_err();
    assert!(integers.to_string().contains("acc_i32"), "{integers}");
}

#[test]
fn column_major_outputs_turn_the_problem() {
    let epilogue = Epilogue::build(|e| {
        let z = e.acc() + e.load("bias", F16.over(N));
        e.store(
            "d",
            z.region(e.row().lt(e.scalar("boundary", I32)), |z| z.sigmoid()).otherwise(|z| z.tanh()),
            F16.column_major(),
        );
    })
    .unwrap();
    for target in [Target::SM_80, Target::SM_90A] {
        let plan = Gemm::new(F16, NN, &epilogue).kernel_plan(target, 132, Shape::new(256, 512, 64)).unwrap();
        assert!(plan.transposed);
        assert_eq!(plan.operation, Operation::product(F16, TT));
        assert!(plan.explain().contains("transposed"));
        assert!(target != Target::SM_80 || plan.strip == 8);
    }
}

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

/// Blocks that share K are no form for a sum of an operand over K; whoever asks for one is told so, and a plan takes
/// another tile.
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

/// The beginning of long weights is fetched ahead, but not of short ones, nor where they come into the ring themselves.
#[test]
fn which_weights_are_fetched_ahead() {
    let gemm = Gemm::new(BF16, TN, &recipes::identity(BF16).unwrap());
    let ahead = |gemm: &Gemm, n, k| gemm.kernel_plan(Target::SM_90A, 132, Shape::new(64, n, k)).unwrap().weights.is_some();
    assert!(ahead(&gemm, 8192, 8192) && !ahead(&gemm, 4096, 4096));
    assert!(!ahead(&gemm.clone().constant_operands([Side::B]), 8192, 8192));
    // The operand on the longer side, as the kernel sees it.
    for (shape, longer) in [(Shape::new(64, 8192, 8192), 1), (Shape::new(8192, 64, 8192), 0)] {
        let plan = gemm.kernel_plan(Target::SM_90A, 132, shape).unwrap();
        assert_eq!(plan.weights, Some(if plan.transposed { 1 - longer } else { longer }), "{shape}");
    }
    // The text has a function for either operand, and fetches the other one as always.
    for weights in [None, Some(0), Some(1)] {
        let mut plan = gemm.kernel_plan(Target::SM_90A, 132, Shape::new(64, 8192, 8192)).unwrap();
        plan.weights = weights;
        let source = plan.source().unwrap();
        let has = |part: &str| source.text().contains(part);
        for operand in [0, 1] {
            let (is_a, is_it) = (operand == 0, weights == Some(operand));
            assert_eq!(has(&format!("constexpr bool IS_A = {is_a};")), is_it, "{weights:?}");
            assert_eq!(has(&format!("prefetch_operand<{is_a}>(p, first)")), !is_it, "{weights:?}");
        }
        assert_eq!(has("prefetch_weights(p, first)"), weights.is_some(), "{weights:?}");
    }
    let plan = gemm.kernel_plan(Target::SM_90A, 132, Shape::new(64, 8192, 8192)).unwrap();
    assert!(plan.explain().contains("are fetched into the L2 cache before earlier launches are done"), "{}", plan.explain());
}

/// A kernel is told the axis along which elements of its operands follow each other.
#[test]
fn a_kernel_knows_the_order_of_its_operands() {
    let major = |plan: &KernelPlan| {
        let source = plan.source().unwrap();
        let line = source.text().lines().find(|line| line.starts_with("constexpr bool A_K_MAJOR")).unwrap().to_owned();
        ["A_K_MAJOR = ", "B_K_MAJOR = "].map(|name| line.split(name).nth(1).unwrap().starts_with("true"))
    };
    for (target, mainloop) in
        [(Target::SM_90A, Mainloop::Sm90a), (Target::SM_80, Mainloop::Sm80), (Target::SM_75, Mainloop::Simt)]
    {
        for layout in Layout::ALL {
            let gemm = Gemm::new(F16, layout, &identity_of(F16)).mainloop(mainloop);
            let plan = gemm.kernel_plan(target, 100, Shape::new(512, 512, 512)).unwrap();
            assert!(!plan.transposed);
            let expected = [layout.a() == Order::RowMajor, layout.b() == Order::ColumnMajor];
            assert_eq!(major(&plan), expected, "{layout} on {target}");
        }
    }
    for order in [Order::RowMajor, Order::ColumnMajor] {
        let plan = Gemm::pointwise(F16, order, &identity_of(F16)).kernel_plan(Target::SM_80, 100, Shape::new(64, 64, 0)).unwrap();
        let by_rows = (order == Order::RowMajor) != plan.transposed;
        assert!(plan.source().unwrap().text().contains(&format!("ACC_ROW_MAJOR = {by_rows}")), "{order:?}");
    }
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

/// A gradient of filters whose K is split has mainloops that read a part of K. That of single channels divides K itself.
#[test]
fn parts_of_k_have_mainloops_that_take_them() {
    let shape = ConvShape::new(8, [64, 64, 1], [1, 3, 3]).padding([1, 1]);
    let conv = Conv::filter_gradient(F32, shape, &identity_of(F32)).unwrap();
    let whole = conv.kernel_plan(Target::SM_80, 108).unwrap();
    assert_eq!(whole.tile.mainloop(), Mainloop::DepthwiseFilters, "{}", whole.explain());
    let plan = conv.gemm().clone().split_k(4).kernel_plan(Target::SM_80, 108, conv.problem()).unwrap();
    let product = plan.product();
    assert_ne!(product.tile.mainloop(), Mainloop::DepthwiseFilters, "{}", product.explain());
    assert!(product.explain().contains("it has all of K"), "{}", product.explain());
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

/// What scores become is a function in the text of a kernel, with arguments of its own.
#[test]
fn an_attention_has_its_function_of_scores() {
    let scores = Scores::build(|s| s.acc().tanh() + s.load("mask", F16) * s.scalar("factor", F32)).unwrap();
    for (target, multiprocessors) in [(Target::SM_80, 108), (Target::SM_90A, 132)] {
        let text = |of: Attention| {
            let gemm = Gemm::attention(F16, of, &identity_of(F16));
            let plan = gemm.kernel_plan(target, multiprocessors, Shape::new(512, 64, 512)).unwrap();
            plan.source().unwrap().text().to_owned()
        };
        let (plain, with) = (text(Attention::new(64)), text(Attention::new(64).scores(&scores)));
        assert!(with.contains("namespace scores") && !plain.contains("namespace scores"));
        let of_scores = with.split("namespace scores").nth(1).unwrap();
        assert!(of_scores.contains("tanh"), "{of_scores}");
    }
}

/// The text of a kernel of Hopper's for a large product.
fn hopper_text(gemm: &Gemm) -> String {
    let plan = gemm.kernel_plan(Target::SM_90A, 132, Shape::new(4096, 4096, 4096)).unwrap();
    plan.source().unwrap().text().to_owned()
}

#[test]
fn a_kernel_reads_the_operand_early_that_is_constant() {
    let gemm = Gemm::new(F16, TN, &recipes::identity(F16).unwrap());
    for constant in [&[][..], &[Side::A], &[Side::B], &[Side::A, Side::B]] {
        let text = hopper_text(&gemm.clone().constant_operands(constant.iter().copied()));
        let [a, b] = [Side::A, Side::B].map(|side| constant.contains(&side));
        assert!(text.contains(&format!("CONSTANT_A = {a}, CONSTANT_B = {b};")), "{constant:?}");
    }
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
fn a_plan_explains_itself() {
    let plan = Gemm::new(F16, TN, &bias_relu(F16)).kernel_plan(Target::SM_80, 132, Shape::new(4096, 4096, 4096)).unwrap();
    let text = plan.explain();
    for part in ["sm80 128x256x64", "shared memory 147456 bytes", "sm_80 has no wgmma", "times the chosen one"] {
        assert!(text.contains(part), "`{part}` is missing in\n{text}");
    }
    let Choice { verdicts, .. } = &plan.choice;
    assert!(verdicts.iter().all(|v| !v.reason.to_string().is_empty()));
    assert!(serde_json::to_string(&plan).unwrap().contains("sm_80"));
}

#[test]
fn what_kernels_cannot_count_is_refused() {
    let identity = Epilogue::build(|e| e.store("d", e.acc(), F16)).unwrap();
    let gemm = Gemm::new(F16, TN, &identity);
    let kernel = |k| gemm.kernel_plan(Target::SM_90A, 132, Shape::new(4, 4, k));
    assert!(kernel(Shape::LARGEST).is_ok());
    let error = kernel(Shape::LARGEST + 1).unwrap_err();
    assert!(matches!(error, PlanError::TooLarge(_)) && error.to_string().contains(&Shape::LARGEST.to_string()), "{error}");
}

#[test]
fn arguments_that_are_too_many_for_a_mainloop_leave_the_others() {
    let gemm = |matrices: usize| {
        let sum = Epilogue::build(|e| {
            let sum = (0..matrices).fold(e.acc(), |z, i| z + e.load(&format!("c{i}"), F16));
            e.store("d", sum, F16);
        });
        Gemm::new(F16, TN, &sum.unwrap())
    };
    let kernel = |gemm: Gemm| gemm.kernel_plan(Target::SM_90A, 132, Shape::new(4096, 4096, 512));
    let plan = kernel(gemm(22)).unwrap();
    assert!(plan.tile.mainloop() == Mainloop::Sm80 && plan.params.size <= PARAMETER_LIMIT, "{}", plan.explain());
    let told = plan.explain();
    assert!(told.contains("sm90a") && told.contains("4160 bytes of kernel parameters, of 4096"), "{told}");
    assert_eq!(kernel(gemm(8)).unwrap().tile.mainloop(), Mainloop::Sm90a);
    // The error is for those that no candidate takes: none of the one mainloop, and none at all.
    let forced = kernel(gemm(22).mainloop(Mainloop::Sm90a)).unwrap_err();
    assert_eq!(forced, PlanError::Parameters { size: 4160 });
    let most = kernel(gemm(200)).unwrap_err();
    assert!(matches!(most, PlanError::Parameters { size } if size < 8192), "{most}");
}

#[test]
fn a_device_without_multiprocessors_is_refused() {
    let gemm = Gemm::new(F16, TN, &bias_relu(F16));
    let kernel = |count| gemm.kernel_plan(Target::SM_90A, count, Shape::new(4096, 4096, 512));
    assert!(kernel(1).is_ok());
    let error = kernel(0).unwrap_err();
    assert!(matches!(error, PlanError::NoMultiprocessors(Target::SM_90A)) && error.to_string().contains("sm_90a"), "{error}");
}

#[test]
fn strides_that_no_launch_takes_are_refused() {
    let epilogue = Epilogue::build(|e| {
        let z = (e.acc() + e.load("bias", F16.over(N))) * e.scalar("alpha", F32);
        e.store("m", z.gt(0.0), DType::Bits8);
        e.store("d", z, F16);
    })
    .unwrap();
    let gemm = Gemm::new(F16, TN, &epilogue);
    let problem = || Problem::new(512, 256, 128).batched(2);
    let fault = |problem: Problem| match gemm.kernel_plan(Target::SM_90A, 132, problem) {
        Err(PlanError::Arguments(errors)) => errors.0.into_iter().map(|e| (e.name, e.fault)).next().unwrap(),
        other => panic!("{:?}", other.map(|plan| plan.explain())),
    };
    let (name, unknown) = fault(problem().ld("A", 513));
    assert!(
        name == "A" && matches!(&unknown, ArgumentFault::Unknown { known } if known.contains(&"a".to_owned())),
        "{unknown:?}"
    );
    for (name, least) in [("a", 128), ("d", 256), ("bias", 0), ("alpha", 0)] {
        let (of, short) = fault(problem().ld(name, 3));
        assert!(
            of == name && matches!(short, ArgumentFault::LeadingDimension { least: l, got: 3, .. } if l == least),
            "{short:?}"
        );
    }
    assert!(matches!(fault(problem().ld("m", 513)).1, ArgumentFault::Multiple { got: 513, .. }));
    assert!(matches!(fault(problem().batch_stride("bias", 3)).1, ArgumentFault::BatchStride { got: 3, .. }));
    assert!(matches!(fault(problem().ld("a", usize::MAX)).1, ArgumentFault::TooLarge { .. }));
    for bytes in [0, 3, 24] {
        assert_eq!(fault(problem().align("b", bytes)), ("b".to_owned(), ArgumentFault::Alignment { got: bytes }));
    }
    gemm.kernel_plan(Target::SM_90A, 132, problem().ld("a", 136).batch_stride("b", 0).align("d", 2)).unwrap();
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

/// A condition that is loaded or gathered for each row is the same all along a strip: it makes a branch. One that
/// varies along the columns does not.
#[test]
fn data_of_rows_makes_regions() {
    let explained = |condition: for<'e> fn(&'e postlude::Builder) -> postlude::Expr<'e>, mainloop| {
        let built = Epilogue::build(|e| e.store("d", e.acc().region(condition(e), |z| z.gelu()).otherwise(|z| z.tanh()), F16));
        let gemm = Gemm::new(F16, TN, &built.unwrap()).mainloop(mainloop);
        gemm.kernel_plan(Target::SM_90A, 132, Shape::new(4096, 4096, 4096)).unwrap().explain()
    };
    for mainloop in [Mainloop::Simt, Mainloop::Sm80, Mainloop::Sm90a] {
        let branches = |condition| explained(condition, mainloop).contains("regions       1 branch(es)");
        assert!(branches(|e| e.load("kind", I32.over(M)).eq(1)));
        assert!(branches(|e| e.gather("smooth", Bool, e.load("expert", I32.over(M)))));
        assert!(branches(|e| e.gather("slope", F32, e.batch()).gt(0.0)));
        assert!(!branches(|e| e.load("kind", I32.over(N)).eq(1)));
        assert!(!branches(|e| e.gather("kind", I32, e.column()).eq(1)));
        assert!(!branches(|e| e.gather("smooth", Bool, e.load("index", I32))));
    }
}

#[test]
fn branches_nest_no_deeper_than_the_hardware_brings_lanes_together() {
    fn deepest(items: &[Item]) -> usize {
        let depth = |item: &Item| match item {
            Item::Branch { then, otherwise, .. } => 1 + deepest(then).max(deepest(otherwise)),
            Item::Instr(_) => 0,
        };
        items.iter().map(depth).max().unwrap_or(0)
    }
    let bands = |count: i32| {
        let epilogue = Epilogue::build(|e| {
            let y = (0..count).fold(e.acc().tanh(), |y, i| (e.column() % count).eq(i).select((e.acc() * i as f32).sigmoid(), y));
            e.store("d", y, F16);
        });
        let plan = Gemm::new(F16, TN, &epilogue.unwrap()).kernel_plan(Target::SM_90A, 132, Shape::new(256, 256, 64)).unwrap();
        deepest(&plan.program.visit)
    };
    assert_eq!([bands(1), bands(3), bands(8), bands(24)], [1, 3, 8, 8]);
}

/// A branch costs a few instructions and may part the lanes: arms that are shorter than that are computed both.
#[test]
fn arms_branch_from_the_cost_at_which_that_pays() {
    // An addition in the visit costs one issue slot. Arms are `first` and `second` of them.
    let branches = |first: usize, second: usize| {
        let epilogue = Epilogue::build(|e| {
            let arm = |count: usize, by: f32| (0..count).fold(e.acc(), |z, _| z + by);
            let y = e.row().lt(e.scalar("boundary", I32)).select(arm(first, 1.0), arm(second, 2.0));
            e.store("d", y, F16);
        });
        let plan = Gemm::new(F16, TN, &epilogue.unwrap()).kernel_plan(Target::SM_90A, 132, Shape::new(256, 256, 64)).unwrap();
        plan.program.visit.iter().any(|item| matches!(item, Item::Branch { .. }))
    };
    assert_eq!([branches(6, 6), branches(12, 0), branches(6, 5), branches(11, 0)], [true, true, false, false]);
}

/// A condition that is one value along a row parts no lanes of a strip: also one that is loaded, but not one that varies along N.
#[test]
fn a_condition_that_is_loaded_branches_where_a_row_has_but_one() {
    let branches = |axes: postlude::ir::Axes| {
        let epilogue = Epilogue::build(|e| {
            let (z, on) = (e.acc(), e.load("on", Bool.over(axes)));
            e.store("d", on.select(z.gelu(), z.tanh().exp()), F16);
        });
        let plan = Gemm::new(F16, TN, &epilogue.unwrap()).kernel_plan(Target::SM_80, 108, Shape::new(4096, 4096, 4096)).unwrap();
        plan.program.visit.iter().any(|item| matches!(item, Item::Branch { .. }))
    };
    assert_eq!([branches(M), branches(N), branches(M | N)], [true, false, false]);
}

/// A matrix that is updated passes through the kernel twice, so it weighs as much as two in the choice of an order.
#[test]
fn a_matrix_that_is_updated_counts_twice_towards_the_order() {
    let transposed = |updated: bool| {
        let column = F16.column_major();
        let epilogue = Epilogue::build(|e| {
            let z = if updated { e.acc() + e.load("d", column) } else { e.acc() };
            e.store("d", z, column);
            e.store("r", z, F16);
        });
        let plan = Gemm::new(F16, TN, &epilogue.unwrap()).kernel_plan(Target::SM_80, 108, Shape::new(4096, 4096, 4096));
        plan.unwrap().transposed
    };
    assert_eq!([transposed(true), transposed(false)], [true, false], "with one matrix each way, rows are the order");
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

/// Where a kernel of Hopper's would fork often, the functions that fork are called, in the program's own monoids too: ptxas takes
/// long for many forks between which registers are full.
#[test]
fn functions_that_fork_are_called_where_they_are_many() {
    let shape = Shape::new(4096, 4096, 4096);
    let (mut inlined, mut called) = (0, 0);
    for divisions in 1..4 {
        let epilogue = Epilogue::build(|e| {
            let z = e.scalar("z", F32);
            e.store("d", (0..divisions).fold(e.acc(), |x, _| z / (x + 1.0)), F32);
        });
        let plan = Gemm::new(F16, TN, &epilogue.unwrap()).kernel_plan(Target::SM_90A, 132, shape).unwrap();
        for (tile, raster) in plan.choice.candidates() {
            let code = plan.with_tile(tile, raster, "").unwrap().code;
            let (calls, forks) = (code.calls.contains(&Op::Div), code.copies * divisions);
            assert_eq!(calls, divisions > 1 && forks > 128 || code.instructions > 6000, "{tile}: {forks}");
            (inlined, called) = (inlined + u32::from(!calls), called + u32::from(calls));
        }
    }
    assert!(inlined > 0 && called > 0, "{inlined} and {called}");

    let mean = CustomMonoid::build(
        "mean",
        [F32],
        [0.0, 0.0],
        |e, [x]| [e.constant(1.0), x],
        |_, [n, mean], [k, other]| [n + k, mean + (other - mean) * (k / (n + k).max(1.0))],
        |_, [_, mean]| mean,
    )
    .unwrap();
    let epilogue = Epilogue::build(|e| {
        e.store("d", e.scalar("z", F32) / e.acc(), F32);
        e.reduce("mean", e.acc(), mean, F32.over(N));
    });
    let plan = Gemm::new(F16, TN, &epilogue.unwrap()).kernel_plan(Target::SM_90A, 132, shape).unwrap();
    let texts = plan.choice.candidates().map(|(tile, raster)| {
        let plan = plan.with_tile(tile, raster, "").unwrap();
        (2 * plan.code.copies > 128, plan.source().unwrap().text().to_owned())
    });
    for (calls, text) in texts {
        assert_eq!(text.contains(" = called_div("), calls);
        if let (Some(function), Some(user)) = (text.find("float called_div("), text.find("struct Own0")) {
            assert!(function < user);
        }
    }
}

/// A launch passes so many bytes and not one more: a block that is exactly full is a kernel, the next scalar is too much.
#[test]
fn a_parameter_block_may_be_full() {
    let plan = |scalars: usize| {
        let epilogue = Epilogue::build(|e| {
            let sum = (0..scalars).fold(e.acc(), |z, i| z + e.scalar(&format!("s{i}"), F32));
            e.store("d", sum, F32);
        });
        Gemm::new(F32, TN, &epilogue.unwrap()).kernel_plan(Target::SM_80, 108, Shape::new(256, 256, 256))
    };
    let most = 2 + (PARAMETER_LIMIT - plan(2).unwrap().params.size) / 4;
    assert_eq!(plan(most).unwrap().params.size, PARAMETER_LIMIT);
    let error = plan(most + 1).unwrap_err();
    assert!(matches!(error, PlanError::Parameters { size } if size > PARAMETER_LIMIT), "{error}");
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

/// In how many parts K is.
fn parts(gemm: &Gemm, target: Target, problem: impl Into<Problem>) -> usize {
    let plan = gemm.kernel_plan(target, 132, problem).unwrap();
    // Parts of a batch, and those of blocks of a cluster.
    plan.split.map_or(plan.tile.parts(), |split| split.parts * split.product.tile.parts())
}

#[test]
fn a_split_that_is_asked_for_takes_the_problem_that_one_piece_takes() {
    let gemm = Gemm::new(F16, TN, &bias_relu(F16));
    let of = |parts: usize, problem: Problem| gemm.clone().split_k(parts).kernel_plan(Target::SM_90A, 132, problem).map(drop);
    let shape = Shape::new(64, 64, 8192);
    for problem in [("a", 2048), ("b", 100), ("x", 8192)].map(|(name, ld)| Problem::from(shape).ld(name, ld)) {
        let [whole, parts] = [1, 4].map(|parts| of(parts, problem.clone()).unwrap_err().to_string());
        assert_eq!(whole, parts);
    }
    assert!(of(4, Problem::from(shape).ld("a", 8200)).is_ok());
}

#[test]
fn a_split_of_k_is_taken_or_suggested_where_tiles_are_few_and_long() {
    let expected = |gemm: &Gemm, target, problem: Problem| {
        let plan = gemm.kernel_plan(target, 132, problem).unwrap();
        let explained = plan.explain();
        let suggested = explained.contains("parts: worth trying with `Gemm::split_k`");
        if let (true, Some(nanoseconds)) = (suggested, plan.choice.nanoseconds()) {
            let microseconds = |words: &str| {
                let (_, behind) = explained.split_once(words).unwrap();
                behind.split(" us").next().unwrap().parse::<f64>().unwrap()
            };
            let (parts, alone) = (microseconds("`Gemm::split_k`: estimated at "), microseconds("in one piece at "));
            assert!(parts < alone && alone >= 0.99 * nanoseconds as f64 / 1e3, "{explained}");
            assert!(alone <= 4.0 * nanoseconds as f64 / 1e3, "{explained}");
        }
        // Measured times decide for `sm90a`; the others' estimates only tell.
        assert!(plan.split.is_none() || (plan.mainloop() == Mainloop::Sm90a && !suggested), "{}", plan.explain());
        suggested || plan.split.is_some_and(|split| split.parts > 1)
    };
    let even = |gemm: &Gemm, shape| expected(gemm, Target::SM_90A, Problem::from(shape));
    let half = Gemm::new(F16, TN, &bias_relu(F16));
    let single = Gemm::new(F32, NT, &bias_relu(F32));
    for [m, n, k] in [[512, 512, 65536], [256, 256, 16384], [768, 768, 16384], [16, 1024, 65536]] {
        for (gemm, target) in [(&half, Target::SM_90A), (&half, Target::SM_80), (&single, Target::SM_90A)] {
            let problem = Problem::new(m, n, k);
            // Blocks of a cluster may share K instead.
            let shared = gemm.kernel_plan(target, 132, problem.clone()).unwrap().tile.parts() > 1;
            assert!(shared || expected(gemm, target, problem.clone()), "{m}x{n}x{k}");
            assert!(!expected(&gemm.clone().split_k(1), target, problem.clone()));
            assert!(!expected(gemm, target, problem.batched(2)), "a batch");
        }
    }
    for [m, n, k] in [[4096, 4096, 4096], [2048, 2048, 16384], [512, 512, 512], [1, 4096, 65536], [256, 256, 0], [0, 256, 65536]]
    {
        assert!(!even(&half, Shape::new(m, n, k)), "{m}x{n}x{k}");
    }
    assert!(!even(&half, Shape::new(256, 256, 16411)), "a prime number of terms");
    assert!(expected(&half, Target::SM_80, Problem::new(256, 256, 16008)), "parts that are no whole blocks");
    let tile = half.kernel_plan(Target::SM_80, 132, Shape::new(256, 256, 16384)).unwrap().tile;
    assert!(!expected(&half.tile(tile), Target::SM_80, Problem::new(256, 256, 16384)), "a tile that was asked for");
}

#[test]
fn parts_of_k_are_as_many_as_were_measured_to_be_fast() {
    // Numbers of parts within a tenth of the fastest on an H200: see docs/measurements/0041-split-k.md.
    let half = Gemm::new(F16, TN, &bias_relu(F16));
    let measured: [([usize; 3], &[usize]); 9] = [
        ([512, 512, 65536], &[8, 16]),
        ([1024, 1024, 32768], &[2, 4]),
        ([256, 256, 16384], &[4, 8]),
        ([2048, 512, 16384], &[2]),
        ([768, 768, 16384], &[4]),
        ([512, 512, 8192], &[2, 4, 8]),
        ([1024, 1024, 8192], &[1, 2]),
        ([2048, 2048, 16384], &[1]),
        ([64, 4096, 32768], &[1, 2, 4, 8]),
    ];
    for ([m, n, k], fast) in measured {
        let chosen = parts(&half, Target::SM_90A, Shape::new(m, n, k));
        assert!(fast.contains(&chosen), "{m}x{n}x{k}: {chosen} parts, where {fast:?} are fast");
    }
}

#[test]
fn a_split_plan_is_a_batch_and_its_sum() {
    let shape = Shape::new(250, 130, 4096);
    for layout in Layout::ALL {
        for (d, order) in [(Operand::from(F16), Order::RowMajor), (F16.column_major(), Order::ColumnMajor)] {
            let epilogue = Epilogue::build(|e| e.store("d", e.acc() * e.load("scale", F32.over(M)), d)).unwrap();
            let gemm = Gemm::new(F16, layout, &epilogue).split_k(8);
            let problem = Problem::from(shape).ld("a", 4104).ld("b", 4112);
            let plan = gemm.kernel_plan(Target::SM_90A, 132, problem).unwrap();
            let split = plan.split.as_ref().unwrap();
            assert_eq!((split.parts, split.shape(shape)), (8, Shape::new(250, 130, 512).batched(8)));
            assert_eq!((plan.tile.mainloop(), plan.mainloop()), (Mainloop::Pointwise, Mainloop::Sm90a));
            // Rows, or columns, of whole 16 bytes, in the order of the output.
            let (ld, outer) = if order == Order::RowMajor { (132, 250) } else { (252, 130) };
            assert_eq!((split.sums.order, split.sums.dtype), (order, F32));
            assert_eq!(split.sums_strides(shape), [ld, ld * outer]);
            assert_eq!((plan.transposed, plan.scratch), (order == Order::ColumnMajor, 8 * ld * outer * 4));
            let across = |contiguous: bool, ld: usize| if contiguous { 512 } else { 512 * ld };
            let distances = [across(layout.a() == Order::RowMajor, 4104), across(layout.b() == Order::ColumnMajor, 4112)];
            assert_eq!(split.distances(shape, [4104, 4112]), Some(distances));
            let [text, product] = [plan.source().unwrap(), split.product.source().unwrap()].map(|s| s.text().to_owned());
            assert!(text.contains("PARTS = 8;") && text.contains("wait_for_earlier_kernels();") && !product.contains("PARTS"));
            assert!(plan.programmatic && !text.contains("{{") && product.contains("wgmma"));
            let explained = plan.explain();
            for part in
                ["K in 8 parts, multiplied by sm90a", "* split of K in 8 parts: it was asked for", "the product of the parts"]
            {
                assert!(explained.contains(part), "`{part}` is missing in\n{explained}");
            }
        }
    }
    // An ordinary pointwise kernel knows nothing of parts.
    let plan = Gemm::pointwise(F32, Order::RowMajor, &bias_relu(F32)).kernel_plan(Target::SM_90A, 132, shape).unwrap();
    assert!(!plan.source().unwrap().text().contains("PARTS") && plan.programmatic);
}

#[test]
fn every_kernel_may_begin_early_where_the_target_can() {
    let shape = Shape::new(250, 136, 96);
    let product = Gemm::new(F16, TN, &bias_relu(F16));
    for (target, able) in [(Target::SM_80, false), (Target::SM_90, true), (Target::SM_90A, true)] {
        for mainloop in [Mainloop::Simt, Mainloop::Sm80, Mainloop::Gemv] {
            let plan = product.clone().mainloop(mainloop).kernel_plan(target, 132, shape).unwrap();
            assert_eq!(plan.programmatic, able, "{target} {mainloop:?}");
            let text = plan.source().unwrap().text().to_owned();
            assert!(text.contains("let_next_kernel_start();") && text.contains("wait_for_earlier_kernels();"));
        }
    }
}

#[test]
fn an_impossible_split_is_refused_with_its_reason() {
    let gemm = Gemm::new(F16, TN, &bias_relu(F16));
    let refused =
        |gemm: &Gemm, parts: usize, problem: Problem| match gemm.clone().split_k(parts).kernel_plan(Target::SM_90A, 132, problem)
        {
            Err(PlanError::Split { parts: asked, why }) if asked == parts => why,
            other => panic!("{other:?}"),
        };
    assert!(refused(&gemm, 3, Problem::new(64, 64, 64)).contains("parts of 64 K elements"));
    assert!(refused(&gemm, 16, Problem::new(64, 64, 64)).contains("multiples of 8"));
    assert!(refused(&gemm, 65, Problem::new(64, 64, 65 * 64)).contains("64 are the most"));
    assert!(refused(&gemm, 2, Problem::new(64, 64, 64).batched(3)).contains("a batch of 3"));
    assert!(refused(&gemm, 2, Problem::new(64, 0, 64)).contains("nothing to add up"));
    assert!(refused(&gemm, 2, Problem::new(64, 64, 0)).contains("nothing to add up"));
    let pointwise = Gemm::pointwise(F16, Order::RowMajor, &bias_relu(F16));
    assert!(refused(&pointwise, 2, Problem::new(64, 64, 64)).contains("no product"));
    assert_eq!(parts(&gemm.clone().split_k(8), Target::SM_90A, Shape::new(64, 64, 64)), 8);
    let plan = gemm.kernel_plan(Target::SM_90A, 132, Shape::new(1024, 1024, 8192)).unwrap();
    assert!(plan.explain().contains("parts: not worth it: estimated at "), "what was considered is told\n{}", plan.explain());
}

/// A tensor map writes whole pieces of 16 bytes: kernels have another way out only where lines may end inside of one.
#[test]
fn whole_outputs_leave_by_tensor_map_alone() {
    let gemm = Gemm::new(F16, TN, &bias_relu(F16));
    let ways = |problem: Problem| {
        let plan = gemm.kernel_plan(Target::SM_90A, 132, problem).unwrap();
        let source = plan.source().unwrap();
        let drain = source.text().split("DEVICE void drain_chunk").nth(1).unwrap().split("\n}").next().unwrap();
        (drain.contains("tma_store_if"), drain.contains("copy_out"))
    };
    let wide = |n| Problem::new(8192, n, 512).ld("d", 1024);
    assert_eq!(ways(Problem::new(8192, 1000, 512)), (true, false));
    assert_eq!(ways(wide(1004)), (true, true));
    assert_eq!(ways(wide(1001)), (true, true));
    assert_eq!(ways(Problem::new(8192, 1000, 512).ld("d", 1004)), (false, true));
    assert_eq!(ways(Problem::new(8192, 1000, 512).align("d", 8)), (false, true));
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

/// The identity over sums of a format.
fn identity_of(dtype: DType) -> Epilogue {
    let floats = dtype.value_type().is_float();
    Epilogue::build(|e| if floats { e.store("d", e.acc(), dtype) } else { e.store("d", e.acc_i32(), dtype) }).unwrap()
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
        assert_eq!(plan.program.stages.len(), 2, "the largest, then the sum of exponentials");
        let said = if held { "memory is read once" } else { "each is read 3 times" };
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

/// Which convolutions have mainloops of their own.
#[test]
fn convolutions_of_few_channels_have_mainloops() {
    let identity = recipes::identity(F16).unwrap();
    let base = ConvShape::new(8, [56, 56, 64], [64, 3, 3]).padding([1, 1]);
    let cases = [
        (base, Mainloop::Sm90a),
        (ConvShape { channels: 3, ..base }, Mainloop::Bands),
        (ConvShape { channels: 16, ..base }, Mainloop::Bands),
        (ConvShape { channels: 20, ..base }, Mainloop::Sm80),
        (ConvShape { channels: 3, ..base }.dilation([1, 2]), Mainloop::Sm80),
        (base.groups(64), Mainloop::Depthwise),
        (ConvShape { filters: 128, ..base }.groups(64), Mainloop::Sm80),
        (ConvShape { window: [3, 11], ..base }.groups(64), Mainloop::Sm80),
    ];
    for (shape, mainloop) in cases {
        let conv = Conv::new(F16, shape, &identity).unwrap();
        let plan = conv.kernel_plan(Target::SM_90A, 132).unwrap();
        assert_eq!(plan.mainloop(), mainloop, "{shape}: {}", plan.explain());
    }
}

/// Which gradients of filters have mainloops of their own, and that these split K themselves or in parts.
#[test]
fn gradients_of_few_channels_have_mainloops() {
    let wide = recipes::identity(F32).unwrap();
    let summed = Epilogue::build(|e| {
        e.store("d", e.acc(), F32);
        e.reduce("bias", e.a(), Monoid::Sum, F32.over(M | L));
    })
    .unwrap();
    let base = ConvShape::new(8, [56, 56, 64], [64, 3, 3]).padding([1, 1]);
    let cases = [
        (base, &wide, Mainloop::Sm90a),
        (base.groups(64), &wide, Mainloop::DepthwiseFilters),
        (base.groups(64), &summed, Mainloop::Sm80),
        (ConvShape { filters: 128, ..base }.groups(64), &wide, Mainloop::Sm80),
        (ConvShape { channels: 3, ..base }, &wide, Mainloop::BandsFilters),
        (ConvShape { channels: 3, ..base }, &summed, Mainloop::Sm80),
        (ConvShape { channels: 3, filters: 60, ..base }, &wide, Mainloop::Sm80),
        (ConvShape { channels: 16, ..base }, &wide, Mainloop::Sm80),
    ];
    for (shape, epilogue, mainloop) in cases {
        let conv = Conv::filter_gradient(F16, shape, epilogue).unwrap();
        let plan = conv.kernel_plan(Target::SM_90A, 132).unwrap();
        assert_eq!(plan.mainloop(), mainloop, "{shape}: {}", plan.explain());
        // Blocks that share K add their sums up in one kernel. Other mainloops take two.
        let few = mainloop == Mainloop::BandsFilters;
        assert!(!few || plan.split.as_ref().is_some_and(|split| split.parts > 16), "{shape}: {}", plan.explain());
    }
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
        (Shape::matrix(110, 257).batched(528), 1, "is read 3 times"),
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

/// Bands of columns are tiles of their own; those that no block has all of become bands of a single row.
#[test]
fn bands_are_tiles() {
    let plan = |columns: usize, shape: Shape| {
        let epilogue = recipes::group_norm(columns, recipes::Norm::default(), F16).unwrap();
        Gemm::pointwise(F16, Order::RowMajor, &epilogue).kernel_plan(Target::SM_90A, 132, shape).unwrap()
    };
    for columns in [2, 8, 10, 20, 30, 40, 60, 80] {
        let plan = plan(columns, Shape::matrix(8 * 8, 32 * columns));
        assert!(plan.before.is_empty() && plan.tile.bn.is_multiple_of(columns), "{}", plan.explain());
        assert!(plan.explain().contains(&format!("in bands of {columns} columns")), "{}", plan.explain());
    }
    let large = plan(40, Shape::matrix(512 * 512, 1280));
    assert_eq!(large.before.len(), 2, "both moments of columns, and of bands of them: {}", large.explain());
    let instances = plan(1, Shape::matrix(256 * 256, 64).batched(8));
    assert_eq!(instances.before.len(), 1, "both moments at once: {}", instances.explain());
    // Neighbouring groups share the blocks of a cluster, so that lanes read whole sectors.
    let narrow = plan(10, Shape::matrix(64 * 64, 320).batched(16));
    assert!(narrow.before.is_empty() && narrow.mainloop() == Mainloop::Groups, "{}", narrow.explain());
    assert!(narrow.tile.bn.is_multiple_of(80) && narrow.tile.cluster() == 8, "{}", narrow.explain());
    // Tiles are tall, as are those of sums down the columns.
    for plan in [&large.before[0], &large, &instances.before[0]] {
        assert!(plan.tile.bm >= 256 && plan.mainloop() == Mainloop::Pointwise, "{}", plan.explain());
    }
    // Heads of a row.
    let heads = Epilogue::build(|e| {
        let rstd = (e.acc().mean_square_over(N.bands(128)) + 1e-6).rsqrt();
        e.store("d", e.acc() * rstd * e.load("weight", F16.over(N)), F16);
    });
    let heads = Gemm::pointwise(F16, Order::RowMajor, &heads.unwrap());
    let plan = heads.kernel_plan(Target::SM_90A, 132, Shape::matrix(8192, 4096)).unwrap();
    assert!(plan.tile.bn == 128 && plan.explain().contains("memory is read once"), "{}", plan.explain());
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

/// What undoes itself is gone before a kernel is planned.
#[test]
fn what_undoes_itself_costs_nothing() {
    let steps = |build: fn(Expr<'_>) -> Expr<'_>| {
        let epilogue = Epilogue::build(|e| e.store("d", build(e.acc()), F32)).unwrap();
        Gemm::new(F16, TN, &epilogue).kernel_plan(Target::SM_80, 108, Shape::new(64, 64, 64)).unwrap().program.steps.len()
    };
    assert_eq!(steps(|z| -(-z)), steps(|z| z));
    assert_eq!(steps(|z| (!!z.gt(0.5)).select(z, 0.0)), steps(|z| z.gt(0.5).select(z, 0.0)));
    assert_eq!(steps(|z| (-(-(-z))).exp()), steps(|z| (-z).exp()));
    assert!(steps(|z| -z) > steps(|z| z));
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

/// A kernel of a pool knows the images and the window.
#[test]
fn pools_say_what_they_measure() {
    let shape = ConvShape::windows(2, [19, 12, 32], [3, 2]).stride([2, 3]).padding_of([1, 0, 1, 0]).dilation([2, 1]);
    for (kind, largest, padding) in [(PoolKind::Max, 1, 0), (PoolKind::AverageOfTaps, 0, 1), (PoolKind::Average, 0, 0)] {
        let pooling = Pooling::new(kind, shape).unwrap();
        let epilogue = Epilogue::build(|e| e.store("d", e.acc(), F16)).unwrap();
        let gemm = Gemm::pool(F16, pooling, &epilogue);
        let plan = gemm.kernel_plan(Target::SM_80, 108, pooling.shape()).unwrap();
        let source = plan.source().unwrap();
        // (19 + 1 - 5) / 2 + 1 rows, (12 + 1 - 2) / 3 + 1 columns.
        for (name, number) in [
            ("IMAGE_HEIGHT", 19),
            ("IMAGE_WIDTH", 12),
            ("OUTPUT_PIXELS", 32),
            ("OUTPUT_WIDTH", 4),
            ("WINDOW_HEIGHT", 3),
            ("WINDOW_WIDTH", 2),
            ("STRIDE_Y", 2),
            ("STRIDE_X", 3),
            ("ABOVE", 1),
            ("LEFT", 1),
            ("DILATION_Y", 2),
            ("DILATION_X", 1),
            ("TAKES_LARGEST", largest),
            ("COUNTS_PADDING", padding),
        ] {
            assert!(source.text().contains(&format!("constexpr int {name} = {number};")), "{kind:?}: {name} is not {number}");
        }
    }
}

/// A kernel has the parts of its operation, and none of others.
#[test]
fn kernels_have_the_parts_that_they_need() {
    const PARTS: [&str; 10] = [
        "Patches A;",
        "GatheredB B;",
        "A.skip(p.lda, channels.begin);",
        "has_column(p, channels",
        "is_pixel(int position, int spread, int extent)",
        "Residue(p, tile.row)",
        "struct NibblePairs",
        "struct BytePairs",
        "Pairs<f16, e5m2>",
        "struct int8 { u8 bits; };",
    ];
    let kernel = |gemm: &Gemm, target: Target, problem: Problem| {
        let plan = gemm.kernel_plan(target, 108, problem).unwrap();
        let source = plan.product().source().unwrap();
        (0..PARTS.len()).filter(|part| source.text().contains(PARTS[*part])).collect::<Vec<_>>()
    };
    let identity = recipes::identity(F16).unwrap();
    let summed = Epilogue::build(|e| {
        e.store("d", e.acc(), F16);
        e.reduce("sums", e.acc(), Monoid::Sum, F32.over(M));
        e.reduce("largest", e.acc(), Monoid::ArgMax, I32.over(N));
    })
    .unwrap();
    let shape = ConvShape::new(2, [16, 16, 64], [64, 3, 3]).padding([1, 1]);
    let of = |conv: Conv| kernel(conv.gemm(), Target::SM_80, conv.problem());
    assert_eq!(of(Conv::new(F16, shape, &identity).unwrap()), [0]);
    assert_eq!(of(Conv::new(F16, shape.groups(4), &identity).unwrap()), [0, 1]);
    assert_eq!(of(Conv::data_gradient(F16, shape.groups(4), &identity).unwrap()), [0, 1, 3]);
    assert_eq!(of(Conv::data_gradient(F16, shape, &identity).unwrap()), [0, 1]);
    assert_eq!(of(Conv::data_gradient(F16, shape.stride([2, 2]), &identity).unwrap()), [0, 1, 5]);
    assert_eq!(of(Conv::data_gradient(F16, shape.stride([2, 2]), &summed).unwrap()), [0, 1, 4], "rows in order");
    assert_eq!(of(Conv::filter_gradient(F16, shape, &identity).unwrap()), [1, 2]);
    let widened = |other: DType| kernel(&Gemm::mixed(F16, other, TN, &identity), Target::SM_80, Problem::new(4, 4096, 4096));
    assert_eq!((widened(I4), widened(U4)), (vec![6, 9], vec![6, 9]));
    assert_eq!((widened(I8), widened(U8)), (vec![7, 9], vec![7, 9]));
    assert_eq!(widened(E5M2), [8, 9]);
    assert!(kernel(&Gemm::new(F16, TN, &identity), Target::SM_80, Problem::new(64, 64, 64)).is_empty());
    // Numbers of eight bits come from A, from an argument, or from the epilogue itself.
    let read = Epilogue::build(|e| e.store("d", e.acc() + e.load("c", E4M3), F16)).unwrap();
    let rounded = Epilogue::build(|e| e.store("d", e.acc().quantize(E4M3, 0.5, 0.0), F16)).unwrap();
    for epilogue in [&read, &rounded] {
        assert_eq!(kernel(&Gemm::new(F16, TN, epilogue), Target::SM_80, Problem::new(64, 64, 64)), [9]);
    }
}

/// Arguments of the epilogue lie behind the operands, and those of a function of scores behind keys and values.
#[test]
fn arguments_have_slots() {
    let scores = Scores::build(|s| s.acc() * s.load("slope", F32.over(L)) + s.load("bias", F16)).unwrap();
    let epilogue = Epilogue::build(|e| e.store("d", e.acc() * e.scalar("scale", F32) + e.load("c", F16), F16)).unwrap();
    let gemm = Gemm::attention(F16, Attention::new(64).scores(&scores), &epilogue);
    let shape = Shape::new(256, 64, 256).batched(2);
    let plan = gemm.kernel_plan(Target::SM_80, 108, shape).unwrap();
    let slots = slots(plan.operation, epilogue.checked(), shape);
    let operands = slots.len() - plan.arguments.len();
    let names: Vec<&str> = plan.all_arguments().map(|argument| &*argument.name).collect();
    assert_eq!(names.len(), plan.arguments.len() + 2);
    for (argument, name) in names.into_iter().enumerate() {
        assert_eq!(&*slots[plan.slot_of(argument, operands)].name, name);
    }
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
