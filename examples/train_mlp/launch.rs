//! Execution: kernels planned once on the GPU if there is one, the CPU reference otherwise.

use super::Result;
use postlude::Gemm;
use postlude::cudarc::driver::CudaStream;
use postlude::gemm::Plan;
use postlude::layer::{Step, StepPlan};
use postlude::prelude::*;
use std::sync::Arc;

/// The GPU, if there is one.
pub struct Machine {
    device: Option<Device>,
}

/// A launch that can run again and again. Tensors are in host memory here, so that the same program runs anywhere. A
/// program with a GPU keeps them there, and calls `execute` with them.
pub enum Launch {
    StepOnCpu(Step),
    PassOnCpu(Gemm, Shape),
    StepOnGpu(StepPlan, Arc<CudaStream>),
    PassOnGpu(Plan, Arc<CudaStream>),
}

impl Machine {
    pub fn new(device: Option<Device>) -> Machine {
        Machine { device }
    }

    /// A step of a layer.
    pub fn step(&self, step: Step) -> Result<Launch> {
        Ok(match &self.device {
            Some(device) => Launch::StepOnGpu(step.plan(device)?, device.context().default_stream()),
            None => Launch::StepOnCpu(step),
        })
    }

    /// A pass over a matrix.
    pub fn pass(&self, gemm: Gemm, shape: Shape) -> Result<Launch> {
        Ok(match &self.device {
            Some(device) => Launch::PassOnGpu(gemm.plan(device, shape)?, device.context().default_stream()),
            None => Launch::PassOnCpu(gemm, shape),
        })
    }
}

impl Launch {
    pub fn run(&self, args: HostArgs<'_>) -> Result<()> {
        match self {
            Launch::StepOnCpu(step) => step.reference(args)?,
            Launch::PassOnCpu(gemm, shape) => gemm.reference(*shape, args)?,
            Launch::StepOnGpu(plan, stream) => plan.execute_host(stream, args)?,
            Launch::PassOnGpu(plan, stream) => plan.execute_host(stream, args)?,
        }
        Ok(())
    }
}
