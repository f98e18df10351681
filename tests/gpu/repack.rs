//! Unaligned operands of Hopper's mainloop: copied into aligned rows first.

use crate::case::Case;
use postlude::build::recipes;
use postlude::plan::{Mainloop, Problem};
use postlude::prelude::*;
use postlude::target::Target;
use postlude::{DType, Gemm};

fn gemm(dtype: DType, layout: Layout) -> Gemm {
    Gemm::new(dtype, layout, &recipes::residual(dtype, dtype, |z| z.relu()).unwrap()).mainloop(Mainloop::Sm90a)
}

/// Elements of a row of `a` and of `b`.
fn rows(layout: Layout, shape: Shape) -> [usize; 2] {
    let a = if layout == TN || layout == TT { shape.k } else { shape.m };
    let b = if layout == TT || layout == NT { shape.n } else { shape.k };
    [a, b]
}

#[test]
fn every_alignment_of_either_operand() {
    let shape = Shape::new(136, 200, 264);
    for layout in Layout::ALL {
        let [row_a, row_b] = rows(layout, shape);
        for at in 0..8 {
            let case = Case::new(&gemm(F16, layout), shape);
            case.clone().offset("a", at).ld("a", row_a + at).run();
            case.clone().offset("b", at).ld("b", row_b + at).run();
            case.offset("a", at).offset("b", 7 - at).ld("a", row_a + 8).ld("b", row_b + 2 * at + 1).run();
        }
    }
}

#[test]
fn ragged_extents() {
    for layout in Layout::ALL {
        for dtype in [F16, BF16] {
            for [m, n, k] in [[1, 1, 1], [1, 9, 3], [129, 7, 17], [130, 258, 31], [255, 65, 1021], [513, 771, 77], [33, 500, 0]] {
                Case::new(&gemm(dtype, layout), Shape::new(m, n, k)).offset("a", 1).offset("b", 3).run();
            }
        }
    }
}

#[test]
fn batches_lie_anywhere() {
    for layout in Layout::ALL {
        let shape = Shape::new(70, 130, 90).batched(5);
        let [row_a, row_b] = rows(layout, shape);
        let case = Case::new(&gemm(F16, layout), shape).offset("a", 5).ld("a", row_a + 3).ld("b", row_b + 1);
        case.clone().run();
        case.clone().batch_stride("a", 131 * (row_a + 3) + 1).batch_stride("b", 131 * (row_b + 1) + 13).run();
        case.batch_stride("a", 0).batch_stride("b", 0).run();
    }
}

#[test]
fn the_plan_says_so() {
    let plan = gemm(F16, TN).kernel_plan(Target::SM_90A, 132, Shape::new(300, 500, 101)).unwrap();
    let repack = plan.repack.expect("rows of 101 elements are not aligned");
    assert_eq!(repack.operands, [true, true]);
    assert_eq!(plan.scratch, (300 + 500) * 128 * 2);
    let explained = plan.explain();
    assert!(
        explained.contains(&format!("copies        a and b into aligned rows before the kernel, {} bytes", plan.scratch)),
        "{explained}"
    );
    let one = gemm(F16, TN).kernel_plan(Target::SM_90A, 132, Problem::new(300, 500, 128).align("b", 2)).unwrap();
    assert_eq!(one.repack.map(|r| r.operands.iter().filter(|copied| **copied).count()), Some(1));
    assert!(gemm(F16, TN).kernel_plan(Target::SM_90A, 132, Shape::new(300, 500, 128)).unwrap().repack.is_none());
}

#[test]
fn only_where_it_pays() {
    let free = Gemm::new(F16, TN, &recipes::identity(F16).unwrap());
    let mainloop = |m, n, k| free.kernel_plan(Target::SM_90A, 132, Shape::new(m, n, k)).unwrap().tile.mainloop();
    assert_eq!(mainloop(4095, 4097, 4099), Mainloop::Sm90a);
    assert_eq!(mainloop(253, 255, 257), Mainloop::Sm90a, "odd rows are the other mainloop's weakness");
    assert_eq!(mainloop(4100, 4100, 4100), Mainloop::Sm90a);
    assert_eq!(mainloop(516, 516, 516), Mainloop::Sm80, "rows of 8 bytes it copies well");
    assert_eq!(mainloop(60, 4100, 4100), Mainloop::Sm80, "reading the operands once is nearly all there is to do");
}
