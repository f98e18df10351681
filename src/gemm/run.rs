//! First steps: arguments in host memory, computed on the GPU if there is one, and otherwise on the CPU.

use super::Gemm;
use crate::args::HostArgs;
#[cfg(feature = "cuda")]
use crate::device::Device;
use crate::error::Error;
use crate::problem::Shape;
use std::fmt;

/// The device on which [`Gemm::run`] ran.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum RanOn {
    /// A GPU, with its name.
    Gpu(String),
    /// The CPU reference, with the reason why there was no GPU or no compiler for it.
    Cpu(String),
}

impl fmt::Display for RanOn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RanOn::Gpu(device) => write!(f, "GPU: {device}"),
            RanOn::Cpu(why) => write!(f, "CPU: {why}"),
        }
    }
}

impl Gemm {
    /// Computes once on arguments in host memory: on the first GPU, or with [`reference`](Gemm::reference) if there is
    /// no GPU, or neither NVRTC nor the compiled kernel. It returns which of these ran, and why.
    ///
    /// It is meant for first steps, tests and tools. It opens the device and copies every argument there and back. A
    /// program that runs a kernel repeatedly should make a plan (`Gemm::plan`) and execute it on its own memory.
    ///
    /// # Errors
    /// Those of `Gemm::plan` and `Plan::execute`. Then nothing is written. A missing GPU or compiler is not an error. A
    /// kernel that is not in the cache is an error if the cache's mode is `deny`.
    pub fn run(&self, shape: Shape, args: HostArgs<'_>) -> Result<RanOn, Error> {
        #[cfg(feature = "cuda")]
        let why = match Device::find() {
            Ok(device) => return self.run_on(&device, shape, args),
            Err(why) => why.to_string(),
        };
        #[cfg(not(feature = "cuda"))]
        let why = "this program was built without the `cuda` feature".to_owned();
        self.reference(shape, args)?;
        Ok(RanOn::Cpu(why))
    }
}

#[cfg(feature = "cuda")]
mod on_device {
    use super::*;
    use crate::device::Copies;
    use crate::device::probe::may_wait;
    use crate::gemm::Plan;
    use crate::jit::JitError;
    use cudarc::driver::CudaStream;
    use std::sync::Arc;

    impl Gemm {
        pub(super) fn run_on(&self, device: &Device, shape: Shape, args: HostArgs<'_>) -> Result<RanOn, Error> {
            let stream = device.context().default_stream();
            let mut copies = Copies::upload(&stream, args)?;
            let plan = match self.plan_for(device, shape, &stream, &mut copies.args()) {
                // The cache has kernels, but not this one.
                Err(Error::Jit(JitError::NotFound(missing))) => {
                    self.reference(shape, copies.into_host())?;
                    return Ok(RanOn::Cpu(missing.to_string()));
                }
                plan => plan?,
            };
            plan.execute(&stream, &mut copies.args())?;
            copies.download(&stream)?;
            Ok(RanOn::Gpu(device.to_string()))
        }
    }

    impl Plan {
        /// [`execute`](Plan::execute) on arguments in host memory: copies them to the device, launches, copies the
        /// outputs back and waits. It is meant for first steps, tests and tools, because the copies take longer than
        /// the kernel.
        ///
        /// # Errors
        /// Those of `execute`; if the device has no memory left; or if the stream is being captured.
        pub fn execute_host(&self, stream: &Arc<CudaStream>, args: HostArgs<'_>) -> Result<(), Error> {
            may_wait(stream, "`Plan::execute_host`")?;
            let mut copies = Copies::upload(stream, args)?;
            self.execute(stream, &mut copies.args())?;
            Ok(copies.download(stream)?)
        }
    }
}
