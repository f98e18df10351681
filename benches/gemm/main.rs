//! The GPU benchmarks: kernels against cuBLASLt and against themselves with less of an epilogue.
//!
//! `cargo bench --bench gemm` prints a table for each contest (interleaved, shuffled every round, median of per-round
//! ratios), then tracks the main kernels with criterion, timed by events. `-- --tables` prints the tables only, `--long`
//! takes slices of 160 ms in which each contender settles at its own power, `--short` slices of 8 ms at common clocks;
//! both is the default. Without a GPU it says so and ends.

mod contest;
mod peer;

use contest::{Contender, contest, estimate, measure};
use criterion::Criterion;
use cudarc::driver::{CudaSlice, CudaStream};
use half::f16;
use peer::{Fused, Peer};
use postlude::build::recipes;
use postlude::device::{Device, DeviceArgs};
use postlude::gemm::Plan;
use postlude::ir::Order;
use postlude::plan::Mainloop;
use postlude::prelude::*;
use postlude::{Element, Gemm};
use std::cell::RefCell;
use std::sync::Arc;

type Fallible<T> = Result<T, Box<dyn std::error::Error>>;

/// Operands of one product and room for its result.
struct Room<T> {
    a: CudaSlice<T>,
    b: CudaSlice<T>,
    bias: CudaSlice<T>,
    d: RefCell<CudaSlice<T>>,
    shape: Shape,
    layout: Layout,
    stream: Arc<CudaStream>,
}

trait Number: Element + cudarc::driver::DeviceRepr + cudarc::driver::ValidAsZeroBits {
    fn of(x: f32) -> Self;
}

impl Number for f32 {
    fn of(x: f32) -> f32 {
        x
    }
}

impl Number for f16 {
    fn of(x: f32) -> f16 {
        f16::from_f32(x)
    }
}

impl<T: Number> Room<T> {
    fn new(device: &Device, layout: Layout, shape: Shape) -> Fallible<Room<T>> {
        let stream = device.context().default_stream();
        // Uniform in [-0.5, 0.5) with all bits of the mantissa in play: constant data would run at a higher clock.
        let mut state = 0x2545_F491_4F6C_DD1Du64;
        let mut random = |count: usize| -> Vec<T> {
            let mut next = || {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                T::of((state >> 40) as f32 / (1 << 24) as f32 - 0.5)
            };
            (0..count).map(|_| next()).collect()
        };
        Ok(Room {
            a: stream.clone_htod(&random(shape.m * shape.k))?,
            b: stream.clone_htod(&random(shape.k * shape.n))?,
            bias: stream.clone_htod(&random(shape.n))?,
            d: RefCell::new(stream.alloc_zeros(shape.m * shape.n)?),
            shape,
            layout,
            stream,
        })
    }

    /// One of our kernels over these operands, whatever its epilogue needs of them.
    fn ours<'a>(&'a self, name: &str, plan: &'a Plan) -> Contender<'a> {
        let names: Vec<String> = plan.kernel().plan.arguments.iter().map(|a| a.name.to_string()).collect();
        let pointwise = matches!(plan.kernel().plan.operation, postlude::Operation::Pointwise { .. });
        let boundary = (self.shape.m / 2 + 36) as i32;
        let run = move || {
            let mut d = self.d.borrow_mut();
            let mut args = DeviceArgs::new().input("a", &self.a);
            if !pointwise {
                args = args.input("b", &self.b);
            }
            if names.iter().any(|n| n == "bias") {
                args = args.input("bias", &self.bias);
            }
            if names.iter().any(|n| n == "boundary") {
                args = args.scalar("boundary", boundary);
            }
            plan.execute(&self.stream, &mut args.output("d", &mut *d)).expect("the arguments fit");
        };
        Contender { name: format!("{name} ({})", plan.kernel().plan.tile), run: Box::new(run) }
    }

    /// cuBLASLt with the fastest of its heuristics.
    fn peer(&self, fused: Fused) -> Fallible<Contender<'_>> {
        let mut peer = Peer::new(&self.stream, self.layout, self.shape, fused, &self.bias)?;
        let mut times = Vec::new();
        for algorithm in 0..peer.algorithms() {
            peer.choose(algorithm);
            times.push(estimate(&self.stream, 20.0, &mut || peer.run(&self.a, &self.b, &mut self.d.borrow_mut())));
        }
        let best = (0..times.len()).min_by(|i, j| times[*i].total_cmp(&times[*j])).ok_or("cuBLASLt has no heuristic")?;
        peer.choose(best);
        let name = format!("cuBLASLt, {} of {} heuristics", best + 1, times.len());
        Ok(Contender { name, run: Box::new(move || peer.run(&self.a, &self.b, &mut self.d.borrow_mut())) })
    }
}

fn bias_relu(dtype: DType) -> Epilogue {
    recipes::bias_activation(dtype, dtype, |z| z.relu()).expect("a recipe is valid")
}

fn regions() -> Epilogue {
    recipes::split_rows(F16, F16, |z| z.sigmoid(), |z| z.tanh()).expect("a recipe is valid")
}

fn identity(dtype: DType) -> Epilogue {
    recipes::identity(dtype).expect("a recipe is valid")
}

/// How long and how often.
struct Slices(Vec<(&'static str, f64, usize)>);

fn table<T: Number>(slices: &Slices, room: &Room<T>, title: &str, mut contenders: Vec<Contender<'_>>) {
    let flops = 2.0 * room.shape.m as f64 * room.shape.n as f64 * room.shape.k as f64;
    for (kind, slice, rounds) in &slices.0 {
        println!("\n{title}, {kind} slices of {slice} ms, {rounds} rounds");
        println!("{:<64} {:>9} {:>8}  time over the first [10 %, 90 %]", "", "ms", "TFLOP/s");
        for outcome in contest(&room.stream, *rounds, *slice, &mut contenders) {
            let [low, median, high] = outcome.ratio;
            let rate = flops / outcome.ms / 1e9;
            println!("{:<64} {:>9.4} {rate:>8.1}  {median:.3} [{low:.3}, {high:.3}]", outcome.name, outcome.ms);
        }
    }
}

fn tables(device: &Device, slices: &Slices) -> Fallible<()> {
    for size in [4096, 8192] {
        for layout in [TN, TT] {
            let shape = Shape::new(size, size, size);
            let room = Room::<f16>::new(device, layout, shape)?;
            let fused = Gemm::new(F16, layout, &bias_relu(F16)).plan(device, shape)?;
            table(
                slices,
                &room,
                &format!("f16 {layout} {size}^3, bias and relu"),
                vec![room.peer(Fused::BiasRelu)?, room.ours("postlude", &fused)],
            );
            if layout == TN {
                let plain = Gemm::new(F16, layout, &identity(F16)).plan(device, shape)?;
                let region = Gemm::new(F16, layout, &regions()).plan(device, shape)?;
                let contenders = vec![
                    room.ours("identity", &plain),
                    room.ours("bias, relu", &fused),
                    room.ours("bias, sigmoid above, tanh below", &region),
                    room.peer(Fused::Nothing)?,
                ];
                table(slices, &room, &format!("f16 {layout} {size}^3, what an epilogue costs"), contenders);
            }
        }
    }
    for size in [2048, 4096] {
        let shape = Shape::new(size, size, size);
        for layout in [TN, TT] {
            let room = Room::<f32>::new(device, layout, shape)?;
            let plain = Gemm::new(F32, layout, &identity(F32)).plan(device, shape)?;
            let contenders = vec![room.peer(Fused::Nothing)?, room.ours("postlude", &plain)];
            table(slices, &room, &format!("f32 {layout} {size}^3 in full precision, plain"), contenders);
        }
    }
    let shape = Shape::new(8192, 8192, 1);
    let room = Room::<f16>::new(device, TN, Shape { k: 8192, ..shape })?;
    let plan = Gemm::pointwise(F16, Order::RowMajor, &bias_relu(F16)).plan(device, shape)?;
    let copy = || {
        let mut d = room.d.borrow_mut();
        room.stream.memcpy_dtod(&room.a, &mut *d).expect("the copy fits");
    };
    let contenders = vec![Contender { name: "device copy".into(), run: Box::new(copy) }, room.ours("postlude", &plan)];
    table(slices, &room, "pointwise f16 8192^2, bias and relu (TFLOP/s mean nothing here)", contenders);
    Ok(())
}

fn track(device: &Device, criterion: &mut Criterion) -> Fallible<()> {
    let mut group = criterion.benchmark_group("gpu");
    group.sample_size(10).measurement_time(std::time::Duration::from_secs(1));
    let kernels: [(&str, usize, Epilogue); 3] = [
        ("sm80 f16 TN bias relu 4096^3", 4096, bias_relu(F16)),
        ("sm80 f16 TN bias relu 8192^3", 8192, bias_relu(F16)),
        ("sm80 f16 TN regions 8192^3", 8192, regions()),
    ];
    for (name, size, epilogue) in kernels {
        let shape = Shape::new(size, size, size);
        let room = Room::<f16>::new(device, TN, shape)?;
        let plan = Gemm::new(F16, TN, &epilogue).mainloop(Mainloop::Sm80).plan(device, shape)?;
        let mut contender = room.ours(name, &plan);
        group.bench_function(name, |b| b.iter_custom(|iters| measure(&room.stream, iters, &mut contender.run)));
    }
    let shape = Shape::new(2048, 2048, 2048);
    let room = Room::<f32>::new(device, TN, shape)?;
    let plan = Gemm::new(F32, TN, &identity(F32)).plan(device, shape)?;
    let mut contender = room.ours("simt", &plan);
    group.bench_function("simt f32 TN 2048^3", |b| b.iter_custom(|iters| measure(&room.stream, iters, &mut contender.run)));
    group.finish();
    Ok(())
}

fn main() {
    let device = match Device::find() {
        Ok(device) => device,
        Err(why) => return println!("skipped: {why}"),
    };
    let flag = |name: &str| std::env::args().any(|a| a == name);
    let (short, long) = (("short", 8.0, 15), ("long", 160.0, 9));
    let slices = match (flag("--short"), flag("--long")) {
        (true, false) => vec![short],
        (false, true) => vec![long],
        _ => vec![short, long],
    };
    println!("{device}");
    let outcome = tables(&device, &Slices(slices))
        .and_then(|()| if flag("--tables") { Ok(()) } else { track(&device, &mut Criterion::default()) });
    if let Err(error) = outcome {
        eprintln!("error: {error}");
        std::process::exit(1);
    }
}
