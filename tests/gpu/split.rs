//! Split of K: parts multiplied side by side, their sums added up in order, the epilogue once.

use crate::case::Case;
use crate::rig::{capturing, gpu};
use half::f16;
use postlude::build::recipes;
use postlude::cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode};
use postlude::device::{DeviceArgs, DeviceError};
use postlude::plan::Mainloop;
use postlude::prelude::*;
use postlude::{DType, Epilogue, Error, Gemm};

/// K that has many numbers of parts.
const K: usize = 1920;

/// Several tiles either way, ragged, narrow and hardly anything.
const SHAPES: [[usize; 2]; 5] = [[264, 392], [257, 131], [16, 520], [520, 9], [1, 1]];

/// Runs everything on separate threads, since compiling takes the time.
fn run_all(cases: &[Case]) {
    let failures = std::thread::scope(|scope| {
        let runs: Vec<_> = cases.iter().map(|case| scope.spawn(|| case.run())).collect();
        runs.into_iter().filter_map(|run| run.join().err()).count()
    });
    assert_eq!(failures, 0, "of {} cases", cases.len());
}

fn residual(dtype: DType) -> Epilogue {
    recipes::residual(dtype, dtype, |z| z.relu()).unwrap()
}

#[test]
fn every_layout_format_and_mainloop() {
    let mut cases = Vec::new();
    for layout in Layout::ALL {
        let ours = [(F16, Mainloop::Sm90a), (BF16, Mainloop::Sm90a), (BF16, Mainloop::Sm80), (F16, Mainloop::Gemv)];
        for (i, (dtype, mainloop)) in ours.into_iter().chain([F32, F16].map(|dtype| (dtype, Mainloop::Simt))).enumerate() {
            for (j, [m, n]) in SHAPES.into_iter().enumerate() {
                let parts = [2, 3, 5, 8, 12, 16, 20][(i + j) % 7];
                let gemm = Gemm::new(dtype, layout, &residual(dtype)).mainloop(mainloop).split_k(parts);
                cases.push(Case::new(&gemm, Shape::new(m, n, K)));
            }
        }
        for mainloop in [Mainloop::Sm80, Mainloop::Sm90a] {
            let gemm = Gemm::new(F32, layout, &residual(F32)).tf32(true).mainloop(mainloop).split_k(4);
            cases.push(Case::new(&gemm, Shape::new(260, 136, K)));
        }
    }
    run_all(&cases);
}

#[test]
fn every_number_of_parts() {
    let cases = [1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 16, 20, 24, 30, 40, 48, 60].map(|parts| {
        let gemm = Gemm::new(F16, TN, &residual(F16)).split_k(parts);
        Case::new(&gemm, Shape::new(136, 200, K)).seed(parts as u64)
    });
    run_all(&cases);
}

#[test]
fn every_kind_of_epilogue() {
    let mut epilogues = Vec::new();
    for d in [Operand::from(F16), F16.column_major(), F32.into()] {
        epilogues.push(
            Epilogue::build(|e| {
                let z = e.acc() * e.load("scale", F32.over(M)) + e.load("bias", F16.over(N));
                let banded = z.region(e.row().lt(e.scalar("boundary", I32)), |z| z.sigmoid()).otherwise(|z| z.tanh());
                e.store("d", banded * e.load("c", BF16) + (e.column() % 3).cast(F32), d);
                e.store("z", z, F32);
            })
            .unwrap(),
        );
        epilogues.push(
            Epilogue::build(|e| {
                let z = e.load("x", d) * 0.5 + e.acc() * e.scalar("alpha", F32);
                e.store("x", z, d);
                e.reduce("sums", z, Monoid::Sum, F32.over(N));
                e.reduce("largest", e.acc(), Monoid::Max, F32.over(M));
            })
            .unwrap(),
        );
    }
    let mut cases = Vec::new();
    for (i, epilogue) in epilogues.iter().enumerate() {
        for (j, [m, n]) in SHAPES.into_iter().enumerate() {
            let layout = Layout::ALL[(i + j) % 4];
            let case = Case::new(&Gemm::new(F16, layout, epilogue).split_k([4, 6, 16][j % 3]), Shape::new(m, n, K)).slack(2.0);
            let named = |name: &str| epilogue.checked().argument(name).is_some();
            let case = if named("boundary") { case.scalar("boundary", 140) } else { case };
            let case = if named("alpha") { case.scalar("alpha", 0.25f32) } else { case };
            cases.push(case.origin(7, -3, 0));
        }
    }
    run_all(&cases);
}

#[test]
fn operands_lie_anywhere() {
    let mut cases = Vec::new();
    for layout in Layout::ALL {
        let shape = Shape::new(136, 200, K);
        let row_a = if layout.a() == postlude::ir::Order::RowMajor { K } else { shape.m };
        let row_b = if layout.b() == postlude::ir::Order::RowMajor { shape.n } else { K };
        let case = Case::new(&Gemm::new(F16, layout, &residual(F16)).split_k(8), shape);
        cases.push(case.clone().ld("a", row_a + 24).ld("b", row_b + 8).ld("d", shape.n + 16));
        cases.push(case.clone().offset("a", 1).ld("b", row_b + 3).offset("d", 1));
        cases.push(case.offset("a", 4).ld("a", row_a + 4).offset("b", 2).ld("b", row_b + 2));
        let single = Case::new(&Gemm::new(F32, layout, &residual(F32)).split_k(5), shape);
        cases.push(single.offset("a", 1).ld("b", row_b + 1));
    }
    run_all(&cases);
}

#[test]
fn long_products() {
    let cases =
        Layout::ALL.map(|layout| Case::new(&Gemm::new(BF16, layout, &residual(BF16)).split_k(8), Shape::new(256, 264, 16384)));
    run_all(&cases);
}

/// A product that adds 1 to each of its sums of 512 ones.
fn counting() -> (Gemm, Shape) {
    let epilogue = Epilogue::build(|e| e.store("d", e.acc() + 1.0, F16)).unwrap();
    (Gemm::new(F16, TN, &epilogue).split_k(8), Shape::new(512, 512, 512))
}

#[test]
fn chained_launches_see_each_other() {
    // B is a unit matrix: each launch adds 1 to the previous launch's output, through the same sums.
    let Some(device) = gpu() else { return };
    let (gemm, shape) = counting();
    let unit: Vec<f16> = (0..512 * 512).map(|i| if i % 513 == 0 { f16::ONE } else { f16::ZERO }).collect();
    for allow in [true, false] {
        let plan = gemm.clone().programmatic_launch(allow).plan(device, shape).unwrap();
        let streams = [device.context().new_stream().unwrap(), device.context().new_stream().unwrap()];
        let mut pairs = Vec::new();
        for stream in &streams {
            let zeros = || stream.alloc_zeros::<f16>(512 * 512).unwrap();
            pairs.push((stream.clone_htod(&unit).unwrap(), zeros(), zeros()));
        }
        // Two streams at the same time: each has its own sums.
        for turn in 0..60 {
            for (stream, (unit, left, right)) in streams.iter().zip(&mut pairs) {
                let (from, to) = if turn % 2 == 0 { (&*left, right) } else { (&*right, left) };
                plan.execute(stream, &mut DeviceArgs::new().input("a", from).input("b", unit).output("d", to)).unwrap();
            }
        }
        for (stream, (_, left, _)) in streams.iter().zip(&pairs) {
            let got = stream.clone_dtoh(left).unwrap();
            assert!(got.iter().all(|x| x.to_f32() == 60.0), "{allow}: {:?}", got.iter().find(|x| x.to_f32() != 60.0));
        }
    }
}

#[test]
fn a_graph_replays_it() {
    let Some((device, stream)) = capturing() else { return };
    let (gemm, shape) = counting();
    let unit: Vec<f16> = (0..512 * 512).map(|i| if i % 513 == 0 { f16::ONE } else { f16::ZERO }).collect();
    for allow in [true, false] {
        let plan = gemm.clone().programmatic_launch(allow).plan(&device, shape).unwrap();
        let unit = stream.clone_htod(&unit).unwrap();
        let zeros = || stream.alloc_zeros::<f16>(512 * 512).unwrap();
        let (mut left, mut right, mut other) = (zeros(), zeros(), zeros());
        let capture = || stream.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL).unwrap();
        let end = || stream.end_capture(CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH);
        stream.synchronize().unwrap();
        capture();
        let mut args = DeviceArgs::new().input("a", &left).input("b", &unit).output("d", &mut other);
        let refused = plan.execute(&stream, &mut args);
        let bytes = plan.kernel().plan.scratch;
        assert!(
            matches!(refused, Err(Error::Device(DeviceError::WorkspaceInCapture { bytes: needed })) if needed == bytes),
            "{refused:?}"
        );
        let _ = end();
        plan.execute(&stream, &mut args).unwrap();
        stream.synchronize().unwrap();
        capture();
        for turn in 0..20 {
            let (from, to) = if turn % 2 == 0 { (&left, &mut right) } else { (&right, &mut left) };
            plan.execute(&stream, &mut DeviceArgs::new().input("a", from).input("b", &unit).output("d", to)).unwrap();
        }
        let graph = end().unwrap().expect("a graph of kernels");
        for _ in 0..3 {
            graph.launch().unwrap();
        }
        assert!(stream.clone_dtoh(&left).unwrap().iter().all(|x| x.to_f32() == 60.0), "{allow}");
    }
}
