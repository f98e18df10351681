//! K in parts: when it is split, into how many parts, and what the plan then consists of.

use super::*;

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
