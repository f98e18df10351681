//! Sums of the product's operands over K, inside the product: every mainloop and layout, ragged extents and empty ones, batches,
//! copies of unaligned operands, every tile of Hopper; twice the same bits.

use crate::case::Case;
use crate::reductions::run_all;
use crate::rig::rig;
use postlude::plan::{Mainloop, Schedule, Tile, TileShape};
use postlude::prelude::*;
use postlude::target::Target;
use postlude::{DType, Epilogue, Gemm};

/// Many tiles and parts, ragged; one tile; entries; tiny; a few K elements more or fewer than a block; long and narrow.
const SHAPES: [Shape; 8] = [
    Shape::new(2312, 1544, 328),
    Shape::new(24, 40, 16),
    Shape::new(136, 200, 1032).batched(3),
    Shape::new(1, 1, 8),
    Shape::new(264, 136, 65),
    Shape::new(77, 131, 63),
    Shape::new(40, 4104, 136),
    Shape::new(3000, 8, 200),
];

/// The gradients of a weight and of its bias.
fn bias_gradient() -> Epilogue {
    Epilogue::build(|e| {
        e.store("dw", e.acc(), F16);
        e.reduce("db", e.b(), Monoid::Sum, F32.over(N));
    })
    .unwrap()
}

/// Sums of both operands, in several formats, beside reductions of the output and matrices that are read.
fn everything() -> Epilogue {
    Epilogue::build(|e| {
        let z = e.acc() + e.load("bias", F16.over(N));
        e.store("d", z + e.load("c", BF16.column_major()), F32);
        e.reduce("columns", z, Monoid::Sum, F32.over(N));
        e.reduce("amax", z, Monoid::AbsMax, F32.pointer());
        e.reduce("of_a", e.a(), Monoid::Sum, F32.over(M));
        e.reduce("of_b", e.b(), Monoid::Sum, F32.over(N));
        e.reduce("each_a", e.a(), Monoid::Sum.accumulate(), BF16.over(M).batched());
        e.reduce("each_b", e.b(), Monoid::Sum.atomic(), F16.over(N).batched());
        e.reduce("onto_b", e.b(), Monoid::Sum.atomic().accumulate(), F32.over(N));
    })
    .unwrap()
}

/// Every mainloop that has such sums, where it can be had, in every layout.
fn gemms(epilogue: &Epilogue) -> Vec<Gemm> {
    let each = |layout| {
        [
            Gemm::new(F16, layout, epilogue),
            Gemm::new(BF16, layout, epilogue),
            Gemm::new(BF16, layout, epilogue).mainloop(Mainloop::Sm80),
            Gemm::new(F16, layout, epilogue).mainloop(Mainloop::Simt),
            Gemm::new(F32, layout, epilogue),
            Gemm::new(F32, layout, epilogue).tf32(true),
        ]
    };
    Layout::ALL.into_iter().flat_map(each).collect()
}

fn everywhere(epilogue: &Epilogue, shapes: &[Shape], change: impl Fn(Case) -> Case) -> Vec<Case> {
    let cases = |gemm: &Gemm| shapes.iter().map(|shape| change(Case::new(gemm, *shape))).collect::<Vec<_>>();
    gemms(epilogue).iter().flat_map(cases).collect()
}

#[test]
fn operand_sums_of_bias_gradients() {
    run_all(everywhere(&bias_gradient(), &SHAPES, |case| case));
}

#[test]
fn operand_sums_beside_everything_else() {
    run_all(everywhere(&everything(), &SHAPES[..6], |case| case.slack(4.0)));
}

#[test]
fn operand_sums_and_nothing_else() {
    let epilogue = Epilogue::build(|e| {
        e.reduce("of_a", e.a(), Monoid::Sum, F32.over(M));
        e.reduce("of_b", e.b(), Monoid::Sum, F32.over(N));
    });
    run_all(everywhere(&epilogue.unwrap(), &SHAPES[..3], |case| case));
}

#[test]
fn operand_sums_of_transposed_problems() {
    let epilogue = Epilogue::build(|e| {
        e.store("dw", e.acc(), F16.column_major());
        e.reduce("of_a", e.a(), Monoid::Sum, F32.over(M).batched());
        e.reduce("of_b", e.b(), Monoid::Sum, F32.over(N));
    });
    let shapes = [SHAPES[0], SHAPES[2], SHAPES[4], Shape::new(40, 1032, 264), Shape::new(1032, 40, 264).batched(2)];
    run_all(everywhere(&epilogue.unwrap(), &shapes, |case| case));
}

/// Operands that TMA cannot read are copied first; results lie apart, and one operand serves every entry.
#[test]
fn operand_sums_of_operands_that_lie_anywhere() {
    let epilogue = everything();
    let mut cases = Vec::new();
    for (i, gemm) in gemms(&epilogue).into_iter().enumerate() {
        let shape = [Shape::new(300, 211, 517), Shape::new(65, 1001, 130).batched(2)][i % 2];
        cases.push(Case::new(&gemm, shape).slack(4.0).offset("a", 1).offset("of_b", 3));
        let shape = Shape::new(200, 136, 264).batched(3);
        cases.push(
            Case::new(&gemm, shape).slack(4.0).batch_stride("b", 0).batch_stride("each_b", 140).batch_stride("each_a", 203),
        );
    }
    let large = Shape::new(4099, 4101, 333);
    cases.extend([TN, NT].map(|layout| Case::new(&Gemm::new(F16, layout, &bias_gradient()).mainloop(Mainloop::Sm90a), large)));
    if rig().is_none_or(|rig| rig.target().0 != Target::SM_90A) {
        cases.truncate(cases.len() - 2);
    }
    run_all(cases);
}

#[test]
fn operand_sums_over_nothing() {
    let extents = [[300, 200, 0, 1], [40, 24, 0, 2], [0, 40, 8, 1], [40, 0, 8, 1], [40, 24, 8, 0], [0, 40, 0, 1]];
    let shapes = extents.map(|[m, n, k, batch]| Shape::new(m, n, k).batched(batch));
    run_all(everywhere(&everything(), &shapes, |case| case.slack(4.0)));
}

#[test]
fn operand_sums_of_integers() {
    let epilogue = Epilogue::build(|e| {
        e.store("d", e.acc_i32(), I32);
        e.reduce("of_a", e.a_i32(), Monoid::Sum, I32.over(M));
        e.reduce("of_b", e.b_i32(), Monoid::Sum.accumulate(), I32.over(N).batched());
    });
    let epilogue = epilogue.unwrap();
    let gemms = Layout::ALL.map(|layout| Gemm::new(I32, layout, &epilogue));
    run_all(gemms.iter().flat_map(|gemm| SHAPES[1..6].iter().map(|shape| Case::new(gemm, *shape))).collect());
}

/// Not a number and infinities come out where they belong, and nowhere else.
#[test]
fn operand_sums_of_no_numbers() {
    let holes = |rng: &mut crate::layout::Rng, _: DType| match rng.bits() % 4000 {
        0 => f64::NAN,
        1 => f64::INFINITY,
        _ => rng.unit(),
    };
    let epilogue = Epilogue::build(|e| {
        e.reduce("of_a", e.a(), Monoid::Sum, F32.over(M));
        e.reduce("of_b", e.b(), Monoid::Sum, F32.over(N));
    });
    run_all(everywhere(&epilogue.unwrap(), &[SHAPES[2], SHAPES[4]], |case| case.fill("a", holes).fill("b", holes)));
}

#[test]
fn operand_sums_on_every_tile_of_hopper() {
    if rig().is_none_or(|rig| rig.target().0 != Target::SM_90A) {
        return;
    }
    let (cooperative, ping_pong) = (Schedule::Cooperative, Schedule::PingPong);
    let tiles = [
        (128, 192, 64, 5, 2, ping_pong, [1, 1]),
        (128, 192, 64, 5, 2, ping_pong, [2, 1]),
        (128, 128, 64, 6, 2, ping_pong, [1, 2]),
        (64, 256, 64, 5, 2, ping_pong, [1, 1]),
        (192, 128, 64, 5, 2, ping_pong, [1, 1]),
        (128, 176, 64, 5, 2, ping_pong, [1, 1]),
        (128, 256, 64, 4, 2, cooperative, [1, 1]),
        (256, 128, 64, 4, 2, cooperative, [2, 1]),
        (256, 192, 64, 3, 2, cooperative, [1, 1]),
        (128, 80, 64, 8, 2, cooperative, [1, 2]),
        (128, 24, 64, 8, 2, cooperative, [1, 1]),
        (64, 64, 128, 6, 1, cooperative, [1, 1]),
        (64, 8, 128, 10, 1, cooperative, [1, 1]),
    ];
    let shapes =
        [Shape::new(2312, 1544, 200), Shape::new(520, 776, 1416), Shape::new(40, 24, 72), Shape::new(264, 200, 136).batched(5)];
    let (light, heavy) = (bias_gradient(), everything());
    let cases = tiles.into_iter().enumerate().flat_map(|(i, (bm, bn, bk, stages, consumers, schedule, cluster))| {
        let shape = TileShape::Sm90a { bk, stages, consumers, schedule, cluster, splits_k: false };
        let tile = Tile { bm, bn, shape, threads: 128 * (1 + consumers), min_blocks: 1 };
        let of = |epilogue: &Epilogue, layout: usize| Gemm::new([F16, BF16][i % 2], Layout::ALL[layout % 4], epilogue).tile(tile);
        let gemms = [
            of(&light, i),
            of(&light, i + 1),
            of(&heavy, i + 2),
            of(&heavy, i + 3).constant_operands(Side::ALL.into_iter().take(1 + usize::from(i % 3 == 0))),
        ];
        gemms.into_iter().flat_map(move |gemm| shapes.map(|shape| Case::new(&gemm, shape).slack(4.0))).collect::<Vec<_>>()
    });
    run_all(cases.collect());
}
