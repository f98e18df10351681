//! Convolutions, their gradients, and pools.

use super::*;
use postlude::plan::{MapSource, TensorMap};

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
        (base.groups(64), Mainloop::DepthwiseLines),
        (base.groups(64).dilation([2, 2]), Mainloop::Depthwise),
        (ConvShape { channels: 65, filters: 65, ..base }.groups(65), Mainloop::Depthwise),
        (ConvShape { filters: 128, ..base }.groups(64), Mainloop::Sm80),
        (ConvShape { window: [3, 11], ..base }.groups(64), Mainloop::Sm80),
    ];
    for (shape, mainloop) in cases {
        let conv = Conv::new(F16, shape, &identity).unwrap();
        let plan = conv.kernel_plan(Target::SM_90A, 132).unwrap();
        assert_eq!(plan.mainloop(), mainloop, "{shape}: {}", plan.explain());
    }
}

/// Where a filter has one channel, lines in shared memory are for windows without gaps, and for GPUs that copy to it.
#[test]
fn depthwise_lines_are_for_windows_without_gaps() {
    let identity = recipes::identity(F16).unwrap();
    let base = ConvShape::new(8, [56, 56, 64], [64, 3, 3]).padding([1, 1]).groups(64);
    let mainloop = |conv: &Conv, target| conv.kernel_plan(target, 132).unwrap().mainloop();
    let forward = Conv::new(F16, base, &identity).unwrap();
    assert_eq!(mainloop(&forward, Target::SM_80), Mainloop::DepthwiseLines);
    assert_eq!(mainloop(&forward, Target::SM_75), Mainloop::Depthwise);
    // The largest tile limits the rows of a band of a large image.
    for (height, width) in [(512, 512), (2048, 300), (40_000, 3)] {
        let large = Conv::new(F16, ConvShape { height, width, ..base }, &identity).unwrap();
        let plan = large.kernel_plan(Target::SM_90A, 132).unwrap();
        assert_eq!(plan.mainloop(), Mainloop::DepthwiseLines, "{}", plan.explain());
        assert!(!plan.explain().contains("from 1 to 65536"), "{}", plan.explain());
    }
    for (shape, expected) in [
        (base, Mainloop::DepthwiseLines),
        (base.stride([2, 2]), Mainloop::DepthwiseLines),
        (base.stride([4, 4]), Mainloop::DepthwiseLines),
        (base.stride([2, 2]).dilation([2, 2]), Mainloop::Depthwise),
        (base.stride([3, 6]), Mainloop::Depthwise),
    ] {
        let gradient = Conv::gradient(F16, postlude::Convolution::new(shape).unwrap(), postlude::GradientOf::Images, &identity);
        assert_eq!(mainloop(&gradient, Target::SM_90A), expected, "{shape}");
    }
}

/// Sums of channels take lanes that are a power of two, whoever names the tile.
#[test]
fn depthwise_lines_sum_channels_by_powers_of_two() {
    let shape = ConvShape::new(32, [56, 56, 144], [144, 3, 3]).padding([1, 1]).groups(144);
    let summed = Epilogue::build(|e| {
        e.store("d", e.acc(), F16);
        e.reduce("sums", e.acc(), Monoid::Sum, F32.over(N));
    });
    let summed = Conv::new(F16, shape, &summed.unwrap()).unwrap();
    let plan = summed.kernel_plan(Target::SM_90A, 132).unwrap();
    assert!(plan.mainloop() == Mainloop::DepthwiseLines && plan.tile.bn.is_power_of_two(), "{}", plan.explain());
    let plain = Conv::new(F16, shape, &recipes::identity(F16).unwrap()).unwrap().kernel_plan(Target::SM_90A, 132).unwrap();
    let (odd, _) = plain.choice.candidates().find(|(tile, _)| !tile.bn.is_power_of_two()).unwrap();
    let error = summed.prefer(|gemm| gemm.tile(odd)).kernel_plan(Target::SM_90A, 132).unwrap_err();
    assert!(format!("{error}").contains("a power of two"), "{error}");
}

/// Blocks under small windows go from tile to tile, and under any window if columns are reduced. Others have one tile each.
#[test]
fn depthwise_blocks_take_turns() {
    let base = ConvShape::new(256, [28, 28, 128], [128, 3, 3]).padding([1, 1]).groups(128);
    let wide = ConvShape { window: [5, 5], ..base }.padding([2, 2]);
    let reduced = |to: Operand| {
        let epilogue = Epilogue::build(|e| {
            e.store("d", e.acc(), F16);
            e.reduce("sums", e.acc(), Monoid::Sum, to);
        });
        epilogue.unwrap()
    };
    let (plain, columns, rows) = (recipes::identity(F16).unwrap(), reduced(F32.over(N)), reduced(F32.over(M)));
    for (shape, epilogue, turns) in [
        (base, &plain, true),
        (base, &columns, true),
        (base, &rows, false),
        (base.stride([2, 2]), &plain, false),
        (wide, &plain, false),
        (wide, &columns, true),
    ] {
        let conv = Conv::new(F16, shape, epilogue).unwrap();
        let plan = conv.kernel_plan(Target::SM_90A, 132).unwrap();
        let Shape { m, n, .. } = conv.shape();
        let tiles = m.div_ceil(plan.tile.bm) * n.div_ceil(plan.tile.bn);
        let blocks = plan.grid(conv.shape()).unwrap()[0] as usize;
        assert_eq!(blocks < tiles, turns, "{blocks} blocks: {}", plan.explain());
        assert!(!turns || blocks <= 132 * plan.tile.min_blocks, "{blocks} blocks: {}", plan.explain());
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
            ("SHARES_TAPS", 0),
        ] {
            assert!(source.text().contains(&format!("constexpr int {name} = {number};")), "{kind:?}: {name} is not {number}");
        }
    }
}

/// Matrices of a strided gradient of images come and leave in boxes of pixels of one remainder, where their lines lie along the
/// columns and a tile's columns are whole chunks. Others are moved row by row.
#[test]
fn rows_of_strided_gradients_have_maps() {
    let by_two = |channels: usize| ConvShape::new(2, [16, 16, channels], [64, 3, 3]).padding([1, 1]).stride([2, 2]);
    let mapped = |shape: ConvShape, epilogue: &Epilogue| {
        let conv = Conv::gradient(F16, postlude::Convolution::new(shape).unwrap(), postlude::GradientOf::Images, epilogue);
        let plan = conv.kernel_plan(Target::SM_90A, 132).unwrap();
        let is_box = |map: &&TensorMap| matches!(map.source, MapSource::Remainders(_)) && map.required;
        assert_eq!(plan.mainloop(), Mainloop::Sm90a);
        (plan.maps.iter().filter(is_box).count(), plan.staging.unwrap().store_rows)
    };
    let plain = recipes::identity(F16).unwrap();
    let added = Epilogue::build(|e| e.store("d", e.acc() + e.load("residual", F16), F16)).unwrap();
    let turned = Epilogue::build(|e| e.store("d", e.acc(), F16.column_major())).unwrap();
    assert_eq!(mapped(by_two(128), &plain), (1, 16));
    assert_eq!(mapped(by_two(64), &added), (2, 16));
    assert_eq!(mapped(by_two(200), &plain), (0, 64), "the last chunk is cut");
    assert_eq!(mapped(by_two(128), &turned), (0, 64), "lines lie along the rows");
    let in_order = mapped(by_two(128).stride([1, 1]), &plain);
    assert_eq!(in_order.0, 0, "rows follow each other");
}
