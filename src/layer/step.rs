//! A step: one product of a layer with its epilogue and extents, whose arguments have the layer's names.

use super::rewrite;
use crate::args::{Args, ArgumentErrors, ArgumentFault, HostArgs};
use crate::compat::paddle::{Strides, arranged};
use crate::dtype::DType;
use crate::error::Error;
use crate::error::LinearError;
use crate::gemm::{Gemm, RanOn};
use crate::ir::Operand;
#[cfg(feature = "cuda")]
use crate::plan::Problem;
use crate::problem::Shape;
use std::sync::Arc;

/// One launch of a layer's training: a product, or a pass over a matrix, with its epilogue and its extents.
///
/// Nothing is compiled until `plan`. Arguments go by the names of the [table](super); errors use them too.
#[derive(Clone, Debug)]
pub struct Step {
    gemm: Gemm,
    shape: Shape,
    names: Names,
    /// Outputs that a backward step treats as results of the epilogue.
    saves: Vec<Arc<str>>,
}

/// The layer's names of a product's operands, and the layouts of its arguments that are not contiguous.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names {
    operands: [Option<&'static str>; 2],
    strides: Vec<Strides>,
}

impl Names {
    pub(super) fn new(a: &'static str, b: Option<&'static str>) -> Names {
        Names { operands: [Some(a), b], strides: Vec::new() }
    }

    /// The same names with layouts of their own.
    pub(super) fn lying(self, strides: Vec<Strides>) -> Names {
        Names { strides, ..self }
    }

    /// A problem with these strides.
    #[cfg(feature = "cuda")]
    fn problem(&self, shape: Shape) -> Problem {
        self.strides.iter().fold(shape.into(), |problem: Problem, s| {
            problem.ld(s.name, s.leading_dimension).batch_stride(s.name, s.batch_stride)
        })
    }

    /// Each operand's name in the product, with its name in the layer.
    fn pairs(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        ["a", "b"].into_iter().zip(self.operands).filter_map(|(operand, name)| Some((operand, name?)))
    }

    /// Renames arguments to the names of the product, and sets their strides.
    fn translate<B>(&self, args: &mut Args<B>) {
        args.rename(|given| self.pairs().find(|(_, name)| *name == given).map(|(operand, _)| operand));
        *args = arranged(&self.strides, std::mem::take(args));
    }

    /// Renames errors to the names of the layer.
    fn explain(&self, mut errors: ArgumentErrors) -> ArgumentErrors {
        let rename = |name: &mut String| {
            if let Some((_, own)) = self.pairs().find(|(operand, _)| operand == name) {
                *name = own.into();
            }
        };
        for error in &mut errors.0 {
            rename(&mut error.name);
            if let ArgumentFault::Unknown { known } = &mut error.fault {
                known.iter_mut().for_each(rename);
            }
        }
        errors
    }

    fn explain_error(&self, error: Error) -> Error {
        match error {
            Error::Arguments(errors) => self.explain(errors).into(),
            other => other,
        }
    }
}

impl Step {
    pub(super) fn new(gemm: Gemm, shape: Shape, names: Names) -> Step {
        Step { gemm, shape, names, saves: Vec::new() }
    }

    /// The same step, with outputs from which its derivative follows.
    pub(super) fn saves(self, saves: Vec<Arc<str>>) -> Step {
        Step { saves, ..self }
    }

    /// The product with its epilogue; its operands are `a` and `b`.
    pub fn gemm(&self) -> &Gemm {
        &self.gemm
    }

    /// Its extents.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// The same step with other preferences: `.with(|gemm| gemm.tf32(true))`.
    #[must_use]
    pub fn with(self, prefer: impl FnOnce(Gemm) -> Gemm) -> Step {
        Step { gemm: prefer(self.gemm), ..self }
    }

    /// The same step, which adds to the present values of these outputs and rounds once: for gradients over several
    /// batches, or of a tensor with several users. A reduction takes the present value as one more element: a sum adds
    /// it, a maximum takes the larger.
    ///
    /// # Errors
    /// If there is no such output, or it holds conditions, or it is a matrix that is updated in place already, or the
    /// derivative follows from it: an output of [`forward`](super::Linear::forward) that is
    /// [kept](crate::grad::Wrt::keeps).
    pub fn accumulate(self, outputs: &[&str]) -> Result<Step, LinearError> {
        let epilogue = rewrite::accumulate(self.gemm.epilogue(), outputs)?;
        if let Some(name) = self.saves.iter().find(|name| outputs.contains(&&***name)) {
            let why = "the derivative follows from it: add in a separate step, or add to the product with `plus`";
            return Err(LinearError::Accumulate { name: name.to_string(), why });
        }
        Ok(Step { gemm: self.gemm.with_epilogue(&epilogue), ..self })
    }

    /// The same step, which stores the matrix `output` in eight bits, for a layer that [reads such](super::Linear::fp8): each
    /// element over `NAME_scale`, an `f32` in memory, rounded to the format and saturated. The largest magnitude before the
    /// division is an output as well, `NAME_amax`, from which
    /// [`recipes::delayed_scale`](crate::build::recipes::delayed_scale) makes the scale of later steps.
    ///
    /// Gradients pass such an output as if it were not rounded. A scale keeps the range free of saturation; where it does not,
    /// the gradient of a saturated element is not 0. An epilogue that stores eight bits by itself has that zero: see
    /// [`grad`](crate::grad#derivatives).
    ///
    /// # Errors
    /// If there is no such output, it is not a matrix of `f32`, `f16` or `bf16`, it is updated in place, the derivative follows
    /// from it, the format has no eight bits, or a name is taken.
    pub fn quantize(self, output: &str, dtype: DType) -> Result<Step, LinearError> {
        if self.saves.iter().any(|name| **name == *output) {
            let why = "the derivative follows from it: do not keep it, or quantise it in a pass of its own";
            return Err(LinearError::Quantize { name: output.into(), why });
        }
        let epilogue = rewrite::quantized(self.gemm.epilogue(), output, dtype)?;
        Ok(Step { gemm: self.gemm.with_epilogue(&epilogue), ..self })
    }

    /// The same step with a matrix added to its product before the epilogue: a contribution to Y from elsewhere, such
    /// as a skip connection.
    ///
    /// # Errors
    /// If the name is taken, or the epilogue does not read its product.
    pub fn plus(self, name: &str, operand: impl Into<Operand>) -> Result<Step, LinearError> {
        let own = self.names.pairs().any(|(_, own)| own == name);
        if own || self.gemm.epilogue().checked().argument(name).is_some() {
            return Err(LinearError::Taken { name: name.into() });
        }
        let epilogue = rewrite::plus(self.gemm.epilogue(), name, operand.into())?;
        Ok(Step { gemm: self.gemm.with_epilogue(&epilogue), ..self })
    }

    /// Computes the meaning of the kernel on the CPU.
    ///
    /// # Errors
    /// If arguments do not fit: all of them. Nothing is written then.
    pub fn reference(&self, mut args: HostArgs<'_>) -> Result<(), ArgumentErrors> {
        self.names.translate(&mut args);
        self.gemm.reference(self.shape, args).map_err(|errors| self.names.explain(errors))
    }

    /// Computes once on arguments in host memory, on the GPU if there is one: see [`Gemm::run`].
    ///
    /// # Errors
    /// As [`Gemm::run`].
    pub fn run(&self, mut args: HostArgs<'_>) -> Result<RanOn, Error> {
        self.names.translate(&mut args);
        self.gemm.run(self.shape, args).map_err(|error| self.names.explain_error(error))
    }
}

#[cfg(feature = "cuda")]
mod on_device {
    use super::Arc;
    use super::{Error, HostArgs, Names, Step};
    use crate::device::{Device, DeviceArgs};
    use crate::gemm::Plan;
    use crate::tune::{Autotune, Tuning};
    use cudarc::driver::CudaStream;

    /// A step on a device, ready to run again and again.
    #[derive(Debug)]
    pub struct StepPlan {
        plan: Plan,
        names: Names,
    }

    impl Step {
        /// Chooses the kernel, compiles it or takes it from the cache, and loads it: see
        /// [`Gemm::plan`](crate::Gemm::plan). Arguments are assumed to be contiguous and aligned.
        ///
        /// # Errors
        /// If planning fails, NVRTC is missing, or the driver rejects the kernel.
        pub fn plan(&self, device: &Device) -> Result<StepPlan, Error> {
            Ok(StepPlan { plan: self.gemm.plan(device, self.names.problem(self.shape))?, names: self.names.clone() })
        }

        /// [`plan`](Step::plan) for the strides and alignments of given arguments.
        ///
        /// # Errors
        /// As `plan`.
        pub fn plan_for(&self, device: &Device, stream: &Arc<CudaStream>, args: &mut DeviceArgs<'_>) -> Result<StepPlan, Error> {
            self.names.translate(args);
            let plan = self.gemm.plan_for(device, self.shape, stream, args);
            Ok(StepPlan { plan: plan.map_err(|error| self.names.explain_error(error))?, names: self.names.clone() })
        }
    }

    impl StepPlan {
        /// Checks the arguments and launches: see [`Plan::execute`].
        ///
        /// # Errors
        /// If arguments do not fit: all of them. Nothing is launched and nothing written then.
        pub fn execute(&self, stream: &Arc<CudaStream>, args: &mut DeviceArgs<'_>) -> Result<(), Error> {
            self.names.translate(args);
            self.plan.execute(stream, args).map_err(|error| self.names.explain_error(error))
        }

        /// The same on arguments in host memory, for first steps: see [`Plan::execute_host`].
        ///
        /// # Errors
        /// As `execute`, and if the device has no memory left.
        pub fn execute_host(&self, stream: &Arc<CudaStream>, mut args: HostArgs<'_>) -> Result<(), Error> {
            self.names.translate(&mut args);
            self.plan.execute_host(stream, args).map_err(|error| self.names.explain_error(error))
        }

        /// Times other kernels on these arguments, and takes the fastest: see [`Plan::autotune`].
        ///
        /// # Errors
        /// As [`Plan::autotune`].
        pub fn autotune(
            &mut self,
            stream: &Arc<CudaStream>,
            args: &mut DeviceArgs<'_>,
            options: Autotune,
        ) -> Result<Tuning, Error> {
            self.names.translate(args);
            self.plan.autotune(stream, args, options).map_err(|error| self.names.explain_error(error))
        }

        /// The plan of the product, to explain; its operands are `a` and `b`.
        pub fn plan(&self) -> &Plan {
            &self.plan
        }
    }
}

#[cfg(feature = "cuda")]
pub use on_device::StepPlan;
