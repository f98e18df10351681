//! The host's cost of a launch: `Plan::execute` over a bare `cuLaunchKernel` of the same kernel with the same
//! parameters, and `Gemm::plan` of a known request.
//!
//! `cargo bench --bench launch`. Launches go back to back in bursts that the GPU's queue takes without waiting,
//! contenders alternate, and each figure is the median over the bursts with the tenth and ninetieth percentile.
//!
//! Without a GPU it says why it does nothing.
#![allow(missing_docs, reason = "a benchmark")]

#[path = "support/mod.rs"]
#[allow(dead_code, reason = "other benchmarks use the rest")]
mod support;

use half::f16;
use postlude::Gemm;
use postlude::build::recipes;
use postlude::cudarc::driver::sys::{CUfunction, CUfunction_attribute, cuLaunchKernel};
use postlude::cudarc::driver::{CudaFunction, CudaSlice, CudaStream, DevicePtr};
use postlude::cudarc::nvrtc::Ptx;
use postlude::device::{Device, DeviceArgs};
use postlude::gemm::{Kernel, Plan};
use postlude::ir::Order;
use postlude::jit::{Cache, Options, Origin};
use postlude::plan::{FieldValue, Mainloop};
use postlude::prelude::*;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;
use support::Result;

const EXTENT: usize = 64;
const SHAPE: Shape = Shape::new(EXTENT, EXTENT, EXTENT);
/// Launches of a burst, and bursts of a contender.
const BURST: usize = 200;
const ROUNDS: usize = 101;

fn main() {
    support::on_gpu(|device, args| {
        println!("{device:?}");
        run(device, support::rounds(args, ROUNDS))
    });
}

fn run(device: &Device, rounds: usize) -> Result<()> {
    let epilogue = recipes::bias_activation(F16, F16, |z| z.relu())?;
    let product = Gemm::new(F16, TN, &epilogue);
    let gemms = [Gemm::pointwise(F16, Order::RowMajor, &epilogue), product.clone().mainloop(Mainloop::Sm80), product];
    let plan = |gemm: &Gemm| gemm.plan(device, SHAPE);
    let kernels = [plan(&gemms[0])?, plan(&gemms[1])?, plan(&gemms[2])?];
    let [.., forced, chosen] = &kernels;
    let kernels = if chosen.kernel().plan.tile == forced.kernel().plan.tile { &kernels[..2] } else { &kernels[..] };
    for (gemm, kernel) in gemms.iter().zip(kernels) {
        plans(device, gemm, kernel.kernel(), rounds)?;
    }
    // With one stream in the context nothing is ordered by events; with two, each argument has some.
    let one = device.context().default_stream();
    for plan in kernels {
        Contest::new(device, plan, &one)?.run("one stream", rounds)?;
    }
    let many = device.context().new_stream()?;
    for plan in kernels {
        Contest::new(device, plan, &many)?.run("streams ordered by events", rounds)?;
    }
    Ok(())
}

/// From a request to a kernel in the device's memory: planned before, or compiled by an earlier process.
fn plans(device: &Device, gemm: &Gemm, kernel: &Kernel, rounds: usize) -> Result<()> {
    let stream = device.context().default_stream();
    let directory = tempfile::tempdir()?;
    let cache = || Cache::at(directory.path().join("cache"));
    cache().compile(&kernel.source, &kernel.plan.target, &Options::new())?;
    let (mut again, mut from_disk, mut loaded) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rounds {
        again.push(burst(&stream, || drop(black_box(gemm.plan(device, SHAPE).expect("a plan"))))?);
        let fresh = device.with_cache(cache())?;
        let start = Instant::now();
        let plan = gemm.plan(&fresh, SHAPE)?;
        from_disk.push(start.elapsed().as_secs_f64() * 1e6);
        assert_eq!(plan.kernel().cubin.info.origin, Origin::Disk);
        let start = Instant::now();
        black_box(device.context().load_module(Ptx::from_binary(kernel.cubin.bytes.to_vec()))?);
        loaded.push(start.elapsed().as_secs_f64() * 1e6);
    }
    println!("{}, microseconds a plan", kernel.plan.tile);
    show("Gemm::plan, planned before", &again);
    show("Gemm::plan, kernel on disk", &from_disk);
    show("of which loading the module", &loaded);
    Ok(())
}

struct Contest<'d> {
    plan: &'d Plan,
    stream: &'d Arc<CudaStream>,
    function: CudaFunction,
    memory: Memory,
}

struct Memory {
    a: CudaSlice<f16>,
    b: CudaSlice<f16>,
    bias: CudaSlice<f16>,
    d: CudaSlice<f16>,
}

impl Memory {
    fn args(&mut self, pointwise: bool) -> DeviceArgs<'_> {
        let args = DeviceArgs::new().input("a", &self.a);
        let args = if pointwise { args } else { args.input("b", &self.b) };
        args.input("bias", &self.bias).output("d", &mut self.d)
    }
}

impl<'d> Contest<'d> {
    fn new(device: &Device, plan: &'d Plan, stream: &'d Arc<CudaStream>) -> Result<Contest<'d>> {
        let kernel = plan.kernel();
        let module = device.context().load_module(Ptx::from_binary(kernel.cubin.bytes.to_vec()))?;
        let function = module.load_function(&kernel.cubin.info.entry)?;
        function.set_attribute(
            CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
            kernel.plan.shared_memory().try_into()?,
        )?;
        let zeros = || stream.alloc_zeros::<f16>(EXTENT * EXTENT);
        let memory = Memory { a: zeros()?, b: zeros()?, bias: zeros()?, d: zeros()? };
        Ok(Contest { plan, stream, function, memory })
    }

    fn run(mut self, what: &str, rounds: usize) -> Result<()> {
        let kernel = &self.plan.kernel().plan;
        let pointwise = kernel.tile.mainloop() == Mainloop::Pointwise;
        // Tensor maps cannot be made here: a kernel that has some is measured without its bare launch.
        let raw = kernel.maps.is_empty().then(|| Raw::new(self.plan, &self.function, &self.memory, self.stream));
        let (plan, stream) = (self.plan, self.stream);
        let mut times = [const { Vec::new() }; 3];
        for _ in 0..rounds {
            if let Some(raw) = &raw {
                times[0].push(burst(stream, || raw.launch(stream))?);
            }
            let mut args = self.memory.args(pointwise);
            times[1].push(burst(stream, || plan.execute(stream, &mut args).expect("a launch"))?);
            drop(args);
            let memory = &mut self.memory;
            times[2].push(burst(stream, || plan.execute(stream, &mut memory.args(pointwise)).expect("a launch"))?);
        }
        let overhead: Vec<f64> = times[1].iter().zip(&times[0]).map(|(ours, bare)| ours - bare).collect();
        println!("{}, {what}, microseconds a launch", kernel.tile);
        for (name, times) in [
            ("cuLaunchKernel", &times[0]),
            ("Plan::execute", &times[1]),
            ("its arguments made anew each time", &times[2]),
            ("Plan::execute over cuLaunchKernel", &overhead),
        ] {
            show(name, times);
        }
        Ok(())
    }
}

/// The same launch without the library.
struct Raw {
    function: CUfunction,
    grid: [u32; 3],
    threads: u32,
    shared_memory: u32,
    /// The parameter block, aligned as a kernel's may have to be.
    block: Vec<u128>,
}

impl Raw {
    fn new(plan: &Plan, function: &CudaFunction, memory: &Memory, stream: &CudaStream) -> Raw {
        let kernel = &plan.kernel().plan;
        let mut bytes = vec![0u8; kernel.params.size.next_multiple_of(16)];
        let address = |slice: &CudaSlice<f16>| slice.device_ptr(stream).0;
        let pointer = |argument: usize| match &*kernel.arguments[argument].name {
            "bias" => address(&memory.bias),
            _ => address(&memory.d),
        };
        for field in &kernel.params.fields {
            let long = |x: u64| x.to_le_bytes().to_vec();
            let int = |x: usize| (x as u32).to_le_bytes().to_vec();
            let value = match field.value {
                FieldValue::M | FieldValue::N | FieldValue::K => int(EXTENT),
                FieldValue::Batch | FieldValue::Wide(_) => int(1),
                FieldValue::Raster => int(kernel.raster.unsigned_abs() as usize),
                FieldValue::OperandPointer(0) => long(address(&memory.a)),
                FieldValue::OperandPointer(_) => long(address(&memory.b)),
                FieldValue::OperandLd(_) | FieldValue::Ld(_) => long(EXTENT as u64),
                FieldValue::Pointer(argument) => long(pointer(argument)),
                _ => continue,
            };
            bytes[field.offset..field.offset + value.len()].copy_from_slice(&value);
        }
        let block = bytes.as_chunks().0.iter().map(|chunk| u128::from_le_bytes(*chunk)).collect();
        Raw {
            function: function.cu_function(),
            grid: kernel.grid(SHAPE).expect("a grid"),
            threads: kernel.tile.threads as u32,
            shared_memory: kernel.shared_memory() as u32,
            block,
        }
    }

    fn launch(&self, stream: &CudaStream) {
        let ([x, y, z], mut parameters) = (self.grid, [self.block.as_ptr().cast_mut().cast()]);
        // SAFETY: the block is laid out as the kernel's plan says, and what it points to outlives the burst, which ends with a
        // synchronisation.
        let result = unsafe {
            cuLaunchKernel(
                self.function,
                x,
                y,
                z,
                self.threads,
                1,
                1,
                self.shared_memory,
                stream.cu_stream(),
                parameters.as_mut_ptr(),
                std::ptr::null_mut(),
            )
        };
        result.result().expect("a launch");
    }
}

/// Microseconds of the host for each launch of a burst.
fn burst(stream: &CudaStream, mut launch: impl FnMut()) -> Result<f64> {
    stream.synchronize()?;
    let start = Instant::now();
    for _ in 0..BURST {
        launch();
    }
    let time = start.elapsed();
    stream.synchronize()?;
    Ok(time.as_secs_f64() * 1e6 / BURST as f64)
}

fn show(name: &str, times: &[f64]) {
    if let Some([low, median, high]) = spread(times) {
        println!("  {name:36} {median:6.2} [{low:.2}, {high:.2}]");
    }
}

/// The tenth percentile, the median and the ninetieth.
fn spread(times: &[f64]) -> Option<[f64; 3]> {
    let mut sorted = times.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().checked_sub(1)?;
    Some([1, 5, 9].map(|tenths| sorted[last * tenths / 10]))
}
