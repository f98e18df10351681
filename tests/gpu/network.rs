//! Networks on a GPU, against the same network node by node on the CPU.

#[path = "../network/graphs.rs"]
mod graphs;

#[allow(dead_code, reason = "examples and the benchmark use the rest")]
#[path = "../../examples/support/networks.rs"]
mod networks;

use crate::case::Case;
use crate::convolutions::run_all;
use crate::rig::{capturing, gpu};
use graphs::{Named, encoder, mlp, mlp_inputs, numbers, padded_encoder, scaled, tensor};
use networks::{Images, mixer, mobilenet_v2, resnet, unet, vgg16};
use postlude::cudarc::driver::CudaStream;
use postlude::cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode};
use postlude::jit::Cache;
use postlude::network::{Attributes, Format, Network, NetworkPlan, NetworkPlanError, Tensor};
use postlude::prelude::*;
use postlude::tune::Autotune;
use postlude::{PoolKind, Pooling};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Whether two tensors agree to within a part of the largest element.
fn agrees(name: &str, x: &Tensor, y: &Tensor, tolerance: f64) {
    assert_eq!((x.format(), x.shape()), (y.format(), y.shape()), "{name}");
    let (x, y) = (x.numbers(), y.numbers());
    let largest = x.iter().fold(0.0f64, |a, b| a.max(b.abs()));
    let worst = x.iter().zip(&y).map(|(x, y)| (x - y).abs()).fold(0.0f64, |a, b| if b.is_nan() { b } else { a.max(b) });
    assert!(worst <= tolerance * largest, "{name}: off by {worst} of {largest}");
}

fn check(network: &Network, inputs: &[(&str, Tensor)], tolerance: f64) {
    check_with(network, inputs, tolerance, true);
}

/// Compares with the fused network on the CPU, and, if so asked, with the network node by node. That one rounds between nodes.
fn check_with(network: &Network, inputs: &[(&str, Tensor)], tolerance: f64, nodes: bool) {
    let Some(device) = gpu() else { return };
    let stream = device.context().default_stream();
    let mut plan = network.plan(device, &[]).unwrap();
    let mut expected = vec![plan.fused().run(inputs).unwrap()];
    if nodes {
        expected.push(network.run(inputs).unwrap());
    }
    // Twice: the arena holds what the first run left.
    for _ in 0..2 {
        let found = plan.run(&stream, inputs).unwrap();
        for expected in &expected {
            for ((name, x), (_, y)) in expected.iter().zip(&found) {
                agrees(name, x, y, tolerance);
            }
        }
    }
}

#[test]
fn encoder_layers() {
    for (format, tolerance) in [(F16, 1e-2), (BF16, 6e-2), (F32, 1e-5)] {
        for (batch, length, heads, head) in [(1, 64, 4, 32), (3, 40, 2, 64), (2, 33, 3, 24)] {
            let network = encoder(format, batch, length, heads, head);
            check(&network, &[("x", tensor(format, &[batch, length, heads * head], 1))], tolerance);
        }
    }
}

/// Sequences of several lengths: the mask is read in the kernel of the attention.
#[test]
fn padded_encoder_layers() {
    for (format, tolerance) in [(F16, 2e-2), (BF16, 6e-2)] {
        for (batch, length, heads, head) in [(1, 64, 4, 32), (3, 40, 2, 64), (2, 33, 3, 24)] {
            let network = padded_encoder(format, batch, length, heads, head);
            let words = |i: usize| f64::from(u8::from(i % length < length / 2 + 5 * (i / length)));
            let mask: Vec<f64> = (0..batch * length).map(words).collect();
            let mask = Tensor::of_numbers(format, &[batch, 1, 1, length], &mask).unwrap();
            let x = tensor(format, &[batch, length, heads * head], 1);
            check(&network, &[("x", x), ("mask", mask)], tolerance);
        }
    }
}

#[test]
fn views_are_strides_or_tables() {
    let network = Network::build(|g| {
        let x = g.input("x", F16, (2, 3, 8, 20));
        let [scale, shift, mean] = [4, 5, 6].map(|seed| g.constant(&format!("c{seed}"), tensor(F16, &[3], seed)));
        let variance = g.constant("variance", Tensor::of_numbers(F16, &[3], &[0.5, 1.0, 2.0]).unwrap());
        let normed = g.apply("BatchNormalization", &[x, scale, shift, mean, variance], Attributes::new());
        let turned = x.transpose(&[0, 1, 3, 2]).reshape(&[2, 3, 160]);
        g.output("y", normed.relu().reshape(&[2, 3, 160]) + turned);
        g.output("turned", x.transpose(&[3, 1, 0, 2]));
        let parts = g.apply_all("Split", &[Some(x)], Attributes::new().with("axis", 3i64), 2);
        g.output("product", parts[0].reshape(&[2, 24, 10]).matmul(parts[1].reshape(&[2, 24, 10]).transpose(&[0, 2, 1])));
        g.output("softmax", (x * g.number(F16, 0.5)).softmax(-1));
    })
    .unwrap();
    check(&network, &[("x", tensor(F16, &[2, 3, 8, 20], 1))], 2e-2);
}

#[test]
fn what_no_kernel_serves_is_a_typed_error() {
    let Some(device) = gpu() else { return };
    let network = Network::build(|g| {
        let x = g.input("x", F32, (1, 2, 5, 5));
        g.output("y", g.apply("LpPool", &[x], Attributes::new().with("kernel_shape", vec![2, 2])));
    })
    .unwrap();
    match network.plan(device, &[]) {
        Err(NetworkPlanError::Unserved(nodes)) => assert_eq!(nodes[0].operator, "LpPool"),
        other => panic!("{other:?}"),
    }
}

/// The gradients of layers, in the kernels of their products, for batches that fill a tile and that do not.
#[test]
fn gradients_of_layers() {
    for (format, tolerance) in [(F16, 2e-3), (BF16, 1e-2), (F32, 1e-5)] {
        for (batch, sizes) in [(64, [256, 512, 384, 128]), (33, [40, 72, 24, 10]), (1, [16, 264, 8, 4])] {
            let (weights, data) = mlp_inputs(format, batch, sizes);
            let names: Vec<&str> = weights.iter().map(|(name, _)| *name).collect();
            let training = mlp(format, batch, sizes).backward("loss", &names).unwrap();
            let inputs: Vec<Named> = data.into_iter().chain(weights).collect();
            // Node by node, a sum in 16 bits may lie on the other side of ReLU's kink.
            check_with(&training, &inputs, tolerance, format == F32);
        }
    }
}

/// The gradients of two convolutions, the second with steps of two, and of the linear layer behind them.
#[test]
fn gradients_of_convolutions() {
    for (format, tolerance) in [(F16, 2e-3), (F32, 1e-5)] {
        let shapes: [(&'static str, &[usize]); 4] =
            [("c1", &[32, 16, 3, 3]), ("d1", &[32]), ("c2", &[24, 32, 3, 3]), ("d2", &[24])];
        let network = Network::build(|g| {
            let x = g.input("x", format, (3, 16, 14, 14));
            let [c1, d1, c2, d2] = shapes.map(|(name, shape)| g.input(name, format, shape));
            let z = g.apply("Conv", &[x, c1, d1], Attributes::new().with("pads", vec![1, 1, 1, 1])).relu();
            let strided = Attributes::new().with("pads", vec![1, 1, 1, 1]).with("strides", vec![2, 2]);
            let z = g.apply("Conv", &[z, c2, d2], strided).tanh();
            let sum =
                (z * g.input("slopes", format, (3, 24, 7, 7))).apply("ReduceSum", &[], Attributes::new().with("keepdims", 0));
            g.output("loss", sum);
        })
        .unwrap();
        let training = network.backward("loss", &shapes.map(|(name, _)| name)).unwrap();
        let mut inputs = vec![("x", tensor(format, &[3, 16, 14, 14], 1)), ("slopes", tensor(format, &[3, 24, 7, 7], 2))];
        inputs.extend(shapes.map(|(name, shape)| (name, scaled(format, shape, 3))));
        check_with(&training, &inputs, tolerance, format == F32);
    }
}

/// Products of quantised numbers, quantised again behind bias and activation. Scales are powers of two, so everything is exact.
#[test]
fn quantised_products() {
    let eight = |format: DType, shape: &[usize], seed: u64| {
        let shift = if format == U8 { 96.0 } else { 0.0 };
        let drawn = numbers(shape.iter().product(), seed).iter().map(|x| (x * 90.0).round() + shift).collect::<Vec<_>>();
        Tensor::of_numbers(format, shape, &drawn).unwrap()
    };
    let scales = |count: usize| {
        let scales: Vec<f64> = (0..count).map(|i| (-5.0 - (i % 3) as f64).exp2()).collect();
        Tensor::of_numbers(F32, &[count], &scales).unwrap()
    };
    for (format, batch) in [(I8, 96), (U8, 33), (I8, 1)] {
        let network = Network::build(|g| {
            let parameters =
                [g.number(F32, 0.0625), g.constant("zero", Tensor::scalar(format, if format == U8 { 96.0 } else { 0.0 }))];
            let mut x = g.input("x", format, (batch, 64)).apply("DequantizeLinear", &parameters, Attributes::new());
            for (at, [from, to]) in [[64, 160], [160, 96], [96, 24]].into_iter().enumerate() {
                let w = g.constant(&format!("w{at}"), eight(I8, &[from, to], 7 + at as u64));
                let w = w.apply("DequantizeLinear", &[g.constant("s", scales(to))], Attributes::new().with("axis", 1));
                let bias = Tensor::of_numbers(F32, &[to], &numbers(to, 3).iter().map(|x| x.round()).collect::<Vec<_>>()).unwrap();
                x = (x.matmul(w) + g.constant("b", bias)).relu();
                if at < 2 {
                    x = x.apply("QuantizeLinear", &parameters, Attributes::new());
                    x = x.apply("DequantizeLinear", &parameters, Attributes::new());
                }
            }
            g.output("y", x);
        })
        .unwrap();
        assert_eq!(network.fuse().unwrap().kernels().count(), 3);
        check(&network, &[("x", eight(format, &[batch, 64], 1))], 1e-6);
    }
    let images = Network::build(|g| {
        let parameters = [g.number(F32, 0.125), g.number(I8, 0.0)];
        let x = g.input("x", I8, (2, 32, 9, 11)).apply("DequantizeLinear", &parameters, Attributes::new());
        let w = g.constant("w", eight(I8, &[48, 32, 3, 3], 2));
        let w = w.apply("DequantizeLinear", &[g.constant("s", scales(48))], Attributes::new().with("axis", 0));
        let z = g.apply("Conv", &[x, w], Attributes::new().with("pads", vec![1, 1, 1, 1])).relu();
        g.output("y", z.apply("QuantizeLinear", &parameters, Attributes::new()));
    });
    check(&images.unwrap(), &[("x", eight(I8, &[2, 32, 9, 11], 1))], 1e-6);
}

#[test]
fn networks_of_images() {
    for (format, tolerance) in [(F16, 2e-2), (F32, 2e-5)] {
        for (batch, size, narrow) in [(1, 64, 4), (3, 32, 8)] {
            let images = Images { format, batch, size, narrow, channels_last: false };
            let x = [("x", tensor(format, &[batch, 3, size, size], 1))];
            check(&resnet(images, [2, 2, 2, 2], false, 10).unwrap(), &x, tolerance);
            check(&resnet(images, [3, 4, 6, 3], true, 10).unwrap(), &x, 2.0 * tolerance);
            check(&vgg16(images, 10).unwrap(), &x, tolerance);
            check(&mobilenet_v2(images, 10).unwrap(), &x, 4.0 * tolerance);
            check(&unet(images, 3).unwrap(), &x, 2.0 * tolerance);
            check(&mixer(images, 8, 3, 10).unwrap(), &x, tolerance);
        }
    }
}

#[test]
fn parts_borders_and_indices() {
    for format in [F16, F32] {
        let network = Network::build(|g| {
            let x = g.input("x", format, (2, 4, 6, 16));
            let last = x.transpose(&[0, 3, 1, 2]);
            let border = g.apply("Pad", &[last, g.indices(&[0, 0, 1, 2, 0, 0, -1, 3])], Attributes::new());
            g.output("border", border.relu());
            let w = g.constant("w", tensor(format, &[24, 16, 3, 3], 2));
            let y = g.apply("Conv", &[last, w], Attributes::new().with("pads", vec![1, 1, 1, 1]));
            let parts = [y.relu(), last, last.sigmoid()];
            let beside = g.apply("Concat", &parts, Attributes::new().with("axis", 1));
            g.output("deep", g.apply("DepthToSpace", &[beside], Attributes::new().with("blocksize", 2)));
            g.output("pooled", g.apply("GlobalMaxPool", &[beside], Attributes::new()));
            let table = g.constant("table", tensor(format, &[50, 40], 4));
            let words = g.apply("Gather", &[table, g.input("ids", Format::I64, (2, 3))], Attributes::new());
            g.output("words", (words + g.input("places", format, (3, 40))).softmax(-1));
        })
        .unwrap();
        let inputs = [
            ("x", tensor(format, &[2, 4, 6, 16], 1)),
            ("ids", Tensor::of_integers(Format::I64, &[2, 3], &[0, 49, -1, 7, 7, -50]).unwrap()),
            ("places", tensor(format, &[3, 40], 5)),
        ];
        check(&network, &inputs, 2e-2);
    }
}

#[test]
fn pools() {
    let epilogues = |dtype: DType| {
        let plain = Epilogue::build(|e| e.store("d", e.acc(), dtype));
        let more = Epilogue::build(|e| {
            let z = (e.acc() + e.load("bias", F32.over(N)) + e.load("residual", dtype)).relu();
            e.store("d", z, dtype);
            e.reduce("sums", z, Monoid::Sum, F32.over(N));
        });
        let turned = Epilogue::build(|e| e.store("d", e.acc(), dtype.column_major()));
        let unread = Epilogue::build(|e| e.store("d", e.load("residual", dtype) * 2.0, dtype));
        [plain, more, turned, unread].map(Result::unwrap)
    };
    let mut cases = Vec::new();
    for (dtype, channels) in [(F16, 64), (F16, 3), (F16, 20), (F16, 136), (BF16, 64), (BF16, 6), (F32, 40), (F32, 5)] {
        let base = ConvShape::windows(3, [13, 11, channels], [3, 3]);
        let shapes = [
            base.stride([2, 2]).padding([1, 1]),
            base.padding_of([2, 0, 0, 1]).dilation([2, 3]),
            ConvShape { window: [2, 2], ..base }.stride([2, 2]),
            ConvShape { window: [13, 11], ..base },
            ConvShape { window: [5, 4], ..base }.padding([2, 1]),
            ConvShape { images: 0, ..base },
            ConvShape { window: [1, 3], ..base }.stride([7, 9]),
        ];
        for shape in shapes {
            for (kind, count) in [(PoolKind::Max, 4), (PoolKind::Average, 2), (PoolKind::AverageOfTaps, 1)] {
                let pooling = Pooling::new(kind, shape).unwrap();
                let gemm = |epilogue: &Epilogue| Gemm::pool(dtype, pooling, epilogue);
                cases.extend(epilogues(dtype)[..count].iter().map(|epilogue| Case::new(&gemm(epilogue), pooling.shape())));
            }
        }
    }
    run_all(&cases);
}

#[test]
fn a_captured_network_replays() {
    let Some((device, stream)) = capturing() else { return };
    for (batch, length, heads, head) in [(1, 128, 12, 64), (8, 512, 12, 64)] {
        let network = encoder(F16, batch, length, heads, head);
        let start = Instant::now();
        let mut plan = network.plan(&device, &[]).unwrap();
        let planned = start.elapsed();
        let x = tensor(F16, &[batch, length, heads * head], 1);
        let memory = stream.clone_htod(x.bytes()).unwrap();
        let inputs = [("x", &memory)];
        plan.execute(&stream, &inputs).unwrap();
        stream.synchronize().unwrap();
        let first = stream.clone_dtoh(&plan.output("y").unwrap()).unwrap();
        stream.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL).unwrap();
        plan.execute(&stream, &inputs).unwrap();
        let graph = stream.end_capture(CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH);
        let graph = graph.unwrap().expect("a graph of kernels");
        const RUNS: u32 = 200;
        for _ in 0..RUNS {
            graph.launch().unwrap();
        }
        stream.synchronize().unwrap();
        let start = Instant::now();
        for _ in 0..RUNS {
            graph.launch().unwrap();
        }
        stream.synchronize().unwrap();
        let each = start.elapsed() / RUNS;
        assert_eq!(stream.clone_dtoh(&plan.output("y").unwrap()).unwrap(), first);
        println!(
            "encoder {batch} x {length} x {}: {each:?} in {} kernels, planned in {planned:?}",
            heads * head,
            plan.kernels().len()
        );
    }
}

/// Runs on the same memory become a graph, on whatever stream; others stay launches; and all compute the same.
fn runs_are_recorded(device: &Device, stream: &Arc<CudaStream>) {
    // With a product that splits K, whose sums lie in memory beside the arena.
    let shape = [256, 65536];
    let network = Network::build(|g| {
        let weight = |name, shape: &[usize]| g.constant(name, scaled(F16, shape, 7));
        let x = g.input("x", F16, (shape[0], shape[1])).matmul(weight("v", &[65536, 256])).relu();
        g.output("y", x.matmul(weight("w", &[256, 512])).gelu().matmul(weight("u", &[512, 64])).softmax(-1));
    });
    let network = network.unwrap();
    let mut plan = network.plan(device, &[]).unwrap();
    assert!(plan.kernels().iter().any(|kernel| kernel.kernel().plan.split.is_some()), "no product splits K");
    let [first, second] = [1, 2].map(|seed| tensor(F16, &shape, seed));
    plan.replay(false);
    let expected = [&first, &second].map(|x| plan.run(stream, &[("x", x.clone())]).unwrap()[0].1.clone());
    let mut memory = [&first, &second].map(|x| stream.clone_htod(x.bytes()).unwrap());
    let run = |plan: &mut NetworkPlan, memory: &_| {
        plan.execute(stream, &[("x", memory)]).unwrap();
        let bytes = stream.clone_dtoh(&plan.output("y").unwrap()).unwrap();
        Tensor::new(expected[0].format(), expected[0].shape(), bytes).unwrap()
    };
    for _ in 0..4 {
        assert_eq!(run(&mut plan, &memory[0]), expected[0]);
    }
    assert_eq!(plan.recorded(), 0);
    plan.replay(true);
    for turn in 0..5 {
        for (memory, expected) in memory.iter().zip(&expected) {
            assert_eq!(&run(&mut plan, memory), expected, "{turn}");
        }
        assert_eq!(plan.recorded(), if turn < 2 { 0 } else { 2 }, "{turn}");
    }
    // Other numbers in the same memory, one run closely behind the other.
    for turn in 0..20 {
        let [own, x] = if turn % 2 == 0 { [1, 1] } else { [0, 0] };
        stream.memcpy_htod([&first, &second][x].bytes(), &mut memory[0]).unwrap();
        plan.execute(stream, &[("x", &memory[1])]).unwrap();
        assert_eq!(run(&mut plan, &memory[0]), expected[own], "{turn}");
    }
    assert_eq!(plan.recorded(), 2);
    // The plan goes while its graph runs.
    for _ in 0..10 {
        plan.execute(stream, &[("x", &memory[0])]).unwrap();
    }
    drop(plan);
    stream.synchronize().unwrap();
    let mut plan = network.plan(device, &[]).unwrap();
    for _ in 0..4 {
        assert_eq!(run(&mut plan, &memory[1]), expected[1]);
    }
    assert_eq!(plan.recorded(), 1);
}

#[test]
fn runs_that_repeat_are_recorded() {
    let Some((device, stream)) = capturing() else { return };
    runs_are_recorded(&device, &stream);
    runs_are_recorded(&device, &device.context().default_stream());
    // Where cudarc orders streams by events, too.
    let Some(device) = gpu() else { return };
    runs_are_recorded(device, &device.context().default_stream());
    runs_are_recorded(device, &device.context().new_stream().unwrap());
    // Nothing is recorded in a stream whose handle means another one in each thread.
    let network = encoder(F16, 1, 128, 4, 64);
    let (mut plan, stream) = (network.plan(device, &[]).unwrap(), device.context().per_thread_stream());
    let memory = stream.clone_htod(tensor(F16, &[1, 128, 256], 1).bytes()).unwrap();
    for _ in 0..4 {
        plan.execute(&stream, &[("x", &memory)]).unwrap();
    }
    stream.synchronize().unwrap();
    assert_eq!(plan.recorded(), 0);
}

/// Tuning compares tiles on the tensors of a run, and changes nothing that the network computes beyond rounding.
#[test]
fn tuning() {
    let Some(device) = gpu() else { return };
    let device = &device.clone().with_cache(Cache::in_memory()).unwrap();
    let stream = device.context().default_stream();
    // Equal layers: tiles are compared for one of them.
    let network = networks::mlp(F16, 96, 512, 4).unwrap();
    let x = tensor(F16, &[96, 512], 1);
    let mut plan = network.plan(device, &[]).unwrap();
    let expected = plan.run(&stream, &[("x", x.clone())]).unwrap();
    let memory = stream.clone_htod(x.bytes()).unwrap();
    let mut told = Vec::new();
    let options = Autotune::new().rounds(5).budget(Duration::from_secs(20));
    let tuning = plan.autotune(&stream, &[("x", &memory)], options, |all| told.push(all)).unwrap();
    println!("{tuning}");
    assert_eq!(told, vec![tuning.kernels.len(); tuning.kernels.len()]);
    let mut kernels: Vec<usize> = tuning.kernels.iter().flat_map(|kind| kind.kernels.clone()).collect();
    kernels.sort_unstable();
    assert_eq!(kernels, (0..plan.kernels().len()).collect::<Vec<_>>(), "each kernel is of one kind");
    assert!(tuning.kernels.len() < plan.kernels().len(), "{tuning}");
    assert!(tuning.kernels.iter().map(|kind| kind.share).sum::<f64>() > 0.999 && tuning.before.is_some());
    let tried = tuning.kernels.iter().filter_map(|kind| kind.tuning.as_ref().ok()).map(|tuning| tuning.trials.len()).max();
    assert!(tried > Some(1), "{tuning}");
    assert_eq!(tuning.taken, tuning.after.is_some_and(|(_, ratio)| ratio.median < 1.0));
    let words =
        |plan: &NetworkPlan| plan.kernels().iter().map(|kernel| kernel.kernel().plan.tile.to_string()).collect::<Vec<_>>();
    let next = network.plan(device, &[]).unwrap();
    assert_eq!(words(&next), words(&plan), "the next plan has the same tiles\n{tuning}");
    for mut plan in [plan, next] {
        let found = plan.run(&stream, &[("x", x.clone())]).unwrap();
        agrees("tuned", &expected[0].1, &found[0].1, 1e-2);
    }
}
