//! The entry point: a product (or a pointwise operation) with an epilogue, and the ways to plan and run it.

#[cfg(feature = "jit")]
mod asked;
#[cfg(feature = "cuda")]
mod autotune;
#[cfg(feature = "cuda")]
mod bench;
#[cfg(feature = "jit")]
mod compile;
mod conv;
#[cfg(feature = "cuda")]
mod execute;
#[cfg(feature = "jit")]
mod memo;
#[cfg(feature = "jit")]
#[cfg(feature = "cuda")]
mod planner;
#[cfg(feature = "jit")]
mod precompile;
mod prefer;
mod run;
mod scaled;

pub use conv::{Conv, Pixel};
pub use run::RanOn;

use crate::args::{ArgumentErrors, HostArgs};
use crate::build::Epilogue;
use crate::dtype::DType;
use crate::emit::{self, RenderError};
use crate::ir::Order;
use crate::plan::{KernelPlan, PlanError, Preferences, Problem};
use crate::problem::{Attention, Layout, Operation, Pooling, Shape};
use crate::reference::{self, Precision};
use crate::source::Source;
use crate::target::{Gpu, Target};

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
    /// An operation with an epilogue. [`Gemm::new`] and the other constructors name the usual operations.
    pub fn of(operation: Operation, epilogue: &Epilogue) -> Gemm {
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

    /// D = epilogue(A B), with A and B of one format, in the given layout.
    ///
    /// Two row-major matrices, `x @ y`, are [`TT`](Layout::TT); `x @ w.T`, a linear layer, is [`TN`](Layout::TN); `x.T @ y` is
    /// [`NT`](Layout::NT), and two column-major matrices, as in BLAS, are [`NN`](Layout::NN). [`Layout`] has a picture.
    pub fn new(dtype: DType, layout: Layout, epilogue: &Epilogue) -> Gemm {
        Gemm::of(Operation::product(dtype, layout), epilogue)
    }

    /// [`new`](Gemm::new) for A and B of two formats: `E4M3` and `E5M2`, or `I8` and `U8`, or `F16` or `BF16` and a format of
    /// eight or four bits, which is widened.
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
        Gemm::of(Operation::mixed(a, b, layout), epilogue)
    }

    /// D = epilogue(A): an epilogue over an existing matrix, which is passed as `a`. K has no meaning, and
    /// [`Shape::matrix`] omits it.
    ///
    /// An epilogue that reads no accumulator needs no `a`: it works on its loads. A matrix that it stores under the
    /// name of a loaded one is updated in place. The format and order given here then have no meaning.
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

    /// D = epilogue(softmax(scores) B): the attention of the queries `a` and `keys` on the values `b`, without scores in memory.
    /// [`Attention`] has an example.
    ///
    /// All three are row-major: `a` is M x width, `keys` is K x width, `b` is K x N. Batch entries are heads.
    ///
    /// Kernels exist for f16 and bf16 from `sm_80` on, with rows that begin at multiples of 16 bytes, and up to 128 elements of
    /// a query. They round weights to the format of the values.
    pub fn attention(dtype: DType, attention: Attention, epilogue: &Epilogue) -> Gemm {
        Gemm::of(Operation::Attention { dtype, attention }, epilogue)
    }

    /// D = epilogue(pool of the NHWC images `a`): one row for each output pixel and one column for each channel. A launch has
    /// the extents [`Pooling::shape`], where there is an example.
    pub fn pool(dtype: DType, pooling: Pooling, epilogue: &Epilogue) -> Gemm {
        Gemm::of(Operation::Pool { dtype, pooling }, epilogue)
    }

    /// The operation.
    pub fn operation(&self) -> Operation {
        self.operation
    }

    /// The epilogue.
    pub fn epilogue(&self) -> &Epilogue {
        &self.epilogue
    }

    /// Computes the result of the kernel on the CPU, as its definition.
    ///
    /// # Errors
    /// Every argument that does not fit. Then nothing is written.
    pub fn reference(&self, shape: Shape, args: HostArgs<'_>) -> Result<(), ArgumentErrors> {
        reference::run(self.operation, self.epilogue.checked(), shape, args, Precision::F32)
    }

    /// The kernel's plan for a target and a number of multiprocessors. Needs no GPU and compiles nothing.
    ///
    /// # Errors
    /// If the epilogue does not fit the operation, if the problem has strides that no launch could take, or if the
    /// target lacks a feature or has no multiprocessors.
    pub fn kernel_plan(&self, target: Target, gpu: impl Into<Gpu>, problem: impl Into<Problem>) -> Result<KernelPlan, PlanError> {
        let checked = self.epilogue.checked();
        KernelPlan::new(self.operation, checked, &problem.into(), target, gpu, self.preferences)
    }
}

impl KernelPlan {
    /// The CUDA source.
    ///
    /// # Errors
    /// Only if a template of this library is wrong.
    pub fn source(&self) -> Result<Source, RenderError> {
        emit::render(self)
    }
}

#[cfg(feature = "jit")]
pub use compile::Kernel;
#[cfg(feature = "jit")]
pub use precompile::{Wanted, precompile};

#[cfg(feature = "cuda")]
pub use execute::Plan;
#[cfg(feature = "cuda")]
pub use planner::Planner;
