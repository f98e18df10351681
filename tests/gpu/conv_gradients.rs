//! Gradients of convolutions on every mainloop: strides, padding on one side, dilation, groups, parts of K.

use crate::case::Case;
use crate::convolutions::{in_groups, run_all, shapes};
use postlude::dtype::ValueType;
use postlude::layer::Conv2d;
use postlude::plan::{Mainloop, Tile};
use postlude::prelude::*;
use postlude::target::Target;
use postlude::{Convolution, DType, GradientOf};

use GradientOf::{Filters, Images};

/// The derivative of the layer before with its bias gradient, or a gradient that is added to; a region of each image, or a sum
/// of dY inside the product; and an output along M.
fn epilogues(dtype: DType, convolution: &Convolution, of: GradientOf) -> Vec<Epilogue> {
    let first = Epilogue::build(|e| match of {
        Images => {
            let dz = e.load("saved", dtype).gt(0.0).select(e.acc(), 0.0);
            e.store("d", dz, dtype);
            e.reduce("bias", dz, Monoid::Sum, F32.over(N));
        }
        Filters => e.store("d", e.acc() * 0.5 + e.load("d", F32), F32),
    });
    let second = Epilogue::build(|e| match of {
        Images => {
            let at = convolution.input_pixel(e);
            let inside = at.y.ge(1).and(at.x.ge(2)).and(at.image.ne(1));
            let z = e.acc() * e.load("scale", F32.over(M)) + e.load("residual", dtype);
            e.store("d", z.region(inside, |z| z.tanh()).otherwise(|z| z), dtype);
        }
        Filters => {
            e.store("d", e.acc(), dtype);
            e.reduce("bias", e.a(), Monoid::Sum, F32.over(M | L));
        }
    });
    let turned = Epilogue::build(|e| e.store("d", e.acc(), dtype.column_major()));
    [first, second, turned].into_iter().map(Result::unwrap).collect()
}

fn cases(dtype: DType, mainloop: Mainloop, of: GradientOf, shapes: impl IntoIterator<Item = ConvShape>) -> Vec<Case> {
    let cases = |shape: ConvShape| {
        let convolution = Convolution::new(shape).unwrap();
        let of = epilogues(dtype, &convolution, of).into_iter().map(move |epilogue| (epilogue, of));
        let case = move |(epilogue, of): (Epilogue, GradientOf)| {
            let conv = Conv::gradient(dtype, convolution, of, &epilogue).prefer(|gemm| gemm.mainloop(mainloop));
            Case::new(conv.gemm(), conv.shape())
        };
        of.map(case).collect::<Vec<_>>()
    };
    shapes.into_iter().flat_map(cases).collect()
}

/// What an im2col map can describe of the images' gradient: windows that move by one pixel.
#[test]
fn of_images_on_sm90a() {
    for (dtype, channels) in [(F16, 64), (BF16, 8), (F16, 72)] {
        let described = |shape: &ConvShape| shape.stride == [1; 2] && shape.filters.is_multiple_of(8);
        run_all(&cases(dtype, Mainloop::Sm90a, Images, shapes(channels).into_iter().filter(described)));
    }
}

/// Windows that move by several pixels: rows go by their remainders. Some meet no tap.
fn strided(channels: usize) -> Vec<ConvShape> {
    let base = ConvShape::new(3, [12, 16, channels], [72, 3, 3]);
    vec![
        base.stride([2, 2]).padding([1, 1]),
        base.stride([3, 4]).padding_of([0, 2, 1, 0]),
        base.stride([2, 2]).dilation([2, 3]).padding([2, 3]),
        base.stride([6, 4]).dilation([4, 2]).padding([4, 2]),
        ConvShape { window: [1, 1], ..base }.stride([2, 2]),
        ConvShape { window: [5, 4], ..base }.stride([1, 2]).padding([2, 2]),
        ConvShape { images: 40, ..base }.stride([2, 2]).padding([1, 1]),
        ConvShape { filters: 256, channels: 2 * channels.next_multiple_of(64), ..base }.groups(2).stride([2, 2]),
        ConvShape { images: 0, ..base }.stride([2, 2]),
    ]
}

#[test]
fn of_strided_images() {
    for (dtype, channels) in [(F16, 64), (BF16, 8), (F16, 72)] {
        run_all(&cases(dtype, Mainloop::Sm90a, Images, strided(channels)));
    }
    run_all(&cases(F16, Mainloop::Sm80, Images, strided(20)));
    run_all(&cases(F32, Mainloop::Simt, Images, strided(6)));
    // What has to see rows in order goes through all of them, and multiplies zeros.
    let convolution = Convolution::new(strided(64)[0]).unwrap();
    let in_order = Epilogue::build(|e| {
        e.store("d", e.acc().gt(0.0), Bits8.column_major());
        e.reduce("sums", e.acc(), Monoid::Sum, F32.over(M));
        e.reduce("mean", e.acc(), Monoid::Mean, F32.over(N));
    });
    let conv = Conv::gradient(F16, convolution, Images, &in_order.unwrap());
    Case::new(conv.gemm(), conv.shape()).run();
}

/// Slices of wider images behind strided gradients: at whole pieces of 16 bytes, where boxes move them, and elsewhere; columns
/// that are whole chunks of a tile and columns that are not; and images of f32 beside 16 bits.
#[test]
fn slices_of_strided_images() {
    let mut all = Vec::new();
    for channels in [64, 96, 192, 200] {
        let shape = ConvShape::new(7, [18, 28, channels], [72, 3, 3]).stride([2, 2]).padding([1, 1]);
        let convolution = Convolution::new(shape).unwrap();
        let wide = Epilogue::build(|e| e.store("d", e.acc() + e.load("saved", F32), F32)).unwrap();
        for epilogue in [epilogues(F16, &convolution, Images).swap_remove(0), wide] {
            let conv = Conv::gradient(F16, convolution, Images, &epilogue).prefer(|gemm| gemm.mainloop(Mainloop::Sm90a));
            for (offset, gap) in [(0, 0), (64, 128), (8, 8), (4, 4)] {
                let case = Case::new(conv.gemm(), conv.shape()).offset("d", offset).ld("d", channels + gap);
                all.push(case.offset("saved", 2 * offset).ld("saved", channels + 2 * gap));
            }
        }
    }
    run_all(&all);
}

/// A filter for each channel, whatever the steps of the window: the mainloop of such convolutions.
#[test]
fn of_channels_with_their_own_filters() {
    for (dtype, channels) in [(F16, 64), (BF16, 33), (F32, 40)] {
        let base = ConvShape::new(3, [12, 16, channels], [channels, 3, 3]).groups(channels);
        let shapes = vec![
            base.padding([1, 1]),
            base.stride([2, 2]).padding([1, 1]),
            base.stride([3, 4]).padding_of([0, 2, 1, 0]).dilation([2, 3]),
            ConvShape { window: [7, 5], images: 40, ..base }.padding([3, 2]),
            ConvShape { window: [1, 1], ..base }.stride([2, 2]),
            ConvShape { images: 0, ..base },
        ];
        let lines = shapes.iter().filter(|of| of.stride == [1; 2] && dtype.size() * channels % 4 == 0);
        run_all(&cases(dtype, Mainloop::DepthwiseLines, Images, lines.copied()));
        run_all(&cases(dtype, Mainloop::Depthwise, Images, shapes));
    }
}

/// The same on lines where the window moves by several pixels, so that each residue of a pixel meets taps of its own: odd sizes,
/// unequal steps, padding on one side and more than the window, windows smaller than the steps, all formats.
#[test]
fn of_strided_channels_with_their_own_filters() {
    let of = |channels: usize, [height, width]: [usize; 2], window: [usize; 2]| {
        ConvShape::new(3, [height, width, channels], [channels, window[0], window[1]]).groups(channels)
    };
    let shapes = |channels: usize| {
        vec![
            of(channels, [12, 16], [3, 3]).stride([2, 2]).padding([1, 1]),
            of(channels, [13, 11], [3, 3]).stride([2, 3]).padding([1, 1]),
            of(channels, [15, 21], [5, 5]).stride([3, 2]).padding_of([2, 0, 0, 1]),
            of(channels, [10, 14], [2, 1]).stride([3, 2]),
            of(channels, [9, 17], [1, 2]).stride([2, 4]).padding_of([0, 1, 0, 3]),
            of(channels, [9, 10], [3, 3]).stride([2, 2]).padding([4, 5]),
            of(channels, [8, 19], [4, 7]).stride([1, 3]).padding_of([0, 2, 1, 0]),
            ConvShape { images: 1, ..of(channels, [28, 26], [5, 5]).stride([2, 2]).padding([2, 2]) },
            ConvShape { images: 40, ..of(channels, [7, 7], [3, 3]).stride([2, 2]).padding([1, 1]) },
            ConvShape { images: 1, ..of(channels, [18, 20], [3, 3]).stride([3, 3]).padding_of([0, 1, 1, 0]) },
            ConvShape { images: 0, ..of(channels, [12, 16], [3, 3]).stride([2, 2]) },
        ]
    };
    // Each kind of epilogue on some of the shapes.
    for (dtype, channels, step) in [(F16, 64, 1), (F16, 22, 2), (BF16, 152, 4), (F32, 40, 2), (F32, 5, 4)] {
        let all = cases(dtype, Mainloop::DepthwiseLines, Images, shapes(channels));
        run_all(&all.into_iter().step_by(step).collect::<Vec<_>>());
    }
    for (dtype, shape) in [F64, I8, E5M2].into_iter().flat_map(|dtype| shapes(24).into_iter().take(3).map(move |of| (dtype, of)))
    {
        let epilogue = Epilogue::build(|e| match dtype.value_type() {
            ValueType::I32 => e.store("d", e.acc_i32() + 3, I32),
            ValueType::F64 => e.store("d", e.acc_f64() * 2.0, F64),
            _ => e.store("d", e.acc(), F32),
        });
        let conv = Conv::gradient(dtype, Convolution::new(shape).unwrap(), Images, &epilogue.unwrap());
        assert_eq!(conv.kernel_plan(Target::SM_90A, 132).unwrap().mainloop(), Mainloop::DepthwiseLines, "nobody says how");
        Case::new(conv.gemm(), conv.shape()).run();
    }
}

/// Tiles of such gradients, more of them than blocks, behind what reads a matrix, what sums over pixels, and neither.
#[test]
fn tiles_of_strided_channels_with_their_own_filters() {
    let by_two = ConvShape::new(301, [14, 12, 88], [88, 3, 3]).stride([2, 2]).padding([1, 1]).groups(88);
    for shape in [by_two, ConvShape { window: [5, 5], images: 67, ..by_two }.padding([2, 2])] {
        let convolution = Convolution::new(shape).unwrap();
        let plain = Epilogue::build(|e| e.store("d", e.acc(), F16)).unwrap();
        let added = Epilogue::build(|e| e.store("d", e.acc() + e.load("residual", F16), F16)).unwrap();
        let summed = epilogues(F16, &convolution, Images).swap_remove(0);
        for epilogue in [plain, added, summed] {
            let conv = Conv::gradient(F16, convolution, Images, &epilogue);
            let plan = conv.kernel_plan(Target::SM_90A, 132).unwrap();
            let tiles = plan.choice.candidates().map(|(tile, _)| tile).step_by(7);
            let of = |tile| Case::new(conv.clone().prefer(|gemm| gemm.tile(tile)).gemm(), conv.shape());
            run_all(&tiles.map(of).collect::<Vec<_>>());
        }
    }
}

/// The filters of such channels: added to, beside reductions, masks and vectors of each axis, and along M.
fn epilogues_of_filters(dtype: DType) -> Vec<Epilogue> {
    let reduced = Epilogue::build(|e| {
        let z = e.acc() * e.load("scale", F32.over(L)) + e.load("tap", F32.over(N));
        e.store("d", z, dtype);
        e.store("mask", z.gt(0.0), Bits8);
        e.reduce("columns", z, Monoid::Sum, F32.over(N));
        e.reduce("largest", z, Monoid::AbsMax, F32.over(M | L));
    });
    let added = Epilogue::build(|e| e.store("d", e.acc() * 0.5 + e.load("d", F32), F32));
    let turned = Epilogue::build(|e| e.store("d", e.acc(), dtype.column_major()));
    [reduced, added, turned].into_iter().map(Result::unwrap).collect()
}

/// One case for each epilogue, on the chosen tile or on a few of those that fit.
fn cases_of_filters(dtype: DType, shape: ConvShape, every: Option<usize>) -> Vec<Case> {
    let convolution = Convolution::new(shape).unwrap();
    let cases = |epilogue: Epilogue| {
        let conv = Conv::gradient(dtype, convolution, Filters, &epilogue);
        let conv = conv.prefer(|gemm| gemm.mainloop(Mainloop::DepthwiseFilters));
        let tiles: Vec<_> = match every {
            None => vec![None],
            Some(every) => {
                let plan = conv.kernel_plan(Target::SM_90A, 132).unwrap();
                plan.choice.candidates().map(|(tile, _)| Some(tile)).step_by(every).collect()
            }
        };
        let case = |tile: Option<Tile>| {
            let conv = tile.map_or_else(|| conv.clone(), |tile| conv.clone().prefer(|gemm| gemm.tile(tile)));
            Case::new(conv.gemm(), conv.shape())
        };
        tiles.into_iter().map(case).collect::<Vec<_>>()
    };
    epilogues_of_filters(dtype).into_iter().flat_map(cases).collect()
}

/// The gradient of a filter for each channel: steps, borders on one side, lines that are kept and lines that are not, rows of
/// the window in turns.
#[test]
fn of_filters_of_channels() {
    for (dtype, channels) in [(F16, 64), (BF16, 33), (F32, 40), (F16, 200), (BF16, 8)] {
        let base = ConvShape::new(3, [12, 16, channels], [channels, 3, 3]).groups(channels);
        let shapes = [
            base.padding([1, 1]),
            base.stride([2, 2]).padding([1, 1]),
            ConvShape { images: 1, ..base }.stride([3, 3]).padding_of([0, 2, 1, 0]),
            base.stride([3, 4]).padding_of([0, 2, 1, 0]).dilation([2, 3]),
            ConvShape { images: 1, ..base }.dilation([2, 2]).padding([2, 2]),
            ConvShape { window: [7, 7], images: 40, ..base }.padding([3, 3]),
            ConvShape { window: [5, 4], height: 29, width: 31, ..base }.stride([1, 2]).padding([2, 2]),
            ConvShape { window: [11, 9], ..base }.padding([5, 4]),
            ConvShape { window: [1, 1], ..base }.stride([2, 2]),
            ConvShape { window: [2, 3], width: 13, ..base },
            ConvShape { images: 0, ..base },
        ];
        // One epilogue after the other: compiling takes the time.
        let in_turn =
            |(turn, shape): (usize, ConvShape)| cases_of_filters(dtype, shape, None).into_iter().nth((turn + channels) % 3);
        run_all(&shapes.into_iter().enumerate().filter_map(in_turn).collect::<Vec<_>>());
    }
    // Operands of one sign, slices of wider ones, and what a plan chooses by itself.
    let convolution = Convolution::new(ConvShape::new(9, [57, 56, 72], [72, 3, 3]).padding([1, 1]).groups(72)).unwrap();
    let conv = Conv::gradient(F16, convolution, Filters, &epilogues_of_filters(F16)[0]);
    assert_eq!(conv.kernel_plan(Target::SM_90A, 132).unwrap().mainloop(), Mainloop::DepthwiseFilters);
    let case = Case::new(conv.gemm(), conv.shape());
    case.fill("a", |rng, dtype| rng.element(dtype).abs()).fill("b", |rng, dtype| rng.element(dtype).abs()).run();
    for (offset, gap) in [(64, 128), (4, 4), (1, 1)] {
        let case = Case::new(conv.gemm(), conv.shape()).offset("a", offset).ld("a", 72 + gap);
        case.offset("b", offset).ld("b", 72 + gap).run();
    }
}

/// Every tile that fits, with parts of K on all multiprocessors.
#[test]
fn tiles_of_filters_of_channels() {
    let base = ConvShape::new(20, [28, 28, 88], [88, 3, 3]).groups(88);
    for shape in [base.padding([1, 1]), ConvShape { window: [5, 5], ..base }.stride([2, 2]).padding([2, 2])] {
        run_all(&cases_of_filters(F16, shape, Some(6)));
    }
}

/// The gradient of filters of few channels: windows at even and at odd elements, whole lines and others, in one piece, in parts
/// whose last one is shorter, and in as many as a plan chooses.
#[test]
fn of_filters_of_few_channels() {
    for (dtype, channels) in [(F16, 3), (BF16, 4), (F16, 1), (BF16, 6)] {
        let base = ConvShape::new(3, [30, 41, channels], [72, 3, 3]);
        let stem = ConvShape { window: [7, 7], filters: 64, height: 56, width: 48, ..base }.stride([2, 2]).padding([3, 3]);
        let shapes = [
            base.padding([1, 1]),
            stem,
            ConvShape { images: 40, filters: 40, ..stem },
            base.stride([3, 4]).padding_of([0, 2, 1, 0]),
            ConvShape { images: 1, window: [2, 4], ..base }.stride([1, 2]).padding_of([0, 0, 0, 3]),
            base.dilation([2, if channels % 2 == 0 { 2 } else { 1 }]).padding([2, 2]),
            ConvShape { images: 70, height: 5, width: 6, ..base },
            ConvShape { images: 0, ..base },
        ];
        let mut all = Vec::new();
        for (shape, parts) in shapes.into_iter().zip([None, Some(1), None, Some(3), Some(1), Some(7), None, None]) {
            let convolution = Convolution::new(shape).unwrap();
            for epilogue in epilogues(dtype, &convolution, Filters).into_iter().step_by(2) {
                let conv = Conv::gradient(dtype, convolution, Filters, &epilogue);
                let conv = conv.prefer(|gemm| gemm.mainloop(Mainloop::BandsFilters));
                let conv = parts.map_or_else(|| conv.clone(), |parts| conv.clone().prefer(|gemm| gemm.split_k(parts)));
                all.push(Case::new(conv.gemm(), conv.shape()));
            }
        }
        run_all(&all);
    }
    // Reductions behind whole sums, slices of wider images, and every tile.
    let reduced = Epilogue::build(|e| {
        let z = e.acc() + e.load("filter", F32.over(M));
        e.store("d", z, F16);
        e.reduce("columns", z, Monoid::Sum, F32.over(N));
        e.reduce("rows", z, Monoid::Sum, F32.over(M));
    })
    .unwrap();
    let convolution = Convolution::new(ConvShape::new(5, [57, 64, 3], [96, 5, 5]).padding([2, 2]).stride([2, 2])).unwrap();
    let conv = Conv::gradient(F16, convolution, Filters, &reduced);
    assert_eq!(conv.kernel_plan(Target::SM_90A, 132).unwrap().mainloop(), Mainloop::BandsFilters);
    let conv = conv.prefer(|gemm| gemm.split_k(1));
    Case::new(conv.gemm(), conv.shape()).offset("b", 1).ld("b", 4).offset("a", 8).ld("a", 104).run();
    let plan = conv.kernel_plan(Target::SM_90A, 132).unwrap();
    let tiles = plan.choice.candidates().map(|(tile, _)| tile);
    run_all(&tiles.map(|tile| Case::new(conv.clone().prefer(|gemm| gemm.tile(tile)).gemm(), conv.shape())).collect::<Vec<_>>());
}

/// Every tile for tiles with different numbers of taps, on more of them than there are multiprocessors.
#[test]
fn tiles_of_strided_images() {
    let convolution = Convolution::new(ConvShape::new(9, [64, 48, 128], [200, 3, 3]).padding([1, 1]).stride([2, 2])).unwrap();
    let mut all = Vec::new();
    for epilogue in &epilogues(F16, &convolution, Images)[..2] {
        let conv = Conv::gradient(F16, convolution, Images, epilogue).prefer(|gemm| gemm.mainloop(Mainloop::Sm90a));
        let plan = conv.kernel_plan(Target::SM_90A, 132).unwrap();
        for tile in plan.choice.candidates().map(|(tile, _)| tile).collect::<Vec<_>>().into_iter().step_by(2) {
            all.push(Case::new(conv.clone().prefer(|gemm| gemm.tile(tile)).gemm(), conv.shape()));
        }
    }
    run_all(&all);
}

/// Without pixels there is no map.
#[test]
fn of_filters_on_sm90a() {
    let described = |shape: &ConvShape| shape.images > 0 && shape.filters.is_multiple_of(8);
    for (dtype, channels) in [(F16, 64), (BF16, 128)] {
        run_all(&cases(dtype, Mainloop::Sm90a, Filters, shapes(channels).into_iter().filter(described)));
    }
}

#[test]
fn tiles_of_sm90a() {
    let shape = ConvShape::new(9, [31, 29, 128], [200, 3, 3]).padding([1, 1]);
    let convolution = Convolution::new(shape).unwrap();
    let mut all = Vec::new();
    for of in [Images, Filters] {
        for epilogue in &epilogues(F16, &convolution, of)[..2] {
            let conv = Conv::gradient(F16, convolution, of, epilogue).prefer(|gemm| gemm.mainloop(Mainloop::Sm90a).split_k(1));
            let plan = conv.kernel_plan(Target::SM_90A, 132).unwrap();
            let tiles: Vec<Tile> = plan.choice.candidates().map(|(tile, _)| tile).collect();
            assert_eq!(tiles.iter().any(|tile| tile.cluster() == 2), of == Images, "pairs share filters");
            for tile in tiles.into_iter().step_by(3) {
                all.push(Case::new(conv.clone().prefer(|gemm| gemm.tile(tile)).gemm(), conv.shape()));
            }
        }
    }
    run_all(&all);
}

#[test]
fn on_sm80() {
    for (dtype, channels) in [(F16, 64), (BF16, 3), (F16, 10), (BF16, 20)] {
        let mut all = shapes(channels);
        let base = ConvShape::new(2, [30, 31, channels], [40, 3, 3]);
        all.extend([base.stride([9, 10]), base.dilation([70, 1]).padding([70, 0]), ConvShape { filters: 7, ..base }]);
        for of in [Images, Filters] {
            run_all(&cases(dtype, Mainloop::Sm80, of, all.iter().copied()));
        }
    }
}

#[test]
fn on_simt() {
    for (dtype, channels) in [(F32, 64), (F16, 3), (BF16, 8)] {
        for of in [Images, Filters] {
            run_all(&cases(dtype, Mainloop::Simt, of, shapes(channels)));
        }
    }
}

#[test]
fn in_tf32() {
    let convolution = Convolution::new(ConvShape::new(2, [13, 11, 36], [72, 3, 3]).padding([1, 1])).unwrap();
    for of in [Images, Filters] {
        let conv = Conv::gradient(F32, convolution, of, &epilogues(F32, &convolution, of)[0]).prefer(|gemm| gemm.tf32(true));
        Case::new(conv.gemm(), conv.shape()).run();
    }
}

#[test]
fn groups() {
    for (dtype, mainloop) in [(F16, Mainloop::Sm80), (F32, Mainloop::Simt)] {
        for of in [Images, Filters] {
            run_all(&cases(dtype, mainloop, of, in_groups()));
        }
    }
}

/// Every step of two layers, one behind the other.
#[test]
fn layers() {
    let shape = ConvShape::new(3, [12, 10, 64], [72, 3, 3]).padding([1, 1]);
    let first = Conv2d::new(F16, shape, |_, z| z.silu()).unwrap();
    let second = Conv2d::new(F16, ConvShape { channels: 72, ..shape }.stride([2, 2]), |_, z| z.relu()).unwrap();
    let steps = [
        second.forward(),
        second.activation_grad().unwrap(),
        second.wgrad().unwrap(),
        second.wgrad_with_bias().unwrap(),
        second.dgrad().unwrap(),
        second.dgrad_into(&first).unwrap().accumulate(&["grad_bias"]).unwrap(),
        first.clone().gradients(F32).wgrad().unwrap().accumulate(&["dw"]).unwrap(),
    ];
    run_all(&steps.map(|step| Case::new(step.gemm(), step.shape()).slack(10.0)));
}

/// Parts of K: equal ones of filters and taps, and of output pixels, of which the last part may have fewer.
#[test]
fn parts_of_k() {
    let convolution = Convolution::new(ConvShape::new(2, [19, 17, 64], [128, 3, 3]).padding([1, 1])).unwrap();
    let mut all = Vec::new();
    for mainloop in [Mainloop::Sm90a, Mainloop::Sm80, Mainloop::Simt] {
        for (of, parts) in [(Images, [2, 6, 18]), (Filters, [2, 3, 11])] {
            for (parts, epilogue) in parts.into_iter().zip(epilogues(F16, &convolution, of)) {
                // Dy is not summed in parts.
                let epilogue = if epilogue.checked().argument("bias").is_some() && of == Filters {
                    Epilogue::build(|e| e.store("d", e.acc(), F16)).unwrap()
                } else {
                    epilogue
                };
                let conv = Conv::gradient(F16, convolution, of, &epilogue);
                let conv = conv.prefer(|gemm| gemm.mainloop(mainloop).split_k(parts));
                all.push(Case::new(conv.gemm(), conv.shape()));
            }
        }
    }
    run_all(&all);
}

/// Slices of wider images, filters and outputs; unaligned addresses; operands of one sign; and whatever is chosen.
#[test]
fn slices_and_signs() {
    let convolution = Convolution::new(ConvShape::new(2, [9, 7, 64], [72, 3, 3]).padding([1, 1])).unwrap();
    for of in [Images, Filters] {
        for epilogue in epilogues(F16, &convolution, of) {
            let conv = Conv::gradient(F16, convolution, of, &epilogue);
            for (offset, gap) in [(64, 128), (4, 4), (1, 1)] {
                let b = if of == Images { 9 * 64 } else { 64 };
                let case = Case::new(conv.gemm(), conv.shape()).offset("a", offset).ld("a", 72 + gap);
                case.offset("b", offset).ld("b", b + gap).run();
            }
            let case = Case::new(conv.gemm(), conv.shape());
            case.fill("a", |rng, dtype| rng.element(dtype).abs()).fill("b", |rng, dtype| rng.element(dtype).abs()).run();
        }
    }
}
