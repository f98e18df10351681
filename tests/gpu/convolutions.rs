//! Convolutions on every mainloop: every tap, odd sizes, padding on one side, strides, dilation, groups, parts of K.

use crate::case::Case;
use postlude::build::recipes::Mask;
use postlude::dtype::ValueType;
use postlude::plan::{Mainloop, Tile, TileShape};
use postlude::prelude::*;
use postlude::{Convolution, DType};

/// Runs everything on a few separate threads, since compiling takes the time.
pub fn run_all(cases: &[Case]) {
    let failures = std::thread::scope(|scope| {
        let per_thread = cases.len().div_ceil(8).max(1);
        let runs: Vec<_> = cases.chunks(per_thread).map(|part| scope.spawn(|| part.iter().for_each(Case::run))).collect();
        runs.into_iter().filter_map(|run| run.join().err()).count()
    });
    assert_eq!(failures, 0, "of {} cases", cases.len());
}

/// Bias and relu; a region of each image with a residual and a sum over pixels; and an output along M.
fn epilogues(dtype: DType, convolution: &Convolution) -> Vec<Epilogue> {
    let bias = Epilogue::build(|e| e.store("d", (e.acc() + e.load("bias", F32.over(N))).relu(), dtype));
    let region = Epilogue::build(|e| {
        let at = convolution.pixel(e);
        let inside = at.y.ge(1).and(at.x.ge(2)).and(at.image.ne(1));
        let z = e.acc() * e.load("scale", F32.over(M)) + e.load("residual", dtype);
        e.store("d", z.region(inside, |z| z.tanh()).otherwise(|z| z), dtype);
        e.reduce("sums", z, Monoid::Sum, F32.over(N));
    });
    let turned = Epilogue::build(|e| e.store("d", e.acc(), dtype.column_major()));
    [bias, region, turned].into_iter().map(Result::unwrap).collect()
}

fn cases(dtype: DType, mainloop: Mainloop, shapes: &[ConvShape]) -> Vec<Case> {
    let of = |shape: &ConvShape| {
        let convolution = Convolution::new(*shape).unwrap();
        let epilogues = epilogues(dtype, &convolution);
        let conv = |epilogue: &Epilogue| Conv::of(dtype, convolution, epilogue).prefer(|gemm| gemm.mainloop(mainloop));
        epilogues.iter().map(|epilogue| Case::new(conv(epilogue).gemm(), convolution.shape())).collect::<Vec<_>>()
    };
    shapes.iter().flat_map(of).collect()
}

/// One case of each shape, the epilogues in turn: kernels that are made for their convolution take long to compile.
fn cases_in_turn(dtype: DType, mainloop: Mainloop, shapes: &[ConvShape]) -> Vec<Case> {
    let all = cases(dtype, mainloop, shapes);
    let ways = all.len() / shapes.len();
    all.into_iter().enumerate().filter(|(i, _)| i % ways == i / ways % ways).map(|(_, case)| case).collect()
}

/// What every mainloop takes.
pub fn shapes(channels: usize) -> Vec<ConvShape> {
    let base = ConvShape::new(3, [13, 11, channels], [72, 3, 3]);
    vec![
        base,
        base.padding([1, 1]),
        base.padding_of([2, 0, 0, 1]),
        base.padding_of([0, 1, 2, 0]).stride([2, 2]),
        base.dilation([2, 3]).padding([2, 3]),
        base.stride([3, 8]).padding([1, 4]),
        ConvShape { window: [1, 1], ..base }.stride([2, 2]),
        ConvShape { window: [1, 1], ..base },
        ConvShape { window: [5, 4], height: 9, width: 10, ..base }.padding([2, 2]),
        ConvShape { window: [7, 7], height: 40, width: 33, images: 1, ..base }.stride([2, 2]).padding([3, 3]),
        ConvShape { images: 0, ..base },
        ConvShape::line(5, [50, channels], [130, 5]).padding([0, 2]).dilation([1, 2]),
        ConvShape { filters: 256, channels: 2 * channels.next_multiple_of(64), ..base }.groups(2).padding([1, 1]),
    ]
}

#[test]
fn sm90a() {
    for (dtype, channels) in [(F16, 64), (BF16, 8), (F16, 72), (BF16, 160)] {
        run_all(&cases(dtype, Mainloop::Sm90a, &shapes(channels)));
    }
}

/// Tiles of either schedule, two panels a stage, clusters, and one consumer, on more tiles than there are multiprocessors.
#[test]
fn tiles_of_sm90a() {
    let shape = ConvShape::new(9, [31, 29, 72], [256, 3, 3]).padding([1, 1]);
    let convolution = Convolution::new(shape).unwrap();
    let mut all = Vec::new();
    for epilogue in &epilogues(F16, &convolution)[..2] {
        let conv = Conv::of(F16, convolution, epilogue).prefer(|gemm| gemm.mainloop(Mainloop::Sm90a));
        let plan = conv.kernel_plan(postlude::target::Target::SM_90A, 132).unwrap();
        let tiles: Vec<Tile> = plan.choice.candidates().map(|(tile, _)| tile).collect();
        assert!(tiles.iter().any(|tile| tile.cluster() == 2), "pairs share filters");
        for tile in tiles.into_iter().step_by(3) {
            all.push(Case::new(conv.clone().prefer(|gemm| gemm.tile(tile)).gemm(), convolution.shape()));
        }
    }
    run_all(&all);
}

#[test]
fn sm80() {
    for (dtype, channels) in [(F16, 64), (BF16, 3), (F16, 10), (BF16, 20), (F16, 40)] {
        let mut all = shapes(channels);
        // What im2col maps cannot describe.
        let base = ConvShape::new(2, [30, 31, channels], [40, 3, 3]);
        all.extend([base.stride([9, 10]), base.dilation([70, 1]).padding([70, 0]), base.padding([130, 0])]);
        run_all(&cases(dtype, Mainloop::Sm80, &all));
    }
}

/// Every number of channels, windows that begin at odd elements, lines of several images in a tile; tiles of either height.
#[test]
fn bands() {
    for (dtype, channels) in [(F16, 3), (BF16, 1), (F16, 2), (BF16, 4), (F16, 5), (BF16, 8)] {
        let base = ConvShape::new(2, [30, 31, channels], [40, 3, 3]);
        let mut all = shapes(channels);
        all.pop();
        all.extend([base.stride([9, 10]), base.padding([130, 0]), base.stride([1, 3]).padding_of([0, 2, 1, 3])]);
        all.extend([ConvShape { height: 3, width: 4, images: 50, ..base }, ConvShape { filters: 8, window: [2, 1], ..base }]);
        all.retain(|shape| channels % 2 == 0 || shape.dilation[1] == 1 || shape.window[1] == 1);
        all.retain(|shape| !Convolution::new(*shape).unwrap().is_product());
        run_all(&cases_in_turn(dtype, Mainloop::Bands, &all));
    }
    let convolution = Convolution::new(ConvShape::new(3, [61, 40, 3], [72, 7, 7]).stride([2, 2]).padding([3, 3])).unwrap();
    let conv = Conv::of(F16, convolution, &epilogues(F16, &convolution)[1]);
    let plan = conv.kernel_plan(postlude::target::Target::SM_90A, 132).unwrap();
    assert_eq!(plan.mainloop(), Mainloop::Bands, "nobody says how");
    let tiles: Vec<Tile> = plan.choice.candidates().map(|(tile, _)| tile).collect();
    let of = |tile| Case::new(conv.clone().prefer(|gemm| gemm.tile(tile)).gemm(), convolution.shape());
    run_all(&tiles.into_iter().map(of).collect::<Vec<_>>());
}

/// What lies beside a window is not multiplied by the zeros that fill up K.
#[test]
fn infinities_beside_windows() {
    let rare = |rng: &mut crate::layout::Rng, dtype| if rng.bits() % 20 == 0 { f64::INFINITY } else { rng.element(dtype) };
    for shape in [ConvShape::new(2, [12, 13, 3], [8, 3, 3]), ConvShape::new(2, [12, 13, 1], [8, 2, 1]).stride([1, 5])] {
        let convolution = Convolution::new(shape).unwrap();
        let epilogue = Epilogue::build(|e| e.store("d", e.acc().min(100.0), F32)).unwrap();
        let conv = Conv::of(F16, convolution, &epilogue).prefer(|gemm| gemm.mainloop(Mainloop::Bands));
        Case::new(conv.gemm(), convolution.shape()).fill("a", rare).fill("b", |_, _| 0.5).run();
    }
}

/// One channel to a filter: windows of all kinds, runs of one to eight pixels, strips of any width.
#[test]
fn depthwise() {
    let base = ConvShape::new(3, [16, 14, 72], [72, 3, 3]).groups(72);
    let of = |channels: usize| ConvShape { channels, filters: channels, groups: channels, ..base };
    let all = [
        base.padding([1, 1]),
        base.padding([1, 1]).stride([2, 2]),
        ConvShape { height: 13, width: 13, ..base.padding_of([2, 0, 0, 1]) },
        ConvShape { window: [5, 5], ..of(40) }.padding([2, 2]),
        ConvShape { window: [5, 5], ..of(40) }.padding([2, 2]).stride([2, 2]),
        ConvShape { window: [7, 7], ..of(24) }.padding([3, 3]),
        ConvShape { window: [1, 9], ..of(8) }.padding([0, 4]).stride([3, 1]),
        ConvShape { window: [4, 2], ..of(130) }.dilation([2, 5]).padding([3, 2]),
        of(3).padding([1, 1]),
        of(9).stride([9, 10]).padding([130, 9]),
        ConvShape { images: 0, ..of(16) },
        ConvShape { images: 40, height: 9, width: 7, ..of(200) }.padding([1, 1]),
    ];
    for dtype in [F16, BF16, F32] {
        run_all(&cases_in_turn(dtype, Mainloop::Depthwise, &all));
        // Channels that begin at words, and windows that leave no lines out.
        let lines = all.iter().filter(|of| {
            let words = of.channels.is_multiple_of(if dtype == F32 { 1 } else { 2 });
            words && of.dilation == [1; 2] && of.stride[0] <= of.window[0]
        });
        let narrow = [
            ConvShape { height: 21, width: 33, ..of(18) }.padding([2, 1]),
            ConvShape { height: 15, width: 9, window: [3, 2], ..of(44) }.stride([3, 4]),
            ConvShape { images: 30, height: 7, width: 5, window: [2, 4], ..of(320) }.padding_of([0, 1, 3, 0]).stride([2, 1]),
        ];
        run_all(&cases_in_turn(dtype, Mainloop::DepthwiseLines, &lines.copied().chain(narrow).collect::<Vec<_>>()));
    }
    let convolution = Convolution::new(all[0]).unwrap();
    for dtype in [F64, I8, E5M2] {
        let epilogue = Epilogue::build(|e| match dtype.value_type() {
            ValueType::I32 => e.store("d", e.acc_i32() + 3, I32),
            ValueType::F64 => e.store("d", e.acc_f64() * 2.0, F64),
            _ => e.store("d", e.acc(), F32),
        });
        let conv = Conv::of(dtype, convolution, &epilogue.unwrap());
        let plan = conv.kernel_plan(postlude::target::Target::SM_90A, 132).unwrap();
        assert_eq!(plan.mainloop(), Mainloop::DepthwiseLines, "nobody says how");
        Case::new(conv.gemm(), convolution.shape()).run();
    }
    let epilogue = &epilogues(F16, &convolution)[1];
    let plan = Conv::of(F16, convolution, epilogue).kernel_plan(postlude::target::Target::SM_90A, 132).unwrap();
    for tile in plan.choice.candidates().step_by(4) {
        Case::new(Conv::of(F16, convolution, epilogue).prefer(|gemm| gemm.tile(tile.0)).gemm(), convolution.shape()).run();
    }
}

/// Blocks that go through several tiles of lines: bands of whole images and of parts, the last tile and the last channels cut.
#[test]
fn depthwise_in_turns() {
    for (shape, [run, groups, rows, bn]) in [
        (ConvShape::new(301, [14, 14, 88], [88, 3, 3]).padding([1, 1]), [7, 3, 7, 16]),
        (ConvShape::new(700, [7, 7, 72], [72, 3, 3]).padding([1, 1]), [7, 2, 7, 32]),
        (ConvShape::new(133, [30, 28, 40], [40, 3, 3]).padding([1, 1]).stride([1, 2]), [7, 1, 5, 16]),
        (ConvShape::new(400, [12, 14, 40], [40, 3, 3]).padding([1, 1]), [7, 2, 2, 32]),
    ] {
        let convolution = Convolution::new(shape.groups(shape.channels)).unwrap();
        let (of, q) = (convolution.measures(), convolution.output()[1]);
        let across = q.div_ceil(run);
        let line = (across * run - 1) * of.stride[1] + of.window[1];
        let own = TileShape::DepthwiseLines { run, across, groups, rows, stages: 4, line, taps: convolution.taps() };
        let threads = (groups * across * bn / 2).next_multiple_of(32);
        let tile = Tile { bm: groups * rows * q, bn, shape: own, threads, min_blocks: 1 };
        for epilogue in &epilogues(F16, &convolution) {
            let conv = Conv::of(F16, convolution, epilogue).prefer(|gemm| gemm.tile(tile));
            Case::new(conv.gemm(), convolution.shape()).run();
        }
    }
}

/// Slices of wider images, and unaligned addresses.
#[test]
fn slices_of_few_channels() {
    let thin = ConvShape::new(2, [19, 17, 3], [16, 3, 3]).padding([1, 1]);
    let deep = ConvShape::new(2, [12, 14, 64], [64, 3, 3]).padding([1, 1]).groups(64);
    for (shape, lds) in [(thin, [(0, 3), (1, 3), (5, 4), (3, 12)]), (deep, [(64, 192), (4, 68), (1, 65), (8, 72)])] {
        let convolution = Convolution::new(shape).unwrap();
        let conv = Conv::of(F16, convolution, &epilogues(F16, &convolution)[0]);
        let terms = convolution.shape().k;
        for (offset, ld) in lds {
            let case = Case::new(conv.gemm(), convolution.shape()).offset("a", offset).ld("a", ld);
            case.offset("b", offset).ld("b", terms + ld).run();
        }
    }
}

#[test]
fn simt() {
    for (dtype, channels) in [(F32, 64), (F16, 3), (BF16, 8)] {
        let mut all = shapes(channels);
        all.push(ConvShape::new(2, [30, 31, channels], [40, 3, 3]).stride([9, 10]).padding([9, 1]));
        run_all(&cases(dtype, Mainloop::Simt, &all));
    }
}

/// Groups whose channels or filters do not fill a tile, depthwise with one filter a channel and with three.
pub fn in_groups() -> Vec<ConvShape> {
    let base = ConvShape::new(2, [13, 11, 80], [40, 3, 3]).padding([1, 1]);
    vec![
        base.groups(4),
        ConvShape { channels: 24, filters: 36, ..base }.groups(6).stride([2, 1]),
        ConvShape { channels: 3, filters: 9, ..base }.groups(3),
        ConvShape { filters: 80, ..base }.groups(80),
        ConvShape { filters: 240, ..base }.groups(80).dilation([2, 1]),
        ConvShape { channels: 256, filters: 256, ..base }.groups(32),
    ]
}

#[test]
fn groups() {
    let all = in_groups();
    for (dtype, mainloop) in [(F16, Mainloop::Sm80), (BF16, Mainloop::Simt), (F32, Mainloop::Simt)] {
        run_all(&cases(dtype, mainloop, &all));
    }
    // Nobody says how.
    let convolution = Convolution::new(all[5]).unwrap();
    for epilogue in epilogues(F16, &convolution) {
        Case::new(Conv::of(F16, convolution, &epilogue).gemm(), convolution.shape()).run();
    }
}

#[test]
fn tf32() {
    for (mainloop, channels) in [(Mainloop::Sm80, 36), (Mainloop::Sm90a, 36), (Mainloop::Sm90a, 96)] {
        let shape = ConvShape::new(2, [13, 11, channels], [72, 3, 3]).padding([1, 1]);
        let convolution = Convolution::new(shape).unwrap();
        for epilogue in epilogues(F32, &convolution) {
            let conv = Conv::of(F32, convolution, &epilogue).prefer(|gemm| gemm.tf32(true).mainloop(mainloop));
            Case::new(conv.gemm(), convolution.shape()).fill("a", |rng, _| rng.unit()).fill("b", |rng, _| rng.unit()).run();
        }
    }
}

#[test]
fn eight_bits() {
    for (dtype, mainloop) in [(E4M3, Mainloop::Sm90a), (I8, Mainloop::Sm90a), (E5M2, Mainloop::Sm80), (U8, Mainloop::Simt)] {
        let shape = ConvShape::new(2, [13, 11, 144], [80, 3, 3]).padding([1, 1]).stride([2, 1]);
        let epilogue = Epilogue::build(|e| {
            let z = if dtype.value_type().is_float() { e.acc() } else { e.acc_i32().cast(F32) * 0.001 };
            e.store("d", z + e.load("bias", F32.over(N)), F32);
        });
        let conv = Conv::new(dtype, shape, &epilogue.unwrap()).unwrap().prefer(|gemm| gemm.mainloop(mainloop));
        Case::new(conv.gemm(), conv.shape()).run();
    }
}

/// Parts of K begin at any panel; the parts of an odd number of panels end inside a stage of two.
#[test]
fn parts_of_k() {
    let shape = ConvShape::new(2, [9, 7, 128], [72, 3, 3]).padding([1, 1]);
    let convolution = Convolution::new(shape).unwrap();
    let mut all = Vec::new();
    for mainloop in [Mainloop::Sm90a, Mainloop::Sm80, Mainloop::Simt] {
        for (parts, epilogue) in [2, 6, 18].into_iter().zip(epilogues(F16, &convolution)) {
            let conv = Conv::of(F16, convolution, &epilogue).prefer(|gemm| gemm.mainloop(mainloop).split_k(parts));
            all.push(Case::new(conv.gemm(), convolution.shape()));
        }
    }
    run_all(&all);
}

/// Slices of wider images, filters and outputs; unaligned addresses.
#[test]
fn slices() {
    let shape = ConvShape::new(2, [9, 7, 64], [72, 3, 3]).padding([1, 1]);
    let convolution = Convolution::new(shape).unwrap();
    for epilogue in epilogues(F16, &convolution) {
        let conv = Conv::of(F16, convolution, &epilogue);
        for (offset, ld) in [(64, 192), (4, 68), (1, 65)] {
            let case = Case::new(conv.gemm(), convolution.shape()).offset("a", offset).ld("a", ld);
            case.offset("b", offset).ld("b", 9 * 64 + ld).run();
        }
    }
}

/// What the rows of a convolution come to: a softmax over the channels of each pixel.
#[test]
fn rows() {
    let epilogue = postlude::build::recipes::softmax(Mask::None, F16).unwrap();
    let conv = Conv::new(F16, ConvShape::new(2, [9, 7, 64], [72, 3, 3]).padding([1, 1]), &epilogue).unwrap();
    Case::new(conv.gemm(), conv.shape()).run();
}
