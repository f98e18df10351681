//! Derivatives: both halves of a pair as kernels, the backward one over the forward one's outputs. Each is compared
//! with the CPU, and runs twice with the same bits.

use crate::case::Case;
use crate::edges::{self, Arm};
use crate::files::{gemms, with_scalars};
use crate::layout::Buffer;
use crate::pairs;
use crate::rig::rig;
use postlude::build::activation;
use postlude::dtype::ValueType;
use postlude::grad::{Pair, Wrt};
use postlude::ir::Order;
use postlude::plan::Mainloop;
use postlude::prelude::*;
use postlude::{Epilogue, Gemm};
use std::sync::atomic::{AtomicUsize, Ordering};

/// How many of the random graphs run on one mainloop, and how many on every one. Compiling takes the time.
const SOME: usize = 150;
const EVERYWHERE: usize = 12;

/// Quotients and exponentials of random values: what is left of an error grows on the way.
const SLACK: f64 = 200.0;

/// Not a multiple of anything; several entries.
const SHAPES: [Shape; 2] = [Shape::new(67, 72, 24), Shape::new(40, 33, 17).batched(2)];

/// The epilogue behind each mainloop, and by itself.
fn mainloops(epilogue: &Epilogue) -> Vec<Gemm> {
    if epilogue.checked().accumulator() == Some(ValueType::I32) {
        return gemms(epilogue);
    }
    vec![
        Gemm::new(F16, TN, epilogue),
        Gemm::new(BF16, NT, epilogue).mainloop(Mainloop::Sm80),
        Gemm::new(F32, NN, epilogue),
        Gemm::new(F16, TN, epilogue).mainloop(Mainloop::Gemv),
        Gemm::new(F32, TT, epilogue).tf32(true),
        Gemm::pointwise(F32, Order::RowMajor, epilogue),
    ]
}

/// Runs the forward half on one mainloop, and the backward half on another over the forward half's arguments and
/// outputs.
fn chain(pair: &Pair, mainloop: usize, shape: Shape, seed: u64) {
    let case = |epilogue: &Epilogue, seed: u64| {
        let gemms = mainloops(epilogue);
        with_scalars(&gemms[mainloop % gemms.len()], shape, seed).slack(SLACK).steep()
    };
    let forward = case(pair.forward(), seed);
    let Some(left) = forward.run_on(&forward.buffers()) else { return };
    let mut backward = case(pair.backward(), seed + 1);
    for (name, value) in &mut backward.scalars {
        *value = forward.scalars.get(name).copied().unwrap_or(*value);
    }
    let given = take(backward.buffers(), &left);
    backward.run_on(&given);
}

/// Buffers with the contents of those of the same name; the operands of the product are each half's own.
fn take(mut buffers: Vec<Buffer>, from: &[Buffer]) -> Vec<Buffer> {
    for buffer in buffers.iter_mut().filter(|b| !b.written && b.name != "a" && b.name != "b") {
        if let Some(from) = from.iter().find(|other| other.name == buffer.name) {
            assert_eq!(buffer.bytes.len(), from.bytes.len(), "`{}` lies otherwise", buffer.name);
            buffer.bytes.clone_from(&from.bytes);
        }
    }
    buffers
}

/// Does something with every number below a count, on as many threads as there are processors.
fn each(count: usize, work: impl Fn(usize) + Sync) {
    if rig().is_none() {
        return;
    }
    let (next, failed) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let i = next.fetch_add(1, Ordering::Relaxed);
                    if i >= count {
                        return;
                    }
                    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| work(i)));
                    failed.fetch_add(usize::from(outcome.is_err()), Ordering::Relaxed);
                }
            });
        }
    });
    let failed = failed.into_inner();
    assert!(failed == 0, "{failed} of {count} failed");
}

/// Some of the random graphs whose gradients are compared with differences, each on some of the mainloops.
fn of_graphs(graphs: usize, everywhere: usize) {
    let all: Vec<(u64, Epilogue)> = pairs::epilogues(pairs::smooth(), 7).take(graphs).collect();
    each(graphs, |i| {
        let (draw, epilogue) = &all[i];
        if !pairs::decides(epilogue) {
            return;
        }
        let pair = epilogue.backward(pairs::everything(epilogue)).unwrap();
        let mainloops = if i < everywhere { 0..6 } else { i % 6..i % 6 + 1 };
        for mainloop in mainloops {
            chain(&pair, mainloop, SHAPES[i / 6 % 2], *draw);
        }
    });
}

#[test]
fn of_random_graphs() {
    of_graphs(SOME, EVERYWHERE);
}

/// All that are compared with differences.
#[test]
#[ignore = "compiles a thousand kernels"]
fn of_all_random_graphs() {
    of_graphs(pairs::GRAPHS, 0);
}

#[test]
fn of_every_activation() {
    let formats = [F16, F32];
    each(activation::ALL.len() * formats.len(), |i| {
        let (function, dtype) = (activation::ALL[i / 2], formats[i % 2]);
        let pair = pairs::of_activation(function, dtype).backward(Wrt::all()).unwrap();
        // Behind a product and pointwise.
        for mainloop in [0, 5] {
            chain(&pair, mainloop, SHAPES[0], i as u64);
        }
    });
}

/// The gradient of a clamp follows the forward half's decision, not the rounded and saved number.
#[test]
fn of_a_clamp_follow_the_forward_half() {
    each(2, |i| {
        let dtype = [F16, BF16][i];
        let epilogue = Epilogue::build(|e| {
            let z = e.acc() * e.scalar("alpha", F32) + e.load("c", dtype) * e.scalar("beta", F32);
            e.store("d", z.clamp(-0.5, 0.75) * e.load("row_scale", F32.over(M)), dtype);
            e.store("inside", z.ge(-0.5) & z.le(0.75), Bool);
        });
        let pair = epilogue.unwrap().backward(Wrt::accumulator()).unwrap();
        let forward = with_scalars(&Gemm::new(dtype, TN, pair.forward()), SHAPES[0], 5).slack(SLACK).steep();
        let Some(left) = forward.run_on(&forward.buffers()) else { return };
        let mut backward = with_scalars(&Gemm::pointwise(F32, Order::RowMajor, pair.backward()), SHAPES[0], 6);
        for (name, value) in &mut backward.scalars {
            *value = forward.scalars.get(name).copied().unwrap_or(*value);
        }
        let mut given = take(backward.buffers(), &left);
        given.iter_mut().filter(|b| b.name == "a").for_each(|b| b.fill(|| 1.0));
        let Some(got) = backward.run_on(&given) else { return };
        let elements = |buffers: &[Buffer], name: &str| -> Vec<f64> {
            buffers.iter().filter(|b| b.name == name).flat_map(|b| b.elements()).map(|(_, x)| x).collect()
        };
        let (inside, gradient) = (elements(&left, "inside"), elements(&got, "grad_acc"));
        assert!(!inside.is_empty() && inside.len() == gradient.len());
        assert!(inside.iter().zip(&gradient).all(|(inside, g)| *inside != 0.0 || *g == 0.0), "{dtype}: a gradient from outside");
        let count = |of: &[f64]| of.iter().filter(|x| **x != 0.0).count();
        // A row whose scale is 0 has none.
        assert!(2 * count(&gradient) >= count(&inside) && count(&inside) > 0, "{dtype}");
    });
}

/// The value of an arm that was not picked reaches no gradient in a kernel either.
#[test]
fn of_arms_that_are_not_picked() {
    each(edges::ALL.len(), |i| {
        let Arm { name, build, a, x, acc, of_x } = edges::ALL[i];
        let pair = Epilogue::build(build).unwrap().backward(Wrt::all()).unwrap();
        let shape = Shape::new(1, a.len(), 0);
        let pointwise = |epilogue: &Epilogue| Case::new(&Gemm::pointwise(F32, Order::RowMajor, epilogue), shape);
        let set = |buffers: &mut [Buffer], name: &str, values: &[f32]| {
            let mut values = values.iter().copied().map(f64::from);
            let buffer = buffers.iter_mut().find(|b| b.name == name);
            buffer.into_iter().for_each(|b| b.fill(|| values.next().expect("as many values as elements")));
        };
        let forward = pointwise(pair.forward());
        let mut given = forward.buffers();
        set(&mut given, "a", a);
        set(&mut given, "x", x);
        let Some(left) = forward.run_on(&given) else { return };
        let backward = pointwise(pair.backward());
        let mut given = take(backward.buffers(), &left);
        set(&mut given, "a", &vec![1.0; a.len()]);
        set(&mut given, "x", x);
        let Some(got) = backward.run_on(&given) else { return };
        for (gradient, expected) in [("grad_acc", acc), ("grad_x", of_x)] {
            let found = got.iter().find(|b| b.name == gradient);
            let found: Vec<f32> = found.into_iter().flat_map(|b| b.elements()).map(|(_, x)| x as f32).collect();
            assert!(edges::agree(&found, expected), "{name}: {gradient} is {found:?}, not {expected:?}");
        }
    });
}
