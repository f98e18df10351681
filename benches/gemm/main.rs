//! Kernels on the GPU, against cuBLASLt and against themselves.
//!
//! `cargo bench --bench gemm` measures every kernel by itself, then lets contenders take turns (see [`contest`]) and
//! prints their ratios, which mean more: a GPU's clock follows its power, and ratios of one round do not.
//! `POSTLUDE_BENCH_SLICES=long` gives each contender slices long enough to reach its own clock; the default is short ones,
//! between which the clock cannot change. `POSTLUDE_BENCH_CONTEST=8192` runs only the contests with that in their title.
//!
//! Without a GPU it says why it does nothing.
#![allow(missing_docs, reason = "a benchmark")]

mod contest;
mod operands;
mod peer;

use contest::{Contender, Contest};
use criterion::Criterion;
use operands::{Data, Operands};
use peer::{Activation, Lt};
use postlude::build::recipes;
use postlude::cudarc::driver::CudaStream;
use postlude::device::Device;
use postlude::gemm::Plan;
use postlude::ir::Order;
use postlude::plan::Mainloop;
use postlude::prelude::*;
use postlude::{Epilogue, Gemm};
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn main() {
    let device = match Device::new(0) {
        Ok(device) => device,
        Err(error) => return println!("skipped: no GPU ({error})"),
    };
    if let Err(error) = postlude::jit::compiler() {
        return println!("skipped: NVRTC not found ({error})");
    }
    println!("{device:?}");
    // Without `--bench` (as under `cargo test`) everything runs once, and nothing is measured.
    let measured = std::env::args().any(|a| a == "--bench");
    if let Err(error) = run(&device, measured) {
        eprintln!("error: {error}");
        std::process::exit(1);
    }
}

fn run(device: &Device, measured: bool) -> Result<()> {
    let stream = device.context().default_stream();
    let warm = Duration::from_millis(200);
    let mut criterion = Criterion::default()
        .configure_from_args()
        .sample_size(10)
        .warm_up_time(warm)
        .measurement_time(Duration::from_millis(400));
    let bench = Bench { device, stream: &stream };
    for extent in if measured { vec![4096, 8192] } else { vec![256] } {
        for layout in [TN, TT] {
            bench.product(&mut criterion, F16, layout, extent, measured)?;
        }
        bench.epilogues(extent, measured)?;
    }
    for extent in if measured { vec![2048, 4096] } else { vec![256] } {
        bench.product(&mut criterion, F32, TT, extent, measured)?;
    }
    bench.pointwise(&mut criterion, if measured { 8192 } else { 256 }, measured)?;
    criterion.final_summary();
    Ok(())
}

/// Scalars of a launch.
type Scalars = &'static [(&'static str, i32)];

/// An epilogue's kernel and the operands it turns through.
struct Kernel {
    plan: Plan,
    scalars: Scalars,
}

impl Kernel {
    fn launch(&self, stream: &Arc<CudaStream>, operands: &mut Operands, turn: usize) {
        let names: Vec<&str> = self.plan.kernel().plan.arguments.iter().map(|a| &*a.name).collect();
        let mut args = operands.args(turn, &names);
        for (name, value) in self.scalars {
            args = args.scalar(name, *value);
        }
        self.plan.execute(stream, &mut args).expect("a launch");
    }
}

struct Bench<'d> {
    device: &'d Device,
    stream: &'d Arc<CudaStream>,
}

impl Bench<'_> {
    fn kernel(&self, gemm: &Gemm, shape: Shape, scalars: Scalars) -> Result<Kernel> {
        Ok(Kernel { plan: gemm.plan(self.device, shape)?, scalars })
    }

    /// A product against cuBLASLt: bias and ReLU in 16 bits, and the plain product in `f32`.
    fn product(&self, criterion: &mut Criterion, dtype: DType, layout: Layout, extent: usize, measured: bool) -> Result<()> {
        let shape = Shape::new(extent, extent, extent);
        let fused = dtype == F16;
        let (epilogue, what) = if fused {
            (recipes::bias_activation(F16, F16, |z| z.relu())?, "bias+relu")
        } else {
            (recipes::identity(dtype)?, "plain")
        };
        let title = format!("{dtype} {layout} {extent}^3 {what}");
        let mut operands = Operands::new(self.stream, dtype, dtype, shape)?;
        let gemm = Gemm::new(dtype, layout, &epilogue);
        let mainloop = if fused { Mainloop::Sm80 } else { Mainloop::Simt };
        let forced = self.kernel(&gemm.clone().mainloop(mainloop), shape, &[])?;
        let chosen = self.kernel(&gemm, shape, &[])?;
        let mut lt = match Lt::new(self.stream, dtype, layout, shape, if fused { Activation::ReluBias } else { Activation::None })
        {
            Ok(lt) => Some(lt),
            Err(error) => {
                println!("{title}: no cuBLASLt ({error})");
                None
            }
        };
        if let Some(lt) = &mut lt {
            lt.choose(self.stream, &mut operands)?;
            operands.poison(self.stream)?;
            forced.launch(self.stream, &mut operands, 0);
            let ours = operands.sample(self.stream)?;
            operands.poison(self.stream)?;
            lt.launch(self.stream, &mut operands, 0);
            let error = operands::distance(&ours, &operands.sample(self.stream)?);
            println!("{title}: of {} elements, |ours - cuBLASLt| / |cuBLASLt| = {error:.1e}", ours.len());
            if error.is_nan() || error > 1e-3 {
                return Err(format!("{title}: wrong values").into());
            }
        }
        contest::criterion(criterion, self.stream, &format!("postlude {mainloop} {title}"), |turn| {
            forced.launch(self.stream, &mut operands, turn);
        });
        if !measured {
            return Ok(());
        }
        let mut contenders = Vec::new();
        if let Some(lt) = &lt {
            contenders.push(Contender::new(lt.name(), |o: &mut Operands, turn| lt.launch(self.stream, o, turn)));
        }
        let (forced, chosen) = (&forced, &chosen);
        let name = |kernel: &Kernel| format!("postlude {}", kernel.plan.kernel().plan.tile);
        contenders.push(Contender::new(name(forced), |o, turn| forced.launch(self.stream, o, turn)));
        if chosen.plan.kernel().plan.tile != forced.plan.kernel().plan.tile {
            contenders.push(Contender::new(name(chosen), |o, turn| chosen.launch(self.stream, o, turn)));
        }
        let flops = 2.0 * (extent as f64).powi(3);
        Contest { title, work: flops, unit: "TFLOP/s", contenders }.run(self.stream, &mut operands)
    }

    /// What epilogues cost on the same mainloop and tile.
    fn epilogues(&self, extent: usize, measured: bool) -> Result<()> {
        let shape = Shape::new(extent, extent, extent);
        let boundary: Scalars = &[("boundary", 1000)];
        let epilogues: [(&str, Epilogue, Scalars); 4] = [
            ("identity", recipes::identity(F16)?, &[]),
            ("bias+relu", recipes::bias_activation(F16, F16, |z| z.relu())?, &[]),
            ("bias+gelu (erf)", recipes::bias_activation(F16, F16, |z| z.gelu())?, &[]),
            ("bias; sigmoid in rows < 1000, else tanh", recipes::split_rows(F16, F16, |z| z.sigmoid(), |z| z.tanh())?, boundary),
        ];
        let mut operands = Operands::new(self.stream, F16, F16, shape)?;
        let gemm = |epilogue: &Epilogue| Gemm::new(F16, TN, epilogue).mainloop(Mainloop::Sm80);
        let tile = self.kernel(&gemm(&epilogues[0].1), shape, &[])?.plan.kernel().plan.tile;
        let mut kernels = Vec::new();
        for (name, epilogue, scalars) in &epilogues {
            let kernel = self.kernel(&gemm(epilogue).tile(tile), shape, scalars)?;
            kernel.launch(self.stream, &mut operands, 0);
            kernels.push((*name, kernel));
        }
        if !measured {
            return Ok(());
        }
        let contenders = kernels.iter().map(|(name, kernel)| {
            let registers = kernel.plan.kernel().cubin.info.registers;
            Contender::new(format!("{name} ({registers} registers)"), |o: &mut Operands, turn| {
                kernel.launch(self.stream, o, turn)
            })
        });
        let (contenders, work) = (contenders.collect(), 2.0 * (extent as f64).powi(3));
        Contest { title: format!("epilogues on {tile}, f16 TN {extent}^3"), work, unit: "TFLOP/s", contenders }
            .run(self.stream, &mut operands)
    }

    /// Bias and ReLU over a matrix that exists, against a copy of as many bytes.
    fn pointwise(&self, criterion: &mut Criterion, extent: usize, measured: bool) -> Result<()> {
        let shape = Shape::new(extent, extent, 0);
        let mut operands = Operands::new(self.stream, F16, F16, Shape::new(extent, extent, extent))?;
        let epilogue = recipes::bias_activation(F16, F16, |z| z.relu())?;
        let gelu = recipes::bias_activation(F16, F16, |z| z.gelu())?;
        let kernel = self.kernel(&Gemm::pointwise(F16, Order::RowMajor, &epilogue), shape, &[])?;
        let gelu = self.kernel(&Gemm::pointwise(F16, Order::RowMajor, &gelu), shape, &[])?;
        operands.pointwise = true;
        contest::criterion(criterion, self.stream, &format!("postlude pointwise f16 {extent}^2 bias+relu"), |turn| {
            kernel.launch(self.stream, &mut operands, turn);
        });
        if !measured {
            return Ok(());
        }
        let contenders = vec![
            Contender::new("device copy", |o: &mut Operands, turn| o.copy(self.stream, turn)),
            Contender::new("postlude bias+relu", |o: &mut Operands, turn| kernel.launch(self.stream, o, turn)),
            Contender::new("postlude bias+gelu (erf)", |o: &mut Operands, turn| gelu.launch(self.stream, o, turn)),
        ];
        let bytes = 2.0 * Data::bytes(F16, extent * extent) as f64;
        Contest { title: format!("pointwise f16 {extent}^2"), work: bytes, unit: "TB/s", contenders }
            .run(self.stream, &mut operands)
    }
}
