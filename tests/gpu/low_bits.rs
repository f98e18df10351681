//! Operands of fewer bits than the other one, and operands with scales along K, on every mainloop that has them.

use crate::case::Case;
use crate::eight_bits::positive;
use crate::layout::Rng;
use crate::rig::rig;
use postlude::plan::{Mainloop, Tile, TileShape};
use postlude::prelude::*;
use postlude::target::Target;
use postlude::{Blocks, DType, Gemm, Operation};

/// Aligned, unaligned, ending inside of a block, smaller than a tile, and without K.
const SHAPES: [Shape; 5] = [
    Shape::new(256, 384, 512),
    Shape::new(130, 258, 272),
    Shape::new(129, 77, 202),
    Shape::new(33, 18, 6),
    Shape::new(72, 80, 0),
];

const FEW: [Shape; 8] = [
    Shape::new(1, 512, 1024),
    Shape::new(3, 130, 272),
    Shape::new(8, 77, 202),
    Shape::new(16, 320, 2048),
    Shape::new(13, 64, 5006),
    Shape::new(5, 18, 6),
    Shape::new(4, 3, 70),
    Shape::new(2, 40, 0),
];

fn epilogues() -> [Epilogue; 2] {
    let scaled = Epilogue::build(|e| {
        let z = e.acc() * e.load("columns", F32.over(N)) + e.load("bias", BF16.over(N));
        e.store("d", z.relu(), BF16);
    });
    let plain = Epilogue::build(|e| {
        e.store("d", e.acc() + e.load("c", F16), F32);
        e.reduce("amax", e.acc(), Monoid::AbsMax, F32.pointer());
    });
    [scaled, plain].map(Result::unwrap)
}

fn gemm(a: DType, b: DType, layout: Layout, blocks: Option<Blocks>, epilogue: &Epilogue) -> Gemm {
    Gemm::of(Operation::Product { a, b, layout, scales: [None, blocks] }, epilogue)
}

/// Weights, with and without groups.
fn weights() -> Vec<(DType, DType, Option<Blocks>)> {
    let groups = Blocks::groups;
    vec![
        (F16, I4, Some(groups(128))),
        (F16, U4, Some(groups(64).with_zero_points().scales_as(F16))),
        (BF16, I4, Some(groups(32).scales_as(BF16))),
        (BF16, U4, Some(groups(128).with_zero_points())),
        (F16, U4, None),
        (BF16, I4, None),
        (F16, I8, None),
        (BF16, I8, Some(groups(128).with_zero_points())),
        (F16, U8, Some(groups(96))),
        (BF16, U8, None),
        (F16, E4M3, Some(groups(128))),
        (BF16, E4M3, Some(Blocks::squares(128))),
        (F16, E5M2, None),
        (BF16, E5M2, Some(groups(32))),
    ]
}

#[test]
fn weights_on_simt() {
    let [epilogue, plain] = epilogues();
    for (a, b, blocks) in weights() {
        for shape in SHAPES {
            Case::new(&gemm(a, b, TN, blocks, &epilogue).mainloop(Mainloop::Simt), shape).run();
        }
        let other = if b.is_four_bits() { NN } else { TT };
        Case::new(&gemm(a, b, other, blocks, &plain).mainloop(Mainloop::Simt), SHAPES[2].batched(2)).run();
    }
}

fn few_rows(of: impl Fn(DType) -> bool) {
    let [epilogue, plain] = epilogues();
    for (a, b, blocks) in weights().into_iter().filter(|(_, b, _)| of(*b)) {
        for shape in FEW {
            Case::new(&gemm(a, b, TN, blocks, &epilogue).mainloop(Mainloop::Gemv), shape).run();
        }
        Case::new(&gemm(a, b, TN, blocks, &plain).mainloop(Mainloop::Gemv), FEW[1].batched(3)).run();
    }
}

#[test]
fn weights_of_four_bits_with_few_rows() {
    few_rows(DType::is_four_bits);
}

#[test]
fn weights_of_integers_with_few_rows() {
    few_rows(|b| matches!(b, I8 | U8));
}

#[test]
fn weights_of_floats_with_few_rows() {
    few_rows(|b| b.value_type().is_float());
}

/// Every tile.
#[test]
fn tiles_of_few_rows() {
    let [epilogue, _] = epilogues();
    let scaled = |terms| Blocks::groups(terms).scales_as(F16);
    for (rows, b, blocks) in [(7, I4, scaled(128)), (16, U4, scaled(64).with_zero_points()), (9, I8, scaled(64))] {
        let gemm = gemm(F16, b, TN, Some(blocks), &epilogue).mainloop(Mainloop::Gemv);
        let plan = gemm.kernel_plan(Target::SM_90A, 132, Shape::new(rows, 512, 1024)).unwrap();
        let tiles: Vec<_> = plan.choice.candidates().map(|(tile, _)| tile).collect();
        assert!(tiles.len() >= 3, "{}", plan.explain());
        // Also with other rings, and with blocks that share K: nobody chooses those, and a caller may.
        let small = *tiles.iter().min_by_key(|tile| tile.threads * tile.bn).unwrap();
        let shared = [(2, 1), (4, 3)].map(|(cluster, stages)| Tile { shape: TileShape::Gemv { cluster, stages }, ..small });
        for tile in tiles.into_iter().chain(shared) {
            for shape in [Shape::new(rows, 200, 1500), Shape::new(rows, 96, 5120), Shape::new(rows, 64, 40)] {
                Case::new(&gemm.clone().tile(tile), shape).run();
            }
        }
    }
}

/// Hopper's mainloop widens weights in registers, beside few rows and many. K ends inside of a group, of a stage, and of a panel.
#[test]
fn weights_in_registers() {
    let [epilogue, plain] = epilogues();
    let shapes = [
        Shape::new(256, 384, 512),
        Shape::new(130, 258, 288),
        Shape::new(33, 77, 1120),
        Shape::new(1, 200, 4096),
        Shape::new(13, 640, 96),
        Shape::new(72, 80, 0),
    ];
    for (a, b, blocks) in weights().into_iter().filter(|(.., blocks)| blocks.is_none_or(|blocks| blocks.terms % 64 == 0)) {
        let product = gemm(a, b, TN, blocks, &epilogue).mainloop(Mainloop::Sm90a);
        if blocks.is_none_or(|blocks| blocks.lines == 1) {
            let plan = product.kernel_plan(Target::SM_90A, 132, shapes[0]).unwrap();
            assert!(plan.explain().contains("in registers, on its way"), "{}", plan.explain());
        }
        for shape in shapes {
            Case::new(&product, shape).run();
        }
        let case = Case::new(&gemm(a, b, TN, blocks, &plain).mainloop(Mainloop::Sm90a), Shape::new(40, 200, 320).batched(2));
        case.clone().run();
        case.ld("b", 352).offset("b", 32).run();
    }
}

/// Scales and zero points whose rows begin anywhere, and that a batch shares.
#[test]
fn numbers_in_registers_that_lie_anywhere() {
    let [epilogue, _] = epilogues();
    for (a, b, of_scales) in [(F16, U4, F16), (BF16, I4, BF16), (BF16, U8, F32), (F16, I8, F16)] {
        let blocks = Blocks::groups(64).with_zero_points().scales_as(of_scales);
        let product = gemm(a, b, TN, Some(blocks), &epilogue).mainloop(Mainloop::Sm90a);
        for shift in 0..4 {
            let case = Case::new(&product, Shape::new(24, 203, 416).batched(2)).offset("b_scale", shift).offset("b_zero", shift);
            case.clone().ld("b_scale", 203 + shift).ld("b_zero", 205 + shift).run();
            case.batch_stride("b_scale", 0).batch_stride("b_zero", 0).run();
        }
    }
}

/// Every tile that is planned for some rows.
#[test]
fn tiles_of_weights_in_registers() {
    let [epilogue, _] = epilogues();
    let of_four = Blocks::groups(128).scales_as(F16);
    let shifted = of_four.with_zero_points();
    for (rows, b, blocks) in [(7, I4, Some(of_four)), (64, U4, Some(shifted)), (100, I8, None), (300, E4M3, None)] {
        let product = gemm(BF16, b, TN, blocks, &epilogue).mainloop(Mainloop::Sm90a);
        let plan = product.kernel_plan(Target::SM_90A, 132, Shape::new(rows, 4096, 4096)).unwrap();
        let tiles: Vec<_> = plan.choice.candidates().collect();
        assert!(tiles.len() >= 8, "{}", plan.explain());
        for (tile, _) in tiles {
            Case::new(&product.clone().tile(tile), Shape::new(rows, 328, 1184)).run();
        }
    }
}

/// Many rows multiply a copy of 16 bits, and so do weights with K strided.
#[test]
fn weights_of_many_rows() {
    let [epilogue, plain] = epilogues();
    for (mainloop, many) in [(Mainloop::Sm90a, 520), (Mainloop::Sm80, 130)] {
        for (a, b, blocks) in weights() {
            let gemm = gemm(a, b, TN, blocks, &epilogue).mainloop(mainloop);
            for shape in [Shape::new(many, 258, 272), Shape::new(129, 77, 208), Shape::new(72, 80, 0)] {
                Case::new(&gemm, shape).run();
            }
        }
        for (b, layout) in [(U8, TT), (I4, NN), (E4M3, NT)] {
            let gemm = gemm(F16, b, layout, Some(Blocks::groups(32)), &plain).mainloop(mainloop);
            let case = Case::new(&gemm, Shape::new(136, 200, 328).batched(2));
            case.clone().run();
            case.ld("b", 346).offset("b", 6).batch_stride("b_scale", 0).run();
        }
    }
    let plan = gemm(F16, I4, TN, None, &plain).kernel_plan(Target::SM_90A, 132, Shape::new(1024, 384, 512)).unwrap();
    assert!(plan.explain().contains("widens        b: i4 becomes f16"), "{}", plan.explain());
}

/// Weights and their numbers that earlier kernels don't write. The last step of K is a whole one, or a part of one.
#[test]
fn constant_weights_with_few_rows() {
    let [epilogue, _] = epilogues();
    for (rows, b, terms) in [(5, I4, 128), (16, U4, 64), (12, I8, 128), (3, U8, 64)] {
        let blocks = Blocks::groups(terms).scales_as(F16).with_zero_points();
        let gemm = gemm(F16, b, TN, Some(blocks), &epilogue).mainloop(Mainloop::Gemv).constant_operands([Side::B]);
        for k in [2048, 4104, 72] {
            Case::new(&gemm, Shape::new(rows, 200, k)).run();
        }
    }
}

/// Leading dimensions and addresses of every alignment, and scales that a batch shares.
#[test]
fn weights_that_lie_anywhere() {
    let [epilogue, _] = epilogues();
    let groups = Some(Blocks::groups(64).with_zero_points());
    for (mainloop, rows) in [(Mainloop::Gemv, 11), (Mainloop::Simt, 70)] {
        for (b, ld, offset) in [(I4, 212, 2), (U4, 208, 8), (U8, 205, 3), (I8, 216, 8)] {
            let case = Case::new(&gemm(F16, b, TN, groups, &epilogue).mainloop(mainloop), Shape::new(rows, 100, 200).batched(2));
            let case = case.ld("b", ld).offset("b", offset).ld("a", 201).offset("a", 1).ld("b_scale", 103).offset("b_zero", 5);
            case.clone().run();
            case.batch_stride("b", 0).batch_stride("b_scale", 0).batch_stride("b_zero", 0).run();
        }
    }
}

/// The weights may be A. Then it is columns that are few.
#[test]
fn weights_as_rows() {
    let [epilogue, plain] = epilogues();
    for epilogue in [&epilogue, &plain] {
        for (mainloop, shape) in [(Mainloop::Gemv, Shape::new(320, 7, 400)), (Mainloop::Simt, Shape::new(100, 70, 200))] {
            let scales = [Some(Blocks::groups(128).with_zero_points()), None];
            let operation = Operation::Product { a: I4, b: F16, layout: TN, scales };
            Case::new(&Gemm::of(operation, epilogue).mainloop(mainloop), shape).run();
        }
    }
}

/// Long sums of one sign.
#[test]
fn long_sums_of_one_sign() {
    let epilogue = postlude::build::recipes::identity(F32).unwrap();
    for (mainloop, rows) in [(Mainloop::Gemv, 4), (Mainloop::Simt, 40)] {
        let weights = gemm(F16, U4, TN, Some(Blocks::groups(128)), &epilogue).mainloop(mainloop);
        Case::new(&weights, Shape::new(rows, 72, 32768)).fill("a", positive).fill("b_scale", positive).run();
    }
}

/// Every byte of weights as every format of activations, to the bit: products with a unit matrix.
#[test]
fn every_weight_is_read_as_the_reference_reads_it() {
    if rig().is_none() {
        return;
    }
    fn unit(_: &mut Rng, _: DType) -> f64 {
        1.0
    }
    let epilogue = postlude::build::recipes::identity(F32).unwrap();
    for a in [F16, BF16] {
        for b in [I4, U4, I8, U8, E4M3, E5M2] {
            let gemm = Gemm::mixed(a, b, TN, &epilogue).mainloop(Mainloop::Gemv);
            let case = Case::new(&gemm, Shape::new(1, 256, 1)).fill("a", unit);
            let mut given = case.buffers();
            for buffer in given.iter_mut().filter(|buffer| buffer.name == "b") {
                let at = buffer.bytes.len().min(256);
                (0..at).for_each(|i| buffer.bytes[i] = i as u8);
            }
            let Some(got) = case.run_on(&given) else { return };
            let mut expected = given.clone();
            gemm.reference(case.shape, case.host(&mut expected)).unwrap();
            let of = |buffers: &[crate::layout::Buffer]| -> Vec<u64> {
                let d = buffers.iter().find(|buffer| buffer.name == "d").unwrap();
                d.elements().map(|(_, x)| if x.is_nan() { 0 } else { (x + 0.0).to_bits() }).collect()
            };
            assert_eq!(of(&got), of(&expected), "{a} {b}");
        }
    }
}

/// Blocks of both operands.
fn scaled_blocks(mainloop: Mainloop) {
    let pairs = [
        [Blocks::groups(128), Blocks::squares(128)],
        [Blocks::groups(128), Blocks::groups(128)],
        [Blocks::squares(128), Blocks::groups(128)],
        [Blocks::squares(128), Blocks::squares(128)],
        // Blocks of several panels, and scales of other formats.
        [Blocks::groups(256), Blocks::squares(128).scales_as(BF16)],
        [Blocks::squares(256).scales_as(F16), Blocks::groups(256).scales_as(F16)],
    ];
    let [epilogue, plain] = epilogues();
    for (i, blocks) in pairs.into_iter().enumerate() {
        for shape in [SHAPES[0], SHAPES[1], Shape::new(129, 77, 208), Shape::new(72, 80, 0)] {
            Case::new(&Gemm::block_scaled([E4M3, E4M3], TN, blocks, &epilogue).mainloop(mainloop), shape).run();
        }
        // What is fetched before earlier kernels end.
        let constant = Side::ALL.into_iter().filter(|side| (i % 2 == 0) == (*side == Side::B) || i == 3);
        let gemm = Gemm::block_scaled([E5M2, E4M3], TN, blocks, &plain).mainloop(mainloop).constant_operands(constant);
        Case::new(&gemm, Shape::new(300, 200, 656).batched(2)).run();
    }
}

#[test]
fn scaled_blocks_on_simt() {
    scaled_blocks(Mainloop::Simt);
}

#[test]
fn scaled_blocks_on_sm80() {
    scaled_blocks(Mainloop::Sm80);
}

#[test]
fn scaled_blocks_on_sm90a() {
    scaled_blocks(Mainloop::Sm90a);
}

/// Every kind of Hopper's tiles.
#[test]
fn scaled_blocks_on_every_kind_of_tile() {
    let [epilogue, _] = epilogues();
    for b in [Blocks::squares(128), Blocks::groups(128)] {
        let gemm = Gemm::block_scaled([E4M3, E4M3], TN, [Blocks::groups(128), b], &epilogue);
        let plan = gemm.kernel_plan(Target::SM_90A, 132, Shape::new(1024, 1024, 512)).unwrap();
        let mut kinds = Vec::new();
        for (tile, _) in plan.choice.candidates() {
            let TileShape::Sm90a { consumers, schedule, cluster, .. } = tile.shape else { panic!("{tile}") };
            if !kinds.contains(&(consumers, schedule, cluster, tile.bn)) {
                kinds.push((consumers, schedule, cluster, tile.bn));
                Case::new(&gemm.clone().tile(tile), Shape::new(400, 528, 640)).run();
            }
        }
        assert!(kinds.len() >= 4, "{kinds:?}");
        for shape in [Shape::new(16, 1024, 2048), Shape::new(100, 256, 1024), Shape::new(1024, 8, 512)] {
            Case::new(&gemm, shape).run();
        }
    }
}

/// Long sums of one sign, which tensor cores by themselves would get wrong.
#[test]
fn long_scaled_sums_of_one_sign() {
    let epilogue = postlude::build::recipes::identity(F32).unwrap();
    for mainloop in [Mainloop::Sm90a, Mainloop::Sm80, Mainloop::Simt] {
        let gemm = Gemm::block_scaled([E4M3, E4M3], TN, [Blocks::groups(128), Blocks::squares(128)], &epilogue);
        let case = Case::new(&gemm.mainloop(mainloop), Shape::new(64, 72, 32768));
        case.fill("a", positive).fill("b", positive).fill("a_scale", positive).fill("b_scale", positive).run();
    }
}
