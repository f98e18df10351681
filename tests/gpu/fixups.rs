//! Sums over M whose fix-up blocks share: many tiles that each leave a state for every column.

use crate::case::Case;
use crate::monoids;
use crate::reductions::run_all;
use crate::rig::{capturing, gpu, rig};
use postlude::build::recipes::{self, Norm};
use postlude::cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode};
use postlude::cudarc::driver::{CudaSlice, CudaStream};
use postlude::device::{Device, DeviceArgs};
use postlude::gemm::Plan;
use postlude::prelude::*;
use postlude::{DType, Epilogue, Gemm};
use std::sync::Arc;

/// A last tile with fewer rows, columns that end inside of a strip, few columns, entries.
const SHAPES: [Shape; 6] = [
    Shape::matrix(3001, 1024),
    Shape::matrix(600, 4096),
    Shape::matrix(2001, 1003),
    Shape::matrix(20_001, 128),
    Shape::matrix(1505, 520).batched(3),
    Shape::matrix(200, 5000).batched(2),
];

/// The cases, all of which have helpers.
fn shared(gemm: &Gemm, shapes: &[Shape]) -> Vec<Case> {
    let Some(rig) = rig() else { return Vec::new() };
    let (target, gpu) = rig.target();
    let case = |shape: &Shape| {
        let plan = gemm.kernel_plan(target, gpu, *shape).unwrap();
        assert!(plan.helpers > 1, "{shape}: {}", plan.explain());
        Case::new(gemm, *shape).slack(40.0)
    };
    shapes.iter().map(case).collect()
}

/// Sums of each column, and of each entry's, beside those of rows and of everything.
fn sums(d: DType) -> Epilogue {
    let epilogue = Epilogue::build(|e| {
        let y = e.acc() * e.load("weight", F32.over(N)) - e.acc().mean_over(N);
        e.store("d", y, d);
        e.reduce("columns", y, Monoid::Sum, F32.over(N));
        e.reduce("largest", y, Monoid::Max, F32.over(N).batched());
        e.reduce("onto", y * y, Monoid::Sum.accumulate(), F32.over(N));
        e.reduce("any", y, Monoid::Sum.atomic(), F32.over(N).batched());
        e.reduce("rows", y, Monoid::AbsMax, F32.over(M).batched());
        e.reduce("all", y * y, Monoid::Sum, F32.pointer());
    });
    epilogue.unwrap()
}

#[test]
fn several_sums_of_columns() {
    let mut cases = Vec::new();
    for d in [F16, F32] {
        cases.extend(shared(&Gemm::pointwise(d, Order::RowMajor, &sums(d)), &SHAPES));
    }
    run_all(cases);
}

/// States of one word to three, and of integers.
#[test]
fn monoids_of_columns() {
    let mut cases = Vec::new();
    let with = |monoid: Monoid| {
        let epilogue = Epilogue::build(|e| {
            let y = e.acc() - e.acc().mean_over(N);
            e.store("d", y, F16);
            e.reduce("columns", y, monoid, F32.over(N));
        });
        epilogue.unwrap()
    };
    let sums = [Monoid::Min, Monoid::AbsMax, Monoid::LogSumExp, Monoid::Norm2, Monoid::Mean];
    for monoid in sums.into_iter().chain([monoids::variance(), monoids::spread()]) {
        cases.extend(shared(&Gemm::pointwise(F16, Order::RowMajor, &with(monoid)), &SHAPES[1..5]));
    }
    // What is loaded is exact, and so is its order.
    let exact = Epilogue::build(|e| {
        let z = e.acc();
        e.store("d", z - z.mean_over(N), F16);
        e.reduce("first", z, Monoid::ArgMax, I32.over(N));
        e.reduce("count", z.gt(0.5), Monoid::Count, I32.over(N));
        e.reduce("bits", (z * 100.0).cast(I32), monoids::bits(), I32.over(N));
    });
    cases.extend(shared(&Gemm::pointwise(F16, Order::RowMajor, &exact.unwrap()), &SHAPES[1..5]));
    run_all(cases);
}

/// The derivative of a layer norm by its input, weight and bias.
fn layer_norm(d: DType) -> Epilogue {
    let norm = recipes::layer_norm(Norm { weights: Some(d), residual: None }, d).unwrap();
    let wrt = Wrt::accumulator().and("weight").and("bias").detached("mean").detached("rstd");
    norm.backward(wrt).unwrap().backward().clone()
}

#[test]
fn gradients_of_weights() {
    // The longest rows keep their sums in shared memory.
    let shapes = [[20_000, 128], [3000, 1024], [600, 4096], [150, 16_384], [299, 16_001]].map(|[m, n]| Shape::matrix(m, n));
    let cases = [F16, BF16].into_iter().flat_map(|d| shared(&Gemm::pointwise(d, Order::RowMajor, &layer_norm(d)), &shapes));
    run_all(cases.map(Case::steep).collect());
}

/// A plan with its arguments on a stream. Each row holds 0, 1, .. 7 again and again.
struct Launched {
    plan: Plan,
    a: CudaSlice<f32>,
    d: CudaSlice<f32>,
    sums: [CudaSlice<f32>; 2],
}

impl Launched {
    const SHAPE: Shape = Shape::matrix(4001, 2048);

    fn new(device: &Device, stream: &Arc<CudaStream>) -> Launched {
        let Shape { m, n, .. } = Launched::SHAPE;
        let epilogue = Epilogue::build(|e| {
            let y = e.acc() - e.acc().min_over(N);
            e.store("d", y, F32);
            e.reduce("sum", y, Monoid::Sum, F32.over(N));
            e.reduce("largest", y, Monoid::Max, F32.over(N));
        });
        let plan = Gemm::pointwise(F32, Order::RowMajor, &epilogue.unwrap()).plan(device, Launched::SHAPE).unwrap();
        assert!(plan.kernel().plan.helpers > 1, "{}", plan.explain());
        let a: Vec<f32> = (0..m * n).map(|i| (i % 8) as f32).collect();
        let vector = || stream.alloc_zeros::<f32>(n).unwrap();
        let (a, d) = (stream.clone_htod(&a).unwrap(), stream.alloc_zeros::<f32>(m * n).unwrap());
        Launched { plan, a, d, sums: [vector(), vector()] }
    }

    fn launch(&mut self, stream: &Arc<CudaStream>) -> Result<(), postlude::Error> {
        let [sum, largest] = &mut self.sums;
        let args = DeviceArgs::new().input("a", &self.a).output("d", &mut self.d);
        self.plan.execute(stream, &mut args.output("sum", sum).output("largest", largest))
    }

    /// Whether the sums are right, which they are not any more after that.
    fn check(&mut self, stream: &Arc<CudaStream>, turn: usize) {
        let Shape { m, n, .. } = Launched::SHAPE;
        let expected = [m as f32, 1.0].map(|by| (0..n).map(|i| (i % 8) as f32 * by).collect::<Vec<_>>());
        for (sums, expected) in self.sums.iter_mut().zip(&expected) {
            assert!(stream.clone_dtoh(sums).unwrap() == *expected, "turn {turn}");
            stream.memset_zeros(sums).unwrap();
        }
    }
}

#[test]
fn launches_find_counters_as_they_were() {
    let Some(device) = gpu() else { return };
    let streams = [device.context().new_stream().unwrap(), device.context().new_stream().unwrap()];
    let mut all = streams.each_ref().map(|stream| Launched::new(device, stream));
    for turn in 0..40 {
        // One after the other, and beside each other.
        for _ in 0..=turn % 4 {
            streams.iter().zip(&mut all).for_each(|(stream, launched)| launched.launch(stream).unwrap());
        }
        streams.iter().zip(&mut all).for_each(|(stream, launched)| launched.check(stream, turn));
    }
}

#[test]
fn graphs_find_counters_as_they_were() {
    let Some((device, stream)) = capturing() else { return };
    let mut launched = Launched::new(&device, &stream);
    // A capture cannot allocate the workspace.
    launched.launch(&stream).unwrap();
    stream.synchronize().unwrap();
    stream.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL).unwrap();
    (0..3).for_each(|_| launched.launch(&stream).unwrap());
    let graph = stream.end_capture(CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH).unwrap();
    let graph = graph.expect("a graph of kernels");
    for turn in 0..20 {
        graph.launch().unwrap();
        launched.check(&stream, turn);
        launched.launch(&stream).unwrap();
        launched.check(&stream, turn);
    }
}
