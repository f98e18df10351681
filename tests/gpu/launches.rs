//! Launches: arguments in any order and number, nothing allocated, streams of every kind.

use crate::rig::{capturing, gpu};
use half::f16;
use postlude::build::recipes;
use postlude::cudarc::driver::CudaStream;
use postlude::cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode};
use postlude::device::{DeviceArgs, DeviceError};
use postlude::gemm::Plan;
use postlude::ir::Order;
use postlude::jit::{Cache, Origin};
use postlude::prelude::*;
use postlude::tune::Autotune;
use postlude::{Epilogue, Error, Gemm};
use std::alloc::{GlobalAlloc, Layout as Memory, System};
use std::cell::Cell;
use std::sync::Arc;

/// The system's allocator, counting what each thread asks it for.
struct Counting;

thread_local! {
    static COUNT: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: everything is passed on; the counter is a plain integer of the thread and allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Memory) -> *mut u8 {
        COUNT.set(COUNT.get() + 1);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Memory) {
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const SHAPE: Shape = Shape::new(64, 48, 32);

/// Every stream that a context has.
fn streams() -> Vec<(&'static str, Arc<CudaStream>)> {
    let Some(device) = gpu() else { return Vec::new() };
    let context = device.context();
    vec![
        ("default", context.default_stream()),
        ("per thread", context.per_thread_stream()),
        ("new", context.new_stream().unwrap()),
    ]
}

#[test]
fn a_launch_allocates_nothing() {
    let Some(device) = gpu() else { return };
    let bias_relu = recipes::bias_activation(F16, F16, |z| z.relu()).unwrap();
    for (name, stream) in streams() {
        for gemm in [Gemm::new(F16, TN, &bias_relu), Gemm::new(F16, TT, &bias_relu)] {
            let plan = gemm.plan(device, SHAPE).unwrap();
            let (a, b) = (stream.alloc_zeros::<f16>(64 * 32).unwrap(), stream.alloc_zeros::<f16>(48 * 32).unwrap());
            let (bias, mut d) = (stream.alloc_zeros::<f16>(48).unwrap(), stream.alloc_zeros::<f16>(64 * 48).unwrap());
            let mut args = DeviceArgs::new().output("d", &mut d).input("bias", &bias).input("b", &b).input("a", &a);
            plan.execute(&stream, &mut args).unwrap();
            let before = COUNT.get();
            plan.execute(&stream, &mut args).unwrap();
            assert_eq!(COUNT.get(), before, "on the {name} stream");
        }
    }
}

#[test]
fn a_captured_chain_replays() {
    // Each launch reads the previous launch's output, inside a replay and from one replay to the next.
    let Some((device, stream)) = capturing() else { return };
    let shape = Shape::new(512, 256, 1);
    let epilogue = Epilogue::build(|e| e.store("d", e.acc() + 1.0, F16)).unwrap();
    for allow in [true, false] {
        let mut plan = Gemm::new(F16, TN, &epilogue).programmatic_launch(allow).plan(&device, shape).unwrap();
        let one = stream.clone_htod(&vec![f16::ONE; 256]).unwrap();
        let zeros = || stream.alloc_zeros::<f16>(512 * 256).unwrap();
        let (mut left, mut right) = (zeros(), zeros());
        let (ones, mut unused) = (vec![f16::ONE; 512], vec![f16::NAN; 512 * 256]);
        stream.synchronize().unwrap();
        stream.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL).unwrap();
        for turn in 0..20 {
            let (from, to) = if turn % 2 == 0 { (&left, &mut right) } else { (&right, &mut left) };
            let column = from.slice(..512);
            let mut args = DeviceArgs::new().input("a", &column).input("b", &one).output("d", to);
            plan.execute(&stream, &mut args).unwrap();
            let refused = plan.autotune(&stream, &mut args, Autotune::new());
            assert!(matches!(refused, Err(Error::Device(DeviceError::Capture { .. }))), "{refused:?}");
            let host = HostArgs::new().input("a", &ones[..512]).input("b", &ones[..256]).output("d", &mut unused);
            let refused = plan.execute_host(&stream, host).unwrap_err().to_string();
            assert!(refused.starts_with("`Plan::execute_host` waits for the stream, which is being captured"), "{refused}");
        }
        let graph = stream.end_capture(CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH);
        let graph = graph.unwrap().expect("a graph of kernels");
        for _ in 0..3 {
            graph.launch().unwrap();
        }
        assert!(stream.clone_dtoh(&left).unwrap().iter().all(|x| x.to_f32() == 60.0), "{allow}");
    }
}

#[test]
fn blocks_in_step_run_captured_and_not() {
    // Launches that are captured have nothing to count with; the others have. Nobody waits for ever, and nothing is lost.
    let Some((device, stream)) = capturing() else { return };
    let shape = Shape::new(4096, 2048, 64);
    let epilogue = Epilogue::build(|e| e.store("d", e.acc() + e.load("c", F16), F16)).unwrap();
    let plan = Gemm::new(F16, TN, &epilogue).lockstep(true).plan(&device, shape).unwrap();
    let of = |count: usize, x: f32| stream.clone_htod(&vec![f16::from_f32(x); count]).unwrap();
    let (a, b) = (of(4096 * 64, 0.125), of(2048 * 64, 0.125));
    let (mut left, mut right) = (of(4096 * 2048, 0.0), of(4096 * 2048, 0.0));
    let mut two = || {
        for turn in 0..2 {
            let (from, to) = if turn == 0 { (&left, &mut right) } else { (&right, &mut left) };
            let mut args = DeviceArgs::new().input("a", &a).input("b", &b).input("c", from).output("d", to);
            plan.execute(&stream, &mut args).unwrap();
        }
    };
    stream.synchronize().unwrap();
    stream.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL).unwrap();
    two();
    let graph = stream.end_capture(CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH);
    graph.unwrap().expect("a graph of kernels").launch().unwrap();
    for _ in 0..5 {
        two();
    }
    stream.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL).unwrap();
    two();
    let graph = stream.end_capture(CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH);
    let graph = graph.unwrap().expect("a graph of kernels");
    for _ in 0..3 {
        graph.launch().unwrap();
    }
    assert!(stream.clone_dtoh(&left).unwrap().iter().all(|x| x.to_f32() == 18.0));
}

#[test]
fn plans_of_one_request_are_as_good_as_one() {
    // The second takes the launch of the first, unless that owns memory, as a reduction does.
    let Some(device) = gpu() else { return };
    let device = device.with_cache(Cache::in_memory()).unwrap();
    let shape = Shape::new(512, 64, 32);
    let sums = |sum: bool| {
        let epilogue = Epilogue::build(|e| {
            let z = e.acc() * e.scalar("alpha", F32);
            e.store("d", z, F16);
            if sum {
                e.reduce("sum", z, Monoid::Sum, F32.over(N));
            }
        });
        Gemm::new(F16, TN, &epilogue.unwrap())
    };
    let streams = [device.context().new_stream().unwrap(), device.context().new_stream().unwrap()];
    for sum in [false, true] {
        let gemm = sums(sum);
        let plans = [gemm.plan(&device, shape).unwrap(), gemm.clone().plan(&device, shape).unwrap()];
        assert_eq!(plans[1].kernel().cubin.info.origin, Origin::Memory);
        assert!(Arc::ptr_eq(&plans[0].kernel().plan, &plans[1].kernel().plan));
        for (i, (plan, stream)) in plans.iter().zip(&streams).enumerate() {
            let ones = |count| stream.clone_htod(&vec![f16::ONE; count]).unwrap();
            let (a, b, mut d) = (ones(512 * 32), ones(64 * 32), ones(512 * 64));
            let mut total = stream.clone_htod(&[f32::NAN; 64]).unwrap();
            let alpha = 0.5 + i as f32;
            let args = DeviceArgs::new().input("a", &a).input("b", &b).scalar("alpha", alpha).output("d", &mut d);
            let mut args = if sum { args.output("sum", &mut total) } else { args };
            plan.execute(stream, &mut args).unwrap();
            drop(args);
            assert!(stream.clone_dtoh(&d).unwrap().iter().all(|x| x.to_f32() == 32.0 * alpha), "plan {i}");
            assert!(!sum || stream.clone_dtoh(&total).unwrap().iter().all(|x| *x == 512.0 * 32.0 * alpha), "plan {i}");
        }
    }
}

#[test]
fn plans_go_from_thread_to_thread() {
    fn shared<T: Send + Sync>() {}
    shared::<Plan>();
}

#[test]
fn threads_share_a_plan_but_no_workspace() {
    // Their streams have one handle, and run at the same time.
    let Some(device) = gpu() else { return };
    let shape = Shape::new(2048, 256, 64);
    let epilogue = Epilogue::build(|e| e.reduce("sum", e.acc(), Monoid::Sum, F32.over(N))).unwrap();
    let plan = Gemm::new(F16, TN, &epilogue).plan(device, shape).unwrap();
    let run = |value: f32| {
        let stream = device.context().per_thread_stream();
        let of = |count: usize, x: f32| stream.clone_htod(&vec![f16::from_f32(x); count]).unwrap();
        let (a, b) = (of(2048 * 64, value), of(256 * 64, 1.0));
        for round in 0..200 {
            let mut sum = stream.clone_htod(&[f32::NAN; 256]).unwrap();
            plan.execute(&stream, &mut DeviceArgs::new().input("a", &a).input("b", &b).output("sum", &mut sum)).unwrap();
            let sum = stream.clone_dtoh(&sum).unwrap();
            assert!(sum.iter().all(|x| *x == 2048.0 * 64.0 * value), "round {round}");
        }
    };
    std::thread::scope(|scope| [1.0, 2.0, 3.0, 4.0].map(|value| scope.spawn(move || run(value))).map(|t| t.join().unwrap()));
}

#[test]
fn arguments_come_in_any_order_and_number() {
    // More than a launch has room for without allocating: 20 vectors, each 2^i in column i.
    const COUNT: usize = 20;
    let names: Vec<String> = (0..COUNT).map(|i| format!("v{i}")).collect();
    let epilogue = Epilogue::build(|e| {
        let sum = names.iter().fold(e.acc() * e.scalar("alpha", F32), |sum, name| sum + e.load(name, F32.over(N)));
        e.store("d", sum, F32);
    })
    .unwrap();
    let shape = Shape::new(3, COUNT, 1);
    let Some(device) = gpu() else { return };
    let gemm = Gemm::pointwise(F32, Order::RowMajor, &epilogue);
    let plan = gemm.plan(device, shape).unwrap();
    for (name, stream) in streams() {
        let a = stream.clone_htod(&vec![1f32; 3 * COUNT]).unwrap();
        let vectors: Vec<_> = (0..COUNT)
            .map(|i| {
                let mut vector = vec![0f32; COUNT];
                vector[i] = (1 << i) as f32;
                stream.clone_htod(&vector).unwrap()
            })
            .collect();
        for turn in [0, 7, 19] {
            let mut d = stream.clone_htod(&vec![f32::NAN; 3 * COUNT]).unwrap();
            let mut args = DeviceArgs::new().output("d", &mut d);
            for i in 0..COUNT {
                let i = (i * 3 + turn) % COUNT;
                args = args.input(&names[i], &vectors[i]);
            }
            let mut args = args.scalar("alpha", 0.5f32).input("a", &a);
            plan.execute(&stream, &mut args).unwrap();
            drop(args);
            let expected: Vec<f32> = (0..3 * COUNT).map(|i| 0.5 + (1 << (i % COUNT)) as f32).collect();
            assert_eq!(stream.clone_dtoh(&d).unwrap(), expected, "on the {name} stream, turn {turn}");
        }
    }
}

#[test]
fn chained_launches_see_each_other() {
    // Each launch reads the previous launch's output: none may begin too early, on any stream.
    let Some(device) = gpu() else { return };
    let epilogue = Epilogue::build(|e| e.store("d", e.acc() + 1.0, F32)).unwrap();
    for allow in [true, false] {
        let product = Epilogue::build(|e| e.store("d", e.acc() + 1.0, F16)).unwrap();
        let shape = Shape::new(512, 256, 1);
        let gemm = Gemm::new(F16, TN, &product).programmatic_launch(allow);
        let plan = gemm.plan(device, shape).unwrap();
        let point = Gemm::pointwise(F32, Order::RowMajor, &epilogue).programmatic_launch(allow);
        let point = point.plan(device, Shape::new(1024, 1024, 0)).unwrap();
        for (name, stream) in streams() {
            let one = stream.clone_htod(&vec![f16::ONE; 256]).unwrap();
            let zeros = || stream.alloc_zeros::<f16>(512 * 256).unwrap();
            let (mut left, mut right) = (zeros(), zeros());
            // K is 1: a launch writes the column that the next launch multiplies.
            for _ in 0..40 {
                for turn in 0..2 {
                    let (from, to) = if turn == 0 { (&left, &mut right) } else { (&right, &mut left) };
                    let column = from.slice(..512);
                    plan.execute(&stream, &mut DeviceArgs::new().input("a", &column).input("b", &one).output("d", to)).unwrap();
                }
            }
            assert!(stream.clone_dtoh(&left).unwrap().iter().all(|x| x.to_f32() == 80.0), "on the {name} stream, {allow}");
            let (mut left, mut right) =
                (stream.alloc_zeros::<f32>(1 << 20).unwrap(), stream.alloc_zeros::<f32>(1 << 20).unwrap());
            for _ in 0..50 {
                point.execute(&stream, &mut DeviceArgs::new().input("a", &left).output("d", &mut right)).unwrap();
                point.execute(&stream, &mut DeviceArgs::new().input("a", &right).output("d", &mut left)).unwrap();
            }
            assert!(stream.clone_dtoh(&left).unwrap().iter().all(|x| *x == 100.0), "on the {name} stream, {allow}");
        }
    }
}
