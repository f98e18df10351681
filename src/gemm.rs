//! The front door: a product (or a pointwise operation) with an epilogue; reference, plan, execute.

#[cfg(feature = "jit")]
mod asked;
#[cfg(feature = "cuda")]
mod autotune;
#[cfg(feature = "jit")]
mod memo;
#[cfg(feature = "jit")]
mod parallel;
#[cfg(feature = "jit")]
mod precompile;
mod prefer;
mod run;

pub use run::RanOn;

use crate::args::{ArgumentErrors, HostArgs};
use crate::build::Epilogue;
use crate::dtype::DType;
use crate::emit::{self, RenderError};
use crate::ir::Order;
use crate::plan::{KernelPlan, PlanError, Preferences, Problem};
use crate::problem::{Layout, Operation, Shape};
use crate::reference::{self, Precision};
use crate::source::Source;
use crate::target::Target;

/// An operation and its epilogue. Nothing is compiled until `plan`.
#[doc(alias = "matmul")]
#[doc(alias = "bmm")]
#[derive(Clone, Debug)]
pub struct Gemm {
    operation: Operation,
    epilogue: Epilogue,
    preferences: Preferences,
    #[cfg(feature = "jit")]
    identity: memo::Identity,
}

impl Gemm {
    pub(crate) fn of(operation: Operation, epilogue: &Epilogue) -> Gemm {
        Gemm {
            operation,
            epilogue: epilogue.clone(),
            preferences: Preferences::default(),
            #[cfg(feature = "jit")]
            identity: memo::Identity::default(),
        }
    }

    /// The same operation and preferences with another epilogue.
    pub(crate) fn with_epilogue(&self, epilogue: &Epilogue) -> Gemm {
        Gemm { preferences: self.preferences, ..Gemm::of(self.operation, epilogue) }
    }

    /// D = epilogue(A B), A and B of one format, lying as the layout says.
    ///
    /// Two row-major matrices, `x @ y`, are [`TT`](Layout::TT); `x @ w.T`, a linear layer, is [`TN`](Layout::TN); `x.T @ y` is
    /// [`NT`](Layout::NT), and two column-major matrices, as in BLAS, are [`NN`](Layout::NN). [`Layout`] has a picture.
    pub fn new(dtype: DType, layout: Layout, epilogue: &Epilogue) -> Gemm {
        Gemm::of(Operation::product(dtype, layout), epilogue)
    }

    /// [`new`](Gemm::new) where A and B may have two formats: `E4M3` and `E5M2`, or `I8` and `U8`.
    ///
    /// ```
    /// # use postlude::prelude::*;
    /// let epilogue = Epilogue::build(|e| e.store("d", e.acc_i32(), I32))?;
    /// let (a, b, mut d) = ([-1i8, 2], [200u8, 255], [0i32]);
    /// let args = HostArgs::new().input("a", &a).input("b", &b).output("d", &mut d);
    /// Gemm::mixed(I8, U8, TN, &epilogue).reference(Shape::new(1, 1, 2), args)?;
    /// assert_eq!(d, [310]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn mixed(a: DType, b: DType, layout: Layout, epilogue: &Epilogue) -> Gemm {
        Gemm::of(Operation::Product { a, b, layout }, epilogue)
    }

    /// D = epilogue(A): an epilogue over a matrix that already exists, which is passed as `a`. K does not count:
    /// [`Shape::matrix`] has none.
    ///
    /// An epilogue that reads no accumulator needs no `a`: it works on what it loads, and a matrix that it stores under the name of a
    /// loaded one is updated in place. The format and order given here then mean nothing.
    ///
    /// ```
    /// # use postlude::prelude::*;
    /// let relu_ = Epilogue::build(|e| e.store("x", e.load("x", F32).relu(), F32))?;
    /// let mut x = [1.0f32, -2.0, -0.5, 4.0];
    /// Gemm::pointwise(F32, Order::RowMajor, &relu_).reference(Shape::matrix(2, 2), HostArgs::new().output("x", &mut x))?;
    /// assert_eq!(x, [1.0, 0.0, 0.0, 4.0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn pointwise(dtype: DType, order: Order, epilogue: &Epilogue) -> Gemm {
        Gemm::of(Operation::Pointwise { dtype, order }, epilogue)
    }

    /// The operation.
    pub fn operation(&self) -> Operation {
        self.operation
    }

    /// The epilogue.
    pub fn epilogue(&self) -> &Epilogue {
        &self.epilogue
    }

    /// Computes on the CPU what the kernel means.
    ///
    /// # Errors
    /// Every argument that does not fit; nothing is written then.
    pub fn reference(&self, shape: Shape, args: HostArgs<'_>) -> Result<(), ArgumentErrors> {
        reference::run(self.operation, self.epilogue.checked(), shape, args, Precision::F32)
    }

    /// The kernel's plan for a target and a number of multiprocessors. Needs no GPU and compiles nothing.
    ///
    /// # Errors
    /// If the epilogue does not fit the operation, the problem has strides that no launch could take, or the target lacks what it needs or has no
    /// multiprocessors.
    pub fn kernel(&self, target: Target, multiprocessors: usize, problem: impl Into<Problem>) -> Result<KernelPlan, PlanError> {
        let checked = self.epilogue.checked();
        KernelPlan::new(self.operation, checked, &problem.into(), target, multiprocessors, self.preferences)
    }
}

impl KernelPlan {
    /// The CUDA source.
    ///
    /// # Errors
    /// Only if a template of this library is at fault.
    pub fn source(&self) -> Result<Source, RenderError> {
        emit::render(self)
    }
}

#[cfg(feature = "jit")]
mod compile {
    use super::*;
    use crate::error::{CustomFailure, Error};
    use crate::jit::{Cache, JitError, Options};
    use crate::plan::StepKind;
    use crate::source::Cubin;
    use std::sync::Arc;

    /// A plan, its source and its binary. Cheap to clone.
    #[derive(Clone, Debug)]
    pub struct Kernel {
        /// What was decided.
        pub plan: Arc<KernelPlan>,
        /// What was compiled.
        pub source: Arc<Source>,
        /// What came out.
        pub cubin: Arc<Cubin>,
        /// The kernel that runs before it and copies operands, if the plan has it so.
        pub repack: Option<(Source, Arc<Cubin>)>,
        /// The kernel that runs before it and multiplies the parts of K, if the plan has it so.
        pub split: Option<Arc<Kernel>>,
    }

    impl Gemm {
        /// Compiles the kernel for a target, or takes it from the cache. Needs NVRTC, but neither GPU nor driver: this is
        /// how a cache is filled beforehand. `multiprocessors` is the device's count, which the choice of tile depends on.
        ///
        /// A kernel whose registers ran out is compiled again: with fewer blocks to a multiprocessor, then with a smaller
        /// tile. If nothing helps it is the one that spills least.
        ///
        /// Asked for the same once more, it takes the kernel from memory and neither plans nor prints.
        ///
        /// # Errors
        /// If there is no plan, no NVRTC, or a custom primitive does not compile.
        pub fn compile(
            &self,
            cache: &Cache,
            target: Target,
            multiprocessors: usize,
            problem: impl Into<Problem>,
        ) -> Result<Kernel, Error> {
            let problem = problem.into();
            let key = memo::key(self, target, multiprocessors, &problem, "");
            memo::kernel(cache, key, || Kernel::of(self.kernel(target, multiprocessors, problem.clone())?, cache))
                .map_err(|error| self.tell(error, target, multiprocessors, &problem))
        }
    }

    impl Kernel {
        /// Compiles a plan, relaxing it as long as registers run out.
        pub(super) fn of(mut plan: KernelPlan, cache: &Cache) -> Result<Kernel, Error> {
            let repack = plan.repack.as_ref().map(|repack| -> Result<_, Error> {
                let source = emit::render_repack(repack)?;
                let cubin = cache.compile(&source, &plan.target, &Options::new())?;
                Ok((source, cubin))
            });
            let repack = repack.transpose()?;
            let product = plan.split.as_mut().map(|split| -> Result<_, Error> {
                let product = Kernel::of((*split.product).clone(), cache)?;
                // As it came out: its registers may have run out.
                *split.product = (*product.plan).clone();
                Ok(Arc::new(product))
            });
            let product = product.transpose()?;
            let mut best: Option<Kernel> = None;
            loop {
                let compiled = plan.source().map_err(Error::from).and_then(|source| {
                    let cubin = cache.compile(&source, &plan.target, &Options::new()).map_err(|e| blame(&plan, e))?;
                    Ok((source, cubin))
                });
                let (source, cubin) = match (compiled, &best) {
                    (Ok(compiled), _) => compiled,
                    // One that spills is still one.
                    (Err(error), Some(best)) => {
                        tracing::warn!(entry = best.source.entry(), %error, "a kernel whose registers ran out stays as it is");
                        return Ok(best.clone());
                    }
                    (Err(error), None) => return Err(error),
                };
                let (plan_so_far, source) = (Arc::new(plan.clone()), Arc::new(source));
                let (repack, split) = (repack.clone(), product.clone());
                let kernel = Kernel { plan: plan_so_far, source, cubin, repack, split };
                let least = best.as_ref().map_or(u32::MAX, Kernel::spilled);
                let best = if kernel.spilled() < least { best.insert(kernel) } else { best.get_or_insert(kernel) };
                if best.spilled() == 0 || !plan.relax() {
                    return Ok(best.clone());
                }
            }
        }

        /// Bytes that a thread moves because registers ran out.
        fn spilled(&self) -> u32 {
            self.cubin.info.spill_store_bytes.saturating_add(self.cubin.info.spill_load_bytes)
        }

        /// The plan in words, with what the compiler says of the kernel.
        pub fn explain(&self) -> String {
            let product = self.split.as_ref().map(|product| product.compiled()).unwrap_or_default();
            let own = if product.is_empty() { "" } else { "the kernel that adds up and runs the epilogue\n" };
            format!("{}{product}{own}{}", self.plan.explain(), self.compiled())
        }

        /// What the compiler says.
        fn compiled(&self) -> String {
            let info = &self.cubin.info;
            let compiled = match info.compile_ms {
                Some(ms) => format!("compiled in {ms:.0} ms"),
                None => format!("from the {} cache", info.origin),
            };
            format!(
                "registers     {} a thread; {} bytes spilled, {} bytes of stack\nbinary        {} bytes, {compiled}, {}\n",
                info.registers,
                self.spilled(),
                info.stack_bytes,
                self.cubin.bytes.len(),
                info.compiler,
            )
        }
    }

    /// Blames a compiler error on the custom primitive it belongs to.
    fn blame(plan: &KernelPlan, error: JitError) -> Error {
        let JitError::Compile(failure) = &error else { return error.into() };
        let Some(at) = failure.errors().find_map(|m| m.step) else { return error.into() };
        let step = plan.program.steps.get(at as usize);
        let Some(StepKind::Custom { name, cuda, .. }) = step.map(|step| &step.kind) else { return error.into() };
        let messages = failure.errors().filter(|m| m.step == Some(at)).map(|m| m.text.clone()).collect();
        let built_at = plan.program.built_at.get(at as usize).copied().flatten().map(ToString::to_string);
        Error::Custom(CustomFailure { primitive: name.clone(), cuda: cuda.clone(), built_at, messages })
    }
}

#[cfg(feature = "jit")]
pub use compile::Kernel;
#[cfg(feature = "jit")]
pub use precompile::{Wanted, precompile};

#[cfg(feature = "cuda")]
mod execute {
    use super::*;
    use crate::args::{Slot, bind, slots};
    use crate::device::{Before, Device, DeviceArgs, Launch, LaunchError, LoadError, Repacker, Splitter};
    use crate::error::Error;
    use crate::jit::Fault;
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
        /// What tuning found, if it was tuned here.
        pub(super) tuning: Option<Tuning>,
    }

    impl fmt::Debug for Plan {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "Plan({} on device {}, {})", self.kernel.plan.tile, self.launch.context.ordinal(), self.launch.shape)
        }
    }

    impl Gemm {
        /// Chooses the kernel for a problem and compiles it, or takes it from the cache, and loads it. Takes the tile that
        /// [`autotune`](Plan::autotune) found for such a problem on such a GPU, if it ever did.
        ///
        /// Asked for the same once more, it neither plans nor looks beyond memory: planning for every call is affordable.
        ///
        /// # Errors
        /// If there is no plan, no NVRTC, or the driver refuses the kernel.
        pub fn plan(&self, device: &Device, problem: impl Into<Problem>) -> Result<Plan, Error> {
            let problem = problem.into();
            let (target, multiprocessors) = (device.target(), device.multiprocessors());
            // What tuning found is about a GPU; a new finding forgets all memos.
            let tell = |error| self.tell(error, target, multiprocessors, &problem);
            let key = memo::key(self, target, multiprocessors, &problem, device.name());
            let kernel = memo::kernel(device.cache(), key, || {
                let fresh = self.kernel(target, multiprocessors, problem.clone())?;
                let tuned = self.tuned(device, &fresh, problem.shape);
                match tuned.map(|plan| Kernel::of(plan, device.cache())) {
                    Some(Ok(kernel)) => Ok(kernel),
                    Some(Err(error)) => {
                        device.cache().report(Fault::Untuned, &fresh.tile, &error);
                        Kernel::of(fresh, device.cache())
                    }
                    None => Kernel::of(fresh, device.cache()),
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

        /// [`plan`](Gemm::plan) for arguments as they are: their strides and the alignment of their addresses.
        ///
        /// # Errors
        /// As `plan`.
        pub fn plan_for(
            &self,
            device: &Device,
            shape: Shape,
            stream: &Arc<CudaStream>,
            args: &mut DeviceArgs<'_>,
        ) -> Result<Plan, Error> {
            let plan = self.plan(device, args.problem(shape, stream));
            if let Err(Error::Arguments(_)) = plan {
                // A problem knows strides alone: a launch would find everything that does not fit.
                bind(&slots(self.operation, self.epilogue.checked(), shape), shape, args)?;
            }
            plan
        }
    }

    /// Loads a kernel and those that run before it.
    fn load(device: &Device, mut kernel: Kernel, slots: Vec<Slot>, shape: Shape) -> Result<(Kernel, Launch), Error> {
        let mut before = Before::default();
        if let (Some(repack), Some((source, cubin))) = (kernel.plan.repack, &mut kernel.repack) {
            let (function, loaded) = device.load(cubin, 0, source)?;
            *cubin = loaded;
            before.repacker = Some(Repacker::new(function, repack));
        }
        if let (Some(split), Some(product)) = (&kernel.plan.split, &kernel.split) {
            let (product, launch) = load(device, (**product).clone(), split.slots(shape), split.shape(shape))?;
            kernel.split = Some(Arc::new(product));
            before.splitter = Some(Splitter::new(launch, split.clone(), shape));
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
        /// Checks the arguments and launches: nothing else happens here. Returns when the launch is in the stream.
        ///
        /// A launch can be recorded into a CUDA graph if the context does not order streams by events
        /// (`CudaContext::disable_event_tracking`): a capture cannot wait for an event outside it. Kernels are unloaded with the last of
        /// their device and its plans, so keep one of these as long as the graph.
        ///
        /// A plan that copies operands, splits K or reduces has memory of its own on each stream that it has run on, which its first
        /// execution there allocates, and which stays as long as the plan: run it on a few streams, not on ever new ones. Before a capture
        /// execute it once, its operands shared by the batch as in the capture; keep the plan as long as the graph, and replay the graph
        /// where nothing else runs the plan on that memory.
        ///
        /// # Errors
        /// Every argument that does not fit; nothing is launched and nothing written then.
        pub fn execute(&self, stream: &Arc<CudaStream>, args: &mut DeviceArgs<'_>) -> Result<(), Error> {
            Ok(self.launch.run(stream, args)?)
        }

        /// The kernel: plan, source and binary.
        pub fn kernel(&self) -> &Kernel {
            &self.kernel
        }

        /// What runs and why.
        pub fn explain(&self) -> String {
            let tuning = self.tuning.as_ref().map(ToString::to_string).unwrap_or_default();
            self.kernel.explain() + &tuning
        }
    }
}

#[cfg(feature = "cuda")]
pub use execute::Plan;
