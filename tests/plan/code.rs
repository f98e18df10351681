//! The code of a kernel: branches, calls, loads, stores, and the parts of the templates that it has.

use super::monoids::mean;
use super::*;

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

#[test]
fn a_kernel_reads_the_operand_early_that_is_constant() {
    let gemm = Gemm::new(F16, TN, &recipes::identity(F16).unwrap());
    for constant in [&[][..], &[Side::A], &[Side::B], &[Side::A, Side::B]] {
        let text = hopper_text(&gemm.clone().constant_operands(constant.iter().copied()));
        let [a, b] = [Side::A, Side::B].map(|side| constant.contains(&side));
        assert!(text.contains(&format!("CONSTANT_A = {a}, CONSTANT_B = {b};")), "{constant:?}");
    }
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

    let epilogue = Epilogue::build(|e| {
        e.store("d", e.scalar("z", F32) / e.acc(), F32);
        e.reduce("mean", e.acc(), mean(), F32.over(N));
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
