//! From a kernel to launches on a device.

use super::*;
use crate::args::{Slot, bind, slots};
use crate::device::{Before, Device, DeviceArgs, Launch, LaunchError, LoadError, Passer, Repacker, Splitter};
use crate::error::Error;
use crate::jit::CacheFault;
use crate::tune::Tuning;
use cudarc::driver::CudaStream;
use std::fmt;
use std::sync::Arc;

/// A kernel on a device, ready to run again and again on one shape.
pub struct Plan {
    pub(super) gemm: Gemm,
    pub(super) device: Device,
    pub(super) problem: Problem,
    pub(super) kernel: Kernel,
    pub(super) launch: Arc<Launch>,
    /// The result of tuning, if this plan was tuned.
    pub(super) tuning: Option<Tuning>,
}

impl fmt::Debug for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Plan({} on device {}, {})", self.kernel.plan.tile, self.launch.context.ordinal(), self.launch.shape)
    }
}

impl Gemm {
    /// Chooses the kernel for a problem, compiles it or takes it from the cache, and loads it. If
    /// [`autotune`](Plan::autotune) has found a tile for such a problem on such a GPU, that tile is used.
    ///
    /// A repeated request neither plans nor looks beyond memory, so planning for every call is affordable.
    ///
    /// # Errors
    /// If there is no plan, no NVRTC, or the driver refuses the kernel.
    pub fn plan(&self, device: &Device, problem: impl Into<Problem>) -> Result<Plan, Error> {
        let problem = problem.into();
        let (target, gpu) = (device.target(), device.gpu());
        // Tuning results belong to one GPU. A new result discards all memos.
        let tell = |error| self.tell(error, target, gpu, &problem);
        let key = memo::key(self, target, gpu, &problem, device.name());
        let kernel = memo::kernel(device.cache(), key, || {
            // What a call of `compile` has made, as `precompile` does for all kernels of a network.
            let known = memo::known(device.cache(), memo::key(self, target, gpu, &problem, ""));
            let fresh = match &known {
                Some(made) => made.asked.clone(),
                None => Arc::new(self.kernel_plan(target, gpu, problem.clone())?),
            };
            let untuned = || match known {
                Some(made) => Ok(made.kernel.clone()),
                None => Kernel::of((*fresh).clone(), device.cache()),
            };
            let tuned = self.tuned(device, &fresh, &problem);
            match tuned.map(|plan| Kernel::of(plan, device.cache())) {
                Some(Ok(kernel)) => Ok(kernel),
                Some(Err(error)) => {
                    device.cache().report(CacheFault::Untuned, &fresh.tile, &error);
                    untuned()
                }
                None => untuned(),
            }
        })
        .map_err(tell)?;
        let load = |kernel| self.load(device, kernel, problem.shape);
        let (kernel, launch) = memo::launch(device.launches(), key, kernel, load).map_err(tell)?;
        Ok(Plan { gemm: self.clone(), device: device.clone(), problem, kernel, launch, tuning: None })
    }

    /// Loads a kernel and prepares its launches.
    pub(super) fn load(&self, device: &Device, kernel: Kernel, shape: Shape) -> Result<(Kernel, Launch), Error> {
        load(device, kernel, slots(self.operation, self.epilogue.checked(), shape), shape)
    }

    /// [`plan`](Gemm::plan) for given arguments: for their strides and the alignment of their addresses.
    ///
    /// # Errors
    /// Those of `plan`.
    pub fn plan_for(
        &self,
        device: &Device,
        shape: Shape,
        stream: &Arc<CudaStream>,
        args: &mut DeviceArgs<'_>,
    ) -> Result<Plan, Error> {
        if args.state_layouts() {
            args.take_layouts(&slots(self.operation, self.epilogue.checked(), shape));
        }
        let plan = self.plan(device, args.problem(shape, stream));
        if let Err(Error::Arguments(_)) = plan {
            // A problem states only strides. Binding the arguments finds everything else that does not fit.
            bind(&slots(self.operation, self.epilogue.checked(), shape), shape, args)?;
        }
        plan
    }
}

/// Loads a kernel and the kernels that run before it.
fn load(device: &Device, mut kernel: Kernel, mut slots: Vec<Slot>, shape: Shape) -> Result<(Kernel, Launch), Error> {
    let mut before = Before::default();
    if let (Some(repack), Some((source, cubin))) = (kernel.plan.repack, &mut kernel.repack) {
        let (function, loaded) = device.load(cubin, 0, source)?;
        *cubin = loaded;
        before.repacker = Some(Repacker::new(function, repack));
    }
    if let (Some(split), Some(product)) = (&kernel.plan.split, &kernel.split) {
        let (product, launch) = load(device, (**product).clone(), split.slots(shape), split.shape(shape))?;
        kernel.split = Some(Arc::new(product));
        before.product = Some((Splitter::new(split.clone(), shape), Box::new(launch)));
    }
    if let (Some(passes), Some(own)) = (&kernel.plan.passes, kernel.plan.passes.as_ref().and_then(|p| p.passes.last())) {
        let mut launches = Vec::with_capacity(kernel.before.len());
        for (pass, kernel) in passes.passes.iter().zip(&mut kernel.before) {
            let (loaded, launch) = load(device, (**kernel).clone(), pass.slots(shape), pass.shape(shape))?;
            *kernel = Arc::new(loaded);
            launches.push(launch);
        }
        let given = std::mem::replace(&mut slots, own.slots(shape));
        before.passes = Some((Passer::new(passes, given, shape), launches));
    }
    let (function, cubin) = device.load(&kernel.cubin, kernel.plan.shared_memory(), &kernel.source)?;
    kernel.cubin = cubin;
    let launch = Launch::new(&kernel.plan, function, before, slots, shape, device.context())?;
    Ok((kernel, launch))
}

impl From<LoadError> for Error {
    fn from(error: LoadError) -> Error {
        match error {
            LoadError::Jit(error) => error.into(),
            LoadError::Device(error) => error.into(),
        }
    }
}

impl From<LaunchError> for Error {
    fn from(error: LaunchError) -> Error {
        match error {
            LaunchError::Arguments(error) => error.into(),
            LaunchError::Device(error) => error.into(),
        }
    }
}

impl Plan {
    /// Checks the arguments and launches, and does nothing else. It returns when the launch is in the stream.
    ///
    /// A launch can be recorded into a CUDA graph if the context does not order streams by events
    /// (`CudaContext::disable_event_tracking`), because a capture cannot wait for an event outside of it. Kernels are
    /// unloaded when their device and all of its plans are dropped, so keep one of these as long as the graph.
    ///
    /// A plan that copies operands, splits K or reduces owns memory on each stream on which it has run. The first
    /// execution on a stream allocates it, and it is freed with the plan. So run such a plan on a few streams, not on
    /// new ones all the time. Execute it once before a capture, with its operands shared by the batch as in the
    /// capture. Keep the plan as long as the graph, and replay the graph only while nothing else runs the plan on that
    /// memory.
    ///
    /// # Errors
    /// Every argument that does not fit. Then nothing is launched or written.
    pub fn execute(&self, stream: &Arc<CudaStream>, args: &mut DeviceArgs<'_>) -> Result<(), Error> {
        Ok(self.launch.run(stream, args)?)
    }

    /// [`execute`](Plan::execute) in a stream beside the one by which the memory of the arguments is ordered. The caller orders
    /// the two.
    ///
    /// # Errors
    /// As `execute`.
    pub(crate) fn execute_beside(
        &self,
        ordered: &Arc<CudaStream>,
        stream: &Arc<CudaStream>,
        args: &mut DeviceArgs<'_>,
    ) -> Result<(), Error> {
        Ok(self.launch.run_beside(ordered, stream, args)?)
    }

    /// The kernel: plan, source and binary.
    pub fn kernel(&self) -> &Kernel {
        &self.kernel
    }

    /// The kernel that runs, with the reasons for its choice.
    pub fn explain(&self) -> String {
        let tuning = self.tuning.as_ref().map(ToString::to_string).unwrap_or_default();
        self.kernel.explain() + &tuning
    }
}
