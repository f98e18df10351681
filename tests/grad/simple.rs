//! Simple epilogues have simple derivatives.

use postlude::build::recipes;
use postlude::grad::Wrt;
use postlude::prelude::*;

fn listing(epilogue: &Epilogue) -> String {
    epilogue.to_string()
}

#[test]
fn a_bias_needs_nothing() {
    let pair = recipes::bias_activation(F16, F16, |z| z).unwrap().backward(Wrt::all()).unwrap();
    assert!(pair.reserve().is_empty());
    assert_eq!(*pair.forward(), recipes::bias_activation(F16, F16, |z| z).unwrap());
    let expected = "\
%0: f32[M,N,L] = acc f32
store \"grad_acc\" f16[M,N,L], %0
reduce \"grad_bias\" sum f16[N], %0
";
    assert_eq!(listing(pair.backward()), expected);
}

#[test]
fn relu_is_a_masked_select() {
    let pair = recipes::bias_activation(F16, F16, |z| z.relu()).unwrap().backward(Wrt::all()).unwrap();
    let mask = &pair.reserve().values()[0].name;
    let expected = format!(
        "\
%0: f32[M,N,L] = acc f32
%1: bool[M,N,L] = load \"{mask}\" bits8[M,N,L]
%2: f32[] = const f32 0.0
%3: f32[M,N,L] = select %1, %0, %2
store \"grad_acc\" f16[M,N,L], %3
reduce \"grad_bias\" sum f16[N], %3
"
    );
    let listed = listing(pair.backward());
    let sorted = |text: &str| {
        let mut lines: Vec<String> = text.lines().map(|l| l.split_once(" = ").map_or(l, |(_, r)| r).to_owned()).collect();
        lines.sort();
        lines.len()
    };
    assert_eq!(sorted(&listed), sorted(&expected), "{listed}");
    assert!(listed.contains("select") && !listed.contains("add") && !listed.contains("mul"), "{listed}");
    assert!(pair.forward().to_string().contains("gt "), "{}", pair.forward());
}

#[test]
fn an_ignored_accumulator_has_zero_gradient() {
    let epilogue = Epilogue::build(|e| e.store("d", e.load("x", F32) * 2.0, F32)).unwrap();
    let pair = epilogue.backward(Wrt::all()).unwrap();
    let text = listing(pair.backward());
    assert!(text.contains("const f32 0.0") && text.contains("store \"grad_acc\" f32[M,N,L]"), "{text}");
}

#[test]
fn a_region_of_the_forward_pass_is_one_of_the_backward_pass() {
    let pair = recipes::split_rows(F16, F16, |z| z.sigmoid(), |z| z.tanh()).unwrap().backward(Wrt::all()).unwrap();
    let text = listing(pair.backward());
    assert_eq!(text.matches("select").count(), 1, "{text}");
    let select = text.lines().find(|l| l.contains("select")).unwrap();
    let condition = select.split("select ").nth(1).unwrap().split(',').next().unwrap();
    let line = text.lines().find(|l| l.starts_with(&format!("{condition}:"))).unwrap();
    assert!(line.starts_with(&format!("{condition}: bool[M] = lt ")), "{text}");
}

#[test]
fn what_regions_share_stays_in_the_regions() {
    // Both arms are made of max(z, 0): its gradient is masked in each of them, and no arm computes the other's.
    let epilogue = Epilogue::build(|e| {
        let z = e.acc();
        e.store("d", z.region(e.row().lt(e.scalar("split", I32)), |z| z.max(0.0) * z).otherwise(|z| z.max(0.0).tanh()), F16);
    });
    let text = listing(epilogue.unwrap().backward(Wrt::all()).unwrap().backward());
    let stored = text.lines().find(|l| l.starts_with("store \"grad_acc\"")).unwrap().rsplit(' ').next().unwrap();
    let outermost = text.lines().find(|l| l.starts_with(&format!("{stored}:"))).unwrap();
    let condition = outermost.split("select ").nth(1).unwrap().split(',').next().unwrap();
    assert!(text.contains(&format!("{condition}: bool[M] = lt ")), "{text}");
    assert_eq!(text.matches(&format!("select {condition},")).count(), 1, "{text}");
}

#[test]
fn a_kernel_branches_where_the_forward_one_does() {
    let epilogue = recipes::split_rows(F16, F16, |z| z.gelu(), |z| z.mish()).unwrap();
    let pair = epilogue.backward(Wrt::accumulator()).unwrap();
    let branches = |epilogue: &Epilogue| {
        let plan =
            Gemm::new(F16, TN, epilogue).kernel_plan(postlude::target::Target::SM_90A, 132, Shape::new(256, 256, 64)).unwrap();
        let branch = |item: &postlude::plan::Item| matches!(item, postlude::plan::Item::Branch { .. });
        plan.program.visit.iter().filter(|i| branch(i)).count()
    };
    // Without a mask to save both halves are kernels today.
    assert_eq!(pair.reserve().bits_per_element(), 16);
    assert_eq!((branches(&epilogue), branches(pair.forward()), branches(pair.backward())), (1, 1, 1));
}

#[test]
fn what_only_a_condition_depends_on_has_zero_gradient() {
    let epilogue = Epilogue::build(|e| e.store("d", e.acc().gt(e.load("limit", F32.over(N))).select(e.acc(), 0.0), F32));
    let pair = epilogue.unwrap().backward(Wrt::all()).unwrap();
    let text = listing(pair.backward());
    let zero = text.lines().find(|l| l.ends_with("const f32 0.0")).unwrap().split(':').next().unwrap();
    assert!(text.contains(&format!("reduce \"grad_limit\" sum f32[N], {zero}")), "{text}");
    assert_eq!(pair.reserve().bits_per_element(), 1);
}

/// Each pair of selects doubles the ways through the graph, but not its nodes.
#[test]
fn a_network_of_conditional_swaps_takes_no_longer_than_it_is() {
    let epilogue = Epilogue::build(|e| {
        let (mut u, mut v) = (e.acc(), e.acc() + 1.0);
        for i in 0..48 {
            let swap = e.row().lt(e.scalar(&format!("s{i}"), I32));
            (u, v) = (swap.select(u, v), swap.select(v, u));
        }
        e.store("u", u, F32);
        e.store("v", v * 2.0, F32);
    });
    let pair = epilogue.unwrap().backward(Wrt::all().through("u")).unwrap();
    assert!(pair.backward().graph().len() < 1000, "{} nodes", pair.backward().graph().len());
}

/// A product that two values need is computed once, and so is one that is the same in every row: neither is fused.
#[test]
fn what_is_computed_once_is_not_fused() {
    let twice = Epilogue::build(|e| {
        let product = e.load("r", F32) * e.load("s", F32);
        e.store("d", e.acc() * (product + e.load("t", F32)) * product, F32);
    });
    let narrow = Epilogue::build(|e| {
        let product = e.load("r", F32.over(N)) * e.load("s", F32.over(N));
        e.store("d", e.acc() * (product + e.load("t", F32)), F32);
    });
    for epilogue in [twice, narrow] {
        let text = listing(epilogue.unwrap().backward(Wrt::accumulator()).unwrap().backward());
        assert!(!text.contains("fma "), "{text}");
    }
}

/// Where as many outputs lie by columns as by rows, the gradient lies by rows.
#[test]
fn the_gradient_of_the_accumulator_lies_as_most_outputs_do() {
    let (row, column) = (Operand::from(F16), Operand::from(F16).column_major());
    let cases: [(&[Operand], Order); 3] =
        [(&[column, row], Order::RowMajor), (&[column, column, row], Order::ColumnMajor), (&[column, row, row], Order::RowMajor)];
    for (outputs, expected) in cases {
        let epilogue = Epilogue::build(|e| {
            let names = ["d", "y", "z"].into_iter().zip(outputs);
            names.for_each(|(name, operand)| e.store(name, e.acc().relu(), *operand));
        });
        let pair = epilogue.unwrap().backward(Wrt::accumulator()).unwrap();
        let (_, argument) = pair.backward().checked().argument("grad_acc").unwrap();
        assert_eq!(argument.role.operand().unwrap().order, expected, "{}", outputs.len());
    }
}

/// One region and a factor of both arms are a product of a region: it is computed once.
#[test]
fn what_one_region_is_multiplied_by_stays_outside() {
    let epilogue = Epilogue::build(|e| {
        let z = e.acc().tanh();
        e.store("d", z.region(e.row().lt(3), |z| z.sin()).otherwise(|z| z * z), F16);
    });
    let text = listing(epilogue.unwrap().backward(Wrt::accumulator()).unwrap().backward());
    let stored = text.lines().find(|l| l.starts_with("store \"grad_acc\"")).unwrap().rsplit(' ').next().unwrap();
    let outermost = text.lines().find(|l| l.starts_with(&format!("{stored}:"))).unwrap();
    assert!(outermost.contains("= mul "), "{text}");
}
