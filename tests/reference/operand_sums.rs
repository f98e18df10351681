//! Sums of the product's operands over K against plain loops: every layout, batches, leading dimensions, onto what is there.

use crate::support::{Numbers, POINTWISE};
use postlude::args::{ArgumentError, ArgumentErrors, ArgumentFault, IntoTensor, Misfit};
use postlude::ir::{Order, Side};
use postlude::pass::transpose;
use postlude::prelude::*;
use postlude::reference::{Precision, oracle, run};
use postlude::{HostArgs, Operation};

/// Of both operands, shared by the batch and not, one onto what is there.
fn named() -> Epilogue {
    Epilogue::build(|e| {
        e.store("d", e.acc(), F32);
        e.reduce("of_a", e.a(), Monoid::Sum, F32.over(M));
        e.reduce("each_b", e.b(), Monoid::Sum.atomic(), F32.over(N).batched());
        e.reduce("onto", e.b(), Monoid::Sum.accumulate(), F16.over(N));
    })
    .unwrap()
}

#[test]
fn every_layout_is_plain_loops() {
    let epilogue = named();
    for (layout, (m, n, k, batch)) in Layout::ALL
        .into_iter()
        .flat_map(|layout| [(3, 5, 7, 2), (131, 260, 9, 1), (2, 3, 0, 2), (0, 3, 4, 1)].map(|s| (layout, s)))
    {
        let shape = Shape::new(m, n, k).batched(batch);
        let mut numbers = Numbers(9);
        let (row_a, row_b) = (layout.a() == Order::RowMajor, layout.b() == Order::RowMajor);
        // Two elements more than a line has.
        let (lda, ldb) = (if row_a { k } else { m } + 2, if row_b { n } else { k } + 2);
        let (lines_a, lines_b) = (if row_a { m } else { k }, if row_b { k } else { n });
        let mut fill = |count: usize| (0..count + 4).map(|_| numbers.between(-2.0, 2.0) as f32).collect::<Vec<f32>>();
        let (a, b) = (fill(batch * lines_a * lda), fill(batch * lines_b * ldb));
        let at_a = |l: usize, i: usize, x: usize| a[l * lines_a * lda + if row_a { i * lda + x } else { x * lda + i }];
        let at_b = |l: usize, x: usize, j: usize| b[l * lines_b * ldb + if row_b { x * ldb + j } else { j * ldb + x }];
        let (mut d, mut of_a, mut each_b) = (vec![f32::NAN; batch * m * n], vec![f32::NAN; m], vec![f32::NAN; batch * n]);
        let mut onto = vec![half::f16::from_f32(0.5); n];
        let operands =
            HostArgs::new().input("a", a.ld(lda).batch_stride(lines_a * lda)).input("b", b.ld(ldb).batch_stride(lines_b * ldb));
        let args = operands.output("d", &mut d).output("of_a", &mut of_a).output("each_b", &mut each_b).output("onto", &mut onto);
        run(Operation::Product { dtype: F32, layout }, epilogue.checked(), shape, args, Precision::F32).unwrap();

        // Where there is no output there is no product.
        let terms = if shape.is_empty() { 0 } else { k };
        let sum_b = |l: usize, j: usize| (0..terms).map(|x| f64::from(at_b(l, x, j))).sum::<f64>();
        for (i, found) in of_a.iter().enumerate() {
            let expected =
                (0..batch).flat_map(|l| (0..terms).map(move |x| (l, x))).map(|(l, x)| f64::from(at_a(l, i, x))).sum::<f64>();
            assert_eq!(*found, expected as f32, "{layout} {shape} row {i}");
        }
        for (at, found) in each_b.iter().enumerate() {
            assert_eq!(*found, sum_b(at / n, at % n) as f32, "{layout} {shape} entry and column {at}");
        }
        for (j, found) in onto.iter().enumerate() {
            let expected = 0.5 + (0..batch).map(|l| sum_b(l, j)).sum::<f64>();
            assert_eq!(*found, half::f16::from_f64(expected), "{layout} {shape} column {j}");
        }
    }
}

#[test]
fn integers_wrap_and_magnitudes_are_those_of_the_terms() {
    let epilogue = Epilogue::build(|e| e.reduce("sums", e.a_i32(), Monoid::Sum, I32.over(M))).unwrap();
    let (a, b, mut sums) = ([i32::MAX, 3, -5, 7], [1i32, 1], [0i32; 2]);
    let args = HostArgs::new().input("a", &a).input("b", &b).output("sums", &mut sums);
    run(Operation::Product { dtype: I32, layout: TT }, epilogue.checked(), Shape::new(2, 1, 2), args, Precision::F32).unwrap();
    assert_eq!(sums, [i32::MAX.wrapping_add(3), 2]);

    let epilogue = Epilogue::build(|e| e.reduce("sums", e.b(), Monoid::Sum, F32.over(N))).unwrap();
    let (a, b, mut sums) = ([1.0f32, 1.0], [1.0f32, -2.0, -3.0, 4.0], [0.0f32; 2]);
    let args = HostArgs::new().input("a", &a).input("b", &b).output("sums", &mut sums);
    let exact = oracle(Operation::Product { dtype: F32, layout: TT }, epilogue.checked(), Shape::new(1, 2, 2), &args).unwrap();
    assert_eq!((&exact.outputs[0].values, &exact.sums[0].values), (&vec![-2.0, 2.0], &vec![4.0, 6.0]));
}

#[test]
fn the_transposed_problem_sums_the_other_operand() {
    let text = transpose(named().checked()).graph().clone();
    let text = Epilogue::from_graph(text).unwrap().to_string();
    assert!(text.contains("= b f32") && text.contains("reduce \"of_a\" sum f32[N]"), "{text}");
    assert!(text.contains("= a f32") && text.contains("reduce \"each_b\" sum atomic f32[M,L]"), "{text}");
    assert_eq!(*transpose(&transpose(named().checked())).graph(), *named().graph());
}

#[test]
fn a_pointwise_operation_has_no_operands_to_sum() {
    let epilogue = Epilogue::build(|e| e.reduce("sums", e.b(), Monoid::Sum, F32.over(N))).unwrap();
    let mut sums = [0.0f32; 2];
    let args = HostArgs::new().input("a", &[0.0f32; 4]).output("sums", &mut sums);
    let ArgumentErrors(errors) = run(POINTWISE, epilogue.checked(), Shape::new(2, 2, 0), args, Precision::F32).unwrap_err();
    assert_eq!(errors, [ArgumentError { name: "b".into(), fault: ArgumentFault::Misfit(Misfit::NoProduct { side: Side::B }) }]);
    assert!(errors[0].to_string().contains("reduce `acc()` instead"), "{}", errors[0]);
}
