//! Reductions: every monoid over every set of axes on every mainloop, alone, beside stores and in regions, over ragged and
//! empty extents; twice the same bits; on several streams and from graphs.

use crate::case::Case;
use crate::files::with_scalars;
use crate::layout::Rng;
use crate::monoids;
use crate::rig::{capturing, gpu, rig};
use postlude::cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode};
use postlude::device::DeviceArgs;
use postlude::dtype::ValueType;
use postlude::grad::Wrt;
use postlude::ir::axes::Axes;
use postlude::ir::{Order, Reduce};
use postlude::plan::{Mainloop, Schedule, Tile, TileShape};
use postlude::prelude::*;
use postlude::target::Target;
use postlude::{DType, Epilogue, Error, Gemm};

/// Ragged, several tiles either way on every mainloop; one tile; entries; hardly anything; few rows, few columns.
const SHAPES: [Shape; 6] = [
    Shape::new(300, 392, 40),
    Shape::new(24, 40, 16),
    Shape::new(136, 72, 24).batched(3),
    Shape::new(1, 1, 8),
    Shape::new(3, 520, 64),
    Shape::new(1048, 16, 8),
];

/// Every set of axes but all three.
fn sets() -> Vec<Axes> {
    let sets = [Axes::NONE, M, N, Axes::MN].into_iter().flat_map(|axes| [axes, axes | L]);
    sets.filter(|axes| *axes != Axes::MNL).collect()
}

/// Every mainloop, with operands of both kinds of layout.
fn gemms(epilogue: &Epilogue) -> Vec<Gemm> {
    vec![
        Gemm::new(F16, TN, epilogue),
        Gemm::new(BF16, NT, epilogue).mainloop(Mainloop::Sm80),
        Gemm::new(F32, TT, epilogue),
        Gemm::new(F32, NN, epilogue).tf32(true),
        Gemm::new(F16, TN, epilogue).mainloop(Mainloop::Gemv),
        Gemm::new(F32, NN, epilogue).mainloop(Mainloop::Gemv),
        Gemm::pointwise(F32, Order::RowMajor, epilogue),
        Gemm::pointwise(F16, Order::ColumnMajor, epilogue),
    ]
}

/// Runs everything on separate threads, since compiling takes the time.
pub fn run_all(cases: Vec<Case>) {
    let failures = std::thread::scope(|scope| {
        let runs: Vec<_> = cases.iter().map(|case| scope.spawn(|| case.run())).collect();
        runs.into_iter().filter_map(|run| run.join().err()).count()
    });
    assert_eq!(failures, 0, "of {} cases", cases.len());
}

fn everywhere(epilogue: &Epilogue, change: impl Fn(Case) -> Case) -> Vec<Case> {
    let cases = |gemm: &Gemm| SHAPES.map(|shape| change(Case::new(gemm, shape)));
    gemms(epilogue).iter().flat_map(cases).collect()
}

/// Reduces a value over every set of axes.
fn over_every_set(value: impl Fn(&postlude::Builder) -> postlude::Expr<'_>, with: impl Into<Reduce>, dtype: DType) -> Epilogue {
    let with = with.into();
    Epilogue::build(|e| {
        let value = value(e);
        for (i, axes) in sets().into_iter().enumerate() {
            e.reduce(&format!("r{i}"), value, with, dtype.over(axes));
        }
    })
    .unwrap()
}

#[test]
fn sums_over_every_set_of_axes() {
    run_all(everywhere(&over_every_set(|e| e.acc(), Monoid::Sum, F32), |case| case));
}

#[test]
fn sums_in_any_order() {
    run_all(everywhere(&over_every_set(|e| e.acc(), Monoid::Sum.atomic(), F32), |case| case));
}

#[test]
fn sums_of_products_are_fused() {
    run_all(everywhere(&over_every_set(|e| e.acc() * e.load("g", F16), Monoid::Sum, F32), |case| case));
}

#[test]
fn extremes_over_every_set_of_axes() {
    for (monoid, dtype) in [(Monoid::Max, F32), (Monoid::Min, F16), (Monoid::AbsMax, BF16)] {
        run_all(everywhere(&over_every_set(|e| e.acc() - 4.0, monoid, dtype), |case| case));
    }
}

#[test]
fn products_over_every_set_of_axes() {
    // Signs: one too many or too few shows.
    let sign = |rng: &mut Rng, _: DType| if rng.bits() & 1 == 0 { 1.0 } else { -1.0 };
    run_all(everywhere(&over_every_set(|e| e.load("sign", F16), Monoid::Product, F32), |case| case.fill("sign", sign)));
}

#[test]
fn logarithms_of_sums_of_exponentials() {
    // Far beyond the range of a single exponential.
    run_all(everywhere(&over_every_set(|e| e.acc() * 50.0 + 300.0, Monoid::LogSumExp, F32), |case| case.slack(100.0)));
}

#[test]
fn integers_and_conditions() {
    let integers = over_every_set(|e| e.acc_i32(), Monoid::Sum, I32);
    let extremes = Epilogue::build(|e| {
        for (i, monoid) in [Monoid::Max, Monoid::Min, Monoid::AbsMax, Monoid::Product].into_iter().enumerate() {
            e.reduce(&format!("n{i}"), e.acc_i32(), monoid, I32.over(N));
            e.reduce(&format!("m{i}"), e.acc_i32(), monoid, I32.over(M).batched());
        }
        e.reduce("any", e.acc_i32().gt(200_000), Monoid::Max, Bool.over(M));
        e.reduce("all", e.acc_i32().gt(-200_000), Monoid::Min, Bool.over(N));
        e.reduce("total", e.acc_i32(), Monoid::Sum.atomic(), I32.pointer());
        e.reduce("rows", e.row(), Monoid::Sum, I32.over(N));
        e.store("d", e.acc_i32(), I32);
    })
    .unwrap();
    for epilogue in [integers, extremes] {
        let gemms = [Gemm::new(I32, TN, &epilogue), Gemm::pointwise(I32, Order::RowMajor, &epilogue)];
        run_all(gemms.iter().flat_map(|gemm| SHAPES.map(|shape| Case::new(gemm, shape))).collect());
    }
}

#[test]
fn no_number_wins() {
    // About one element in a thousand.
    let holes = |rng: &mut Rng, _: DType| if rng.bits().is_multiple_of(1000) { f64::NAN } else { rng.unit() };
    for monoid in [Monoid::Max, Monoid::Min, Monoid::AbsMax, Monoid::Sum, Monoid::LogSumExp] {
        let epilogue = over_every_set(|e| e.load("c", F32) + e.acc() * 0.0, monoid, F32);
        run_all(everywhere(&epilogue, |case| case.fill("c", holes).slack(100.0)));
    }
    let sizes = over_every_set(|e| (e.load("c", F32) + e.acc() * 0.0).relu(), Monoid::AbsMax, F32);
    run_all(everywhere(&sizes, |case| case.fill("c", holes)));
}

#[test]
fn sizes_of_what_is_never_negative() {
    let sizes = over_every_set(|e| (e.acc() - 4.0).relu(), Monoid::AbsMax, F32);
    run_all(everywhere(&sizes, |case| case));
}

/// Any monoid over every set of axes, with elements of its types: a matrix `c` with exact elements, turned into a
/// condition or an integer, and functions of it for further values. Stored in this format, or in the monoid's own.
fn of_elements(monoid: Monoid, dtype: DType) -> Epilogue {
    Epilogue::build(|e| {
        let z: postlude::Expr<'_> = e.load("c", F32) + e.acc() * 0.0;
        let of_type = |value, place| match value {
            ValueType::F32 if place == 0 => z,
            ValueType::F32 => z * z,
            ValueType::F64 => (z * z).cast(F64),
            ValueType::I32 if place == 0 => (z * 100.0).cast(I32),
            ValueType::I32 => e.row() * 7 + e.column() * 3,
            ValueType::Bool => z.gt(0.25),
        };
        let first = monoid.takes(0)[0];
        let dtype = if monoid.gives(first) == ValueType::F32 { dtype } else { I32 };
        for (i, axes) in sets().into_iter().enumerate() {
            let (name, first) = (format!("r{i}"), of_type(first, 0));
            match monoid.takes(1).first() {
                Some(second) => e.reduce(&name, [first, of_type(*second, 1)], monoid, dtype.over(axes)),
                None => e.reduce(&name, first, monoid, dtype.over(axes)),
            }
        }
    })
    .unwrap()
}

#[test]
fn means_norms_and_squares_of_products() {
    for (monoid, dtype) in [(Monoid::Mean, F32), (Monoid::SumSquares, F32), (Monoid::Norm2, BF16), (Monoid::Mean, F16)] {
        run_all(everywhere(&over_every_set(|e| e.acc(), monoid, dtype), |case| case));
    }
    run_all(everywhere(&over_every_set(|e| e.acc(), Monoid::Norm2.atomic(), F32), |case| case));
}

#[test]
fn counts_and_indices() {
    for monoid in [Monoid::Count, Monoid::ArgMax, Monoid::ArgMin] {
        run_all(everywhere(&of_elements(monoid, F32), |case| case));
    }
    run_all(everywhere(&over_every_set(|e| e.load("c", F32).gt(0.5), Monoid::Count.atomic(), I32), |case| case));
}

/// Elements of few different values, so that most have equals, and some NaN.
#[test]
fn of_equal_elements_the_first_has_its_index() {
    let few = |rng: &mut Rng, _: DType| match rng.bits() % 400 {
        0 => f64::NAN,
        1..20 => -0.0,
        other => (other % 3) as f64,
    };
    for monoid in [Monoid::ArgMax, Monoid::ArgMin] {
        let epilogue = Epilogue::build(|e| {
            let c = e.load("c", F32);
            e.store("d", e.acc(), F32);
            e.reduce("column", c, monoid, I32.over(M));
            e.reduce("row", c, monoid, I32.over(N).batched());
            e.reduce("entry", c, monoid, I32.over(M | N));
            e.reduce("integers", [(c.is_nan().select(e.constant(9.0), c)).cast(I32), e.column()], monoid, I32.over(M));
        });
        run_all(everywhere(&epilogue.unwrap(), |case| case.fill("c", few)));
    }
}

#[test]
fn monoids_of_the_program() {
    for monoid in monoids::every() {
        run_all(everywhere(&of_elements(monoid, F32), |case| case));
    }
}

#[test]
fn infinities_are_elements() {
    let ends = |rng: &mut Rng, _: DType| match rng.bits() % 500 {
        0 => f64::INFINITY,
        1..200 => f64::NEG_INFINITY,
        _ => rng.unit(),
    };
    for monoid in [Monoid::LogSumExp, Monoid::Max] {
        let epilogue = over_every_set(|e| e.load("c", F32), monoid, F32);
        run_all(everywhere(&epilogue, |case| case.fill("c", ends).slack(100.0)));
    }
}

#[test]
fn beside_stores_and_in_regions() {
    let epilogue = Epilogue::build(|e| {
        let z = e.acc() + e.load("bias", F16.over(N));
        let y = z.region(e.row().lt(e.scalar("boundary", I32)), |z| z.sigmoid()).otherwise(|z| z.tanh());
        e.store("d", y, F16);
        e.store("z", z, F32.column_major());
        e.reduce("columns", y, Monoid::Sum, F32.over(N));
        e.reduce("rows", y * z, Monoid::Sum, BF16.over(M).batched());
        e.reduce("amax", z, Monoid::AbsMax.atomic(), F32.pointer());
        e.reduce("shared", y, Monoid::Max, F16.over(M | N).column_major());
    })
    .unwrap();
    run_all(everywhere(&epilogue, |case| case.scalar("boundary", 130).slack(4.0)));
}

#[test]
fn transposed_problems_and_results_apart() {
    let epilogue = Epilogue::build(|e| {
        let dz = e.load("y", F16.column_major()).gt(0.0).select(e.acc(), e.constant(0.0));
        e.store("dx", dz, F16.column_major());
        e.reduce("dbias", dz, Monoid::Sum, F16.over(N).batched());
        e.reduce("rows", dz, Monoid::Sum, F32.over(M));
        e.reduce("over_the_batch", dz, Monoid::Sum, F32.over(M | N).column_major());
    })
    .unwrap();
    let change = |case: Case| {
        let Shape { m, n, .. } = case.shape;
        case.offset("dbias", 3).batch_stride("dbias", n + 5).offset("rows", 1).ld("over_the_batch", m + 7)
    };
    run_all(everywhere(&epilogue, change));
}

#[test]
fn nothing_to_reduce_gives_identities() {
    let extents = [[0, 40, 8, 1], [40, 0, 8, 1], [40, 24, 8, 0], [0, 0, 8, 2], [0, 40, 8, 3], [300, 200, 0, 1], [40, 24, 0, 2]];
    let cases = Monoid::ALL.into_iter().chain(monoids::every()).flat_map(|monoid| {
        let epilogue = of_elements(monoid, if monoid == Monoid::Max { F16 } else { F32 });
        let shapes = extents.map(|[m, n, k, batch]| Shape::new(m, n, k).batched(batch));
        let gemms = [Gemm::new(F16, TN, &epilogue), Gemm::pointwise(F32, Order::RowMajor, &epilogue)];
        let fits = |gemm: &Gemm, shape: Shape| Case::new(gemm, shape).batch_stride("r1", 3).slack(100.0);
        gemms.iter().flat_map(|gemm| shapes.map(|shape| fits(gemm, shape))).collect::<Vec<_>>()
    });
    run_all(cases.collect());
    let conditions = Epilogue::build(|e| {
        e.reduce("all", e.acc().gt(0.0), Monoid::Min, Bool.over(N));
        e.reduce("least", e.row(), Monoid::Min, I32.over(N));
    });
    Case::new(&Gemm::new(F32, TT, &conditions.unwrap()), Shape::new(0, 77, 5)).run();
}

/// The results hold numbers before, which a fresh case draws like any input; where there is nothing to reduce they stay.
#[test]
fn onto_what_is_there() {
    let kinds = [
        (Monoid::Sum.accumulate(), F32),
        (Monoid::Sum.atomic().accumulate(), BF16),
        (Monoid::Max.accumulate(), F16),
        (Monoid::AbsMax.accumulate(), F32),
    ];
    for (with, dtype) in kinds {
        run_all(everywhere(&over_every_set(|e| e.acc(), with, dtype), |case| case));
    }
    let exponentials = over_every_set(|e| e.acc() * 50.0 + 300.0, Monoid::LogSumExp.accumulate(), F32);
    run_all(everywhere(&exponentials, |case| case.slack(100.0)));
    for monoid in Monoid::ALL.into_iter().filter(|monoid| monoid.accumulates()) {
        let epilogue = over_every_set(|e| e.acc(), monoid.accumulate(), F32);
        let shapes = [Shape::new(0, 40, 8), Shape::new(40, 24, 8).batched(0)];
        run_all(shapes.map(|shape| Case::new(&Gemm::new(F16, TN, &epilogue), shape)).to_vec());
    }
}

/// A masked gradient and its sums either way.
fn drelu() -> Epilogue {
    Epilogue::build(|e| {
        let dz = e.load("y", F16).gt(0.0).select(e.acc(), e.constant(0.0));
        e.store("dx", dz, F16);
        e.reduce("dbias", dz, Monoid::Sum, F32.over(N));
        e.reduce("rows", dz, Monoid::Sum, F32.over(M));
        e.reduce("amax", dz, Monoid::AbsMax, F32.pointer());
    })
    .unwrap()
}

#[test]
fn every_tile_of_hopper() {
    if rig().is_none_or(|rig| rig.target().0 != Target::SM_90A) {
        return;
    }
    let (cooperative, ping_pong) = (Schedule::Cooperative, Schedule::PingPong);
    let tiles = [
        (128, 192, 5, 2, ping_pong, [1, 1]),
        (128, 192, 5, 2, ping_pong, [2, 1]),
        (128, 128, 6, 2, ping_pong, [1, 2]),
        (64, 256, 5, 2, ping_pong, [1, 1]),
        (192, 128, 5, 2, ping_pong, [1, 1]),
        (128, 176, 5, 2, ping_pong, [1, 1]),
        (128, 256, 4, 2, cooperative, [1, 1]),
        (256, 128, 4, 2, cooperative, [2, 1]),
        (256, 192, 3, 2, cooperative, [1, 1]),
        (128, 80, 8, 2, cooperative, [1, 1]),
        (64, 64, 6, 1, cooperative, [1, 1]),
        (64, 8, 10, 1, cooperative, [1, 1]),
    ];
    let shapes =
        [Shape::new(2312, 1544, 200), Shape::new(520, 776, 264), Shape::new(40, 24, 72), Shape::new(264, 200, 8).batched(5)];
    let cases = tiles.into_iter().enumerate().flat_map(|(i, (bm, bn, stages, consumers, schedule, cluster))| {
        let shape = TileShape::Sm90a { bk: 64, stages, consumers, schedule, cluster, splits_k: false };
        let tile = Tile { bm, bn, shape, threads: 128 * (1 + consumers), min_blocks: 1 };
        let gemm = Gemm::new(F16, Layout::ALL[i % 4], &drelu()).tile(tile);
        shapes.map(|shape| Case::new(&gemm, shape))
    });
    run_all(cases.collect());
}

#[test]
fn more_slices_than_one_can_hold_at_once() {
    let epilogue = drelu();
    let cases = [
        Case::new(&Gemm::pointwise(F16, Order::RowMajor, &epilogue), Shape::new(5000, 700, 0)),
        Case::new(&Gemm::new(F16, NN, &epilogue), Shape::new(9000, 264, 16)),
        Case::new(&Gemm::new(F16, NN, &epilogue).mainloop(Mainloop::Sm80), Shape::new(264, 9000, 16)),
        Case::new(&Gemm::new(F32, TN, &epilogue), Shape::new(17, 33, 5).batched(300)),
    ];
    run_all(cases.to_vec());
}

#[test]
fn gradients_of_biases() {
    let activations: [(&str, Epilogue); 3] = [
        ("relu", Epilogue::build(|e| e.store("d", (e.acc() + e.load("bias", F32.over(N))).relu(), F16)).unwrap()),
        ("gelu", Epilogue::build(|e| e.store("d", (e.acc() + e.load("bias", F16.over(N))).gelu(), F16)).unwrap()),
        (
            "regions",
            Epilogue::build(|e| {
                let z = e.acc() * e.load("scale", F32.over(M)) + e.load("bias", F32.over(N));
                let y = z.region(e.row().lt(e.scalar("boundary", I32)), |z| z.sigmoid()).otherwise(|z| z.tanh());
                e.store("d", y, F16);
            })
            .unwrap(),
        ),
    ];
    let mut cases = Vec::new();
    for (name, epilogue) in &activations {
        let pair = epilogue.backward(Wrt::all().masks(Bool)).unwrap_or_else(|e| panic!("{name}: {e}"));
        for half in [pair.forward(), pair.backward()] {
            for gemm in gemms(half) {
                cases.extend([SHAPES[0], SHAPES[2]].map(|shape| with_scalars(&gemm, shape, 3).slack(10.0)));
            }
        }
    }
    run_all(cases);
}

#[test]
fn launches_on_two_streams_share_nothing() {
    let Some(device) = gpu() else { return };
    let shape = Shape::new(1000, 520, 0);
    let epilogue = Epilogue::build(|e| {
        e.reduce("columns", e.acc(), Monoid::Sum, F32.over(N));
        e.reduce("total", e.acc(), Monoid::Sum.atomic(), F32.pointer());
    });
    let plan = Gemm::pointwise(F32, Order::RowMajor, &epilogue.unwrap()).plan(device, shape).unwrap();
    let streams = [device.context().new_stream().unwrap(), device.context().new_stream().unwrap()];
    let mut held: Vec<_> = streams
        .iter()
        .zip([1.0f32, 2.0])
        .map(|(stream, x)| {
            let a = stream.clone_htod(&vec![x; shape.m * shape.n]).unwrap();
            (a, stream.alloc_zeros::<f32>(shape.n).unwrap(), stream.alloc_zeros::<f32>(1).unwrap())
        })
        .collect();
    for _ in 0..100 {
        for (stream, (a, columns, total)) in streams.iter().zip(&mut held) {
            let mut args = DeviceArgs::new().input("a", &*a).output("columns", columns).output("total", total);
            plan.execute(stream, &mut args).unwrap();
        }
    }
    for ((stream, (_, columns, total)), x) in streams.iter().zip(&held).zip([1.0, 2.0]) {
        assert!(stream.clone_dtoh(columns).unwrap().iter().all(|sum| *sum == x * shape.m as f32));
        assert_eq!(stream.clone_dtoh(total).unwrap(), [x * (shape.m * shape.n) as f32]);
    }
}

#[test]
fn a_captured_reduction_replays() {
    let Some((device, stream)) = capturing() else { return };
    // K is 1, and the next launch multiplies the sum of the previous one.
    let shape = Shape::new(520, 1032, 8);
    let epilogue = Epilogue::build(|e| {
        e.reduce("sum", e.acc() * (1.0 / 520.0), Monoid::Sum, F32.over(N));
        e.reduce("any", e.acc(), Monoid::Sum.atomic(), F32.over(N));
    });
    let plan = Gemm::new(F16, TN, &epilogue.unwrap()).plan(&device, shape).unwrap();
    let one = half::f16::ONE;
    let (a, b) = (stream.clone_htod(&vec![one; 520 * 8]).unwrap(), stream.clone_htod(&vec![one; 1032 * 8]).unwrap());
    let mut sums = [stream.alloc_zeros::<f32>(1032).unwrap(), stream.alloc_zeros::<f32>(1032).unwrap()];
    stream.synchronize().unwrap();
    let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
    for pass in 0..2 {
        stream.begin_capture(mode).unwrap();
        let [sum, any] = &mut sums;
        let mut launch = || {
            let mut args = DeviceArgs::new().input("a", &a).input("b", &b).output("sum", &mut *sum).output("any", &mut *any);
            plan.execute(&stream, &mut args)
        };
        let results: Vec<_> = (0..5).map(|_| launch()).collect();
        let graph = stream.end_capture(CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH).unwrap();
        if pass == 0 {
            // A capture cannot allocate; an execution outside of one can.
            assert!(results.iter().all(|r| matches!(r, Err(Error::Device(_)))), "{results:?}");
            launch().unwrap();
            stream.synchronize().unwrap();
            continue;
        }
        results.into_iter().for_each(|r| r.unwrap());
        let graph = graph.expect("a graph of kernels");
        for _ in 0..3 {
            stream.memset_zeros(&mut sums[0]).unwrap();
            stream.memset_zeros(&mut sums[1]).unwrap();
            graph.launch().unwrap();
        }
        assert!(stream.clone_dtoh(&sums[0]).unwrap().iter().all(|x| (x - 8.0).abs() < 1e-4));
        assert!(stream.clone_dtoh(&sums[1]).unwrap().iter().all(|x| *x == 8.0 * 520.0));
    }
}
